//! Runs a program for macOS on x86-64 under Linux: `elinvar-macho LIBRARY PROGRAM [ARGUMENTS]`.
//!
//! The program is not modified. It is mapped (`image`), its symbols are bound by name (`fixups`), and its entry point is called. Symbols of
//! Objective-C and of frameworks come from LIBRARY. Symbols of `libSystem` come from this system's C library where both systems
//! agree, and otherwise from functions that translate (`system`). Both systems have the same calling convention, so calls need no thunks.
//!
//! For tests of programs with known libraries: calling a missing function prints its name and ends the process. There is no unwinder, so a
//! panic ends the process.

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
