//! Fails to compile: function pointer.

#[elinvar::device]
fn apply(f: fn(f32) -> f32, x: f32) -> f32 {
    f(x)
}

fn main() {}
