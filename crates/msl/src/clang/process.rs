//! Runs a tool with limits on time, memory and output.
//!
//! A tool runs in its own process group, which is killed as a whole when a limit is exceeded. The time limit is [`Limits::time`]
//! (120 seconds, or `ELINVAR_COMPILE_TIMEOUT`), the memory limit [`Limits::memory`] (4 GiB, or `ELINVAR_COMPILE_MEMORY`).
//!
//! On Linux the time limit applies to the processor time of the group, so that a busy machine does not make compilation fail. A
//! group that makes no progress for that long is killed, too. On other systems the limit applies to wall-clock time.
//!
//! The group does not outlive this process. Its leader is a shell, the watchdog, that reads from a pipe whose write end is here:
//! at end of file it removes the directories of [`crate::clang::scratch`] and kills the group. The tool can only start as a
//! member of a live group. `PR_SET_PDEATHSIG` would fire when the *thread* that started the tool exits, and needs code between
//! fork and exec.

use std::io::Read;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use elinvar_driver::Cancellation;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::clang::scratch;

/// Resource limits of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Processor time (wall-clock time except on Linux) until it has exited and its output has ended. Also the maximum wall-clock time
    /// in which it uses less than 1 % of a processor.
    pub time: Duration,
    /// Bytes written to standard output.
    pub stdout: u64,
    /// Bytes written to standard error.
    pub stderr: u64,
    /// Bytes of writable memory (`RLIMIT_DATA`); Linux only.
    pub memory: u64,
    /// Bytes of a file that it writes (`RLIMIT_FSIZE`); Linux only.
    pub file: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(120),
            stdout: 256 << 20,
            stderr: 4 << 20,
            memory: 4 << 30,
            file: 1 << 30,
        }
    }
}

impl Limits {
    /// The default limits, with `ELINVAR_COMPILE_TIMEOUT` (seconds) and `ELINVAR_COMPILE_MEMORY` (bytes, or with suffix `M` or
    /// `G`).
    ///
    /// # Errors
    /// When a variable is set and is not a positive number.
    pub fn from_env() -> Result<Self, String> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let mut limits = match set("ELINVAR_COMPILE_TIMEOUT") {
            Some(value) => Self::with_time(&value.to_string_lossy())?,
            None => Self::default(),
        };
        if let Some(value) = set("ELINVAR_COMPILE_MEMORY") {
            limits.memory = bytes(&value.to_string_lossy())?;
        }
        Ok(limits)
    }

    fn with_time(seconds: &str) -> Result<Self, String> {
        let time = seconds.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds < 1e9);
        let time = time.map(Duration::from_secs_f64).ok_or_else(|| {
            format!("ELINVAR_COMPILE_TIMEOUT=`{seconds}` is not a positive number of seconds")
        })?;
        Ok(Self { time, ..Self::default() })
    }
}

/// Variables that add directories and options which cache keys do not cover.
const REMOVED_VARIABLES: [&str; 12] = [
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "CC_PRINT_OPTIONS",
    "CC_PRINT_HEADERS",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "LIBRARY_PATH",
    "LD_RUN_PATH",
    "SOURCE_DATE_EPOCH",
];

/// Parse a number of bytes with an optional suffix `M` or `G`.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.filter(|number| *number > 0).ok_or_else(|| {
        format!("ELINVAR_COMPILE_MEMORY=`{text}` is not a number of bytes such as 4294967296, 512M or 4G")
    })
}

