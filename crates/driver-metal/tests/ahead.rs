//! Command buffers committed while earlier ones are in flight: which ones are committed, and the state after a failure.
#![cfg(elinvar_apple)]

mod support;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use elinvar_driver::{
    Binding, Command, Device, Error, Memory, Pipeline, PipelineOptions, Queue, Result, Source, Storage,
    Submission, Timing,
};
use objc2_metal::MTLCommandBufferError;
use support::standin::{EXECUTION, Held, alone, committed, inject_on};
use support::{devices, dispatch, memory, run, slice, submit, whole, words, write};

/// Timeout of all waits, far longer than any of them takes.
const LONG: Duration = Duration::from_secs(60);
/// Maximum number of command buffers in flight per queue.
const DEPTH: u64 = 8;

const KERNELS: &str = "
    kernel void map(device const uint* from [[buffer(0)]], device uint* to [[buffer(1)]], constant uint& k [[buffer(2)]],
        uint i [[thread_position_in_grid]]) { to[i] = from[i] * 3u + k; }
    kernel void scatter(device const uint* from [[buffer(0)]], device uint* to [[buffer(1)]], constant uint& k [[buffer(2)]],
        uint i [[thread_position_in_grid]]) { to[from[i] % 100u] = k; }
    kernel void update(device uint* x [[buffer(0)]], constant uint& k [[buffer(1)]],
        uint i [[thread_position_in_grid]]) { x[i] = x[i] * 5u + k; }";

/// Kernels and buffers of 100 numbers on a device.
struct Fixture {
    number: usize,
    device: Arc<dyn Device>,
    kernels: [Arc<dyn Pipeline>; 3],
    buffers: Vec<Arc<dyn Memory>>,
}

impl Fixture {
    /// One fixture per device.
    fn all() -> impl Iterator<Item = Self> {
        devices().into_iter().enumerate().map(|(number, device)| {
            let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{KERNELS}");
            let library = device.compile(&Source::msl(text)).unwrap();
            let kernel = |name| library.pipeline(name, &PipelineOptions::default()).unwrap();
            let kernels = ["map", "scatter", "update"].map(kernel);
            let buffers = (0..12).map(|_| memory(&*device, 400, Storage::Shared)).collect();
            Self { number, device, kernels, buffers }
        })
    }

    fn between(&self, kernel: usize, from: usize, to: usize, k: u32) -> Command {
        let [from, to] = [from, to].map(|at| Binding::Memory(whole(&self.buffers[at])));
        let k = Binding::bytes(&k.to_ne_bytes());
        dispatch(&self.kernels[kernel], vec![from, to, k], 100, 25)
    }

    fn map(&self, from: usize, to: usize, k: u32) -> Command {
        self.between(0, from, to, k)
    }

    fn scatter(&self, from: usize, to: usize, k: u32) -> Command {
        self.between(1, from, to, k)
    }

    fn update(&self, at: usize, k: u32) -> Command {
        let bindings = vec![Binding::Memory(whole(&self.buffers[at])), Binding::bytes(&k.to_ne_bytes())];
        dispatch(&self.kernels[2], bindings, 100, 25)
    }

    fn fill(&self, at: usize, k: u32) -> Command {
        Command::Fill { target: whole(&self.buffers[at]), pattern: k.to_ne_bytes().into() }
    }

    fn copy(&self, from: usize, to: usize) -> Command {
        Command::Copy { source: whole(&self.buffers[from]), target: whole(&self.buffers[to]) }
    }

    fn words(&self, at: usize) -> Vec<u32> {
        words(&self.buffers[at])
    }

    fn set(&self, at: usize, k: u32) {
        write(&self.buffers[at], 0, &k.to_ne_bytes().repeat(100));
    }

    /// Submits all lists while the first command buffer is held; returns the number of command buffers committed by then, and the
    /// submissions.
    fn held(&self, queue: &dyn Queue, all: Vec<Vec<Command>>) -> (u64, Vec<Pending>) {
        let (held, before) = (Held::before(self.number, 0), committed(self.number));
        let all = all.into_iter().map(|commands| submit(queue, commands)).collect();
        let count = committed(self.number) - before;
        drop(held);
        (count, all)
    }

