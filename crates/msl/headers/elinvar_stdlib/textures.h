// Textures and samplers: declared so that a source that mentions them compiles. A kernel that takes
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
#undef ELINVAR_TEXTURE
} // namespace metal
