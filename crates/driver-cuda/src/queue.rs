//! The CUDA backend of the submission core: a stream to which commands are submitted ahead.
//!
//! Submissions are passed to the stream in order, so that the device does not wait for the host between them. Work on the stream has begun
//! and cannot be cancelled. Held back on the host are:
//!
//! - waits for events that are not promised by this device ([`CudaEvent`]), and everything behind them;
//! - work behind a launch with bounds checks, until it is known whether that launch has failed;
//! - an indirect launch without CUDA's device runtime, until all earlier work has completed and the counts were copied to the host. CUDA cannot
//!   launch a grid whose size the host does not know, so the device waits for the host once per such launch;
//! - work that is more than about a millisecond ahead, so that long work can still be cancelled, and the stream never has more launches
//!   than the driver accepts without blocking.
//!
//! Lock order: `encoder`, held by the one thread that issues; `progress`, held briefly; the submission core's lock.
//!
//! Invariants:
//! - While operations are in flight, the queue is on the list of the device's poller thread (`is_watched`).
//! - A fence without an event is at the same point as the fence before it: nothing was appended to the stream in between.

use std::sync::Arc;

use cudarc::driver::sys::CUstream;
use elinvar_driver::submission::{
    Backend, Completed, Deferred, Issue, Issued, QueueHandle, SubmissionQueue, Waiting,
};
use elinvar_driver::{Command, Dim3, Error, Event, PromisedTimeline, Result};
use parking_lot::Mutex;

use crate::clock::now_ns;
use crate::commands;
use crate::context::{DeviceEvent, Handle};
use crate::cooperative::GridCounter;
use crate::encode::{Encoder, Step, is_between_devices, pipeline};
use crate::failure::Failure;
use crate::libraries::StreamLibraries;
use crate::nvtx;
use crate::shared::Shared;
use crate::staging::Staging;

/// Duration of work that is submitted ahead, approximately.
const AHEAD_NS: u64 = 1_000_000;
/// Assumed duration of a submission before any was measured.
const FIRST_NS: u64 = AHEAD_NS / 4;
/// Maximum number of commands in a stream; the driver accepts about a thousand without blocking.
const MOST_AHEAD: u32 = 960;
/// Number of commands between two fences.
const PART: u32 = 128;

/// An event of this driver. Only signals of work that cannot fail are promised: nothing is submitted behind a command that may fail, such as
/// a launch with bounds checks.
pub(crate) type CudaEvent = PromisedTimeline<DeviceEvent>;

pub(crate) type CudaQueue = QueueHandle<Stream>;

/// The submission queue of a stream.
pub(crate) type Submissions = SubmissionQueue<Stream>;

/// The backend of one stream.
pub(crate) struct Stream {
    pub(crate) shared: Arc<Shared>,
    stream: Handle<CUstream>,
    encoder: Mutex<Tail>,
    pub(crate) progress: Mutex<Progress>,
}

/// State at the end of the stream.
#[derive(Default)]
struct Tail {
    /// The last event that was recorded.
    last: Option<DeviceEvent>,
    /// Whether anything was appended to the stream since.
    has_more: bool,
    /// Whether its end needs the device's time. Of copies between devices the host's suffices: an event with a time between two of them takes 3 µs.
    needs_time: bool,
    params: Vec<u8>,
    counter: GridCounter,
    libraries: StreamLibraries,
}

/// Progress of the device.
#[derive(Default)]
pub(crate) struct Progress {
    /// The driver error that destroyed the context, if any.
    pub(crate) broken: Option<Failure>,
    /// Number of commands in flight.
    commands: u32,
    /// Number of fences in flight at which a failure may be found.
    unverified: u32,
    /// Number of submissions that have begun and not ended.
    submissions: u64,
    /// Estimated duration of a submission.
    mean_ns: Option<u64>,
    /// Start of the last submission, and the last reported time.
    start_ns: u64,
    last_ns: u64,
    pub(crate) is_watched: bool,
    /// Threadgroup counts of the next command, an indirect launch.
    counts: Option<Dim3>,
}

