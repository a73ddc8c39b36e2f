//! Each kind of problem that the interpreter reports, provoked by modules that do nothing else.

use elinvar_ir::Module;
use elinvar_msl::ENTRY;
use elinvar_reference::{Argument, Launch, Options, Problem, run_with};

/// What the body of an entry with one buffer `%out` of four words ends in, with `threads` threads.
fn problem(declarations: &str, body: &str, threads: u32, blocks: bool) -> Problem {
    let text = format!("{declarations}\ndefine void @{ENTRY}(ptr %out) {{\nentry:\n{body}\n}}\n");
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
    let arguments = vec![Argument::Bytes(vec![0; 16])];
    let launch = Launch { threads: [threads, 1, 1], group: [threads, 1, 1], arguments };
    let options = Options { blocks, ..Options::default() };
    *run_with(&module, &launch, &options).expect_err("a fault").problem
}

#[test]
fn a_write_to_a_constant() {
    let table = "@table = internal constant [2 x i32] [i32 1, i32 2]";
    let found = problem(table, "  store i32 7, ptr @table\n  ret void", 1, false);
    assert!(matches!(&found, Problem::ReadOnly { what } if what.contains("table")), "{found}");
}

#[test]
fn copies_and_fills_that_are_not_aligned_as_promised() {
    let declarations = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)";
    let copy = |to: u32, from: u32, bytes: u32| {
        format!(
            "  %to = getelementptr i8, ptr %out, i64 {to}\n  %from = getelementptr i8, ptr %out, i64 {from}\n  \
             call void @llvm.memcpy.p0.p0.i64(ptr align 4 %to, ptr noundef align 2 %from, i64 {bytes}, i1 false)\n  \
             ret void"
        )
    };
    let fill = "  %to = getelementptr i8, ptr %out, i64 4\n  \
                call void @llvm.memset.p0.i64(ptr align 8 %to, i8 1, i64 4, i1 false)\n  ret void";
    for (body, at, by) in [(copy(6, 0, 4), 6, 4), (copy(4, 11, 4), 11, 2), (fill.to_owned(), 4, 8)] {
        let found = problem(declarations, &body, 1, false);
        assert!(
            matches!(found, Problem::Misaligned { offset, align, .. } if offset == at && align == by),
            "{found}\n{body}"
        );
    }
    // What copies nothing touches nothing.
    for body in [copy(4, 10, 4), copy(6, 11, 0)] {
        assert_eq!(
            problem(declarations, &body.replace("ret void", "unreachable"), 1, false),
            Problem::Unreachable
        );
    }
}

#[test]
fn code_that_is_never_to_be_reached() {
    assert_eq!(problem("", "  unreachable", 1, false), Problem::Unreachable);
    let trap = problem("declare void @llvm.trap()", "  call void @llvm.trap()\n  ret void", 1, false);
    assert_eq!(trap, Problem::Unreachable);
}

#[test]
fn calls_nested_too_deep() {
    let endless = "define internal void @again() {\nentry:\n  call void @again()\n  ret void\n}";
    let found = problem(endless, "  call void @again()\n  ret void", 1, false);
    assert!(matches!(found, Problem::Depth(depth) if depth >= 100), "{found}");
}

#[test]
fn functions_that_nobody_knows() {
    for name in ["llvm.no.such.thing", "no_such_function"] {
        let declared = format!("declare void @{name}()");
        let found = problem(&declared, &format!("  call void @{name}()\n  ret void"), 1, false);
        assert!(matches!(&found, Problem::Unsupported(what) if what.contains("such")), "{found}");
    }
}

/// Two lanes wait for each other, at different calls.
#[test]
fn lanes_that_wait_for_ever() {
    let declarations = "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.bar.warp.sync(i32)
declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)";
    let body = "  %lane = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %first = icmp eq i32 %lane, 0
  br i1 %first, label %a, label %b
a:
  call void @llvm.nvvm.bar.warp.sync(i32 3)
  ret void
b:
  %votes = call i32 @llvm.nvvm.vote.ballot.sync(i32 3, i1 true)
  ret void";
    assert_eq!(problem(declarations, body, 2, true), Problem::Stuck);
}
