//! Fails to compile: attribute on struct.

#[elinvar::kernel]
struct K;

fn main() {}
