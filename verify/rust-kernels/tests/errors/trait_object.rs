//! Fails to compile: trait object.

#[elinvar::device]
fn apply(f: &dyn Fn(f32) -> f32, x: f32) -> f32 {
    f(x)
}

fn main() {}
