//! The IR files of the tests: what clang 19 wrote for small C++ sources, named in each file, and
//! `newer.ll`, written by hand.

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        pub const FILES: &[(&str, &str)] = &[$(($name, include_str!($name))),*];
    };
}

files!(
    "aggregates-O1.ll",
    "atomics-O1.ll",
    "control-O0.ll",
    "control-O1.ll",
    "debug-g.ll",
    "debug-lines.ll",
    "intrinsics-O1.ll",
    "intrinsics-fast.ll",
    "newer.ll",
    "vectors-O2.ll",
);
