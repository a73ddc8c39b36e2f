//! Jobs of the worker pool: every threadgroup runs once, on any number of workers, in either order; panics.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use elinvar_driver::{Error, Result};

use crate::job::{Demand, RANGE_NS, Work};
use crate::pool::Pool;
use crate::scratch::Scratch;

/// Time per threadgroup at which a dispatch of two threadgroups is worth sharing.
const LONG_NS: u64 = 1_000_000;

/// Runs a dispatch on a worker of the pool.
fn run<W: Work + 'static>(pool: &Pool, work: W, demand: Demand) -> Result<u64> {
    let (sender, outcome) = channel();
    let work = Arc::new(work);
    pool.push(move |worker| sender.send(worker.run(&work, demand)).unwrap());
    outcome.recv().unwrap()
}

/// Dispatches of the given size, expected to be short and expected to be long, in either order.
fn demands(groups: u64) -> [Demand; 4] {
    [(1, false), (LONG_NS, false), (1, true), (LONG_NS, true)].map(|(group_ns, ascending)| Demand {
        groups,
        group_ns,
        ascending,
        range_ns: RANGE_NS,
    })
}

/// Every threadgroup waits until a number of others run.
struct Together(Barrier);

impl Work for Together {
    fn run(&self, groups: Range<u64>, _scratch: &mut Scratch) -> ControlFlow<()> {
        for _ in groups {
            self.0.wait();
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn all_workers_take_part_in_a_long_job() {
    for workers in [2, 5] {
        let pool = Pool::new(workers).unwrap();
        for _ in 0..50 {
            for ascending in [false, true] {
                let work = Together(Barrier::new(workers));
                let demand =
                    Demand { groups: workers as u64, group_ns: LONG_NS, ascending, range_ns: RANGE_NS };
                run(&pool, work, demand).unwrap();
            }
        }
    }
}

/// Counts its threadgroups; every seventh is slow.
struct Uneven(Vec<AtomicUsize>);

impl Work for Uneven {
    fn run(&self, groups: Range<u64>, _scratch: &mut Scratch) -> ControlFlow<()> {
        for group in groups {
            let turns = if group % 7 == 0 { 5000 } else { 1 };
            (0..turns).for_each(|turn| _ = std::hint::black_box(turn));
            self.0[group as usize].fetch_add(1, Ordering::Relaxed);
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn every_group_of_every_dispatch_runs_once() {
    for workers in 1..=8 {
        let pool = Pool::new(workers).unwrap();
        std::thread::scope(|scope| {
            for stream in 0..3 {
                let pool = &pool;
                scope.spawn(move || {
                    for round in 0..120 {
                        let total = [1, 2, 7, 64, 333, 1009][(stream + round) % 6];
                        let counts = Arc::new(Uneven((0..total).map(|_| AtomicUsize::new(0)).collect()));
                        let demand = demands(total as u64)[round / 2 % 4];
                        let (sender, outcome) = channel();
                        let work = counts.clone();
                        pool.push(move |worker| {
                            sender.send(worker.run(&work, demand)).unwrap();
                        });
                        outcome.recv().unwrap().unwrap();
                        let once = counts.0.iter().all(|count| count.load(Ordering::Relaxed) == 1);
                        assert!(once, "{demand:?} on {workers} workers");
                    }
                });
            }
        });
    }
}

/// Each group waits for the one before it.
struct Chain(AtomicUsize);

impl Work for Chain {
    fn run(&self, groups: Range<u64>, _scratch: &mut Scratch) -> ControlFlow<()> {
        for group in groups {
            while self.0.load(Ordering::Acquire) as u64 != group {
                std::thread::yield_now();
            }
            self.0.fetch_add(1, Ordering::Release);
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn groups_may_wait_for_earlier_ones_if_they_ascend() {
    for workers in [2, 3, 8] {
        let pool = Pool::new(workers).unwrap();
        for _ in 0..20 {
            for demand in demands(500).into_iter().filter(|demand| demand.ascending) {
                run(&pool, Chain(AtomicUsize::new(0)), demand).unwrap();
            }
        }
    }
}

/// Panics in this group.
struct Fails(u64);

impl Work for Fails {
    fn run(&self, groups: Range<u64>, _scratch: &mut Scratch) -> ControlFlow<()> {
        assert!(!groups.contains(&self.0), "group {}", self.0);
        ControlFlow::Continue(())
    }
}

#[test]
fn a_panic_in_a_job_is_its_owners_error() {
    let pool = Pool::new(3).unwrap();
    for demand in demands(100_000) {
        for wrong in [0, 1, 500, 50_000, 99_999] {
            let Err(Error::DeviceLost(message)) = run(&pool, Fails(wrong), demand) else {
                panic!("no error")
            };
            assert!(message.ends_with(&format!("group {wrong}")), "{message}");
        }
    }
    run(&pool, Together(Barrier::new(1)), demands(10)[0]).unwrap();
}
