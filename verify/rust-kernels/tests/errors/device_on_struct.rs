#[elinvar::device]
struct K {
    a: f32,
}

fn main() {}
