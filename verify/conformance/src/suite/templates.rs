//! C++ in MSL: templates, instantiation with `host_name`, `constexpr`, lambdas, control flow, pointers and references, type traits,
//! limits, argument buffers.

use elinvar::{Device, Grid, Source, bf16, f16};

use super::sheet::Sheet;
use super::{Case, CaseResult, expect_all, kernel, run};

pub(super) const CASES: &[Case] = &[
    Case { name: "templates::host_names", run: host_names, parts: Vec::new },
    Case { name: "templates::attributes", run: attributes, parts: Vec::new },
    Case { name: "templates::overloaded_kernels", run: overloaded_kernels, parts: Vec::new },
    Case { name: "templates::struct_of_arguments", run: struct_of_arguments, parts: Vec::new },
    Case { name: "templates::own_overloads", run: own_overloads, parts: Vec::new },
    Case { name: "templates::generic", run: |d| generic().run(d), parts: || generic().names() },
    Case {
        name: "templates::control_flow",
        run: |d| control_flow().run(d),
        parts: || control_flow().names(),
    },
    Case { name: "templates::pointers", run: |d| pointers().run(d), parts: || pointers().names() },
    Case { name: "templates::type_traits", run: |d| type_traits().run(d), parts: || type_traits().names() },
    Case { name: "templates::limits", run: |d| limits().run(d), parts: || limits().names() },
];

