//! Fails to compile: struct without repr.

#[derive(Clone, Copy, elinvar::KernelType)]
struct P {
    a: f32,
}

fn main() {}
