//! `elinvar profile`: a report of what a program does on its devices.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use elinvar_telemetry::{profile_lines, report_of};

use crate::failure::{Failure, Result};
use crate::output;
use crate::programs::roofs;
use crate::report::say;

/// Run a program that links Elinvar, and write a report of what its devices did
///
/// The program runs with the variable ELINVAR_PROFILE, so that it appends what its devices do to a file, of which the report is made. If it crashes or
/// is killed, the report has what was written until then. Processes that it starts are in the report, too.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  elinvar profile -- ./program --steps 10\n  elinvar profile --out run.html -- ./program"
)]
pub struct Profile {
    /// The report, an HTML file that works offline
    #[arg(long, value_name = "FILE.html", default_value = "profile.html")]
    out: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

impl Profile {
    pub fn run(self) -> Result<()> {
        let machine =
            |what: &str, error: &dyn std::fmt::Display| Failure::Machine(format!("{what}: {error}"));
        let lines = tempfile::Builder::new().prefix("elinvar-profile-").tempfile();
        let lines = lines.map_err(|error| machine("cannot create a temporary file", &error))?;
        let (name, arguments) = self.program.split_first().ok_or_else(|| Failure::usage("no program"))?;
        let status = Command::new(name).args(arguments).env("ELINVAR_PROFILE", lines.path()).status();
        let status = status.map_err(|error| Failure::input(format!("`{name}`: {error}")))?;
        let text = std::fs::read(lines.path()).map_err(|error| machine("cannot read the profile", &error))?;
        if text.is_empty() {
            return Err(Failure::Machine(format!("`{name}` ({status}) did nothing on a device of Elinvar")));
        }
        let lines = profile_lines(&String::from_utf8_lossy(&text));
        let mut lines = lines.map_err(|error| machine("the profile", &error))?;
        roofs::add(&mut lines);
        output::replace_with(&self.out, report_of(&lines))?;
        // A program that fails is what one profiles, too.
        say(format_args!("report written to {}; `{name}`: {status}", self.out.display()))
    }
}
