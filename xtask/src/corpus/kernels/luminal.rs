//! luminal's kernels, which are MLX's: softmax, and products of matrices with tiles of several sizes, also with the inner dimension in parts.

use elinvar::{bf16, f16};

use super::case::{Case, Near};
use super::element::Member::I32;
use super::element::{Element, Sequence, packed};
use super::reference::{U, sum};

const CORPUS: &str = "luminal_metal";
const SUM: &str = "one rounding of the sum of magnitudes for each term, one of the output's type";

pub fn cases() -> Vec<Case> {
    [of::<f32>("float32"), of::<f16>("float16"), of::<bf16>("bfloat16")].into_iter().flatten().collect()
}

fn of<T: Element>(name: &str) -> Vec<Case> {
    let mut cases = Vec::from(softmax::<T>(name));
    let tiles = [[32, 32, 16], [64, 64, 16], [64, 32, 32], [64, 32, 16], [32, 64, 16]];
    let small = [[16, 16, 16], [16, 32, 16], [32, 16, 16], [32, 32, 16]];
    for number in 0..16 {
        let form = Form::new(number);
        cases.push(form.plain::<T>(name, tiles[number % 4]));
        // Half of the forms of each, with other tiles.
        if (number / 4 + number) % 2 == 0 {
            cases.push(form.steel::<T>(name, tiles[number / 2 % 5]));
        } else {
            cases.push(form.split::<T>(name, small[number / 2 % 4]));
        }
    }
    cases.extend(joined::<T>(name));
    cases
}

fn stored<T: Element>((value, error): Near) -> Near {
    (value, error + if T::ROUNDING > U { 1.01 * T::ROUNDING * value.abs() + 1e-7 } else { 0.0 })
}

fn softmax<T: Element>(name: &str) -> [Case; 2] {
    let case = |kernel: String, width: usize, threads: usize| {
        let rows = 3;
        let x: Vec<T> = Sequence(3).between(rows * width, -4.0, 4.0);
        let want = x.chunks(width).flat_map(|row| {
            let top = row.iter().map(|x| x.value()).fold(f64::MIN, f64::max);
            let total: f64 = row.iter().map(|x| (x.value() - top).exp()).sum();
            row.iter()
                .map(move |x| {
                    let value = (x.value() - top).exp() / total;
                    // Differences, exponentials and their sum are in the type.
                    let roundings = 24.0 + 2.0 * (top - x.value());
                    (
                        value,
                        2.0 * T::ROUNDING.max(U) * roundings * value
                            + if T::ROUNDING > U { 1e-7 } else { 0.0 },
                    )
                })
                .collect::<Vec<_>>()
        });
        Case::new(CORPUS, "softmax.metal", kernel)
            .input(&x)
            .near::<T>(
                want.collect(),
                "exp and a sum in the type: 24 and the exponent's size in roundings of the type",
            )
            .value([width as i32])
            .threadgroup(32 * size_of::<T>())
            .threadgroup(32 * size_of::<T>())
            .groups(rows, threads)
    };
    // Four elements a thread; the looped form takes all simdgroups.
    [case(format!("softmax_{name}"), 381, 96), case(format!("softmax_looped_{name}"), 4_500, 1024)]
}

/// Which operands are transposed, and which sizes are multiples of the tile's.
#[derive(Clone, Copy)]
struct Form {
    transposed: [bool; 2],
    aligned: [bool; 2],
}

/// Operands of a product.
struct Operands<T> {
    a: Vec<T>,
    b: Vec<T>,
    sizes: [usize; 3],
}

impl Form {
    fn new(number: usize) -> Self {
        let bit = |place: usize| number >> place & 1 == 1;
        Self { transposed: [bit(0), bit(1)], aligned: [bit(2), bit(3)] }
    }

    fn name(self, kernel: &str, [input, output]: [&str; 2], [m, n, k]: [usize; 3]) -> String {
        let letter = |which: usize| if self.transposed[which] { 't' } else { 'n' };
        let word = |which: usize| if self.aligned[which] { "taligned" } else { "naligned" };
        format!(
            "{kernel}_{}{}_{input}_{output}_bm{m}_bn{n}_bk{k}_wm2_wn2_MN_{}_K_{}",
            letter(0),
            letter(1),
            word(0),
            word(1)
        )
    }

    fn sizes(self, [m, n, k]: [usize; 3], blocks: usize) -> [usize; 3] {
        let [rows, columns] = if self.aligned[0] { [2 * m, n] } else { [m + 5, n + 11] };
        [rows, columns, blocks * k + if self.aligned[1] { 0 } else { 7 }]
    }

    fn operands<T: Element>(self, sizes: [usize; 3], batches: [usize; 2]) -> Operands<T> {
        let [m, n, k] = sizes;
        // Threads at the edges read what is behind the matrix, and use none of it.
        let padded = |count: usize, seed: u64| {
            let mut all: Vec<T> = Sequence(seed).between(count, -1.0, 1.0);
            all.resize(count + 64 * (m.max(n).max(k) + 1), T::of(f64::NAN));
            all
        };
        Operands { a: padded(batches[0] * m * k, 5), b: padded(batches[1] * n * k, 7), sizes }
    }

    /// Strides of the operands' rows.
    fn strides(self, [m, n, k]: [usize; 3]) -> [usize; 2] {
        [if self.transposed[0] { m } else { k }, if self.transposed[1] { k } else { n }]
    }

