//! A program that is nothing but a worker process: for programs that do not serve themselves.

use std::process::ExitCode;

fn main() -> ExitCode {
    elinvar_driver_isolated::serve_if_asked();
    eprintln!("elinvar-worker is started by programs that use isolated devices, not by hand");
    ExitCode::from(2)
}
