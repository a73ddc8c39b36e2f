//! mlx-native's kernels: attention, scans, sorting, normalization, triangular systems, element-wise arithmetic of three types.

use elinvar::{bf16, f16};

use super::case::{Case, Near, guarded};
use super::element::Member::{F32, I16, I32, U64};
use super::element::{Element, Sequence, packed};
use super::reference::{ATTENTION, U, attention, product, sum};
use super::tract::for_types;

const CORPUS: &str = "mlx-native";
const COUNT: usize = 219;
const SUM: &str = "one rounding of the sum of magnitudes for each term, and one of the type";

pub fn cases() -> Vec<Case> {
    let mut cases =
        vec![decode(), argsort(), hadamard(), top_k(), argmax(), gather(), row_sum(), spread_rows()];
    for_types!(cases, attention_of(): f32 bf16);
    for_types!(cases, scan(): f32 bf16);
    for_types!(cases, l2_norm(): f32 f16 bf16);
    for_types!(cases, softcap(): f32 f16 bf16);
    for_types!(cases, triangular(): f32 bf16);
    for_types!(cases, binary("add", |x, y| x + y): f32 f16 bf16);
    for_types!(cases, binary("mul", |x, y| x * y): f32 f16 bf16);
    cases.extend([cast::<f16, f32>(), cast::<f32, f16>(), cast::<bf16, f32>(), cast::<f32, bf16>()]);
    cases.extend([cast::<bf16, f16>(), cast::<f16, bf16>(), square_root(), square_root_backward()]);
    cases.extend(outer_products());
    for_types!(cases, tensor_product(): f32 f16 bf16);
    cases
}

fn case(file: &'static str, kernel: impl Into<String>) -> Case {
    Case::new(CORPUS, file, kernel)
}

fn numbers<T: Element>(count: usize, seed: u64) -> Vec<T> {
    Sequence(seed).between(count, -2.0, 2.0)
}

fn values<T: Element>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().map(|x| x.value()).collect()
}

/// A number in `float` is rounded to the type.
fn rounded<T: Element>((value, error): Near) -> Near {
    (value, error + if T::SHORT == "f32" { 0.0 } else { T::ROUNDING * value.abs() })
}

/// The wanted elements of heads with their own queries; two heads share their keys, of which those that are not later are seen.
fn heads<T: Element>([heads, queries, keys, rows, dim]: [usize; 5], q: &[T], k: &[T], v: &[T]) -> Vec<Near> {
    let row = |at: usize| {
        let (head, position) = (at / queries, at % queries);
        let seen = keys - queries + position + 1;
        let rows_of = |all: &[T]| -> Vec<Vec<f64>> {
            (0..seen).map(|key| values(&all[(head / 2 * rows + key) * dim..][..dim])).collect()
        };
        let (keys, of_keys) = (rows_of(k), rows_of(v));
        let keys: Vec<&[f64]> = keys.iter().map(Vec::as_slice).collect();
        let of_keys: Vec<&[f64]> = of_keys.iter().map(Vec::as_slice).collect();
        attention(&values(&q[at * dim..][..dim]), &keys, &of_keys, SCALE)
    };
    (0..heads * queries).flat_map(row).collect()
}

const SCALE: f64 = 0.125;

fn attention_of<T: Element>() -> Case {
    let sizes @ [count, queries, keys, rows, dim] = [4, 5, 9, 12, 24];
    let q: Vec<T> = numbers(count * queries * dim, 3);
    let (k, v): (Vec<T>, Vec<T>) = (numbers(count / 2 * rows * dim, 5), numbers(count / 2 * rows * dim, 7));
    let want = heads(sizes, &q, &k, &v).into_iter().map(rounded::<T>).collect();
    let parameters = [count, count / 2, dim, queries, keys].map(|n| I32(n as i32));
    let rest = [F32(SCALE as f32), I32(rows as i32), I32(1)];
    case("sdpa.metal", if T::SHORT == "f32" { "sdpa" } else { "sdpa_bf16" })
        .input(&q)
        .input(&k)
        .input(&v)
        .near::<T>(want, ATTENTION)
        .input(&packed(&[&parameters[..], &rest].concat()))
        .cast()
        .groups((1, count, 1), 32)
}

/// One query of each head, with the keys shared by two simdgroups.
fn decode() -> Case {
    let sizes @ [count, _, keys, rows, dim] = [4, 1, 21, 24, 128];
    let q: Vec<f32> = numbers(count * dim, 11);
    let (k, v): (Vec<f32>, Vec<f32>) =
        (numbers(count / 2 * rows * dim, 13), numbers(count / 2 * rows * dim, 17));
    let parameters = [count, count / 2, dim, keys, rows].map(|n| I32(n as i32));
    case("sdpa_decode.metal", "sdpa_decode")
        .input(&q)
        .input(&k)
        .input(&v)
        .near::<f32>(heads(sizes, &q, &k, &v), ATTENTION)
        .bytes(packed(&[&parameters[..], &[F32(SCALE as f32), I32(2)]].concat()))
        .threadgroup(4 * (4 + 2 * dim))
        .groups(count, 64)
}

