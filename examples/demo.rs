//! Runs every example on the best device of this machine and prints the results. Each example compares every
//! element with a host reference.

mod double_in_place;
mod matmul;
mod reduce;
mod scale;
mod tensor;
mod thread_ids;
mod vector_add;

use std::time::Instant;

use elinvar::{Device, Result};

type Example = (&'static str, fn(&Device) -> Result<usize>);

const EXAMPLES: [Example; 7] = [
    ("thread_ids", thread_ids::run),
    ("vector_add", vector_add::run),
    ("scale", scale::run),
    ("matmul", matmul::run),
    ("reduce", reduce::run),
    ("double_in_place", double_in_place::run),
    ("tensor", tensor::run),
];

fn main() -> Result<()> {
    let device = Device::system_default()?;
    println!("{} ({})\n", device.name(), device.kind().name());
    println!("{:<16} {:>10}  {:>10}", "kernel", "checked", "time");
    for (name, run) in EXAMPLES {
        let start = Instant::now();
        let checked = run(&device)?;
        println!("{name:<16} {checked:>10}  {:>7.1} ms", start.elapsed().as_secs_f64() * 1e3);
    }
    println!("\nEvery result was compared with the host's. The times include compiling the kernel.");
    Ok(())
}