    /// Makes the next command buffer fail at its encoder with this index, or before its first one if negative.
    fn fail(&self, encoder: isize) {
        inject_on(self.number, EXECUTION, 1, MTLCommandBufferError::PageFault, encoder);
    }
}

type Pending = (Submission, Receiver<Result<Timing>>);

fn ended(pending: &Pending) -> Result<Timing> {
    pending.1.recv_timeout(LONG).expect("it ends")
}

fn is_poisoned(result: &Result<Timing>) -> bool {
    matches!(result, Err(Error::Poisoned(cause)) if is_failure(cause))
}

/// Whether the error is what a failed command buffer reports: a fault for a launch, an environment error for a copy.
fn is_failure(error: &Error) -> bool {
    matches!(error, Error::Fault(_) | Error::Environment(_))
}

#[test]
fn a_chain_of_submissions_is_in_flight_at_once() {
    let _alone = alone();
    for fixture in Fixture::all() {
        let queue = fixture.device.queue().unwrap();
        fixture.set(0, 1);
        let chain = (0..10).map(|at| vec![fixture.map(at, at + 1, 2)]).collect();
        let (count, all) = fixture.held(&*queue, chain);
        assert_eq!(count, DEPTH);
        let mut before = 0;
        for pending in &all {
            let timing = ended(pending).unwrap();
            assert!(before <= timing.start_ns && timing.start_ns <= timing.end_ns, "{before} {timing:?}");
            before = timing.end_ns;
        }
        let last = (0..10).fold(1_u32, |x, _| x * 3 + 2);
        assert!(fixture.words(10).iter().all(|word| *word == last));
        // Several kernels, copies and fills.
        let (count, all) = fixture.held(
            &*queue,
            vec![
                vec![fixture.update(0, 1), fixture.map(0, 1, 1)],
                vec![fixture.copy(1, 2), fixture.map(2, 3, 1)],
                vec![fixture.fill(4, 9), fixture.update(4, 1), fixture.scatter(5, 6, 1)],
            ],
        );
        assert_eq!(count, 3);
        assert!(all.iter().all(|pending| ended(pending).is_ok()));
    }
}

#[test]
fn what_would_show_behind_a_failure_is_not_committed_ahead() {
    let _alone = alone();
    for fixture in Fixture::all() {
        let queue = fixture.device.queue().unwrap();
        let first = || vec![fixture.map(0, 1, 1)];
        let part = |at: usize, offset| slice(&fixture.buffers[at], offset, 40);
        for (what, next) in [
            ("the first one's input", vec![fixture.fill(0, 1)]),
            ("the first one's output", vec![fixture.fill(1, 1)]),
            ("its own input", vec![fixture.update(2, 1)]),
            ("its own input, by copies", vec![fixture.copy(2, 3), fixture.copy(3, 2)]),
            ("overlapping", vec![Command::Copy { source: part(2, 0), target: part(2, 20) }]),
            ("steered by the first one's output", vec![fixture.scatter(1, 2, 1)]),
            ("steered by what is computed from it", vec![fixture.map(1, 2, 1), fixture.scatter(2, 3, 1)]),
        ] {
            let (count, all) = fixture.held(&*queue, vec![first(), next]);
            assert_eq!(count, 1, "{what}");
            assert!(all.iter().all(|pending| ended(pending).is_ok()), "{what}");
        }
        let (count, all) = fixture.held(&*queue, vec![first(), vec![fixture.scatter(0, 2, 1)]]);
        assert_eq!(count, 2, "both read what is there");
        assert!(all.iter().all(|pending| ended(pending).is_ok()));
    }
}

