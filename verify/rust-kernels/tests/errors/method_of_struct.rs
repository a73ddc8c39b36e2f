//! Fails to compile: method of struct.

#[derive(Clone, Copy, elinvar::KernelType)]
#[repr(C)]
struct P {
    a: f32,
}

impl P {
    fn twice(self) -> f32 {
        self.a * 2.0
    }
}

#[elinvar::kernel]
fn k(x: &[P], y: &mut [f32], #[thread_position_in_grid] i: usize) {
    y[i] = x[i].twice();
}

fn main() {}
