//! `stencil3d`: a seven-point stencil on a cube.

use multiversion::multiversion;

use super::problem::{Agreement, Argument, Problem, scattered};
use super::team::Team;

const N: usize = 128;

pub fn stencil3d() -> Problem {
    // Integers: every sum is exact in any order.
    let input = scattered(N * N * N, 256).map(|v| v as f32).collect();
    let inside = (N - 2).pow(3) as u64;
    Problem {
        name: "stencil3d",
        size: "128x128x128 floats, group 32x4x2",
        file: "stencil3d",
        metal: include_str!("../kernels/stencil3d.metal"),
        opencl: include_str!("../kernels/stencil3d.cl"),
        kernel: "stencil3d",
        threads: [N; 3],
        group: [32, 4, 2],
        args: vec![Argument::Floats(input), Argument::Floats(vec![0.0; N * N * N]), Argument::Word(N as u32)],
        bytes: Some(8 * inside),
        flops: Some(8 * inside),
        native,
        others: vec![],
        result: |args| args[1].numbers(),
        agreement: Agreement::Within(0.0),
    }
}

fn native(args: &mut [Argument], team: &Team) {
    let [input, out, n] = args else { return };
    let (input, n) = (input.floats(), n.word() as usize);
    team.share(out.floats_mut(), n, |first, out| {
        for (row, out) in out.chunks_exact_mut(n).enumerate() {
            let at = first + row * n;
            let (y, z) = (at / n % n, at / (n * n));
            if (1..n - 1).contains(&y) && (1..n - 1).contains(&z) {
                line(input, out, at, n);
            }
        }
    });
}

/// Number of points of a row that are computed at once.
const LANES: usize = 64;

/// The row of the cube that begins at `at`, without its ends. The last points of a row are computed twice if necessary, so that all blocks
/// are full.
#[multiversion(targets = "simd")]
fn line(input: &[f32], out: &mut [f32], at: usize, n: usize) {
    let last = n - 1 - LANES;
    for start in (1..last).step_by(LANES).chain([last]) {
        let here = at + start;
        let from =
            |place: usize| -> &[f32; LANES] { input[place..].first_chunk().expect("inside of the cube") };
        let (left, middle, right) = (from(here - 1), from(here), from(here + 1));
        let (above, below) = (from(here - n), from(here + n));
        let (front, back) = (from(here - n * n), from(here + n * n));
        let out: &mut [f32; LANES] = out[start..].first_chunk_mut().expect("inside of the row");
        for i in 0..LANES {
            let around = left[i] + right[i] + above[i] + below[i] + front[i] + back[i];
            out[i] = 0.5 * middle[i] + 0.0625 * around;
        }
    }
}
