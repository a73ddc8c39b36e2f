//! Forms of declarations and of calls that published sources use.

use elinvar::{Device, Grid};

use super::sheet::Sheet;
use super::{Case, CaseResult, expect_all, kernel, run};

pub(super) const CASES: &[Case] = &[
    Case { name: "language::constructors", run: |d| constructors().run(d), parts: || constructors().names() },
    Case { name: "language::recursion", run: |d| recursion().run(d), parts: || recursion().names() },
    Case { name: "language::traits", run: |d| traits().run(d), parts: || traits().names() },
    Case { name: "language::vectors", run: |d| vectors().run(d), parts: || vectors().names() },
    Case { name: "language::uniforms", run: |d| uniforms().run(d), parts: || uniforms().names() },
    Case { name: "language::macros", run: |d| macros().run(d), parts: || macros().names() },
    Case { name: "language::arrays", run: |d| arrays().run(d), parts: || arrays().names() },
    Case { name: "language::names", run: names, parts: Vec::new },
    Case { name: "language::async_copies", run: async_copies, parts: Vec::new },
    Case { name: "language::matrix_storage", run: matrix_storage, parts: Vec::new },
    Case { name: "language::program_values", run: program_values, parts: Vec::new },
    Case { name: "language::functions", run: |d| functions().run(d), parts: || functions().names() },
    Case { name: "language::threadgroup_variables", run: threadgroup_variables, parts: Vec::new },
    Case { name: "language::qualified_instantiations", run: qualified_instantiations, parts: Vec::new },
    Case { name: "language::recursive_members", run: recursive_members, parts: Vec::new },
];

/// Constructors and conversions overloaded on the address space of the object, with initializers.
fn constructors() -> Sheet {
    const DATA: &str = "
struct Base { int k; constexpr Base(int k) thread : k(k) {} constexpr Base(int k) constant : k(k) {} };
template <typename T> struct Cell : Base {
    T r;
    Cell() = default;
    METAL_FUNC Cell(T x) thread : Base(1), r(x) {}
    METAL_FUNC Cell(T x) threadgroup : Base(1), r(x) {}
    METAL_FUNC Cell(T x) device : Base(1), r(x) {}
    METAL_FUNC constexpr Cell(T x) constant : Base(1), r(x) {}
    explicit Cell(T x, T y) thread : Base{2}, r{x + y} {}
    explicit Cell(T x, T y) constant : Base{2}, r{x + y} {}
    operator T() const thread { return r; }
    operator T() const constant { return r; }
};
struct Complex { float re, im; constexpr Complex(float a) thread; constexpr Complex(float a) constant; };
constexpr Complex::Complex(float a) thread : re(a), im(0) {}
constexpr Complex::Complex(float a) constant : re(a), im(0) {}
constant Base KB(7);
constant Complex KC = Complex(4.0f);
";
    let n: Vec<u32> = (0..5).collect();
    Sheet::new("constructors")
        .declare(DATA)
        .column("n", &n)
        .line("float(Cell<float>(n)) + 0", |i| i as f32)
        .block("two", "Cell<int> c(n, 3);", "c.r * 10 + c.k", |i| (i as i32 + 3) * 10 + 2)
        .line("KB.k + Base(n).k", |i| 7 + i as i32)
        .line("KC.re + KC.im + Complex(n).re", |i| 4.0 + i as f32)
}

