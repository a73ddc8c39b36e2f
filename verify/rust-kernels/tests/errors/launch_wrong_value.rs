//! Fails to compile: launch wrong value.

#[elinvar::kernel]
fn k(y: &mut [f32], a: f32, #[thread_position_in_grid] i: usize) {
    y[i] = a;
}

fn run(stream: &elinvar::Stream, y: &mut elinvar::Buffer<f32>) -> elinvar::Result<elinvar::Completion> {
    k.launch(stream, elinvar::Grid::threads(1), (y, 1u32))
}

fn main() {}