/// The outcome of a tool that exited by itself.
#[derive(Debug)]
pub struct Output {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// Why a tool was killed whose compilation was cancelled.
const CANCELLED: &str = "was killed: the compilation was cancelled";

/// Why a tool has no outcome.
#[derive(Debug)]
pub enum Failure {
    /// It could not be started.
    Start(std::io::Error),
    /// It was killed; the text names the limit that it exceeded.
    Killed(String),
}

enum Event {
    Output(Stream, std::io::Result<Vec<u8>>),
    Exited,
    Cancelled,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

/// Run a tool to its end and collect its output. Standard input is as `command` sets it. It is killed if the thread's compilation is
/// [cancelled](Cancellation).
///
/// # Errors
/// `Start`, or `Killed` when it exceeds a limit or is cancelled. All processes of its group are killed. A process that has left the group
/// and holds the pipes open is not waited for.
pub fn run(command: &mut Command, limits: &Limits) -> Result<Output, Failure> {
    let cancellation = Cancellation::current();
    if cancellation.as_ref().is_some_and(|cancellation| cancellation.is_cancelled()) {
        return Err(Failure::Killed(CANCELLED.into()));
    }
    for name in REMOVED_VARIABLES {
        command.env_remove(name);
    }
    let group = ProcessGroup::new();
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(group.number());
    let mut child = command.spawn().map_err(Failure::Start)?;
    apply_limits(&child, limits);
    let group = group.of(&child);
    let (sender, events) = channel();
    spawn_readers(&mut child, limits, &sender);
    let _registered = cancellation.map(|cancellation| {
        cancellation.on_cancel(move || {
            let _unheard = sender.send(Event::Cancelled);
        })
    });
    let collected = collect_output(&events, limits, || group.processor_time());
    // The child has not been reaped, so its process group ID is still valid.
    group.kill();
    let status = child.wait().map_err(Failure::Start)?;
    drop(group);
    let (stdout, stderr) = collected.map_err(Failure::Killed)?;
    exceeded_limit(status, &stderr, limits)?;
    Ok(Output { status, stdout, stderr })
}

/// Fails if a limit that the kernel enforces was exceeded.
fn exceeded_limit(status: ExitStatus, stderr: &[u8], limits: &Limits) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    if status.signal() == Some(Signal::XFSZ.as_raw()) {
        return Err(Failure::Killed(format!(
            "was killed: it wrote a file of more than {} bytes",
            limits.file
        )));
    }
    let said = String::from_utf8_lossy(stderr);
    let words =
        ["out of memory", "bad_alloc", "annot allocate memory", "memory exhausted", "Allocation failed"];
    if cfg!(target_os = "linux") && words.iter().any(|words| said.contains(words)) {
        let memory = limits.memory;
        return Err(Failure::Killed(format!(
            "needed more than {memory} bytes of memory, the limit that ELINVAR_COMPILE_MEMORY sets"
        )));
    }
    Ok(())
}

/// Apply the limits that the kernel enforces. The tool has just started.
fn apply_limits(child: &Child, limits: &Limits) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, prlimit};
        // CPU time of all threads together, for a tool that nothing else stops.
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let time = (limits.time.as_secs() + 1).saturating_mul(threads);
        let all = [
            (Resource::Data, limits.memory),
            (Resource::Fsize, limits.file),
            (Resource::Core, 0),
            (Resource::Cpu, time),
        ];
        for (resource, most) in all {
            let most = Some(most);
            if let Err(why) =
                prlimit(Some(Pid::from_child(child)), resource, Rlimit { current: most, maximum: most })
            {
                tracing::debug!("a tool has no limit of {resource:?}: {why}");
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (child, limits);
}

/// The watchdog's script: acts at the end of its standard input.
const WATCHDOG: &str = "read -r _; trap '' TERM; kill -TERM 0; rm -rf -- \"$@\"; kill -KILL 0";

/// A process group that does not outlive this process.
struct ProcessGroup {
    /// The watchdog, leader of the group. `None` where no shell can be started.
    watchdog: Option<Child>,
    /// Process group ID, once known.
    number: Option<Pid>,
}

impl ProcessGroup {
    fn new() -> Self {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", WATCHDOG, "sh"]).args(scratch::live());
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let watchdog =
            shell.spawn().inspect_err(|why| tracing::debug!("nobody watches over tools: {why}")).ok();
        Self { number: watchdog.as_ref().map(Pid::from_child), watchdog }
    }

    /// The ID as a command takes it; 0 makes the command its own leader.
    fn number(&self) -> i32 {
        self.number.map_or(0, |number| number.as_raw_nonzero().get())
    }

    fn of(mut self, child: &Child) -> Self {
        self.number.get_or_insert(Pid::from_child(child));
        self
    }

    /// Processor time of all members and of their children that have ended; `None` if the system does not report it.
    fn processor_time(&self) -> Option<Duration> {
        let group = self.number?.as_raw_nonzero().get();
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        let mut ticks = 0;
        for process in std::fs::read_dir("/proc").ok()?.flatten() {
            let is_process = process.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit());
            let stat =
                is_process.then(|| std::fs::read_to_string(process.path().join("stat")).ok()).flatten();
            ticks += stat.and_then(|stat| ticks_of(&stat, group)).unwrap_or(0);
        }
        Some(Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64))
    }

    /// Kill all members.
    fn kill(&self) {
        if let Some(number) = self.number {
            let _none_left = rustix::process::kill_process_group(number, Signal::KILL);
        }
    }
}

/// Clock ticks of a process and its ended children, from its line in `/proc/PID/stat`, if it is a member of the group (proc_pid_stat(5)).
fn ticks_of(stat: &str, group: i32) -> Option<u64> {
    // The command's name, in parentheses, may contain anything.
    let mut fields = stat.rsplit_once(") ")?.1.split_ascii_whitespace();
    let [_state, _parent, process_group] = [fields.next()?, fields.next()?, fields.next()?];
    if process_group.parse() != Ok(group) {
        return None;
    }
    // utime, stime, cutime and cstime are fields 14 to 17; the process group is field 5.
    fields.skip(8).take(4).map(|ticks| ticks.parse::<u64>().ok()).sum()
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(watchdog) = &mut self.watchdog {
            let _ended = watchdog.kill();
            let _ended = watchdog.wait();
        }
    }
}

