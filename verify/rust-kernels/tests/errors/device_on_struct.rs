//! Fails to compile: device on struct.

#[elinvar::device]
struct K {
    a: f32,
}

fn main() {}