/// Recursion that becomes a loop, and recursion whose depth constants limit.
fn recursion() -> Sheet {
    const DATA: &str = "
int odd(int n);
int even(int n) { return n == 0 ? 1 : odd(n - 1); }
int odd(int n) { return n == 0 ? 0 : even(n - 1); }
int factorial(int n) { return n <= 1 ? 1 : n * factorial(n - 1); }
uint gcd(uint a, uint b) { return b == 0 ? a : gcd(b, a % b); }
int fib(int n) { return n <= 1 ? 1 : fib(n - 2) + fib(n - 1); }
int gray(int depth, int x) {
    if (depth == 0) return x;
    int a = gray(depth - 1, x * 2);
    return gray(depth - 1, a + 1) ^ a;
}
constant int LEFT[8] = {1, 3, 5, -1, 0, 7, 6, -1};
constant int RIGHT[8] = {2, 4, -1, 6, -1, -1, 1, 5};
int tree(constant int* left, constant int* right, int n, int depth) {
    if (n < 0 || depth > 5) return 0;
    return 1 + tree(left, right, left[n], depth + 1) * 2 + tree(left, right, right[n], depth + 1);
}
float outer(float x);
float inner(float x) {
    if (x < 0.5f) return x * 2;
    if (x >= 12.0f) return outer(x) + 1;
    return x * 4;
}
float outer(float x) {
    float size = abs(x);
    if (size < 12.0f) return inner(size) + 100;
    return x * 8;
}
template <int N> int sum(int x) { if (N == 0) return x; return x * N + sum<(N > 0 ? N - 1 : 0)>(x + 1); }
";
    fn gray(depth: i32, x: i32) -> i32 {
        if depth == 0 {
            return x;
        }
        let a = gray(depth - 1, x.wrapping_mul(2));
        gray(depth - 1, a.wrapping_add(1)) ^ a
    }
    fn tree(n: i32, depth: i32) -> i32 {
        const LEFT: [i32; 8] = [1, 3, 5, -1, 0, 7, 6, -1];
        const RIGHT: [i32; 8] = [2, 4, -1, 6, -1, -1, 1, 5];
        if n < 0 || depth > 5 {
            return 0;
        }
        1 + tree(LEFT[n as usize], depth + 1) * 2 + tree(RIGHT[n as usize], depth + 1)
    }
    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let n: Vec<u32> = (0..8).collect();
    let x = [-3.0_f32, 0.25, 0.5, 11.75, 12.0, 13.0, f32::INFINITY, -20.0];
    fn inner(x: f32) -> f32 {
        if x < 0.5 {
            x * 2.0
        } else if x >= 12.0 {
            outer(x) + 1.0
        } else {
            x * 4.0
        }
    }
    fn outer(x: f32) -> f32 {
        if x.abs() < 12.0 { inner(x.abs()) + 100.0 } else { x * 8.0 }
    }
    Sheet::new("recursion")
        .declare(DATA)
        .column("n", &n)
        .column("x", &x)
        .line("inner(x)", move |i| inner(x[i]))
        .line("outer(x)", move |i| outer(x[i]))
        .line("even(n)", |i| i32::from(i % 2 == 0))
        .line("factorial(n)", |i| (1..=i as i32).product::<i32>())
        .line("gcd(n * 6u, 42u)", |i| gcd(i as u32 * 6, 42))
        .line("fib(12) + int(n)", |i| 233 + i as i32)
        .line("gray(4, n)", |i| gray(4, i as i32))
        .line("tree(LEFT, RIGHT, n, 0)", |i| tree(i as i32, 0))
        .line("sum<3>(n)", |i| {
            let x = i as i32;
            x * 3 + (x + 1) * 2 + (x + 2) + (x + 3)
        })
}

/// An index over dimensions that wraps around, whose members call those of the next dimension and themselves.
fn recursive_members(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "wraps",
        "template <int D> struct Index {
            int dimensions; Index<D - 1> outer; long offset{0}; int at{0};
            Index(int dimensions) thread : dimensions(dimensions), outer(dimensions - 1) {}
            void next(constant int* shape, constant long* strides) thread {
                if (dimensions == 0) return;
                at++;
                offset += strides[dimensions - 1];
                if (at >= shape[dimensions - 1]) { at = 0; outer.next(shape, strides); offset = outer.offset; }
            }
            void next(int n, constant int* shape, constant long* strides) thread {
                if (dimensions == 0) return;
                at += n;
                offset += n * strides[dimensions - 1];
                if (at < shape[dimensions - 1]) return;
                int rest = at - shape[dimensions - 1];
                if (rest >= shape[dimensions - 1]) {
                    outer.next(1 + rest / shape[dimensions - 1], shape, strides);
                    rest = rest % shape[dimensions - 1];
                } else {
                    outer.next(shape, strides);
                }
                at = 0;
                offset = outer.offset;
                if (rest > 0) next(rest, shape, strides);
            }
        };
        template <> struct Index<0> {
            long offset{0};
            Index(int) thread {}
            void next(constant int*, constant long*) thread {}
            void next(int, constant int*, constant long*) thread {}
        };
        kernel void wraps(device long* out, constant int* shape, constant long* strides, constant int& dimensions,
                          uint i [[thread_position_in_grid]]) {
            Index<3> index(dimensions);
            index.next(int(i) * 7, shape, strides);
            for (int k = 0; k < 5; ++k) { index.next(3, shape, strides); out[i * 5 + k] = index.offset; }
        }",
    )?;
    let shape = device.buffer_with_data(&[3_i32, 4, 5])?;
    let strides = device.buffer_with_data(&[1000_i64, 40, 3])?;
    let mut out = device.buffer::<i64>(5 * 40)?;
    run(device, &kernel, Grid::threads(40), (&mut out, &shape, &strides, 3_i32))?;
    expect_all(&out.to_vec()?, |i| {
        let step = (i / 5 * 7 + (i % 5 + 1) * 3) as i64;
        step % 5 * 3 + step / 5 % 4 * 40 + step / 20 % 3 * 1000
    });
    Ok(())
}