/// Start threads that report output and exit of the child. They end with the child and its pipes.
fn spawn_readers(child: &mut Child, limits: &Limits, sender: &Sender<Event>) {
    let reader = |from: Option<Box<dyn Read + Send>>, stream, limit: u64, sender: Sender<Event>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = from.map_or(Ok(0), |from| from.take(limit + 1).read_to_end(&mut bytes));
            let _unheard = sender.send(Event::Output(stream, read.map(|_| bytes)));
        });
    };
    let out = child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    reader(out, Stream::Out, limits.stdout, sender.clone());
    let err = child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    reader(err, Stream::Err, limits.stderr, sender.clone());
    let (pid, sender) = (Pid::from_child(child), sender.clone());
    std::thread::spawn(move || {
        let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(rustix::process::waitid(WaitId::Pid(pid), only_look), Err(rustix::io::Errno::INTR)) {}
        let _unheard = sender.send(Event::Exited);
    });
}

/// Share of a processor below which a tool makes no progress. A machine would have to be overloaded a hundredfold to give it less.
const LEAST_SHARE: f64 = 0.01;
/// Minimum interval between two checks of the time limit.
const SHORTEST_CHECK: Duration = Duration::from_millis(20);

/// Tracks the time limit of a tool that has just started.
struct TimeLimit {
    limit: Duration,
    /// Time at which progress was last seen, and the processor time used by then.
    progress: (Instant, Duration),
    next_check: Instant,
}

impl TimeLimit {
    fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self { limit, progress: (now, Duration::ZERO), next_check: now + limit }
    }

    /// Time until the next check.
    fn left(&self) -> Duration {
        self.next_check.saturating_duration_since(Instant::now())
    }

    /// Checks the limit when no time is [`left`](Self::left). `used` is the processor time so far, `None` if it is unknown.
    ///
    /// # Errors
    /// The limit was exceeded.
    fn check(&mut self, used: Option<Duration>) -> Result<(), String> {
        let (now, seconds) = (Instant::now(), self.limit.as_secs_f64());
        let exceeded = |what: &str| {
            Err(format!(
                "was killed after {seconds} seconds{what}, the limit that ELINVAR_COMPILE_TIMEOUT sets"
            ))
        };
        let Some(used) = used else { return exceeded("") };
        if used >= self.limit {
            return exceeded(" of processor time");
        }
        let (since, before) = self.progress;
        let elapsed = now.saturating_duration_since(since);
        if elapsed >= self.limit {
            if used.saturating_sub(before) < elapsed.mul_f64(LEAST_SHARE) {
                return exceeded(" without progress");
            }
            self.progress = (now, used);
        }
        let cpu_check = now + (self.limit - used).max(SHORTEST_CHECK);
        self.next_check = cpu_check.min(self.progress.0 + self.limit);
        Ok(())
    }
}

/// Wait for both outputs and the exit.
///
/// # Errors
/// The limit that was exceeded.
fn collect_output(
    events: &Receiver<Event>,
    limits: &Limits,
    processor_time: impl Fn() -> Option<Duration>,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut time = TimeLimit::new(limits.time);
    let (mut stdout, mut stderr, mut ended) = (None, None, false);
    while !ended || stdout.is_none() || stderr.is_none() {
        match events.recv_timeout(time.left()) {
            Ok(Event::Exited) => ended = true,
            Ok(Event::Cancelled) => return Err(CANCELLED.into()),
            Ok(Event::Output(stream, bytes)) => {
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
            Err(RecvTimeoutError::Timeout) => time.check(processor_time())?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err("was killed: a thread that reads its output has ended".into());
            }
        }
    }
    Ok((stdout.unwrap_or_default(), stderr.unwrap_or_default()))
}

