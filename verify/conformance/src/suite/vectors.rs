//! Vectors and packed vectors: construction, swizzles, indexing, operators.

use super::sheet::{Sheet, Value, sheets};

sheets!("vectors": construction_2, construction_3, construction_4, braces, swizzles_xyzw, swizzles_rgba, assigned_swizzles,
    indexing, float_operators, integer_operators, narrow_integers, comparisons, packed,
    packed_construction, packed_types, element_types);

fn letters() -> Sheet {
    Sheet::new("letters")
        .column("a", &[1.5_f32, -2.0])
        .column("b", &[2.5_f32, 8.0])
        .column("c", &[3.5_f32, 0.25])
        .column("d", &[4.5_f32, -1e9])
        .column("v", &[[5.0_f32, 6.0, 7.0, 8.0], [-5.0, 0.5, 1e20, -0.0]])
}

const A: [f32; 2] = [1.5, -2.0];
const B: [f32; 2] = [2.5, 8.0];
const C: [f32; 2] = [3.5, 0.25];
const D: [f32; 2] = [4.5, -1e9];
const V: [[f32; 4]; 2] = [[5.0, 6.0, 7.0, 8.0], [-5.0, 0.5, 1e20, -0.0]];

/// All ways to compose `n` components of scalars and vectors that are taken from `a, b, c, d` in this order.
fn splits(n: usize) -> Vec<String> {
    fn go(from: usize, n: usize, parts: &mut Vec<String>, all: &mut Vec<String>) {
        if from == n {
            all.push(parts.join(", "));
            return;
        }
        for length in 1..=n - from {
            let letters: Vec<String> = "abcd"[from..from + length].chars().map(String::from).collect();
            let part = if length == 1 {
                letters[0].clone()
            } else {
                format!("float{length}({})", letters.join(", "))
            };
            parts.push(part);
            go(from + length, n, parts, all);
            parts.pop();
        }
    }
    let mut all = Vec::new();
    go(0, n, &mut Vec::new(), &mut all);
    all
}

fn construction<const N: usize>() -> Sheet
where
    [f32; N]: Value,
{
    let row = |i: usize| -> [f32; N] { std::array::from_fn(|k| [A, B, C, D][k][i]) };
    let mut sheet = letters();
    for arguments in splits(N) {
        sheet = sheet.line(&format!("float{N}({arguments})"), row);
        sheet = sheet.line(&format!("vec<float, {N}>({arguments})"), row);
        sheet =
            sheet.block(&format!("= {{{arguments}}}"), &format!("float{N} r = {{{arguments}}};"), "r", row);
    }
    sheet
        .line(&format!("float{N}(a)"), |i| [A[i]; N])
        .line(&format!("float{N}(3)"), |_| [3.0; N])
        .line(&format!("float{N}()"), |_| [0.0; N])
        .block("implicit from a scalar", &format!("float{N} r = a; r += 1;"), "r", |i| [A[i] + 1.0; N])
        .block("assigned scalar", &format!("float{N} r; r = b;"), "r", |i| [B[i]; N])
        .block("argument", &format!("float{N} r = min(float{N}(a), 2);"), "r", |i| [A[i].min(2.0); N])
}

fn construction_2() -> Sheet {
    construction::<2>()
}
fn construction_3() -> Sheet {
    construction::<3>()
}
fn construction_4() -> Sheet {
    construction::<4>()
}

fn braces() -> Sheet {
    letters()
        .declare("struct Pair { float2 first; half3 second; int n; };")
        .block("one of four", "float4 r = {a};", "r", |i| [A[i], 0.0, 0.0, 0.0])
        .block("two of three", "float3 r = {a, b};", "r", |i| [A[i], B[i], 0.0])
        .block("none", "float4 r = {};", "r", |_| [0.0_f32; 4])
        .block("integers", "int n = int(a); float2 r = {n, 7};", "r", |i| [(A[i] as i32) as f32, 7.0])
        .line("float3{a, b, c}", |i| [A[i], B[i], C[i]])
        .line("int4{1, 2}", |_| [1, 2, 0, 0])
        .block("a vector", "float4 r = {v};", "r", |i| V[i])
        .block(
            "in a struct",
            "Pair p = {{a, b}, {1, 2, 3}, 4};",
            "float3(p.first, float(p.second.z) + p.n)",
            |i| [A[i], B[i], 7.0],
        )
        .block("in an array", "float2 r[2] = {{a, b}, {c}};", "float4(r[0], r[1])", |i| {
            [A[i], B[i], C[i], 0.0]
        })
        .block("returned", "auto f = [](float x) -> float2 { return {x, 1}; };", "f(c)", |i| [C[i], 1.0])
}