/// A point in the stream.
pub(crate) struct Fence {
    /// `None`: the device reaches it together with the fence before it.
    pub(crate) at: Option<DeviceEvent>,
    /// Time of issue on the host, a lower bound for the time of completion.
    given_ns: u64,
    /// Number of commands between the previous fence and this one.
    commands: u32,
    staging: Staging,
    is_start: bool,
}

impl Stream {
    pub(crate) fn new(shared: &Arc<Shared>, priority: i32) -> Result<CudaQueue> {
        let _current = shared.context.enter()?;
        let stream = Handle(shared.context.create_stream(priority)?);
        let (shared, encoder, progress) = (shared.clone(), Mutex::default(), Mutex::default());
        let queue = QueueHandle::new(Self { shared, stream, encoder, progress });
        queue.submissions().backend().shared.register(queue.submissions());
        Ok(queue)
    }

    /// Whether more may be submitted to the stream; `goes_on` for the rest of a submission that has begun.
    fn has_room(&self, goes_on: bool) -> bool {
        let progress = self.progress.lock();
        let most = (AHEAD_NS / progress.mean_ns.unwrap_or(FIRST_NS).max(1)).clamp(2, u64::from(MOST_AHEAD));
        progress.commands + PART <= MOST_AHEAD && (goes_on || progress.submissions < most)
    }

    /// Marks the start of a submission: now, or the end of earlier work.
    fn start(&self, issue: &Issue<'_, Self>, tail: &mut Tail, first: &Command) {
        let is_new = issue.with_work(|has_begun| !std::mem::replace(has_begun, true));
        if is_new != Some(true) {
            return;
        }
        self.progress.lock().submissions += 1;
        if !issue.queue().with_fences(|fences| fences.next().is_some()) {
            // If nothing is in flight, no earlier fence marks the start.
            tail.last = None;
            tail.has_more |= !matches!(first, Command::Signal { .. } | Command::Timestamp { .. });
            tail.needs_time = true;
        }
        let fence = self.fence(tail, Staging::default(), 0, true);
        issue.announce_start(fence);
        self.watch(issue);
    }

    /// Creates a fence behind all work in the stream.
    fn fence(&self, tail: &mut Tail, staging: Staging, commands: u32, is_start: bool) -> Fence {
        let context = &self.shared.context;
        let mut broken = None;
        if staging.has_reports() {
            broken = staging.fetch(context, self.stream.0).err();
        }
        if std::mem::take(&mut tail.has_more) {
            match DeviceEvent::record_as(context, self.stream.0, std::mem::take(&mut tail.needs_time)) {
                Ok(event) => tail.last = Some(event),
                Err(failure) => broken = Some(failure),
            }
        }
        let mut progress = self.progress.lock();
        progress.broken = broken.or(progress.broken);
        progress.commands += commands;
        progress.unverified += u32::from(staging.has_reports());
        Fence { at: tail.last.clone(), given_ns: now_ns(), commands, staging, is_start }
    }

    /// Registers the queue with the poller thread. Called after each announcement, because the poller drops a queue without fences.
    fn watch(&self, issue: &Issue<'_, Self>) {
        let is_new = !std::mem::replace(&mut self.progress.lock().is_watched, true);
        if is_new {
            self.shared.poller.watch(issue.queue().clone());
        }
    }

    /// Appends commands to the stream: the whole run, or as many as fit in one part. Returns their number, and whether the host must read
    /// results before it issues more.
    fn give(
        &self,
        issue: &Issue<'_, Self>,
        tail: &mut Tail,
        staging: &mut Staging,
        count: &mut u32,
    ) -> Result<usize> {
        let commands = issue.commands();
        if issue.next() == 0
            && let Some(replay) = self.shared.replays.find(&self.shared, commands)
        {
            replay.launch(self.stream.0)?;
            (tail.has_more, tail.needs_time, *count) = (true, true, 1);
            return Ok(commands.len());
        }
        let mut given = 0;
        for command in issue.run() {
            if staging.has_news() || *count >= PART {
                break;
            }
            let _range = nvtx::range(command);
            let counts = self.progress.lock().counts.take();
            let (shared, stream, params) = (&*self.shared, self.stream.0, &mut tail.params);
            let (counter, libraries) = (&mut tail.counter, &mut tail.libraries);
            let step =
                Encoder { shared, stream, staging, params, counter, libraries, counts }.encode(command);
            // A part of a command may have been appended.
            tail.has_more = true;
            tail.needs_time |= !is_between_devices(command);
            match step? {
                Step::Work => *count += 1,
                Step::Counts => {
                    *count += 1;
                    break;
                }
            }
            given += 1;
        }
        Ok(given)
    }
}