/// Type traits, which apply to vectors as to their scalars, and traits that a source specializes or declares itself.
fn traits() -> Sheet {
    const DATA: &str = "
#pragma METAL internals : enable
namespace metal {
template <typename T> struct is_empty : bool_constant<__is_empty(T)> {};
template <typename... T> struct make_void { typedef void type; };
template <typename... T> using void_t = typename make_void<T...>::type;
template <class T, T v> struct is_integral<integral_constant<T, v>> : true_type {};
template <int v> struct is_integral<integral_constant<decltype(v), v>> : true_type {};
template <typename T> struct pointee {};
template <typename T> struct pointee<thread T*> { using type = remove_cv_t<T>; };
template <typename T> struct pointee<device T*> { using type = remove_cv_t<T>; };
template <typename T> struct pointee<constant T*> { using type = remove_cv_t<T>; };
template <typename T> struct pointee<threadgroup T*> { using type = remove_cv_t<T>; };
}
template <typename T> constexpr constant bool is_number = _disjunction<is_same<T, int>, is_floating_point<T>>::value;
template <typename T, typename = void> struct has_size { static constant constexpr int value = 0; };
template <typename T> struct has_size<T, void_t<decltype(T::extent)>> { static constant constexpr int value = T::extent; };
struct Sized { static constant constexpr int extent = 7; };
struct Empty {};
enum class Level : short { low, high };
#pragma METAL internals : disable
";
    let yes = |sheet: Sheet, text: &str| sheet.line(text, |_| true);
    let no = |sheet: Sheet, text: &str| sheet.line(text, |_| false);
    let mut sheet = Sheet::new("traits").declare(DATA);
    for text in [
        "is_number<int>",
        "is_number<float4>",
        "is_integral_v<int3>",
        "is_integral_v<integral_constant<short, 3>>",
        "is_integral<integral_constant<int, 3>>::value",
        "is_floating_point_v<half2>",
        "is_floating_point_v<const bfloat>",
        "is_floating_point<packed_float3>::value",
        "is_arithmetic_v<uchar4>",
        "is_signed_v<float2>",
        "is_unsigned_v<uint2>",
        "is_vector_v<bool3>",
        "is_scalar_v<device float*>",
        "is_scalar_v<Level>",
        "is_enum_v<Level>",
        "is_empty<Empty>::value",
        "(is_same_v<make_signed_t<uint3>, int3>)",
        "(is_same_v<make_unsigned_t<const char>, uchar>)",
        "(is_same_v<make_signed_t<float>, float>)",
        "(is_same_v<make_scalar_t<const half4>, half>)",
        "(is_same_v<underlying_type_t<Level>, short>)",
        "(is_same_v<pointee<device float*>::type, float>)",
        "(is_same_v<conditional_t<conjunction_v<is_same<int, int>, true_type>, int, half>, int>)",
        "(conjunction<true_type, is_class<Empty>>::value)",
        "negation<false_type>::value",
        "(is_base_of_v<true_type, is_same<int, int>>)",
        "(is_convertible_v<int, float>)",
    ] {
        sheet = yes(sheet, text);
    }
    for text in [
        "is_number<uint>",
        "is_scalar_v<float4>",
        "is_class_v<float4>",
        "is_integral_v<float4>",
        "is_vector_v<float>",
        "is_signed_v<uint2>",
        "is_empty<Sized>::value && is_empty<int>::value",
        "(disjunction_v<>)",
    ] {
        sheet = no(sheet, text);
    }
    sheet.line("has_size<Sized>::value * 10 + has_size<Empty>::value", |_| 70_i32)
}

