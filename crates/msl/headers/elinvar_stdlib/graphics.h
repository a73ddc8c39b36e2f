// Functions and types of graphics and ray tracing: declared so that a source that has such functions beside its kernels compiles.
// They are not supported: a kernel that takes one of these types is refused by name, and a call is an undefined function.
#pragma once

namespace metal {
void discard_fragment();
bool simd_is_helper_thread();
template <class T> T dfdx(T);
template <class T> T dfdy(T);
template <class T> T fwidth(T);
uint get_num_samples();
float2 get_sample_position(uint);

enum class topology { point, line, triangle };
template <class V, class P, uint Vertices, uint Primitives, topology T> struct mesh {
    template <class... X> void set_vertex(X...) const;
    template <class... X> void set_primitive(X...) const;
    template <class... X> void set_index(X...) const;
    template <class... X> void set_indices(X...) const;
    void set_primitive_count(uint) const;
};
struct mesh_grid_properties {
    template <class... X> void set_threadgroups_per_grid(X...) const;
};
template <class T> struct patch_control_point {
    size_t size() const;
    T operator[](size_t) const;
};
namespace interpolation {
struct perspective {};
struct no_perspective {};
} // namespace interpolation
template <class T, class P> struct interpolant {
    template <class... X> T interpolate_at_center(X...) const;
    template <class... X> T interpolate_at_centroid(X...) const;
    template <class... X> T interpolate_at_offset(X...) const;
    template <class... X> T interpolate_at_sample(X...) const;
};

namespace raytracing {
struct triangle_data {};
struct instancing {};
struct world_space_data {};
struct primitive_motion {};
struct instance_motion {};
struct bounding_box_data {};
struct extended_limits {};
struct curve_data {};
template <uint N> struct max_levels {};

enum class intersection_type { none, triangle, bounding_box, curve };
enum class geometry_type : uint { none = 0, triangle = 1, bounding_box = 2, curve = 4, all = 7 };
enum class forced_opacity { none, opaque, non_opaque };
enum class triangle_cull_mode { none, front, back };
enum class opacity_cull_mode { none, opaque, non_opaque };
enum class triangle_front_facing_winding { clockwise, counterclockwise };

struct ray {
    float3 origin;
    float min_distance;
    float3 direction;
    float max_distance;
    ray(float3 origin = float3(0.0f), float3 direction = float3(0.0f), float min_distance = 0, float max_distance = __builtin_inff())
        : origin(origin), min_distance(min_distance), direction(direction), max_distance(max_distance) {}
};

template <class... Tags> struct acceleration_structure {
    uint get_instance_count() const;
};
using primitive_acceleration_structure = acceleration_structure<>;
using instance_acceleration_structure = acceleration_structure<instancing>;
template <class... Tags> bool is_null_acceleration_structure(acceleration_structure<Tags...>);
template <class... Tags> struct intersection_function_table {
    template <class B> B get_buffer(uint) const;
    template <class F> visible_function_table<F> get_visible_function_table(uint) const;
    uint size() const;
    bool empty() const;
};
template <class... Tags> bool is_null_intersection_function_table(intersection_function_table<Tags...>);

template <class... Tags> struct intersection_result {
    intersection_type type;
    float distance;
    uint primitive_id, geometry_id, instance_id, user_instance_id;
    const void* primitive_data;
    float2 triangle_barycentric_coord;
    bool triangle_front_facing;
    float curve_parameter;
    matrix<float, 4, 3> object_to_world_transform, world_to_object_transform;
};

#define ELINVAR_SETTINGS                                                                                       \
    void set_triangle_front_facing_winding(triangle_front_facing_winding);                                    \
    void set_geometry_cull_mode(geometry_type);                                                               \
    void set_opacity_cull_mode(opacity_cull_mode);                                                            \
    void set_triangle_cull_mode(triangle_cull_mode);                                                          \
    void force_opacity(forced_opacity);                                                                       \
    void assume_geometry_type(geometry_type);                                                                 \
    void assume_identity_transforms(bool);                                                                    \
    void accept_any_intersection(bool);
struct intersection_params {
    ELINVAR_SETTINGS
};
template <class... Tags> struct intersector {
    using result_type = intersection_result<Tags...>;
    ELINVAR_SETTINGS
    template <class... X> result_type intersect(X...) const;
};
#undef ELINVAR_SETTINGS
template <class... Tags> struct intersection_query {
    intersection_query() = default;
    template <class... X> explicit intersection_query(X...) {}
    template <class... X> void reset(X...);
    bool next();
    void abort();
    void commit_triangle_intersection();
    void commit_bounding_box_intersection(float);
    intersection_type get_candidate_intersection_type() const;
    intersection_type get_committed_intersection_type() const;
#define ELINVAR_STATE(T, name)                                                                                 \
    T get_candidate_##name() const;                                                                           \
    T get_committed_##name() const;
    ELINVAR_STATE(float, triangle_distance)
    ELINVAR_STATE(float, distance)
    ELINVAR_STATE(float2, triangle_barycentric_coord)
    ELINVAR_STATE(bool, triangle_front_facing)
    ELINVAR_STATE(uint, primitive_id)
    ELINVAR_STATE(uint, geometry_id)
    ELINVAR_STATE(uint, instance_id)
    ELINVAR_STATE(uint, user_instance_id)
    ELINVAR_STATE(const void*, primitive_data)
    ELINVAR_STATE(float3, ray_origin)
    ELINVAR_STATE(float3, ray_direction)
#undef ELINVAR_STATE
};
} // namespace raytracing
} // namespace metal
