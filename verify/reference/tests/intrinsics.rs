//! The front end's headers declare exactly the intrinsics of `elinvar_spmd::intrinsic`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use elinvar::Source;
use elinvar_code::user_cache;
use elinvar_msl::{Program, Toolchain};
use elinvar_spmd::intrinsic::{
    Element, Elements, GroupCall, GroupOp, Intrinsic, PREFIX, Parameter, Position,
};

fn msl_type(element: Element) -> &'static str {
    match element {
        Element::Bool => "bool",
        Element::I8 => "char",
        Element::U8 => "uchar",
        Element::I16 => "short",
        Element::U16 => "ushort",
        Element::I32 => "int",
        Element::U32 => "uint",
        Element::I64 => "long",
        Element::U64 => "ulong",
        Element::F16 => "half",
        Element::BF16 => "bfloat",
        Element::F32 => "float",
    }
}

/// A statement that calls it, as a program writes it.
fn statement(call: GroupCall) -> String {
    if call.op == GroupOp::MatrixMultiplyAccumulate {
        return "{ simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8>(x); m = m * m; }".into();
    }
    let declaration = call.op.declaration();
    let value = call.element.map(|element| format!("{}(x)", msl_type(element)));
    let arguments = declaration.parameters.iter().map(|parameter| match parameter {
        Parameter::Value => value.clone().expect("a type"),
        Parameter::Lane => "ushort(x)".into(),
        Parameter::Condition => "bool(x)".into(),
        Parameter::Index => "0u".into(),
    });
    let suffix = call.element.map_or(String::new(), |element| format!("_{}", element.suffix()));
    let name = call.name();
    let name = name.strip_suffix(&suffix).expect("its suffix");
    format!("(void){name}({});", arguments.collect::<Vec<_>>().join(", "))
}

/// A kernel that calls every intrinsic of the headers.
fn source() -> String {
    let head = "#include <metal_stdlib>\n#include <elinvar/grid>\n#include <elinvar/resident>\n\
                #include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\nusing namespace metal;\nusing namespace mpp::tensor_ops;\n";
    let mut text = format!("{head}kernel void k(device int* p, constant elinvar::inbox<uint>& inbox");
    for position in Position::ALL.iter().filter(|position| position.is_declared()) {
        let _ = write!(text, ", uint3 {0}_at [[{0}]]", position.name());
    }
    text += ") {\n    int x = p[0];\n    threadgroup_barrier(mem_flags::mem_none);\n    \
             simdgroup_barrier(mem_flags::mem_none);\n    elinvar::grid_barrier();\n    inbox.complete(1u);\n    uint item;\n    inbox.receive(item);\n    printf(\"%d\", x);\n    p[0] = int(exp(float(x)));\n";
    for call in GroupCall::all() {
        let _ = writeln!(text, "    {}", statement(call));
    }
    text += "    auto t = tensor((device half*)p, dextents<int, 2>(64, 64));
    auto r = tensor((device float*)p, dextents<int, 2>(64, 64));
    matmul2d<matmul2d_descriptor(64, 64), execution_simdgroups<4>> op;
    op.run(t, t, r);\n";
    text + "}\n"
}

#[test]
fn every_intrinsic_is_declared_by_the_headers() {
    let program =
        Program::compile(&Toolchain::find_with(user_cache()).unwrap(), &Source::named("all.metal", source()));
    let program = program.unwrap_or_else(|error| panic!("{error}"));
    let ir = program.combine(&["k"]).unwrap().unoptimized().alone(0);
    let attributes: BTreeMap<&str, &str> =
        ir.lines().filter_map(|line| line.strip_prefix("attributes ")?.split_once(" = ")).collect();
    let mut declared = BTreeSet::new();
    for line in ir.lines().filter(|line| line.starts_with("declare")) {
        let Some((name, rest)) = line.split_once('@').and_then(|(_, rest)| rest.split_once('(')) else {
            panic!("{line}");
        };
        let Some(intrinsic) = Intrinsic::parse(name) else {
            assert!(!name.starts_with(PREFIX), "`{name}` is not an intrinsic");
            continue;
        };
        let set = rest.split_whitespace().find(|word| word.starts_with('#')).expect("attributes");
        let is_convergent = attributes[set].split_whitespace().any(|attribute| attribute == "convergent");
        assert_eq!(is_convergent, intrinsic.is_convergent(), "{name}");
        declared.insert(name.to_owned());
    }
    let is_declared = |intrinsic: &Intrinsic| match intrinsic {
        Intrinsic::Position(position) => position.is_declared(),
        Intrinsic::ThreadgroupBarrier
        | Intrinsic::GridBarrier
        | Intrinsic::Yield
        | Intrinsic::SimdgroupBarrier
        | Intrinsic::Group(_)
        | Intrinsic::Scale
        | Intrinsic::Log
        | Intrinsic::HasTensorProduct
        | Intrinsic::TensorProduct => true,
    };
    let all: BTreeSet<String> = Intrinsic::all().filter(is_declared).map(Intrinsic::name).collect();
    assert_eq!(declared, all);
}

#[test]
fn every_function_of_the_headers_is_an_intrinsic() {
    let header = |name: &str| {
        let path = format!("{}/../../crates/msl/headers/elinvar_stdlib/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    // `ELINVAR_REDUCE(group##_sum, T, suffix)` declares the function of each type.
    let simdgroup = header("simdgroup.h");
    let declared =
        simdgroup.lines().filter_map(|line| line.split_once("(group##_")?.1.split_once(", T, suffix)"));
    let declared: BTreeSet<&str> = declared.map(|(name, _)| name).collect();
    let typed = GroupOp::ALL.iter().filter(|op| op.declaration().elements != Elements::None);
    let typed: BTreeSet<&str> = typed
        .filter(|op| **op != GroupOp::MatrixMultiplyAccumulate)
        .map(|op| op.declaration().name)
        .collect();
    assert_eq!(declared, typed);
    // All others are declared by their whole names.
    let mut seen = 0;
    for name in ["simdgroup.h", "simdgroup_matrix.h", "synchronization.h"] {
        let text = header(name);
        for (at, _) in text.match_indices(PREFIX) {
            let rest = &text[at..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            if end > PREFIX.len() && rest[end..].starts_with('(') {
                assert!(Intrinsic::parse(&rest[..end]).is_some(), "`{}` of {name}", &rest[..end]);
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen}");
}