/// Vectors that a source declares with the compiler's attribute.
fn vectors() -> Sheet {
    const DATA: &str = "
typedef float float8 __attribute__((ext_vector_type(8)));
typedef __attribute__((__ext_vector_type__(16))) unsigned int uint16v;
typedef float f4 __attribute__((ext_vector_type(4)));
using half5 = half __attribute__((ext_vector_type(5)));
template <typename T> struct lanes { static constant constexpr int value = 1; };
template <typename T, int N> struct lanes<T __attribute__((ext_vector_type(N)))> { static constant constexpr int value = N; };
template <typename T> uint bits(T v) { return as_type<uint>(v); }
template <typename T, uint N> metal::vec<uint, N> bits(metal::vec<T, N> v) { return as_type<metal::vec<uint, N>>(v); }
template <typename T, unsigned int N> T total(vec<T, N> v) { T s = 0; for (unsigned int k = 0; k < N; ++k) s += v[k]; return s; }
template <size_t M, typename T, ushort N> T scaled(array<T, M> a, vec<T, N> v) { return a[M - 1] * v[N - 1]; }
";
    let n: Vec<u32> = (0..6).collect();
    let ramp = |i: usize, k: usize| (i + k) as f32;
    Sheet::new("vectors")
        .declare(DATA)
        .column("n", &n)
        .line("lanes<float8>::value * 100 + lanes<f4>::value * 10 + lanes<int>::value", |_| 841_i32)
        .line("sizeof(float8) + sizeof(half5) * 100 + alignof(uint16v) * 10000", |_| 641_632_u64)
        .line("(is_same_v<f4, float4>)", |_| true)
        .line("bits(float3(n, 1, 2)) + bits(1.0f)", |i| {
            [i as f32, 1.0, 2.0].map(|v| v.to_bits().wrapping_add(1.0_f32.to_bits()))
        })
        .line("total(float4(n, 1, 2, 3)) + total(int2(n))", |i| i as f32 * 3.0 + 6.0)
        .line("scaled(array<int, 3>{1, 2, 3}, int2(5, n))", |i| 3 * i as i32)
        .block("parts", "float8 v; for (int k = 0; k < 8; ++k) v[k] = n + k; f4 a = v.hi; a += v.lo;", "a * 1.0f", move |i| {
            [0, 1, 2, 3].map(|k| ramp(i, k) + ramp(i, k + 4))
        })
        .block("assigned", "float8 v(1.0f); v.lo = float4(n); v.odd = float4(9); v.s6 = 5;", "v.hi + v.even", move |i| {
            let v = [i as f32, 9.0, i as f32, 9.0, 1.0, 9.0, 5.0, 9.0];
            [0, 1, 2, 3].map(|k| v[4 + k] + v[2 * k])
        })
        .block(
            "integers",
            "uint16v v = uint16v(n) << 2u; v.s3 += 7u; v = select(v, ~v, v > 20u) * 3u; uint s = 0; for (int k = 0; k < 16; ++k) s = s * 5u + v[k];",
            "s + 0u",
            |i| {
                let value = |k: usize| {
                    let v = ((i as u32) << 2) + if k == 3 { 7 } else { 0 };
                    (if v > 20 { !v } else { v }).wrapping_mul(3)
                };
                (0..16).fold(0_u32, |s, k| s.wrapping_mul(5).wrapping_add(value(k)))
            },
        )
        .block(
            "pieces",
            "half5 v(half2(n, 1), half(2), half2(3)); float8 w(float4(1, 2, 3, 4), float2(n), 5.0f, 6.0f); v = v + half5(w.s4);",
            "float(v[0] + v[1] * 2 + v[4]) + w.s3 + w.s7",
            |i| {
                let n = i as f32;
                (n + n) + (1.0 + n) * 2.0 + (3.0 + n) + 4.0 + 6.0
            },
        )
}

/// `uniform<T>`.
fn uniforms() -> Sheet {
    let n: Vec<u32> = (0..6).collect();
    let x: Vec<f32> = (0..6).map(|i| i as f32 * 0.5).collect();
    Sheet::new("uniforms")
        .declare("#include <metal_uniform>\nconstant float TABLE[4] = {1, 2, 4, 8};")
        .column("n", &n)
        .column("x", &x)
        .block(
            "product",
            "const metal::uniform<float> s = make_uniform(x) * make_uniform(4.0f);",
            "s + 1",
            |i| i as f32 * 2.0 + 1.0,
        )
        .block(
            "index",
            "metal::uniform<int> k = make_uniform(3); k -= 1; if (k < 3) k++;",
            "TABLE[k] * x",
            |i| 8.0 * i as f32 * 0.5,
        )
        .block(
            "loop",
            "uint s = 0; for (uniform<uint> k = make_uniform(0u); k < n; ++k) s += k * k;",
            "s + 0u",
            |i| (0..i as u32).map(|k| k * k).sum::<u32>(),
        )
        .block("vector", "uniform<float4> v = make_uniform(float4(x));", "v * x", |i| {
            [(i as f32 * 0.5).powi(2); 4]
        })
        .block(
            "types",
            "auto a = make_uniform(n) << make_uniform(1u); auto b = a + n;",
            "(is_same_v<decltype(b), uint> && is_same_v<decltype(a), uniform<uint>>)",
            |_| true,
        )
}

/// Macros that the compiler defines.
fn macros() -> Sheet {
    Sheet::new("macros")
        .line("__UINT32_MAX__ - 0u", |_| u32::MAX)
        .line("__INT_MAX__ - 0", |_| i32::MAX)
        .line("__LONG_MAX__ - 0l", |_| i64::MAX)
        .line("__UINT64_MAX__ - 0ul", |_| u64::MAX)
        .line("__FLT_MAX__ * 1", |_| f32::MAX)
        .line("__FLT_EPSILON__ * 1", |_| f32::EPSILON)
        .line("__CHAR_BIT__ * __SIZEOF_POINTER__", |_| 64_i32)
        .line("(__UINT16_TYPE__)70000", |_| 4464_u16)
        .line(
            "(__cplusplus >= 201402L && __cpp_if_constexpr && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)",
            |_| true,
        )
}

