//! Text that clang emitted is read, verified and printed back unchanged, up to comments, blank lines and
//! debug records. `newer.ll` is written by hand in the spelling of LLVM 20 and 21.

mod data;

use elinvar_ir::{MetadataId, Module, Op, Type, verify};

/// One of the files, read.
fn module(name: &str) -> Module {
    let (_, text) = data::FILES.iter().find(|(n, _)| *n == name).expect("a file of this name");
    Module::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Without comments, debug records, blank lines and trailing space.
fn normalise(text: &str) -> Vec<&str> {
    text.lines()
        .map(strip_comment)
        .filter(|line| !line.is_empty() && !line.starts_with("    #dbg_"))
        .collect()
}

fn strip_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, character) in line.char_indices() {
        match character {
            '"' => quoted = !quoted,
            ';' if !quoted => return line[..at].trim_end(),
            _ => {}
        }
    }
    line.trim_end()
}

#[test]
fn printing_gives_the_text_that_was_read() {
    for (name, text) in data::FILES {
        let module = Module::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let printed = module.to_string();
        let (expected, actual) = (normalise(text), normalise(&printed));
        for (expected, actual) in expected.iter().zip(&actual) {
            assert_eq!(expected, actual, "{name}");
        }
        assert_eq!(expected.len(), actual.len(), "{name}");
        assert_eq!(Module::parse(&printed).as_ref(), Ok(&module), "{name}");
    }
}

#[test]
fn what_clang_emits_verifies() {
    for (name, text) in data::FILES {
        let module = Module::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(verify(&module), Ok(()), "{name}");
    }
}

#[test]
fn numbers_and_names_become_the_models() {
    let module = module("newer.ll");
    let f = module.function("newer").expect("the function");
    let names: Vec<_> = f.params.iter().map(|p| f.values[p.value.0 as usize].name.as_deref()).collect();
    assert_eq!(names, [Some("out"), Some("a\"b"), None]);
    let blocks: Vec<_> = f.blocks.iter().map(|b| b.name.as_deref()).collect();
    assert_eq!(blocks, [None, Some("block 1"), None, None]);
    assert_eq!(module.source_filename.as_deref(), Some("newer \"quoted\".cpp"));
    assert_eq!(module.types[0].1.as_ref().map(|t| t.size_align(&module)), Some((12, 4)));
    assert_eq!(module.global("in").and_then(|g| g.section.as_deref()), Some("a b"));
    assert_eq!(module.global("v").map(|g| &g.ty), Some(&Type::array(0, Type::Float)));
}

#[test]
fn attachments_may_follow_the_indices_of_an_aggregate() {
    let text = "define i32 @f({ i32, i32 } %pair) {\n  %r = extractvalue { i32, i32 } %pair, 1, !dbg !0\n  ret i32 %r\n}\n\n!0 = !{}\n";
    let module = Module::parse(text).unwrap();
    assert_eq!(normalise(&module.to_string()), normalise(text));
}

#[test]
fn inline_attachments_get_a_number_of_their_own() {
    let text = "define void @f() {\n  ret void, !dbg !DILocation(line: 3, scope: !0)\n}\n!0 = !{}\n";
    let module = Module::parse(text).expect("parses");
    assert_eq!(module.functions[0].blocks[0].term_metadata, [("dbg".to_owned(), MetadataId(1))]);
    assert_eq!(module.metadata_node(MetadataId(1)), Some("!DILocation(line: 3, scope: !0)"));
}

#[test]
fn every_instruction_of_an_inlined_kernel_has_its_line() {
    let module = module("debug-lines.ll");
    let kernel = module.functions.iter().find(|f| f.name.contains("kernel")).expect("the kernel");
    let insts = kernel.blocks.iter().flat_map(|b| &b.insts);
    let mut lines: Vec<u32> = insts
        .filter(|inst| matches!(inst.op, Op::Load { .. } | Op::Store { .. } | Op::Binary { .. }))
        .filter_map(|inst| module.location(&inst.metadata))
        .inspect(|location| assert_eq!(location.file, "debug.cpp"))
        .map(|location| location.line)
        .collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines, [1, 5, 9, 10]);
}
