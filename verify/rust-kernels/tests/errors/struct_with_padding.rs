//! Fails to compile: struct with padding.

#[derive(Clone, Copy, elinvar::KernelType)]
#[repr(C)]
struct P {
    a: u8,
    b: u32,
}

fn main() {}
