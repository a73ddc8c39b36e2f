//! Fails to compile: raw pointer.

#[elinvar::device]
fn first(x: *const f32) -> f32 {
    let _ = x;
    0.0
}

fn main() {}
