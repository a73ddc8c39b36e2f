//! `histogram_device` and `histogram_threadgroup`: byte histograms, compared with private tables.

use super::problem::{Agreement, Argument, Problem, scattered};
use super::team::Team;

const N: usize = 4 << 20;

pub fn device() -> Problem {
    let size = "4194304 bytes, 256 bins, group 256";
    Problem { name: "histogram_device", size, ..histogram("histogram_device", 1) }
}

pub fn threadgroup() -> Problem {
    let size = "4194304 bytes, 256 bins, group 256, 16 for each thread";
    Problem { name: "histogram_threadgroup", size, ..histogram("histogram_threadgroup", 16) }
}

fn histogram(kernel: &'static str, per_thread: usize) -> Problem {
    Problem {
        name: "",
        size: "",
        file: "histogram",
        metal: include_str!("../kernels/histogram.metal"),
        opencl: include_str!("../kernels/histogram.cl"),
        kernel,
        threads: [N / per_thread, 1, 1],
        group: [256, 1, 1],
        args: vec![
            Argument::Bytes(scattered(N, 256).map(|v| v as u8).collect()),
            Argument::Words(vec![0; 256]),
        ],
        bytes: Some(N as u64),
        flops: None,
        native,
        others: vec![],
        result: |args| args[1].numbers(),
        agreement: Agreement::Within(0.0),
    }
}

fn native(args: &mut [Argument], team: &Team) {
    let [data, bins] = args else { return };
    let data = data.bytes();
    let part = data.len().div_ceil(team.threads());
    let mut tables = vec![[0u32; 256]; team.threads()];
    team.share(&mut tables, 1, |first, tables| {
        for (table, data) in tables.iter_mut().zip(data.chunks(part).skip(first)) {
            *table = count(data);
        }
    });
    for table in &tables {
        bins.words_mut().iter_mut().zip(table).for_each(|(bin, count)| *bin = bin.wrapping_add(*count));
    }
}

/// Four tables, so that consecutive equal bytes do not depend on each other's store.
fn count(data: &[u8]) -> [u32; 256] {
    let mut tables = [[0u32; 256]; 4];
    let (chunks, rest) = data.as_chunks::<8>();
    for chunk in chunks {
        for (i, byte) in chunk.iter().enumerate() {
            tables[i % 4][usize::from(*byte)] += 1;
        }
    }
    for byte in rest {
        tables[0][usize::from(*byte)] += 1;
    }
    std::array::from_fn(|i| tables.iter().map(|table| table[i]).sum())
}