/// All swizzles of a vector of four with one set of letters.
fn swizzles(letters: &'static str) -> Sheet {
    let mut sheet = self::letters();
    for length in 1..=4_usize {
        for code in 0..4_usize.pow(length as u32) {
            let picks: [usize; 4] = std::array::from_fn(|k| code >> (2 * k) & 3);
            let name: String = picks[..length].iter().map(|p| &letters[*p..=*p]).collect();
            let text = format!("v.{name}");
            sheet = match length {
                1 => sheet.line(&text, move |i| V[i][picks[0]]),
                2 => sheet.line(&text, move |i| [V[i][picks[0]], V[i][picks[1]]]),
                3 => sheet.line(&text, move |i| [V[i][picks[0]], V[i][picks[1]], V[i][picks[2]]]),
                _ => sheet.line(&text, move |i| picks.map(|p| V[i][p])),
            };
        }
    }
    sheet
}

fn swizzles_xyzw() -> Sheet {
    swizzles("xyzw")
}

fn swizzles_rgba() -> Sheet {
    swizzles("rgba")
}

/// All swizzles without repetition on the left-hand side of plain and compound assignments.
fn assigned_swizzles() -> Sheet {
    let mut sheet = letters();
    for letters in ["xyzw", "rgba"] {
        for length in 2..=4_usize {
            for code in 0..4_usize.pow(length as u32) {
                let picks: Vec<usize> = (0..length).map(|k| code >> (2 * k) & 3).collect();
                if (1..length).any(|k| picks[..k].contains(&picks[k])) {
                    continue;
                }
                let name: String = picks.iter().map(|p| &letters[*p..=*p]).collect();
                let from = ["xy", "xyz", "xyzw"][length - 2];
                let statements = format!("float4 r = v; r.{name} = float4(a, b, c, d).{from};");
                sheet = sheet.block(&format!("v.{name} = "), &statements, "r", move |i| {
                    let mut r = V[i];
                    for (k, p) in picks.iter().enumerate() {
                        r[*p] = [A, B, C, D][k][i];
                    }
                    r
                });
            }
        }
    }
    sheet
        .block("+= of two", "float4 r = v; r.zx += float2(a, b);", "r", |i| {
            [V[i][0] + B[i], V[i][1], V[i][2] + A[i], V[i][3]]
        })
        .block("*= of a scalar", "float3 r = v.xyz; r.xy *= 2;", "r", |i| {
            [V[i][0] * 2.0, V[i][1] * 2.0, V[i][2]]
        })
        .block("= a scalar", "float3 r = v.xyz; r.yz = a;", "r", |i| [V[i][0], A[i], A[i]])
        .block("exchange", "float2 r = v.xy; r.xy = r.yx;", "r", |i| [V[i][1], V[i][0]])
        .block("a component", "float4 r = v; r.g = a; r.w -= 1; r.z++;", "r", |i| {
            [V[i][0], A[i], V[i][2] + 1.0, V[i][3] - 1.0]
        })
        .line("v.wzyx.xy.y", |i| V[i][2])
        .line("(v + 1).yx", |i| [V[i][1] + 1.0, V[i][0] + 1.0])
        .line("v.xy[1]", |i| V[i][1])
}

