//! Signatures of real declarations, in full.

use std::sync::LazyLock;

use elinvar_cache::Cache;
use elinvar_driver::{
    Access, Arg, ArgKind, Builtin, Constant, ConstantKey, ElementType, Scalar, Signature, Source,
};
use elinvar_msl::{Error, Program, Toolchain};

static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
    let source = Source::named("signatures.metal", include_str!("metal/signatures.metal"));
    match Program::compile(&toolchain(), &source) {
        Ok(program) => program,
        Err(error) => panic!("{error}"),
    }
});

fn kernel(name: &str) -> &'static Signature {
    PROGRAM.kernels().iter().find(|k| k.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn line_of(needle: &str) -> u32 {
    let text = include_str!("metal/signatures.metal");
    let at = text.find(needle).unwrap();
    u32::try_from(text[..at].matches('\n').count()).unwrap() + 1
}

/// With the user's cache, for its precompiled headers.
fn toolchain() -> Toolchain {
    Toolchain::find_with(&Cache::user("tests")).unwrap()
}

#[test]
fn no_warnings() {
    assert_eq!(PROGRAM.warnings(), []);
}

#[test]
fn every_attribute_in_every_width() {
    let positions = [
        "thread_position_in_grid",
        "thread_position_in_threadgroup",
        "threadgroup_position_in_grid",
        "threads_per_grid",
        "threads_per_threadgroup",
        "dispatch_threads_per_threadgroup",
        "threadgroups_per_grid",
        "grid_size",
        "grid_origin",
    ];
    let indices = [
        "thread_index_in_threadgroup",
        "thread_index_in_simdgroup",
        "thread_index_in_quadgroup",
        "simdgroup_index_in_threadgroup",
        "quadgroup_index_in_threadgroup",
        "simdgroups_per_threadgroup",
        "quadgroups_per_threadgroup",
        "dispatch_simdgroups_per_threadgroup",
        "dispatch_quadgroups_per_threadgroup",
        "threads_per_simdgroup",
        "thread_execution_width",
    ];
    let widths =
        |n: usize| ["uint", "ushort", "uint2", "ushort2", "uint3", "ushort3"].into_iter().take(n).enumerate();
    let all = positions.iter().map(|p| (p, 6)).chain(indices.iter().map(|i| (i, 2)));
    for (attribute, count) in all {
        for (i, of) in widths(count) {
            let dimensions = u32::try_from(i / 2).unwrap() + 1;
            let expected = [Builtin { attribute: (*attribute).to_owned(), dimensions }];
            assert_eq!(kernel(&format!("{attribute}_{of}")).builtins, expected);
        }
    }
}

#[test]
fn every_scalar() {
    use Scalar::*;
    let all = [Bool, I8, U8, I16, U16, I32, U32, I64, U64, F16, BF16, F32];
    let signature = kernel("scalars");
    for (i, (arg, scalar)) in signature.args.iter().zip(all).enumerate() {
        let expected = Arg {
            name: char::from(b'a' + u8::try_from(i).unwrap()).to_string(),
            kind: ArgKind::Pointer,
            index: u32::try_from(i).unwrap(),
            element: ElementType::Scalar(scalar),
            element_size: scalar.size(),
            element_align: scalar.size(),
            access: Access::ReadWrite,
            constant: false,
        };
        assert_eq!(*arg, expected);
    }
    assert_eq!(signature.args.len(), 12);
    assert_eq!(
        (signature.file.as_str(), signature.line),
        ("signatures.metal", line_of("kernel void scalars"))
    );
}

/// name, kind, index, element as MSL writes it, size, alignment, access, constant
type Row<S> = (S, ArgKind, u32, S, u64, u64, Access, bool);

fn rows(signature: &Signature) -> Vec<Row<String>> {
    let row = |a: &Arg| {
        let (kind, access) = (a.kind, a.access);
        (
            a.name.clone(),
            kind,
            a.index,
            a.element.to_string(),
            a.element_size,
            a.element_align,
            access,
            a.constant,
        )
    };
    signature.args.iter().map(row).collect()
}

fn expect(signature: &Signature, expected: &[Row<&str>]) {
    let expected: Vec<_> =
        expected.iter().map(|r| (r.0.to_owned(), r.1, r.2, r.3.to_owned(), r.4, r.5, r.6, r.7)).collect();
    assert_eq!(rows(signature), expected);
}

#[test]
fn elements_and_indices() {
    use Access::{Read, ReadWrite};
    use ArgKind::{Pointer, Reference};
    expect(
        kernel("elements"),
        &[
            ("a", Pointer, 3, "float3", 16, 16, Read, false),
            ("b", Reference, 4, "packed_half3", 6, 2, Read, true),
            ("c", Reference, 1, "atomic_uint", 4, 4, ReadWrite, false),
            ("d", Pointer, 0, "Mixed", 32, 16, Read, false),
            ("e", Reference, 2, "shapes::Box<2>", 20, 4, Read, true),
            ("f", Pointer, 5, "float4x4", 64, 16, ReadWrite, false),
            ("g", Pointer, 30, "void", 0, 1, ReadWrite, false),
            ("h", Pointer, 6, "atomic_float", 4, 4, ReadWrite, false),
            ("", Pointer, 7, "bool2", 2, 2, Read, true),
            ("j", Pointer, 8, "uchar", 1, 1, ReadWrite, false),
        ],
    );
}

#[test]
fn threadgroup_memory_and_limits() {
    use Access::ReadWrite;
    use ArgKind::{Pointer, Threadgroup};
    let signature = kernel("shared");
    expect(
        signature,
        &[
            ("a", Threadgroup, 1, "float", 4, 4, ReadWrite, false),
            ("b", Pointer, 0, "float", 4, 4, ReadWrite, false),
            ("c", Threadgroup, 0, "half2", 4, 4, ReadWrite, false),
            ("d", Threadgroup, 2, "uint", 4, 4, ReadWrite, false),
        ],
    );
    assert_eq!(signature.max_threads_per_threadgroup, Some(256));
    assert_eq!(kernel("limited_4").max_threads_per_threadgroup, Some(128));
    assert_eq!(signature.dimensions(), 2);
    assert_eq!(signature.builtins.len(), 2);
    assert_eq!(signature.line, line_of("shared("));
}

#[test]
fn templates_by_host_name_and_namespaces() {
    for (name, scalar, size) in [("scale_float_2", "float", 4), ("scale_half_1", "half", 2)] {
        expect(
            kernel(name),
            &[
                ("data", ArgKind::Pointer, 1, scalar, size, size, Access::ReadWrite, false),
                ("by", ArgKind::Reference, 0, scalar, size, size, Access::Read, true),
            ],
        );
        assert_eq!(kernel(name).line, line_of("[[kernel]] void scale"));
        assert_eq!(kernel(name).builtins.len(), 1);
    }
    for name in ["spaced", "general_int"] {
        expect(kernel(name), &[("x", ArgKind::Pointer, 0, "int", 4, 4, Access::ReadWrite, false)]);
        assert!(PROGRAM.ir(name).unwrap().contains("store i32 1"));
    }
    assert!(PROGRAM.ir("scale_half_1").unwrap().contains("fmul"));
    assert_eq!(PROGRAM.kernels().iter().filter(|k| k.name == "prototype").count(), 1);
    assert!(PROGRAM.ir("min").unwrap().contains("@llvm.smin.i32"), "a name that the library has as well");
}

#[test]
fn what_cannot_be_had_is_refused_by_name() {
    assert!(PROGRAM.kernels().iter().all(|k| k.name != "pictures"));
    match PROGRAM.ir("pictures") {
        Err(Error::Unsupported(why)) => {
            let place = format!("signatures.metal:{}", line_of("kernel void pictures"));
            assert_eq!(
                why,
                format!(
                    "{place}: kernel `pictures` takes parameter `picture` with `[[texture]]`, which is not supported"
                )
            );
        }
        other => panic!("{other:?}"),
    }
    for of in [
        "sampler",
        "texture2d<float>",
        "depth2d<float>",
        "raytracing::intersection_function_table<>",
        "imageblock<float4>",
        "array<texture2d<float>, 2>",
        "raytracing::instance_acceleration_structure",
    ] {
        let text = format!(
            "using namespace metal; kernel void k({of} seen, device int* a [[buffer(0)]]) {{ a[0] = 1; }}"
        );
        match Program::compile(&toolchain(), &Source::msl(text)).unwrap().ir("k") {
            Err(Error::Unsupported(why)) => assert!(why.contains("parameter `seen` of type"), "{why}"),
            other => panic!("{of}: {other:?}"),
        }
    }
    for of in [
        "const array<device float*, 2>",
        "array<constant int*, 4>",
        "array_ref<device float*>",
        "array<visible_function_table<float(float)>, 2>",
    ] {
        let text = format!("using namespace metal; kernel void k({of} seen [[buffer(0)]]) {{}}");
        match Program::compile(&toolchain(), &Source::msl(text)).unwrap().ir("k") {
            Err(Error::Unsupported(why)) => {
                let is_of_buffers = why.contains("members of argument buffers");
                assert!(why.contains("`seen`") && is_of_buffers == of.contains('*'), "{why}");
            }
            other => panic!("{of}: {other:?}"),
        }
    }
    for seen in ["device float* const (&seen)[3]", "device float* seen[3]", "device float** seen"] {
        let text = format!("kernel void k({seen} [[buffer(0)]]) {{}}");
        match Program::compile(&toolchain(), &Source::named("k.metal", text)) {
            Err(Error::Compile(found)) => assert_eq!(
                found[0].to_string().lines().next(),
                Some(
                    "k.metal:1:15: error: parameter `seen` must point to `device`, `constant` or `threadgroup` memory"
                ),
            ),
            other => panic!("{seen}: {other:?}"),
        }
    }
    match PROGRAM.ir("nothing") {
        Err(Error::NoKernel { name, known }) => {
            assert_eq!(name, "nothing");
            assert!(known.contains(&"scale_float_2".to_owned()));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn kernels_beside_graphics() {
    let source = Source::named("graphics.metal", include_str!("metal/graphics.metal"));
    let program = Program::compile(&toolchain(), &source).unwrap();
    assert_eq!(program.warnings(), []);
    assert_eq!(program.kernels().iter().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["plain"]);
    let refused: Vec<_> = program.unsupported().iter().map(|k| k.reason.message.as_str()).collect();
    let expected = [
        "kernel `blur` takes parameter `in` with `[[texture]]`, which is not supported",
        "kernel `image` takes parameter `t` with `[[texture]]`, which is not supported",
        "kernel `rays` takes parameter `scene` of type `raytracing::acceleration_structure<raytracing::instancing>`, \
         which is not supported",
        "kernel `tile` takes parameter `block` of type `imageblock<VOut>`, which is not supported",
    ];
    assert_eq!(refused, expected);
    assert!(program.ir("plain").is_ok());
}

#[test]
fn function_constants_that_do_not_fit_are_refused() {
    let text = "constant int factor [[function_constant(3)]];
        kernel void scale(device int* a [[buffer(0)]]) { a[0] *= factor; }";
    let program = Program::compile(&toolchain(), &Source::msl(text)).unwrap();
    let given = |key: ConstantKey, scalar: Scalar| {
        let bytes = vec![1; scalar.size() as usize];
        Constant { key, scalar, bytes }
    };
    let name = |name: &str| ConstantKey::Name(name.into());
    let cases = [
        (vec![], "kernel `scale` needs a value for function constant `factor` (index 3, int)"),
        (vec![given(name("facto"), Scalar::I32)], "no function constant `facto`; the source has `factor`"),
        (vec![given(ConstantKey::Index(4), Scalar::I32)], "no function constant with index 4"),
        (vec![given(name("factor"), Scalar::F32)], "function constant `factor` has type `int`, not `float`"),
        (vec![given(name("factor"), Scalar::I32); 2], "function constant `factor` is given twice"),
    ];
    for (constants, reason) in cases {
        match program.specialize("scale", &constants) {
            Err(Error::Constant(why)) => assert!(why.starts_with(reason), "{why}"),
            other => panic!("{reason}: {other:?}"),
        }
    }
    assert!(program.specialize("scale", &[given(name("factor"), Scalar::I32)]).is_ok());
}

#[test]
fn host_names_may_have_escapes() {
    let text = "template<int N> kernel void f(device int* a) { a[0] = N; }\n\
        template [[host_name(\"a\\\"b\\\\c\\x41\" \"\\n\")]] kernel void f<1>(device int* a);\n\
        [[host_name(\"\\\"\")]] kernel void g(device int* a) { a[0] = 2; }\n";
    let program = Program::compile(&toolchain(), &Source::named("names.metal", text)).unwrap();
    let names: Vec<&str> = program.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names, ["a\"b\\cA\n", "\""]);
    for (name, stored) in names.iter().zip(["store i32 1", "store i32 2"]) {
        assert!(program.ir(name).unwrap().contains(stored), "{name}");
    }
}

#[test]
fn tables_of_functions_are_buffers_of_handles() {
    let text = |attribute: &str| {
        format!(
            "using namespace metal; [[visible]] float f(float x); [[stitchable]] float g(float x) {{ return x; }}\n\
             [[visible]] float f(float x) {{ return -x; }}\n\
             kernel void k(device float* a, visible_function_table<float(float)> t {attribute}) {{ a[0] = t[0](a[0]); }}"
        )
    };
    let compile = |attribute| Program::compile(&toolchain(), &Source::msl(text(attribute)));
    for (attribute, index) in [("", 1), ("[[buffer(7)]]", 7)] {
        let program = compile(attribute).unwrap();
        let table = &program.kernels()[0].args[1];
        let functions = vec!["f".to_owned(), "g".to_owned()];
        assert_eq!(table.element, ElementType::Function { of: "float (float)".into(), functions });
        assert_eq!((table.kind, table.access, table.index), (ArgKind::Pointer, Access::Read, index));
        assert_eq!((table.element_size, table.element_align, table.constant), (4, 4, true));
    }
    match compile("[[threadgroup(0)]]") {
        Err(Error::Compile(found)) => {
            let text = found[0].to_string();
            assert!(
                text.contains("parameter `t`") && text.contains("cannot have `[[threadgroup]]`"),
                "{text}"
            );
        }
        other => panic!("{:?}", other.map(|program| program.kernels().to_vec())),
    }
}
