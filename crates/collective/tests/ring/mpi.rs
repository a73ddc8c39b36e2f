//! The same collectives by MPI, in processes that `mpirun` starts, which are this test program. Without `mpirun` the tests pass over it with the reason,
//! unless `ELINVAR_REQUIRE_MPI=1`, which `make test` sets where it has installed Open MPI. With MPICH they run if `ELINVAR_TEST_MPIEXEC` names its launcher, or
//! `mpiexec.mpich` is installed.

use std::process::{Command, Output};
use std::time::Duration;

use elinvar_collective::{Environment, Mpi};
use elinvar_driver::{Collective, CollectiveCall, Error, Member, Reduction, Scalar, Storage};

use crate::memory::call;
use crate::results::{TYPES, one};

/// Runs a test of this program in four processes, by MPICH. `None` without its launcher.
fn mpiexec(test: &str, mode: &str) -> Option<Output> {
    let named = std::env::var_os("ELINVAR_TEST_MPIEXEC").filter(|path| !path.is_empty());
    let launcher = named.clone().unwrap_or_else(|| "mpiexec.mpich".into());
    let mut command = Command::new(&launcher);
    command.args(["-bootstrap", "fork", "-n", "4"]).arg(std::env::current_exe().unwrap());
    match command.args(["--exact", test, "--nocapture"]).env("TEST_MPI", mode).output() {
        Ok(output) => Some(output),
        Err(error) => {
            assert!(named.is_none(), "{}: {error}", launcher.display());
            eprintln!("skipped: mpiexec.mpich: {error}; it is in Debian's package mpich");
            None
        }
    }
}

/// Runs a test of this program in four processes, by Open MPI. `None` without `mpirun`.
fn mpirun(test: &str, mode: &str) -> Option<Output> {
    let mut command = Command::new("mpirun");
    command.args(["-n", "4", "--oversubscribe", "--allow-run-as-root"]).arg(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env("TEST_MPI", mode)
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            let required = std::env::var("ELINVAR_REQUIRE_MPI").is_ok_and(|value| value == "1");
            assert!(!required, "mpirun: {error}");
            eprintln!("skipped: mpirun: {error}; `scripts/setup.sh mpi` installs Open MPI");
            None
        }
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A process of the job, if this is one.
#[test]
fn member() {
    let Ok(mode) = std::env::var("TEST_MPI") else { return };
    let environment = Environment::read().unwrap().expect("mpirun's environment");
    assert_eq!((environment.size, environment.local_size), (4, Some(4)));
    assert!(["mpirun", "mpiexec"].contains(&environment.launcher), "{}", environment.launcher);
    let mut member = Mpi::join().unwrap();
    assert_eq!((member.rank(), member.size()), (environment.rank, 4));
    if mode != "all" {
        return hang(&mut member, mode == "stop");
    }
    for element in TYPES {
        for count in [1, 3, 1021] {
            let root = count as u32 % 4;
            let storage = if count == 3 { Storage::Private } else { Storage::Shared };
            for collective in [
                Collective::Broadcast { root },
                Collective::AllGather,
                Collective::AllToAll,
                Collective::Gather { root },
                Collective::Scatter { root },
                Collective::Barrier,
            ] {
                one(&mut member, collective, element, count, storage);
            }
            let (rank, pair) = (member.rank(), member.rank() ^ 1);
            let turn = if rank % 2 == 0 {
                Collective::Send { to: pair }
            } else {
                Collective::Receive { from: pair }
            };
            one(&mut member, turn, element, count, storage);
            for reduction in Reduction::ALL {
                one(&mut member, Collective::AllReduce { reduction }, element, count, storage);
                one(&mut member, Collective::Reduce { root, reduction }, element, count, storage);
                one(&mut member, Collective::ReduceScatter { reduction }, element, count, storage);
            }
        }
    }
    one(&mut member, Collective::AllGather, Scalar::U8, (3 << 20) + 1, Storage::Shared);
    println!("all are right");
}

/// Rank 1 does not take part: the others give up after the timeout with its rank, and so does the communicator. In the second mode its process is stopped.
fn hang(member: &mut Mpi, is_stopped: bool) {
    let barrier = call(Collective::Barrier, Scalar::U8, 0, None, None);
    member.run(&barrier).unwrap();
    if member.rank() != 1 {
        let waits = CollectiveCall { timeout: Duration::from_millis(300), ..barrier.clone() };
        let error = member.run(&waits).unwrap_err();
        let Error::RankFailed { rank: 1, reason } = &error else { panic!("{error}") };
        let why = if is_stopped { "it does not answer" } else { "it has not begun the collective" };
        assert!(reason.contains(why) && reason.contains("within 300ms"), "{error}");
        assert!(matches!(member.run(&barrier), Err(Error::RankFailed { rank: 1, .. })));
        assert!(matches!(member.shrink(Duration::from_secs(1)), Err(Error::Unsupported(_))));
        println!("has given up");
    } else if is_stopped {
        let id = std::process::id().to_string();
        // Goes on when the others have ended.
        let script = format!("kill -STOP {id}; sleep 4; kill -CONT {id}");
        Command::new("sh").args(["-c", &script]).status().unwrap();
    }
    // The library cannot be finalized with an operation in progress: as a program that fails does.
    std::thread::sleep(Duration::from_secs(2));
    std::process::abort();
}

fn expect_all_right(output: Option<Output>) {
    let Some(output) = output else { return };
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("all are right").count(), 4, "{text}");
}

fn expect_given_up(output: Option<Output>) {
    let Some(output) = output else { return };
    assert_eq!(text(&output).matches("has given up").count(), 3, "{}", text(&output));
}

#[test]
fn collectives_of_four_processes() {
    expect_all_right(mpirun("mpi::member", "all"));
}

#[test]
fn collectives_of_four_processes_by_mpich() {
    expect_all_right(mpiexec("mpi::member", "all"));
}

#[test]
fn a_process_that_hangs_is_named() {
    expect_given_up(mpirun("mpi::member", "hang"));
    expect_given_up(mpiexec("mpi::member", "hang"));
}

#[test]
fn a_process_that_is_stopped_is_named() {
    expect_given_up(mpirun("mpi::member", "stop"));
    expect_given_up(mpiexec("mpi::member", "stop"));
}