#[test]
fn behind_a_failure_all_is_poisoned_and_what_others_need_is_unchanged() {
    let _alone = alone();
    for fixture in Fixture::all() {
        for encoder in [-1, 0, 1] {
            let (queue, event) = (fixture.device.queue().unwrap(), fixture.device.event().unwrap());
            (0..6).for_each(|at| fixture.set(at, at as u32));
            fixture.fail(encoder);
            let signal = Command::Signal { event: event.clone(), value: 1 };
            let work = || {
                vec![
                    vec![fixture.map(0, 1, 1), fixture.copy(1, 2)],
                    vec![fixture.map(2, 3, 1), signal.clone()],
                    vec![fixture.update(4, 1)],
                    vec![fixture.fill(0, 77)],
                    vec![fixture.map(5, 6, 1)],
                ]
            };
            let (count, all) = fixture.held(&*queue, work());
            // A command buffer that fails before its first encoder is not held.
            assert!(count == 2 || encoder < 0, "nothing is committed before what waits for its turn");
            let results: Vec<_> = all.iter().map(ended).collect();
            assert!(matches!(&results[0], Err(error) if is_failure(error)), "{results:?}");
            assert!(results[1..].iter().all(is_poisoned), "{results:?}");
            assert!(event.value() == 0 && event.failure().is_some());
            for at in [0, 4, 5] {
                assert!(fixture.words(at).iter().all(|word| *word == at as u32), "buffer {at}");
            }
            assert!(is_poisoned(&run(&*queue, vec![fixture.update(4, 1)])));
            assert!(queue.acknowledge().is_some());
            // The inputs are intact, so a rerun gives the results of a run without a failure.
            for commands in work() {
                let again = commands.into_iter().filter(|command| !matches!(command, Command::Signal { .. }));
                run(&*queue, again.collect()).unwrap();
            }
            let expected = [(1, 1), (2, 1), (3, 4), (4, 21), (0, 77), (6, 16)];
            for (at, expected) in expected {
                assert!(fixture.words(at).iter().all(|word| *word == expected), "buffer {at}");
            }
        }
    }
}

#[test]
fn a_failure_of_one_that_was_committed_ahead_is_its_own() {
    let _alone = alone();
    for fixture in Fixture::all() {
        let queue = fixture.device.queue().unwrap();
        fixture.set(0, 1);
        inject_on(fixture.number, EXECUTION, 2, MTLCommandBufferError::PageFault, 0);
        let chain = (0..4).map(|at| vec![fixture.map(at, at + 1, 0)]).collect();
        let (count, all) = fixture.held(&*queue, chain);
        assert_eq!(count, 4);
        let results: Vec<_> = all.iter().map(ended).collect();
        assert!(results[0].is_ok() && matches!(results[1], Err(Error::Fault(_))), "{results:?}");
        assert!(results[2..].iter().all(is_poisoned), "{results:?}");
        assert!(fixture.words(1).iter().all(|word| *word == 3));
        assert!(queue.acknowledge().is_some());
        // A command buffer that the device rejects behind a failure does not make the device lost.
        inject_on(fixture.number, EXECUTION, 1, MTLCommandBufferError::PageFault, 0);
        inject_on(fixture.number, EXECUTION, 2, MTLCommandBufferError::NotPermitted, -1);
        let chain = (0..2).map(|at| vec![fixture.map(at, at + 1, 0)]).collect();
        let (count, all) = fixture.held(&*queue, chain);
        assert_eq!(count, 2);
        assert!(matches!(ended(&all[0]), Err(Error::Fault(_))) && is_poisoned(&ended(&all[1])));
        assert!(queue.acknowledge().is_some());
        run(&*queue, vec![fixture.map(0, 1, 5)]).unwrap();
        assert!(fixture.words(1).iter().all(|word| *word == 8));
    }
}

