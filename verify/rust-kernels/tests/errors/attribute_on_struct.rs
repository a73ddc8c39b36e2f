#[elinvar::kernel]
struct K;

fn main() {}
