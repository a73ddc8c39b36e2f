//! Fails to compile: tuple struct.

#[derive(Clone, Copy, elinvar::KernelType)]
#[repr(C)]
struct P(f32, f32);

fn main() {}
