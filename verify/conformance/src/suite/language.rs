//! Forms of declarations that published sources use.

use super::sheet::{Sheet, sheets};

sheets!("language": constructors);

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
