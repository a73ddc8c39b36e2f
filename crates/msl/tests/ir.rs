//! The IR of kernels: entries, intrinsics, atomics, threadgroup memory, flags.

use std::sync::LazyLock;

use elinvar_cache::Cache;
use elinvar_driver::{Constant, ConstantKey, MathMode, Scalar, Source};
use elinvar_msl::{ENTRY, InductionVariables, Program, Toolchain};

const TEXT: &str = r#"#include <metal_stdlib>
using namespace metal;
template <typename T> T unused(T x) { return x * 3; }
float helper(float x) { return x * 7; }
kernel void add(device const float* a, device const float* b, device float* out, constant uint& n,
                uint i [[thread_position_in_grid]]) {
    if (i < n) out[i] = a[i] + b[i];
}
kernel void reduce(device const float* in [[buffer(0)]], device atomic_float* sum [[buffer(1)]],
                   threadgroup float* part [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]],
                   uint size [[threads_per_threadgroup]]) {
    threadgroup float fixed[64];
    threadgroup alignas(16) atomic_uint counter;
    part[i] = in[i];
    fixed[i & 63] = in[i];
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    for (uint s = size / 2; s > 0; s /= 2) {
        if (i < s) part[i] += part[i + s] + fixed[(i + 1) & 63];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    atomic_fetch_add_explicit(&counter, 1u, memory_order_relaxed);
    if (i == 0) atomic_fetch_add_explicit(sum, part[0], memory_order_relaxed);
}
kernel void atomics(device atomic_int* a, device atomic_uint* b, device int* out, device atomic_bool* c,
                    volatile device atomic<int>* d) {
    out[0] = atomic_load_explicit(a, memory_order_relaxed);
    atomic_store_explicit(a + 1, 2, memory_order_relaxed);
    out[1] = atomic_exchange_explicit(a + 2, 3, memory_order_seq_cst);
    int expected = 4;
    out[2] = atomic_compare_exchange_weak_explicit(a + 3, &expected, 5, memory_order_relaxed, memory_order_relaxed);
    out[3] = expected;
    atomic_fetch_add_explicit(a, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(a, 1, memory_order_relaxed);
    atomic_fetch_min_explicit(a, 1, memory_order_relaxed);
    atomic_fetch_max_explicit(a, 1, memory_order_relaxed);
    atomic_fetch_min_explicit(b, 1u, memory_order_relaxed);
    atomic_fetch_max_explicit(b, 1u, memory_order_relaxed);
    atomic_fetch_and_explicit(b, 1u, memory_order_acq_rel);
    atomic_fetch_or_explicit(b, 1, memory_order_relaxed);
    atomic_fetch_xor_explicit(d, 1, memory_order_relaxed);
    atomic_store_explicit(c, true, memory_order_release);
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    simdgroup_barrier(mem_flags::mem_none);
}
kernel void numbers(device float* f, device half* h, device int* i, device bfloat* b) {
    f[0] = exp(f[1]) + sqrt(f[2]) * f[3];
    h[0] = h[1] * h[2] + h[3];
    b[0] = b[1] + b[2];
    i[0] = i[1] / i[2];
    i[3] = i[4] + 1 > i[4];
    i[5] = isnan(f[4]);
}
kernel void simd(device float* f, uint i [[thread_position_in_grid]]) { f[i] = simd_sum(f[i]); }
kernel void vectors(device float4* v, device packed_float3* p, uint3 t [[thread_position_in_threadgroup]]) {
    float4 x = v[t.x];
    x.xy = x.yx;
    v[t.x] = x.wzyx * 2;
    p[t.y] = float3(p[t.z]) + x.xyz;
}
"#;

static PROGRAM: LazyLock<Program> = LazyLock::new(|| compile(MathMode::Fast));

/// With the user's cache, for its precompiled headers.
fn toolchain() -> Toolchain {
    Toolchain::find_with(&Cache::user("tests")).unwrap()
}

fn compile(math: MathMode) -> Program {
    let source = Source::named("ir.metal", TEXT).math(math);
    match Program::compile(&toolchain(), &source) {
        Ok(program) => program,
        Err(error) => panic!("{error}"),
    }
}

/// The parameter types of the entry.
fn entry_params(ir: &str) -> usize {
    let line = ir.lines().find(|l| l.starts_with("define") && l.contains(ENTRY)).expect(ENTRY);
    let list = &line[line.find('(').unwrap() + 1..line.rfind(") local").unwrap()];
    let params: Vec<&str> = list.split(", ").filter(|p| !p.is_empty()).collect();
    assert!(params.iter().all(|p| p.starts_with("ptr ")), "{line}");
    params.len()
}

fn count(ir: &str, needle: &str) -> usize {
    ir.matches(needle).count()
}

#[test]
fn one_entry_and_nothing_else() {
    let ir = PROGRAM.ir("add").unwrap();
    assert_eq!(entry_params(&ir), 4);
    assert_eq!(count(&ir, "\ndefine "), 1);
    assert!(!ir.contains("unused") && !ir.contains("helper") && !ir.contains("section"));
    assert!(ir.contains("@__elinvar_thread_position_in_threadgroup(i32 noundef 0)"));
    assert!(ir.contains("memory(none)") && !ir.contains("llvm.assume"));
    assert!(ir.contains("DIFile(filename: \"ir.metal\"") && ir.contains("line: 7,"));
    let temp = std::env::temp_dir();
    assert!(!ir.contains(&format!("\"{}", temp.display())), "a path of this machine");
    assert!(ir.contains("null_pointer_is_valid"));
}

#[test]
fn functions_are_inlined_where_they_are_rarely_reached() {
    let rarely: String = (0..9).map(|k| format!("if (in[i + in[i + {k}]] == {k}u) ")).collect();
    let text = format!(
        "#include <metal_stdlib>
        static float mix_up(thread float* a, float x) {{
            for (int i = 0; i < 7; ++i) {{
                a[i] = a[i] * x + a[(i + 3) & 7];
                x += a[i & 3];
                if (x > 9.0f) x *= a[5];
            }}
            return x + a[0];
        }}
        kernel void cold(device float* out, device const uint* in, uint i [[thread_position_in_grid]]) {{
            float a[8] = {{1, 2, 3, 4, 5, 6, 7, out[i]}};
            float x = mix_up(a, out[i + 1]);
            {rarely}x += mix_up(a, x);
            out[i] = x + a[in[i] & 7u];
        }}"
    );
    let program = Program::compile(&toolchain(), &Source::named("cold.metal", &text)).unwrap();
    assert_eq!(count(&program.ir("cold").unwrap(), "\ndefine "), 1);
}

#[test]
fn kernels_together_have_the_code_that_each_has_alone() {
    let body = |ir: &str| -> Vec<String> {
        let mut lines = ir.lines().skip_while(|line| !line.contains(&format!("@{ENTRY}("))).skip(1);
        let own = lines.by_ref().take_while(|line| *line != "}").map(|line| {
            let words = line.split_whitespace().take_while(|word| !word.starts_with(['!', '#', ';']));
            words.collect::<Vec<_>>().join(" ")
        });
        own.collect()
    };
    let names = ["add", "simd", "atomics"];
    let together = PROGRAM.combine(&names).unwrap();
    for (index, name) in names.iter().enumerate() {
        let alone = body(&PROGRAM.ir(name).unwrap());
        assert!(alone.len() > 3, "{alone:?}");
        assert_eq!(body(&together.optimized().alone(index)), alone);
        let alone = body(&PROGRAM.ir_unoptimized(name).unwrap());
        assert_eq!(body(&together.unoptimized().alone(index)), alone);
    }
    assert!(PROGRAM.combine(&["add", "nothing"]).is_err());
}

/// From the second kernel on, the source is precompiled, once for each set of constants.
#[test]
fn a_kernel_has_the_same_code_whenever_it_is_compiled() {
    let text = "#include <metal_stdlib>\nusing namespace metal;\nconstant uint N [[function_constant(0)]];\n\
                constant float TABLE[2] = {1, 2};\ntemplate <typename T> T twice(T x) { return x * T(2); }\n\
                template <typename T> kernel void k(device T* out, uint i [[thread_position_in_grid]]) {\n\
                threadgroup T shared[32];\nshared[i] = twice(out[i]);\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n\
                for (uint n = 0; n < N; ++n) out[i] += shared[(i + n) % 32] * T(TABLE[n & 1]); }\n\
                template [[host_name(\"a\")]] kernel void k<float>(device float*, uint);\n\
                template [[host_name(\"b\")]] kernel void k<half>(device half*, uint);\n\
                template [[host_name(\"c\")]] kernel void k<int>(device int*, uint);\n";
    let compile = || Program::compile(&toolchain(), &Source::named("k.metal", text)).unwrap();
    let constants = |n: u32| {
        [Constant { key: ConstantKey::Index(0), scalar: Scalar::U32, bytes: n.to_ne_bytes().to_vec() }]
    };
    // Metadata has other numbers.
    let code = |ir: String| {
        assert!(ir.contains("filename: \"k.metal\""), "{ir}");
        let without = |line: &str| {
            let words: Vec<&str> = line.split_inclusive(' ').collect();
            words.iter().filter(|word| !word.starts_with('!')).copied().collect::<String>()
        };
        ir.lines().filter(|line| !line.starts_with('!')).map(without).collect::<Vec<_>>()
    };
    let together = compile();
    for n in [5, 9, 5] {
        for kernel in ["a", "b", "c"] {
            let ir = |program: &Program| code(program.specialize(kernel, &constants(n)).unwrap().ir);
            assert_eq!(ir(&together), ir(&compile()), "{kernel} {n}");
        }
    }
}

#[test]
fn threadgroup_memory_and_barriers() {
    let ir = PROGRAM.ir("reduce").unwrap();
    assert_eq!(entry_params(&ir), 3);
    let globals: Vec<&str> = ir.lines().filter(|l| l.contains("section \"elinvar.threadgroup\"")).collect();
    assert_eq!(globals.len(), 2);
    assert!(globals[0].contains("[64 x float] zeroinitializer"), "{}", globals[0]);
    assert!(globals[1].contains("align 16"), "{}", globals[1]);
    assert_eq!(count(&ir, "call void @__elinvar_threadgroup_barrier(i32 noundef 3)"), 1);
    assert!(count(&ir, "call void @__elinvar_threadgroup_barrier(i32 noundef 2)") >= 1);
    assert!(ir.contains("attributes #") && ir.contains("convergent"));
    assert!(ir.contains("atomicrmw fadd ptr"));
    assert!(ir.contains("atomicrmw add ptr"));
}

#[test]
fn atomics_become_instructions() {
    let ir = PROGRAM.ir("atomics").unwrap();
    for wanted in [
        "load atomic i32, ptr",
        "store atomic i32 2, ptr",
        "atomicrmw xchg ptr",
        "cmpxchg weak ptr",
        "atomicrmw add ptr",
        "atomicrmw sub ptr",
        "atomicrmw min ptr",
        "atomicrmw max ptr",
        "atomicrmw umin ptr",
        "atomicrmw umax ptr",
        // Of a volatile object.
        "atomicrmw volatile xor ptr",
        "store atomic i8 1, ptr",
        "fence seq_cst",
        "call void @__elinvar_simdgroup_barrier(i32 noundef 0)",
    ] {
        assert!(ir.contains(wanted), "{wanted}\n{ir}");
    }
    assert!(ir.contains("atomicrmw and ptr") && ir.contains(" acq_rel"), "{ir}");
    assert!(!ir.contains("__atomic"));
}

#[test]
fn math_modes_and_integers() {
    let fast = PROGRAM.ir("numbers").unwrap();
    assert!(fast.contains("fmul reassoc nsz arcp contract afn") && !fast.contains(" nnan"));
    let safe = compile(MathMode::Safe).ir("numbers").unwrap();
    assert!(safe.contains("@llvm.fmuladd.f32") && !safe.contains("reassoc") && !safe.contains("afn"));
    for ir in [&fast, &safe] {
        assert!(ir.contains("@llvm.sqrt.f32"), "{ir}");
        assert!(ir.contains("half") && ir.contains("bfloat") && !ir.contains("fpext half"));
        assert!(ir.contains("sdiv i32"));
        assert!(!ir.contains(" nsw "), "signed overflow wraps");
    }
}

#[test]
fn simdgroup_functions_are_calls_of_intrinsics() {
    let ir = PROGRAM.ir("simd").unwrap();
    assert!(ir.contains("float @__elinvar_simd_sum_f32(float noundef %"), "{ir}");
}

#[test]
fn vectors_are_scalars_in_registers() {
    let ir = PROGRAM.ir("vectors").unwrap();
    assert!(!ir.contains("alloca") && !ir.contains("memcpy"), "{ir}");
    let vector_arithmetic =
        ir.lines().any(|l| (l.contains(" fadd ") || l.contains(" fmul ")) && l.contains("<2 x"));
    assert!(!vector_arithmetic, "{ir}");
    assert!(ir.contains("__elinvar_thread_position_in_threadgroup(i32 noundef 2)"));
}

#[test]
fn no_value_is_carried_across_a_barrier() {
    let text = "#include <metal_stdlib>\nusing namespace metal;
    kernel void f(device float* a, threadgroup float* d, uint i [[thread_position_in_threadgroup]]) {
        threadgroup float s[32];
        s[i] = 1.0;
        d[i] = 2.0;
        a[i] = 3.0;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        a[i + 32] = s[i] + d[i] + a[i];
    }";
    let program = Program::compile(&toolchain(), &Source::msl(text)).unwrap();
    let ir = program.ir("f").unwrap();
    let behind = ir.split("call void @__elinvar_threadgroup_barrier").nth(1).unwrap();
    assert_eq!(count(behind, "load float"), 3, "{ir}");
}

#[test]
fn loops_stay_as_written() {
    let text = "kernel void f(device const float* a, device float* b, constant uint& n) {
        float s = 0.0;
        for (uint i = 0; i < n; ++i) s += a[i];
        b[0] = s;
    }";
    let program = Program::compile(&toolchain(), &Source::msl(text)).unwrap();
    assert_eq!(count(&program.ir("f").unwrap(), "fadd"), 1, "not unrolled");
    for (induction_variables, wide) in
        [(InductionVariables::Widened, true), (InductionVariables::AsWritten, false)]
    {
        let ir = program.specialize_with("f", &[], induction_variables).unwrap().ir;
        assert_eq!(
            (ir.contains("phi i64"), ir.contains("phi i32")),
            (wide, !wide),
            "{induction_variables:?}: {ir}"
        );
    }
}

#[test]
fn integers_wrap_and_divisions_stay() {
    let text = "kernel void f(device int* a) {
        int x = a[0];
        if (x + 1 < x) a[1] = 9;
        a[2] = a[3] / a[4];
        a[5] = a[6] % a[7];
        a[8] = a[9] << a[10];
    }";
    let program = Program::compile(&toolchain(), &Source::msl(text)).unwrap();
    let ir = program.ir("f").unwrap();
    for wanted in ["icmp eq i32", "2147483647", "sdiv i32", "srem i32", "shl i32"] {
        assert!(ir.contains(wanted), "{wanted}\n{ir}");
    }
}

#[test]
fn the_same_source_gives_the_same_text() {
    // The first kernel of each.
    let [one, other] = [(); 2].map(|()| compile(MathMode::Fast).ir("reduce").unwrap());
    assert!(one == other);
}

#[test]
fn program_scope_constants_are_computed_before_the_launch() {
    let text = "float half_of(float x) { return x / 2; }\nconstant float a = half_of(3.0);\nconstant int t[2] = {1, 2};
    constant int unused = t[0];
    kernel void f(device float* out, uint i [[thread_position_in_grid]]) { out[i] = a + t[i & 1]; }";
    let program = Program::compile(&toolchain(), &Source::msl(text)).unwrap();
    let ir = program.ir("f").unwrap();
    assert!(ir.contains("1.500000e+00") && !ir.contains("global_ctors"), "{ir}");
}
