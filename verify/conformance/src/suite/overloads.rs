//! Functions that are overloaded on address spaces, with bodies that tell which one was called.

use elinvar::{Arg, Device, Error, Grid, Source, Threadgroup};

use super::{CaseResult, expect_all, kernel, run};

cases!("overloads": functions, templates, members, const_objects, each_other, stored_pointers, barriers, unresolved);

/// Threads of a launch, in groups of 32.
const THREADS: usize = 70;

/// Runs kernel `k`, whose first argument is the result with `N` floats for each thread. Expects `expected` for each thread.
fn expect<const N: usize>(
    device: &Device,
    text: &str,
    others: Vec<Arg>,
    expected: impl Fn(usize) -> [f32; N],
) -> CaseResult {
    let kernel = kernel(device, "k", text)?;
    let mut out = device.buffer::<f32>(THREADS * N)?;
    let mut args: Vec<Arg> = vec![(&mut out).into()];
    args.extend(others);
    run(device, &kernel, Grid::threads(THREADS as u64).group(32), args)?;
    expect_all(&out.to_vec()?, |i| expected(i / N)[i % N]);
    Ok(())
}

/// Pointers and references; named by `typedef` and `auto`, and passed on by templates and lambdas.
fn functions(device: &Device) -> CaseResult {
    let text = "float f(device const float* p, uint i) { return p[i] + 1000; }
        float f(threadgroup const float* q, uint) { return q[1] + 2000; }
        float f(constant float* p, uint i) { return p[i] * 2 + 3000; }
        float f(thread const float* p, uint i) { return p[0] + 4000 + i; }
        float g(device float& a) { return a += 1; }
        float g(threadgroup float& a) { return a + 2; }
        float g(constant float& a) { return a + 3; }
        float g(thread float& a) { return a += 4; }
        float h(device float* a, constant float* b) { return 12; }
        float h(constant float* b, device float* a) { return 21; }
        float h(device float* a, device float* b) { return 11; }
        namespace inner { inline float n(threadgroup float (&a)[4]) { return a[0]; }
                          inline float n(thread float (&a)[4]) { return -a[0]; } }
        constant float TABLE[3] = {9, 8, 7};
        typedef device float* device_pointer;
        template <typename P> float generic(P p, uint i) { return f(p, i); }
        kernel void k(device float* out [[buffer(0)]], constant float* c [[buffer(1)]], device float* d [[buffer(2)]],
                      threadgroup float* dynamic [[threadgroup(0)]], uint i [[thread_position_in_grid]]) {
            threadgroup float shared[4];
            shared[0] = 5; shared[1] = 6; dynamic[1] = 7;
            float own[4] = {float(i), 1, 2, 3};
            device_pointer typed = d;
            auto deduced = typed;
            auto called = [&](thread const float* p) { return f(p, 1); };
            device float* o = out + i * 18;
            o[0] = f(deduced, i); o[1] = f(shared, i); o[2] = f(c, i); o[3] = f(own, 2); o[4] = f(TABLE, 2); o[5] = f(dynamic, 0);
            o[6] = generic(typed, i); o[7] = generic((threadgroup float*)shared, i); o[8] = generic(c, i); o[9] = called(own);
            o[10] = g(typed[i]); o[11] = g(dynamic[1]); o[12] = g(c[i]); o[13] = g(own[0]);
            o[14] = h(d, c); o[15] = h(c, d) + h(d, typed) * 100; o[16] = inner::n(shared); o[17] = inner::n(own);
        }";
    let c: Vec<f32> = (0..THREADS).map(|i| i as f32 * 0.25).collect();
    let d: Vec<f32> = (0..THREADS).map(|i| i as f32 * 8.0).collect();
    let (c, d) = (device.buffer_with_data(&c)?, device.buffer_with_data(&d)?);
    let mut d = d;
    expect::<18>(device, text, vec![(&c).into(), (&mut d).into(), Threadgroup::bytes(16).into()], |i| {
        let n = i as f32;
        [
            [n * 8.0 + 1000.0, 2006.0, n * 0.5 + 3000.0, n + 4002.0, 3014.0, 2007.0],
            [n * 8.0 + 1000.0, 2006.0, n * 0.5 + 3000.0, n + 4001.0, n * 8.0 + 1.0, 9.0],
            [n * 0.25 + 3.0, n + 4.0, 12.0, 1121.0, 5.0, -n - 4.0],
        ]
        .concat()
        .try_into()
        .expect("18 values")
    })?;
    expect_all(&d.to_vec()?, |i| i as f32 * 8.0 + 1.0);
    Ok(())
}

