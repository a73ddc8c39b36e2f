//! candle's kernels that move elements by index, sort them, or rotate pairs of them.

use elinvar::{bf16, f16};

use super::super::case::{Case, Near};
use super::super::element::{Element, Layout, Sequence};

const CORPUS: &str = "candle-metal-kernels";
const FILE: &str = "indexing.metal";

/// An array viewed along one dimension: number of elements before, along and after it.
const LEFT: usize = 3;
const ALONG: usize = 11;
const RIGHT: usize = 5;

pub fn cases() -> Vec<Case> {
    vec![
        select::<i64, f32>("is_i64_f32", true),
        select::<u32, f16>("is_u32_f16", true),
        select::<u8, u8>("is_u8_u8", true),
        select::<u32, bf16>("is_u32_bf16", false),
        gather::<u32, f32>("gather_u32_f32"),
        gather::<u8, bf16>("gather_u8_bf16"),
        gather::<i64, i64>("gather_i64_i64"),
        scatter::<u32, f32>("s_u32_f32", false),
        scatter::<i64, f16>("s_i64_f16", false),
        scatter::<u32, u32>("sa_u32_u32", true),
        scatter::<u8, f32>("sa_u8_f32", true),
        scatter::<i64, bf16>("sa_i64_bf16", true),
        index_add::<u32, i64>("ia_u32_i64"),
        index_add::<i64, u8>("ia_i64_u8"),
        index_add::<u8, f16>("ia_u8_f16"),
        sort::<f32>("asc"),
        sort::<f16>("desc"),
        sort::<u32>("desc"),
        sort::<i64>("asc"),
        sort::<bf16>("asc"),
        rope_pairs::<f32>("rope_i_f32"),
        rope_halves::<f16>("rope_f16"),
        rope_heads::<bf16>("rope_thd_bf16"),
    ]
}

/// Integers that every type represents, so that sums are exact.
fn numbers<T: Element>(count: usize) -> Vec<T> {
    Sequence(31).between::<u8>(count, 0.0, 12.0).into_iter().map(|v| T::of(v.into())).collect()
}

fn sizes(case: Case, sizes: &[usize]) -> Case {
    sizes.iter().fold(case, |case, size| case.value([*size as u64]))
}

/// The index that means "none": the type's maximum.
fn none<I: Element>() -> I {
    I::of_integer(if I::SHORT == "i64" { i64::MAX.into() } else { -1 })
}

/// `index_select`: rows by index. The index "none" gives zeros, an index beyond the end the last row.
fn select<I: Element, T: Element>(kernel: &str, contiguous: bool) -> Case {
    let mut ids: Vec<I> = [3.0, 0.0, 10.0, 7.0, 7.0, 1.0, 9.0].map(I::of).to_vec();
    ids[4] = none::<I>();
    ids[6] = I::of(100.0);
    // The kernel takes as many dimensions as there are rows, which is correct if the source has two dimensions and two rows.
    let (left, along, right) = if contiguous { (LEFT, ALONG, RIGHT) } else { (1, 2, 9) };
    let layout = if contiguous { Layout::new(&[1], &[1]) } else { Layout::new(&[2, 9], &[1, 2]) };
    let input: Vec<T> = numbers(left * along * right);
    let want = (0..left * ids.len() * right).map(|i| {
        let (l, id, r) = (i / right / ids.len(), ids[i / right % ids.len()], i % right);
        if id == none::<I>() {
            return T::of(0.0);
        }
        let row = (id.integer() as usize).min(along - 1);
        let place = (l * along + row) * right + r;
        input[if contiguous { place } else { layout.place(place) }]
    });
    let count = left * ids.len() * right;
    sizes(Case::new(CORPUS, FILE, kernel), &[count, left, along, right, ids.len()])
        .value([u8::from(contiguous)])
        .value(&layout.dims)
        .value(&layout.strides)
        .input(&input)
        .input(&ids)
        .full_output(want)
        .threads(count.next_multiple_of(32), 32)
}

