//! What kernels become as PTX: the instructions that their speed rests on.

use elinvar_code::user_cache;
use elinvar_driver::{Dim3, Error, MathMode, PipelineOptions, Source};
use elinvar_ptx::{Argument, Bundle, Compiler, Constants, Parameter, Ptx, Target};

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

fn compiler(text: &str, math: MathMode) -> Compiler {
    let source = Source::named("k.metal", format!("{HEAD}{text}")).math(math);
    Compiler::new(user_cache(), &source, Target::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn ptx_in(text: &str, math: MathMode, constants: Constants) -> Ptx {
    let compiler = compiler(text, math);
    let name = compiler.declared().kernels[0].name.clone();
    compiler.kernel(&name, &PipelineOptions::default(), constants).unwrap_or_else(|error| panic!("{error}"))
}

fn ptx(text: &str) -> Ptx {
    ptx_in(text, MathMode::Fast, Constants::Values)
}

#[track_caller]
fn expect(ptx: &Ptx, there: &[&str], absent: &[&str]) {
    for text in there {
        assert!(ptx.text.contains(text), "`{text}` is not in\n{}", ptx.text);
    }
    for text in absent {
        assert!(!ptx.text.contains(text), "`{text}` is in\n{}", ptx.text);
    }
}

const SAXPY: &str = "struct P { float a; uint n; };
    kernel void saxpy(device const float* x, device float* y, constant P& p, uint i [[thread_position_in_grid]]) {
        if (i < p.n) y[i] = p.a * x[i] + y[i];
    }";

#[test]
fn constants_are_parameters_and_accesses_are_global() {
    let saxpy = ptx(SAXPY);
    assert_eq!((saxpy.entry.as_str(), saxpy.target.to_string().as_str()), ("elinvar_saxpy", "sm_90"));
    assert!(saxpy.takes_values());
    assert!(saxpy.parameters.contains(&Parameter::Argument(2, Argument::Value { bytes: 8, align: 4 })));
    let there = [
        ".entry elinvar_saxpy(",
        ".param .align 4 .b8 elinvar_saxpy_param_2[8]",
        "fma.rn.f32",
        "ld.global.f32",
        "st.global.f32",
    ];
    expect(&saxpy, &there, &[".local", "cvta", "//"]);
    let addresses = ptx_in(SAXPY, MathMode::Fast, Constants::Addresses);
    assert!(!addresses.takes_values());
    // Nothing writes what a `constant` is.
    expect(&addresses, &["ld.global.nc.u32", "ld.global.nc.f32"], &[".align 4 .b8"]);
}

#[test]
fn constants_beyond_what_parameters_hold_are_addresses() {
    let text = "struct Big { float4 v[128]; }; struct P { float a; };
        kernel void k(device float4* y, constant Big& a, constant Big& b, constant P& p, uint i [[thread_position_in_grid]]) {
            y[i] = a.v[i] + b.v[i] * p.a;
        }";
    let value = |bytes, align| Argument::Value { bytes, align };
    let made = ptx(text).parameters;
    let arguments: Vec<Argument> =
        made.iter().filter_map(|p| if let Parameter::Argument(_, a) = p { Some(*a) } else { None }).collect();
    let pointer = |constant| Argument::Pointer { constant };
    assert_eq!(arguments, [pointer(false), value(2048, 16), pointer(true), value(4, 4)]);
}

#[test]
fn float4_is_one_access() {
    let text = "kernel void k(device const float4* x, device float4* y, uint i [[thread_position_in_grid]]) { y[i] = x[i] * 2; }";
    expect(&ptx(text), &["ld.global.v4.f32", "st.global.v4.f32"], &[]);
}

#[test]
fn quotients_and_roots_follow_the_math_mode() {
    let text = "kernel void k(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
            y[2 * i] = x[i] / x[i + 1];
            y[2 * i + 1] = rsqrt(x[i]) + sqrt(x[i + 2]);
        }";
    expect(&ptx(text), &["div.full.f32", "rsqrt.approx.f32", "sqrt.rn.f32"], &["div.rn", ".ftz"]);
    let safe = ptx_in(text, MathMode::Safe, Constants::Values);
    expect(&safe, &["div.rn.f32", "sqrt.rn.f32"], &["div.full", "approx", ".ftz"]);
}

#[test]
fn nothing_is_fused_that_may_not_be() {
    let text = "kernel void k(device float* y, uint i [[thread_position_in_grid]]) {
            float product = y[i] * y[i + 1];
            y[i + 3] = product + y[i + 2];
        }";
    expect(&ptx(text), &["fma.rn.f32"], &[]);
    expect(&ptx_in(text, MathMode::Safe, Constants::Values), &["mul.rn.f32", "add.rn.f32"], &["fma"]);
}

