//! Callbacks: a call in a waker or in the destructor of a buffer's memory that would block is an error, and succeeds if the work
//! has ended.

use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use elinvar::{Buffer, Completion, Device, Error, Event, RecoveryPolicy, Stream, WhenFull};

use super::{CaseResult, expect_all};

cases!("callbacks": waits_in_a_waker, waits_in_a_waker_of_a_stream_that_recovers, waits_in_a_waker_that_the_host_calls,
    waits_in_a_destructor, streams_are_dropped_in_a_waker);

const N: usize = 1000;
/// Timeout of a callback, after which the case fails instead of hanging.
const LONG: Duration = Duration::from_secs(120);

type Refused = Result<(), Error>;

/// A waker that calls a function once.
struct OnWake(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for OnWake {
    fn wake(self: Arc<Self>) {
        let then = self.0.lock().ok().and_then(|mut then| then.take());
        then.into_iter().for_each(|then| then());
    }
}

/// Makes the waker of an unresolved completion call `then`. The completion must be kept alive.
fn when_resolved(done: &mut Completion, then: impl FnOnce() + Send + 'static) {
    let waker = Waker::from(Arc::new(OnWake(Mutex::new(Some(Box::new(then))))));
    let polled = pin!(done).poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Pending), "it has ended before: {polled:?}");
}

/// Waits for the message of a callback.
#[track_caller]
fn told<T>(answers: &Receiver<T>) -> T {
    answers.recv_timeout(LONG).unwrap_or_else(|_| panic!("the callback stands still, or was never called"))
}

/// Work on several streams: the first part runs when `first_gate` is signaled, the rest when `second_gate` is.
struct Held {
    device: Device,
    stream: Stream,
    /// Waits for `stream`, and has reached its limit of work in flight.
    full: Stream,
    first_gate: Event,
    second_gate: Event,
    behind: Event,
    first: Completion,
    second: Completion,
    third: Completion,
    early: Buffer<u32>,
    late: Buffer<u32>,
    later: Buffer<u32>,
    spare: Buffer<u32>,
}

impl Held {
    fn new(device: &Device, stream: Stream) -> Result<Self, Error> {
        let full = device.stream()?.limited(1, WhenFull::Block);
        let (first_gate, second_gate, behind) = (device.event()?, device.event()?, device.event()?);
        let buffer = || device.buffer::<u32>(N);
        let (mut early, mut late, mut later, spare) = (buffer()?, buffer()?, buffer()?, buffer()?);
        stream.wait_for(&first_gate, 1)?;
        let first = stream.fill(&mut early, 7)?;
        stream.wait_for(&second_gate, 1)?;
        let second = stream.fill(&mut late, 8)?;
        stream.signal(&behind, 1)?;
        let mut commands = full.command_buffer();
        commands.wait_for(&behind, 1);
        commands.fill(&mut later, 9)?;
        let third = commands.submit()?;
        let device = device.clone();
        Ok(Self {
            device,
            stream,
            full,
            first_gate,
            second_gate,
            behind,
            first,
            second,
            third,
            early,
            late,
            later,
            spare,
        })
    }

    /// Handles for a callback.
    fn share(&self) -> Self {
        Self {
            device: self.device.clone(),
            stream: self.stream.clone(),
            full: self.full.clone(),
            first_gate: self.first_gate.clone(),
            second_gate: self.second_gate.clone(),
            behind: self.behind.clone(),
            first: self.first.clone(),
            second: self.second.clone(),
            third: self.third.clone(),
            early: self.early.clone(),
            late: self.late.clone(),
            later: self.later.clone(),
            spare: self.spare.clone(),
        }
    }