#[allow(unsafe_code)] // promises what the trait asks for
// SAFETY: an operation has completed when the stream has passed the event behind it, or the context is destroyed. If issuing commands
// fails, those that were appended to the stream are still announced.
unsafe impl Backend for Stream {
    type Thread = ();
    /// Whether any part of the submission was appended to the stream.
    type Work = bool;
    type Fence = Fence;

    fn thread() -> Option<()> {
        Some(())
    }

    fn work(&self) -> bool {
        false
    }

    fn recycle(&self, has_begun: bool) {
        if has_begun {
            let mut progress = self.progress.lock();
            progress.submissions = progress.submissions.saturating_sub(1);
            let took = progress.last_ns.saturating_sub(progress.start_ns);
            progress.mean_ns = Some(progress.mean_ns.map_or(took, |mean| (3 * mean + took) / 4));
        }
    }

    fn admit(&self, commands: &[Command]) -> Result<()> {
        if let Some(lost) = self.shared.context.lost() {
            return Err(lost.clone());
        }
        // Binding may require another variant of the kernel, which must be compiled.
        for command in commands {
            match command {
                Command::Dispatch(dispatch) => {
                    let pipeline = pipeline(dispatch)?;
                    pipeline.function(&dispatch.bindings)?;
                    if dispatch.grid.threads().is_none() {
                        let _current = self.shared.context.enter()?;
                        pipeline.program(&self.shared, &dispatch.bindings)?;
                    }
                }
                Command::ExecuteCommands(execution) => {
                    let _current = self.shared.context.enter()?;
                    commands::program(&self.shared, execution)?;
                }
                Command::LaunchNested(nested) => {
                    pipeline(&nested.root)?.function(&nested.root.bindings)?;
                    let _current = self.shared.context.enter()?;
                    commands::program(&self.shared, &nested.children)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn begin(&self, issue: &mut Issue<'_, Self>, (): &mut ()) -> Result<Issued> {
        let _current = self.shared.context.enter()?;
        if !self.has_room(issue.had_begun()) {
            return Ok(Issued::Full);
        }
        let tail = &mut *self.encoder.lock();
        self.start(issue, tail, &issue.commands()[issue.next()]);
        let (mut staging, mut count) = (Staging::default(), 0);
        let given = self.give(issue, tail, &mut staging, &mut count);
        let drain = staging.has_news();
        let next = issue.next() + given.as_ref().copied().unwrap_or(0);
        // The fence is also that of a mark behind it.
        let is_marked = |next: &Command| matches!(next, Command::Signal { .. } | Command::Timestamp { .. });
        tail.needs_time |= issue.commands().get(next).is_some_and(is_marked);
        issue.announce(next, self.fence(tail, staging, count, false));
        self.watch(issue);
        given.map(|_| Issued::InFlight { drain })
    }

    fn wait(&self, issue: &mut Issue<'_, Self>, event: &Arc<dyn Event>, value: u64) -> Result<Waiting> {
        let context = &self.shared.context;
        let _current = context.enter()?;
        let Some(event) = CudaEvent::of(&**event) else { return Ok(Waiting::Host) };
        let Some(point) = event.promised(value) else { return Ok(Waiting::Promise) };
        // Another device's queue may fail without signaling, and this stream would then wait forever.
        if !point.is_of(context) {
            return Ok(Waiting::Host);
        }
        let tail = &mut *self.encoder.lock();
        self.start(issue, tail, &issue.commands()[issue.next()]);
        (tail.has_more, tail.needs_time) = (true, true);
        point.gate(self.stream.0).map_err(|failure| context.error(failure, "waiting for an event"))?;
        Ok(Waiting::Device)
    }

    fn mark(&self, issue: &mut Issue<'_, Self>) -> bool {
        // A destroyed context ends everything.
        let Ok(_current) = self.shared.context.enter() else { return false };
        let command = &issue.commands()[issue.next()];
        // A signal behind a launch that may have failed cannot be promised.
        if matches!(command, Command::Signal { .. }) && self.progress.lock().unverified > 0 {
            return false;
        }
        let fence = {
            let tail = &mut *self.encoder.lock();
            self.start(issue, tail, command);
            tail.needs_time = true;
            self.fence(tail, Staging::default(), 0, false)
        };
        // Without a lock: queues that have waited for the promise issue their waits.
        if let (Command::Signal { event, value }, Some(at)) = (command, &fence.at)
            && let Some(event) = CudaEvent::of(&**event)
        {
            event.promise(*value, at.clone());
        }
        issue.announce_mark(issue.next(), fence);
        self.watch(issue);
        true
    }

    fn panicked(&self, message: &str) -> Error {
        Error::Environment(format!("the CUDA driver panicked: {message}"))
    }

    fn schedule(&self, queue: Arc<Submissions>) {
        self.shared.poller.turn(queue);
    }

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn stop(
        &self,
        _has_begun: &bool,
        _fences: &mut dyn Iterator<Item = &Fence>,
        _cause: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>> {
        Err(Error::unsupported("an NVIDIA GPU cannot stop submitted work"))
    }
}

impl Stream {
    /// The device has reached the first fence, at this time of its clock.
    pub(crate) fn pass(&self, queue: &Submissions, ns: u64) {
        let mut progress = self.progress.lock();
        let mut end_ns = ns;
        let passed = queue.complete_next(|fence| {
            end_ns = ns.max(fence.given_ns).min(now_ns()).max(progress.last_ns);
            match fence.staging.fault() {
                Some(fault) => Completed::Failed(fault),
                None => Completed::Executed { start_ns: None, end_ns },
            }
        });
        let Some(fence) = passed else { return };
        progress.last_ns = end_ns;
        if fence.is_start {
            progress.start_ns = end_ns;
        }
        progress.commands -= fence.commands;
        if fence.staging.has_reports() {
            progress.unverified -= 1;
            progress.counts = fence.staging.counts();
        }
        drop(progress);
        fence.staging.end(&self.shared.chunks);
    }

    /// Ends all submissions, because the context was destroyed. The submission of `guilty` ends in that error.
    pub(crate) fn abandon(queue: &Arc<Submissions>, guilty: Option<(&Arc<[Command]>, &Error)>) {
        let Self { shared, progress, .. } = queue.backend();
        let lost = shared.context.lost().cloned();
        let lost = lost.unwrap_or_else(|| Error::DeviceLost(format!("device `{}`", shared.context.name)));
        let mut behind = lost.clone();
        let cause = |commands: &Arc<[Command]>| match guilty {
            Some((theirs, fault)) if Arc::ptr_eq(theirs, commands) => {
                behind = fault.poison();
                fault.clone()
            }
            _ => behind.clone(),
        };
        let failure = guilty.map_or(&lost, |(_, fault)| fault);
        let gone = queue.abandon(true, failure, cause);
        gone.into_iter().for_each(|fence| fence.staging.end(&shared.chunks));
        {
            let mut progress = progress.lock();
            *progress = Progress { is_watched: progress.is_watched, ..Progress::default() };
        }
        queue.turn(&mut ());
    }
}

impl Drop for Stream {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if let Ok(_current) = self.shared.context.enter() {
            // SAFETY: the stream belongs to this queue, and nothing is in flight.
            let _left = unsafe { self.shared.context.api.destroy_stream(self.stream.0) };
        }
    }
}