/// Quote words for a POSIX shell.
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

    fn shell(script: &str, limits: &Limits) -> Result<Output, Failure> {
        run(Command::new("sh").args(["-c", script]).stdin(Stdio::null()), limits)
    }

    fn killed(script: &str, limits: &Limits) -> String {
        match shell(script, limits) {
            Err(Failure::Killed(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    const SHORT: Limits = Limits {
        time: Duration::from_millis(300),
        stdout: 1000,
        stderr: 1000,
        memory: 1 << 30,
        file: 1 << 20,
    };
    const LONG: Limits = Limits { time: Duration::from_secs(600), ..SHORT };

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
        let exact = shell("head -c 1000 /dev/zero", &LONG).unwrap();
        assert_eq!(exact.stdout.len(), 1000);
        let missing = run(&mut Command::new("/nowhere/tool"), &SHORT);
        assert!(matches!(missing, Err(Failure::Start(_))));
    }

    #[test]
    fn a_tool_whose_compilation_is_cancelled_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let cancellation = Cancellation::new();
        let script = format!("echo $$ > {}; exec sleep 1000", file.display());
        std::thread::scope(|scope| {
            let tool = scope.spawn(|| cancellation.run(|| shell(&script, &LONG)));
            let pid = loop {
                match std::fs::read_to_string(&file) {
                    Ok(pid) if pid.ends_with('\n') => break pid,
                    _ => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            assert!(runs(&pid));
            cancellation.cancel();
            let ended = tool.join().unwrap();
            assert!(matches!(&ended, Err(Failure::Killed(why)) if why == CANCELLED), "{ended:?}");
            assert!(!runs(&pid));
        });
        // What it begins later does not start.
        let later = cancellation.run(|| shell(&format!("rm {}", file.display()), &LONG));
        assert!(matches!(later, Err(Failure::Killed(_))) && file.exists());
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
            let _old = std::fs::remove_file(&file);
            let mut time = SHORT.time;
            // Killed before it has got so far, on a busy machine, it is given more time.
            let pid = loop {
                let why = killed(&script, &Limits { time, ..SHORT });
                let seconds = time.as_secs_f64();
                let what = if cfg!(target_os = "linux") { " without progress" } else { "" };
                let limit = format!("was killed after {seconds} seconds{what}, the limit");
                assert_eq!(why, format!("{limit} that ELINVAR_COMPILE_TIMEOUT sets"));
                match std::fs::read_to_string(&file) {
                    Ok(pid) if pid.ends_with('\n') => break pid,
                    _ => time *= 2,
                }
            };
            // The kill has been sent; the kernel may take a moment over it.
            while runs(&pid) {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_time_limit_counts_processor_time() {
        let why = killed("while :; do :; done", &SHORT);
        assert_eq!(
            why,
            "was killed after 0.3 seconds of processor time, the limit that ELINVAR_COMPILE_TIMEOUT sets"
        );
        // A child's time counts, too.
        let why = killed("(while :; do :; done) & wait", &SHORT);
        assert!(why.contains("of processor time"), "{why}");
        // It takes longer than the limit, and works for a part of the time.
        let work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.4";
        let script = format!("for round in 1 2 3 4 5 6; do {work}; done; echo done");
        let limits = Limits { time: Duration::from_millis(1200), ..SHORT };
        assert_eq!(shell(&script, &limits).unwrap().stdout, b"done\n");
    }

    #[test]
    fn the_processor_time_of_a_process_is_read_from_its_line() {
        let line = "12 (a) b) R 1 77 5 0 -1 4194304 100 0 0 0 10 20 3 4 20 0 1 0 99 0 0";
        assert_eq!(ticks_of(line, 77), Some(37));
        assert_eq!(ticks_of(line, 1), None);
        assert_eq!(ticks_of("12 (a) R 1 77", 77), Some(0));
        assert_eq!(ticks_of("", 77), None);
    }

    #[test]
    fn a_tool_that_does_not_stop_talking_is_killed() {
        let limits = LONG;
        let why = killed("yes", &limits);
        assert_eq!(why, "was killed: it wrote more than 1000 bytes to standard output");
        let why = killed("yes >&2", &limits);
        assert_eq!(why, "was killed: it wrote more than 1000 bytes to standard error");
    }

    #[test]
    fn nothing_of_a_tool_is_left_behind_it() {
        let finished = shell("sleep 1000 >/dev/null 2>&1 & echo $!", &LONG).unwrap();
        let pid = String::from_utf8(finished.stdout).unwrap();
        while runs(&pid) {
            std::thread::yield_now();
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_and_files_have_limits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("large").display().to_string();
        // The limits are there a moment after the start.
        let wait = "while [ \"$(ulimit -c)\" != 0 ] || [ \"$(ulimit -f)\" = unlimited ]; do :; done;";
        let why = killed(&format!("{wait} exec head -c 2000000 /dev/zero > {file}"), &LONG);
        assert_eq!(why, "was killed: it wrote a file of more than 1048576 bytes");
        assert!(std::fs::metadata(&file).unwrap().len() <= 1 << 20);
        let why = killed(&format!("{wait} exec dd if=/dev/zero of=/dev/null bs=2G count=1"), &LONG);
        assert!(why.starts_with("needed more than 1073741824 bytes of memory"), "{why}");
    }

    #[test]
    fn the_memory_is_a_number_of_bytes() {
        assert_eq!((bytes("7"), bytes("512M"), bytes("4g")), (Ok(7), Ok(512 << 20), Ok(4 << 30)));
        for wrong in ["0", "-1", "G", "much", "99999999999G"] {
            assert!(bytes(wrong).unwrap_err().contains(wrong));
        }
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
