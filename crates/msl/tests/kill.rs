//! What a process has started ends with it, and what it has put into the folder for temporary files goes.
#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Stdio};

use elinvar_msl::process::{self, Limits};
use elinvar_msl::scratch::Scratch;
use rustix::process::{Pid, Signal};

const FOLDER: &str = "ELINVAR_TEST_KILL_FOLDER";

/// Run by the test below: starts a tool that never ends, from a thread that does.
#[test]
fn plays_the_parent() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let pids = Path::new(&folder).join("pids");
    let scratch = Scratch::new().unwrap();
    std::fs::write(scratch.path().join("large"), [1; 100_000]).unwrap();
    std::thread::spawn(move || {
        let mut tool = Command::new("sh");
        let script = "trap '' INT HUP; sleep 100000 & echo $$ $! > \"$0.new\"; mv \"$0.new\" \"$0\"; wait";
        let limits = Limits { time: std::time::Duration::from_secs(100_000), ..Limits::default() };
        process::run(tool.args(["-c", script]).arg(pids).stdin(Stdio::null()), &limits).unwrap();
    });
    std::thread::sleep(std::time::Duration::from_secs(100_000));
}

fn runs(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|line| !line.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}

#[test]
#[cfg(target_os = "linux")]
fn tools_and_files_go_with_a_process_that_is_killed() {
    // A shell's background jobs ignore SIGINT and SIGQUIT, and pass that on: SIGUSR1 ends a process as these do.
    for signal in [Signal::KILL, Signal::USR1, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let temporary = folder.path().join("a 'b' \"c\"");
        std::fs::create_dir(&temporary).unwrap();
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "plays_the_parent", "--nocapture"])
            .env(FOLDER, folder.path())
            .env("TMPDIR", &temporary)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pids = loop {
            match std::fs::read_to_string(folder.path().join("pids")) {
                Ok(pids) => break pids,
                Err(_) => assert!(parent.try_wait().unwrap().is_none(), "the parent has ended"),
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        let pids: Vec<&str> = pids.split_whitespace().collect();
        assert!(pids.len() == 2 && pids.iter().all(|pid| runs(pid)), "{pids:?}");
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1);
        rustix::process::kill_process(Pid::from_child(&parent), signal).unwrap();
        parent.wait().unwrap();
        // The kernel may take a moment over it.
        while pids.iter().any(|pid| runs(pid)) || std::fs::read_dir(&temporary).unwrap().count() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
