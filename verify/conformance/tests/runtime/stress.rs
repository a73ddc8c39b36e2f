//! Concurrent use of pool, streams and events of a simulated device that fails at random.
//!
//! `ELINVAR_STRESS_SECONDS` is the duration; default 1.

use crate::support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use elinvar::{Buffer, Completion, Device, Error, Event, Grid, Kernel, Stream, WhenFull};
use elinvar_conformance::sim::{Op, Sim};
use support::Bench;

const THREADS: u64 = 32;
/// Timeout, longer than anything can take.
const FOREVER: Duration = Duration::from_secs(60);

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// Number of completions that succeeded, and of those that failed.
#[derive(Default)]
struct Ends {
    well: AtomicU64,
    failed: AtomicU64,
}

impl Ends {
    /// Whether there are too few completions to be conclusive. On a busy machine the time may be up by then.
    fn are_too_few(&self) -> bool {
        self.well.load(Ordering::Relaxed) <= 100 || self.failed.load(Ordering::Relaxed) == 0
    }

    fn of(&self, done: &Completion) -> Result<(), Error> {
        let result = done.wait_timeout(FOREVER).map(|timing| assert!(timing.is_some(), "never resolved"));
        let count = if result.is_ok() { &self.well } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
        assert_eq!(done.wait_timeout(Duration::ZERO).is_ok(), result.is_ok(), "resolved twice");
        result
    }
}

/// The work of a thread: a buffer with known content until a failure.
struct Worker<'a> {
    bench: &'a Bench,
    increment: &'a Kernel,
    ends: &'a Ends,
    random: Random,
}

impl Worker<'_> {
    fn run(&mut self, until: Instant) {
        while self.ends.are_too_few() || Instant::now() < until {
            let device = &self.bench.device;
            let Ok(stream) = device.stream() else { continue };
            let limit = self.random.below(8) as usize + 1;
            let when_full = [WhenFull::Block, WhenFull::Reject][self.random.below(2) as usize];
            let stream = stream.limited(limit, when_full);
            // Some of the work is dropped in flight, with everything that it uses.
            match self.round(device, &stream) {
                Ok(()) => {}
                Err(
                    Error::OutOfMemory { .. }
                    | Error::Fault(_)
                    | Error::Poisoned(_)
                    | Error::Cancelled
                    | Error::DeviceLost(_)
                    | Error::QueueFull { .. },
                ) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    fn round(&mut self, device: &Device, stream: &Stream) -> Result<(), Error> {
        let len = self.random.below(3000) as usize + 1;
        let start = self.random.below(1000) as u32;
        let mut data = device.buffer::<u32>(len)?;
        assert!(data.to_vec()?.iter().all(|word| *word == 0), "memory shows what it held");
        data.write(&vec![start; len])?;
        let event = device.event()?;
        let mut expected = start;
        for step in 1..=self.random.below(12) + 1 {
            match self.random.below(6) {
                0 => stream.copy(&data, &mut device.buffer::<u32>(len)?).map(drop)?,
                1 => self.hand_over(device, stream, &event, step)?,
                2 => {
                    let done = stream.fill(&mut data, step as u32)?;
                    match (done.cancel(), self.ends.of(&done)) {
                        (true, Err(Error::Cancelled)) => {}
                        (_, Ok(())) => expected = step as u32,
                        (_, Err(error)) => return Err(error),
                    }
                    data.slice(0..1)?.to_vec()?;
                    data.fill(expected)?;
                }
                _ => {
                    support::launch(self.increment, stream, Grid::threads(1), (&mut data,))?;
                    expected += 1;
                    self.check(&data, &mut expected)?;
                }
            }
        }
        if self.random.below(3) == 0 {
            self.bench
                .sim
                .fail_next([Op::Allocate, Op::Submit, Op::Execute][self.random.below(3) as usize], fault());
        }
        let last = stream.command_buffer().submit()?;
        if self.random.below(2) == 0 { self.ends.of(&last) } else { Ok(()) }
    }

    /// Another stream continues when this one has reached `value`.
    fn hand_over(&self, device: &Device, stream: &Stream, event: &Event, value: u64) -> Result<(), Error> {
        let other = device.stream()?;
        let mut copy = device.buffer::<u32>(10)?;
        other.wait_for(event, value)?;
        let filled = other.fill(&mut copy, 7)?;
        stream.signal(event, value)?;
        self.ends.of(&filled)?;
        assert!(copy.to_vec()?.iter().all(|word| *word == 7));
        self.ends.of(&event.reached(value))
    }

    /// Checks that only the first element has been incremented; then sets all elements to the same value.
    fn check(&self, data: &Buffer<u32>, expected: &mut u32) -> Result<(), Error> {
        let content = data.to_vec()?;
        assert_eq!(content[0], *expected, "wrong data reported as success");
        assert!(content[1..].iter().all(|word| *word == *expected - 1), "wrong data reported as success");
        data.clone().fill(*expected)
    }
}

fn fault() -> Error {
    Error::DeviceLost("at random".into())
}

#[test]
fn threads_and_random_faults() {
    let seconds =
        std::env::var("ELINVAR_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let bench = Bench::on(Sim::new());
    let (increment, ends) = (bench.increment(), Ends::default());
    let until = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for t in 1..=THREADS {
            let (bench, increment, ends) = (&bench, &increment, &ends);
            scope
                .spawn(move || Worker { bench, increment, ends, random: Random(t * 0x9e37_79b9) }.run(until));
        }
        // The list of commands that the simulated device keeps holds memory.
        scope.spawn(|| {
            while ends.are_too_few() || Instant::now() < until {
                bench.sim.forget_commands();
                thread::yield_now();
            }
        });
    });
    let Bench { sim, device, stream } = bench;
    // Work still in flight was dropped; it ends by itself.
    let settled = || {
        let (pool, lists) = (device.pool().stats(), device.command_list_stats());
        pool.live_buffers == 0 && lists.active == 0 && device.event_stats().live == 0
    };
    let patience = Instant::now() + FOREVER;
    while !settled() && Instant::now() < patience {
        thread::yield_now();
    }
    drop(stream);
    sim.forget_commands();
    let (pool, lists, events) = (device.pool().stats(), device.command_list_stats(), device.event_stats());
    assert_eq!((pool.live_buffers, pool.live_bytes, lists.active, events.live), (0, 0, 0, 0), "{pool:?}");
    assert_eq!(sim.memory(), (pool.idle_blocks, pool.idle_bytes));
    let (well, failed) = (ends.well.into_inner(), ends.failed.into_inner());
    println!("{well} futures ended well, {failed} in an error; {pool:?} {lists:?} {events:?}");
    assert!(well > 100 && failed > 0, "{well} {failed}");
}
