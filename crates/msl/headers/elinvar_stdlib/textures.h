// Textures, samplers and other opaque types: declared so that a source that mentions them compiles. A kernel that takes
// one is refused by name when it is asked for.
#pragma once

namespace metal {
enum class access { sample, read, write, read_write };
enum class coord { normalized, pixel };
enum class filter { nearest, linear };
enum class min_filter { nearest, linear };
enum class mag_filter { nearest, linear };
enum class mip_filter { none, nearest, linear };
enum class address { clamp_to_edge, repeat, mirrored_repeat, clamp_to_zero, clamp_to_border };
enum class compare_func { none, less, less_equal, greater, greater_equal, equal, not_equal, always, never };

struct sampler {
    template <class... A> constexpr sampler(A...) {}
};

#define ELINVAR_TEXTURE(name)                                                                                  \
    template <class T, access A = access::sample> struct name {                                               \
        template <class... X> vec<T, 4> sample(X...) const;                                                   \
        template <class... X> vec<T, 4> gather(X...) const;                                                   \
        template <class... X> vec<T, 4> read(X...) const;                                                     \
        template <class... X> void write(X...) const;                                                         \
        uint get_width(uint = 0) const;                                                                       \
        uint get_height(uint = 0) const;                                                                      \
        uint get_depth(uint = 0) const;                                                                       \
        uint get_array_size() const;                                                                          \
        uint get_num_mip_levels() const;                                                                      \
    };
ELINVAR_TEXTURE(texture1d)
ELINVAR_TEXTURE(texture1d_array)
ELINVAR_TEXTURE(texture2d)
ELINVAR_TEXTURE(texture2d_array)
ELINVAR_TEXTURE(texture3d)
ELINVAR_TEXTURE(texturecube)
ELINVAR_TEXTURE(texture_buffer)
ELINVAR_TEXTURE(depth2d)
ELINVAR_TEXTURE(texture2d_ms)
ELINVAR_TEXTURE(texture2d_ms_array)
ELINVAR_TEXTURE(texturecube_array)
ELINVAR_TEXTURE(depth2d_array)
ELINVAR_TEXTURE(depth2d_ms)
ELINVAR_TEXTURE(depth2d_ms_array)
ELINVAR_TEXTURE(depthcube)
ELINVAR_TEXTURE(depthcube_array)
#undef ELINVAR_TEXTURE

template <class F> struct visible_function_table {
    F* operator[](uint) const;
    uint size() const;
    bool empty() const;
};
template <class F> bool is_null_visible_function_table(visible_function_table<F>);

enum class imageblock_data_rate { color, sample };
struct imageblock_layout_explicit {};
struct imageblock_layout_implicit {};
template <class T, class L = imageblock_layout_implicit> struct imageblock {
    template <class... X> T read(X...) const;
    template <class... X> void write(X...) const;
    template <class... X> T* data(X...) const;
    template <class... X> imageblock slice(X...) const;
    ushort get_width() const;
    ushort get_height() const;
    ushort get_num_samples() const;
    template <class... X> ushort get_num_colors(X...) const;
};
struct command_buffer {
    ulong size() const;
};
struct render_pipeline_state {};
struct compute_pipeline_state {};
struct depth_stencil_state {};
struct compute_command {
    template <class... X> compute_command(X...) {}
    template <class... X> void set_compute_pipeline_state(X...) const;
    template <class... X> void set_kernel_buffer(X...) const;
    template <class... X> void concurrent_dispatch_threadgroups(X...) const;
    template <class... X> void concurrent_dispatch_threads(X...) const;
    void set_barrier() const;
    void clear_barrier() const;
    void reset() const;
};
struct render_command {
    template <class... X> render_command(X...) {}
    template <class... X> void set_render_pipeline_state(X...) const;
    template <class... X> void set_vertex_buffer(X...) const;
    template <class... X> void set_fragment_buffer(X...) const;
    template <class... X> void draw_primitives(X...) const;
    template <class... X> void draw_indexed_primitives(X...) const;
    void reset() const;
};
enum class primitive_type { point = 0, line = 1, line_strip = 2, triangle = 3, triangle_strip = 4 };

namespace raytracing {
struct triangle_data {};
struct instancing {};
struct world_space_data {};
struct primitive_motion {};
struct instance_motion {};
struct bounding_box_data {};
struct extended_limits {};
struct curve_data {};
template <class... Tags> struct acceleration_structure {};
template <class... Tags> struct intersection_function_table {
    template <class B> B get_buffer(uint) const;
    template <class F> visible_function_table<F> get_visible_function_table(uint) const;
    uint size() const;
    bool empty() const;
};
using primitive_acceleration_structure = acceleration_structure<>;
using instance_acceleration_structure = acceleration_structure<instancing>;
} // namespace raytracing
} // namespace metal
