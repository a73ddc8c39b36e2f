//! Forms of declarations and of calls that published sources use.

use elinvar::{Device, Grid};

use super::sheet::Sheet;
use super::{Case, CaseResult, expect_all, kernel, run};

pub(super) const CASES: &[Case] = &[
    Case { name: "language::constructors", run: |d| constructors().run(d), parts: || constructors().names() },
    Case { name: "language::recursion", run: |d| recursion().run(d), parts: || recursion().names() },
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
    Sheet::new("recursion")
        .declare(DATA)
        .column("n", &n)
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