/// Function templates, with default arguments, arguments that are not deduced, and packs.
fn templates(device: &Device) -> CaseResult {
    let text = "template <typename T> T load(const device T* p, uint n = 1) { return p[n] + T(100); }
        template <typename T> T load(const threadgroup T* p, uint n = 1) { return p[n] + T(200); }
        template <typename T> T load(const thread T* p, uint n = 1) { T s = 0; for (uint k = 0; k < n; k++) s += p[k]; return s; }
        template <typename T> constexpr METAL_FUNC T load(constant T* p, uint n = 1) { return p[n] + T(400); }
        template <typename R, int N, typename T> R scaled(device T& a) { return R(a) * N; }
        template <typename R, int N, typename T> R scaled(thread T& a) { return R(a) * N * 10; }
        template <typename... A> float count(device float* a, A... rest) { return sizeof...(rest); }
        template <typename... A> float count(threadgroup float* a, A... rest) { return 10 + sizeof...(rest); }
        template <typename T, typename = enable_if_t<is_integral_v<T>>> float only(device T*) { return 1; }
        template <typename T, typename = enable_if_t<is_integral_v<T>>> float only(thread T*) { return 2; }
        kernel void k(device float* out [[buffer(0)]], constant float* c [[buffer(1)]], constant int* m [[buffer(2)]],
                      device int* v [[buffer(3)]], uint i [[thread_position_in_grid]]) {
            threadgroup float shared[2]; threadgroup int whole[2];
            shared[1] = 3; whole[1] = 4;
            int own[3] = {1, 2, int(i)};
            device float* o = out + i * 12;
            v[i] = int(i) * 3;
            o[0] = load(c); o[1] = load(c, 2); o[2] = load(shared); o[3] = load(m); o[4] = load(own, 3); o[5] = load(v + i, 0);
            o[6] = load<int>(whole); o[7] = scaled<float, 3>(v[i]); o[8] = scaled<float, 3>(own[2]);
            o[9] = count(out, 1, 2) + count(shared, 1.0f, 2, 3) * 100; o[10] = only(v); o[11] = only(own);
        }";
    let c = device.buffer_with_data(&[0.0_f32, 0.5, 0.25])?;
    let m = device.buffer_with_data(&[7_i32, 6])?;
    let mut v = device.buffer::<i32>(THREADS)?;
    expect(device, text, vec![(&c).into(), (&m).into(), (&mut v).into()], |i| {
        let n = i as f32;
        [400.5, 400.25, 203.0, 406.0, 3.0 + n, n * 3.0 + 100.0, 204.0, n * 9.0, n * 30.0, 1302.0, 1.0, 2.0]
    })
}

/// Member functions, operators and conversions, in classes and class templates, and defined outside of their class.
fn members(device: &Device) -> CaseResult {
    let text = "struct S {
            float v;
            float get(float a) const device { return v + a + 10; }
            float get(float a) const threadgroup { return v + a + 20; }
            float get(float a) const constant { return v + a + 30; }
            float get(float a) const { return v + a + 40; }
            float operator()(int) const device { return 1; }
            float operator()(int) const thread { return 2; }
            float operator[](int i) const threadgroup { return i; }
            float operator[](int i) const thread { return -i; }
            operator float() const device { return v * 2; }
            operator float() const thread { return v * 3; }
            float outside(int n) const device;
            float outside(int n) const thread;
        };
        float S::outside(int n) const thread { return v - n; }
        float S::outside(int n) const device { return v + n; }
        float operator+(device const S& a, float b) { return a.v + b; }
        float operator+(thread const S& a, float b) { return a.v - b; }
        template <typename T> struct Cell {
            T v;
            template <typename U> U as(U a) const device { return U(v) + a; }
            template <typename U> U as(U a) const thread { return U(v) - a; }
            T plain() const device;
            T plain() const thread;
        };
        template <typename T> T Cell<T>::plain() const device { return v + 1; }
        template <typename T> T Cell<T>::plain() const thread { return v + 2; }
        constant S KS = {5};
        kernel void k(device float* out [[buffer(0)]], constant S& c [[buffer(1)]], device S* d [[buffer(2)]],
                      device Cell<int>* cells [[buffer(3)]], uint i [[thread_position_in_grid]]) {
            threadgroup S shared;
            shared.v = 6;
            S own = {float(i)};
            Cell<int> cell = {int(i)};
            device float* o = out + i * 19;
            o[0] = d[i].get(1); o[1] = shared.get(2); o[2] = c.get(3); o[3] = own.get(4); o[4] = KS.get(5);
            o[5] = d[i](0); o[6] = own(0); o[7] = shared[3]; o[8] = own[3]; o[9] = float(d[i]); o[10] = float(own);
            o[11] = d[i].outside(1); o[12] = own.outside(1); o[13] = d[i] + 1.0f; o[14] = own + 1.0f;
            o[15] = cells[i].template as<float>(0.5f); o[16] = cell.template as<float>(0.5f);
            o[17] = cells[i].plain(); o[18] = cell.plain();
        }";
    let c = device.buffer_with_data(&[2.0_f32])?;
    let mut d = device.buffer_with_data(&(0..THREADS).map(|i| i as f32 * 4.0).collect::<Vec<_>>())?;
    let mut cells = device.buffer_with_data(&(0..THREADS).map(|i| i as i32 * 2).collect::<Vec<_>>())?;
    expect::<19>(device, text, vec![(&c).into(), (&mut d).into(), (&mut cells).into()], |i| {
        let n = i as f32;
        let first = [n * 4.0 + 11.0, 28.0, 35.0, n + 44.0, 40.0, 1.0, 2.0, 3.0, -3.0, n * 8.0, n * 3.0];
        let last =
            [n * 4.0 + 1.0, n - 1.0, n * 4.0 + 1.0, n - 1.0, n * 2.0 + 0.5, n - 0.5, n * 2.0 + 1.0, n + 2.0];
        [&first[..], &last[..]].concat().try_into().expect("19 values")
    })
}

