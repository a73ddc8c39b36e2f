//! Matrices of every shape: construction, columns, products, transposition, determinants. Elements are small integers, so every result is
//! exact in any order of additions.

use elinvar::f16;

use super::sheet::{Columns, Sheet, Value, sheets};

sheets!("matrices": shapes_of_two, shapes_of_three, shapes_of_four, products_into_two, products_into_three,
    products_into_four, determinants, of_half, writing, braces);

const X: [f32; 3] = [2.0, -1.0, 5.0];
const Y: [f32; 3] = [3.0, 4.0, -7.0];

/// Element in column c and row r of the matrix for row i of the sheet.
fn element(i: usize, c: usize, r: usize, seed: usize) -> f32 {
    X[i] * (c + 1) as f32 - Y[i] * (r + seed) as f32
}

fn matrix<const C: usize, const R: usize>(i: usize, seed: usize) -> Columns<f32, C, R> {
    Columns(std::array::from_fn(|c| std::array::from_fn(|r| element(i, c, r, seed))))
}

fn element_text(c: usize, r: usize, seed: usize) -> String {
    format!("x * {} - y * {}", c + 1, r + seed)
}

fn text(columns: usize, rows: usize, seed: usize) -> String {
    let all: Vec<String> = (0..columns * rows).map(|k| element_text(k / rows, k % rows, seed)).collect();
    format!("float{columns}x{rows}({})", all.join(", "))
}

fn sheet(name: &'static str) -> Sheet {
    Sheet::new(name).column("x", &X).column("y", &Y)
}

fn shape<const C: usize, const R: usize>(sheet: Sheet) -> Sheet
where
    [f32; R]: Value,
    [f32; C]: Value,
{
    let ty = format!("float{C}x{R}");
    let (m, n) = (text(C, R, 0), text(C, R, 2));
    let columns: Vec<String> = (0..C)
        .map(|c| {
            format!("float{R}({})", (0..R).map(|r| element_text(c, r, 0)).collect::<Vec<_>>().join(", "))
        })
        .collect();
    let each = |f: fn(f32, f32) -> f32| {
        move |i: usize| -> Columns<f32, C, R> {
            Columns(std::array::from_fn(|c| {
                std::array::from_fn(|r| f(element(i, c, r, 0), element(i, c, r, 2)))
            }))
        }
    };
    sheet
        .line(&m, |i| matrix::<C, R>(i, 0))
        .line(&format!("{ty}({})", columns.join(", ")), |i| matrix::<C, R>(i, 0))
        .block(
            &format!("{ty} of a list of columns"),
            &format!("{ty} m = {{{}}};", columns.join(", ")),
            "m",
            |i| matrix::<C, R>(i, 0),
        )
        .line(&format!("{ty}(x)"), |i| {
            Columns::<f32, C, R>(std::array::from_fn(|c| {
                std::array::from_fn(|r| if c == r { X[i] } else { 0.0 })
            }))
        })
        .line(&format!("{ty}(half{C}x{R}({m}))"), |i| matrix::<C, R>(i, 0))
        .line(&format!("{m}[1]"), |i| matrix::<C, R>(i, 0).0[1])
        .line(&format!("{m}[{C} - 1][0]"), |i| element(i, C - 1, 0, 0))
        .line(&format!("{m} + {n}"), each(|a, b| a + b))
        .line(&format!("{m} - {n}"), each(|a, b| a - b))
        .line(&format!("-{m}"), each(|a, _| -a))
        .line(&format!("{m} * 2"), each(|a, _| a * 2.0))
        .line(&format!("0.5f * {m}"), each(|a, _| a * 0.5))
        .block(&format!("{ty} compound"), &format!("{ty} m = {m}; m += {n}; m *= 3; m -= {n};"), "m", {
            each(|a, b| (a + b) * 3.0 - b)
        })
        .line(&format!("transpose({m})"), |i| {
            Columns::<f32, R, C>(std::array::from_fn(|r| std::array::from_fn(|c| element(i, c, r, 0))))
        })
        .block(
            &format!("{ty} * vector"),
            &format!("float{C} v = x; v.y = y;"),
            &format!("{m} * v"),
            |i| -> [f32; R] {
                std::array::from_fn(|r| {
                    (0..C).map(|c| element(i, c, r, 0) * if c == 1 { Y[i] } else { X[i] }).sum()
                })
            },
        )
        .block(
            &format!("vector * {ty}"),
            &format!("float{R} v = y; v.x = x;"),
            &format!("v * {m}"),
            |i| -> [f32; C] {
                std::array::from_fn(|c| {
                    (0..R).map(|r| element(i, c, r, 0) * if r == 0 { X[i] } else { Y[i] }).sum()
                })
            },
        )
}

