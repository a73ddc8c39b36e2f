//! The kernel that ARCHITECTURE.md takes through the passes: its first block of LLVM IR is compiled, and each line
//! of the last three must be in what comes out, in their order; only the numbers of values may be others.

use elinvar_ir::{Module, verify};
use elinvar_spmd::{Options, SizeBound, compile};

#[test]
fn the_page_shows_what_is_compiled() {
    let page = include_str!("../../../ARCHITECTURE.md");
    let blocks: Vec<&str> =
        page.split("```llvm\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 4, "the page has {} blocks of LLVM IR", blocks.len());
    let (input, output) = (blocks[0], &blocks[blocks.len() - 3..]);
    let module = Module::parse(input).unwrap_or_else(|error| panic!("{error}"));
    verify(&module).unwrap_or_else(|errors| panic!("{errors:?}"));
    let options = Options {
        group: [64, 1, 1].into(),
        lanes: 8,
        registers: 16,
        gathers: true,
        half_arithmetic: false,
        scalef: false,
        threadgroup_args: vec![false; 3],
        name: "test".into(),
        invariant_bytes: vec![0, 0, 4],
        checks: None,
        stoppable: false,
        objects: SizeBound::DEFAULT,
        ascending: false,
    };
    let compiled = compile(&module, &options).unwrap_or_else(|error| panic!("{error}"));
    let mut lines = compiled.ir.lines().map(unnumbered);
    let shown = output.iter().flat_map(|block| block.lines());
    for wanted in shown.map(|line| unnumbered(line.split(';').next().unwrap_or(""))) {
        assert!(lines.any(|line| line == wanted), "`{wanted}` is not in\n{}", compiled.ir);
    }
}

/// The line without the numbers of values and blocks.
fn unnumbered(line: &str) -> String {
    let mut parts = line.trim().split('%');
    let first = parts.next().unwrap_or("").to_owned();
    parts.fold(first, |line, part| line + "%" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}