/// Several kernels from one template.
fn host_names(device: &Device) -> CaseResult {
    let text = "#include <metal_stdlib>
        using namespace metal;
        template <typename T, int N = 2>
        [[kernel]] void scale(device T* out [[buffer(0)]], constant T& by [[buffer(1)]],
                              uint i [[thread_position_in_grid]]) { out[i] = T(out[i] * by * T(N)); }
        template [[host_name(\"scale_float\")]] [[kernel]] void scale<float>(
            device float* out [[buffer(0)]], constant float& by [[buffer(1)]], uint i [[thread_position_in_grid]]);
        template [[host_name(\"scale_int_5\")]] kernel void scale<int, 5>(
            device int*, constant int&, uint);
        typedef decltype(scale<uint, 3>) scale_t;
        template [[host_name(\"scale_uint_3\")]] [[kernel]] scale_t scale<uint, 3>;
        #define instantiate(name, type) template [[host_name(#name)]] [[kernel]] void scale<type>( \\
            device type* out [[buffer(0)]], constant type& by [[buffer(1)]], uint i [[thread_position_in_grid]]);
        instantiate(scale_half, half)";
    let library = device.compile(Source::named("host_names.metal", text))?;
    let mut floats = device.buffer_with_data(&[1.0_f32, 2.0])?;
    run(device, &library.kernel("scale_float")?, Grid::threads(2), (&mut floats, 1.5_f32))?;
    expect_all(&floats.to_vec()?, |i| [3.0, 6.0][i]);
    let mut ints = device.buffer_with_data(&[1_i32, -2])?;
    run(device, &library.kernel("scale_int_5")?, Grid::threads(2), (&mut ints, 3_i32))?;
    expect_all(&ints.to_vec()?, |i| [15, -30][i]);
    let mut uints = device.buffer_with_data(&[1_u32, 2])?;
    run(device, &library.kernel("scale_uint_3")?, Grid::threads(2), (&mut uints, 2_u32))?;
    expect_all(&uints.to_vec()?, |i| [6, 12][i]);
    let mut halves = device.buffer_with_data(&[f16::ONE, f16::NEG_ONE])?;
    run(device, &library.kernel("scale_half")?, Grid::threads(2), (&mut halves, f16::from_f32(0.25)))?;
    expect_all(&halves.to_vec()?, |i| f16::from_f32([0.5, -0.5][i]));
    Ok(())
}

/// Attributes of parameters are those of the template; an instantiation's have no effect, as MLX's softmax requires.
fn attributes(device: &Device) -> CaseResult {
    let text = "#include <metal_stdlib>
        using namespace metal;
        template <typename T>
        [[kernel]] void rows(device T* out [[buffer(1)]], constant uint& width [[buffer(0)]],
                             uint row [[threadgroup_position_in_grid]], uint i [[thread_position_in_threadgroup]]) {
            out[row * width + i] = T(row * 10 + i); }
        template [[host_name(\"rows_int\")]] [[kernel]] void rows<int>(
            device int* out [[buffer(0)]], constant uint& width [[buffer(1)]],
            uint row [[thread_position_in_grid]], uint i [[thread_position_in_threadgroup]]);";
    let kernel = device.compile(Source::named("attributes.metal", text))?.kernel("rows_int")?;
    let found: Vec<_> = kernel.signature().args.iter().map(|a| (a.name.as_str(), a.index)).collect();
    if found != [("out", 1), ("width", 0)] {
        return Err(format!("{found:?}").into());
    }
    let mut out = device.buffer_with_data(&[-1_i32; 24])?;
    run(device, &kernel, Grid::threads(20).group(5), (&mut out, 6_u32))?;
    expect_all(&out.to_vec()?, |i| if i % 6 < 5 { (i / 6 * 10 + i % 6) as i32 } else { -1 });
    Ok(())
}

/// Kernel templates of one name: an instantiation by type, by parameters, and with deduced arguments selects as C++ does, and
/// takes names, indices and limits from the template that it selects.
fn overloaded_kernels(device: &Device) -> CaseResult {
    let text = "#include <metal_stdlib>
        using namespace metal;
        template <typename T, typename U, int N>
        [[kernel]] void f(device T* a [[buffer(3)]], device U* b [[buffer(1)]], constant int& n,
                          uint i [[thread_position_in_grid]]) { a[i] = T(b[i]) * N + n; }
        template <typename T, int N>
        [[kernel]] void f(device T* out [[buffer(2)]], uint i [[thread_position_in_grid]]) { out[i] += T(i * N); }
        template <typename T>
        [[kernel, max_total_threads_per_threadgroup(sizeof(T) * 16)]]
        void g(device T* x [[buffer(5)]], uint i [[thread_position_in_grid]]) { x[i] += 1; }
        template <typename T>
        [[kernel]] void g(device T* x, device T* y, uint i [[thread_position_in_grid]]) { x[i] = y[i] * 2; }
        template <typename T>
        [[kernel]] void g(device T* x, device int* y, uint i [[thread_position_in_grid]]) { x[i] = y[i] * 3; }
        template <> [[kernel]] void g<short>(device short* x, device int* y, uint i [[thread_position_in_grid]]) {
            x[i] = y[i] * 5;
        }
        namespace inner {
        template <typename T> kernel void g(device T* x, uint i [[thread_position_in_grid]]) { x[i] = 7; }
        template [[host_name(\"inner\")]] kernel void g<int>(device int*, uint);
        }
        template [[host_name(\"f3\")]] [[kernel]] decltype(f<float, short, 4>) f<float, short, 4>;
        template [[host_name(\"f2\")]] [[kernel]] decltype(f<float, 4>) f<float, 4>;
        template [[host_name(\"g1\")]] kernel void g<half>(device half*, uint);
        template [[host_name(\"g2\")]] kernel void g(device float*, device float*, uint);
        template [[host_name(\"g3\")]] kernel void g<float>(device float*, device int* y [[buffer(4)]], uint);
        template [[host_name(\"g4\")]] kernel void g(device short*, device int*, uint);
        template [[host_name(\"g5\")]] kernel void g(device int*, uint);";
    let library = device.compile(Source::named("overloaded_kernels.metal", text))?;
    let signature = |name: &str| -> Result<_, elinvar::Error> {
        let kernel = library.kernel(name)?;
        let arguments: Vec<_> = kernel.signature().args.iter().map(|a| (a.name.clone(), a.index)).collect();
        Ok((arguments, kernel.signature().max_threads_per_threadgroup))
    };
    let expected = [
        ("f3", &[("a", 3), ("b", 1), ("n", 0)][..], None),
        ("f2", &[("out", 2)], None),
        ("g1", &[("x", 5)], Some(32)),
        ("g2", &[("x", 0), ("y", 1)], None),
        ("g3", &[("x", 0), ("y", 4)], None),
        ("g4", &[("x", 0), ("y", 1)], None),
        ("g5", &[("x", 5)], Some(64)),
        ("inner", &[("x", 0)], None),
    ];
    for (name, arguments, limit) in expected {
        let arguments: Vec<_> = arguments.iter().map(|(name, index)| ((*name).to_owned(), *index)).collect();
        if signature(name)? != (arguments, limit) {
            return Err(format!("kernel `{name}`: {:?}", signature(name)?).into());
        }
    }
    let (floats, ints) = ([1.5_f32, -2.0, 0.25], [4_i32, -5, 6]);
    let mut out = device.buffer_with_data(&floats)?;
    let mut shorts = device.buffer_with_data(&[3_i16, -4, 5])?;
    run(device, &library.kernel("f3")?, Grid::threads(3), (&mut out, &mut shorts, 10_i32))?;
    expect_all(&out.to_vec()?, |i| [22.0, -6.0, 30.0][i]);
    run(device, &library.kernel("f2")?, Grid::threads(3), (&mut out,))?;
    expect_all(&out.to_vec()?, |i| [22.0, -2.0, 38.0][i]);
    let mut y = device.buffer_with_data(&floats)?;
    run(device, &library.kernel("g2")?, Grid::threads(3), (&mut out, &mut y))?;
    expect_all(&out.to_vec()?, |i| floats[i] * 2.0);
    let mut y = device.buffer_with_data(&ints)?;
    run(device, &library.kernel("g3")?, Grid::threads(3), (&mut out, &mut y))?;
    expect_all(&out.to_vec()?, |i| ints[i] as f32 * 3.0);
    let mut out = device.buffer_with_data(&[0_i16; 3])?;
    run(device, &library.kernel("g4")?, Grid::threads(3), (&mut out, &mut y))?;
    expect_all(&out.to_vec()?, |i| ints[i] as i16 * 5);
    let mut out = device.buffer_with_data(&[f16::ONE; 3])?;
    run(device, &library.kernel("g1")?, Grid::threads(3), (&mut out,))?;
    expect_all(&out.to_vec()?, |_| f16::from_f32(2.0));
    let mut out = device.buffer_with_data(&ints)?;
    run(device, &library.kernel("g5")?, Grid::threads(3), (&mut out,))?;
    expect_all(&out.to_vec()?, |i| ints[i] + 1);
    run(device, &library.kernel("inner")?, Grid::threads(3), (&mut out,))?;
    expect_all(&out.to_vec()?, |_| 7);
    Ok(())
}

/// A struct with scalars and arrays, by reference.
fn struct_of_arguments(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "arguments",
        "struct Arguments { uint count; float3 offset; packed_float3 scale; half factors[2]; };
        kernel void arguments(constant Arguments& a [[buffer(0)]], device float4* out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
            if (i < a.count) out[i] = float4((a.offset + float(i)) * a.scale, float(a.factors[i & 1u]));
        }",
    )?;
    let mut bytes = vec![0_u8; 48];
    bytes[..4].copy_from_slice(&3_u32.to_le_bytes());
    for (k, v) in [1.0_f32, 2.0, 3.0].into_iter().enumerate() {
        bytes[16 + 4 * k..][..4].copy_from_slice(&v.to_le_bytes());
        bytes[32 + 4 * k..][..4].copy_from_slice(&(v * 10.0).to_le_bytes());
    }
    bytes[44..46].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
    bytes[46..48].copy_from_slice(&f16::from_f32(-2.0).to_le_bytes());
    let mut out = device.buffer_with_data(&[[9.0_f32; 4]; 4])?;
    run(device, &kernel, Grid::threads(4), (elinvar::Arg::bytes(bytes), &mut out))?;
    expect_all(&out.to_vec()?, |i| {
        let at = |k: f32| (k + i as f32) * k * 10.0;
        if i < 3 { [at(1.0), at(2.0), at(3.0), [0.5, -2.0][i & 1]] } else { [9.0; 4] }
    });
    Ok(())
}

/// Overloads of library functions in a source, for one type. They are called for that type, and the library's functions for all others,
/// also from within the overloads and if both are simdgroup functions.
fn own_overloads(device: &Device) -> CaseResult {
    let library = device.compile(Source::named(
        "own_overloads.metal",
        "#include <metal_stdlib>
        using namespace metal;
        #define OWN(type) \\
            METAL_FUNC type max(type a, type b) { return a < b ? a : b; } \\
            METAL_FUNC type abs(type a) { return type(__metal_fabs(float(a), false)) + type(1); } \\
            METAL_FUNC type simd_max(type a) { return static_cast<type>(__metal_simd_max(float(a))); } \\
            METAL_FUNC type simd_xor(type a) { return static_cast<type>(__metal_simd_xor(float(a))); } \\
            METAL_FUNC type simd_product(type a) { return a * type(3); } \\
            METAL_FUNC type simd_shuffle_xor(type a, ushort mask) { return a + type(mask); }
        namespace metal { OWN(bfloat) }
        kernel void own(device const bfloat* a, device bfloat* out, uint i [[thread_position_in_grid]]) {
            out[4 * i] = max(a[i], bfloat(2));
            out[4 * i + 1] = metal::abs(a[i]);
            out[4 * i + 2] = simd_product(a[i]);
            out[4 * i + 3] = simd_shuffle_xor(a[i], 4);
        }
        kernel void library(device const float* a, device float* out, uint i [[thread_position_in_grid]]) {
            out[2 * i] = max(a[i], 2.0f);
            out[2 * i + 1] = metal::abs(a[i]);
        }
        kernel void exchanged(device uint* a, device float* b, uint i [[thread_position_in_grid]]) {
            a[i] = simd_xor(a[i]) + simd_max(a[i]) + simd_product(a[i]) + simd_shuffle_xor(a[i], 1);
            b[i] = simd_max(b[i]) + simd_product(b[i]) + simd_shuffle_xor(b[i], 1);
        }",
    ))?;
    let values = [-3.0_f32, 1.0, 5.0];
    let a = device.buffer_with_data(&values.map(bf16::from_f32))?;
    let mut out = device.buffer::<bf16>(12)?;
    run(device, &library.kernel("own")?, Grid::threads(3), (&a, &mut out))?;
    expect_all(&out.to_vec()?, |i| {
        let v = values[i / 4];
        bf16::from_f32([v.min(2.0), v.abs() + 1.0, v * 3.0, v + 4.0][i % 4])
    });
    let a = device.buffer_with_data(&values)?;
    let mut out = device.buffer::<f32>(6)?;
    run(device, &library.kernel("library")?, Grid::threads(3), (&a, &mut out))?;
    expect_all(&out.to_vec()?, |i| [values[i / 2].max(2.0), values[i / 2].abs()][i % 2]);
    Ok(())
}

const GENERIC: &str = "
template <typename T> struct Sum { T total = T(0); METAL_FUNC void add(T v) { total += v; } };
template <typename T, int N> struct Ring {
    T data[N];
    METAL_FUNC thread T& operator[](int i) thread { return data[((i % N) + N) % N]; }
    static constant constexpr int length = N;
};
template <typename T> METAL_FUNC T twice(T v) { return v + v; }
template <> METAL_FUNC int twice<int>(int v) { return v * 2 + 1; }
template <int N> METAL_FUNC int power(int v) { return v * power<N - 1>(v); }
template <> METAL_FUNC int power<0>(int) { return 1; }
template <typename F, typename T> METAL_FUNC T apply(F f, T v) { return f(v); }
struct Square { template <typename T> METAL_FUNC T operator()(T v) const { return v * v; } };
template <typename T, typename... R> METAL_FUNC T total(T first, R... rest) {
    if constexpr (sizeof...(rest) > 0) return first + total(rest...); else return first;
}
template <typename T> METAL_FUNC enable_if_t<is_integral_v<T>, int> kind(T) { return 1; }
template <typename T> METAL_FUNC enable_if_t<is_floating_point_v<T>, int> kind(T) { return 2; }
constexpr int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
struct Complex {
    float re, im;
    Complex(float re, float im) thread : re(re), im(im) {}
    friend Complex operator*(Complex a, Complex b) { return Complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); }
    explicit operator float() const thread { return re; }
};
enum class Mode : uint { add, multiply };
template <Mode M> METAL_FUNC int combine(int a, int b) { if constexpr (M == Mode::add) return a + b; else return a * b; }
using Pair = vec<int, 2>;
typedef array<int, 3> Triple;
namespace outer { int value() { return 4; } namespace inner { int value() { return outer::value() * 2; } } }
";

fn generic() -> Sheet {
    let n = [3_i32, -2, 7];
    Sheet::new("generic")
        .declare(GENERIC)
        .column("n", &n)
        .block("class template", "Sum<float> s; s.add(n); s.add(0.5);", "s.total", move |i| n[i] as f32 + 0.5)
        .block(
            "class with size",
            "Ring<short, 3> r; for (int k = 0; k < r.length; k++) r[k] = short(k * 10);",
            "int(r[n])",
            move |i| n[i].rem_euclid(3) * 10,
        )
        .line("twice(float(n))", move |i| 2.0 * n[i] as f32)
        .line("twice(n)", move |i| 2 * n[i] + 1)
        .line("power<3>(n)", move |i| n[i].pow(3))
        .line("apply(Square(), n)", move |i| n[i] * n[i])
        .block("lambda", "int k = 5; auto f = [=](int v) { return v * k; };", "apply(f, n)", move |i| {
            n[i] * 5
        })
        .block(
            "lambda by reference",
            "int k = 5; auto f = [&](int v) { k += v; }; f(n); f(1);",
            "k",
            move |i| n[i] + 6,
        )
        .line("total(n, 2, 3, 4)", move |i| n[i] + 9)
        .line("kind(n) * 10 + kind(1.0h)", |_| 12_i32)
        .block(
            "constexpr",
            "constexpr int f = factorial(5); int a[f / 40] = {n, 1, 2};",
            "a[0] + f",
            move |i| n[i] + 120,
        )
        .block("operators", "Complex z(n, 1); z = z * z;", "float2(float(z), z.im)", move |i| {
            [(n[i] * n[i] - 1) as f32, 2.0 * n[i] as f32]
        })
        .line("combine<Mode::add>(n, 4) - combine<Mode::multiply>(n, 2)", move |i| 4 - n[i])
        .block(
            "aliases",
            "Pair p = Pair(n, 2); Triple t = {{1, 2, n}};",
            "p.x + t[2] + int(t.size())",
            move |i| 2 * n[i] + 3,
        )
        .line("outer::inner::value() + outer::value()", |_| 12_i32)
        .block("auto and decltype", "auto a = half(n); decltype(a) b = a;", "b", move |i| {
            f16::from_f32(n[i] as f32)
        })
        .block("structured", "struct { int a, b; } s = {n, 2}; auto [x, y] = s;", "x * y", move |i| n[i] * 2)
        .block(
            "static_assert",
            "static_assert(sizeof(float4) == 16, \"\"); static_assert(factorial(3) == 6);",
            "n",
            move |i| n[i],
        )
}

fn control_flow() -> Sheet {
    let n: Vec<i32> = (0..40).collect();
    let collatz = |mut v: i32| {
        let mut steps = 0;
        while v > 1 {
            v = if v % 2 == 0 { v / 2 } else { 3 * v + 1 };
            steps += 1;
        }
        steps
    };
    let switched = |v: i32| match v % 6 {
        0 => 100,
        1 | 2 => 212,
        3 => 12,
        _ => 7,
    };
    let nested = |v: i32| {
        let mut count = 0;
        'outer: for a in 0..v {
            for b in 0..v {
                if a * b > 50 {
                    break 'outer;
                }
                if b > a {
                    break;
                }
                if (a + b) % 3 == 0 {
                    continue;
                }
                count += 1;
            }
        }
        count
    };
    Sheet::new("control_flow")
        .declare(
            "METAL_FUNC int early(int n) { for (int k = 0; k < 100; ++k) { if (k * k >= n) return k; } return -1; }",
        )
        .column("n", &n)
        .block("while", "int v = n, steps = 0; while (v > 1) { v = v % 2 == 0 ? v / 2 : 3 * v + 1; ++steps; }",
            "steps", move |i| collatz(i as i32))
        .block("switch", "int r = 0; switch (n % 6) { case 0: r = 100; break; case 1: case 2: r = 200; \
                 case 3: r += 12; break; default: r = 7; }", "r", move |i| switched(i as i32))
        .block("do while", "int v = n, r = 0; do { r += v % 10; v /= 10; } while (v != 0);", "r", |i| (i % 10 + i / 10) as i32)
        .block("nested with break and continue",
            "int count = 0; bool done = false; for (int a = 0; a < n && !done; ++a) for (int b = 0; b < n; ++b) { \
                 if (a * b > 50) { done = true; break; } if (b > a) break; if ((a + b) % 3 == 0) continue; ++count; }",
            "count", move |i| nested(i as i32))
        .line("early(n)", |i| (0..).find(|k| k * k >= i as i32).unwrap_or(-1))
        .line("(n > 20 ? n > 30 ? 3 : 2 : n > 10 ? 1 : 0)", |i| {
            if i > 30 { 3 } else if i > 20 { 2 } else { i32::from(i > 10) }
        })
        .block("comma", "int a = 1, b = (a += n, a * 2);", "b", |i| 2 * (i as i32 + 1))
        .block("shadowing", "int k = n; { int k = 5; k += n; } for (int k = 0; k < 3; ++k) {} ", "k", |i| i as i32)
        .block("short circuit", "int k = 0; bool t = n > 5 && ++k > 0; t = t || (k += 10) > 0;", "k", |i| {
            if i > 5 { 1 } else { 10 }
        })
        .block("if with initializer", "int r; if (int h = n / 2; h > 4) r = h; else r = -h;", "r", |i| {
            let h = i as i32 / 2;
            if h > 4 { h } else { -h }
        })
        .block("private array", "int a[8]; for (int k = 0; k < 8; ++k) a[k] = k * n; int s = 0; for (int v : a) s += v;",
            "s + a[n & 7]", |i| (28 * i + (i & 7) * i) as i32)
        .block("loop from the end", "uint r = 0; for (int k = n; k --> 0;) r = r * 3u + uint(k);", "r", |i| {
            (0..i as u32).rev().fold(0_u32, |r, k| r.wrapping_mul(3).wrapping_add(k))
        })
        .block("unrolled", "int s = 0;\n#pragma unroll\nfor (int k = 0; k < 4; ++k) s += n >> k;\n", "s", |i| {
            (0..4).map(|k| i as i32 >> k).sum::<i32>()
        })
}

fn pointers() -> Sheet {
    let n: Vec<i32> = (0..12).collect();
    Sheet::new("pointers")
        .declare(
            "METAL_FUNC void swap_values(thread int& a, thread int& b) { int t = a; a = b; b = t; }
             METAL_FUNC int sum(thread const int* p, int n) { int s = 0; while (n-- > 0) s += *p++; return s; }
             struct Node { int value; thread Node* next; };
             METAL_FUNC thread int& pick(thread int& a, thread int& b, bool second) { return second ? b : a; }
             struct Wide { int a; int b[3]; METAL_FUNC int get(int k) const thread { return k == 0 ? this->a : b[k - 1]; } };",
        )
        .column("n", &n)
        .block("references", "int a = n, b = 100; swap_values(a, b);", "a - b", |i| 100 - i as i32)
        .block("a pointer that moves", "int a[5] = {1, n, 3, 4, 5};", "sum(a + 1, 3)", |i| i as i32 + 7)
        .block("pointer to pointer", "int a = n, b = -n; thread int* p[2] = {&a, &b}; thread int** q = p; \
                *q[n & 1] += 50;", "a * 1000 + b", |i| {
            let (mut a, mut b) = (i as i32, -(i as i32));
            if i & 1 == 0 { a += 50 } else { b += 50 }
            a * 1000 + b
        })
        .block("linked nodes", "Node c = {n, nullptr}, b = {2, &c}, a = {1, &b}; int s = 0; \
                for (thread Node* p = &a; p != nullptr; p = p->next) s = s * 10 + p->value;", "s", |i| 120 + i as i32)
        .block("a reference returned", "int a = 1, b = 2; pick(a, b, n > 5) = n;", "a * 100 + b", |i| {
            if i > 5 { 100 + i as i32 } else { i as i32 * 100 + 2 }
        })
        .block("a chosen pointer", "int a = 3, b = 4; thread const int* p = n > 5 ? &a : &b;", "*p * n", |i| {
            i as i32 * if i > 5 { 3 } else { 4 }
        })
        .block("member functions", "Wide w = {n, {1, 2, 3}};", "w.get(n & 3)", |i| {
            if i & 3 == 0 { i as i32 } else { (i & 3) as i32 }
        })
        .block("difference", "int a[10]; thread int* p = &a[9] - n / 2;", "long(p - a)", |i| 9 - i as i64 / 2)
        .block("a copied struct", "Wide w = {1, {2, 3, 4}}; Wide x = w; x.b[n % 3] = 9;",
            "w.b[n % 3] * 10 + x.b[n % 3]", |i| (i % 3 + 2) as i32 * 10 + 9)
        .block("array by reference", "int a[2][3] = {{1, 2, 3}, {4, 5, n}}; thread int (&r)[3] = a[1];", "r[2] + r[0]", |i| {
            i as i32 + 4
        })
}

fn type_traits() -> Sheet {
    let mut sheet = Sheet::new("type_traits")
        .declare("enum class E { a }; struct S { int x; }; union U { int x; }; struct D : S {};");
    let facts: [(&str, bool); 40] = [
        ("is_same_v<float, float>", true),
        ("is_same_v<uint, int>", false),
        ("is_same<half, bfloat>::value", false),
        ("is_same_v<vec<float, 4>, float4>", true),
        ("is_same_v<packed_float3, float3>", false),
        ("is_same_v<decltype(1.0h), half>", true),
        ("is_same_v<decltype(2.0), float>", true),
        ("is_same_v<decltype(1u), uint>", true),
        ("is_same_v<size_t, ulong>", true),
        ("is_integral_v<char>", true),
        ("is_integral_v<bool>", true),
        ("is_integral_v<half>", false),
        ("is_floating_point_v<bfloat>", true),
        ("is_floating_point<const half>::value", true),
        ("is_floating_point_v<int>", false),
        ("is_arithmetic_v<bfloat>", true),
        ("is_arithmetic_v<S>", false),
        ("is_signed_v<short>", true),
        ("is_unsigned_v<ulong>", true),
        ("is_enum_v<E>", true),
        ("is_class_v<S>", true),
        ("is_union_v<U>", true),
        ("is_pointer_v<device float*>", true),
        ("is_reference_v<thread int&>", true),
        ("is_array_v<int[3]>", true),
        ("is_const_v<const int>", true),
        ("is_void_v<void>", true),
        ("is_base_of_v<S, D>", true),
        ("is_convertible_v<int, float>", true),
        ("is_convertible_v<S, int>", false),
        ("is_same_v<conditional_t<true, int, float>, int>", true),
        ("is_same_v<conditional<false, int, float>::type, float>", true),
        ("is_same_v<make_unsigned_t<short>, ushort>", true),
        ("is_same_v<remove_cv_t<const volatile int>, int>", true),
        ("is_same_v<remove_all_extents_t<int[2][3]>, int>", true),
        ("is_same_v<add_cv_t<int>, const volatile int>", true),
        ("is_lvalue_reference_v<thread int&> && is_rvalue_reference_v<int&&>", true),
        ("is_function_v<int(int)> && !is_function_v<int>", true),
        ("is_same_v<remove_reference_t<thread int&>, int>", true),
        ("integral_constant<int, 3>::value == 3 && true_type::value && !false_type()", true),
    ];
    for (text, expected) in facts {
        sheet = sheet.line(&format!("bool({text})"), move |_| expected);
    }
    sheet
}

fn limits() -> Sheet {
    let mut sheet = Sheet::new("limits");
    macro_rules! integers {
        ($($host:ty),*) => {$({
            let ty = <$host as super::sheet::Value>::msl();
            sheet = sheet
                .line(&format!("numeric_limits<{ty}>::max()"), |_| <$host>::MAX)
                .line(&format!("numeric_limits<{ty}>::min()"), |_| <$host>::MIN)
                .line(&format!("numeric_limits<{ty}>::lowest()"), |_| <$host>::MIN)
                .line(&format!("numeric_limits<{ty}>::digits + 0"), |_| {
                    (<$host>::BITS - u32::from(<$host>::MIN != 0)) as i32
                });
        })*};
    }
    integers!(i8, u8, i16, u16, i32, u32, i64, u64);
    macro_rules! floats {
        ($($host:ty, $smallest:expr);*) => {$({
            let ty = <$host as super::sheet::Value>::msl();
            sheet = sheet
                .line(&format!("numeric_limits<{ty}>::max()"), |_| <$host>::MAX)
                .line(&format!("numeric_limits<{ty}>::lowest()"), |_| <$host>::MIN)
                .line(&format!("numeric_limits<{ty}>::min()"), |_| <$host>::MIN_POSITIVE)
                .line(&format!("numeric_limits<{ty}>::epsilon()"), |_| <$host>::EPSILON)
                .line(&format!("numeric_limits<{ty}>::infinity()"), |_| <$host>::INFINITY)
                .line(&format!("numeric_limits<{ty}>::quiet_NaN()"), |_| <$host>::NAN)
                .line(&format!("numeric_limits<{ty}>::denorm_min()"), |_| <$host>::from_bits($smallest))
                .line(&format!("numeric_limits<{ty}>::digits + 0"), |_| <$host>::MANTISSA_DIGITS as i32)
                .line(&format!("numeric_limits<{ty}>::max_exponent + 0"), |_| <$host>::MAX_EXP as i32);
        })*};
    }
    floats!(f32, 1; f16, 1; bf16, 1);
    sheet
        .line("FLT_MAX + 0", |_| f32::MAX)
        .line("INT_MIN + 0", |_| i32::MIN)
        .line("HALF_MAX", |_| f16::MAX)
        .line("UINT_MAX + 0u", |_| u32::MAX)
        .line("as_type<uint>(float(INFINITY))", |_| 0x7f80_0000_u32)
        .line("isnan(NAN)", |_| true)
        .line("M_PI_F + 0", |_| std::f32::consts::PI)
}
