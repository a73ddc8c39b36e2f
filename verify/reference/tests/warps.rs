//! Matrix products as they are prepared for NVPTX, run by lanes that wait for nobody but those of their masks.

use elinvar::Source;
use elinvar_code::user_cache;
use elinvar_ir::Module;
use elinvar_msl::{ENTRY, Program, Toolchain};
use elinvar_reference::{Argument, Launch, Options, run_with};
use elinvar_spmd::nvptx;

/// A kernel of three buffers, prepared.
fn prepared(text: &str, approximate: bool) -> Module {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{text}");
    let toolchain = Toolchain::find_with(user_cache()).expect("clang");
    let program = Program::compile(&toolchain, &Source::named("k.metal", text)).expect("compiles");
    let module = Module::parse(&program.ir("k").expect("IR")).expect("parses");
    let options = nvptx::Options {
        name: ENTRY.into(),
        arguments: vec![nvptx::Argument::Pointer { constant: false }; 3],
        approximate,
        max_threads: None,
        checks: None,
        tensor_products: false,
    };
    let prepared = nvptx::prepare(&module, &options).unwrap_or_else(|error| panic!("{error}"));
    Module::parse(&prepared.ir).unwrap_or_else(|error| panic!("{error} in\n{}", prepared.ir))
}

fn kernel(ty: &str) -> String {
    format!(
        "kernel void k(device const {ty}* a, device const {ty}* b, device float* c) {{
            simdgroup_matrix<{ty}, 8, 8> x[2], y;
            simdgroup_float8x8 z[2] = {{ simdgroup_float8x8(0.0f), make_filled_simdgroup_matrix<float, 8>(3.0f) }};
            for (uint k = 0; k < 2; ++k) {{
                simdgroup_load(x[0], a + 8 * k, 16);
                simdgroup_load(x[1], a + 128 + 8 * k, 16);
                simdgroup_load(y, b + 64 * k);
                simdgroup_multiply_accumulate(z[0], x[0], y, z[0]);
                simdgroup_multiply_accumulate(z[1], x[1], y, z[1]);
            }}
            simdgroup_store(z[0], c);
            simdgroup_store(z[1], c + 64);
        }}"
    )
}

#[test]
fn products_of_every_type_are_right() {
    // A is 16 rows of 16, B 16 rows of 8; all sums are small whole numbers.
    let a: Vec<f32> = (0..256).map(|i| ((i * 7 + i / 16) % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..128).map(|i| ((i * 5 + i / 8) % 13) as f32 - 6.0).collect();
    for (ty, approximate) in [("float", true), ("half", true), ("half", false), ("bfloat", true)] {
        let encode = |values: &[f32]| -> Vec<u8> {
            let of = |value: &f32| match ty {
                "half" => half::f16::from_f32(*value).to_le_bytes().to_vec(),
                "bfloat" => half::bf16::from_f32(*value).to_le_bytes().to_vec(),
                _ => value.to_le_bytes().to_vec(),
            };
            values.iter().flat_map(of).collect()
        };
        let module = prepared(&kernel(ty), approximate);
        let uses_tensors = module.to_string().contains("llvm.nvvm.mma.");
        assert_eq!(uses_tensors, approximate && ty != "float", "{ty}");
        // Two left factors over one another, two pairs of factors one behind the other: one instruction.
        let calls: Vec<String> =
            module.to_string().lines().filter(|l| l.contains(" call ")).map(str::to_owned).collect();
        let is_called = |step: &&str| {
            let name = format!("@elinvar.product.Tiles.{step}.{ty}(");
            calls.iter().any(|line| line.contains(&name))
        };
        let steps: Vec<&str> = ["1.1", "1.2", "2.1", "2.2"].into_iter().filter(is_called).collect();
        assert_eq!(steps, if uses_tensors { vec!["2.2"] } else { vec![] }, "{ty}");
        let mut arguments =
            vec![encode(&a), encode(&b), vec![0; 512]].into_iter().map(Argument::Bytes).collect::<Vec<_>>();
        let extent = nvptx::Extent::of([32, 1, 1], [32, 1, 1]) as u32;
        arguments.extend([32, 1, 1, extent, 1, 1].map(Argument::Number));
        let launch = Launch { threads: [32, 1, 1], group: [32, 1, 1], arguments };
        let options = Options { blocks: true, ..Options::default() };
        let memory = run_with(&module, &launch, &options).unwrap_or_else(|fault| panic!("{ty}: {fault}"));
        let c: Vec<f32> = memory[2]
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().expect("four bytes")))
            .collect();
        for (i, got) in c.iter().enumerate() {
            let (part, row, column) = (i / 64, i / 8 % 8, i % 8);
            let start = if part == 1 { 3.0 } else { 0.0 };
            let sum: f32 = (0..16).map(|k| a[(part * 8 + row) * 16 + k] * b[k * 8 + column]).sum();
            assert_eq!(*got, start + sum, "{ty}, element {row}, {column} of product {part}");
        }
    }
}
