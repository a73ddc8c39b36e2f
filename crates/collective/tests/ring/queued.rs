//! Members whose library has a queue: a simulated device executes all-reduces in order, each behind an event, while the host is told of the events later.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use elinvar_collective::{Ring, Supervised, ring};
use elinvar_driver::{
    Check, Collective, CollectiveCall, CollectiveLibrary, Error, Event, LibraryMember, Member, Point,
    Promise, PromisedTimeline, Reduction, Result, Scalar, Storage,
};

use crate::memory::{bytes, call, slice};

const SUM: Collective = Collective::AllReduce { reduction: Reduction::Sum };
const COUNT: usize = 7;
const LONG: Duration = Duration::from_secs(60);

/// A point of the simulated device.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicBool>);

impl Promise for Gate {}

type SimEvent = PromisedTimeline<Gate>;

/// What the members of the simulated library share.
#[derive(Default)]
struct Library {
    /// Of each collective, the members that have come, and the sums.
    sums: Mutex<HashMap<u64, (u32, Vec<u8>)>>,
    aborted: AtomicU32,
}

struct SimMember {
    library: Arc<Library>,
    size: u32,
    next: u64,
    queue: VecDeque<(u64, CollectiveCall, Gate, bool)>,
}

struct Handle(Arc<Library>);

impl CollectiveLibrary for Handle {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn unique_id(&self) -> Result<Vec<u8>> {
        Ok(vec![7])
    }

    fn join(
        &self,
        id: &[u8],
        _rank: u32,
        size: u32,
        _check: &mut Check<'_>,
    ) -> Result<Box<dyn LibraryMember>> {
        assert_eq!(id, [7]);
        let library = self.0.clone();
        Ok(Box::new(SimMember { library, size, next: 0, queue: VecDeque::new() }))
    }
}

impl LibraryMember for SimMember {
    fn run(&mut self, call: &CollectiveCall, _check: &mut Check<'_>) -> Result<()> {
        Err(Error::unsupported(format!("{call}: only what has a queue")))
    }

    fn has_queue(&self) -> bool {
        true
    }

    fn enqueue(&mut self, call: &CollectiveCall, ready: &Point, _done: &Point) -> Result<bool> {
        let Some(gate) = SimEvent::of(&*ready.event).and_then(|event| event.promised(ready.value)) else {
            return Ok(false);
        };
        self.queue.push_back((self.next, call.clone(), gate, false));
        self.next += 1;
        Ok(true)
    }

    fn has_first_ended(&mut self) -> Result<bool> {
        let Some((number, call, gate, has_come)) = self.queue.front_mut() else { return Ok(false) };
        if !gate.0.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut sums = self.library.sums.lock().unwrap();
        let (come, sum) = sums.entry(*number).or_insert_with(|| (0, vec![0; COUNT]));
        if !std::mem::replace(has_come, true) {
            *come += 1;
            sum.iter_mut().zip(bytes(call.source.as_ref().unwrap())).for_each(|(sum, x)| *sum += x);
        }
        if *come < self.size {
            return Ok(false);
        }
        let target = call.target.as_ref().unwrap();
        #[allow(unsafe_code)] // stands in for the device
        // SAFETY: in range; nothing else uses the memory.
        unsafe { target.memory.write(target.offset, sum) }?;
        self.queue.pop_front();
        Ok(true)
    }

    fn abort(&mut self) {
        self.library.aborted.fetch_add(1, Ordering::Relaxed);
    }
}

