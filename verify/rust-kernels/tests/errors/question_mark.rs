//! Fails to compile: question mark.

#[elinvar::device]
fn f(x: u32) -> u32 {
    let v = x.checked_add(1)?;
    v
}

fn main() {}
