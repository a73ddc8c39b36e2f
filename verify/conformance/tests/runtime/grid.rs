//! Launch sizes: what reaches the driver, what is rejected, what runs nothing.

use crate::support;

use elinvar::driver::{Command, Dim3};
use elinvar::{Error, Grid, Kernel};
use support::{Bench, invalid, launch, signature};

/// Threads and group of the last dispatch.
fn last(bench: &Bench) -> (Dim3, Dim3) {
    match bench.sim.commands().pop() {
        Some(Command::Dispatch(dispatch)) => {
            (dispatch.grid.threads().expect("known when it was recorded"), dispatch.group)
        }
        other => panic!("expected a dispatch, got {other:?}"),
    }
}

fn run(bench: &Bench, kernel: &Kernel, grid: Grid) -> Result<(), Error> {
    launch(kernel, &bench.stream, grid, ())?.wait().map(drop)
}

#[test]
fn threads_and_groups_are_different_requests() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![]);
    run(&bench, &kernel, Grid::threads((1000, 3)).group((64, 2))).unwrap();
    assert_eq!(last(&bench), (Dim3::new(1000, 3, 1), Dim3::new(64, 2, 1)));
    run(&bench, &kernel, Grid::groups([5usize, 2, 3]).group([8, 4, 2])).unwrap();
    assert_eq!(last(&bench), (Dim3::new(40, 8, 6), Dim3::new(8, 4, 2)));
    run(&bench, &kernel, Grid::threads(1000)).unwrap();
    assert_eq!(last(&bench), (Dim3::new(1000, 1, 1), Dim3::new(256, 1, 1)));
    assert_eq!(
        invalid(run(&bench, &kernel, Grid::groups(4))),
        "kernel `k`: `Grid::groups` requires a threadgroup size, set with `.group(..)`"
    );
}

#[test]
fn sizes_out_of_range() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![]);
    assert_eq!(
        invalid(run(&bench, &kernel, Grid::threads((1, 1u64 << 32)))),
        "kernel `k`: grid size y = 4294967296 is not within 0..=4294967295"
    );
    assert_eq!(
        invalid(run(&bench, &kernel, Grid::threads(-1))),
        "kernel `k`: grid size x = -1 is not within 0..=4294967295"
    );
    assert_eq!(
        invalid(run(&bench, &kernel, Grid::groups(1u32 << 31).group(2))),
        "kernel `k`: grid size x = 4294967296 is not within 0..=4294967295"
    );
    assert_eq!(
        invalid(run(&bench, &kernel, Grid::threads(1).group((1, 1, -3)))),
        "kernel `k`: threadgroup size z = -3 is not within 0..=4294967295"
    );
}

#[test]
fn groups_over_the_limits() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![]);
    run(&bench, &kernel, Grid::threads(1).group((32, 32))).unwrap();
    assert_eq!(
        invalid(run(&bench, &kernel, Grid::threads(1).group((32, 33)))),
        "kernel `k`: threadgroup 32×33×1 has 1056 threads, at most 1024 allowed"
    );
    assert_eq!(
        invalid(run(&bench, &kernel, Grid::threads(1).group((1, 1, 65)))),
        "kernel `k`: threadgroup size z = 65, at most 64 allowed"
    );
    assert_eq!(
        invalid(run(&bench, &kernel, Grid::threads(1).group((1, 0)))),
        "kernel `k`: threadgroup 1×0×1 has no threads"
    );
    let mut small = signature("small", vec![]);
    small.max_threads_per_threadgroup = Some(64);
    let small = bench.declare(small, |_| Ok(()));
    assert_eq!(
        invalid(run(&bench, &small, Grid::threads(1).group(65))),
        "kernel `small`: threadgroup 65×1×1 has 65 threads, at most 64 allowed"
    );
    run(&bench, &small, Grid::threads(1000)).unwrap();
    assert_eq!(last(&bench).1, Dim3::new(64, 1, 1));
}

#[test]
fn a_grid_without_threads_runs_nothing_in_order() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![]);
    bench.sim.hold();
    let first = launch(&kernel, &bench.stream, Grid::threads(1), ()).unwrap();
    let empty = launch(&kernel, &bench.stream, Grid::threads((5, 0)), ()).unwrap();
    let groups = launch(&kernel, &bench.stream, Grid::groups(0).group(32), ()).unwrap();
    assert!(!empty.is_done() && !first.is_done());
    bench.sim.release();
    groups.wait().unwrap();
    assert!(empty.is_done() && first.is_done());
    assert_eq!(bench.sim.commands().len(), 1);
    // The arguments are validated nevertheless.
    invalid(launch(&kernel, &bench.stream, Grid::threads(0), (1u32,)));
    invalid(launch(&kernel, &bench.stream, Grid::threads(0).group(0), ()));
}