fn indexing() -> Sheet {
    let n = [0_u32, 1, 2, 3, 5, 100];
    Sheet::new("indexing")
        .declare("METAL_FUNC void set(thread float& x, float y) { x = y; }")
        .column("n", &n)
        .block("dynamic read", "float4 v = {1, 2, 3, 4};", "v[n % 4u]", move |i| (n[i] % 4) as f32 + 1.0)
        .block("dynamic write", "int3 v = 9; v[n % 3u] = 5;", "v", move |i| {
            let mut v = [9_i32; 3];
            v[n[i] as usize % 3] = 5;
            v
        })
        .block(
            "in a loop",
            "half4 v; for (int k = 0; k < 4; k++) v[k] = half(k) * half(n);",
            "float4(v)",
            move |i| std::array::from_fn::<f32, 4, _>(|k| k as f32 * n[i] as f32),
        )
        .block("+= by index", "uint2 v = {1, 2}; v[n & 1] += n;", "v", move |i| {
            let mut v = [1, 2];
            v[n[i] as usize & 1] += n[i];
            v
        })
        .block("a reference", "float3 v = 0; set(v.y, 4); set(v[2], 5);", "v", |_| [0.0_f32, 4.0, 5.0])
        .block(
            "an array of vectors",
            "float3 v[5]; for (uint k = 0; k < 5u; ++k) v[k] = float3(k, n, 1); ",
            "v[n % 5u]",
            move |i| [(n[i] % 5) as f32, n[i] as f32, 1.0],
        )
        .block(
            "pointer to components",
            "float4 v = {1, 2, 3, 4}; thread float* p = (thread float*)&v;",
            "p[n & 3u]",
            move |i| (n[i] & 3) as f32 + 1.0,
        )
}

fn float_operators() -> Sheet {
    let sheet = letters()
        .line("v + float4(a, b, c, d)", |i| [V[i][0] + A[i], V[i][1] + B[i], V[i][2] + C[i], V[i][3] + D[i]])
        .line("v - a", |i| V[i].map(|v| v - A[i]))
        .line("a - v", |i| V[i].map(|v| A[i] - v))
        .line("2 * v.xyz", |i| [V[i][0] * 2.0, V[i][1] * 2.0, V[i][2] * 2.0])
        .line("v / b", |i| V[i].map(|v| v / B[i]))
        .line("1 / v.xy", |i| [1.0 / V[i][0], 1.0 / V[i][1]])
        .line("-v", |i| V[i].map(|v| -v))
        .line("+v", |i| V[i])
        .line("half2(v.xy) * 2.0h", |i| {
            [half::f16::from_f32(V[i][0] * 2.0), half::f16::from_f32(V[i][1] * 2.0)]
        })
        .line("bfloat2(v.xy) + bfloat(1)", |i| {
            [half::bf16::from_f32(V[i][0] + 1.0), half::bf16::from_f32(V[i][1] + 1.0)]
        });
    sheet
        .block("+=", "float4 r = v; r += a;", "r", |i| V[i].map(|v| v + A[i]))
        .block("-=", "float4 r = v; r -= r.wzyx;", "r", |i| {
            std::array::from_fn::<f32, 4, _>(|k| V[i][k] - V[i][3 - k])
        })
        .block("*=", "float4 r = v; r *= 0.5f;", "r", |i| V[i].map(|v| v * 0.5))
        .block("/=", "float4 r = v; r /= float4(2);", "r", |i| V[i].map(|v| v / 2.0))
        .block("++", "float4 w = v; float4 r = w++; ++w;", "w - r", |i| V[i].map(|v| v + 1.0 + 1.0 - v))
        .block("--", "float4 w = v; w.xy--; float2 r = --w.xy;", "r", |i| [V[i][0] - 2.0, V[i][1] - 2.0])
        .block("chained", "float2 p, q; p = q = v.xy + 1;", "p + q", |i| {
            [2.0 * (V[i][0] + 1.0), 2.0 * (V[i][1] + 1.0)]
        })
}

const X: [i32; 8] = [2, 1, -1, 5, -7, i32::MIN, i32::MAX, 123_456];
const Y: [i32; 8] = [1, 4, 3, -5, 33, -1, 2, 1000];

