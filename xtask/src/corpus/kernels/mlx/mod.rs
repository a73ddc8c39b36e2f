//! MLX's kernels, as its host composes them from the package's headers: sort, scans, softmax, and attention of one and of many queries.

mod quantized;
mod state;

use elinvar::{Constants, bf16, f16};

use super::case::{Case, Near};
use super::element::Member::{F32, I32, I64};
use super::element::{Element, Sequence, packed};
use super::reference::{ATTENTION, U, attention};

const CORPUS: &str = "mlx-metal";
const EXP: &str = "exp of 3 + |2x| ulp, roundings of the sums, one of the output's type";

pub fn cases() -> Vec<Case> {
    let mut cases = sorts();
    cases.extend(quantized::cases());
    cases.extend(state::cases());
    cases.extend(scans());
    cases.extend(rows::<f32>("float32"));
    cases.extend(rows::<f16>("float16"));
    cases.extend(rows::<bf16>("bfloat16"));
    cases.extend([
        one_query::<f32>("float32", 64, Extra::Causal),
        one_query::<f16>("float16", 64, Extra::Mask),
        one_query::<bf16>("bfloat16", 128, Extra::Sinks),
        many_queries::<f32>("float32", 64, Extra::Causal),
        many_queries::<f16>("float16", 64, Extra::Mask),
        many_queries::<bf16>("bfloat16", 128, Extra::Sinks),
    ]);
    cases
}

fn sorts() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(sort::<f32>("float32"));
    cases.extend(sort::<f16>("float16"));
    cases.extend(sort::<bf16>("bfloat16"));
    cases.extend(sort::<i32>("int32"));
    cases.extend(sort::<u8>("uint8"));
    cases.extend(sort::<i64>("int64"));
    cases
}

/// Numbers with many equal ones; of floats some are none, which come last.
fn numbers<T: Element>(count: usize, seed: u64) -> Vec<T> {
    let mut all: Vec<T> = Sequence(seed).between(count, 0.0, 100.0);
    if T::ROUNDING > 0.0 {
        all.iter_mut().for_each(|value| *value = T::of((value.value() - 50.0).round()));
        all.iter_mut().skip(5).step_by(71).for_each(|value| *value = T::of(f64::NAN));
    }
    all
}

/// Indices in the order of the values: equal ones in the order of their indices, NaNs last.
fn order<T: Element>(values: &[T]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    let key = |index: &usize| (values[*index].value().is_nan(), values[*index]);
    order.sort_by(|a, b| {
        let ((a_nan, a), (b_nan, b)) = (key(a), key(b));
        a_nan.cmp(&b_nan).then(if a_nan || b_nan {
            std::cmp::Ordering::Equal
        } else {
            // Both zeros are equal.
            a.value().partial_cmp(&b.value()).unwrap_or(std::cmp::Ordering::Equal)
        })
    });
    order
}

fn sort<T: Element>(name: &str) -> Vec<Case> {
    let case = |kernel: &str| Case::new(CORPUS, "sort.metal", format!("{kernel}_{name}"));
    let int =
        |case: Case, values: &[usize]| values.iter().fold(case, |case, value| case.value([*value as i32]));
    let (rows, width) = (3, 701);
    let data = numbers::<T>(rows * width, 3);
    let sorted = data.chunks(width).flat_map(|row| order(row).into_iter().map(|index| row[index]));
    let indices = data.chunks(width).flat_map(|row| order(row).into_iter().map(|index| index as u32));
    // The results are columns.
    let turned = |row_wise: Vec<u32>| (0..rows * width).map(move |e| row_wise[e % rows * width + e / rows]);
    // Two blocks of three columns each.
    let (blocks, length, columns) = (2, 400, 3);
    let cube = numbers::<T>(blocks * length * columns, 5);
    let mut by_columns = cube.clone();
    for lane in 0..blocks * columns {
        let place = |i: usize| (lane / columns * length + i) * columns + lane % columns;
        let line: Vec<T> = (0..length).map(|i| cube[place(i)]).collect();
        for (i, index) in order(&line).into_iter().enumerate() {
            by_columns[place(i)] = line[index];
        }
    }
    // Blocks of 512, each sorted for itself, with the indices of the whole.
    let long = numbers::<T>(1300, 7);
    let parts: Vec<usize> = long
        .chunks(512)
        .enumerate()
        .flat_map(|(part, block)| order(block).into_iter().map(move |i| part * 512 + i))
        .collect();
    let strides = [(length * columns) as i64, 1];
    vec![
        int(case("block_sort").input(&data).full_output(sorted), &[width, 1, 1, width, width])
            .groups((1, rows), 128),
        int(
            case("block_argsort").input(&data).full_output(turned(indices.collect())),
            &[width, 1, rows, width, 1],
        )
        .groups((1, rows), 128),
        int(case("block_sort_nc").input(&cube).full_output(by_columns), &[length, columns, columns, 2])
            .input(&[blocks as i32, columns as i32])
            .input(&strides)
            .input(&strides)
            .groups((1, blocks * columns), 64),
        int(
            case("mb_block_sort")
                .input(&long)
                .full_output(parts.iter().map(|index| long[*index]))
                .full_output(parts.iter().map(|index| *index as u32)),
            &[1300, 1, 1],
        )
        .input(&[1_i32])
        .input(&[1300_i64])
        .groups((3, 1), 64),
    ]
}