/// The members, which join on threads of their own.
fn members(size: u32) -> (Arc<Library>, Vec<Supervised>) {
    let library = Arc::<Library>::default();
    let join = |ring: Ring| Supervised::join(ring, Arc::new(Handle(library.clone())), LONG).unwrap();
    let join = &join;
    let members = std::thread::scope(|scope| {
        let joining: Vec<_> =
            ring(size).unwrap().into_iter().map(|ring| scope.spawn(move || join(ring))).collect();
        joining.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (library, members)
}

/// Work of a stream before a collective.
#[derive(Clone)]
struct Work {
    gate: Gate,
    event: Arc<SimEvent>,
}

impl Work {
    /// That has been submitted, but has not ended.
    fn new() -> Self {
        let (gate, event) = (Gate::default(), Arc::new(SimEvent::new()));
        event.promise(1, gate.clone());
        Self { gate, event }
    }

    fn ends_on_the_device(&self) {
        self.gate.0.store(true, Ordering::Release);
    }

    fn is_seen_by_the_host(&self) {
        self.event.signal(1, 0);
    }
}

fn point(event: &Arc<SimEvent>) -> Point {
    Point { event: event.clone(), value: 1 }
}

/// The sum of these numbers, behind the work.
fn sum(number: u8, timeout: Duration) -> CollectiveCall {
    let [source, target] = [number, 0].map(|number| Some(slice(&[number; COUNT], Storage::Private)));
    CollectiveCall { timeout, ..call(SUM, Scalar::U8, COUNT, source, target) }
}

fn enqueue(member: &mut Supervised, call: &CollectiveCall, work: &Work) {
    assert!(member.takes_ahead(call));
    let done = Arc::new(SimEvent::new());
    assert!(member.enqueue(call, &point(&work.event), &point(&done)).unwrap());
}

/// Asks until there is an answer other than "not yet".
fn ended(member: &mut Supervised) -> Result<()> {
    while !member.has_first_ended()? {
        std::thread::yield_now();
    }
    Ok(())
}

#[track_caller]
fn expect_failure(result: Result<()>, rank: u32, text: &str) {
    match result {
        Err(Error::RankFailed { rank: failed, reason }) if failed == rank && reason.contains(text) => {}
        other => panic!("expected the failure of rank {rank}: {text}; got {other:?}"),
    }
}

#[test]
fn collectives_are_passed_ahead_and_end_in_order() {
    let (_, mut members) = members(3);
    let mut calls: Vec<Vec<(CollectiveCall, Work)>> = Vec::new();
    for (rank, member) in members.iter_mut().enumerate() {
        let each: Vec<_> = (0..4).map(|k| (sum((10 * k + rank) as u8, LONG), Work::new())).collect();
        each.iter().for_each(|(call, work)| enqueue(member, call, work));
        calls.push(each);
    }
    for k in 0..4 {
        for (member, calls) in members.iter_mut().zip(&calls) {
            assert!(!member.has_first_ended().unwrap(), "the work before it runs");
            calls[k].1.ends_on_the_device();
            calls[k].1.is_seen_by_the_host();
        }
        // Two rounds: the first one to be asked does not know that the others have come.
        let mut left: Vec<usize> = vec![0, 1, 2];
        for _ in 0..3 {
            left.retain(|rank| !members[*rank].has_first_ended().unwrap());
        }
        assert!(left.is_empty(), "{left:?} have not ended");
        for calls in &calls {
            assert_eq!(bytes(calls[k].0.target.as_ref().unwrap()), [(30 * k + 3) as u8; COUNT]);
        }
    }
    assert!(!members[0].has_first_ended().unwrap(), "there are no more");
}

#[test]
fn work_without_a_promise_is_not_waited_for() {
    let (_, mut members) = members(2);
    let (event, call) = (Arc::new(SimEvent::new()), sum(1, LONG));
    assert!(!members[0].enqueue(&call, &point(&event), &point(&Arc::default())).unwrap());
    event.promise(1, Gate::default());
    assert!(members[0].enqueue(&call, &point(&event), &point(&Arc::default())).unwrap());
    for collective in [Collective::Send { to: 1 }, Collective::Receive { from: 1 }] {
        assert!(!members[0].takes_ahead(&CollectiveCall { collective, ..call.clone() }));
    }
}

/// The device executes a collective of all members before the host learns that the work of one of them has failed, so that all results are wrong.
#[test]
fn a_collective_has_not_ended_before_the_work_of_all_members_has_succeeded() {
    let (library, mut members) = members(3);
    let each: Vec<_> = (0..3).map(|rank| (sum(rank, LONG), Work::new())).collect();
    for (member, (call, work)) in members.iter_mut().zip(&each) {
        enqueue(member, call, work);
        // One more, which fails with it.
        enqueue(member, &sum(9, LONG), &Work::new());
        work.ends_on_the_device();
    }
    each[..2].iter().for_each(|(_, work)| work.is_seen_by_the_host());
    for _ in 0..4 {
        members.iter_mut().for_each(|member| assert!(!member.has_first_ended().unwrap()));
    }
    assert_eq!(bytes(each[0].0.target.as_ref().unwrap()), [3; COUNT], "the device is through");
    each[2].1.event.fail(&Error::Environment("a fault".into()));
    for rank in [2, 0, 1] {
        expect_failure(ended(&mut members[rank]), 2, "work before its all-reduce failed");
    }
    assert_eq!(library.aborted.load(Ordering::Relaxed), 3);
    let call = sum(1, LONG);
    let refused = members[0].enqueue(&call, &point(&Work::new().event), &point(&Arc::default()));
    expect_failure(refused.map(drop), 2, "a fault");
    // Those that are left go on.
    members.pop();
    let mut left: Vec<Box<dyn Member>> = std::thread::scope(|scope| {
        let shrinking: Vec<_> = members
            .iter_mut()
            .map(|member| scope.spawn(|| member.shrink(Duration::from_secs(20)).unwrap()))
            .collect();
        shrinking.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(
        left.iter().map(|member| (member.rank(), member.size())).collect::<Vec<_>>(),
        [(0, 2), (1, 2)]
    );
    assert!(!left[0].has_first_ended().unwrap());
}

#[test]
fn a_member_that_does_not_come_is_named_after_the_timeout() {
    let (library, mut members) = members(3);
    let timeout = Duration::from_millis(200);
    let work = Work::new();
    for member in &mut members[..2] {
        enqueue(member, &sum(1, timeout), &work);
    }
    // The time begins with the collective, not when it is passed.
    std::thread::sleep(2 * timeout);
    assert!(!members[0].has_first_ended().unwrap() && !members[1].has_first_ended().unwrap());
    work.ends_on_the_device();
    work.is_seen_by_the_host();
    members[..2].iter_mut().for_each(|member| assert!(!member.has_first_ended().unwrap()));
    expect_failure(
        ended(&mut members[0]),
        2,
        "it has not begun the collective within 200ms: all-reduce of 7 × uchar",
    );
    expect_failure(ended(&mut members[1]), 2, "it has not begun");
    assert_eq!(library.aborted.load(Ordering::Relaxed), 2);
}

#[test]
fn an_abort_ends_what_is_in_the_queue_when_the_work_before_it_has_ended() {
    let (_, mut members) = members(2);
    let work = Work::new();
    enqueue(&mut members[0], &sum(1, LONG), &work);
    members[1].aborter().abort(1, "it has given up");
    assert!(!members[0].has_first_ended().unwrap(), "the device may still use the library's memory");
    work.ends_on_the_device();
    work.is_seen_by_the_host();
    expect_failure(ended(&mut members[0]), 1, "it has given up");
}