/// Overloads of which one has `const`: C++ prefers another one for an object that is not const than Metal does.
fn const_objects(device: &Device) -> CaseResult {
    let text = "float f(threadgroup float* p) { return p[0] + 2; }
        float f(device const float* p) { return p[0] + 1; }
        template <typename T> const device T* next(const device T* p, int n = 2) { return p + n; }
        template <typename T> threadgroup T* next(threadgroup T* p, int n = 2) { return p + n + 1; }
        struct S {
            float v;
            float get() device { return v + 1; }
            float get() const threadgroup { return v + 2; }
            float get() const { return v + 3; }
            float get() const constant { return v + 4; }
        };
        float m(device float* a, threadgroup const float* b) { return 1; }
        float m(threadgroup const float* a, device const float* b) { return 2; }
        float m(threadgroup float* a, device float* b) { return 3; }
        kernel void k(device float* out [[buffer(0)]], constant S& c [[buffer(1)]], device S* d [[buffer(2)]],
                      device float* x [[buffer(3)]], uint i [[thread_position_in_grid]]) {
            threadgroup float shared[4]; threadgroup S s;
            for (int n = 0; n < 4; ++n) shared[n] = n * 10;
            s.v = 6;
            S own = {float(i)};
            device float* o = out + i * 12;
            o[0] = f(x + i); o[1] = f((const device float*)x); o[2] = f(shared);
            o[3] = *next(x + i); o[4] = *next(shared);
            o[5] = d[i].get(); o[6] = s.get(); o[7] = own.get(); o[8] = c.get();
            o[9] = m(x, shared); o[10] = m(shared, x); o[11] = m((threadgroup const float*)shared, x);
        }";
    let c = device.buffer_with_data(&[2.0_f32])?;
    let mut d = device.buffer_with_data(&(0..THREADS).map(|i| i as f32 * 4.0).collect::<Vec<_>>())?;
    let mut x = device.buffer_with_data(&(0..THREADS + 2).map(|i| i as f32 * 5.0).collect::<Vec<_>>())?;
    expect(device, text, vec![(&c).into(), (&mut d).into(), (&mut x).into()], |i| {
        let n = i as f32;
        let m = [1.0, 3.0, 2.0];
        [n * 5.0 + 1.0, 1.0, 2.0, n * 5.0 + 10.0, 30.0, n * 4.0 + 1.0, 8.0, n + 3.0, 6.0, m[0], m[1], m[2]]
    })
}

/// Overloads that call another one: that for device memory copies to the thread's, which is summed.
fn each_other(device: &Device) -> CaseResult {
    let text = "float total(device const float* p, int n);
        float total(thread const float* p, int n) { float s = 0; for (int k = 0; k < n; ++k) s += p[k]; return s; }
        float total(threadgroup const float* p, int n) { float t[4]; for (int k = 0; k < n; ++k) t[k] = p[k] * 3; return total(t, n); }
        float total(device const float* p, int n) {
            float t[4];
            for (int k = 0; k < 4; ++k) t[k] = k < n ? p[k] * 2 : 0;
            return total(t, n) + total(t, n - 1) * 1000;
        }
        template <int N> float deep(device const float* p) { float t[N]; for (int k = 0; k < N; ++k) t[k] = p[k]; return deep<N>(t) * 2; }
        template <int N> float deep(thread const float* p) { float s = 0; for (int k = 0; k < N; ++k) s += p[k]; return s; }
        kernel void k(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
            threadgroup float shared[2];
            shared[0] = 1; shared[1] = 2;
            device float* o = out + i * 3;
            o[0] = total(x + i, 3); o[1] = total(shared, 2);
            float own[3] = {x[i], 1, 2};
            o[2] = total(own, 3);
        }";
    let x = device.buffer_with_data(&(0..THREADS + 3).map(|i| i as f32).collect::<Vec<_>>())?;
    expect(device, text, vec![(&x).into()], |i| {
        let n = i as f32;
        [(n * 3.0 + 3.0) * 2.0 + (n * 2.0 + 1.0) * 2000.0, 9.0, n + 3.0]
    })
}

