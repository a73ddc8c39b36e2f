//! Runs a program for macOS on x86-64 under Linux: `elinvar-macho LIBRARY PROGRAM [ARGUMENTS]`.
//!
//! Nothing of the program is rewritten. It is mapped (`image`), its references are bound by name (`fixups`), and it begins
//! where it says. What it asks of Objective-C and of frameworks comes from LIBRARY; what it asks of `libSystem` from this
//! system's C library where both are alike, and else from functions that translate (`system`). Both systems call functions
//! the same way, so that no call goes through anything.
//!
//! It is for tests of programs whose libraries are known: what is not there is a message and the end of the process when
//! it is called. There is no unwinder: a panic ends the process.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod fixups;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod image;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod names;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod start;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod system;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod thread_locals;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> anyhow::Result<()> {
    let mut words = std::env::args_os().skip(1);
    let (Some(library), Some(program)) = (words.next(), words.next()) else {
        anyhow::bail!("usage: elinvar-macho LIBRARY PROGRAM [ARGUMENTS]");
    };
    start::run(library.as_ref(), program.as_ref(), words.collect())
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("elinvar-macho runs on Linux on x86-64 only")
}
