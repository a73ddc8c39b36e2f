//! The kernels of the suite with their data, which is larger than the caches.

use super::super::cpu::problem::{Agreement, Argument, scattered};

/// Builds a problem with its data.
pub type Build = fn() -> Problem;

/// A kernel with its data.
pub struct Problem {
    /// Name of the kernel, in MSL and in CUDA C++.
    pub kernel: &'static str,
    /// Name of the source file in `kernels`, and its text.
    pub file: &'static str,
    pub metal: &'static str,
    /// Problem size, human-readable.
    pub size: &'static str,
    pub threads: [usize; 3],
    pub group: [usize; 3],
    pub args: Vec<Argument>,
    /// Minimum bytes moved, and floating-point operations, per iteration.
    pub bytes: Option<u64>,
    pub flops: Option<u64>,
    /// Index of the argument that is the result.
    pub result: usize,
    pub agreement: Agreement,
}

/// The problems by name.
pub(in super::super) const PROBLEMS: [(&str, Build); 12] = [
    ("cuda_saxpy", saxpy),
    ("cuda_vector_add", vector_add),
    ("cuda_matmul_naive", matmul_naive),
    ("cuda_matmul_tiled", matmul_tiled),
    ("cuda_reduce_tree", reduce_tree),
    ("cuda_reduce_simd", reduce_simd),
    ("cuda_softmax", softmax),
    ("cuda_histogram_device", histogram_device),
    ("cuda_histogram_threadgroup", histogram_threadgroup),
    ("cuda_transpose", transpose),
    ("cuda_stencil3d", stencil3d),
    ("cuda_nbody", nbody),
];

const MANY: usize = 1 << 28;
const EXACT: Agreement = Agreement::Within(0.0);

fn floats(count: usize) -> Argument {
    Argument::Floats(scattered(count, 1 << 20).map(|v| v as f32 / 1_048_576.0 - 0.5).collect())
}

fn zeroes(count: usize) -> Argument {
    Argument::Floats(vec![0.0; count])
}

fn saxpy() -> Problem {
    Problem {
        kernel: "saxpy",
        file: "saxpy.metal",
        metal: include_str!("../kernels/saxpy.metal"),
        size: "2 x 2^28 floats",
        threads: [MANY, 1, 1],
        group: [256, 1, 1],
        args: vec![floats(MANY), floats(MANY), Argument::Float(0.001), Argument::Word(MANY as u32)],
        bytes: Some(12 * MANY as u64),
        flops: Some(2 * MANY as u64),
        result: 1,
        agreement: EXACT,
    }
}

fn vector_add() -> Problem {
    Problem {
        kernel: "vector_add",
        file: "vector_add.metal",
        metal: include_str!("../kernels/vector_add.metal"),
        size: "3 x 2^28 floats",
        threads: [MANY, 1, 1],
        group: [256, 1, 1],
        args: vec![floats(MANY), floats(MANY), zeroes(MANY), Argument::Word(MANY as u32)],
        bytes: Some(12 * MANY as u64),
        flops: Some(MANY as u64),
        result: 2,
        agreement: EXACT,
    }
}

fn matmul(kernel: &'static str, size: &'static str, n: usize) -> Problem {
    Problem {
        kernel,
        file: "matmul.metal",
        metal: include_str!("../kernels/matmul.metal"),
        size,
        threads: [n, n, 1],
        group: [16, 16, 1],
        args: vec![floats(n * n), floats(n * n), zeroes(n * n), Argument::Word(n as u32)],
        bytes: Some(12 * (n * n) as u64),
        flops: Some(2 * (n * n * n) as u64),
        result: 2,
        agreement: Agreement::Within(1e-5),
    }
}

fn matmul_naive() -> Problem {
    matmul("matmul_naive", "2048 x 2048, groups of 16 x 16", 2048)
}

fn matmul_tiled() -> Problem {
    matmul("matmul_tiled", "4096 x 4096, tiles of 16 x 16", 4096)
}