/// Pointers in structs, arrays and loops, of which the compiler knows what they point to.
fn stored_pointers(device: &Device) -> CaseResult {
    let text = "float f(device const float* p) { return p[0]; }
        float f(threadgroup const float* p) { return p[0] + 0.5f; }
        float f(thread const float* p) { return p[0] + 0.25f; }
        struct Both {
            const device float* a; const threadgroup float* b;
            float both() const { return f(a) * 10 + f(b); }
            thread Both& operator++() { ++a; ++b; return *this; }
        };
        struct Rows { const device float* row[4]; };
        kernel void k(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], constant uint& n [[buffer(2)]],
                      uint i [[thread_position_in_grid]]) {
            threadgroup float shared[8];
            for (int k = 0; k < 8; ++k) shared[k] = k * 100;
            Both both{x + i, shared};
            float s = 0;
            for (uint k = 0; k < n; ++k, ++both) s += both.both();
            Rows rows;
            for (int k = 0; k < 4; ++k) rows.row[k] = x + k;
            float own[2] = {float(i), float(n)};
            thread float* p = &own[0];
            if (i % 2) p = &own[1];
            device float* o = out + i * 3;
            o[0] = s; o[1] = f(rows.row[(i + n) % 4]); o[2] = f(p);
        }";
    let x = device.buffer_with_data(&(0..THREADS + 3).map(|i| i as f32).collect::<Vec<_>>())?;
    expect(device, text, vec![(&x).into(), 3_u32.into()], |i| {
        let n = i as f32;
        let both = |k: usize| (n + k as f32) * 10.0 + k as f32 * 100.0 + 0.5;
        [both(0) + both(1) + both(2), ((i + 3) % 4) as f32, if i % 2 == 1 { 3.25 } else { n + 0.25 }]
    })
}

/// Overloads with barriers and simdgroup functions.
fn barriers(device: &Device) -> CaseResult {
    let text = "template <typename T> T reduce(threadgroup T* p, uint lane) {
            for (uint s = 16; s > 0; s /= 2) { if (lane < s) p[lane] += p[lane + s]; threadgroup_barrier(mem_flags::mem_threadgroup); }
            return p[0];
        }
        template <typename T> T reduce(thread T* p, uint lane) { return simd_sum(*p) * 2; }
        kernel void k(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_threadgroup]]) {
            threadgroup float shared[32];
            shared[lane] = lane; for (uint k = lane + 6; k < 32; k += 6) shared[k] = k;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            float own = i;
            out[i * 2] = reduce(shared, lane); out[i * 2 + 1] = reduce(&own, lane);
        }";
    expect(device, text, Vec::new(), |i| {
        let group = i / 32;
        let lanes = if group == 2 { 64..70 } else { group * 32..group * 32 + 32 };
        let full = (0..32).sum::<usize>() as f32;
        let shared = if group < 2 { full } else { reduced_by_six() };
        [shared, lanes.sum::<usize>() as f32 * 2.0]
    })
}

/// What the six threads of the last group reduce their values to, and those that they store behind them.
fn reduced_by_six() -> f32 {
    let mut p: Vec<f32> = (0..32).map(|k| k as f32).collect();
    for s in [16, 8, 4, 2, 1] {
        for lane in 0..s.min(6) {
            p[lane] += p[lane + s];
        }
    }
    p[0]
}

/// A call for which the compiler does not know the address space is an error that names both functions.
fn unresolved(device: &Device) -> CaseResult {
    let text = "#include <metal_stdlib>\nusing namespace metal;\nstruct A { device const float* a; constant float* b; };\n\
        float f(device const float* p) { return 1; }\nfloat f(constant float* p) { return 2; }\n\
        kernel void k(device float* out [[buffer(0)]], constant A& a [[buffer(1)]]) { out[0] = f(a.a); }";
    let error = match device.compile(Source::named("a.metal", text)).and_then(|library| library.kernel("k")) {
        // Metal compiles the source itself.
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let Error::Compile(diagnostics) = &error else { return Err(error.into()) };
    let found = &diagnostics[0];
    assert_eq!((found.file.as_str(), found.line, found.column), ("a.metal", 4, 1), "{error}");
    assert!(found.message.contains("a.metal:5:1") && found.message.contains("kernel `k`"), "{error}");
    Ok(())
}