/// Sums of all elements up to each one of a row.
fn scan<T: Element>() -> Case {
    let (rows, length) = (3, 100);
    let input: Vec<T> = numbers(rows * length, 19);
    let want = input.chunks(length).flat_map(|row| {
        (1..=length).map(|end| rounded::<T>(sum(row[..end].iter().map(|x| x.value()), U))).collect::<Vec<_>>()
    });
    let want = want.collect();
    case("cumsum.metal", format!("cumsum_{}", T::SHORT))
        .input(&input)
        .near::<T>(want, SUM)
        .input(&[length as u32])
        .threadgroup(4 * 32)
        .groups(rows, 32)
}

fn argsort() -> Case {
    let (rows, length) = (3, 50);
    let input: Vec<f32> = numbers(rows * length, 23);
    let want = input.chunks(length).flat_map(|row| {
        let mut order: Vec<u32> = (0..length as u32).collect();
        order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
        order
    });
    let want: Vec<u32> = want.collect();
    case("argsort.metal", "argsort_desc_f32")
        .input(&input)
        .full_output(want)
        .bytes(packed(&[I32(length as i32), I32(rows as i32)]))
        .groups(rows, 64)
}

/// Element i becomes the sum of all elements j with the sign (-1)^popcount(i & j), divided by the root of their number.
fn hadamard() -> Case {
    let (rows, length) = (3, 64);
    let input: Vec<f32> = numbers(rows * length, 29);
    let want = input.chunks(length).flat_map(|row| {
        let element = |i: usize| {
            let signed = |j: usize| {
                if (i & j).count_ones().is_multiple_of(2) { row[j].value() } else { -row[j].value() }
            };
            let (value, error) = sum((0..length).map(signed), U);
            let root = (length as f64).sqrt();
            (value / root, (error + 6.0 * U * value.abs()) / root)
        };
        (0..length).map(element).collect::<Vec<_>>()
    });
    let want = want.collect();
    case("hadamard.metal", "hadamard_transform")
        .updated_near::<f32>(
            &guarded(&input),
            want,
            "one rounding of the sum of magnitudes for each term; rsqrt",
        )
        .value([length as u32])
        .value([rows as u32])
        .threadgroup(4 * length)
        .groups(rows, length)
}

/// The largest elements in order, with their places.
fn top_k() -> Case {
    let (k, threads) = (7, 16);
    let input: Vec<f32> = numbers(COUNT, 31);
    let mut order: Vec<u32> = (0..COUNT as u32).collect();
    order.sort_by(|a, b| input[*b as usize].total_cmp(&input[*a as usize]));
    order.truncate(k);
    let largest: Vec<f32> = order.iter().map(|i| input[*i as usize]).collect();
    case("top_k.metal", "top_k_f32")
        .input(&input)
        .full_output(order)
        .full_output(largest)
        .input(&[COUNT as u32, k as u32])
        .threadgroup(4 * threads * k)
        .threadgroup(4 * threads * k)
        .groups(1, threads)
}

fn argmax() -> Case {
    let mut input: Vec<f32> = numbers(COUNT, 37);
    // Of equal elements the first.
    (input[130], input[77]) = (2.5, 2.5);
    case("argmax.metal", "argmax_f32")
        .input(&input)
        .full_output([77_u32])
        .full_output([2.5_f32])
        .input(&[COUNT as u32])
        .threadgroup(4 * 64)
        .threadgroup(4 * 64)
        .threadgroup(4 * 64)
        .groups(1, 64)
}

fn gather() -> Case {
    let (rows, width) = (6, 11);
    let source: Vec<f32> = numbers(rows * width, 41);
    // An index beyond the last row is that of the last row.
    let indices = [3_u32, 0, 5, 900, 1];
    let row = |index: &u32| source[(*index as usize).min(rows - 1) * width..][..width].to_vec();
    case("gather.metal", "gather_f32")
        .input(&source)
        .input(&indices)
        .full_output(indices.iter().flat_map(row).collect::<Vec<f32>>())
        .bytes(packed(&[I32(width as i32), I32(indices.len() as i32), I32(rows as i32)]))
        .threads((12, 6), (4, 2))
}

