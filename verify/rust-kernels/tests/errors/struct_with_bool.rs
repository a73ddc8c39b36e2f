//! Fails to compile: struct with bool.

#[derive(Clone, Copy, elinvar::KernelType)]
#[repr(C)]
struct P {
    a: bool,
}

fn main() {}
