#include <metal_stdlib>
using namespace metal;

// The acceleration of each body; `bodies` holds positions and, as w, masses.
kernel void nbody(device const float4* bodies [[buffer(0)]], device float4* accelerations [[buffer(1)]],
                  constant uint& n [[buffer(2)]], constant float& softening [[buffer(3)]],
                  uint id [[thread_position_in_grid]])
{
    float3 here = bodies[id].xyz;
    float3 sum = 0.0f;
    for (uint i = 0; i < n; ++i) {
        float4 other = bodies[i];
        float3 way = other.xyz - here;
        float inverse = rsqrt(dot(way, way) + softening);
        sum += way * (other.w * inverse * inverse * inverse);
    }
    accelerations[id] = float4(sum, 0.0f);
}