fn integer_operators() -> Sheet {
    let sheet = Sheet::new("integer_operators")
        .column("x", &X)
        .column("y", &Y)
        .declare("#define P int3(x, y, 9)\n#define Q int3(y, x, 4)");
    type Operator = (&'static str, fn(i32, i32) -> i32);
    let operators: [Operator; 10] = [
        ("+", i32::wrapping_add),
        ("-", i32::wrapping_sub),
        ("*", i32::wrapping_mul),
        ("/", i32::wrapping_div),
        ("%", i32::wrapping_rem),
        ("&", |a, b| a & b),
        ("|", |a, b| a | b),
        ("^", |a, b| a ^ b),
        ("<<", |a, b| a.wrapping_shl(b as u32)),
        (">>", |a, b| a.wrapping_shr(b as u32)),
    ];
    let mut sheet = sheet;
    for (name, f) in operators {
        sheet = sheet
            .line(&format!("P {name} Q"), move |i| [f(X[i], Y[i]), f(Y[i], X[i]), f(9, 4)])
            .line(&format!("P {name} y"), move |i| [f(X[i], Y[i]), f(Y[i], Y[i]), f(9, Y[i])])
            .line(&format!("x {name} Q"), move |i| [f(X[i], Y[i]), f(X[i], X[i]), f(X[i], 4)])
            .block(&format!("{name}="), &format!("int3 v = P; v {name}= Q;"), "v", move |i| {
                [f(X[i], Y[i]), f(Y[i], X[i]), f(9, 4)]
            });
    }
    sheet
        .line("~P", |i| [!X[i], !Y[i], !9])
        .line("-P", |i| [X[i].wrapping_neg(), Y[i].wrapping_neg(), -9])
        .line("!(P & 1)", |i| [X[i] & 1 == 0, Y[i] & 1 == 0, false])
        .line("uint2(P.xy) / uint2(Q.xy + 7)", |i| {
            let d = |a: i32, b: i32| (a as u32).checked_div(b.wrapping_add(7) as u32).unwrap_or(0);
            [d(X[i], Y[i]), d(Y[i], X[i])]
        })
        .line("uint2(P.xy) >> 3u", |i| [X[i] as u32 >> 3, Y[i] as u32 >> 3])
        .line("long2(P.xy) * 0x100000000l", |i| [i64::from(X[i]) << 32, i64::from(Y[i]) << 32])
}

/// Components narrower than int: results wrap, and shift counts are within the component's width.
fn narrow_integers() -> Sheet {
    let (x, y) = (|i: usize| X[i] as i8, |i: usize| Y[i] as i8);
    Sheet::new("narrow_integers")
        .column("x", &X)
        .column("y", &Y)
        .declare("#define P char2(char(x), char(y))\n#define U ushort2(ushort(x), ushort(y))")
        .line("P + P", move |i| [x(i).wrapping_mul(2), y(i).wrapping_mul(2)])
        .line("P * P.yx", move |i| [x(i).wrapping_mul(y(i)); 2])
        .line("-P", move |i| [x(i).wrapping_neg(), y(i).wrapping_neg()])
        .line("~P", move |i| [!x(i), !y(i)])
        .line("P >> 1", move |i| [x(i) >> 1, y(i) >> 1])
        .line("P << char(9)", move |i| [x(i) << 1, y(i) << 1])
        .line("U << ushort(17)", move |i| [(X[i] as u16) << 1, (Y[i] as u16) << 1])
        .line("U - ushort(1)", move |i| [(X[i] as u16).wrapping_sub(1), (Y[i] as u16).wrapping_sub(1)])
        .line("U / ushort(3)", move |i| [X[i] as u16 / 3, Y[i] as u16 / 3])
        .line("P < P.yx", move |i| [x(i) < y(i), y(i) < x(i)])
}

fn comparisons() -> Sheet {
    let a = [0.0_f32, -0.0, 1.0, f32::NAN, f32::INFINITY, -3.5];
    let b = [-0.0_f32, 1.0, 1.0, 2.0, f32::NAN, -3.5];
    let mut sheet = Sheet::new("comparisons").column("a", &a).column("b", &b);
    type Comparison = (&'static str, fn(f32, f32) -> bool);
    let comparisons: [Comparison; 6] = [
        ("==", |a, b| a == b),
        ("!=", |a, b| a != b),
        ("<", |a, b| a < b),
        ("<=", |a, b| a <= b),
        (">", |a, b| a > b),
        (">=", |a, b| a >= b),
    ];
    for (name, f) in comparisons {
        sheet = sheet
            .line(&format!("a {name} b"), move |i| f(a[i], b[i]))
            .line(&format!("float2(a, b) {name} float2(b, a)"), move |i| [f(a[i], b[i]), f(b[i], a[i])])
            .line(&format!("float3(a, b, 1) {name} 1"), move |i| [f(a[i], 1.0), f(b[i], 1.0), f(1.0, 1.0)])
            .line(&format!("half4(half2(a, b), half2(1)) {name} half4(half(b))"), move |i| {
                [f(a[i], b[i]), f(b[i], b[i]), f(1.0, b[i]), f(1.0, b[i])]
            });
    }
    sheet
        .line("bool2(a, b) && bool2(true, false)", move |i| [a[i] != 0.0, false])
        .line("bool2(a, b) || bool2(false, b > 1)", move |i| [a[i] != 0.0, b[i] != 0.0 || b[i] > 1.0])
        .line("!bool3(a, b, 1)", move |i| [a[i] == 0.0, b[i] == 0.0, false])
        .line("bool2(a, b) == bool2(true)", move |i| [a[i] != 0.0, b[i] != 0.0])
        .line("bool2(a, b) & bool2(true, a > 0)", move |i| [a[i] != 0.0, b[i] != 0.0 && a[i] > 0.0])
        .line("(a > 0 ? float2(a) : float2(b, 1))", move |i| if a[i] > 0.0 { [a[i]; 2] } else { [b[i], 1.0] })
        .line("int3(bool3(a, b, 0))", move |i| [i32::from(a[i] != 0.0), i32::from(b[i] != 0.0), 0])
}

fn packed() -> Sheet {
    letters()
        .declare("struct Odd { char c; packed_float3 v; };")
        .block("from a vector", "packed_float3 p = v.xyz;", "float3(p)", |i| [V[i][0], V[i][1], V[i][2]])
        .block("to a vector", "packed_float4 p = packed_float4(a, b, c, d); float4 r = p;", "r", |i| {
            [A[i], B[i], C[i], D[i]]
        })
        .block("from a scalar", "packed_float2 p = a;", "float2(p)", |i| [A[i]; 2])
        .block("braces", "packed_float3 p = {a, b, c};", "float3(p)", |i| [A[i], B[i], C[i]])
        .block(
            "arithmetic",
            "packed_float3 p = v.xyz; packed_float3 q = p * 2 + p; q -= v.yzx;",
            "float3(q)",
            |i| std::array::from_fn::<f32, 3, _>(|k| V[i][k] * 2.0 + V[i][k] - V[i][[1, 2, 0][k]]),
        )
        .block("swizzle", "packed_float3 p = v.xyz; p.xy = p.yx; p.z = a;", "p.zyx", |i| {
            [A[i], V[i][0], V[i][1]]
        })
        .block(
            "index",
            "packed_half4 p = packed_half4(half4(1, 2, 3, 4)); p[2] = 7; int k = int(i) & 1;",
            "float3(p[1], p[2], p[k])",
            |i| [2.0_f32, 7.0, 1.0 + i as f32],
        )
        .block("with a vector", "packed_float2 p = {a, b};", "v.xy + p", |i| [V[i][0] + A[i], V[i][1] + B[i]])
        .block(
            "functions",
            "packed_float3 p = {a, b, c};",
            "dot(p, p) + length_squared(p) - 2 * dot(float3(p), p)",
            |_| 0.0_f32,
        )
        .block("in a struct", "Odd t = {1, {a, b, c}};", "t.v.yz + float2(sizeof(Odd), t.c)", |i| {
            [B[i] + 16.0, C[i] + 1.0]
        })
        .block("comparison", "packed_float2 p = {a, b};", "p < v.xy", |i| [A[i] < V[i][0], B[i] < V[i][1]])
        .block("unary", "packed_float2 p = {a, b};", "-p", |i| [-A[i], -B[i]])
        .block("to another type", "packed_float2 p = {a, b};", "int2(p)", |i| [A[i] as i32, B[i] as i32])
        .block(
            "from another type",
            "packed_uchar4 p = packed_uchar4(uint4(1, 2, 3, 260));",
            "uint4(p)",
            |_| [1_u32, 2, 3, 4],
        )
}

/// Packed vectors from every sequence of scalars, vectors and packed vectors.
fn packed_construction() -> Sheet {
    let mut sheet = letters();
    let letter = |k: usize, i: usize| [A[i], B[i], C[i], D[i]][k];
    for (size, parts) in [
        (2, &[&[1, 1][..], &[2]][..]),
        (3, &[&[1, 1, 1], &[2, 1], &[1, 2], &[3]]),
        (4, &[&[1, 1, 1, 1], &[2, 1, 1], &[1, 2, 1], &[1, 1, 2], &[2, 2], &[3, 1], &[1, 3], &[4]]),
    ] {
        for split in parts {
            for part in ["", "packed_"] {
                let mut next = 0;
                let mut arguments = Vec::new();
                for n in *split {
                    let names = &["a", "b", "c", "d"][next..next + n];
                    next += n;
                    let list = names.join(", ");
                    arguments.push(if *n == 1 { list } else { format!("{part}float{n}({list})") });
                }
                let (list, name) = (arguments.join(", "), format!("{size} of {part}{split:?}"));
                let statement = format!("packed_float{size} p({list}); packed_float{size} q = {{{list}}};");
                let result = format!("float4(float{size}(p).xy, q[{}], p[{}])", size - 2, size - 1);
                sheet = sheet.block(&name, &statement, &result, move |i| {
                    [A[i], B[i], letter(size - 2, i), letter(size - 1, i)]
                });
            }
        }
    }
    sheet
        .block("one in braces", "packed_float4 p = {a};", "float4(p)", |i| [A[i], 0.0, 0.0, 0.0])
        .block("empty braces", "packed_float3 p = {}; packed_float2 q{};", "float4(p.xz, q)", |_| {
            [0.0_f32; 4]
        })
        .block("of another packed type", "packed_float3 p(1.5f, 2.5f, a);", "int3(packed_int3(p))", |i| {
            [1, 2, A[i] as i32]
        })
        .block("between half and bfloat", "packed_half2 p(1.5h, 2);", "float2(packed_bfloat2(p))", |_| {
            [1.5_f32, 2.0]
        })
        .block("narrowing in braces", "int k = int(i) + 3; packed_float2 p = {k, 2u};", "float2(p)", |i| {
            [i as f32 + 3.0, 2.0]
        })
}

/// The size of a packed type is that of all its scalars.
fn packed_types() -> Sheet {
    let mut sheet = Sheet::new("packed_types");
    let scalars = [
        ("char", 1),
        ("uchar", 1),
        ("short", 2),
        ("ushort", 2),
        ("half", 2),
        ("bfloat", 2),
        ("int", 4),
        ("uint", 4),
        ("float", 4),
        ("long", 8),
        ("ulong", 8),
    ];
    for (name, size) in scalars {
        for n in 2..=4_u64 {
            let ty = format!("packed_{name}{n}");
            let statements = format!("{ty} p[2]; p[0] = {ty}({name}(1)); p[1] = {ty}({name}{n}({name}(5)));");
            let result = format!("ulong3(sizeof({ty}), alignof({ty}), ulong(p[0][{n} - 1] + p[1].x))");
            sheet = sheet.block(&ty, &statements, &result, move |_| [n * size, size, 6]);
        }
    }
    sheet
}

/// Vectors of every element type hold the values they are constructed from.
fn element_types() -> Sheet {
    let mut sheet = Sheet::new("element_types").column("n", &[5_u32, 0, 100]);
    let n = |i: usize| [5_u64, 0, 100][i];
    for name in
        ["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "bfloat", "float"]
    {
        let statements = format!("{name}4 v = {name}4({name}(n), 1, 2, 3); v.zw += v.xy; {name}3 r = v.wzx;");
        sheet = sheet.block(&format!("{name}4"), &statements, "ulong3(r)", move |i| [4, n(i) + 2, n(i)]);
    }
    sheet.block("bool4", "bool4 v = {n > 3u, true}; v.zw = v.xy;", "v", move |i| {
        [n(i) > 3, true, n(i) > 3, true]
    })
}