fn scans() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(scan::<i32>("sum_int32", 0.0, |a, b| a + b));
    cases.extend(scan::<f32>("sum_float32", 0.0, |a, b| a + b));
    cases.extend(scan::<i64>("sum_int64", 0.0, |a, b| a + b));
    cases.extend(scan::<f16>("max_float16", f64::NEG_INFINITY, f64::max));
    cases.extend(scan::<f32>("min_float32", f64::INFINITY, f64::min));
    cases.extend(scan::<u8>("max_uint8", 0.0, f64::max));
    cases
}

/// Scans along rows, and along the middle of three dimensions; the numbers are integers, so that sums are exact.
fn scan<T: Element>(name: &str, start: f64, join: fn(f64, f64) -> f64) -> Vec<Case> {
    let numbers = |count: usize, seed: u64| -> Vec<T> {
        let all: Vec<T> = Sequence(seed).between(count, 0.0, 200.0);
        all.iter().map(|x| T::of(x.value().floor())).collect()
    };
    let scanned = |line: &[T], kind: &str| -> Vec<T> {
        let mut line: Vec<f64> = line.iter().map(|x| x.value()).collect();
        if kind == "reverse" {
            line.reverse();
        }
        let mut total = start;
        for value in &mut line {
            let before = total;
            total = join(total, *value);
            *value = if kind == "exclusive" { before } else { total };
        }
        if kind == "reverse" {
            line.reverse();
        }
        line.into_iter().map(T::of).collect()
    };
    let (rows, width) = (3, 1237);
    let data = numbers(rows * width, 11);
    let (blocks, length, columns) = (2, 75, 37);
    let cube = numbers(blocks * length * columns, 13);
    let reads = if size_of::<T>() == 8 { 2 } else { 4 };
    let mut cases = Vec::new();
    for kind in ["inclusive", "exclusive", "reverse"] {
        let case = |kernel: &str| Case::new(CORPUS, "scan.metal", format!("{kernel}_{kind}_{name}"));
        let along_rows = data.chunks(width).flat_map(|row| scanned(row, kind));
        cases.push(
            case("contig_scan")
                .input(&data)
                .full_output(along_rows)
                .value([width as u64])
                .groups((1, rows), 128),
        );
        let mut down = cube.clone();
        for lane in 0..blocks * columns {
            let place = |i: usize| (lane / columns * length + i) * columns + lane % columns;
            let line: Vec<T> = (0..length).map(|i| cube[place(i)]).collect();
            for (i, value) in scanned(&line, kind).into_iter().enumerate() {
                down[place(i)] = value;
            }
        }
        let parts = columns.div_ceil(32);
        cases.push(
            case("strided_scan")
                .input(&cube)
                .full_output(down)
                .value([length as u64])
                .value([columns as u64])
                .value([parts as u64])
                .groups((1, blocks * parts), 32 / reads * 32),
        );
    }
    cases
}

fn stored<T: Element>((value, error): Near) -> Near {
    (value, error + if T::ROUNDING > U { 1.01 * T::ROUNDING * value.abs() + 1e-7 } else { 0.0 })
}

