//! `cargo-elinvar`: runs the `elinvar` next to it, for `cargo elinvar …`.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let own = std::env::current_exe().unwrap_or_else(|_| "cargo-elinvar".into());
    let elinvar = own.with_file_name("elinvar");
    let error = Command::new(&elinvar).args(std::env::args_os().skip(1)).exec();
    eprintln!("error: {} cannot be started: {error}", elinvar.display());
    ExitCode::from(3)
}
