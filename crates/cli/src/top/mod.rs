//! `elinvar top`: what a program does on its devices, live.
//!
//! The program writes a profile (`ELINVAR_PROFILE`), of which this reads what is new. On a terminal it draws a screen; elsewhere it prints each frame.

mod lines;
mod state;
mod view;

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::crossterm::tty::IsTty as _;

use crate::failure::{Failure, Result};
use crate::report::say;
use lines::Lines;
use state::State;

/// Show live what a program does on its devices
///
/// For each device: the share of the time in which it executes something, submissions, memory, and the kernels by their time since the last
/// frame. Keys: `q` quits, `p` pauses.
///
/// Either starts a program that links Elinvar, or reads the file that a program writes which runs with ELINVAR_PROFILE=FILE. Recording costs what
/// a trace of launches costs.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  elinvar top -- ./program --steps 10\n  ELINVAR_PROFILE=/tmp/profile ./program &\n  elinvar top /tmp/profile"
)]
pub struct Top {
    /// The profile of a running program
    #[arg(value_name = "FILE", conflicts_with = "program", required_unless_present = "program")]
    file: Option<PathBuf>,
    /// Seconds between frames, 0.1 to 60
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: f64,
    /// Quit after this many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    frames: Option<u64>,
    /// A program and its arguments. Its output is shown when it has ended
    #[arg(last = true)]
    program: Vec<String>,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match (0.1..=60.0).contains(&value) {
        true => Ok(value),
        false => Err("not between 0.1 and 60".into()),
    }
}

/// A program that was started, with its output.
struct Program {
    name: String,
    child: Child,
    output: tempfile::NamedTempFile,
}

impl Program {
    fn start(words: &[String], profile: &std::path::Path) -> Result<Self> {
        let (name, arguments) = words.split_first().ok_or_else(|| Failure::usage("no program"))?;
        let failed = |error: std::io::Error| Failure::Machine(format!("the program's output: {error}"));
        let output = tempfile::NamedTempFile::new().map_err(failed)?;
        // Both append, so that neither overwrites the other.
        let append = || std::fs::File::options().append(true).open(output.path()).map_err(failed);
        let (out, errors) = (append()?, append()?);
        let child = Command::new(name)
            .args(arguments)
            .env("ELINVAR_PROFILE", profile)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(errors)
            .spawn()
            .map_err(|error| Failure::input(format!("`{name}`: {error}")))?;
        Ok(Self { name: name.clone(), child, output })
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Prints what the program has printed, and how it ended.
    fn report(mut self) -> Result<()> {
        if self.ended().is_none() {
            // It was started for this.
            let _gone = self.child.kill();
        }
        let status = self.child.wait().map_err(|error| Failure::Machine(error.to_string()))?;
        let text = std::fs::read(self.output.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if !text.is_empty() {
            say(text.trim_end())?;
        }
        say(format_args!("`{}`: {status}", self.name))
    }
}

impl Top {
    pub fn run(self) -> Result<()> {
        let profile = match &self.file {
            Some(_) => None,
            None => Some(tempfile::NamedTempFile::new()),
        };
        let profile = profile.transpose().map_err(|error| Failure::Machine(error.to_string()))?;
        let path = self.file.as_deref().or(profile.as_ref().map(tempfile::NamedTempFile::path));
        let path = path.ok_or_else(|| Failure::usage("no file"))?.to_owned();
        let mut lines = Lines::open(&path)?;
        let mut program = match self.program.is_empty() {
            true => None,
            false => Some(Program::start(&self.program, &path)?),
        };
        let shown = match std::io::stdout().is_tty() {
            true => self.on_terminal(&mut lines, &mut program),
            false => self.as_text(&mut lines, &mut program),
        };
        program.map_or(Ok(()), Program::report)?;
        shown
    }

    /// Whether a frame of this number, counted from 1, is the last.
    fn is_last(&self, number: u64, program: &mut Option<Program>) -> bool {
        self.frames == Some(number) || program.as_mut().is_some_and(|program| program.ended().is_some())
    }

    fn as_text(&self, lines: &mut Lines, program: &mut Option<Program>) -> Result<()> {
        let (mut state, mut last) = (State::default(), Instant::now());
        for number in 1.. {
            let begin = Instant::now();
            let interval = Duration::from_secs_f64(self.interval);
            while begin.elapsed() < interval
                && program.as_mut().is_none_or(|program| program.ended().is_none())
            {
                std::thread::sleep(Duration::from_millis(20).min(interval));
            }
            // The program has ended before its last lines are read.
            let is_last = self.is_last(number, program);
            state.add(&lines.read()?);
            say(view::text(&state.frame(last.elapsed().as_secs_f64())))?;
            last = Instant::now();
            if is_last {
                break;
            }
        }
        match state.unknown {
            0 => Ok(()),
            count => {
                Err(Failure::input(format!("{count} lines of {} are not those of a profile", lines.name())))
            }
        }
    }

    fn on_terminal(&self, lines: &mut Lines, program: &mut Option<Program>) -> Result<()> {
        let failed = |error: std::io::Error| Failure::Machine(format!("the terminal: {error}"));
        let mut terminal = ratatui::try_init().map_err(failed)?;
        let (mut state, mut last, mut paused) = (State::default(), Instant::now(), false);
        let mut frame = state.frame(1.0);
        let mut run = || -> Result<()> {
            for number in 1.. {
                let next = Instant::now() + Duration::from_secs_f64(self.interval);
                loop {
                    terminal.draw(|area| view::draw(area, &frame, paused)).map_err(failed)?;
                    let left = next.saturating_duration_since(Instant::now());
                    if left.is_zero() || !event::poll(left).map_err(failed)? {
                        break;
                    }
                    if let Event::Key(key) = event::read().map_err(failed)? {
                        let interrupts =
                            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                        match key.code {
                            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                            _ if interrupts => return Ok(()),
                            KeyCode::Char('p') => paused = !paused,
                            _ => {}
                        }
                    }
                }
                let is_last = self.is_last(number, program);
                if !paused || is_last {
                    state.add(&lines.read()?);
                    frame = state.frame(last.elapsed().as_secs_f64());
                    last = Instant::now();
                }
                if is_last {
                    break;
                }
            }
            Ok(())
        };
        let ended = run();
        ratatui::try_restore().map_err(failed)?;
        ended?;
        // What was on the screen stays.
        say(view::text(&frame))
    }
}