/// `array` and `array_ref`.
fn arrays() -> Sheet {
    const DATA: &str = "
constant array<int, 5> PRIMES = {2, 3, 5, 7, 11};
METAL_FUNC int sum(array_ref<int> list) {
    int s = 0;
    for (size_t k = 0; k < list.size(); ++k) s = s * 3 + list[k];
    return s;
}
";
    let n: Vec<u32> = (0..5).collect();
    let folded = |list: &[i32]| list.iter().fold(0, |s, v| s * 3 + v);
    Sheet::new("arrays")
        .declare(DATA)
        .column("n", &n)
        .line("PRIMES.front() * 100 + PRIMES.back() + PRIMES[n]", |i| 211 + [2, 3, 5, 7, 11][i])
        .line("PRIMES.size() + PRIMES.max_size()", |_| 10_u64)
        .line("sum(PRIMES)", move |_| folded(&[2, 3, 5, 7, 11]))
        .block(
            "part",
            "int a[4] = {int(n), 1, 2, 3};",
            "sum(array_ref<int>(a + 1, 3)) + sum(a) + sum(int(n))",
            move |i| folded(&[1, 2, 3]) + folded(&[i as i32, 1, 2, 3]) + i as i32,
        )
        .block("range", "int s = 0; for (int v : PRIMES) s = s * 2 + v;", "s + 0", |_| {
            [2, 3, 5, 7, 11].iter().fold(0, |s, v| s * 2 + v)
        })
        .block(
            "stored",
            "array<float2, 3> v; v[n % 3u] = float2(n); v.back() = float2(5);",
            "v.data()[n % 3u] * 2.0f",
            |i| [if i % 3 == 2 { 10.0_f32 } else { i as f32 * 2.0 }; 2],
        )
}

