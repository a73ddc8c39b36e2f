//! `softmax`: the softmax of each row, compared with three passes with a vectorized exponential function.

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

use super::problem::{Agreement, Argument, Problem, scattered};
use super::team::Team;

const N: usize = 4096;
const ROWS: usize = 256;
/// A comparison, a subtraction, the exponential function as 12, an addition and a multiplication.
const FLOPS: usize = 16;

pub fn softmax() -> Problem {
    let input = scattered(N * ROWS, 20_000).map(|v| v as f32 / 1000.0 - 10.0).collect();
    Problem {
        name: "softmax",
        size: "256 rows of 4096 floats, group 256",
        file: "softmax",
        metal: include_str!("../kernels/softmax.metal"),
        opencl: include_str!("../kernels/softmax.cl"),
        kernel: "softmax",
        threads: [256 * ROWS, 1, 1],
        group: [256, 1, 1],
        args: vec![Argument::Floats(input), Argument::Floats(vec![0.0; N * ROWS]), Argument::Word(N as u32)],
        bytes: Some(8 * (N * ROWS) as u64),
        flops: Some((FLOPS * N * ROWS) as u64),
        native,
        others: vec![],
        result: |args| args[1].numbers(),
        agreement: Agreement::Within(1e-5),
    }
}

fn native(args: &mut [Argument], team: &Team) {
    let [input, out, n] = args else { return };
    let (input, n) = (input.floats(), n.word() as usize);
    team.share(out.floats_mut(), n, |first, out| {
        let rows = input[first..].chunks_exact(n).zip(out.chunks_exact_mut(n));
        rows.for_each(|(from, to)| row(from, to));
    });
}

const LANES: usize = 64;

/// Replaces a row by its softmax.
pub fn in_place(row_of: &mut [f32]) {
    let from = row_of.to_vec();
    row(&from, row_of);
}

/// A row, whose length is a multiple of [`LANES`].
#[multiversion(targets = "simd")]
fn row(from: &[f32], to: &mut [f32]) {
    const FMA: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let (from, _) = from.as_chunks::<LANES>();
    let (to, _) = to.as_chunks_mut::<LANES>();
    let mut most = [f32::NEG_INFINITY; LANES];
    for from in from {
        for (most, value) in most.iter_mut().zip(from) {
            *most = if *value > *most { *value } else { *most };
        }
    }
    let highest = most.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    let mut sums = [0.0f32; LANES];
    for (from, to) in from.iter().zip(to.iter_mut()) {
        for i in 0..LANES {
            to[i] = exp::<FMA>(from[i] - highest);
            sums[i] += to[i];
        }
    }
    let factor = 1.0 / sums.iter().sum::<f32>();
    to.as_flattened_mut().iter_mut().for_each(|value| *value *= factor);
}

/// The exponential function for arguments of at most 0, with an error of about one unit in the last place: Cody-Waite reduction, then a
/// polynomial of degree 6.
#[inline(always)]
fn exp<const FMA: bool>(x: f32) -> f32 {
    let fused = |a: f32, b: f32, c: f32| if FMA { a.mul_add(b, c) } else { a * b + c };
    let x = if x > -87.0 { x } else { -87.0 };
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
    let shifted = fused(x, std::f32::consts::LOG2_E, 12_582_912.0);
    let whole = shifted - 12_582_912.0;
    let r = fused(whole, -0.693_359_4, x);
    let r = fused(whole, 2.121_944_4e-4, r);
    let p = fused(r, 1.987_569_1e-4, 1.398_2e-3);
    let p = fused(p, r, 8.333_452e-3);
    let p = fused(p, r, 4.166_579_6e-2);
    let p = fused(p, r, 1.666_666_5e-1);
    let p = fused(p, r, 0.5);
    let p = fused(p, r * r, r) + 1.0;
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
}