fn row_sum() -> Case {
    let (rows, length) = (4, 75);
    let input: Vec<f32> = numbers(rows * length, 43);
    let want = input.chunks(length).map(|row| sum(values(row).into_iter(), U)).collect();
    case("row_sum.metal", "row_sum_f32")
        .input(&input)
        .near::<f32>(want, SUM)
        .input(&[length as f32])
        .threadgroup(4 * 32)
        .groups(rows, 32)
}

fn spread_rows() -> Case {
    let (rows, length) = (4, 75);
    let sums: Vec<f32> = numbers(rows, 47);
    case("row_sum.metal", "row_sum_backward_f32")
        .input(&sums)
        .full_output(sums.iter().flat_map(|sum| vec![*sum; length]).collect::<Vec<f32>>())
        .input(&[length as f32])
        .groups(rows, 32)
}

fn l2_norm<T: Element>() -> Case {
    let (rows, length, epsilon) = (3, 75, 1e-6_f32);
    let input: Vec<T> = numbers(rows * length, 53);
    let want = input.chunks(length).flat_map(|row| {
        let total: f64 = row.iter().map(|x| x.value().powi(2)).sum();
        let scale = (total + f64::from(epsilon)).sqrt().recip();
        row.iter()
            .map(|x| rounded::<T>((x.value() * scale, (length as f64) * U * (x.value() * scale).abs())))
            .collect::<Vec<_>>()
    });
    let want = want.collect();
    case("l2_norm.metal", format!("l2_norm_{}", T::SHORT))
        .input(&input)
        .near::<T>(want, "roundings of the sum of squares, rsqrt of 2 ulp, and one of the type")
        .input(&[epsilon, length as f32])
        .threadgroup(4 * 32)
        .groups(rows, 32)
}

/// `cap · tanh(x / cap)`.
fn softcap<T: Element>() -> Case {
    let cap = 1.5_f32;
    let input: Vec<T> = Sequence(59).between(COUNT, -6.0, 6.0);
    let want = input.iter().map(|x| {
        let value = f64::from(cap) * (x.value() / f64::from(cap)).tanh();
        rounded::<T>((value, 24.0 * U * value.abs()))
    });
    let want = want.collect();
    case("softcap.metal", format!("softcap_{}", T::SHORT))
        .input(&input)
        .near::<T>(want, "a division of 2.5 ulp, tanh of 5 ulp, a product, and a rounding of the type")
        .input(&[cap, f32::from_bits(COUNT as u32)])
        .threads(256, 32)
}

/// Systems with a lower triangular matrix, ones on its diagonal, and several right sides.
fn triangular<T: Element>() -> Case {
    let (n, columns, batches) = (7, 5, 2);
    let matrix: Vec<T> = Sequence(61).between(batches * n * n, -0.5, 0.5);
    let right: Vec<T> = numbers(batches * n * columns, 67);
    let mut want: Vec<Near> = vec![(0.0, 0.0); right.len()];
    for (batch, column) in (0..batches).flat_map(|batch| (0..columns).map(move |column| (batch, column))) {
        for row in 0..n {
            let place = |row: usize| (batch * n + row) * columns + column;
            let (mut value, mut error) = (right[place(row)].value(), 0.0);
            let mut size = value.abs();
            for before in 0..row {
                let factor = matrix[(batch * n + row) * n + before].value();
                let (x, of_x) = want[place(before)];
                (value, error, size) =
                    (value - factor * x, error + factor.abs() * of_x, size + (factor * x).abs());
            }
            want[place(row)] = rounded::<T>((value, error + (row + 2) as f64 * U * size));
        }
    }
    case("tri_solve.metal", format!("tri_solve_lower_unit_{}", T::SHORT))
        .input(&matrix)
        .input(&right)
        .near::<T>(want, "roundings of the sums, and of earlier elements, which are factors of later ones")
        .input(&[n as u32, columns as u32, batches as u32])
        .threads((columns, batches), (columns, 1))
}

fn binary<T: Element>(name: &str, operation: fn(f64, f64) -> f64) -> Case {
    let (x, y): (Vec<T>, Vec<T>) = (numbers(COUNT, 71), numbers(COUNT, 73));
    let want = x.iter().zip(&y).map(|(x, y)| T::of(operation(x.value(), y.value())));
    let mut case = case("elementwise.metal", format!("elementwise_{name}_{}", T::SHORT))
        .input(&x)
        .input(&y)
        .full_output(want.collect::<Vec<T>>())
        .value([COUNT as u32])
        .threads(256, 32);
    case.tolerance = "exact: one rounding";
    case
}

