//! The IR files of the tests. The C++ sources and flags they came from are named in each file's
//! `source_filename` and attributes; nothing here needs clang.

use elinvar_ir::Module;

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

/// One of the files, read.
#[allow(dead_code, reason = "not every test binary reads single files")]
pub fn module(name: &str) -> Module {
    let (_, text) = FILES.iter().find(|(n, _)| *n == name).expect("a file of this name");
    Module::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"))
}
