// What blits cannot do: fill with a pattern of several bytes, and touch bytes that are not whole words.
#include <metal_stdlib>
using namespace metal;

kernel void fill_words(device uint* target [[buffer(0)]], constant uint* pattern [[buffer(1)]],
                               constant uint2& size [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    if (i < size.x) target[i] = pattern[i % size.y];
}

kernel void fill_bytes(device uchar* target [[buffer(0)]], constant uchar* pattern [[buffer(1)]],
                               constant uint2& size [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    if (i < size.x) target[i] = pattern[i % size.y];
}

kernel void copy_bytes(device const uchar* source [[buffer(0)]], device uchar* target [[buffer(1)]],
                               constant uint2& size [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    if (i < size.x) target[i] = source[i];
}
