//! `reduce_tree` and `reduce_simd`: the sum of a million floats.
//!
//! The kernels write one sum per threadgroup, the baseline the total; the totals are compared.

use multiversion::multiversion;

use super::problem::{Agreement, Argument, Problem, scattered};
use super::team::Team;

const N: usize = 1 << 20;
const GROUP: usize = 256;

pub fn tree() -> Problem {
    Problem { name: "reduce_tree", ..reduce("reduce_tree") }
}

pub fn simd() -> Problem {
    Problem { name: "reduce_simd", ..reduce("reduce_simd") }
}

fn reduce(kernel: &'static str) -> Problem {
    // Small integers: their sum is exact in any order.
    let input = scattered(N, 8).map(|v| v as f32).collect();
    Problem {
        name: "",
        size: "1048576 floats, group 256",
        file: "reduce",
        metal: include_str!("../kernels/reduce.metal"),
        opencl: include_str!("../kernels/reduce.cl"),
        kernel,
        threads: [N, 1, 1],
        group: [GROUP, 1, 1],
        args: vec![Argument::Floats(input), Argument::Floats(vec![0.0; N / GROUP])],
        bytes: Some(4 * N as u64),
        flops: Some(N as u64),
        native,
        others: vec![],
        result: |args| vec![args[1].numbers().iter().sum()],
        agreement: Agreement::Within(0.0),
    }
}

fn native(args: &mut [Argument], team: &Team) {
    let [input, sums] = args else { return };
    let input = input.floats();
    let part = input.len().div_ceil(team.threads());
    let sums = sums.floats_mut();
    team.share(&mut sums[..team.threads()], 1, |first, sums| {
        for (sum, input) in sums.iter_mut().zip(input.chunks(part).skip(first)) {
            *sum = total(input);
        }
    });
}

/// Several accumulators, so that additions are independent.
#[multiversion(targets = "simd")]
fn total(input: &[f32]) -> f32 {
    const LANES: usize = 128;
    let mut sums = [0.0f32; LANES];
    let (chunks, rest) = input.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    sums.iter().chain(rest).sum()
}
