//! Modules built through the API print as LLVM writes them.

use elinvar_ir::*;

fn flags() -> String {
    String::new()
}

/// `f(p, n)`: the sum of `n` floats behind `p`, in a loop; values and blocks without names but one.
fn sum() -> Function {
    let mut f = Function::new("sum", Type::Float);
    f.linkage = "internal".to_owned();
    f.suffix = "unnamed_addr #0".to_owned();
    let p = f.add_param(Type::PTR, "nocapture noundef readonly", Some("p"));
    let n = f.add_param(Type::I32, "", None);
    let (entry, body, exit) = (f.new_block(None), f.new_block(Some("loop")), f.new_block(None));
    let [i, next] = [f.new_value(Type::I32, Some("i")), f.new_value(Type::I32, None)];
    let [acc, sum] = [f.new_value(Type::Float, None), f.new_value(Type::Float, Some("sum"))];
    let [at, x] = [f.new_value(Type::PTR, None), f.new_value(Type::Float, None)];
    let more = f.new_value(Type::I1, Some("i"));
    f.block_mut(entry).term = Term::Br(body);
    let zero = Operand::Const(Const::Float("0.000000e+00".to_owned()));
    let ops = [
        (
            i,
            Op::Phi {
                flags: flags(),
                ty: Type::I32,
                incoming: vec![(Operand::int(32, 0), entry), (next.into(), body)],
            },
        ),
        (
            acc,
            Op::Phi {
                flags: "nsz".to_owned(),
                ty: Type::Float,
                incoming: vec![(zero, entry), (sum.into(), body)],
            },
        ),
        (
            at,
            Op::Gep {
                flags: "inbounds".to_owned(),
                source: Type::Float,
                base: Typed::new(Type::PTR, p),
                indices: vec![Typed::new(Type::I32, i)],
            },
        ),
        (
            x,
            Op::Load {
                ty: Type::Float,
                ptr: Typed::new(Type::PTR, at),
                align: Some(4),
                volatile: false,
                atomic: None,
            },
        ),
        (
            sum,
            Op::Binary {
                op: BinaryOp::FAdd,
                flags: "fast".to_owned(),
                ty: Type::Float,
                a: acc.into(),
                b: x.into(),
            },
        ),
        (
            next,
            Op::Binary {
                op: BinaryOp::Add,
                flags: "nuw".to_owned(),
                ty: Type::I32,
                a: i.into(),
                b: Operand::int(32, 1),
            },
        ),
        (
            more,
            Op::ICmp { flags: flags(), pred: IntPredicate::Ult, ty: Type::I32, a: next.into(), b: n.into() },
        ),
    ];
    for (result, op) in ops {
        f.block_mut(body).insts.push(Inst { result: Some(result), op, metadata: Vec::new() });
    }
    f.block_mut(body).term = Term::CondBr { cond: more.into(), then: body, other: exit };
    f.block_mut(body).term_metadata = vec![("mark".to_owned(), MetadataId(0))];
    f.block_mut(exit).term = Term::Ret(Some(Typed::new(Type::Float, sum)));
    f
}

fn module() -> Module {
    let pair = Type::Struct { packed: true, fields: vec![Type::I8, Type::Named("other pair".to_owned())] };
    let bytes = Const::String(b"\"\\\n\xffok".to_vec());
    let global = |name: &str, ty: Type, init: Option<Const>| Global {
        name: name.to_owned(),
        linkage: "internal".to_owned(),
        constant: false,
        ty,
        init,
        section: None,
        align: None,
        suffix: String::new(),
        metadata: Vec::new(),
    };
    Module {
        source_filename: Some("a\\b".to_owned()),
        types: vec![("0".to_owned(), Some(pair)), ("other pair".to_owned(), None)],
        comdats: vec![("c d".to_owned(), "any".to_owned())],
        globals: vec![
            Global {
                section: Some("elinvar.threadgroup".to_owned()),
                align: Some(16),
                suffix: "comdat($\"c d\") #0".to_owned(),
                ..global("7 up", Type::array(6, Type::I8), Some(bytes))
            },
            global(
                "flag",
                Type::vector(2, Type::I1),
                Some(Const::Splat(Box::new((Type::I1, Const::int(1, 1))))),
            ),
            global("none", Type::Struct { packed: false, fields: vec![] }, Some(Const::Zero)),
        ],
        functions: vec![sum()],
        attributes: vec![(0, "nounwind".to_owned())],
        metadata: vec![MetadataNode { name: "0".to_owned(), text: "!{i32 1}".to_owned() }],
        ..Module::default()
    }
}

#[test]
fn a_module_built_by_hand() {
    insta::assert_snapshot!(module(), @r##"
    source_filename = "a\\b"
    %0 = type <{ i8, %"other pair" }>
    %"other pair" = type opaque
    $"c d" = comdat any
    @"7 up" = internal global [6 x i8] c"\22\\\0A\FFok", section "elinvar.threadgroup", comdat($"c d"), align 16 #0
    @flag = internal global <2 x i1> splat (i1 true)
    @none = internal global {} zeroinitializer

    define internal float @sum(ptr nocapture noundef readonly %p, i32 %0) unnamed_addr #0 {
      br label %loop

    loop:
      %i = phi i32 [ 0, %1 ], [ %5, %loop ]
      %2 = phi nsz float [ 0.000000e+00, %1 ], [ %sum, %loop ]
      %3 = getelementptr inbounds float, ptr %p, i32 %i
      %4 = load float, ptr %3, align 4
      %sum = fadd fast float %2, %4
      %5 = add nuw i32 %i, 1
      %i.1 = icmp ult i32 %5, %0
      br i1 %i.1, label %loop, label %6, !mark !0

    6:
      ret float %sum
    }

    attributes #0 = { nounwind }

    !0 = !{i32 1}
    "##);
}

#[test]
fn it_verifies_and_reads_back() {
    let module = module();
    assert_eq!(verify(&module), Ok(()));
    let printed = module.to_string();
    let read = Module::parse(&printed).expect("parses");
    assert_eq!(read.to_string(), printed);
}

#[test]
fn negative_and_boolean_constants() {
    let ret = |ty: Type, constant: Const| {
        let mut f = Function::new("f", ty.clone());
        let block = f.new_block(None);
        f.block_mut(block).term = Term::Ret(Some(Typed::new(ty, constant)));
        f.to_string()
    };
    assert!(ret(Type::I1, Const::int(1, 1)).contains("ret i1 true"));
    assert!(ret(Type::I1, Const::int(1, 2)).contains("ret i1 false"));
    assert!(ret(Type::I8, Const::int(8, 255)).contains("ret i8 -1"));
    assert!(ret(Type::Int(128), Const::int(128, i128::MIN)).contains(&format!("ret i128 {}", i128::MIN)));
}
