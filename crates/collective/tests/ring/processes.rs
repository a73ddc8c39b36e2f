//! Members in processes of their own, which are this test program: results, and ranks that are killed at a random moment.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use elinvar_collective::{Board, Ring};
use elinvar_driver::{Collective, Error, Member, Reduction, Scalar, Storage};

use crate::memory::{bytes, call, slice};

/// Time within which the others must have noticed.
const TIMEOUT: Duration = Duration::from_secs(20);
const SIZE: u32 = 4;

/// A member, if this process is one: it sums until a rank fails, then goes on with who is left.
#[test]
fn member() {
    let Ok(rank) = std::env::var("TEST_RANK") else { return };
    let (rank, path): (u32, _) = (rank.parse().unwrap(), std::env::var("TEST_PATH").unwrap());
    let rounds: u32 = std::env::var("TEST_ROUNDS").unwrap().parse().unwrap();
    let mut member: Box<dyn Member> = match Ring::join(Path::new(&path), rank, SIZE, TIMEOUT) {
        Ok(member) => Box::new(member),
        Err(error) => return println!("error: {error}"),
    };
    let mut members = SIZE;
    let mut round = 0;
    while round < rounds {
        let count = 1 + round as usize * 7919 % 300_000;
        let (source, target) =
            (slice(&vec![1; count], Storage::Shared), slice(&vec![0; count], Storage::Shared));
        let reduction = Reduction::Sum;
        let call = call(Collective::AllReduce { reduction }, Scalar::U8, count, Some(source), Some(target));
        match member.run(&call) {
            Ok(()) => assert!(bytes(&call.target.unwrap()) == vec![members as u8; count]),
            Err(error @ Error::RankFailed { .. }) if members == SIZE => {
                println!("error: {error}");
                member = member.shrink(TIMEOUT).unwrap_or_else(|error| panic!("rank {rank}: {error}"));
                members = member.size();
                // All have the same number of rounds left.
                round = rounds - 3;
                continue;
            }
            Err(error) => panic!("rank {rank}: {error}"),
        }
        round += 1;
    }
    println!("ended with {members}");
}

struct Job {
    folder: tempfile::TempDir,
    children: Vec<Child>,
    board: Option<Board>,
}

impl Job {
    fn start(rounds: u32, has_board: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let board = folder.path().join("board");
        let made = has_board.then(|| Board::create(&board, SIZE).unwrap());
        let start = |rank: u32| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "processes::member", "--nocapture"]);
            command.env("TEST_RANK", rank.to_string()).env("TEST_PATH", folder.path().join("segment"));
            command.env("TEST_ROUNDS", rounds.to_string());
            if has_board {
                command.env("ELINVAR_BOARD", &board);
            }
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let children = (0..SIZE).map(start).collect();
        Self { folder, children, board: made }
    }

    /// What each process has written. A launcher removes the file of a communicator that not all have joined.
    fn end(self) -> Vec<String> {
        let end = |child: Child| {
            let output = child.wait_with_output().unwrap();
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        };
        let texts: Vec<String> = self.children.into_iter().map(end).collect();
        let left: Vec<_> =
            std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let is_early = texts.iter().any(|text| text.contains("error:") && !text.contains("ended with"));
        let may_stay = |name: &std::ffi::OsString| name == "board" || (is_early && name == "segment");
        assert!(left.iter().all(may_stay), "files are left: {left:?}");
        texts
    }
}

#[test]
fn processes_compute_the_sum() {
    for text in Job::start(60, false).end() {
        assert!(text.contains("ended with 4") && !text.contains("error"), "{text}");
    }
}

/// Fifty times a rank is killed, before, while or after it joins: every other rank reports it in time, and the rest go on.
#[test]
fn a_rank_is_killed_at_a_random_moment() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for turn in 0..50 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (victim, delay) = ((seed >> 33) as u32 % SIZE, Duration::from_micros((seed >> 40) % 50_000));
        let mut job = Job::start(1_000_000, true);
        std::thread::sleep(delay);
        let begun = Instant::now();
        job.children[victim as usize].kill().unwrap();
        let status = job.children[victim as usize].wait().unwrap();
        assert!(!status.success());
        job.board.as_ref().unwrap().ended(victim, "was killed by SIGKILL").unwrap();
        let place = format!("turn {turn}, rank {victim} after {delay:?}");
        for (rank, text) in job.end().into_iter().enumerate() {
            if rank as u32 == victim {
                continue;
            }
            let named = text.contains(&format!("error: rank {victim} has failed: its process"));
            assert!(named, "{place}: rank {rank}: {text}");
            let joined = text.contains("ended with 3");
            let early = text.contains("was killed by SIGKILL") && !text.contains("panicked");
            assert!(joined || early, "{place}: rank {rank}: {text}");
        }
        assert!(begun.elapsed() < TIMEOUT, "{place}: {:?}", begun.elapsed());
    }
}
