//! What is written grows in proportion to what is read.

use std::fmt::Write as _;

use elinvar_ir::Module;
use elinvar_spmd::{ENTRY, Options, SizeBound, compile};

/// A kernel with so many loops in a row that threads leave apart, each with a branch inside.
fn kernel(loops: usize) -> Module {
    let mut text = format!(
        "declare i32 @__elinvar_thread_position_in_threadgroup(i32)\n\
         define void @{ENTRY}(ptr %out) {{\n\
         start:\n  %i = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)\n\
         %at = getelementptr i32, ptr %out, i32 %i\n  br label %before0\n"
    );
    for k in 0..loops {
        let _ = write!(
            text,
            "before{k}:\n  br label %head{k}\n\
             head{k}:\n  %n{k} = phi i32 [ 0, %before{k} ], [ %m{k}, %next{k} ]\n\
             %odd{k} = icmp ugt i32 %n{k}, %i\n  br i1 %odd{k}, label %then{k}, label %next{k}\n\
             then{k}:\n  store i32 %n{k}, ptr %at\n  %out{k} = icmp eq i32 %n{k}, 7\n  br i1 %out{k}, label %before{}, label %next{k}\n\
             next{k}:\n  %m{k} = add i32 %n{k}, 1\n  %again{k} = icmp ult i32 %m{k}, %i\n\
             br i1 %again{k}, label %head{k}, label %before{}\n",
            k + 1,
            k + 1,
        );
    }
    let _ = write!(text, "before{loops}:\n  ret void\n}}\n");
    Module::parse(&text).expect("a module")
}

fn lines(loops: usize) -> usize {
    let options = Options {
        group: [64, 1, 1].into(),
        lanes: 8,
        registers: 16,
        gathers: true,
        name: "test".into(),
        invariant_bytes: Vec::new(),
        threadgroup_args: vec![false],
        checks: None,
        stoppable: false,
        objects: SizeBound::DEFAULT,
        ascending: false,
    };
    compile(&kernel(loops), &options).expect("compiles").ir.lines().count()
}

#[test]
fn twice_the_loops_are_about_twice_the_code() {
    let (few, many) = (lines(40), lines(80));
    assert!(few > 1000, "{few} lines");
    assert!(many * 10 < few * 21, "{few} lines become {many}");
}
