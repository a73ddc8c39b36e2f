//! Fails to compile: generic struct.

#[derive(Clone, Copy, elinvar::KernelType)]
#[repr(C)]
struct P<T> {
    a: T,
}

fn main() {}
