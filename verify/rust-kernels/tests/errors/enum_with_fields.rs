//! Fails to compile: enum with fields.

#[derive(Clone, Copy, elinvar::KernelType)]
#[repr(u32)]
enum E {
    A,
    B(f32),
}

fn main() {}
