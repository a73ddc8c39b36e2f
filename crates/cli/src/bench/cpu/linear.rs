//! Memory-bound kernels: `saxpy_dram`, `saxpy_l2` and `gather`.

use multiversion::multiversion;

use super::problem::{Agreement, Argument, Problem, scattered};
use super::team::Team;

pub fn saxpy_dram() -> Problem {
    Problem { name: "saxpy_dram", size: "16777216 floats, group 256", ..saxpy(16 << 20) }
}

pub fn saxpy_l2() -> Problem {
    Problem { name: "saxpy_l2", size: "65536 floats, group 256", ..saxpy(64 << 10) }
}

fn saxpy(n: usize) -> Problem {
    // Integers: the first result is exact with and without fused multiply-add.
    let x = scattered(n, 1000).map(|v| v as f32).collect();
    let y = scattered(n, 500).map(|v| v as f32).collect();
    Problem {
        name: "",
        size: "",
        file: "saxpy",
        metal: include_str!("../kernels/saxpy.metal"),
        opencl: include_str!("../kernels/saxpy.cl"),
        kernel: "saxpy",
        threads: [n, 1, 1],
        group: [256, 1, 1],
        args: vec![Argument::Floats(x), Argument::Floats(y), Argument::Float(2.0), Argument::Word(n as u32)],
        bytes: Some(12 * n as u64),
        flops: Some(2 * n as u64),
        native: native_saxpy,
        others: vec![],
        result: |args| args[1].numbers(),
        agreement: Agreement::Within(0.0),
    }
}

fn native_saxpy(args: &mut [Argument], team: &Team) {
    let [x, y, a, _] = args else { return };
    let (x, a) = (x.floats(), a.float());
    team.share(y.floats_mut(), 16, |first, y| axpy(a, &x[first..first + y.len()], y));
}

#[multiversion(targets = "simd")]
fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

pub fn gather() -> Problem {
    let n = 64 << 10;
    let table = (0..n).map(|v| v as f32).collect();
    Problem {
        name: "gather",
        size: "65536 of 65536 floats, group 256",
        file: "gather",
        metal: include_str!("../kernels/gather.metal"),
        opencl: include_str!("../kernels/gather.cl"),
        kernel: "gather",
        threads: [n, 1, 1],
        group: [256, 1, 1],
        args: vec![
            Argument::Words(scattered(n, n as u32).collect()),
            Argument::Floats(table),
            Argument::Floats(vec![0.0; n]),
        ],
        bytes: Some(12 * n as u64),
        flops: None,
        native: native_gather,
        others: vec![],
        result: |args| args[2].numbers(),
        agreement: Agreement::Within(0.0),
    }
}

fn native_gather(args: &mut [Argument], team: &Team) {
    let [index, table, out] = args else { return };
    let (index, table) = (index.words(), table.floats());
    team.share(out.floats_mut(), 16, |first, out| take(&index[first..first + out.len()], table, out));
}

/// Scalar loads with a bounds check; on the measured processors not slower than the gather instruction.
#[multiversion(targets = "simd")]
fn take(index: &[u32], table: &[f32], out: &mut [f32]) {
    for (out, index) in out.iter_mut().zip(index) {
        *out = table[*index as usize];
    }
}
