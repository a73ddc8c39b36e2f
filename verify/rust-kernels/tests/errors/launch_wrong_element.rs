//! Fails to compile: launch wrong element.

#[elinvar::kernel]
fn k(x: &[f32], y: &mut [f32], #[thread_position_in_grid] i: usize) {
    y[i] = x[i];
}

fn run(stream: &elinvar::Stream, x: &elinvar::Buffer<u32>, y: &mut elinvar::Buffer<f32>) -> elinvar::Result<elinvar::Completion> {
    k.launch(stream, elinvar::Grid::threads(1), (x, y))
}

fn main() {}