    /// The product of a batch's matrices over a part of the inner dimension.
    fn product<T: Element>(
        self,
        of: &Operands<T>,
        [first, second]: [usize; 2],
        inner: std::ops::Range<usize>,
        rounding: f64,
    ) -> Vec<Near> {
        let [m, n, k] = of.sizes;
        let [lda, ldb] = self.strides(of.sizes);
        let a = |i: usize, j: usize| {
            let place = if self.transposed[0] { j * lda + i } else { i * lda + j };
            of.a[first * m * k + place].value()
        };
        let b = |j: usize, c: usize| {
            let place = if self.transposed[1] { c * ldb + j } else { j * ldb + c };
            of.b[second * n * k + place].value()
        };
        let places = (0..m).flat_map(|row| (0..n).map(move |column| (row, column)));
        places.map(|(row, column)| sum(inner.clone().map(|j| a(row, j) * b(j, column)), rounding)).collect()
    }

    /// Two batches of the left operand with one right operand; sums in the type.
    fn plain<T: Element>(self, name: &str, tile: [usize; 3]) -> Case {
        let sizes = self.sizes(tile, 2);
        let [m, n, k] = sizes;
        let of = self.operands::<T>(sizes, [2, 1]);
        let want = (0..2).flat_map(|batch| self.product(&of, [batch, 0], 0..k, T::ROUNDING.max(U)));
        let case = Case::new(CORPUS, "gemm.metal", self.name("gemm", [name, name], tile))
            .input(&of.a)
            .input(&of.b)
            .near::<T>(want.collect(), "one rounding of the type for each term");
        [m, n, k, m * k, n * k, 2, m * n]
            .iter()
            .fold(case, |case, value| case.value([*value as i32]))
            .groups((n.div_ceil(tile[1]), m.div_ceil(tile[0]), 2), (32, 2, 2))
    }

    /// Two batches; rows of tiles are interleaved; sums in `float`.
    fn steel<T: Element>(self, name: &str, tile: [usize; 3]) -> Case {
        let sizes = self.sizes(tile, 2);
        let [m, n, k] = sizes;
        let of = self.operands::<T>(sizes, [2, 2]);
        let want = (0..2).flat_map(|batch| self.product(&of, [batch, batch], 0..k, U)).map(stored::<T>);
        let [lda, ldb] = self.strides(sizes);
        let (columns, rows) = (n.div_ceil(tile[1]), m.div_ceil(tile[0]));
        let params = [m, n, k, lda, ldb, n, columns, rows, m * k, n * k, m * n, 1, k / tile[2]];
        Case::new(CORPUS, "steel/gemm/kernels/steel_gemm.metal", self.name("steel_gemm", [name, name], tile))
            .input(&of.a)
            .input(&of.b)
            .near::<T>(want.collect(), SUM)
            .bytes(packed(&params.map(|value| I32(value as i32))))
            .groups((columns * 2, rows.div_ceil(2), 2), (32, 2, 2))
    }

    /// Three parts of the inner dimension, each with a result of its own in `float`.
    fn split<T: Element>(self, name: &str, tile: [usize; 3]) -> Case {
        let sizes = self.sizes(tile, 6);
        let [m, n, k] = sizes;
        let of = self.operands::<T>(sizes, [1, 1]);
        let part = 2 * tile[2];
        let want = (0..3).flat_map(|number| {
            let end = if number == 2 { k } else { (number + 1) * part };
            self.product(&of, [0, 0], number * part..end, U)
        });
        let [lda, ldb] = self.strides(sizes);
        let (columns, rows) = (n.div_ceil(tile[1]), m.div_ceil(tile[0]));
        let params = [m, n, k, lda, ldb, n, columns, rows, 3, m * n, part, 2];
        let file = "steel/gemm/kernels/steel_gemm_splitk.metal";
        Case::new(CORPUS, file, self.name("steel_gemm_splitk", [name, "float32"], tile))
            .input(&of.a)
            .input(&of.b)
            .near::<f32>(want.collect(), SUM)
            .bytes(packed(&params.map(|value| I32(value as i32))))
            .groups((columns, rows, 3), (32, 2, 2))
    }
}

/// The sum of the parts, and with a matrix added.
fn joined<T: Element>(name: &str) -> [Case; 2] {
    let (parts, rows, columns) = (5, 6, 21);
    let data: Vec<f32> = Sequence(11).between(parts * rows * columns, -1.0, 1.0);
    let added: Vec<T> = Sequence(13).between(rows * columns, -1.0, 1.0);
    let (alpha, beta) = (0.75_f32, -1.5_f32);
    let terms = |e: usize| (0..parts).map(|part| data[part * rows * columns + e].value()).collect::<Vec<_>>();
    let total = (0..rows * columns).map(|e| stored::<T>(sum(terms(e).into_iter(), U)));
    // The factors and their products are in the type.
    let mixed = (0..rows * columns).map(|e| {
        let (value, error) = sum(terms(e).into_iter(), U);
        let (first, second) = (alpha.value() * value, beta.value() * added[e].value());
        (first + second, error + 4.0 * T::ROUNDING.max(U) * (first.abs() + second.abs()))
    });
    let case = |kernel: String, want: Vec<Near>| {
        Case::new(CORPUS, "steel/gemm/kernels/steel_gemm_splitk.metal", kernel)
            .input(&data)
            .near::<T>(want, SUM)
            .value([parts as i32])
            .value([(rows * columns) as i32])
            .value([columns as i32])
            .threads((columns, rows), (8, 2))
    };
    [
        case(format!("steel_gemm_splitk_accum_{name}_float32"), total.collect()),
        case(format!("steel_gemm_splitk_accum_{name}_float32_axpby"), mixed.collect())
            .input(&added)
            .value([columns as i32])
            .value([1_i32])
            .value([alpha])
            .value([beta]),
    ]
}