#[test]
fn threadgroup_memory_is_shared_and_sums_are_shuffles() {
    let text = "kernel void k(device float* y, threadgroup float* s [[threadgroup(0)]], uint t [[thread_index_in_threadgroup]]) {
            threadgroup float part[32];
            part[t & 31] = simd_sum(y[t]);
            s[t] = part[(t + 1) & 31];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            y[t] = s[t ^ 1] + float(simd_max(t));
        }";
    let made = ptx(text);
    assert_eq!((made.static_bytes, made.dynamic_base), (128, 0));
    assert!(made.signature.code.is_some_and(|code| code.simdgroup && code.barriers == 1));
    let there = [
        "ld.shared.f32",
        "st.shared.f32",
        "shfl.sync.bfly.b32",
        "redux.sync.max.u32",
        "bar.sync",
        ".extern .shared",
    ];
    expect(&made, &there, &["membar", ".local"]);
}

#[test]
fn products_of_halves_are_for_tensor_cores() {
    let product = |ty: &str| {
        format!(
            "kernel void k(device const {ty}* a, device const {ty}* b, device float* c) {{
                simdgroup_matrix<{ty}, 8, 8> x, y;
                simdgroup_float8x8 z = make_filled_simdgroup_matrix<float, 8>(0.0f);
                simdgroup_load(x, a); simdgroup_load(y, b);
                simdgroup_multiply_accumulate(z, x, y, z);
                simdgroup_store(z, c);
            }}"
        )
    };
    expect(&ptx(&product("half")), &["mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"], &[]);
    expect(&ptx(&product("bfloat")), &["mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"], &[]);
    expect(&ptx(&product("float")), &["fma.rn.f32"], &["mma.sync"]);
    expect(&ptx_in(&product("half"), MathMode::Safe, Constants::Values), &["fma.rn.f32"], &["mma.sync"]);
}

#[test]
fn products_of_several_tiles_are_one_instruction() {
    let tiles = |more: &str| {
        format!(
            "kernel void k(device const half* a, device const half* b, device float* c) {{
                simdgroup_half8x8 x[4], y[2];
                simdgroup_float8x8 z[2];
                for (uint i = 0; i < 2; ++i) simdgroup_load(z[i], c + 64 * i);
                for (uint i = 0; i < 4; ++i) simdgroup_load(x[i], a + 64 * i);
                for (uint i = 0; i < 2; ++i) simdgroup_load(y[i], b + 64 * i);
                for (uint i = 0; i < 2; ++i) {{
                    simdgroup_multiply_accumulate(z[i], x[i], y[0], z[i]);
                    simdgroup_multiply_accumulate(z[i], x[i + 2], y[1], z[i]);
                }}
                {more}
                for (uint i = 0; i < 2; ++i) simdgroup_store(z[i], c + 64 * i);
            }}"
        )
    };
    // The right factors are turned, two shuffles each; nothing else moves.
    let made = ptx(&tiles(""));
    expect(&made, &["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"], &["m16n8k8"]);
    let count = |text: &Ptx, of: &str| text.text.matches(of).count();
    assert_eq!((count(&made, "mma.sync"), count(&made, "shfl.sync")), (1, 4), "{}", made.text);
    // What asks for the order of lanes keeps them in theirs.
    let ordered = ptx(&tiles("z[0].thread_elements()[0] = simd_any(z[0].thread_elements()[0] > 3.0f);"));
    expect(&ordered, &["m16n8k8"], &["m16n8k16"]);
    assert_eq!(count(&ordered, "mma.sync"), 4, "{}", ordered.text);
    // A shuffle finds its lane where it is.
    let shuffled = ptx(&tiles("z[0].thread_elements()[0] = simd_shuffle(z[0].thread_elements()[0], 3);"));
    expect(&shuffled, &["m16n8k16"], &["m16n8k8"]);
}