/// Each element of the target has the index of the row that it is read from.
fn gather<I: Element, T: Element>(kernel: &str) -> Case {
    let rows = 4;
    let count = LEFT * rows * RIGHT;
    let mut ids: Vec<I> = Sequence(32).between(count, 0.0, ALONG as f64);
    ids[17] = none::<I>();
    let input: Vec<T> = numbers(LEFT * ALONG * RIGHT);
    let want = (0..count).map(|i| {
        let (l, r) = (i / RIGHT / rows, i % RIGHT);
        let id = ids[i];
        if id == none::<I>() { T::of(0.0) } else { input[(l * ALONG + id.integer() as usize) * RIGHT + r] }
    });
    sizes(Case::new(CORPUS, FILE, kernel), &[count, LEFT, ALONG, RIGHT, rows])
        .input(&input)
        .input(&ids)
        .full_output(want)
        .threads(count.next_multiple_of(32), 32)
}

/// Each element of the source has the index of the row that it is stored or added to, in the order of the source.
fn scatter<I: Element, T: Element>(kernel: &str, adds: bool) -> Case {
    let rows = 6;
    let mut ids: Vec<I> = Sequence(33).between(LEFT * ALONG * RIGHT, 0.0, rows as f64);
    ids[21] = none::<I>();
    let input: Vec<T> = numbers(ids.len());
    let before: Vec<T> = numbers(LEFT * rows * RIGHT);
    let mut want: Vec<i128> = before.iter().map(|v| v.integer()).collect();
    for (i, id) in ids.iter().enumerate().filter(|(_, id)| **id != none::<I>()) {
        let target = &mut want[(i / RIGHT / ALONG * rows + id.integer() as usize) * RIGHT + i % RIGHT];
        *target = input[i].integer() + if adds { *target } else { 0 };
    }
    let want: Vec<Option<T>> = want.into_iter().map(|v| Some(T::of_integer(v))).collect();
    sizes(Case::new(CORPUS, FILE, kernel), &[LEFT * RIGHT, LEFT, ALONG, RIGHT, rows])
        .input(&input)
        .input(&ids)
        .updated(&before, &want)
        .threads(32, 32)
}

/// Whole rows of the source are added to the rows with these indices.
fn index_add<I: Element, T: Element>(kernel: &str) -> Case {
    let rows = 6;
    let mut ids: Vec<I> = Sequence(34).between(ALONG, 0.0, rows as f64);
    ids[2] = none::<I>();
    let input: Vec<T> = numbers(LEFT * ALONG * RIGHT);
    let before: Vec<T> = numbers(LEFT * rows * RIGHT);
    let mut want: Vec<i128> = before.iter().map(|v| v.integer()).collect();
    for (j, id) in ids.iter().enumerate().filter(|(_, id)| **id != none::<I>()) {
        for (l, r) in (0..LEFT).flat_map(|l| (0..RIGHT).map(move |r| (l, r))) {
            want[(l * rows + id.integer() as usize) * RIGHT + r] +=
                input[(l * ALONG + j) * RIGHT + r].integer();
        }
    }
    let want: Vec<Option<T>> = want.into_iter().map(|v| Some(T::of_integer(v))).collect();
    sizes(Case::new(CORPUS, FILE, kernel), &[LEFT * RIGHT, LEFT, ALONG, RIGHT, rows, ALONG])
        .input(&input)
        .input(&ids)
        .updated(&before, &want)
        .threads(32, 32)
}

/// Rows of distinct numbers, so that the order is unique; rows are padded to a power of two.
fn sort<T: Element>(order: &str) -> Case {
    let (rows, columns, padded) = (5, 77, 128);
    let mut sequence = Sequence(35);
    let lowest = if T::of(-1.0).value() < 0.0 { -30.0 } else { 0.0 };
    let numbers = (0..rows).flat_map(|_| sequence.shuffled(columns));
    let input: Vec<T> = numbers.map(|v| T::of(lowest + v as f64)).collect();
    let want = input.chunks(columns).flat_map(|row| {
        let mut ranks: Vec<u32> = (0..columns as u32).collect();
        ranks.sort_by(|a, b| row[*a as usize].value().total_cmp(&row[*b as usize].value()));
        if order == "desc" {
            ranks.reverse();
        }
        ranks
    });
    Case::new(CORPUS, "sort.metal", format!("asort_{order}_{}", T::SHORT))
        .input(&input)
        .full_output(want)
        .value([columns as i64])
        .value([padded as i64])
        .threadgroup(padded * 4)
        .groups((1, rows), padded)
}

