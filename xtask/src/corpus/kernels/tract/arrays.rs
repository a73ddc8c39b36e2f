//! tract's kernels that move and convert elements: copies of views of up to six axes, casts between all types, gathers, rotation.

use elinvar::f16;

use super::binary::{CORPUS, for_types};
use crate::corpus::kernels::case::Case;
use crate::corpus::kernels::element::{Element, Layout, Sequence};

const FILE: &str = "array/array_ops.metal";
const COUNT: usize = 133;

/// Casts from one type to each of the others.
macro_rules! casts_from {
    ($cases:ident: $($From:ty)*) => {
        $(casts_from!(@to $cases, $From: f32 f16 u8 u16 u32 u64 i8 i16 i32 i64);)*
    };
    (@to $cases:ident, $From:ty: $($To:ty)*) => {
        $($cases.push(cast::<$From, $To>());)*
    };
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for rank in 1..=6 {
        for_types!(cases, copy(rank): u8 u16 u32 u64);
    }
    for_types!(cases, plain(): u8 u16 u32 u64);
    casts_from!(cases: f32 f16 u8 u16 u32 u64 i8 i16 i32 i64);
    for_types!(cases, rotation(): f32 f16);
    for_types!(cases, diagonals(): f32 f16);
    for_types!(cases, gather(): f32 f16 i64);
    for_types!(cases, resample(): f32 f16);
    cases
}

/// A copy of a permuted view to rows with gaps.
fn copy<T: Element>(rank: usize) -> Case {
    let dims = &[2_u64, 3, 2, 3, 2, 19][6 - rank..];
    // The output's rows have gaps if there are rows; the input's axes are in reverse order.
    let mut out = vec![1_u64; rank];
    for k in (0..rank - 1).rev() {
        out[k] = if k == rank - 2 { dims[k + 1] + 2 } else { out[k + 1] * dims[k + 1] };
    }
    let mut strides = vec![1_u64; rank];
    for k in 1..rank {
        strides[k] = strides[k - 1] * dims[k - 1];
    }
    let (source, target) = (Layout::new(dims, &strides), Layout::new(dims, &out));
    let input: Vec<T> = Sequence(61).any(source.extent());
    let mut want = vec![None; target.extent()];
    for i in 0..target.len() {
        want[target.place(i)] = Some(input[source.place(i)]);
    }
    let axis = |back: usize| if rank >= back { dims[rank - back] as usize } else { 1 };
    let depth: usize = (0..rank.saturating_sub(3)).map(|k| dims[k] as usize).product();
    Case::new(CORPUS, FILE, format!("array_ops::copy_nd{rank}_{}", T::SHORT))
        .input(&input)
        .value(&source.strides)
        .output(&want)
        .value(&target.dims)
        .value(&target.strides)
        .groups((axis(2), axis(3), depth), 8)
}

fn plain<T: Element>() -> Case {
    let input: Vec<T> = Sequence(67).any(COUNT);
    Case::new(CORPUS, FILE, format!("array_ops::copy_unicast_{}", T::SHORT))
        .input(&input)
        .full_output(input.clone())
        .threads(COUNT, 32)
}

/// Integers are reduced modulo 2ⁿ, floats truncated to integers that the type has, and all numbers rounded to the nearest float.
fn cast<I: Element, O: Element>() -> Case {
    let (from, to) = (I::ROUNDING == 0.0, O::ROUNDING == 0.0);
    let mut sequence = Sequence(71);
    let input: Vec<I> = match (from, to) {
        (true, true) => sequence.any(COUNT),
        (true, false) => sequence.between(COUNT, 0.0, 120.0),
        (false, _) => sequence.between(COUNT, 0.0, 120.0),
    };
    let want = input.iter().map(|x| if from && to { O::of_integer(x.integer()) } else { O::of(x.value()) });
    Case::new(CORPUS, FILE, format!("array_ops::cast_{}_{}", I::SHORT, O::SHORT))
        .input(&input)
        .full_output(want.collect::<Vec<O>>())
        .threads(COUNT, 32)
}