#[test]
fn what_is_committed_ahead_is_not_cancelled_and_stops_in_its_turn() {
    let _alone = alone();
    for fixture in Fixture::all() {
        let queue = fixture.device.queue().unwrap();
        let held = Held::before(fixture.number, 0);
        let chain = (0..3).map(|at| vec![fixture.map(at, at + 1, 1)]);
        let mut all: Vec<_> = chain.map(|commands| submit(&*queue, commands)).collect();
        all.push(submit(&*queue, vec![fixture.update(0, 1)]));
        assert!(!queue.cancel(all[0].0) && !queue.cancel(all[1].0), "they are committed");
        assert!(queue.cancel(all[3].0), "it is not");
        assert!(matches!(ended(&all[3]), Err(Error::Cancelled)));
        let late = || Error::Timeout("late".into());
        assert!(matches!(queue.stop(all[0].0, late()), Err(Error::Unsupported(_))), "it runs");
        assert!(queue.stop(all[1].0, late()).unwrap());
        assert!(all.iter().take(3).all(|pending| pending.1.try_recv().is_err()), "in its turn");
        drop(held);
        assert!(ended(&all[0]).is_ok());
        assert!(matches!(ended(&all[1]), Err(Error::Timeout(text)) if text == "late"));
        assert!(matches!(ended(&all[2]), Err(Error::Poisoned(_))));
        assert!(matches!(queue.acknowledge(), Some(Error::Timeout(_))));
        run(&*queue, vec![fixture.map(0, 1, 1)]).unwrap();
    }
}

#[test]
fn queues_that_wait_for_one_another_fail_with_what_they_wait_for() {
    let _alone = alone();
    for fixture in Fixture::all() {
        let (queue, other) = (fixture.device.queue().unwrap(), fixture.device.queue().unwrap());
        let event = fixture.device.event().unwrap();
        (0..6).for_each(|at| fixture.set(at, at as u32));
        fixture.fail(0);
        let signal = |value| Command::Signal { event: event.clone(), value };
        let wait = |value| Command::Wait { event: event.clone(), value };
        let held = Held::before(fixture.number, 0);
        let first = submit(&*queue, vec![fixture.map(0, 1, 1), signal(1)]);
        let second = submit(&*queue, vec![fixture.map(1, 2, 1), signal(2)]);
        let waits = submit(&*other, vec![wait(2), fixture.update(3, 1)]);
        let behind = submit(&*other, vec![fixture.map(4, 5, 1)]);
        drop(held);
        assert!(matches!(ended(&first), Err(Error::Fault(_))));
        assert!([second, waits, behind].iter().all(|pending| is_poisoned(&ended(pending))));
        assert!([3, 4, 5].into_iter().all(|at| fixture.words(at).iter().all(|word| *word == at as u32)));
        assert_eq!(event.value(), 0);
    }
}

/// Two queues whose signals are promised, as all signals of a queue except its first are.
fn queues(fixture: &Fixture) -> [Arc<dyn Queue>; 2] {
    let queues = [0, 1].map(|_| fixture.device.queue().unwrap());
    for queue in &queues {
        let event = fixture.device.event().unwrap();
        run(&**queue, vec![fixture.fill(11, 0), Command::Signal { event, value: 1 }]).unwrap();
    }
    queues
}

#[test]
fn a_gpu_waits_for_what_another_queue_raises() {
    let _alone = alone();
    for fixture in Fixture::all() {
        let [queue, other] = queues(&fixture);
        let events: Vec<_> = (0..3).map(|_| fixture.device.event().unwrap()).collect();
        let signal = |at: usize| Command::Signal { event: events[at].clone(), value: 1 };
        let wait = |at: usize| Command::Wait { event: events[at].clone(), value: 1 };
        fixture.set(0, 1);
        let (held, before) = (Held::before(fixture.number, 0), committed(fixture.number));
        let mut all = vec![
            submit(&*queue, vec![fixture.map(0, 1, 1), signal(0)]),
            submit(&*other, vec![wait(0), fixture.map(1, 2, 1), signal(1)]),
            // Waits and signals in separate submissions.
            submit(&*queue, vec![wait(1)]),
            submit(&*queue, vec![fixture.map(2, 3, 1)]),
            submit(&*queue, vec![signal(2)]),
            submit(&*other, vec![wait(2), fixture.map(3, 4, 1)]),
        ];
        assert_eq!(committed(fixture.number) - before, 4);
        // Work that overwrites its input waits for the event on the host, as its effect could not be undone after a failure.
        all.push(submit(&*other, vec![wait(2), fixture.update(0, 1)]));
        assert_eq!(committed(fixture.number) - before, 4);
        assert!(all.iter().all(|pending| pending.1.try_recv().is_err()));
        drop(held);
        assert!(all.iter().all(|pending| ended(pending).is_ok()));
        for (at, expected) in [6, 4, 13, 40, 121].into_iter().enumerate() {
            assert!(fixture.words(at).iter().all(|word| *word == expected), "buffer {at}");
        }
    }
}