const ROPE: &str = "two products and a sum, or a fused one: three roundings of |a·c| + |b·s|";

/// A pair rotated by the angle with this cosine and sine.
fn turn<T: Element>(a: T, b: T, cosine: T, sine: T) -> [Near; 2] {
    let (a, b, c, s) = (a.value(), b.value(), cosine.value(), sine.value());
    [
        (a * c - b * s, 3.0 * T::ROUNDING * ((a * c).abs() + (b * s).abs())),
        (a * s + b * c, 3.0 * T::ROUNDING * ((a * s).abs() + (b * c).abs())),
    ]
}

/// Source, cosines and sines.
fn rope_inputs<T: Element>(count: usize, angles: usize) -> [Vec<T>; 3] {
    let mut sequence = Sequence(36);
    [
        sequence.between(count, -3.0, 3.0),
        sequence.between(angles, -1.0, 1.0),
        sequence.between(angles, -1.0, 1.0),
    ]
}

fn rope_case<T: Element>(kernel: &str, numbers: &[usize], inputs: &[Vec<T>; 3], want: Vec<Near>) -> Case {
    let pairs = want.len() / 2;
    let case = sizes(Case::new(CORPUS, "reduce.metal", kernel), numbers);
    inputs.iter().fold(case, |case, input| case.input(input)).near::<T>(want, ROPE).threads(pairs, 32)
}

/// Rotates adjacent elements; every batch has its own angles.
fn rope_pairs<T: Element>(kernel: &str) -> Case {
    let (batches, heads, turned) = (2, 3, 14);
    let inputs = rope_inputs::<T>(batches * heads * turned, batches * turned / 2);
    let [source, cosines, sines] = &inputs;
    let pair = |i: usize| {
        let angle = i / (heads * turned / 2) * (turned / 2) + i % (turned / 2);
        turn(source[2 * i], source[2 * i + 1], cosines[angle], sines[angle])
    };
    let want = (0..source.len() / 2).flat_map(pair).collect();
    rope_case(kernel, &[batches * heads, turned, heads * turned], &inputs, want)
}

/// Rotates the two halves of a head; all batches share the angles.
fn rope_halves<T: Element>(kernel: &str) -> Case {
    let (heads, times, width) = (3, 5, 6);
    let inputs = rope_inputs::<T>(heads * times * width, times * width / 2);
    let want = halves(&inputs, width, |row| row % times);
    rope_case(kernel, &[heads, times * width, width, 0], &inputs, want)
}

/// As [`rope_halves`], with heads inside times.
fn rope_heads<T: Element>(kernel: &str) -> Case {
    let (batches, times, heads, width) = (2, 5, 3, 4);
    let inputs = rope_inputs::<T>(batches * times * heads * width, times * width / 2);
    let want = halves(&inputs, width, |row| row / heads % times);
    rope_case(kernel, &[batches, times, heads, width, 0], &inputs, want)
}

/// Rows of `width`, each rotated by the angles of its time.
fn halves<T: Element>(inputs: &[Vec<T>; 3], width: usize, time: impl Fn(usize) -> usize) -> Vec<Near> {
    let ([source, cosines, sines], half) = (inputs, width / 2);
    let mut want = vec![(0.0, 0.0); source.len()];
    for (row, i) in (0..source.len() / width).flat_map(|row| (0..half).map(move |i| (row, i))) {
        let (first, angle) = (row * width + i, time(row) * half + i);
        let [a, b] = turn(source[first], source[first + half], cosines[angle], sines[angle]);
        (want[first], want[first + half]) = (a, b);
    }
    want
}