#[test]
fn bytes_are_copied_in_wide_words_where_addresses_allow() {
    let made = ptx("struct Bytes { uchar v[32]; };
        kernel void k(device const uchar* a, device uchar* b, uint i [[thread_position_in_grid]]) {
            *((device Bytes*)(b + 32 * i)) = *((device const Bytes*)(a + 32 * i));
        }");
    expect(&made, &["ld.global.v4", "st.global.v4", "ld.global.u8", "st.global.u8"], &[]);
}

#[test]
fn checked_kernels_take_sizes_and_a_record() {
    let compiler = compiler(
        "kernel void k(device int* a, uint i [[thread_position_in_grid]]) { a[i] = 1; }",
        MathMode::Fast,
    );
    let checked = PipelineOptions { checked: true, ..PipelineOptions::default() };
    let made = compiler.kernel("k", &checked, Constants::Values).unwrap();
    assert!(made.parameters.ends_with(&[Parameter::Record, Parameter::Bytes(0)]), "{:?}", made.parameters);
    assert_eq!(made.checks.map(|checks| checks.sites.len()), Some(1));
}

const MISSED: &str = "kernel void k(device uint* a, uint t [[thread_position_in_threadgroup]]) {
        if (t < 32u) threadgroup_barrier(mem_flags::mem_threadgroup);
        a[t] += 1u;
        threadgroup_barrier(mem_flags::mem_device);
        a[t] += a[t ^ 1u];
    }";

#[test]
fn different_barriers_are_refused_with_their_line_also_from_a_bundle() {
    let compiler = compiler(MISSED, MathMode::Fast);
    let options = PipelineOptions::default();
    compiler.check_group("k", &options, Dim3::from(32)).unwrap();
    let Err(Error::Compile(wrong)) = compiler.check_group("k", &options, Dim3::from(96)) else {
        panic!("not refused")
    };
    assert_eq!((wrong[0].file.as_str(), wrong[0].line), ("k.metal", 4));
    let source = Source::named("k.metal", format!("{HEAD}{MISSED}"));
    let mut bundle = Bundle::default();
    let packing = Compiler::packing(user_cache(), &source, Target::default(), &mut bundle).unwrap();
    packing.pack("k", &options, &mut bundle).unwrap();
    let key = bundle.sources().next().unwrap().2;
    let packed = elinvar_driver::Packed { bundle: bundle.to_bytes().into(), key };
    let source = Source { packed: Some(packed), ..Source::default() };
    let library = elinvar_ptx::Library::new(user_cache(), &source, Target::default()).unwrap();
    assert_eq!(library.kernel("k", &options, Constants::Addresses).unwrap().entry, "elinvar_k");
    library.check_group("k", &options, Dim3::from(16)).unwrap();
    let Err(Error::Compile(again)) = library.check_group("k", &options, Dim3::from(64)) else {
        panic!("not refused")
    };
    assert_eq!(again, wrong);
    let older = elinvar_ptx::Library::new(user_cache(), &source, "sm_80".parse().unwrap()).unwrap();
    let error = older.kernel("k", &options, Constants::Values).unwrap_err().to_string();
    assert!(error.contains("no kernel `k` for sm_80"), "{error}");
}

