//! Running a tool that may crash, hang or never stop talking.
//!
//! A tool runs in a process group of its own. When its time is up, or it says more than it may, the whole
//! group is killed, so that what the tool has started goes with it. The time is [`Limits::time`], 120 seconds
//! or what `ELINVAR_COMPILE_TIMEOUT` says.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// What a tool may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From its start to its end and the end of its output.
    pub time: Duration,
    /// Bytes on its standard output.
    pub stdout: u64,
    /// Bytes on its standard error.
    pub stderr: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(120), stdout: 256 << 20, stderr: 4 << 20 }
    }
}

impl Limits {
    /// The limits, with the time that `ELINVAR_COMPILE_TIMEOUT` gives in seconds.
    ///
    /// # Errors
    /// When it is set and is no number of seconds above 0.
    pub fn from_env() -> Result<Self, String> {
        match std::env::var_os("ELINVAR_COMPILE_TIMEOUT").filter(|value| !value.is_empty()) {
            Some(value) => Self::with_time(&value.to_string_lossy()),
            None => Ok(Self::default()),
        }
    }

    fn with_time(seconds: &str) -> Result<Self, String> {
        let time = seconds.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds < 1e9);
        let time = time
            .map(Duration::from_secs_f64)
            .ok_or_else(|| format!("ELINVAR_COMPILE_TIMEOUT=`{seconds}` is no number of seconds above 0"))?;
        Ok(Self { time, ..Self::default() })
    }
}

/// How a tool ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
}

/// Why there is no answer of a tool.
#[derive(Debug)]
pub enum Failure {
    /// It could not be started.
    Start(std::io::Error),
    /// It was killed; the text says which limit it broke.
    Killed(String),
}

enum Event {
    Said(Stream, std::io::Result<Vec<u8>>),
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

/// Run a tool to its end and take what it says. Its standard input is as `command` has it.
///
/// # Errors
/// `Start`, or `Killed` when a limit was broken: nothing of its process group is left then. A process that
/// has left the group and holds the output open is not waited for.
pub fn run(command: &mut Command, limits: &Limits) -> Result<Finished, Failure> {
    use std::os::unix::process::CommandExt as _;
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(Failure::Start)?;
    let events = watch(&mut child, limits);
    let heard = listen(&events, limits);
    if heard.is_err() {
        // The child has not been waited for, so the number is still its group's.
        let _none_left = rustix::process::kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    let status = child.wait().map_err(Failure::Start)?;
    let (stdout, stderr) = heard.map_err(Failure::Killed)?;
    Ok(Finished { status, stdout, stderr })
}

/// Threads that report what the child says and that it has ended; they end with the child and its output.
fn watch(child: &mut Child, limits: &Limits) -> Receiver<Event> {
    let (sender, events) = channel();
    let reader = |from: Option<Box<dyn Read + Send>>, stream, limit: u64, sender: Sender<Event>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = from.map_or(Ok(0), |from| from.take(limit + 1).read_to_end(&mut bytes));
            let _unheard = sender.send(Event::Said(stream, read.map(|_| bytes)));
        });
    };
    let out = child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    reader(out, Stream::Out, limits.stdout, sender.clone());
    let err = child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    reader(err, Stream::Err, limits.stderr, sender.clone());
    let pid = Pid::from_child(child);
    std::thread::spawn(move || {
        let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(rustix::process::waitid(WaitId::Pid(pid), only_look), Err(rustix::io::Errno::INTR)) {}
        let _unheard = sender.send(Event::Ended);
    });
    events
}