#[test]
fn who_waits_on_the_gpu_fails_with_what_it_waits_for() {
    let _alone = alone();
    for fixture in Fixture::all() {
        let [queue, other] = queues(&fixture);
        let events: Vec<_> = (0..2).map(|_| fixture.device.event().unwrap()).collect();
        let signal = |at: usize| Command::Signal { event: events[at].clone(), value: 1 };
        let wait = |at: usize| Command::Wait { event: events[at].clone(), value: 1 };
        (0..6).for_each(|at| fixture.set(at, at as u32));
        let (held, before) = (Held::before(fixture.number, 1), committed(fixture.number));
        fixture.fail(1);
        // The first command buffer reaches its second encoder before the second command buffer is committed.
        let (begun, (sender, has_begun)) = (fixture.device.event().unwrap(), channel());
        begun.when(1, Box::new(move |result| drop(sender.send(result))));
        let begins = Command::Signal { event: begun, value: 1 };
        let first = vec![fixture.map(0, 1, 1), begins, fixture.map(0, 6, 1), signal(0)];
        let mut all = vec![submit(&*queue, first)];
        has_begun.recv_timeout(LONG).expect("it begins").unwrap();
        all.push(submit(&*other, vec![wait(0), fixture.map(1, 2, 1), signal(1)]));
        assert_eq!(committed(fixture.number) - before, 2);
        all.extend([
            submit(&*other, vec![fixture.fill(0, 9)]),
            submit(&*other, vec![fixture.update(3, 1)]),
            submit(&*queue, vec![wait(1), fixture.update(4, 1)]),
            submit(&*queue, vec![fixture.update(5, 1)]),
        ]);
        assert_eq!(committed(fixture.number) - before, 2);
        assert!(!other.cancel(all[1].0), "it is committed");
        drop(held);
        let results: Vec<_> = all.iter().map(ended).collect();
        assert!(matches!(&results[0], Err(Error::Fault(_))), "{results:?}");
        assert!(results[1..].iter().all(is_poisoned), "{results:?}");
        assert!(events.iter().all(|event| event.value() == 0 && event.failure().is_some()));
        for at in [0, 3, 4, 5] {
            assert!(fixture.words(at).iter().all(|word| *word == at as u32), "buffer {at}");
        }
        assert!(queue.acknowledge().is_some() && other.acknowledge().is_some());
        // Both queues continue, and wait for each other again.
        let event = fixture.device.event().unwrap();
        let held = Held::before(fixture.number, 0);
        let first =
            submit(&*queue, vec![fixture.map(0, 1, 1), Command::Signal { event: event.clone(), value: 7 }]);
        let second = submit(&*other, vec![Command::Wait { event, value: 7 }, fixture.map(1, 2, 1)]);
        assert_eq!(committed(fixture.number) - before, 4);
        drop(held);
        assert!(ended(&first).is_ok() && ended(&second).is_ok());
        assert!(fixture.words(2).iter().all(|word| *word == 4));
    }
}

