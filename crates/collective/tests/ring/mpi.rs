//! The same collectives by Open MPI, in processes that `mpirun` starts, which are this test program. Without `mpirun` the tests pass over it with the reason,
//! unless `ELINVAR_REQUIRE_MPI=1`, which `make test` sets where it has installed Open MPI.

use std::process::{Command, Output};
use std::time::Duration;

use elinvar_collective::{Environment, Mpi};
use elinvar_driver::{Collective, CollectiveCall, Error, Member, Reduction, Scalar, Storage};

use crate::memory::call;
use crate::results::{TYPES, one};

/// Runs a test of this program in four processes. `None` without `mpirun`.
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
    assert_eq!((environment.launcher, environment.size, environment.local_size), ("mpirun", 4, Some(4)));
    let mut member = Mpi::join().unwrap();
    assert_eq!((member.rank(), member.size()), (environment.rank, 4));
    if mode == "hang" {
        return hang(&mut member);
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

/// Rank 1 does not take part: the others give up after the timeout, and so does the communicator.
fn hang(member: &mut Mpi) {
    if member.rank() != 1 {
        let barrier = call(Collective::Barrier, Scalar::U8, 0, None, None);
        let waits = CollectiveCall { timeout: Duration::from_millis(300), ..barrier.clone() };
        let error = member.run(&waits).unwrap_err();
        assert!(matches!(&error, Error::Timeout(text) if text.contains("within 300ms")), "{error}");
        assert!(matches!(member.run(&barrier), Err(Error::RankFailed { .. })));
        assert!(matches!(member.shrink(Duration::from_secs(1)), Err(Error::Unsupported(_))));
        println!("has given up");
    }
    // The library cannot be finalized with an operation in progress: as a program that fails does.
    std::thread::sleep(Duration::from_secs(1));
    std::process::abort();
}

#[test]
fn collectives_of_four_processes() {
    let Some(output) = mpirun("mpi::member", "all") else { return };
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("all are right").count(), 4, "{text}");
}

#[test]
fn a_process_that_hangs_does_not_hang_the_others() {
    let Some(output) = mpirun("mpi::member", "hang") else { return };
    assert_eq!(text(&output).matches("has given up").count(), 3, "{}", text(&output));
}
