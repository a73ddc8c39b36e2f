//! Fails to compile: option.

#[elinvar::device]
fn half(x: u32) -> Option<u32> {
    if x % 2 == 0 { Some(x / 2) } else { None }
}

fn main() {}
