//! `elinvar launch`: starts a program several times, as the processes of a job.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use clap::Args;
use elinvar::Board;

use crate::failure::{Failure, Result};

/// Interval at which the processes are observed.
const INTERVAL: Duration = Duration::from_millis(2);

/// Start a program several times on this machine, as the processes of a job
///
/// Each process has its rank in ELINVAR_RANK, the number of processes in ELINVAR_SIZE, and joins the others with `Communicator::world`. When one fails, the
/// others learn that it has, and how. If ELINVAR_CPU_DEVICES is not set, the processes divide the CPU.
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar launch -n 4 -- ./program --steps 10")]
pub struct Launch {
    /// Number of processes, 1 to 1024
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: u32,
    /// When a process has failed: seconds until those that are left are killed
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    grace: u64,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

/// The processes, killed when it is dropped.
struct Job {
    folder: PathBuf,
    name: String,
    children: Vec<(u32, Child)>,
}

impl Launch {
    pub fn run(self) -> Result<()> {
        let machine = |error: &dyn std::fmt::Display| Failure::Machine(format!("launch: {error}"));
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        let name = format!("{}-{since:x}", std::process::id());
        let path = folder.join(format!("elinvar-{name}-board"));
        let board = Board::create(&path, self.processes).map_err(|error| machine(&error))?;
        let mut job = Job { folder, name, children: Vec::new() };
        for rank in 0..self.processes {
            job.children.push((rank, self.start(rank, &job.name, &path)?));
        }
        let mut first: Option<(u32, ExitStatus, Instant)> = None;
        while !job.children.is_empty() {
            let mut at = 0;
            while at < job.children.len() {
                let (rank, child) = &mut job.children[at];
                let Some(status) = child.try_wait().map_err(|error| machine(&error))? else {
                    at += 1;
                    continue;
                };
                let rank = *rank;
                board.ended(rank, &how(status)).map_err(|error| machine(&error))?;
                if !status.success() {
                    eprintln!("launch: rank {rank} {}", how(status));
                    first.get_or_insert((rank, status, Instant::now()));
                }
                job.children.swap_remove(at);
            }
            if first.is_some_and(|(.., since)| since.elapsed() >= Duration::from_secs(self.grace)) {
                let left: Vec<u32> = job.children.iter().map(|(rank, _)| *rank).collect();
                eprintln!("launch: killing {left:?}, which have not ended in {} s", self.grace);
                break;
            }
            std::thread::sleep(INTERVAL);
        }
        match first {
            None => Ok(()),
            Some((rank, status, _)) => Err(Failure::Machine(format!("launch: rank {rank} {}", how(status)))),
        }
    }

    fn start(&self, rank: u32, job: &str, board: &Path) -> Result<Child> {
        let (name, arguments) = self.program.split_first().ok_or_else(|| Failure::usage("no program"))?;
        let (size, number) = (self.processes.to_string(), rank.to_string());
        let mut command = Command::new(name);
        command.args(arguments).env("ELINVAR_RANK", &number).env("ELINVAR_LOCAL_RANK", &number);
        command.env("ELINVAR_SIZE", &size).env("ELINVAR_JOB", job).env("ELINVAR_BOARD", board);
        if std::env::var_os("ELINVAR_CPU_DEVICES").is_none() {
            command.env("ELINVAR_CPU_DEVICES", &size);
        }
        #[cfg(target_os = "linux")]
        end_with_this_process(&mut command);
        command.spawn().map_err(|error| Failure::input(format!("`{name}`: {error}")))
    }
}

/// Has the kernel kill the process when this one ends, however it does (`PR_SET_PDEATHSIG`). Processes that it starts in turn are not covered.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // code between fork and exec
fn end_with_this_process(command: &mut Command) {
    use std::os::unix::process::CommandExt;

    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
    let launcher = getpid();
    let set = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before the call.
        match getppid() == Some(launcher) {
            true => Ok(()),
            false => Err(std::io::Error::other("the launcher has ended")),
        }
    };
    // SAFETY: two system calls, which are async-signal-safe. `Error::other` allocates only where the process ends at once.
    unsafe { command.pre_exec(set) };
}

/// How a process has ended.
fn how(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("was killed by signal {signal}");
    }
    match status.code() {
        Some(0) => "has ended".into(),
        Some(code) => format!("has ended with exit code {code}"),
        None => "has ended in an unknown way".into(),
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            // It may have ended.
            let _killed = child.kill();
            let _reaped = child.wait();
        }
        // Files of communicators that not all ranks have joined.
        let prefix = format!("elinvar-{}-", self.name);
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let _removed = std::fs::remove_file(entry.path());
            }
        }
    }
}