fn reduce(kernel: &'static str) -> Problem {
    Problem {
        kernel,
        file: "reduce.metal",
        metal: include_str!("../kernels/reduce.metal"),
        size: "2^28 floats, groups of 256",
        threads: [MANY, 1, 1],
        group: [256, 1, 1],
        args: vec![floats(MANY), zeroes(MANY / 256)],
        bytes: Some(4 * (MANY + MANY / 256) as u64),
        flops: Some(MANY as u64),
        result: 1,
        agreement: Agreement::Within(1e-5),
    }
}

fn reduce_tree() -> Problem {
    reduce("reduce_tree")
}

fn reduce_simd() -> Problem {
    reduce("reduce_simd")
}

fn softmax() -> Problem {
    const ROWS: usize = 32_768;
    const ROW: usize = 4096;
    Problem {
        kernel: "softmax",
        file: "softmax.metal",
        metal: include_str!("../kernels/softmax.metal"),
        size: "32768 rows of 4096 floats",
        threads: [256 * ROWS, 1, 1],
        group: [256, 1, 1],
        args: vec![floats(ROWS * ROW), zeroes(ROWS * ROW), Argument::Word(ROW as u32)],
        bytes: Some(8 * (ROWS * ROW) as u64),
        flops: None,
        result: 1,
        agreement: Agreement::Within(1e-5),
    }
}

fn histogram(kernel: &'static str, per_thread: usize) -> Problem {
    let data = scattered(MANY, 256).map(|value| value as u8).collect();
    Problem {
        kernel,
        file: "histogram.metal",
        metal: include_str!("../kernels/histogram.metal"),
        size: "2^28 bytes, 256 bins",
        threads: [MANY / per_thread, 1, 1],
        group: [256, 1, 1],
        args: vec![Argument::Bytes(data), Argument::Words(vec![0; 256])],
        bytes: Some(MANY as u64),
        flops: None,
        result: 1,
        agreement: EXACT,
    }
}

fn histogram_device() -> Problem {
    histogram("histogram_device", 1)
}

fn histogram_threadgroup() -> Problem {
    histogram("histogram_threadgroup", 16)
}

fn transpose() -> Problem {
    const N: usize = 16_384;
    Problem {
        kernel: "transpose",
        file: "transpose.metal",
        metal: include_str!("../kernels/transpose.metal"),
        size: "16384 x 16384 floats",
        threads: [N, N / 4, 1],
        group: [32, 8, 1],
        args: vec![floats(N * N), zeroes(N * N), Argument::Word(N as u32)],
        bytes: Some(8 * (N * N) as u64),
        flops: None,
        result: 1,
        agreement: EXACT,
    }
}

fn stencil3d() -> Problem {
    const N: usize = 512;
    Problem {
        kernel: "stencil3d",
        file: "stencil3d.metal",
        metal: include_str!("../kernels/stencil3d.metal"),
        size: "512^3 floats, groups of 64 x 4",
        threads: [N, N, N],
        group: [64, 4, 1],
        args: vec![floats(N * N * N), zeroes(N * N * N), Argument::Word(N as u32)],
        bytes: Some(8 * (N * N * N) as u64),
        flops: Some(8 * (N * N * N) as u64),
        result: 1,
        agreement: Agreement::Within(1e-6),
    }
}

fn nbody() -> Problem {
    const N: usize = 65_536;
    let numbers: Vec<f32> = scattered(4 * N, 1 << 20).map(|v| v as f32 / 1_048_576.0).collect();
    let bodies = numbers.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]).collect();
    let accelerations = Argument::Quads(vec![[0.0; 4]; N]);
    Problem {
        kernel: "nbody",
        file: "nbody.metal",
        metal: include_str!("../kernels/nbody.metal"),
        size: "65536 bodies",
        threads: [N, 1, 1],
        group: [256, 1, 1],
        args: vec![Argument::Quads(bodies), accelerations, Argument::Word(N as u32), Argument::Float(1e-4)],
        bytes: None,
        flops: Some(20 * (N * N) as u64),
        result: 1,
        agreement: Agreement::Within(1e-4),
    }
}
