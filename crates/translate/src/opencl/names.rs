//! Names that are free in OpenCL C and taken in MSL.

use std::collections::HashSet;

/// Keywords of C++ and MSL, which no declaration may have as its name.
const KEYWORDS: &[&str] = &[
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "asm",
    "auto",
    "bfloat",
    "bitand",
    "bitor",
    "catch",
    "char16_t",
    "char32_t",
    "class",
    "compl",
    "concept",
    "const_cast",
    "constexpr",
    "coherent",
    "constant",
    "decltype",
    "delete",
    "device",
    "dynamic_cast",
    "explicit",
    "export",
    "fragment",
    "friend",
    "intersection",
    "kernel",
    "mesh",
    "metal",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "object_data",
    "operator",
    "or",
    "or_eq",
    "private",
    "protected",
    "public",
    "ray_data",
    "reinterpret_cast",
    "requires",
    "static_assert",
    "static_cast",
    "stitchable",
    "template",
    "this",
    "thread",
    "thread_local",
    "threadgroup",
    "threadgroup_imageblock",
    "throw",
    "try",
    "typeid",
    "typename",
    "using",
    "vertex",
    "virtual",
    "visible",
    "wchar_t",
    "xor",
    "xor_eq",
    "as_type",
    "precise",
    "fast",
    "select",
    "fma",
    "any",
    "all",
    "main",
];

/// Names in namespace `metal`, which a declaration at file scope would make ambiguous.
const METAL: &[&str] = &[
    "abs",
    "absdiff",
    "access",
    "acos",
    "acosh",
    "addsat",
    "address",
    "array",
    "array_ref",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atomic",
    "atomic_bool",
    "atomic_float",
    "atomic_int",
    "atomic_uint",
    "atomic_ulong",
    "ceil",
    "clamp",
    "clz",
    "coord",
    "copysign",
    "cos",
    "cosh",
    "cospi",
    "cross",
    "ctz",
    "determinant",
    "discard_fragment",
    "distance",
    "distance_squared",
    "divide",
    "dot",
    "exp",
    "exp10",
    "exp2",
    "extract_bits",
    "fabs",
    "faceforward",
    "fdim",
    "filter",
    "floor",
    "fmax",
    "fmax3",
    "fmedian3",
    "fmin",
    "fmin3",
    "fmod",
    "fract",
    "frexp",
    "gather",
    "hadd",
    "identity",
    "ilogb",
    "insert_bits",
    "imageblock",
    "interpolate",
    "isfinite",
    "isinf",
    "isnan",
    "isnormal",
    "isordered",
    "isunordered",
    "ldexp",
    "length",
    "length_squared",
    "level",
    "log",
    "log10",
    "log2",
    "mad24",
    "madhi",
    "madsat",
    "matrix",
    "max",
    "max3",
    "mem_flags",
    "median3",
    "memory_order",
    "min",
    "min3",
    "mix",
    "modf",
    "mul24",
    "mulhi",
    "nextafter",
    "normalize",
    "numeric_limits",
    "pack_float_to_snorm4x8",
    "popcount",
    "pow",
    "powr",
    "quad_all",
    "quad_any",
    "quad_sum",
    "reflect",
    "refract",
    "reverse_bits",
    "rhadd",
    "rint",
    "rotate",
    "round",
    "rsqrt",
    "sampler",
    "saturate",
    "sign",
    "signbit",
    "simd_all",
    "simd_any",
    "simd_ballot",
    "simd_broadcast",
    "simd_max",
    "simd_min",
    "simd_shuffle",
    "simd_sum",
    "simdgroup_barrier",
    "simdgroup_matrix",
    "sin",
    "sincos",
    "sinh",
    "sinpi",
    "smoothstep",
    "sqrt",
    "step",
    "subsat",
    "swap",
    "tan",
    "tanh",
    "tanpi",
    "texture1d",
    "texture2d",
    "texture3d",
    "texturecube",
    "thread_scope",
    "threadgroup_barrier",
    "transpose",
    "trunc",
    "uniform",
    "vec",
    "void_t",
    "forward",
    "move",
    "enable_if",
    "is_same",
    "atomic_thread_fence",
    "printf",
    "os_log",
    "make_float4",
    "bool2",
    "bool3",
    "bool4",
];

/// Renames what MSL does not allow.
#[derive(Debug)]
pub(crate) struct Names {
    /// All words of the source.
    used: HashSet<String>,
    keywords: HashSet<&'static str>,
    metal: HashSet<&'static str>,
    /// Names declared at file scope.
    global: HashSet<String>,
}

impl Names {
    pub fn new(words: HashSet<String>, global: HashSet<String>) -> Self {
        let keywords = KEYWORDS.iter().copied().collect();
        Self { used: words, keywords, metal: METAL.iter().copied().collect(), global }
    }

    /// The name in MSL of something that the source declares.
    pub fn of(&self, name: &str) -> String {
        let is_taken = self.keywords.contains(name)
            || name.starts_with("cl_")
            || (self.global.contains(name) && self.metal.contains(name));
        if is_taken { self.free(name) } else { name.to_owned() }
    }

    /// The name of something in a function: only keywords are not allowed.
    pub fn of_local(&self, name: &str) -> String {
        if self.keywords.contains(name) { self.free(name) } else { name.to_owned() }
    }

    /// The name of something at file scope, whether or not the source declares it.
    pub fn of_global(&self, name: &str) -> String {
        if self.keywords.contains(name) || self.metal.contains(name) {
            self.free(name)
        } else {
            name.to_owned()
        }
    }

    /// The word, with as many `_` behind it as make it one that the source does not have.
    pub fn free(&self, word: &str) -> String {
        let mut name = format!("{word}_");
        while self.used.contains(&name) {
            name.push('_');
        }
        name
    }

    /// A name for something added: the word itself if the source does not have it.
    pub fn added(&self, word: &str) -> String {
        if self.used.contains(word) { self.free(word) } else { word.to_owned() }
    }
}