    /// Waits for work that has not ended; each wait must be refused.
    fn waits(&mut self) -> Vec<(&'static str, Refused)> {
        let policy = RecoveryPolicy::of(&self.device);
        vec![
            ("second", self.second.wait().map(drop)),
            ("for a second", self.second.wait_timeout(Duration::from_secs(1)).map(drop)),
            ("of another stream", self.third.wait().map(drop)),
            ("to_vec", self.late.to_vec().map(drop)),
            ("to_vec of another stream's", self.later.to_vec().map(drop)),
            ("map", self.late.map().map(drop)),
            ("map_mut", self.late.map_mut().map(drop)),
            ("write", self.late.write(&[1; N])),
            ("stream.synchronize", self.stream.synchronize().map(drop)),
            ("device.synchronize", self.device.synchronize()),
            ("event.wait", self.behind.wait(1)),
            ("event.wait_timeout", self.behind.wait_timeout(1, LONG).map(drop)),
            ("a full stream", self.full.fill(&mut self.spare, 1).map(drop)),
            ("device.reset", self.device.reset()),
            ("device.recover", self.device.recover(&policy, || Ok(()))),
        ]
    }

    /// Calls that do not block, in a callback of the first part.
    fn looks(&mut self, first_has_ended: bool) -> Result<(), Error> {
        assert_eq!(self.second.wait_timeout(Duration::ZERO)?, None);
        assert!(!self.behind.wait_timeout(1, Duration::ZERO)?);
        if first_has_ended {
            self.first.wait()?;
            assert!(self.first.wait_timeout(LONG)?.is_some());
            self.first_gate.wait(1)?;
            assert_eq!(self.early.to_vec()?, [7; N]);
            assert_eq!(self.early.map()?[..], [7; N]);
        }
        // Work may be submitted in a callback.
        self.stream.fill(&mut self.spare, 10).map(drop)
    }

    /// Completes the rest of the work, which the attempted waits have not affected.
    fn end(self) -> CaseResult {
        assert_eq!(self.second.wait_timeout(Duration::ZERO)?, None);
        self.second_gate.signal(1);
        self.third.wait()?;
        for (buffer, expected) in [(self.early, 7), (self.late, 8), (self.later, 9), (self.spare, 10)] {
            expect_all(&buffer.to_vec()?, |_| expected);
        }
        Ok(())
    }
}