fn shapes_of_two() -> Sheet {
    shape::<2, 4>(shape::<2, 3>(shape::<2, 2>(sheet("shapes_of_two"))))
}
fn shapes_of_three() -> Sheet {
    shape::<3, 4>(shape::<3, 3>(shape::<3, 2>(sheet("shapes_of_three"))))
}
fn shapes_of_four() -> Sheet {
    shape::<4, 4>(shape::<4, 3>(shape::<4, 2>(sheet("shapes_of_four"))))
}

fn product<const C: usize, const K: usize, const R: usize>(sheet: Sheet) -> Sheet {
    sheet.line(&format!("{} * {}", text(K, R, 1), text(C, K, 0)), |i| {
        Columns::<f32, C, R>(std::array::from_fn(|c| {
            std::array::from_fn(|r| (0..K).map(|k| element(i, k, r, 1) * element(i, c, k, 0)).sum())
        }))
    })
}

fn products<const R: usize>(mut sheet: Sheet) -> Sheet {
    sheet = product::<2, 2, R>(product::<3, 2, R>(product::<4, 2, R>(sheet)));
    sheet = product::<2, 3, R>(product::<3, 3, R>(product::<4, 3, R>(sheet)));
    product::<2, 4, R>(product::<3, 4, R>(product::<4, 4, R>(sheet)))
}

fn products_into_two() -> Sheet {
    products::<2>(sheet("products_into_two"))
}
fn products_into_three() -> Sheet {
    products::<3>(sheet("products_into_three"))
}
fn products_into_four() -> Sheet {
    products::<4>(sheet("products_into_four"))
}

/// Gaussian elimination in f64.
fn determinant<const N: usize>(mut m: [[f64; N]; N]) -> f64 {
    let mut result = 1.0;
    for k in 0..N {
        let Some(pivot) = (k..N).find(|p| m[*p][k] != 0.0) else { return 0.0 };
        if pivot != k {
            m.swap(pivot, k);
            result = -result;
        }
        result *= m[k][k];
        let pivot = m[k];
        for row in &mut m[k + 1..] {
            let by = row[k] / pivot[k];
            for (value, of_pivot) in row.iter_mut().zip(pivot) {
                *value -= by * of_pivot;
            }
        }
    }
    result
}

fn determinants() -> Sheet {
    fn at(i: usize, c: usize, r: usize) -> f64 {
        f64::from(((c * 5 + r * 3) % 7) as f32 + if c == r { X[i] } else { 0.0 })
    }
    fn text(n: usize) -> String {
        let all: Vec<String> = (0..n * n)
            .map(|k| {
                format!("{}{}", ((k / n) * 5 + (k % n) * 3) % 7, if k / n == k % n { " + x" } else { "" })
            })
            .collect();
        format!("float{n}x{n}({})", all.join(", "))
    }
    fn expected<const N: usize>(i: usize) -> f32 {
        determinant::<N>(std::array::from_fn(|c| std::array::from_fn(|r| at(i, c, r)))).round() as f32
    }
    sheet("determinants")
        .line(&format!("determinant({})", text(2)), expected::<2>)
        .line(&format!("determinant({})", text(3)), expected::<3>)
        .line(&format!("determinant({})", text(4)), expected::<4>)
        .line("determinant(half2x2(half(x), 2, 3, half(y)))", |i| f16::from_f32(X[i] * Y[i] - 6.0))
        .line("determinant(transpose(float3x3(x, 2, 3, 4, y, 6, 7, 8, 10)))", |i| {
            let (x, y) = (X[i], Y[i]);
            x * (y * 10.0 - 48.0) - 2.0 * (40.0 - 42.0) + 3.0 * (32.0 - 7.0 * y)
        })
}

