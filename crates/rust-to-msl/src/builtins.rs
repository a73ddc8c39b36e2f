//! Functions of the prelude (`elinvar::kernel`): their types, and how MSL expresses them.

/// How the types of a function's arguments and of its result are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// So many arguments of one type, and a result of this type.
    Same(usize),
    /// So many vectors of one type; the result is a lane.
    Lane(usize),
    /// Two of one type and a factor that may be a lane of it.
    Mix,
    /// A value and a `u32`; the result is as the value.
    Shuffle,
    /// A `bool`; the result is a `bool`.
    Vote,
    /// Flags; no result.
    Barrier,
}

/// A function of the prelude.
pub(crate) struct Builtin {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// Its name in MSL.
    pub(crate) msl: &'static str,
    /// It waits for other threads.
    pub(crate) collective: bool,
}

const fn one(name: &'static str, shape: Shape, msl: &'static str) -> Builtin {
    Builtin { name, shape, msl, collective: false }
}

const fn collective(name: &'static str, shape: Shape) -> Builtin {
    Builtin { name, shape, msl: name, collective: true }
}

/// All of them.
pub(crate) const FUNCTIONS: &[Builtin] = &[
    one("dot", Shape::Lane(2), "dot"),
    one("length", Shape::Lane(1), "length"),
    one("distance", Shape::Lane(2), "distance"),
    one("cross", Shape::Same(2), "cross"),
    one("normalize", Shape::Same(1), "normalize"),
    one("mix", Shape::Mix, "mix"),
    one("step", Shape::Same(2), "step"),
    one("smoothstep", Shape::Same(3), "smoothstep"),
    one("saturate", Shape::Same(1), "saturate"),
    one("rsqrt", Shape::Same(1), "rsqrt"),
    one("mulhi", Shape::Same(2), "mulhi"),
    collective("threadgroup_barrier", Shape::Barrier),
    collective("simdgroup_barrier", Shape::Barrier),
    collective("simd_sum", Shape::Same(1)),
    collective("simd_product", Shape::Same(1)),
    collective("simd_min", Shape::Same(1)),
    collective("simd_max", Shape::Same(1)),
    collective("simd_and", Shape::Same(1)),
    collective("simd_or", Shape::Same(1)),
    collective("simd_xor", Shape::Same(1)),
    collective("simd_prefix_exclusive_sum", Shape::Same(1)),
    collective("simd_prefix_inclusive_sum", Shape::Same(1)),
    collective("simd_broadcast_first", Shape::Same(1)),
    collective("simd_broadcast", Shape::Shuffle),
    collective("simd_shuffle", Shape::Shuffle),
    collective("simd_shuffle_xor", Shape::Shuffle),
    collective("simd_shuffle_up", Shape::Shuffle),
    collective("simd_shuffle_down", Shape::Shuffle),
    collective("simd_all", Shape::Vote),
    collective("simd_any", Shape::Vote),
];

/// The function of this name.
pub(crate) fn function(name: &str) -> Option<&'static Builtin> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// Whether the prelude has a function of this name.
pub(crate) fn is_function(name: &str) -> bool {
    function(name).is_some()
}