fn rows<T: Element>(name: &str) -> Vec<Case> {
    let case = |kernel: &str, width: usize, threads: usize| {
        let rows = 3;
        let x: Vec<T> = Sequence(17).between(rows * width, -5.0, 5.0);
        let want = x.chunks(width).flat_map(|row| {
            let top = row.iter().map(|x| x.value()).fold(f64::MIN, f64::max);
            let total: f64 = row.iter().map(|x| (x.value() - top).exp()).sum();
            let roundings = 64.0 + (width / threads) as f64;
            if kernel.contains("logsumexp") {
                return vec![stored::<T>((top + total.ln(), U * (roundings + 8.0 * top.abs())))];
            }
            let of = |x: &T| {
                let value = (x.value() - top).exp() / total;
                stored::<T>((value, U * value * (roundings + 4.0 * (top - x.value()))))
            };
            row.iter().map(of).collect::<Vec<_>>()
        });
        Case::new(CORPUS, "rows.metal", format!("{kernel}_{name}"))
            .input(&x)
            .near::<T>(want.collect(), EXP)
            .value([width as i32])
            .groups(rows, threads)
    };
    vec![
        case("block_softmax_precise", 501, 128),
        case("looped_softmax_precise", 4_730, 1024),
        case("block_logsumexp", 501, 128),
        case("looped_logsumexp", 4_730, 1024),
    ]
}

/// What is added to attention.
#[derive(Clone, Copy, PartialEq)]
enum Extra {
    /// A query sees no later key.
    Causal,
    /// Keys are hidden by a table.
    Mask,
    /// Each head has a further score, without a value.
    Sinks,
}

const BATCH: usize = 2;
const HEADS: usize = 4;
/// Heads with the same keys.
const SHARED: usize = 2;

/// Operands of attention, `[batch, head, position, dim]`.
struct Operands<T> {
    q: Vec<T>,
    k: Vec<T>,
    v: Vec<T>,
    sinks: Vec<T>,
    /// Whether a key is visible, `[batch, head, query, key]`.
    mask: Vec<u8>,
    sizes: [usize; 3],
    extra: Extra,
}

impl<T: Element> Operands<T> {
    fn new(sizes: [usize; 3], extra: Extra) -> Self {
        let [queries, keys, dim] = sizes;
        let numbers = |count: usize, seed: u64| -> Vec<T> { Sequence(seed).between(count, -1.0, 1.0) };
        let mut mask: Vec<u8> = Sequence(31).any::<u8>(BATCH * HEADS * queries * keys);
        // The first key is visible to all.
        mask.iter_mut().enumerate().for_each(|(e, bit)| *bit = u8::from(*bit % 3 != 0 || e % keys == 0));
        Self {
            q: numbers(BATCH * HEADS * queries * dim, 19),
            k: numbers(BATCH * HEADS / SHARED * keys * dim, 23),
            v: numbers(BATCH * HEADS / SHARED * keys * dim, 29),
            sinks: numbers(HEADS, 37),
            mask,
            sizes,
            extra,
        }
    }

    fn result(&self, scale: f64) -> Vec<Near> {
        let [queries, keys, dim] = self.sizes;
        let values = |data: &[T], row: usize| -> Vec<f64> {
            data[row * dim..][..dim].iter().map(|x| x.value()).collect()
        };
        let mut all = Vec::new();
        for line in 0..BATCH * HEADS * queries {
            let (head, query) = (line / queries, line % queries);
            let is_visible = |key: &usize| match self.extra {
                Extra::Causal => *key + queries <= query + keys,
                Extra::Mask => self.mask[line * keys + key] == 1,
                Extra::Sinks => true,
            };
            let rows = |data: &[T]| -> Vec<Vec<f64>> {
                (0..keys).filter(is_visible).map(|key| values(data, head / SHARED * keys + key)).collect()
            };
            let (mut k, mut v) = (rows(&self.k), rows(&self.v));
            let mut q = values(&self.q, line);
            if self.extra == Extra::Sinks {
                // A key with the score of the sink, and a value of zero.
                q.push(1.0 / scale);
                k.iter_mut().for_each(|key| key.push(0.0));
                k.push([vec![0.0; dim], vec![self.sinks[head % HEADS].value()]].concat());
                v.push(vec![0.0; dim]);
            }
            let k: Vec<&[f64]> = k.iter().map(Vec::as_slice).collect();
            let v: Vec<&[f64]> = v.iter().map(Vec::as_slice).collect();
            all.extend(attention(&q, &k, &v, scale).into_iter().map(|(value, error)| {
                // Weights are rounded to the type before the product with the values.
                stored::<T>((value, error + if T::ROUNDING > U { 2.0 * T::ROUNDING } else { 0.0 }))
            }));
        }
        all
    }
}