fn of_half() -> Sheet {
    let h = |v: f32| f16::from_f32(v);
    sheet("of_half")
        .line("half2x2(half(x), 1, 2, half(y))", move |i| Columns([[h(X[i]), h(1.0)], [h(2.0), h(Y[i])]]))
        .line("half2x2(half(x), 1, 2, 3) * half2(half(y), 1)", move |i| [h(X[i] * Y[i] + 2.0), h(Y[i] + 3.0)])
        .line("half2(1, 2) * half2x3(half3(1), half3(2))[0].xy", move |_| [h(1.0), h(2.0)])
        .line("transpose(half2x3(half3(half(x)), half3(half(y))))", move |i| Columns([[h(X[i]), h(Y[i])]; 3]))
        .line("half3x2(half(x)) * half2x3(2)", move |i| {
            Columns([[h(X[i] * 2.0), h(0.0)], [h(0.0), h(X[i] * 2.0)]])
        })
}

fn writing() -> Sheet {
    sheet("writing")
        .declare("METAL_FUNC void change(thread float3x3& m, float by) { m[1] += by; m[2][0] = by; }")
        .block("a column", "float2x3 m(0); m[1] = float3(x, y, 1);", "m", |i| {
            Columns([[0.0; 3], [X[i], Y[i], 1.0]])
        })
        .block("an element", "float2x2 m(1); m[0][1] = x; m[1].x = y;", "m", |i| {
            Columns([[1.0, X[i]], [Y[i], 1.0]])
        })
        .block("by index", "float3x3 m(0); for (int k = 0; k < 3; ++k) m[k][2 - k] = x + k;", "m", |i| {
            Columns([[0.0, 0.0, X[i]], [0.0, X[i] + 1.0, 0.0], [X[i] + 2.0, 0.0, 0.0]])
        })
        .block("by reference", "float3x3 m(1); change(m, y);", "m", |i| {
            Columns([[1.0, 0.0, 0.0], [Y[i], 1.0 + Y[i], Y[i]], [Y[i], 0.0, 1.0]])
        })
        .block("columns", "float4x4 m(2); m.columns[3].xyz = float3(x, y, 0);", "m[3]", |i| {
            [X[i], Y[i], 0.0, 2.0]
        })
        .block("identity", "constexpr float2x2 m = float2x2(1);", "m * float2(x, y)", |i| [X[i], Y[i]])
}

/// Columns in braces: as scalars, as packed vectors, and mixed.
fn braces() -> Sheet {
    sheet("braces")
        .block("two columns", "float2x2 m = {{x, y}, {1, 2}};", "m", |i| Columns([[X[i], Y[i]], [1.0, 2.0]]))
        .block("short columns", "float2x3 m = {{x}, {y, 1}};", "m", |i| {
            Columns([[X[i], 0.0, 0.0], [Y[i], 1.0, 0.0]])
        })
        .block("three columns", "float3x2 m{{x, y}, float2(1), {2, 3}};", "m", |i| {
            Columns([[X[i], Y[i]], [1.0, 1.0], [2.0, 3.0]])
        })
        .block("four columns", "float4x2 m = float4x2({x, 1}, {y, 2}, {3, 4}, {5, 6});", "m", |i| {
            Columns([[X[i], 1.0], [Y[i], 2.0], [3.0, 4.0], [5.0, 6.0]])
        })
        .block("packed columns", "packed_float2 p(x, y); float2x2 m(p, packed_float2(1, 2));", "m", |i| {
            Columns([[X[i], Y[i]], [1.0, 2.0]])
        })
        .block(
            "mixed columns",
            "packed_float3 p(x, y, 1); float3x3 m = float3x3(p, {1, 2, 3}, float3(y));",
            "m",
            |i| Columns([[X[i], Y[i], 1.0], [1.0, 2.0, 3.0], [Y[i]; 3]]),
        )
        .block("scalars", "float2x2 m = {x, y, 1, 2};", "m", |i| Columns([[X[i], Y[i]], [1.0, 2.0]]))
        .block("nothing", "float2x2 m = {}; float2x2 n{};", "m + n", |_| Columns([[0.0_f32; 2]; 2]))
        .block("in an array", "float2x2 m[2] = {{{x, y}, {1, 2}}, float2x2(3)};", "m[0] + m[1]", |i| {
            Columns([[X[i] + 3.0, Y[i]], [1.0, 5.0]])
        })
        .block(
            "in a struct",
            "struct S { float2x2 m; float s; } s = {{{x, y}, {1, 2}}, 3};",
            "s.m * float2(1, s.s)",
            |i| [X[i] + 3.0, Y[i] + 6.0],
        )
}
