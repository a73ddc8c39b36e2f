__kernel void nbody(__global const float4* bodies, __global float4* accelerations, uint n, float softening)
{
    size_t id = get_global_id(0);
    float3 here = bodies[id].xyz;
    float3 sum = (float3)(0.0f);
    for (uint i = 0; i < n; ++i) {
        float4 other = bodies[i];
        float3 way = other.xyz - here;
        float inverse = rsqrt(dot(way, way) + softening);
        sum += way * (other.w * inverse * inverse * inverse);
    }
    accelerations[id] = (float4)(sum, 0.0f);
}