#[test]
fn a_signal_behind_a_wait_is_behind_what_that_waits_for() {
    let _alone = alone();
    for fixture in Fixture::all() {
        let ([queue, other], third) = (queues(&fixture), fixture.device.queue().unwrap());
        let events: Vec<_> = (0..2).map(|_| fixture.device.event().unwrap()).collect();
        let signal = |at: usize| Command::Signal { event: events[at].clone(), value: 1 };
        let wait = |at: usize| Command::Wait { event: events[at].clone(), value: 1 };
        let (held, before) = (Held::before(fixture.number, 0), committed(fixture.number));
        let mut all = vec![
            submit(&*queue, vec![fixture.map(0, 1, 1), signal(0)]),
            submit(&*other, vec![fixture.map(2, 3, 1)]),
            submit(&*other, vec![wait(0), signal(1)]),
            submit(&*third, vec![wait(1), fixture.map(1, 4, 1)]),
        ];
        assert_eq!(committed(fixture.number) - before, 2);
        all.push(submit(&*other, vec![fixture.map(1, 5, 1)]));
        assert_eq!(committed(fixture.number) - before, 3);
        drop(held);
        assert!(all.iter().all(|pending| ended(pending).is_ok()));
        assert!([4, 5].into_iter().all(|at| fixture.words(at).iter().all(|word| *word == 4)));
    }
}

#[test]
fn what_waits_on_the_gpu_stops_in_its_turn() {
    let _alone = alone();
    for fixture in Fixture::all() {
        let [queue, other] = queues(&fixture);
        let event = fixture.device.event().unwrap();
        let held = Held::before(fixture.number, 0);
        let first =
            submit(&*queue, vec![fixture.map(0, 1, 1), Command::Signal { event: event.clone(), value: 1 }]);
        let second = submit(&*other, vec![Command::Wait { event, value: 1 }, fixture.map(1, 2, 1)]);
        assert!(other.stop(second.0, Error::Timeout("late".into())).unwrap());
        drop(held);
        assert!(ended(&first).is_ok());
        assert!(matches!(ended(&second), Err(Error::Timeout(text)) if text == "late"));
        assert!(matches!(other.acknowledge(), Some(Error::Timeout(_))));
        run(&*other, vec![fixture.update(0, 1)]).unwrap();
    }
}

/// Number of buffers in the random histories.
const PLACES: u64 = 10;

/// Pseudorandom numbers (xorshift), determined by the seed.
struct Random {
    state: u64,
    /// Output buffer of the last step.
    last: usize,
}

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % most
    }

    /// A random buffer; in one of three cases the output of the last step, which makes a chain.
    fn buffer(&mut self) -> usize {
        if self.below(3) == 0 { self.last } else { self.below(PLACES) as usize }
    }
}

/// A command of a random history; buffers are given by index.
#[derive(Clone, Copy, Debug)]
enum Step {
    Map(usize, usize, u32),
    Scatter(usize, usize, u32),
    Update(usize, u32),
    Fill(usize, u32),
    Copy(usize, usize),
}

impl Step {
    fn random(random: &mut Random) -> Self {
        let (from, k) = (random.buffer(), random.below(1000) as u32);
        let to = (from + 1 + random.below(PLACES - 1) as usize) % PLACES as usize;
        let step = match random.below(11) {
            0..2 => Self::Update(from, k),
            2..4 => Self::Scatter(from, to, k),
            4 => Self::Fill(from, k),
            5..7 => Self::Copy(from, to),
            _ => Self::Map(from, to, k),
        };
        random.last = step.output();
        step
    }

    fn command(self, fixture: &Fixture) -> Command {
        match self {
            Self::Map(from, to, k) => fixture.map(from, to, k),
            Self::Scatter(from, to, k) => fixture.scatter(from, to, k),
            Self::Update(at, k) => fixture.update(at, k),
            Self::Fill(at, k) => fixture.fill(at, k),
            Self::Copy(from, to) => fixture.copy(from, to),
        }
    }

    fn apply(self, buffers: &mut [Vec<u32>]) {
        let step = |x: u32, factor: u32, k: u32| x.wrapping_mul(factor).wrapping_add(k);
        match self {
            Self::Map(from, to, k) => buffers[to] = buffers[from].iter().map(|x| step(*x, 3, k)).collect(),
            Self::Scatter(from, to, k) => {
                for at in buffers[from].clone() {
                    buffers[to][at as usize % 100] = k;
                }
            }
            Self::Update(at, k) => buffers[at].iter_mut().for_each(|x| *x = step(*x, 5, k)),
            Self::Fill(at, k) => buffers[at].fill(k),
            Self::Copy(from, to) => buffers[to] = buffers[from].clone(),
        }
    }

