// Textures, samplers and other opaque types: declared so that a source that mentions them compiles. A kernel that takes
// one is refused by name when it is asked for.
#pragma once

namespace metal {
enum class access { sample, read, write, read_write };
enum class memory_coherence { threadgroup, device };
enum class coord { normalized, pixel };
enum class filter { nearest, linear, bicubic };
enum class min_filter { nearest, linear, bicubic };
enum class mag_filter { nearest, linear, bicubic };
enum class mip_filter { none, nearest, linear };
enum class address { clamp_to_edge, repeat, mirrored_repeat, clamp_to_zero, clamp_to_border };
enum class s_address { clamp_to_edge, repeat, mirrored_repeat, clamp_to_zero, clamp_to_border };
enum class t_address { clamp_to_edge, repeat, mirrored_repeat, clamp_to_zero, clamp_to_border };
enum class r_address { clamp_to_edge, repeat, mirrored_repeat, clamp_to_zero, clamp_to_border };
enum class border_color { transparent_black, opaque_black, opaque_white };
enum class compare_func { none, less, less_equal, greater, greater_equal, equal, not_equal, always, never };
enum class component { x, y, z, w };

// The options of samplers and of samples.
#define ELINVAR_OPTION(name)                                                                                   \
    struct name {                                                                                             \
        template <class... A> constexpr explicit name(A...) {}                                                \
    };
ELINVAR_OPTION(max_anisotropy)
ELINVAR_OPTION(lod_clamp)
ELINVAR_OPTION(bias)
ELINVAR_OPTION(level)
ELINVAR_OPTION(min_lod_clamp)
ELINVAR_OPTION(gradient2d)
ELINVAR_OPTION(gradient3d)
ELINVAR_OPTION(gradientcube)
#undef ELINVAR_OPTION

struct sampler {
    template <class... A> constexpr sampler(A...) {}
};

// T is the type of a component, R that of what is read.
#define ELINVAR_TEXTURE_OF(name, R)                                                                            \
    template <class T, access A = access::sample, memory_coherence C = memory_coherence::threadgroup> struct name { \
        template <class... X> R sample(X...) const;                                                           \
        template <class... X> T sample_compare(X...) const;                                                   \
        template <class... X> vec<T, 4> gather(X...) const;                                                   \
        template <class... X> vec<T, 4> gather_compare(X...) const;                                           \
        template <class... X> R read(X...) const;                                                             \
        template <class... X> void write(X...) const;                                                         \
        template <class... X> R sparse_sample(X...) const;                                                    \
        template <class... X> float calculate_clamped_lod(X...) const;                                        \
        template <class... X> float calculate_unclamped_lod(X...) const;                                      \
        template <class... X> vec<T, 4> atomic_load(X...) const;                                              \
        template <class... X> void atomic_store(X...) const;                                                  \
        template <class... X> vec<T, 4> atomic_exchange(X...) const;                                          \
        template <class... X> bool atomic_compare_exchange_weak(X...) const;                                  \
        template <class... X> vec<T, 4> atomic_fetch_add(X...) const;                                         \
        template <class... X> vec<T, 4> atomic_fetch_sub(X...) const;                                         \
        template <class... X> vec<T, 4> atomic_fetch_and(X...) const;                                         \
        template <class... X> vec<T, 4> atomic_fetch_or(X...) const;                                          \
        template <class... X> vec<T, 4> atomic_fetch_xor(X...) const;                                         \
        template <class... X> vec<T, 4> atomic_fetch_min(X...) const;                                         \
        template <class... X> vec<T, 4> atomic_fetch_max(X...) const;                                         \
        template <class... X> void atomic_min(X...) const;                                                    \
        template <class... X> void atomic_max(X...) const;                                                    \
        void fence() const;                                                                                   \
        uint get_width(uint = 0) const;                                                                       \
        uint get_height(uint = 0) const;                                                                      \
        uint get_depth(uint = 0) const;                                                                       \
        uint get_array_size() const;                                                                          \
        uint get_num_mip_levels() const;                                                                      \
        uint get_num_samples() const;                                                                         \
    };                                                                                                        \
    template <class T, access A, memory_coherence C> bool is_null_texture(name<T, A, C>);
#define ELINVAR_TEXTURE(name) ELINVAR_TEXTURE_OF(name, ELINVAR_VECTOR)
#define ELINVAR_DEPTH(name) ELINVAR_TEXTURE_OF(name, T)
#define ELINVAR_VECTOR vec<T, 4>
ELINVAR_TEXTURE(texture1d)
ELINVAR_TEXTURE(texture1d_array)
ELINVAR_TEXTURE(texture2d)
ELINVAR_TEXTURE(texture2d_array)
ELINVAR_TEXTURE(texture2d_ms)
ELINVAR_TEXTURE(texture2d_ms_array)
ELINVAR_TEXTURE(texture3d)
ELINVAR_TEXTURE(texturecube)
ELINVAR_TEXTURE(texturecube_array)
ELINVAR_TEXTURE(texture_buffer)
ELINVAR_DEPTH(depth2d)
ELINVAR_DEPTH(depth2d_array)
ELINVAR_DEPTH(depth2d_ms)
ELINVAR_DEPTH(depth2d_ms_array)
ELINVAR_DEPTH(depthcube)
ELINVAR_DEPTH(depthcube_array)
#undef ELINVAR_TEXTURE_OF
#undef ELINVAR_TEXTURE
#undef ELINVAR_DEPTH
#undef ELINVAR_VECTOR

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
struct render_pipeline_state {};
struct depth_stencil_state {};
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
} // namespace metal