fn cast<I: Element, O: Element>() -> Case {
    let input: Vec<I> = numbers(COUNT, 79);
    case("elementwise.metal", format!("cast_{}_to_{}", I::SHORT, O::SHORT))
        .input(&input)
        .full_output(input.iter().map(|x| O::of(x.value())).collect::<Vec<O>>())
        .value([COUNT as u32])
        .threads(256, 32)
}

fn square_root() -> Case {
    let input: Vec<f32> = Sequence(83).between(COUNT, 0.01, 40.0);
    let want = values(&input).into_iter().map(|x| (x.sqrt(), 6.0 * U * x.sqrt())).collect();
    case("sqrt_elementwise.metal", "sqrt_f32")
        .input(&input)
        .near::<f32>(want, "3 ulp: x · rsqrt(x)")
        .input(&[COUNT as u32])
        .threads(256, 32)
}

fn square_root_backward() -> Case {
    let (y, dy): (Vec<f32>, Vec<f32>) = (Sequence(89).between(COUNT, 0.1, 6.0), numbers(COUNT, 97));
    let want = y.iter().zip(&dy).map(|(y, dy)| {
        let value = dy.value() / (2.0 * y.value());
        (value, 6.0 * U * value.abs())
    });
    let want = want.collect();
    case("sqrt_elementwise.metal", "sqrt_backward_f32")
        .input(&y)
        .input(&dy)
        .near::<f32>(want, "2.5 ulp of a division in fast math")
        .input(&[COUNT as u32])
        .threads(256, 32)
}

/// The outer product of two vectors, and its derivatives.
fn outer_products() -> Vec<Case> {
    let (n, m) = (13, 9);
    let (left, right): (Vec<f32>, Vec<f32>) = (numbers(n, 101), numbers(m, 103));
    let dy: Vec<f32> = numbers(n * m, 107);
    let want: Vec<f32> = left.iter().flat_map(|x| right.iter().map(move |y| x * y)).collect();
    let of_left = product([n, m, 1], |i, j| dy[i * m + j].value(), |j, _| right[j].value(), U);
    let of_right = product([m, n, 1], |j, i| dy[i * m + j].value(), |i, _| left[i].value(), U);
    let sizes = [n as u32, m as u32];
    let case = |kernel: &str| case("outer_product.metal", kernel);
    vec![
        case("outer_product_f32")
            .input(&left)
            .input(&right)
            .full_output(want)
            .input(&sizes)
            .threads((16, 10), (8, 2)),
        case("outer_product_backward_lhs_f32")
            .input(&dy)
            .input(&right)
            .near::<f32>(of_left, SUM)
            .input(&sizes)
            .threads(16, 8),
        case("outer_product_backward_rhs_f32")
            .input(&dy)
            .input(&left)
            .near::<f32>(of_right, SUM)
            .input(&sizes)
            .threads(16, 8),
    ]
}

/// Products of weights and activations in tiles of 64 by 32, whose factors in threadgroup memory are tensors of Metal 4. The activations are
/// rounded to the weights' type.
fn tensor_product<T: Element>() -> Case {
    let [rows, columns, inner, batches] = [37, 76, 64, 2];
    let weights: Vec<T> = numbers(columns * inner * batches, 101);
    let activations: Vec<f32> = numbers(rows * inner * batches, 103);
    let want = (0..batches).flat_map(|batch| {
        let right = |n: usize, k: usize| weights[(batch * columns + n) * inner + k].value();
        let left = |m: usize, k: usize| T::of(activations[(batch * rows + m) * inner + k].value()).value();
        product([rows, inner, columns], left, |k, n| right(n, k), U)
    });
    let want = want.collect();
    let size = size_of::<T>();
    let parameters = [
        I32(inner as i32),
        I32(batches as i32),
        U64((inner * size) as u64),
        U64((columns * inner * size) as u64),
        U64(0),
        I32(batches as i32),
        U64(4),
        U64((inner * 4) as u64),
        U64((rows * inner * 4) as u64),
        U64(0),
        I32(columns as i32),
        I32(rows as i32),
        I16(1),
        I16(1),
    ];
    let (file, kernel) = match T::SHORT {
        "f16" => ("dense_mm_f16_tensor.metal", "hf2q_dense_mm_f16_f32_tensor"),
        "f32" => ("dense_mm_f32_f32.metal", "hf2q_dense_mm_f32_f32_tensor"),
        _ => ("dense_mm_bf16_tensor.metal", "hf2q_dense_mm_bf16_f32_tensor"),
    };
    case(file, kernel)
        .bytes(packed(&parameters))
        .input(&weights)
        .cast()
        .input(&activations)
        .cast()
        .near::<f32>(want, SUM)
        .cast()
        .threadgroup(16384)
        .groups((rows.div_ceil(32), columns.div_ceil(64), batches), 128)
}
