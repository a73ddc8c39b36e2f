#include <metal_stdlib>
using namespace metal;
struct VIn { float3 position [[attribute(0)]]; float2 uv [[attribute(1)]]; };
struct VOut { float4 position [[position]]; float2 uv; float size [[point_size]]; float4 color [[flat]]; uint layer [[render_target_array_index]]; };
struct FOut { float4 color [[color(0)]]; float depth [[depth(any)]]; };
vertex VOut vs(VIn in [[stage_in]], uint vid [[vertex_id]], uint iid [[instance_id]], constant float4x4& m [[buffer(1)]]) { VOut o; o.position = m * float4(in.position, 1); o.uv = in.uv; o.size = 1; o.color = float4(vid, iid, 0, 1); o.layer = 0; return o; }
constexpr sampler smp(coord::normalized, address::clamp_to_edge, filter::linear, mip_filter::linear, max_anisotropy(4), lod_clamp(0.0f, 4.0f), border_color::opaque_white, compare_func::less);
constexpr sampler smp2(coord::pixel, s_address::repeat, t_address::mirrored_repeat, min_filter::nearest, mag_filter::linear);
fragment FOut fs(VOut in [[stage_in]], texture2d<float> t [[texture(0)]], sampler s [[sampler(0)]], depth2d<float> d [[texture(1)]], texturecube<half> c [[texture(2)]], bool front [[front_facing]], float2 pc [[point_coord]]) {
  if (in.color.a < 0.5) discard_fragment();
  FOut o; float4 v = t.sample(s, in.uv, level(0)) + t.sample(smp, in.uv, bias(1.0f)) + t.sample(s, in.uv, gradient2d(dfdx(in.uv), dfdy(in.uv))) + t.gather(s, in.uv, int2(0), component::x);
  float z = d.sample_compare(smp, in.uv, 0.5f) + d.sample(s, in.uv) + d.read(uint2(0));
  o.color = v * z + float4(c.sample(s, float3(1), level(1.0f))) + fwidth(in.uv.x) + float4(t.read(uint2(1, 2), 0)); o.depth = z; return o;
}
[[early_fragment_tests]] fragment half4 fs2(VOut in [[stage_in]], constant float& x [[buffer(0)]]) { return half4(in.color * x); }
kernel void blur(texture2d<float, access::read> in [[texture(0)]], texture2d<float, access::write> out [[texture(1)]], texture2d_array<half, access::read_write> arr [[texture(2)]], uint2 gid [[thread_position_in_grid]]) {
  if (gid.x >= out.get_width() || gid.y >= out.get_height()) return;
  float4 s = in.read(gid); arr.write(half4(s), gid, 0); arr.fence(); half4 h = arr.read(gid, 1);
  out.write(s + float4(h), gid);
}
kernel void image(texture2d<uint, access::read_write> t [[texture(0)]], texture_buffer<float, access::read> b [[texture(1)]], uint2 gid [[thread_position_in_grid]]) {
  t.atomic_fetch_add(gid, uint4(1)); uint4 old = t.atomic_load(gid); t.write(old + uint4(b.read(gid.x)), gid);
  if (is_null_texture(t)) return; uint n = t.get_num_mip_levels();
}
kernel void plain(device float* o, uint i [[thread_position_in_grid]]) { o[i] += 1; }
kernel void rays(raytracing::instance_acceleration_structure scene [[buffer(0)]], device float* o [[buffer(1)]],
                 raytracing::intersection_function_table<raytracing::triangle_data, raytracing::instancing> f [[buffer(2)]],
                 uint i [[thread_position_in_grid]]) {
    using namespace metal::raytracing;
    ray r(float3(i), float3(0, 0, 1));
    r.max_distance = 100;
    intersector<triangle_data, instancing> all;
    all.assume_geometry_type(geometry_type::triangle);
    all.accept_any_intersection(false);
    auto found = all.intersect(r, scene, 0xff, f);
    intersection_query<triangle_data> query(r, scene, intersection_params());
    while (query.next()) query.commit_triangle_intersection();
    o[i] = found.type == intersection_type::none ? 0 : found.distance + found.triangle_barycentric_coord.x;
}
kernel void tile(imageblock<VOut, imageblock_layout_implicit> block, ushort2 i [[thread_position_in_threadgroup]]) {
    VOut v = block.read(i);
    block.write(v, i);
}
using Points = metal::mesh<VOut, FOut, 4, 2, topology::triangle>;
[[mesh]] void ms(Points m, uint i [[thread_index_in_threadgroup]]) { m.set_index(i, uchar(i)); m.set_primitive_count(1); }