#[track_caller]
fn expect_refused(waits: Vec<(&'static str, Refused)>) {
    for (what, result) in waits {
        let Err(Error::WouldDeadlock(text)) = &result else { panic!("{what}: {result:?}") };
        assert!(text.contains("callback") && text.contains("another thread"), "{what}: {text}");
    }
}

/// Waits in the waker of `done`, which the first gate resolves.
fn waits_are_refused(held: Held, mut done: Completion, first_has_ended: bool) -> CaseResult {
    let mut inside = held.share();
    let (sender, answers) = channel();
    when_resolved(&mut done, move || {
        let looked = inside.looks(first_has_ended);
        sender.send((inside.waits(), looked)).unwrap();
    });
    held.first_gate.signal(1);
    let (waits, looked) = told(&answers);
    looked?;
    expect_refused(waits);
    held.end()
}

fn in_a_waker(device: &Device, stream: Stream) -> CaseResult {
    let held = Held::new(device, stream)?;
    let first = held.first.clone();
    waits_are_refused(held, first, true)
}

fn waits_in_a_waker(device: &Device) -> CaseResult {
    in_a_waker(device, device.stream()?)
}

fn waits_in_a_waker_of_a_stream_that_recovers(device: &Device) -> CaseResult {
    in_a_waker(device, device.stream_recovering(RecoveryPolicy::of(device))?)
}

/// The event's waker is called by the thread that signals it, before streams that wait for the event continue.
fn waits_in_a_waker_that_the_host_calls(device: &Device) -> CaseResult {
    let held = Held::new(device, device.stream()?)?;
    let reached = held.first_gate.reached(1);
    waits_are_refused(held, reached, false)
}

/// Numbers whose size is a multiple of their alignment.
#[repr(C, align(65536))]
struct Pages([u32; 16384]);

/// Host memory whose destructor waits.
struct Waits {
    pages: Box<Pages>,
    then: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl AsMut<[u32]> for Waits {
    fn as_mut(&mut self) -> &mut [u32] {
        &mut self.pages.0
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.then.take().into_iter().for_each(|then| then());
    }
}

#[allow(unsafe_code)] // lends memory of the host
fn waits_in_a_destructor(device: &Device) -> CaseResult {
    let held = Held::new(device, device.stream()?)?;
    let inside = Mutex::new(held.share());
    let (sender, answers) = channel();
    let then = move || {
        let waits = inside.lock().map(|mut inside| inside.waits());
        sender.send(waits.unwrap_or_default()).unwrap();
    };
    let pages = Waits { pages: Box::new(Pages([5; 16384])), then: Some(Box::new(then)) };
    // SAFETY: the numbers are boxed, so they do not move, and no other code uses them.
    let wrapped = unsafe { device.buffer_no_copy::<u32>(pages) };
    let mut wrapped = match wrapped {
        Ok(wrapped) => wrapped,
        Err(error) => {
            // The memory is dropped on this thread, where waits are refused as well.
            expect_refused(told(&answers));
            held.first_gate.signal(1);
            held.second_gate.signal(1);
            return Err(error.into());
        }
    };
    let gate = device.event()?;
    let stream = device.stream()?;
    stream.wait_for(&gate, 1)?;
    let done = stream.fill(&mut wrapped, 6)?;
    drop(wrapped);
    assert!(answers.try_recv().is_err(), "the device has it still");
    gate.signal(1);
    done.wait()?;
    expect_refused(told(&answers));
    held.first_gate.signal(1);
    let mut spare = held.spare.clone();
    held.stream.fill(&mut spare, 10)?;
    held.end()
}

/// Drops the last handles of a stream, its buffers and its events in a callback, with work in flight.
fn streams_are_dropped_in_a_waker(device: &Device) -> CaseResult {
    let (stream, gate) = (device.stream()?, device.event()?);
    let mut target = device.buffer::<u32>(N)?;
    stream.wait_for(&gate, 1)?;
    let mut done = stream.fill(&mut target, 1)?;
    let (sender, answers) = channel();
    let (lonely, never) = (device.stream()?, device.event()?);
    let mut lost = device.buffer::<u32>(N)?;
    let failed = lonely.wait_for(&never, 1)?;
    let unfilled = lonely.fill(&mut lost, 2)?;
    when_resolved(&mut done, move || {
        drop((stream, lonely, lost));
        drop(never);
        sender.send(()).unwrap();
    });
    gate.signal(1);
    told(&answers);
    // When its last handle was dropped, the event failed, and with it the work that waited for it.
    assert!(matches!(failed.wait(), Err(Error::Poisoned(_))), "{failed:?}");
    assert!(matches!(unfilled.wait(), Err(Error::Poisoned(_))), "{unfilled:?}");
    expect_all(&target.to_vec()?, |_| 1);
    Ok(())
}

/// Drops the last handle of `device` in a callback of the device.
///
/// # Errors
/// Errors of the device.
pub fn drop_last_device(device: Device) -> Result<(), Error> {
    let (stream, gate) = (device.stream()?, device.event()?);
    let mut target = device.buffer::<u32>(N)?;
    stream.wait_for(&gate, 1)?;
    let mut done = stream.fill(&mut target, 1)?;
    let ((sender, answers), (alone, is_alone)) = (channel(), channel());
    when_resolved(&mut done, move || {
        let content = target.to_vec();
        is_alone.recv().unwrap();
        drop((stream, target));
        drop(device);
        sender.send(content).unwrap();
    });
    gate.signal(1);
    drop(gate);
    let _sent = alone.send(());
    expect_all(&told(&answers)?, |_| 1);
    done.wait().map(drop)
}
