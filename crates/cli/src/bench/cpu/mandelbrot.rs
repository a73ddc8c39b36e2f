//! `mandelbrot`, compared with scalar Rust: a loop with a divergent trip count.

use super::problem::{Agreement, Argument, Problem};
use super::team::Team;

const SIZE: usize = 1024;
const LIMIT: u32 = 256;
/// Of one iteration: two squares, their sum and difference, a product, a doubling, two additions.
const FLOPS: u64 = 8;

pub fn mandelbrot() -> Problem {
    let turns: u64 = (0..SIZE * SIZE).map(|at| u64::from(count(at % SIZE, at / SIZE, SIZE, LIMIT))).sum();
    Problem {
        name: "mandelbrot",
        size: "1024x1024, 256 iterations, group 32x8",
        file: "mandelbrot",
        metal: include_str!("../kernels/mandelbrot.metal"),
        opencl: include_str!("../kernels/mandelbrot.cl"),
        kernel: "mandelbrot",
        threads: [SIZE, SIZE, 1],
        group: [32, 8, 1],
        args: vec![Argument::Words(vec![0; SIZE * SIZE]), Argument::Word(SIZE as u32), Argument::Word(LIMIT)],
        bytes: Some(4 * (SIZE * SIZE) as u64),
        flops: Some(FLOPS * turns),
        native,
        others: vec![],
        result: |args| args[0].numbers(),
        // Fused multiply-add gives other counts for points at the edge.
        agreement: Agreement::Share(0.01),
    }
}

fn native(args: &mut [Argument], team: &Team) {
    let [out, size, limit] = args else { return };
    let (size, limit) = (size.word() as usize, limit.word());
    // More parts than threads would balance the load better, but the cost of the rows varies little enough, as the square is symmetric
    // about its middle.
    team.share(out.words_mut(), size, |first, out| {
        for (at, out) in out.iter_mut().enumerate() {
            *out = count((first + at) % size, (first + at) / size, size, limit);
        }
    });
}

#[inline]
fn count(column: usize, row: usize, size: usize, limit: u32) -> u32 {
    let cx = -2.0 + 3.0 * column as f32 / size as f32;
    let cy = -1.5 + 3.0 * row as f32 / size as f32;
    let (mut x, mut y, mut count) = (0.0f32, 0.0f32, 0);
    while count < limit && x * x + y * y <= 4.0 {
        let next = x * x - y * y + cx;
        y = 2.0 * x * y + cy;
        x = next;
        count += 1;
    }
    count
}
