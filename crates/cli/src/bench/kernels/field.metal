// The scalar field of the curve BN254 in Montgomery form, in eight limbs of 32 bits: long scalar code, for the compiler.

#include <metal_stdlib>
using namespace metal;

struct Field {
    uint limbs[8];
};

constant uint MODULUS[8] = {0xf0000001, 0x43e1f593, 0x79b97091, 0x2833e848, 0x8181585d, 0xb85045b6, 0xe131a029, 0x30644e72};
// -1 / MODULUS modulo 2^32.
constant constexpr uint INVERSE = 0xefffffff;

// x - MODULUS if it is not negative.
inline Field reduced(Field x)
{
    Field less;
    long borrow = 0;
    for (uint i = 0; i < 8; ++i) {
        borrow += long(x.limbs[i]) - long(MODULUS[i]);
        less.limbs[i] = uint(borrow);
        borrow >>= 32;
    }
    for (uint i = 0; i < 8; ++i) {
        x.limbs[i] = borrow < 0 ? x.limbs[i] : less.limbs[i];
    }
    return x;
}

inline Field operator+(Field a, Field b)
{
    ulong carry = 0;
    for (uint i = 0; i < 8; ++i) {
        carry += ulong(a.limbs[i]) + ulong(b.limbs[i]);
        a.limbs[i] = uint(carry);
        carry >>= 32;
    }
    return reduced(a);
}

// Coarsely integrated operand scanning (Koç, Acar, Kaliski: Analyzing and comparing Montgomery multiplication algorithms, 1996).
inline Field operator*(Field a, Field b)
{
    uint sum[10] = {0};
    for (uint i = 0; i < 8; ++i) {
        ulong carry = 0;
        for (uint j = 0; j < 8; ++j) {
            carry += ulong(a.limbs[j]) * ulong(b.limbs[i]) + ulong(sum[j]);
            sum[j] = uint(carry);
            carry >>= 32;
        }
        carry += ulong(sum[8]);
        sum[8] = uint(carry);
        sum[9] = uint(carry >> 32);
        uint factor = sum[0] * INVERSE;
        carry = (ulong(factor) * ulong(MODULUS[0]) + ulong(sum[0])) >> 32;
        for (uint j = 1; j < 8; ++j) {
            carry += ulong(factor) * ulong(MODULUS[j]) + ulong(sum[j]);
            sum[j - 1] = uint(carry);
            carry >>= 32;
        }
        carry += ulong(sum[8]);
        sum[7] = uint(carry);
        sum[8] = sum[9] + uint(carry >> 32);
    }
    Field product;
    for (uint i = 0; i < 8; ++i) {
        product.limbs[i] = sum[i];
    }
    return reduced(product);
}

// A chain of 32 products, in one basic block if the compiler unrolls it.
kernel void montgomery(device const Field* x [[buffer(0)]], device const Field* y [[buffer(1)]], device Field* out [[buffer(2)]],
                       uint i [[thread_position_in_grid]])
{
    Field product = x[i], factor = y[i];
    for (uint n = 0; n < 32; ++n) {
        product = product * factor;
    }
    out[i] = product;
}

inline Field fifth_power(Field x)
{
    Field square = x * x;
    return square * square * x;
}

// Poseidon2 (Grassi, Khovratovich, Schofnegger, 2023) of three elements: eight full rounds and 56 partial ones.
kernel void poseidon2(device const Field* in [[buffer(0)]], device Field* out [[buffer(1)]],
                      device const Field* constants [[buffer(2)]], uint i [[thread_position_in_grid]])
{
    Field state[3] = {in[3 * i], in[3 * i + 1], in[3 * i + 2]};
    for (uint round = 0; round < 64; ++round) {
        bool is_full = round < 4 || round >= 60;
        for (uint n = 0; n < 3; ++n) {
            if (is_full || n == 0) {
                state[n] = fifth_power(state[n] + constants[3 * round + n]);
            }
        }
        Field sum = state[0] + state[1] + state[2];
        state[0] = state[0] + sum;
        state[1] = state[1] + sum;
        state[2] = (is_full ? state[2] : state[2] + state[2]) + sum;
    }
    for (uint n = 0; n < 3; ++n) {
        out[3 * i + n] = state[n];
    }
}
