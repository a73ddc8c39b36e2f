//! What is written grows in proportion to what is read.

use std::fmt::Write as _;

use elinvar_ir::Module;
use elinvar_spmd::{ENTRY, Options, SizeBound, compile};

/// The start of a kernel, up to the branch to `before0`: a thread's position `%i`, and its element's address `%at`.
fn start() -> String {
    format!(
        "declare i32 @__elinvar_thread_position_in_threadgroup(i32)\n\
         define void @{ENTRY}(ptr %out) {{\n\
         start:\n  %i = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)\n\
         %at = getelementptr i32, ptr %out, i32 %i\n  br label %before0\n"
    )
}

/// A kernel with so many loops in a row that threads leave apart, each with a branch inside.
fn kernel(loops: usize) -> Module {
    let mut text = start();
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

/// A kernel with so many divergent branches in a row, each of which defines a value that is used at the end.
fn values(branches: usize) -> Module {
    let mut text = start();
    for k in 0..branches {
        let next = k + 1;
        let _ = write!(
            text,
            "before{k}:\n  %x{k} = load volatile i32, ptr %at\n  %odd{k} = icmp ugt i32 %x{k}, %i\n\
             br i1 %odd{k}, label %then{k}, label %join{k}\n\
             then{k}:\n  store i32 {k}, ptr %at\n  %y{k} = mul i32 %x{k}, %x{k}\n  br label %join{k}\n\
             join{k}:\n  %v{k} = phi i32 [ %x{k}, %before{k} ], [ %y{k}, %then{k} ]\n  br label %before{next}\n"
        );
    }
    let _ = write!(text, "before{branches}:\n  %sum0 = add i32 0, 0\n");
    for k in 0..branches {
        let _ = writeln!(text, "  %sum{} = add i32 %sum{k}, %v{k}", k + 1);
    }
    let _ = write!(text, "  store i32 %sum{branches}, ptr %at\n  ret void\n}}\n");
    Module::parse(&text).expect("a module")
}

fn lines(module: &Module) -> usize {
    let options = Options {
        group: [64, 1, 1].into(),
        lanes: 8,
        registers: 16,
        gathers: true,
        half_arithmetic: false,
        scalef: false,
        name: "test".into(),
        invariant_bytes: Vec::new(),
        threadgroup_args: vec![false],
        checks: None,
        stoppable: false,
        objects: SizeBound::DEFAULT,
        ascending: false,
    };
    compile(module, &options).expect("compiles").ir.lines().count()
}

#[test]
fn twice_the_loops_are_about_twice_the_code() {
    let (few, many) = (lines(&kernel(40)), lines(&kernel(80)));
    assert!(few > 1000, "{few} lines");
    assert!(many * 10 < few * 21, "{few} lines become {many}");
}

#[test]
fn values_that_are_live_across_many_branches_need_no_phi_at_each() {
    let (few, many) = (lines(&values(300)), lines(&values(600)));
    assert!(few > 3000, "{few} lines");
    assert!(many * 10 < few * 21, "{few} lines become {many}");
}
