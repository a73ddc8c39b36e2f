//! Fails to compile: impl trait.

#[elinvar::device]
fn apply(f: impl Fn(f32) -> f32, x: f32) -> f32 {
    f(x)
}

fn main() {}
