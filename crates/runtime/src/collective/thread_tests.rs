//! The thread of a member whose engine has a queue: what is passed ahead, and how it ends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use elinvar_collective::{Ring, ring};
use elinvar_driver::{Aborter, CollectiveCall, Error, Member, Point, Reduction, Result};

use super::thread::start;
use super::{Communicator, Operation};
use crate::{Buffer, Completion, Device, Event, Stream};

/// Numbers of elements with which calls were passed to the queue, were run by the thread, and have ended.
type Log = Arc<Mutex<Vec<(&'static str, u64)>>>;

/// A ring with a queue, except for calls of 13 elements.
struct Queued {
    ring: Ring,
    queue: VecDeque<(CollectiveCall, Point)>,
    log: Log,
}

impl Queued {
    fn note(&self, what: &'static str, call: &CollectiveCall) {
        self.log.lock().unwrap().push((what, call.count));
    }
}

impl Member for Queued {
    fn engine(&self) -> &'static str {
        "queued"
    }

    fn rank(&self) -> u32 {
        self.ring.rank()
    }

    fn size(&self) -> u32 {
        self.ring.size()
    }

    fn run(&mut self, call: &CollectiveCall) -> Result<()> {
        assert!(self.queue.is_empty(), "it waits for what is in the queue");
        self.note("run", call);
        self.ring.run(call)
    }

    fn takes_ahead(&self, call: &CollectiveCall) -> bool {
        call.count != 13
    }

    fn enqueue(&mut self, call: &CollectiveCall, ready: &Point, _done: &Point) -> Result<bool> {
        self.note("passed", call);
        self.queue.push_back((call.clone(), ready.clone()));
        Ok(true)
    }

    fn has_first_ended(&mut self) -> Result<bool> {
        let Some((call, ready)) = self.queue.front() else { return Ok(false) };
        if ready.is_pending() {
            return Ok(false);
        }
        let begun = ready.expect_whole().inspect_err(|cause| {
            self.ring.aborter().abort(self.ring.rank(), &format!("its work failed: {cause}"));
        });
        let call = call.clone();
        begun.and_then(|()| self.ring.run(&call)).inspect_err(|_| self.queue.clear())?;
        self.note("ended", &call);
        self.queue.pop_front();
        Ok(true)
    }

    fn aborter(&self) -> Arc<dyn Aborter> {
        self.ring.aborter()
    }

    fn shrink(&mut self, timeout: Duration) -> Result<Box<dyn Member>> {
        assert!(self.queue.is_empty());
        self.ring.shrink(timeout)
    }
}

struct One {
    communicator: Communicator,
    stream: Stream,
    log: Log,
    /// What the stream waits for first.
    gate: Event,
}

impl One {
    fn sum(&self, count: usize) -> Result<(Buffer<u32>, Completion)> {
        let device = self.communicator.device();
        let source = device.buffer_with_data(&vec![self.communicator.rank() + 1; count])?;
        let mut target = device.buffer::<u32>(count)?;
        let operation = Operation::all_reduce(Reduction::Sum, &source, &mut target);
        let done = self.stream.collective(&self.communicator, operation)?;
        Ok((target, done))
    }

    fn log(&self) -> Vec<(&'static str, u64)> {
        self.log.lock().unwrap().clone()
    }

    /// Waits until this many calls have been passed to the queue.
    fn wait_for_passed(&self, count: usize) {
        while self.log().iter().filter(|(what, _)| *what == "passed").count() < count {
            std::thread::yield_now();
        }
    }
}

fn members(size: u32) -> Result<Vec<One>> {
    let device = Device::cpu()?;
    let one = |ring: Ring| {
        let log = Log::default();
        let member = Queued { ring, queue: VecDeque::new(), log: log.clone() };
        let communicator =
            Communicator::new(&device, start(&device, move || Ok(Box::new(member) as _)), None)?;
        let (stream, gate) = (device.stream()?, device.event()?);
        let mut commands = stream.command_buffer();
        commands.wait_for(&gate, 1);
        commands.submit()?;
        Ok(One { communicator, stream, log, gate })
    };
    ring(size)?.into_iter().map(one).collect()
}

#[test]
fn operations_are_passed_ahead_of_the_work_before_them_and_end_in_order() -> Result<()> {
    let members = members(2)?;
    let mut sums = Vec::new();
    for member in &members {
        for count in [5, 6, 13, 7] {
            sums.push(member.sum(count)?);
        }
    }
    members.iter().for_each(|member| member.wait_for_passed(2));
    for member in &members {
        assert_eq!(member.log(), [("passed", 5), ("passed", 6)], "the third waits for both");
    }
    assert!(sums.iter().all(|(_, done)| done.wait_timeout(Duration::ZERO).is_ok_and(|done| done.is_none())));
    members.iter().for_each(|member| member.gate.signal(1));
    for (sum, done) in sums {
        let timing = done.wait()?;
        assert!(timing.start_ns <= timing.end_ns);
        assert_eq!(sum.to_vec()?, vec![3; sum.len()]);
    }
    let expected =
        [("passed", 5), ("passed", 6), ("ended", 5), ("ended", 6), ("run", 13), ("passed", 7), ("ended", 7)];
    members.iter().for_each(|member| assert_eq!(member.log(), expected));
    Ok(())
}

#[test]
fn all_that_was_passed_ends_in_the_failure_of_the_member_whose_work_fails() -> Result<()> {
    let members = members(3)?;
    let mut sums = Vec::new();
    for member in &members {
        sums.push((member.sum(5)?, member.sum(6)?));
    }
    members.iter().for_each(|member| member.wait_for_passed(2));
    members[0].gate.signal(1);
    members[2].gate.signal(1);
    members[1].gate.fail(&Error::Environment("a fault".into()));
    for (rank, ((first, done), (second, _))) in sums.into_iter().enumerate() {
        let names = |error: Option<Error>| {
            let text = error.map_or(String::new(), |error| error.to_string());
            assert!(text.contains("a fault"), "rank {rank}: {text}");
            assert!(rank == 1 || text.contains("rank 1"), "rank {rank}: {text}");
        };
        names(done.wait().err());
        names(first.to_vec().err());
        names(second.to_vec().err());
    }
    // Those that are left go on, on the same streams.
    let left = [&members[0], &members[2]];
    let next = std::thread::scope(|scope| {
        let shrinking =
            left.map(|member| scope.spawn(|| member.communicator.shrink(Duration::from_secs(20))));
        shrinking.map(|thread| thread.join().unwrap())
    });
    let mut sums = Vec::new();
    for (member, communicator) in left.into_iter().zip(next) {
        let communicator = communicator?;
        assert_eq!(communicator.size(), 2);
        assert!(member.stream.acknowledge().is_some());
        let One { stream, log, gate, .. } = member;
        let (stream, log, gate) = (stream.clone(), log.clone(), gate.clone());
        sums.push(One { communicator, stream, log, gate }.sum(8)?.0);
    }
    for sum in sums {
        assert_eq!(sum.to_vec()?, [3; 8]);
    }
    Ok(())
}
