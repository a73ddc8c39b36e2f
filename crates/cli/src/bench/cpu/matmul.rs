//! `matmul_naive`, `matmul_naive_16x16` and `matmul_tiled`, compared with a blocked loop and two libraries.

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

use super::problem::{Agreement, Argument, Problem, scattered};
use super::team::Team;
use super::{blas, onednn};

const N: usize = 512;

pub fn naive() -> Problem {
    let size = "512x512x512 floats, group 32x8";
    Problem { name: "matmul_naive", size, ..matmul("matmul_naive", [32, 8, 1]) }
}

pub fn naive_16x16() -> Problem {
    let size = "512x512x512 floats, group 16x16";
    Problem { name: "matmul_naive_16x16", size, ..matmul("matmul_naive", [16, 16, 1]) }
}

pub fn tiled() -> Problem {
    let size = "512x512x512 floats, group 16x16";
    Problem { name: "matmul_tiled", size, ..matmul("matmul_tiled", [16, 16, 1]) }
}

fn matmul(kernel: &'static str, group: [usize; 3]) -> Problem {
    // Small integers: every sum is exact in any order.
    let matrix = |limit: u32| scattered(N * N, limit).map(|v| v as f32 - (limit / 2) as f32).collect();
    let mut others: Vec<(&'static str, super::problem::Native)> = vec![("gemm", blas::gemm)];
    if blas::openblas().is_ok() {
        others.push(("openblas", blas::sgemm));
    }
    if onednn::onednn().is_ok() {
        others.push(("onednn", onednn::sgemm));
    }
    Problem {
        name: "",
        size: "",
        file: "matmul",
        metal: include_str!("../kernels/matmul.metal"),
        opencl: include_str!("../kernels/matmul.cl"),
        kernel,
        threads: [N, N, 1],
        group,
        args: vec![
            Argument::Floats(matrix(7)),
            Argument::Floats(matrix(5)),
            Argument::Floats(vec![0.0; N * N]),
            Argument::Word(N as u32),
        ],
        bytes: Some(12 * (N * N) as u64),
        flops: Some(2 * (N * N * N) as u64),
        native,
        others,
        result: |args| args[2].numbers(),
        agreement: Agreement::Within(0.0),
    }
}

fn native(args: &mut [Argument], team: &Team) {
    let [a, b, c, n] = args else { return };
    let (a, b, n) = (a.floats(), b.floats(), n.word() as usize);
    team.share(c.floats_mut(), n, |first, c| multiply(&a[first..first + c.len()], b, c, n));
}

/// Number of rows of `b` that are reused while they are in the first-level cache.
const BLOCK: usize = 16;
/// Number of rows of `b` that are added to a row of `c` at once, so that `c` is loaded and stored less often.
const ROWS: usize = 16;

/// `c = a * b`, where `n` is a multiple of [`ROWS`].
#[multiversion(targets = "simd")]
fn multiply(a: &[f32], b: &[f32], c: &mut [f32], n: usize) {
    const FMA: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let fused = |a: f32, b: f32, c: f32| if FMA { a.mul_add(b, c) } else { a * b + c };
    c.fill(0.0);
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        for (a, c) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
            for k in (start..end).step_by(ROWS) {
                let rows: [&[f32]; ROWS] = std::array::from_fn(|i| &b[(k + i) * n..][..n]);
                let factors: [f32; ROWS] = std::array::from_fn(|i| a[k + i]);
                for (j, c) in c.iter_mut().enumerate() {
                    let mut sum = *c;
                    for i in 0..ROWS {
                        sum = fused(factors[i], rows[i][j], sum);
                    }
                    *c = sum;
                }
            }
        }
    }
}
