//! `elinvar capture` and `elinvar replay`: the launches of a program in a file, and each of them on another device.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use elinvar::capture::{Capture, Captured, Outcome};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::{print_json, say, visible};
use crate::select::Selection;

/// Capture the launches of a program into a file
///
/// Runs any program that links Elinvar with the variable ELINVAR_CAPTURE: each launch is written with its kernel's source, its arguments, and the contents of its memory before
/// and after it. `elinvar replay` runs them on another device.
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar capture launches.capture -- ./program --steps 10")]
pub struct CaptureProgram {
    /// The file, which must not exist
    file: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

impl CaptureProgram {
    pub fn run(self) -> Result<()> {
        if self.file.exists() {
            return Err(Failure::input(format!("`{}` exists", self.file.display())));
        }
        let absolute = std::path::absolute(&self.file);
        let absolute =
            absolute.map_err(|error| Failure::input(format!("`{}`: {error}", self.file.display())))?;
        let (name, arguments) = self.program.split_first().ok_or_else(|| Failure::usage("no program"))?;
        let status = Command::new(name).args(arguments).env("ELINVAR_CAPTURE", absolute).status();
        let status = status.map_err(|error| Failure::input(format!("`{name}`: {error}")))?;
        let file = self.file.display();
        if !self.file.exists() {
            return Err(Failure::Machine(format!(
                "`{name}` ({status}) used no device of Elinvar: there is no `{file}`"
            )));
        }
        // A program that fails is what one captures.
        let capture = Capture::open(&self.file)?;
        let not = capture.not_captured().len();
        say(format_args!(
            "{file}: {} launches captured, {not} not; `{name}`: {status}",
            capture.launches().len()
        ))
    }
}

/// Replay the launches of a capture on a device, and compare every element
///
/// Each launch runs from the captured contents of its memory before it, and is compared with those after it, so that the launch that is wrong is found, not those that read its results. Exits with 0
/// if all launches are equal, 1 if one differs or fails. Launches that cannot run on the device, and those that the capture lacks, are listed with the reason.
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar replay launches.capture --device cuda\n  \
                        elinvar replay launches.capture --tolerance 1e-6 --minimize wrong.capture --json")]
pub struct Replay {
    /// The capture
    file: PathBuf,
    /// Device: cpu, cuda[:N] or metal; the preferred one by default
    #[arg(long)]
    device: Option<Selection>,
    /// Relative difference of floating-point elements that is allowed
    #[arg(long, default_value_t = 0.0)]
    tolerance: f64,
    /// Writes the first launch that is wrong to a capture of its own
    #[arg(long, value_name = "FILE")]
    minimize: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Numbers of launches by outcome.
#[derive(Default)]
struct Counts {
    equal: usize,
    wrong: usize,
    failed: usize,
    not_run: usize,
}

impl Replay {
    pub fn run(self) -> Result<()> {
        let capture = Capture::open(&self.file)?;
        let device = Selection::device(self.device)?;
        // SAFETY: the user has asked to run this capture, as any program.
        #[allow(unsafe_code)]
        let mut replay = unsafe { device.replay(&capture, self.tolerance) }?;
        let launches = capture.launches();
        let (mut counts, mut first, mut listed) = (Counts::default(), None, Vec::new());
        let progress = Progress::new(launches.len());
        for (number, launch) in launches.iter().enumerate() {
            progress.begin(&launch.kernel);
            let outcome = replay.launch(number)?;
            progress.end();
            match &outcome {
                Outcome::Equal => counts.equal += 1,
                Outcome::FailsAgain(_) | Outcome::FailedBefore(_) => counts.failed += 1,
                Outcome::NotRun(_) => counts.not_run += 1,
                _ => counts.wrong += 1,
            }
            if outcome.is_wrong() {
                first.get_or_insert(number);
            }
            if self.json {
                listed.push(describe(number, launch, &outcome));
            } else if !matches!(outcome, Outcome::Equal) {
                let (kernel, label) = (&launch.kernel, label(launch));
                progress.suspend(|| {
                    say(format_args!("launch {number}, kernel `{kernel}`{label}: {}", text(&outcome)))
                })?;
            }
        }
        drop(progress);
        let minimized = match (first, &self.minimize) {
            (Some(first), Some(path)) => {
                capture.save_one(first, path)?;
                Some((first, path))
            }
            _ => None,
        };
        let Counts { equal, wrong, failed, not_run } = counts;
        let not_captured = capture.not_captured();
        if self.json {
            let not_captured: Vec<Value> =
                not_captured.iter().map(|not| json!({ "what": not.what, "reason": not.reason })).collect();
            print_json(&json!({
                "device": device.name(), "launches": listed, "not_captured": not_captured, "complete": capture.is_complete(),
                "equal": equal, "wrong": wrong, "failed_when_captured": failed, "not_run": not_run,
                "minimized": minimized.map(|(launch, path)| json!({ "launch": launch, "file": path })),
            }))?;
        } else {
            for not in not_captured {
                say(format_args!("not captured: {}: {}", not.what, not.reason))?;
            }
            if !capture.is_complete() {
                say("the capture ends within a record: the program was killed")?;
            }
            say(format_args!(
                "{} on {}: {equal} equal, {wrong} wrong, {failed} failed when captured, {not_run} not run, {} not captured",
                self.file.display(),
                device.name(),
                not_captured.len()
            ))?;
            if let Some((launch, path)) = minimized {
                say(format_args!("launch {launch} is in {}", path.display()))?;
            }
        }
        if wrong > 0 { Err(Failure::Reported(1)) } else { Ok(()) }
    }
}

fn label(launch: &Captured) -> String {
    launch.label.as_ref().map_or_else(String::new, |label| format!(", {label}"))
}

fn text(outcome: &Outcome) -> String {
    let text = match outcome {
        Outcome::Equal => "equal".into(),
        Outcome::Differs(differences) => {
            differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
        Outcome::Fails(error) => format!("fails: {error}"),
        Outcome::FailsAgain(error) => format!("fails as when captured: {error}"),
        Outcome::FailedBefore(error) => {
            format!("does not fail; when captured, its submission failed: {error}")
        }
        Outcome::NotRun(why) => format!("not run: {why}"),
        _ => "unknown".into(),
    };
    visible(&text)
}

fn describe(number: usize, launch: &Captured, outcome: &Outcome) -> Value {
    let kind = match outcome {
        Outcome::Equal => "equal",
        Outcome::Differs(_) => "differs",
        Outcome::Fails(_) => "fails",
        Outcome::FailsAgain(_) => "fails_again",
        Outcome::FailedBefore(_) => "failed_before",
        _ => "not_run",
    };
    let differences = match outcome {
        Outcome::Differs(differences) => differences.as_slice(),
        _ => &[],
    };
    let differences: Vec<Value> = differences
        .iter()
        .map(|difference| {
            json!({
                "argument": difference.argument.1, "index": difference.argument.0, "element": difference.element,
                "captured": difference.captured, "replayed": difference.replayed,
                "differ": difference.count.0, "of": difference.count.1,
            })
        })
        .collect();
    json!({
        "launch": number, "kernel": launch.kernel, "label": launch.label.as_ref().map(ToString::to_string), "bytes": launch.bytes,
        "outcome": kind, "text": text(outcome), "differences": differences,
    })
}