#[test]
fn atomics_on_coherent_memory_have_system_scope() {
    let kernel = |qualifiers: &str, scope: &str| {
        ptx(&format!(
            "kernel void k({qualifiers} atomic_uint* a, {qualifiers} atomic_float* f, device uint* out) {{
                 uint old = atomic_fetch_add_explicit(&a[0], 1u, memory_order_relaxed{scope});
                 old += atomic_fetch_max_explicit(&a[1], old, memory_order_relaxed{scope});
                 atomic_fetch_or_explicit(&a[2], old, memory_order_relaxed{scope});
                 uint expected = 1;
                 old += atomic_compare_exchange_weak_explicit(&a[3], &expected, 2u, memory_order_relaxed,
                                                              memory_order_relaxed{scope});
                 atomic_fetch_add_explicit(&f[0], 1.0f, memory_order_relaxed{scope});
                 atomic_store_explicit(&a[5], atomic_load_explicit(&a[4], memory_order_relaxed{scope}) + old,
                                       memory_order_relaxed{scope});
                 out[0] = old;
             }}"
        ))
    };
    let of_system = [
        "atom.sys.add.",
        "atom.sys.cas.b32",
        "atom.sys.or.b32",
        "atom.sys.add.f32",
        "ld.volatile",
        "st.volatile",
    ];
    for (qualifiers, scope) in [
        ("coherent(system) device", ""),
        ("device coherent(device)", ""),
        ("volatile device", ""),
        ("device", ", thread_scope_system"),
    ] {
        let found = kernel(qualifiers, scope);
        expect(&found, &of_system, &["atom.global", "atom.add", "red.", "atom.cas"]);
    }
    // Without a scope it is the GPU's: PTX ISA, "atom".
    for scope in ["", ", thread_scope_device"] {
        let found = kernel("device", scope);
        expect(&found, &["atom.global.add.u32", "atom.global.max.u32", "atom.global.cas.b32"], &[".sys"]);
    }
    let fences = ptx("kernel void k(coherent(system) device uint* a, device uint* b) {
             a[0] = 1;
             atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_system);
             a[1] = 2;
             atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);
             b[0] = 3;
         }");
    expect(&fences, &["st.volatile.global.u32", "membar.sys", "fence.acq_rel.gpu", "st.global.u32"], &[]);
}

/// A product of tensors in device memory uses `wgmma` and more shared memory than a threadgroup of Metal has, on the one architecture that
/// has it.
#[test]
fn products_of_tensors() {
    let text = "#include <metal_stdlib>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
kernel void gemm(device const half* A [[buffer(0)]], device const half* B [[buffer(1)]], device half* C [[buffer(2)]],
        constant uint& n [[buffer(3)]], uint2 tgid [[threadgroup_position_in_grid]]) {
    int s = int(n);
    auto a = tensor(A, dextents<int, 2>{s, s}).slice(0, int(tgid.y) * 128);
    auto b = tensor(B, dextents<int, 2>{s, s}).slice(int(tgid.x) * 256, 0);
    auto c = tensor(C, dextents<int, 2>{s, s}).slice(int(tgid.x) * 256, int(tgid.y) * 128);
    matmul2d<matmul2d_descriptor(128, 256), execution_simdgroups<8>> op;
    op.run(a, b, c);
}";
    let of = |target: Target, options: &PipelineOptions| {
        let source = Source::named("gemm.metal", text);
        let compiler = Compiler::new(user_cache(), &source, target).unwrap_or_else(|error| panic!("{error}"));
        compiler.kernel("gemm", options, Constants::Values).unwrap_or_else(|error| panic!("{error}"))
    };
    let hopper = of(Target::of(9, 0).unwrap(), &PipelineOptions::default());
    let instruction = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16";
    assert_eq!(hopper.text.matches(instruction).count(), 4, "{}", hopper.text);
    assert!(hopper.text.contains(".target sm_90a"));
    assert_eq!((hopper.static_bytes, hopper.dynamic_base), (0, (192 << 10) + 1024));
    if let Some(file) = std::env::var_os("ELINVAR_TEST_PTX") {
        std::fs::write(file, &hopper.text).unwrap();
    }
    let checked = PipelineOptions { checked: true, ..PipelineOptions::default() };
    for (target, options) in
        [(Target::default(), PipelineOptions::default()), (Target::of(9, 0).unwrap(), checked)]
    {
        let other = of(target, &options);
        assert!(!other.text.contains("wgmma") && other.text.contains("mma.sync") && other.dynamic_base == 0);
    }
}