    fn input(self) -> Option<usize> {
        match self {
            Self::Map(from, ..) | Self::Scatter(from, ..) | Self::Copy(from, _) | Self::Update(from, _) => {
                Some(from)
            }
            Self::Fill(..) => None,
        }
    }

    fn output(self) -> usize {
        match self {
            Self::Map(_, to, _) | Self::Scatter(_, to, _) | Self::Copy(_, to) => to,
            Self::Update(at, _) | Self::Fill(at, _) => at,
        }
    }
}

/// Submits work with injected failures and, like a stream that recovers, reruns the failed submission and those behind it. After each
/// failure it compares the buffers that neither the failed nor the poisoned work writes, and at the end all buffers.
///
/// The work is spread over two queues, and events order each submission behind the previous one.
fn history(fixture: &Fixture, seed: u64) {
    let (mut random, queues) = (Random { state: seed * 2 + 1, last: 0 }, queues(fixture));
    let mut expected: Vec<Vec<u32>> = (0..PLACES as u32).map(|at| vec![at; 100]).collect();
    (0..PLACES).for_each(|at| fixture.set(at as usize, at as u32));
    // Half of the histories have no in-place steps. Their submissions can be rerun, so failures may occur within them as well.
    let can_fail_within = seed % 2 == 0;
    let mut submission = || -> Vec<Step> {
        loop {
            let steps: Vec<_> = (0..1 + random.below(2)).map(|_| Step::random(&mut random)).collect();
            let reads = |place: usize| steps.iter().any(|step| step.input() == Some(place));
            if !(can_fail_within && steps.iter().any(|step| reads(step.output()))) {
                return steps;
            }
        }
    };
    let mut left: Vec<Vec<Step>> = (0..20).map(|_| submission()).collect();
    while !left.is_empty() {
        let at = random.below(8);
        if at < left.len() as u64 {
            let encoder = if can_fail_within { random.below(3) as isize - 1 } else { -1 };
            inject_on(fixture.number, EXECUTION, at + 1, MTLCommandBufferError::Internal, encoder);
        }
        let held = (random.below(2) == 0).then(|| Held::before(fixture.number, 0));
        let mut all: Vec<Pending> = Vec::new();
        let (mut on, mut last) = (0, None);
        for steps in &left {
            let mut commands: Vec<Command> = steps.iter().map(|step| step.command(fixture)).collect();
            let next = random.below(2) as usize;
            if let Some(event) = last.take().filter(|_| next != on) {
                commands.insert(0, Command::Wait { event, value: 1 });
            }
            on = next;
            let event = fixture.device.event().unwrap();
            commands.push(Command::Signal { event: event.clone(), value: 1 });
            last = Some(event);
            all.push(submit(&*queues[on], commands));
        }
        drop(held);
        let results: Vec<_> = all.iter().map(ended).collect();
        let well = results.iter().take_while(|result| result.is_ok()).count();
        let done = left.drain(..well).flatten();
        done.for_each(|step| step.apply(&mut expected));
        if let [first, behind @ ..] = &results[well..] {
            assert!(!matches!(first, Err(Error::Poisoned(_))), "seed {seed}: {first:?}");
            assert!(behind.iter().all(|result| matches!(result, Err(Error::Poisoned(_)))), "seed {seed}");
            let acknowledged = queues.iter().filter(|queue| queue.acknowledge().is_some()).count();
            assert!(acknowledged > 0, "seed {seed}");
        }
        for (at, expected) in expected.iter().enumerate() {
            if !left.iter().flatten().any(|step| step.output() == at) {
                assert_eq!(&fixture.words(at), expected, "seed {seed}, buffer {at}, {left:?}");
            }
        }
    }
}

#[test]
fn random_histories_with_failures_end_as_without() {
    let _alone = alone();
    for fixture in Fixture::all() {
        for seed in 0..30 {
            history(&fixture, seed);
        }
    }
}