/// Names that are keywords elsewhere or are declared by the library of later versions, specifiers in other orders, and log messages.
fn names(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "names",
        "#include <metal_logging>
        namespace metal { constexpr constant metal::thread_scope thread_scope_system = static_cast<thread_scope>(3); }
        static constant constexpr const uint FIRST [[function_constant(3)]];
        constexpr static const constant float SECOND [[function_constant(4)]];
        constant uint CHOSEN = is_function_constant_defined(FIRST) ? FIRST : 40u;
        constant float FACTOR = is_function_constant_defined(SECOND) ? SECOND : 2.0f;
        constant float kernel[3] = {1, 2, 3};
        METAL_FUNC void add(device float* kernel, float by) { kernel[0] += by; }
        kernel void names(device float* out, uint i [[thread_position_in_grid]]) {
            metal::os_log_default.log(\"value %f\", out[i]);
            constexpr metal::os_log log(\"a\", \"b\");
            log.log_debug(\"%u\", i);
            add(out + i, kernel[i % 3u] * FACTOR + float(CHOSEN));
            atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, metal::thread_scope_system);
        }",
    )?;
    let mut out = device.buffer_with_data(&[0.5_f32; 7])?;
    run(device, &kernel, Grid::threads(7), (&mut out,))?;
    expect_all(&out.to_vec()?, |i| 0.5 + (i % 3 + 1) as f32 * 2.0 + 40.0);
    Ok(())
}

/// Copies by a simdgroup, declared with the labels of the compiler's intrinsics: tiles with padding, strides, edges, and both directions.
fn async_copies(device: &Device) -> CaseResult {
    const DATA: &str = "
struct _event_t;
thread _event_t* copy_1d(ulong, ulong, threadgroup void*, const device void*, ulong)
    __asm(\"air.simdgroup_async_copy_1d.p3i8.p1i8\");
thread _event_t* copy_1d(ulong, ulong, device void*, const threadgroup void*, ulong)
    __asm(\"air.simdgroup_async_copy_1d.p1i8.p3i8\");
thread _event_t* copy_2d(ulong size, ulong alignment, threadgroup void* target, ulong target_row, ulong, ulong2,
                         const device void* source, ulong, ulong, ulong2, long2, int)
    __asm(\"air.simdgroup_async_copy_2d.p3i8.p1i8\");
thread _event_t* copy_2d(ulong size, ulong alignment, device void* target, ulong target_row, ulong, ulong2,
                         const threadgroup void* source, ulong, ulong, ulong2, long2, int)
    __asm(\"\\01air.simdgroup_async_copy_2d.p1i8.p3i8\");
void wait_events(int, thread _event_t**) __asm(\"air.wait_simdgroup_events\");
namespace metal {
struct event {
    METAL_FUNC event() thread {}
    template <typename T> METAL_FUNC void copy(threadgroup T* to, ushort row, ushort2 tile, const device T* from, uint from_row,
                                               ushort2 from_tile, bool turned, int mode) thread {
        if (turned) { tile = tile.yx; from_tile = from_tile.yx; }
        e = copy_2d(sizeof(T), alignof(T), reinterpret_cast<threadgroup void*>(to), row, 1, ulong2(tile),
                    reinterpret_cast<const device void*>(from), from_row, 1, ulong2(from_tile), long2(0), mode);
    }
    METAL_FUNC static void wait(int count, thread event* events) {
        wait_events(count, reinterpret_cast<thread _event_t**>(events));
    }
private:
    thread _event_t* e;
};
}
template <typename T> [[kernel]] void tiles(device const T* in, device T* out, constant int& mode,
                                            ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup T block[12 * 10];
    if (simdgroup == 0) {
        event events[2];
        events[0].copy(block, 12, ushort2(12, 7), in, 50, ushort2(9, 5), false, mode);
        events[1].copy(block + 84, 12, ushort2(3, 12), in + 7, 50, ushort2(3, 10), true, mode);
        event::wait(2, events);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0) {
        thread _event_t* e = copy_1d(sizeof(T), alignof(T), (device void*)out, (const threadgroup void*)block, 120);
        wait_events(1, &e);
    } else {
        auto e = copy_2d(sizeof(T), alignof(T), (device void*)(out + 120), 7, 2, ulong2(3, 4), (const threadgroup void*)block, 12, 1,
                         ulong2(12, 10), long2(2, 1), 0);
        wait_events(1, &e);
    }
}
template [[host_name(\"floats\")]] [[kernel]] decltype(tiles<float>) tiles<float>;
template [[host_name(\"halves\")]] [[kernel]] decltype(tiles<half>) tiles<half>;
template [[host_name(\"vectors\")]] [[kernel]] decltype(tiles<float4>) tiles<float4>;
template [[host_name(\"bytes\")]] [[kernel]] decltype(tiles<uchar>) tiles<uchar>;
";
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{DATA}");
    let library = device.compile(elinvar::Source::named("async_copies.metal", text))?;
    // The source is 50 elements wide; elements are their index.
    let expected = |mode: i32| {
        let edge = |x: usize, y: usize, width: usize, height: usize, at: usize| {
            let inside = x < width && y < height;
            let nearest = at + y.min(height - 1) * 50 + x.min(width - 1);
            if inside || mode != 0 { nearest } else { 0 }
        };
        let mut block = [0; 120];
        for (y, x) in (0..7).flat_map(|y| (0..12).map(move |x| (y, x))) {
            block[y * 12 + x] = edge(x, y, 9, 5, 0);
        }
        for (y, x) in (0..3).flat_map(|y| (0..12).map(move |x| (y, x))) {
            block[84 + y * 12 + x] = edge(x, y, 10, 3, 7);
        }
        let mut out = block.to_vec();
        out.resize(160, 0);
        for (y, x) in (0..4).flat_map(|y| (0..3).map(move |x| (y, x))) {
            out[120 + y * 7 + x * 2] = block[(y + 1) * 12 + x + 2];
        }
        out
    };
    for mode in [0, 1] {
        let expected = expected(mode);
        macro_rules! check {
            ($kernel:literal, $of:expr) => {
                let mut input = device.buffer_with_data(&(0..600).map($of).collect::<Vec<_>>())?;
                let mut out = device.buffer_with_data(&[$of(0); 160])?;
                let launch = Grid::threads(64).group(64);
                run(device, &library.kernel($kernel)?, launch, (&mut input, &mut out, mode))?;
                expect_all(&out.to_vec()?, |i| $of(expected[i]));
            };
        }
        check!("floats", |i: usize| i as f32);
        check!("halves", |i: usize| elinvar::f16::from_f32(i as f32));
        check!("vectors", |i: usize| [i as f32, i as f32 * 2.0, 0.0, -(i as f32)]);
        check!("bytes", |i: usize| i as u8);
    }
    Ok(())
}

/// Matrices of a simdgroup whose storage the source declares, and accesses through pointers.
fn matrix_storage(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "storage",
        "#pragma METAL internals : enable
        namespace metal {
        template <typename T> struct held {
            typedef vec<T, 64> storage_type;
            storage_type t;
            METAL_FUNC thread vec<T, 2>* elements() thread { return reinterpret_cast<thread vec<T, 2>*>(&t); }
            METAL_FUNC held() thread = default;
            METAL_FUNC held(vec<T, 2> two) thread { *(elements()) = two; }
            METAL_FUNC static ushort2 place(ushort lane) {
                return ushort2((lane & 1) * 2 + (lane & 8) / 2, (lane & 16) / 4 + (lane & 6) / 2);
            }
            template <typename U> METAL_FUNC void load(const device U* from, uint row) {
                *(elements()) = vec<T, 2>(*(const device vec<U, 2>*)(from + row));
            }
            template <typename U> METAL_FUNC void store(device U* to) { *(device vec<U, 2>*)to = vec<U, 2>(*(elements())); }
            template <typename U, typename V> METAL_FUNC void multiply(held<U> a, held<V> b, bool accumulate = true) {
                if (!accumulate) *(elements()) = vec<T, 2>(0);
                t = __metal_simdgroup_matrix_8x8_multiply_accumulate(a.t, b.t, t, typename held<T>::storage_type());
            }
        };
        }
        #pragma METAL internals : disable
        kernel void storage(device const half* a, device const float* b, device float* c,
                            ushort lane [[thread_index_in_simdgroup]]) {
            ushort2 place = held<float>::place(lane);
            held<half> left[2];
            held<float> right[2], product;
            #pragma clang loop unroll(full)
            for (ushort k = 0; k < 2; ++k) {
                left[k].load(a + place.x + k * 8, place.y * 16);
                right[k].load(b + place.x + k * 64, place.y * 8);
            }
            #pragma clang loop unroll(full)
            for (ushort k = 0; k < 2; ++k) product.multiply(left[k], right[k], k > 0);
            product.store(c + place.x + place.y * 8);
        }",
    )?;
    let a: Vec<f32> = (0..128).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..128).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
    let left = device.buffer_with_data(&a.iter().map(|v| elinvar::f16::from_f32(*v)).collect::<Vec<_>>())?;
    let right = device.buffer_with_data(&b)?;
    let mut out = device.buffer::<f32>(64)?;
    run(device, &kernel, Grid::threads(32), (&left, &right, &mut out))?;
    expect_all(&out.to_vec()?, |i| (0..16).map(|k| a[i / 8 * 16 + k] * b[k * 8 + i % 8]).sum());
    Ok(())
}

/// Variables at program scope with the values of attributes, in functions and kernels, next to parameters of the same names.
fn program_values(device: &Device) -> CaseResult {
    let text = "#include <metal_stdlib>
        using namespace metal;
        uint thread_position_in_grid [[thread_position_in_grid]];
        const uint2 place [[thread_position_in_grid]];
        static const ushort3 group [[threadgroup_position_in_grid]];
        namespace inner { constant uint lane [[thread_index_in_simdgroup]]; }
        METAL_FUNC uint folded(uint2 p) { return p.x + p.y * 10u; }
        METAL_FUNC uint of_group() { return group.x * 1000u + uint(group.y) * 10000u; }
        kernel void line(device uint* out, constant uint& n) {
            if (thread_position_in_grid < n) out[thread_position_in_grid] = thread_position_in_grid * 2u + inner::lane;
        }
        kernel void plane(device uint* out, device float2* twice, uint2 thread_position_in_grid [[thread_position_in_grid]],
                          uint2 size [[threads_per_grid]]) {
            uint i = place.y * size.x + place.x;
            out[i] = folded(place) + folded(place.yx) * 100u + of_group() + folded(thread_position_in_grid * 0u);
            twice[i] = float2(place) * 2.0f + float2(place + 1u) + place[0];
        }";
    let library = device.compile(elinvar::Source::named("program_values.metal", text))?;
    let mut out = device.buffer::<u32>(70)?;
    run(device, &library.kernel("line")?, Grid::threads(70).group(64), (&mut out, 66_u32))?;
    expect_all(&out.to_vec()?, |i| if i < 66 { i as u32 * 2 + i as u32 % 32 } else { 0 });
    let mut out = device.buffer::<u32>(48)?;
    let mut twice = device.buffer::<[f32; 2]>(48)?;
    run(device, &library.kernel("plane")?, Grid::threads((8, 6)).group((4, 2)), (&mut out, &mut twice))?;
    expect_all(&out.to_vec()?, |i| {
        let (x, y) = (i as u32 % 8, i as u32 / 8);
        x + y * 10 + (y + x * 10) * 100 + x / 4 * 1000 + y / 2 * 10000
    });
    expect_all(&twice.to_vec()?, |i| {
        let (x, y) = ((i % 8) as f32, (i / 8) as f32);
        [x * 3.0 + 1.0 + x, y * 3.0 + 1.0 + x]
    });
    Ok(())
}

/// Pointers to functions that the compiler resolves, and functions that are visible outside of the source.
fn functions() -> Sheet {
    const DATA: &str = "
[[visible]] float twice(float x) { return 2 * x; }
[[visible]] float halved(float x) { return x / 2; }
[[stitchable]] float next(float x) { return x + 1; }
typedef float (*Unary)(float);
using Same = float(float);
METAL_FUNC float call(Unary f, float x) { return f(x); }
template <typename F> METAL_FUNC float apply(F f, float x) { return f(x); }
template <Unary F> METAL_FUNC float bound(float x) { return F(x); }
struct Operation { Unary f; float by; METAL_FUNC float operator()(float x) const { return f(x) * by; } };
";
    let x: Vec<f32> = (0..6).map(|i| i as f32 - 2.5).collect();
    let at = |i: usize| i as f32 - 2.5;
    Sheet::new("functions")
        .declare(DATA)
        .column("x", &x)
        .line("call(twice, x) + call(&halved, x)", move |i| at(i) * 2.5)
        .line("apply(next, x) + bound<twice>(x)", move |i| at(i) + 1.0 + at(i) * 2.0)
        .block("member", "Operation op{halved, 4}; thread Same* f = next;", "op(x) + f(x)", move |i| {
            at(i) * 2.0 + at(i) + 1.0
        })
        .block("lambda", "Unary f = [](float v) { return v * v; };", "f(x)", move |i| at(i) * at(i))
}

/// Every form in which a threadgroup variable is declared: a thread reads what its neighbour has written.
fn threadgroup_variables(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "shared",
        "template <typename T> struct Holder { typedef T type; };
        struct Pair { uint a, b; };
        kernel void shared(device uint* out, uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]]) {
            threadgroup __attribute__((aligned(16))) uint a[32];
            __attribute__((aligned(16))) threadgroup uint b[32];
            threadgroup uint c[32] __attribute__((aligned(16)));
            threadgroup struct { uint v[2]; } d[32];
            threadgroup struct Named { uint v; } e[32];
            threadgroup union { uint v; float f; } f[32];
            threadgroup struct Pair g[32];
            threadgroup typename Holder<uint>::type h[32];
            threadgroup decltype(i) k[32], only;
            threadgroup uint m [[maybe_unused]][32];
            alignas(16) threadgroup uint n[32];
            threadgroup array<uint, 32> o;
            a[l] = i; b[l] = i * 2u; c[l] = i * 3u; d[l].v[1] = i * 5u; e[l].v = i * 7u; f[l].v = i * 11u; g[l].b = i * 13u;
            h[l] = i * 17u; k[l] = i * 19u; m[l] = i * 23u; n[l] = i * 29u; o[l] = i * 31u;
            if (l == 5) only = i;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint p = l ^ 3u;
            out[i] = a[p] + b[p] + c[p] + d[p].v[1] + e[p].v + f[p].v + g[p].b + h[p] + k[p] + m[p] + n[p] + o[p] + only;
        }",
    )?;
    let mut out = device.buffer::<u32>(96)?;
    run(device, &kernel, Grid::threads(96).group(32), (&mut out,))?;
    let factors = [1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31].iter().sum::<u32>();
    expect_all(&out.to_vec()?, |i| (i as u32 ^ 3) * factors + (i as u32 / 32 * 32 + 5));
    Ok(())
}

/// Instantiations by names from the global namespace, and parameters with comments of many lines between them.
fn qualified_instantiations(device: &Device) -> CaseResult {
    let comment = "// of a parameter\n".repeat(12);
    let text = format!(
        "#include <metal_stdlib>
        namespace outer {{ namespace inner {{
        template <typename T, typename F>
        kernel void unary(device T* out {comment}, constant T* in [[buffer(2)]],
                          {comment} uint i [[thread_position_in_grid]]
                          {comment}) {{ F f; out[i] = f(in[i]); }}
        struct next {{ template <typename T> T operator()(const T x) {{ return x + T(1); }} }};
        }} }}
        template [[host_name(\"next_int\")]] kernel void ::outer::inner::unary<int, ::outer::inner::next>(
            device int*, constant int*, uint);
        template [[host_name(\"next_float\")]] [[kernel]] void outer::inner::unary<float, outer::inner::next>(
            device float*, constant float*, uint);"
    );
    let library = device.compile(elinvar::Source::named("qualified.metal", text))?;
    let kernel = library.kernel("next_int")?;
    let found: Vec<_> = kernel.signature().args.iter().map(|a| (a.name.as_str(), a.index)).collect();
    if found != [("out", 0), ("in", 2)] {
        return Err(format!("{found:?}").into());
    }
    let mut out = device.buffer::<i32>(5)?;
    let input = device.buffer_with_data(&[4, -1, 7, 0, 9])?;
    run(device, &kernel, Grid::threads(5), (&mut out, &input))?;
    expect_all(&out.to_vec()?, |i| [5, 0, 8, 1, 10][i]);
    let mut out = device.buffer::<f32>(2)?;
    let input = device.buffer_with_data(&[0.5_f32, -3.0])?;
    run(device, &library.kernel("next_float")?, Grid::threads(2), (&mut out, &input))?;
    expect_all(&out.to_vec()?, |i| [1.5, -2.0][i]);
    Ok(())
}