/// Both outputs, once they and the child have ended; or the limit that was broken.
fn listen(events: &Receiver<Event>, limits: &Limits) -> Result<(Vec<u8>, Vec<u8>), String> {
    let deadline = Instant::now() + limits.time;
    let (mut stdout, mut stderr, mut ended) = (None, None, false);
    while !ended || stdout.is_none() || stderr.is_none() {
        let left = deadline.saturating_duration_since(Instant::now());
        match events.recv_timeout(left) {
            Ok(Event::Ended) => ended = true,
            Ok(Event::Said(stream, bytes)) => {
                let (place, name, limit) = match stream {
                    Stream::Out => (&mut stdout, "standard output", limits.stdout),
                    Stream::Err => (&mut stderr, "standard error", limits.stderr),
                };
                let bytes = bytes.map_err(|error| format!("was killed: cannot read its {name}: {error}"))?;
                if bytes.len() as u64 > limit {
                    return Err(format!("was killed: it wrote more than {limit} bytes to {name}"));
                }
                *place = Some(bytes);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let seconds = limits.time.as_secs_f64();
                return Err(format!(
                    "was killed after {seconds} seconds, the limit that ELINVAR_COMPILE_TIMEOUT sets"
                ));
            }
        }
    }
    Ok((stdout.unwrap_or_default(), stderr.unwrap_or_default()))
}

/// A command line that a shell takes.
pub fn quoted<'a>(words: impl IntoIterator<Item = &'a std::ffi::OsStr>) -> String {
    let quoted = words.into_iter().map(|word| {
        let word = word.to_string_lossy();
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=+,:".contains(c));
        if plain && !word.is_empty() {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limits: &Limits) -> Result<Finished, Failure> {
        run(Command::new("sh").args(["-c", script]).stdin(Stdio::null()), limits)
    }

    fn killed(script: &str, limits: &Limits) -> String {
        match shell(script, limits) {
            Err(Failure::Killed(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    const SHORT: Limits = Limits { time: Duration::from_millis(300), stdout: 1000, stderr: 1000 };

    /// Whether a process is there and not just waiting to be collected.
    fn runs(pid: &str) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        state.is_ok_and(|line| !line.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
    }

    #[test]
    fn a_tool_that_ends_is_heard_in_full() {
        let finished = shell("echo out; echo err >&2; exit 3", &Limits::default()).unwrap();
        assert_eq!((&finished.stdout[..], &finished.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(finished.status.code(), Some(3));
        let exact = shell("head -c 1000 /dev/zero", &SHORT).unwrap();
        assert_eq!(exact.stdout.len(), 1000);
        let missing = run(&mut Command::new("/nowhere/tool"), &SHORT);
        assert!(matches!(missing, Err(Failure::Start(_))));
    }

    #[test]
    fn a_tool_that_hangs_is_killed_with_all_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid").display().to_string();
        for script in [
            format!("sleep 1000 & echo $! > {file}; wait"),
            format!("sleep 1000 & echo $! > {file}"),
            format!("exec >&- 2>&-; echo $$ > {file}; exec sleep 1000"),
        ] {
            let why = killed(&script, &SHORT);
            assert_eq!(why, "was killed after 0.3 seconds, the limit that ELINVAR_COMPILE_TIMEOUT sets");
            let pid = std::fs::read_to_string(&file).unwrap();
            // The kill has been sent; the kernel may take a moment over it.
            while runs(&pid) {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_tool_that_does_not_stop_talking_is_killed() {
        let limits = Limits { time: Duration::from_secs(60), ..SHORT };
        let why = killed("yes", &limits);
        assert_eq!(why, "was killed: it wrote more than 1000 bytes to standard output");
        let why = killed("yes >&2", &limits);
        assert_eq!(why, "was killed: it wrote more than 1000 bytes to standard error");
    }

    #[test]
    fn the_time_is_a_number_of_seconds() {
        assert_eq!(Limits::with_time("1.5").unwrap().time, Duration::from_millis(1500));
        for wrong in ["0", "-1", "soon", "NaN", "inf"] {
            assert!(Limits::with_time(wrong).unwrap_err().contains(wrong));
        }
    }

    #[test]
    fn command_lines_are_quoted() {
        assert_eq!(quoted(["a", "b c", "", "it's"].map(AsRef::as_ref)), "a 'b c' '' 'it'\\''s'");
    }
}
