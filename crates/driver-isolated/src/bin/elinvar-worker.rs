//! A standalone worker program, for programs that do not call `serve_if_asked`.

use std::process::ExitCode;

fn main() -> ExitCode {
    elinvar_driver_isolated::serve_if_asked();
    eprintln!("elinvar-worker is started by programs that use isolated devices, not by hand");
    ExitCode::from(2)
}