/// The second half of each row, negated, and the first half.
fn rotation<T: Element>() -> Case {
    let (rows, columns) = (5, 14);
    let input: Vec<T> = Sequence(73).between(rows * columns, -9.0, 9.0);
    let want = (0..rows * columns).map(|i| {
        let (row, column) = (i / columns, i % columns);
        let half = columns / 2;
        if column < half {
            T::of(-input[row * columns + column + half].value())
        } else {
            input[row * columns + column - half]
        }
    });
    Case::new(CORPUS, FILE, format!("array_ops::rotate_half_nd2_{}", T::SHORT))
        .input(&input)
        .full_output(want.collect::<Vec<T>>())
        .value([rows as u64, columns as u64])
        .value([columns as u64, 1])
        .threads((columns / 2, rows), (4, 2))
}

/// `out[b, i, k] = in[b, i, offset + k - i]`, zero outside.
fn diagonals<T: Element>() -> Case {
    let (batches, rows, columns, length, offset) = (2, 5, 9, 7, 3_i32);
    let input: Vec<T> = Sequence(79).between(batches * rows * columns, -9.0, 9.0);
    let want = (0..batches * rows * length).map(|at| {
        let (b, i, k) = (at / (rows * length), at / length % rows, at % length);
        let column = offset + k as i32 - i as i32;
        let inside = (0..columns as i32).contains(&column);
        if inside { input[(b * rows + i) * columns + column as usize] } else { T::of(0.0) }
    });
    let sizes = [offset, rows as i32, columns as i32, length as i32];
    let strides = [rows * columns, columns, 1, rows * length, length, 1].map(|n| n as i32);
    Case::new(CORPUS, FILE, format!("array_ops::diag_gather_{}", T::SHORT))
        .input(&input)
        .full_output(want.collect::<Vec<T>>())
        .value([&sizes[..], &strides].concat())
        .threads((length, rows, batches), (4, 2, 1))
}

/// Rows at indices along the middle axis; negative ones count from the end.
fn gather<T: Element>() -> Case {
    let (pre, size, post) = (3, 6, 5);
    let indices = [2_i64, -1, 0, 5, -6, 2, 3];
    let input: Vec<T> = Sequence(83).between(pre * size * post, -90.0, 90.0);
    let want = (0..pre * indices.len() * post).map(|at| {
        let (p, n, q) = (at / post / indices.len(), at / post % indices.len(), at % post);
        let row = indices[n].rem_euclid(size as i64) as usize;
        input[(p * size + row) * post + q]
    });
    Case::new(CORPUS, FILE, format!("array_ops::gather_{}", T::SHORT))
        .input(&input)
        .input(&indices)
        .full_output(want.collect::<Vec<T>>())
        .value([pre, size, post, indices.len()].map(|n| n as i32))
        .threads((post + 2, indices.len() + 1, pre), (4, 2, 1))
}

/// The middle axis, resampled linearly from 4 to 7 positions.
fn resample<T: Element>() -> Case {
    let (outer, from, to, inner) = (2, 4, 7, 5);
    let input: Vec<T> = Sequence(89).between(outer * from * inner, -4.0, 4.0);
    let (mut indices, mut weights) = (Vec::new(), Vec::new());
    for x in 0..to {
        let at = (x as f32 + 0.5) * from as f32 / to as f32 - 0.5;
        let (low, part) = (at.floor(), at - at.floor());
        for (index, weight) in [(low, 1.0 - part), (low + 1.0, part)] {
            indices.push(index.clamp(0.0, from as f32 - 1.0) as i32);
            weights.push(weight);
        }
    }
    let want = (0..outer * to * inner).map(|place| {
        let (o, x, i) = (place / inner / to, place / inner % to, place % inner);
        let sum = |magnitude: bool| -> f64 {
            (0..2)
                .map(|k| {
                    let value = input[(o * from + indices[x * 2 + k] as usize) * inner + i].value();
                    f64::from(weights[x * 2 + k]) * if magnitude { value.abs() } else { value }
                })
                .sum()
        };
        (sum(false), sum(true) * (3.0 * f32::ROUNDING + T::ROUNDING))
    });
    let want = want.collect();
    Case::new(CORPUS, FILE, format!("array_ops::resize_axis_{}", T::SHORT))
        .input(&input)
        .near::<T>(want, "three roundings of float of the sum of magnitudes, and one of the type")
        .input(&indices)
        .input(&weights)
        .value([outer, from, to, inner, 2].map(|n| n as i32))
        .threads((inner, to, outer), (4, 2, 1))
}
