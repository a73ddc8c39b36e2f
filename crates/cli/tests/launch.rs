//! Jobs of several processes, which are this test program: by `elinvar launch` and by `mpirun`, and ranks that are killed.
//!
//! Without `mpirun` its test passes over it with the reason, unless `ELINVAR_REQUIRE_MPI=1`, which `make test` sets where it has installed Open MPI.

mod common;
#[path = "../../../examples/heat.rs"]
mod heat;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Folder, elinvar};
use elinvar::{Communicator, Device, Environment, Error, Operation, Reduction};

/// Time within which a killed rank must have been noticed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A process of a job, if this is one.
#[test]
fn process() {
    match std::env::var("TEST_PROCESS").as_deref() {
        Ok("heat") => heat::main().unwrap(),
        Ok("sums") => sums(),
        _ => {}
    }
}

/// Adds up ones until a rank fails, then goes on with those that are left.
fn sums() {
    let environment = Environment::read().unwrap().unwrap();
    let (rank, folder) = (environment.rank, std::env::var("TEST_FOLDER").unwrap());
    std::fs::write(Path::new(&folder).join(rank.to_string()), std::process::id().to_string()).unwrap();
    let device = Device::of_rank(&environment).unwrap();
    let mut world = match Communicator::world(&device) {
        Ok(world) => world.unwrap(),
        Err(error) => return println!("rank {rank} reports: {error}"),
    };
    let stream = device.stream().unwrap();
    let (mut rounds, mut size) = (u32::MAX, world.size());
    for round in 0.. {
        // Those that go on may have been in different rounds.
        let count =
            if rounds == u32::MAX { 1 + round as usize * 7919 % 30_000 } else { 1000 * rounds as usize };
        let mut ones = device.buffer_with_data(&vec![1_u32; count]).unwrap();
        let done =
            stream.collective(&world, Operation::all_reduce_in_place(Reduction::Sum, &mut ones)).unwrap();
        match done.wait() {
            Ok(_) => assert_eq!(ones.to_vec().unwrap(), vec![size; count]),
            Err(Error::Poisoned(cause)) if rounds == u32::MAX => {
                println!("rank {rank} reports: {cause}");
                stream.acknowledge();
                world = world.shrink(TIMEOUT).unwrap();
                (rounds, size) = (3, world.size());
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        rounds = rounds.saturating_sub(u32::from(rounds != u32::MAX));
        if rounds == 0 {
            break;
        }
    }
    println!("rank {rank} has gone on with {size}");
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs this program as `mode` by a launcher, or alone.
fn job(launcher: &[&str], mode: &str, variables: &[(&str, &str)]) -> std::io::Result<Output> {
    let this = std::env::current_exe().unwrap();
    let words = [this.to_str().unwrap(), "--exact", "process", "--nocapture"];
    let words: Vec<&str> = launcher.iter().copied().chain(words).collect();
    Command::new(words[0])
        .args(&words[1..])
        .env("TEST_PROCESS", mode)
        .envs(variables.iter().copied())
        .output()
}

const MPIRUN: [&str; 5] = ["mpirun", "-n", "4", "--oversubscribe", "--allow-run-as-root"];

fn mpi_variables(engine: &str) -> [(&str, &str); 2] {
    [("ELINVAR_COLLECTIVES", engine), ("OMPI_MCA_btl_vader_single_copy_mechanism", "none")]
}

/// Tells that there is no `mpirun`, unless it is required.
fn no_mpirun(error: &std::io::Error) {
    let required = std::env::var("ELINVAR_REQUIRE_MPI").is_ok_and(|value| value == "1");
    assert!(!required, "mpirun: {error}");
    eprintln!("skipped: mpirun: {error}; `scripts/setup.sh mpi` installs Open MPI");
}

/// The number of the process that a rank has written to the folder, when it has.
fn process_of(folder: &Folder, rank: u64) -> String {
    let (file, begun) = (folder.file(&rank.to_string()), Instant::now());
    loop {
        match std::fs::read_to_string(&file) {
            Ok(number) if !number.trim().is_empty() => return number.trim().to_owned(),
            _ => assert!(begun.elapsed() < TIMEOUT, "rank {rank} does not start"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process runs. One that has ended stays as a zombie until its parent, maybe a new one, reaps it.
fn runs(number: &String) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    state.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

fn launcher(processes: &'static str) -> [&'static str; 5] {
    [env!("CARGO_BIN_EXE_elinvar"), "launch", "-n", processes, "--"]
}

/// The result, with the hash of its bits.
fn result(output: &Output) -> String {
    let text = text(output);
    assert!(output.status.success(), "{text}");
    // Lines of the test programs' own progress are of several processes, and may be around it.
    let whole = text.find("64 x 64, ").and_then(|begin| {
        let bits = begin + text[begin..].find(", bits ")? + ", bits ".len();
        text.get(begin..bits + 16)
    });
    whole.unwrap_or_else(|| panic!("no result in: {text}")).to_owned()
}

#[test]
fn the_heat_equation_is_bit_equal_on_any_number_of_ranks() {
    let alone = result(&job(&[], "heat", &[]).unwrap());
    for processes in ["1", "3", "4"] {
        assert_eq!(result(&job(&launcher(processes), "heat", &[]).unwrap()), alone, "{processes} processes");
    }
    for engine in ["mpi", "ring"] {
        match job(&MPIRUN, "heat", &mpi_variables(engine)) {
            Ok(output) => assert_eq!(result(&output), alone, "{engine}"),
            Err(error) => no_mpirun(&error),
        }
    }
}

/// Fifty times a rank is killed at a random moment after its start: every other rank reports it in time, and goes on.
#[test]
#[cfg(target_os = "linux")]
fn a_rank_is_killed_at_a_random_moment() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for turn in 0..50 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (victim, delay) = ((seed >> 33) % 4, Duration::from_micros((seed >> 40) % 60_000));
        let folder = Folder::new();
        let this = std::env::current_exe().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_elinvar"));
        command.args(["launch", "-n", "4", "--"]).arg(this).args(["--exact", "process", "--nocapture"]);
        command.env("TEST_PROCESS", "sums").env("TEST_FOLDER", folder.path());
        let launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let number = process_of(&folder, victim);
        std::thread::sleep(delay);
        let begun = Instant::now();
        assert!(Command::new("kill").args(["-9", &number]).status().unwrap().success());
        let output = launcher.wait_with_output().unwrap();
        let text = text(&output);
        let place = format!("turn {turn}, rank {victim} after {delay:?}: {text}");
        assert!(begun.elapsed() < TIMEOUT, "{:?}: {place}", begun.elapsed());
        assert_eq!(output.status.code(), Some(3), "{place}");
        assert!(text.contains(&format!("launch: rank {victim} was killed by signal 9")), "{place}");
        for rank in (0..4).filter(|rank| *rank != victim) {
            assert!(
                text.contains(&format!("rank {rank} reports: rank {victim} has failed: its process")),
                "{place}"
            );
        }
        // Ranks that have joined before it was killed.
        let went_on = text.matches("has gone on with 3").count();
        let joined = text.matches("has gone on").count();
        assert!(went_on == joined && !text.contains("panicked"), "{place}");
    }
}

/// `mpirun` ends the job when a rank is killed: it says so, and no process is left.
#[test]
#[cfg(target_os = "linux")]
fn a_rank_that_is_killed_under_mpirun_ends_the_job() {
    for (turn, engine) in ["mpi", "ring"].into_iter().cycle().take(6).enumerate() {
        let folder = Folder::new();
        let mut command = Command::new(MPIRUN[0]);
        command.args(&MPIRUN[1..]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "process", "--nocapture"]).envs(mpi_variables(engine));
        command.env("TEST_PROCESS", "sums").env("TEST_FOLDER", folder.path());
        let launcher = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
            Ok(launcher) => launcher,
            Err(error) => return no_mpirun(&error),
        };
        let numbers: Vec<String> = (0..4).map(|rank| process_of(&folder, rank)).collect();
        std::thread::sleep(Duration::from_millis(20 * turn as u64));
        let begun = Instant::now();
        assert!(Command::new("kill").args(["-9", &numbers[turn % 4]]).status().unwrap().success());
        let output = launcher.wait_with_output().unwrap();
        let place = format!("turn {turn}, {engine}: {}", text(&output));
        assert!(begun.elapsed() < TIMEOUT, "{:?}: {place}", begun.elapsed());
        assert!(!output.status.success() && text(&output).contains("signal 9"), "{place}");
        while numbers.iter().any(runs) {
            assert!(begun.elapsed() < TIMEOUT, "{numbers:?} run on: {place}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn failures_of_programs_are_told() {
    elinvar(&["launch", "-n", "0", "--", "true"]).expect(2, &["1..=1024"]);
    elinvar(&["launch", "-n", "2", "--", "/does/not/exist"]).expect(1, &["`/does/not/exist`"]);
    elinvar(&["launch", "-n", "3", "--", "true"]).expect(0, &[]);
    let script = "test $ELINVAR_RANK = 1 && exit 7; exec sleep 60";
    let begun = Instant::now();
    let ended = elinvar(&["launch", "-n", "2", "--grace", "1", "--", "sh", "-c", script]);
    ended.expect(3, &["launch: rank 1 has ended with exit code 7", "killing [0]"]);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// The launcher is killed, so that it cannot end its processes itself.
#[test]
#[cfg(target_os = "linux")]
fn no_process_outlives_a_killed_launcher() {
    let folder = Folder::new();
    let script = format!(
        "echo $$ > {}/$ELINVAR_RANK.new; mv {0}/$ELINVAR_RANK.new {0}/$ELINVAR_RANK; exec sleep 600",
        folder.path().display()
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_elinvar"));
    command.args(["launch", "-n", "3", "--", "sh", "-c", &script]);
    let mut launcher = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let numbers: Vec<String> = (0..3).map(|rank| process_of(&folder, rank)).collect();
    assert!(numbers.iter().all(runs), "{numbers:?}");
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    let begun = Instant::now();
    while numbers.iter().any(runs) {
        assert!(begun.elapsed() < TIMEOUT, "processes {numbers:?} of a killed launcher run on");
        std::thread::sleep(Duration::from_millis(1));
    }
}
