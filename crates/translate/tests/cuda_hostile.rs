//! What of CUDA C++ cannot be translated is an error with its place, and hostile sources end in errors, too.

use elinvar_driver::Source;
use elinvar_msl::Toolchain;
use elinvar_translate::{CudaOptions, Error, Translation};

fn translate(text: &str) -> Result<Translation, Error> {
    let source = Source::named("k.cu", text);
    elinvar_translate::cuda(&Toolchain::find().unwrap(), &source, &CudaOptions::default())
}

/// The first error, as text.
fn refused(text: &str) -> String {
    let translation = translate(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert!(translation.kernels.is_empty(), "{}", translation.msl);
    let error = translation.errors.first().unwrap_or_else(|| panic!("{text}: no error\n{}", translation.msl));
    format!("{}:{}:{}: {}", error.file, error.line, error.column, error.message)
}

#[test]
fn what_metal_does_not_have_is_refused_with_its_place() {
    for (text, expected) in [
        (
            "__device__ int f(int n) {\n  return n < 2 ? n : f(n - 1); }\n__global__ void k(int *p) { *p = f(*p); }",
            "k.cu:2:22: recursion: `f`",
        ),
        (
            "__device__ int g(int n);\n__device__ int f(int n) { return n ? g(n) : 0; }\n__device__ int g(int n) { return f(n - 1); }\n__global__ void k(int *p) { *p = f(*p); }",
            "k.cu:3:34: recursion: `f`",
        ),
        ("__global__ void k(int *p) {\n  goto end;\nend: *p = 1; }", "k.cu:2:3: Metal has no `goto`"),
        ("__global__ void k(int *p) {\n  asm volatile(\"nop;\"); }", "k.cu:2:3: inline PTX"),
        ("__global__ void k(double *p) { *p = 1; }", "k.cu:1:19: `double`"),
        ("__global__ void k(float *p) {\n  *p = *p * 0.1 + 1.0; }", "k.cu:2:8: arithmetic in `double`"),
        (
            "struct B { __device__ virtual int f() { return 1; } };\n__global__ void k(int *p) { B b; *p = b.f(); }",
            "k.cu:1:1: `B` has virtual functions",
        ),
        (
            "__global__ void k(cudaTextureObject_t t, float *p) {\n  *p = tex2D<float>(t, 0.f, 0.f); }",
            "k.cu:1:19: textures",
        ),
        (
            "__global__ void k(int *p) {\n  int *q = new int[3]; *p = q[0]; }",
            "k.cu:2:12: Metal has no memory allocation",
        ),
        (
            "__global__ void k(int *p, int c) { __shared__ int s[4];\n  int *q = c ? p : s; *q = 1; }",
            "k.cu:2:12: a pointer into device memory and one into threadgroup memory",
        ),
        (
            "__global__ void k(unsigned long long *p) {\n  p[1] = atomicAdd(p, 1ull); }",
            "k.cu:2:10: the result of `atomicAdd` of 64 bits",
        ),
        (
            "__global__ void k(unsigned long long *p) {\n  atomicCAS(p, 1ull, 2ull); }",
            "k.cu:2:3: `atomicCAS` of 64 bits: Metal has none; compare and exchange words of 32 bits",
        ),
        (
            "__global__ void k(unsigned long long *p) {\n  atomicExch(p, 1ull); }",
            "k.cu:2:3: `atomicExch` of 64 bits: Metal has no such atomic function; use words of 32 bits",
        ),
        (
            "__global__ void k(long long *p) {\n  atomicMax(p, 1ll); }",
            "k.cu:2:3: `atomicMax` of 64 bits: Metal has it only of `unsigned long long` in device memory",
        ),
        (
            "__global__ void k(unsigned long long *p) { __shared__ unsigned long long s;\n  atomicMin(&s, *p); }",
            "k.cu:2:3: `atomicMin` of 64 bits: Metal has it only of `unsigned long long` in device memory",
        ),
        ("__global__ void k(long long *p) {\n  *p = clock64(); }", "k.cu:2:8: `clock64`: Metal has no clock"),
        (
            "__device__ int f(int);\n__global__ void k(int *p) {\n  *p = f(1); }",
            "k.cu:3:8: `f` has no definition",
        ),
        (
            "__device__ int f(int x) { return x; }\n__global__ void k(int *p) {\n  int (*g)(int) = f; *p = g(1); }",
            "k.cu:3:",
        ),
        ("__global__ void k(int *p) {\n  static int s; *p = s++; }", "k.cu:2:"),
        ("__global__ void k(float *p) {\n  *p = __fadd_rz(*p, 1.f); }", "k.cu:2:8: `__fadd_rz`"),
        ("__global__ void k(float *p) {\n  *p = lgammaf(*p); }", "k.cu:2:8: `lgammaf`"),
        (
            "__global__ void k(int *p) {\n  int i = 0; atomicAdd(&i, 1); *p = i; }",
            "k.cu:2:14: `atomicAdd` of thread memory",
        ),
        ("__global__ void k(int *p) {\n  __trap(); }", "k.cu:2:3: `__trap`"),
    ] {
        let error = refused(text);
        assert!(error.starts_with(expected), "{text}\n{error}\nexpected {expected}");
    }
}

#[test]
fn other_kernels_of_the_source_are_translated() {
    let text = "template <class T> __device__ T half_of(T x) { return x / 2; }
extern \"C\" __global__ void bad(double *p) { *p = half_of(*p); }
extern \"C\" __global__ void good(float *p) { *p = half_of(*p); }";
    let translation = translate(text).unwrap();
    assert_eq!(translation.refused, ["bad"]);
    assert_eq!(translation.kernels.len(), 1);
    assert_eq!(translation.kernels[0].name, "good");
    assert!(!translation.msl.contains("bad"));
}

#[test]
fn invalid_sources_have_clangs_errors() {
    for (text, expected) in [
        ("__global__ void k(int *p) {\n  *p = x; }", "k.cu:2:8: error: use of undeclared identifier 'x'"),
        ("__global__ void k(int *p) {\n  *p = 1", "k.cu:2:"),
        (
            "__global__ void c(int *p) { *p = 1; }\n__global__ void k(int *p) {\n  c<<<1, 1>>>(p); }",
            "k.cu:3:3: error: reference to __global__ function 'c'",
        ),
        ("#include <thrust/sort.h>\n", "k.cu:1:10: error: 'thrust/sort.h' file not found"),
        (
            "template <class T> __global__ void k(T *p) { p->f(); }\ntemplate __global__ void k<int>(int *);",
            "k.cu:1:",
        ),
    ] {
        let error = translate(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn truncated_and_damaged_sources_do_not_panic() {
    let text = "#include <cuda_fp16.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
template <class T, int N> struct V { T x[N]; __device__ T &operator[](int i) { return x[i]; } };
template <class T> __device__ T sum(const T *p, int n) { T s = 0; for (int i = 0; i < n; i++) s += p[i]; return s; }
__constant__ float w[3];
extern \"C\" __global__ void k(const float *a, float4 *b, __half *h, int n) {
    extern __shared__ float dyn[];
    __shared__ V<float, 4> v[2];
    auto f = [&](float x) { return x * n; };
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    dyn[i] = f(a[i]); v[0][1] = w[1];
    cg::this_thread_block().sync();
    if (i < n) { b[i].x = sum(dyn, 3) + v[0][1]; h[i] = (__half)a[i]; } else b[i] = make_float4(1, 2, 3, 4);
}";
    let whole = translate(text).unwrap();
    assert!(whole.errors.is_empty(), "{:?}", whole.errors);
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let words: Vec<&str> = text.split_inclusive(|c: char| !c.is_alphanumeric()).collect();
    for _ in 0..60 {
        let mut damaged = words.clone();
        match random(3) {
            0 => damaged.truncate(random(words.len())),
            1 => {
                let (a, b) = (random(words.len()), random(words.len()));
                damaged.swap(a, b);
            }
            _ => {
                let (a, b) = (random(words.len()), random(words.len()));
                damaged[a] = words[b];
            }
        }
        // Either a translation or an error, never a failure of the translator.
        if let Err(error) = translate(&damaged.concat()) {
            assert!(matches!(error, Error::Compile(_)), "{error}\n{}", damaged.concat());
        }
    }
}