/// Three queries a head, each by one threadgroup.
fn one_query<T: Element>(name: &str, dim: usize, extra: Extra) -> Case {
    let (queries, keys) = (3, 77);
    let of = Operands::<T>::new([queries, keys, dim], extra);
    let scale = 0.125_f32;
    let is = |wanted: Extra| extra == wanted;
    let constants = Constants::new()
        .set(20, is(Extra::Mask))
        .set(21, false)
        .set(22, is(Extra::Causal))
        .set(23, is(Extra::Mask))
        .set(24, false)
        .set(25, is(Extra::Sinks))
        .set(26, 1_i32);
    let case = Case::new(CORPUS, "sdpa_vector.metal", format!("sdpa_vector_{name}_{dim}"))
        .constants(constants)
        .input(&of.q)
        .input(&of.k)
        .input(&of.v)
        .near::<T>(of.result(scale.value()), ATTENTION)
        .value([SHARED as i32])
        .value([keys as i32]);
    let strides = [keys * dim, dim, keys * dim, dim];
    let case = strides.iter().fold(case, |case, stride| case.value([*stride as u64])).value([scale]);
    let case = match extra {
        Extra::Causal => case,
        Extra::Mask => {
            case.input(&of.mask).cast().value([1_i32]).value([keys as i32]).value([(queries * keys) as i32])
        }
        Extra::Sinks => case.input(&of.sinks).value([HEADS as i32]),
    };
    case.groups((BATCH * HEADS, queries), 1024)
}

/// Blocks of 32 queries; neither queries nor keys are a multiple of a block.
fn many_queries<T: Element>(name: &str, dim: usize, extra: Extra) -> Case {
    let (queries, keys) = (45, 83);
    let (block, key_block) = (32, if dim == 128 { 16 } else { 32 });
    let of = Operands::<T>::new([queries, keys, dim], extra);
    let scale = 0.125_f32;
    let is = |wanted: Extra| extra == wanted;
    let constants = Constants::new()
        .set(200, false)
        .set(201, false)
        .set(300, is(Extra::Mask))
        .set(301, is(Extra::Causal))
        .set(302, is(Extra::Sinks))
        .set(303, false);
    let int = |value: usize| I32(value as i32);
    let mut params = vec![int(BATCH), int(HEADS), int(dim), int(queries), int(keys), int(SHARED), F32(scale)];
    params.extend(
        [queries.div_ceil(block), keys.div_ceil(key_block), queries / block, keys / key_block].map(int),
    );
    params.extend([queries % block, keys % key_block, keys - queries].map(int));
    let strides =
        |heads: usize, rows: usize| [heads * rows * dim, rows * dim, dim].map(|stride| I64(stride as i64));
    params.extend(strides(HEADS, queries));
    params.extend(strides(HEADS / SHARED, keys));
    params.extend(strides(HEADS / SHARED, keys));
    params.extend(strides(HEADS, queries));
    let case = Case::new(CORPUS, "attention.metal", format!("attention_{name}_{dim}"))
        .constants(constants)
        .input(&of.q)
        .input(&of.k)
        .input(&of.v)
        .near::<T>(of.result(scale.value()), ATTENTION)
        .bytes(packed(&params));
    let of_mask = [HEADS * queries * keys, queries * keys, keys].map(|stride| I64(stride as i64));
    let case = match extra {
        Extra::Causal => case,
        Extra::Mask => case.bytes(packed(&of_mask)).input(&of.mask).cast(),
        Extra::Sinks => case.input(&of.sinks),
    };
    case.groups((queries.div_ceil(block), HEADS, BATCH), (32, 4, 1))
}
