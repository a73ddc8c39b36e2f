//! Names that MSL reserves, or that the translation uses.

use std::collections::HashSet;
use std::sync::LazyLock;

/// Keywords of C++ and MSL, and its types.
const KEYWORDS: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr const_cast \
    continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long \
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast return short \
    signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union \
    unsigned using virtual void volatile wchar_t while xor xor_eq kernel vertex fragment device constant thread threadgroup \
    threadgroup_imageblock ray_data object_data uchar ushort uint ulong half bfloat size_t ptrdiff_t int8_t uint8_t int16_t uint16_t \
    int32_t uint32_t int64_t uint64_t atomic_uint atomic_int atomic_bool array vec matrix sampler texture metal simd \
    INFINITY NAN FLT_MAX FLT_MIN FLT_EPSILON HALF_MAX HALF_MIN HALF_EPSILON INT_MAX INT_MIN UINT_MAX main";

/// Functions of the library that the translation calls, beside those of [`crate::builtins`].
const FUNCTIONS: &str = "fabs abs sqrt sin cos tan asin acos atan sinh cosh tanh exp exp2 log log2 log10 floor ceil trunc round rint pow atan2 \
    copysign fmin fmax min max clamp fma isnan isinf isfinite signbit addsat subsat popcount clz ctz reverse_bits as_type all any fmod \
    fract sign select precise fast mem_flags memory_order_relaxed rotate";

/// Whether MSL gives the word a meaning everywhere.
pub(crate) fn is_keyword(name: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| KEYWORDS.split_whitespace().collect());
    WORDS.contains(name) || is_vector(name) || name.starts_with("__")
}

/// Whether a variable may not have this name.
pub(crate) fn is_reserved(name: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| FUNCTIONS.split_whitespace().collect());
    is_keyword(name)
        || WORDS.contains(name)
        || crate::builtins::is_function(name)
        || crate::support::is_support(name)
        || name.starts_with("atomic_")
}

/// `float4`, `uint2x2`.
fn is_vector(name: &str) -> bool {
    let scalar = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == 'x');
    scalar != name
        && [
            "float", "half", "bfloat", "int", "uint", "short", "ushort", "char", "uchar", "long", "ulong",
            "bool",
        ]
        .contains(&scalar)
}
