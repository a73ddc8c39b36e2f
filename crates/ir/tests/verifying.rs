//! What is wrong with a module is found, and named.

use elinvar_ir::{BlockId, Const, Module, Op, Operand, Term, Type, ValueId, verify};

const GOOD: &str = "\
%s = type { i32, float }
@g = global i32 0
declare float @h(ptr, i32)
define float @f(i32 %a, ptr %p, float %x, i1 %c) {
entry:
  %s = add i32 %a, 1
  br i1 %c, label %then, label %join
then:
  %t = call float @h(ptr %p, i32 %s)
  br label %join
join:
  %r = phi float [ %x, %entry ], [ %t, %then ]
  ret float %r
}
";

fn errors(module: &Module) -> Vec<String> {
    verify(module).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// The first error after replacing one part of the text.
#[track_caller]
fn first(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let module = Module::parse(&GOOD.replacen(from, to, 1)).expect("parses");
    errors(&module).into_iter().next().expect("an error")
}

#[test]
fn a_good_module_passes() {
    assert_eq!(errors(&Module::parse(GOOD).expect("parses")), [""; 0]);
}

#[test]
fn wrong_text_is_found() {
    let cases = [
        ("ret float %r", "ret i32 %a", "function `f`, block `join`, `ret i32` in a function of type `float`"),
        ("ret float %r", "ret void", "function `f`, block `join`, `ret void` in a function of type `float`"),
        (
            "ret float %r",
            "ret float %t",
            "function `f`, block `join`, `%t` is used where its definition does not dominate",
        ),
        (
            ", [ %t, %then ]",
            "",
            "function `f`, block `join`, the incoming blocks of phi `%r` are not the predecessors",
        ),
        (
            "add i32 %a, 1",
            "add i32 %s, 1",
            "function `f`, block `entry`, `%s` is used where its definition does not dominate",
        ),
        (
            "add i32 %a, 1",
            "add i32 %a, ptrtoint (ptr @q to i32)",
            "function `f`, block `entry`, `@q` is not defined",
        ),
        ("@h(ptr %p, i32 %s)", "@k()", "function `f`, block `then`, a call of `@k`, which is not declared"),
        ("@h(ptr %p, i32 %s)", "@g()", "function `f`, block `then`, a call of `@g`, which is not a function"),
        (
            "@h(ptr %p, i32 %s)",
            "@h(ptr %p)",
            "function `f`, block `then`, a call of `@h` with 1 arguments, not 2",
        ),
        (
            "@h(ptr %p, i32 %s)",
            "@h(ptr %p, float %x)",
            "function `f`, block `then`, argument 1 of a call of `@h` is `float`, not `i32`",
        ),
        (
            "call float @h(ptr %p, i32 %s)",
            "fneg float %x\n %u = call i32 @h(ptr %p, i32 1)",
            "function `f`, block `then`, a call of `@h` as `i32`, which returns `float`",
        ),
        (
            "add i32 %a, 1",
            "add i32 %a, 1\n  %q = fadd i32 %a, 1",
            "function `f`, block `entry`, `fadd` with an operand of type `i32`",
        ),
        (
            "add i32 %a, 1",
            "trunc i64 7 to i32\n  %q = zext i32 %a to i8",
            "function `f`, block `entry`, `zext` from `i32` to `i8`",
        ),
        (
            "add i32 %a, 1",
            "add i32 1, 1\n  %q = getelementptr i8, ptr %p, float %x",
            "function `f`, block `entry`, `getelementptr` with an operand of type `float`",
        ),
        (
            "add i32 %a, 1",
            "add i32 1, 1\n  %q = load %nix, ptr %p\n  %z = freeze %nix %q",
            "type `%nix` is not defined",
        ),
        (
            "add i32 %a, 1",
            "add i32 1, 1\n  fence monotonic",
            "function `f`, block `entry`, a fence that is monotonic",
        ),
        ("br label %join", "br label %entry", "function `f`, block `then`, a branch to the entry block"),
        ("{ i32, float }", "{ i32, %s }", "type `%s` contains itself"),
        ("@g = global i32 0", "@g = global i32 0\n@g = global i32 0", "`@g` is defined twice"),
        (
            "@g = global i32 0",
            "@g = global %s { float 1.0 }",
            "global `@g`: a constant does not fit its type `%s`",
        ),
        ("@g = global i32 0", "@g = global [1 x ptr] [ptr @q]", "global `@g`: `@q` is not defined"),
        ("@g = global i32 0", "@g = global <1 x ptr> <ptr @q>", "global `@g`: `@q` is not defined"),
        (
            "@g = global i32 0",
            "@g = global { i32, ptr } { i32 0, ptr @q }",
            "global `@g`: `@q` is not defined",
        ),
        (
            "@g = global i32 0",
            "@g = global ptr getelementptr (i8, ptr null, i64 ptrtoint (ptr @q to i64))",
            "global `@g`: `@q` is not defined",
        ),
    ];
    for (from, to, message) in cases {
        assert_eq!(first(from, to), message, "{to}");
    }
}

/// The first error after editing the model.
fn edited(edit: impl FnOnce(&mut Module)) -> String {
    let mut module = Module::parse(GOOD).expect("parses");
    edit(&mut module);
    errors(&module).into_iter().next().expect("an error")
}

#[test]
fn wrong_ids_are_found_without_a_panic() {
    let unknown_value = edited(|m| m.functions[1].blocks[2].term.map_operands(|o| *o = ValueId(99).into()));
    assert_eq!(unknown_value, "function `f`, block `join`, value 99 is used but not defined");
    let unknown_block = edited(|m| m.functions[1].blocks[1].term = Term::Br(BlockId(99)));
    assert_eq!(unknown_block, "function `f`, block `then`, a branch to block 99, which does not exist");
    let twice = edited(|m| {
        let inst = m.functions[1].blocks[0].insts[0].clone();
        m.functions[1].blocks[0].insts.push(inst);
    });
    assert_eq!(twice, "function `f`, block `entry`, `%s` is defined twice");
    let no_result = edited(|m| m.functions[1].blocks[0].insts[0].result = None);
    assert_eq!(no_result, "function `f`, block `entry`, an instruction of type `i32` has no result");
    let constant = edited(|m| {
        m.functions[1].blocks[0].insts[0].op.map_operands(|o| *o = Operand::Const(Const::Null));
    });
    assert_eq!(constant, "function `f`, block `entry`, a constant does not fit its type `i32`");
    let ty = edited(|m| m.functions[1].values[0].ty = Type::I64);
    assert_eq!(ty, "function `f`, `%a` of type `i64` is defined as `i32`");
    let incoming = edited(|m| {
        if let Op::Phi { incoming, .. } = &mut m.functions[1].blocks[2].insts[0].op {
            incoming[0].1 = BlockId(50);
        }
    });
    assert!(incoming.contains("are not the predecessors"), "{incoming}");
}

#[test]
fn unreachable_code_may_use_anything() {
    let text = "define i32 @f() {\n  %a = add i32 1, 1\n  ret i32 %a\nx:\n  %b = add i32 %c, %a\n  br label %y\n\
                y:\n  %c = add i32 %b, 1\n  br label %x\n}\n";
    assert_eq!(errors(&Module::parse(text).expect("parses")), [""; 0]);
}
