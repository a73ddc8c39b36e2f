//! [`CommandBuffer`] and the path of a launch: validate, record, submit.
//!
//! [`Kernel::launch`] is a command buffer with one command. A command buffer validates each call and records a command with the
//! memory that it uses; `submit` enters that use into the usage records and passes the commands to the driver's queue,
//! atomically. A rejected call records nothing. A submission holds its resources until the device has finished it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use elinvar_driver::sync::OnceLock;
use elinvar_driver::{Command, Dim3, Dispatch, Done, Error, Label, Result, fail_signals};

use crate::launch::bind::{Bound, bind};
use crate::launch::command_list_pool::CommandList;
use crate::launch::grid::Size;
use crate::launch::recording::Recording;
use crate::launch::submitted::{Held, Pending, Submitted};
use crate::memory::span::Span;
use crate::memory::usage::{Access, Storages, Usage, Usages, Who, commit};
use crate::observe::event;
use crate::observe::metrics::SubmissionCounters;
use crate::observe::trace::{
    Launch, LaunchTimes, Layout, Noted, Notes, Replayed, TraceStep, bound_bytes, inline_arguments,
};
use crate::sync::completion::{Outcome, Promise};
use crate::sync::deadline::{self, Due, Late, Watched};
use crate::sync::dependencies::{self, EventOp};
use crate::sync::device_state::PendingSubmission;
use crate::{Args, BufferSliceMut, CheckedKernel, Completion, Device, Event, Grid, Kernel, Stream};

impl Kernel {
    /// Launches the kernel over a grid, behind the stream's pending work. Does not block.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// # use elinvar::{Device, Grid, Source};
    /// # let device = Device::system_default()?;
    /// # let kernel = device.compile(Source::msl("…"))?.kernel("scale")?;
    /// # let stream = device.stream()?;
    /// let mut data = device.buffer_with_data(&[1.0f32, 2.0, 3.0])?;
    /// // SAFETY: `scale` stays within the `n` elements it is told of.
    /// unsafe { kernel.launch(&stream, Grid::threads(3), (&mut data, 2.0f32, 3u32)) }?;
    /// assert_eq!(data.to_vec()?, [2.0, 4.0, 6.0]); // waits for the launch
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// With these arguments the kernel must access memory only within its arguments, and must have no data race, within the
    /// launch or with work of other streams, that MSL leaves undefined.
    ///
    /// # Errors
    /// `InvalidArgument` that names kernel and argument if an argument does not match the signature, or its buffer is mapped or
    /// belongs to another device, or if the grid is out of range; `Compile` or `Unsupported` if the kernel cannot be built for
    /// the threadgroup size; the driver's for a submission.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn launch(&self, stream: &Stream, grid: Grid, args: impl Args) -> Result<Completion> {
        let mut command_buffer = stream.command_buffer();
        // SAFETY: the caller vouches for the same.
        unsafe { command_buffer.launch(self, grid, args) }?;
        command_buffer.submit()
    }

    /// Launches a kernel with grid barriers over a grid whose threadgroups are all resident at once: a [`Kernel::launch`] of
    /// [`Grid::cooperative`]. A kernel without grid barriers is launched as by [`Kernel::launch`].
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    ///
    /// # Errors
    /// As [`Kernel::launch`]; `InvalidArgument` with the largest number of threadgroups ([`Kernel::resident_groups`]) for a larger grid,
    /// and for an indirect one; `Unsupported` with the reason on a device without cooperative launches.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn launch_cooperative(
        &self,
        stream: &Stream,
        grid: Grid,
        args: impl Args,
    ) -> Result<Completion> {
        // SAFETY: the caller vouches for the same.
        unsafe { self.launch(stream, grid.cooperative(), args) }
    }
}

impl CheckedKernel {
    /// Launches the kernel over a grid; see [`Kernel::launch`]. Safe, since every access is checked.
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    #[allow(unsafe_code)] // calls the unchecked launch
    pub fn launch(&self, stream: &Stream, grid: Grid, args: impl Args) -> Result<Completion> {
        // SAFETY: the checks keep every access within the memory of the arguments.
        unsafe { self.kernel.launch(stream, grid, args) }
    }

    /// As [`Kernel::launch_cooperative`]. Safe, since every access is checked.
    ///
    /// # Errors
    /// As [`Kernel::launch_cooperative`].
    pub fn launch_cooperative(&self, stream: &Stream, grid: Grid, args: impl Args) -> Result<Completion> {
        self.launch(stream, grid.cooperative(), args)
    }
}

/// Entries of a launch in the trace before it is passed to the driver.
const STEPS: usize = 4;

/// Number of arguments of a launch, threads of its grid (unless it is indirect), and size of its threadgroups.
type LaunchSize = (u32, Option<Dim3>, Dim3);

/// Commands that are submitted together, in order (`MTLCommandBuffer` in Metal). Dropping it discards them.
pub struct CommandBuffer {
    stream: Stream,
    list: CommandList,
    usages: Usages,
    /// Waits and signals.
    ops: Vec<EventOp>,
    /// The events that it raises.
    events: Vec<Event>,
    /// Commands of a recording, instead of its own.
    replayed: Option<Arc<[Command]>>,
    /// Maximum time from submission to end.
    deadline: Option<Duration>,
    notes: Option<Notes>,
    /// Trace events so far.
    traced: Vec<Noted>,
    /// Whether they have a command that the device executes.
    has_traced_work: bool,
    /// Called when it has been submitted, in order.
    companions: Vec<Companion>,
    /// Counters of its graph's name.
    pub(crate) graph: Option<Arc<SubmissionCounters>>,
}

/// Submits work of other devices that belongs to a command buffer. It is called when the command buffer has been submitted, and dropped if that
/// fails. Its own failure fails the events that it would have signaled.
pub(crate) type Companion = Box<dyn FnOnce(&Completion) + Send + Sync>;

impl CommandBuffer {
    pub(crate) fn new(stream: Stream) -> Self {
        let notes = stream.device.notes(stream.id, stream.priority);
        let mut list = CommandList::new(&stream.device);
        let (usages, ops, events) = (Usages::new(), Vec::new(), Vec::new());
        let mut traced = Vec::new();
        if notes.is_some() {
            traced = std::mem::take(&mut list.reuse.traced);
            traced.reserve(STEPS);
        }
        let mut command_buffer = Self {
            stream,
            list,
            usages,
            ops,
            events,
            replayed: None,
            deadline: None,
            notes,
            traced,
            has_traced_work: false,
            companions: Vec::new(),
            graph: None,
        };
        command_buffer.note(|| TraceStep::Acquire);
        command_buffer
    }

    pub(crate) fn device(&self) -> &Device {
        &self.stream.device
    }

    /// Records a trace step, if the trace is on.
    fn note(&mut self, step: impl FnOnce() -> TraceStep) {
        if let Some(notes) = &self.notes {
            self.traced.push(notes.event(step()));
        }
    }

    /// Whether the trace records the next command that the device executes.
    fn notes_work(&mut self) -> bool {
        let has_work = std::mem::replace(&mut self.has_traced_work, true);
        self.notes.is_some_and(|notes| !has_work || notes.times_launches())
    }

    /// Records the step of a command that the device executes.
    fn note_work(&mut self, step: impl FnOnce() -> TraceStep) {
        if self.notes_work() {
            self.note(step);
        }
    }

    /// Records that commands of a recording are added.
    fn note_replay(&mut self, recording: &Recording) {
        if self.notes.is_some_and(|notes| notes.sample().is_some()) {
            return;
        }
        let is_brief = self.notes.is_some_and(|notes| !notes.times_launches());
        if self.notes_work() {
            let count = if is_brief { 1 } else { recording.commands.len() };
            let commands = recording.commands.get(..count).unwrap_or_default();
            let keeps_arguments = self.notes.is_some_and(|notes| notes.keeps_arguments());
            self.note(|| TraceStep::Replay(Replayed::new(recording.origin(), commands, keeps_arguments)));
        }
    }

    /// Records an error in the trace.
    pub(crate) fn noted<T>(&mut self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.note(|| TraceStep::Refused(Box::new(error.clone()))))
    }

    /// Sets the maximum time from submission to end. Work that exceeds it ends as [`Error::Timeout`], at a point of
    /// [`elinvar_driver::Features::stops_at`]; its effects so far remain. If the device cannot stop running work, it is lost: all
    /// its work ends in [`Error::DeviceLost`], and it accepts no work until [`Device::reset`]. The work's memory is not reused
    /// until the driver has released it, possibly never.
    ///
    /// # Errors
    /// `Environment` if the thread for deadlines cannot be started.
    pub fn deadline(&mut self, after: Duration) -> Result<()> {
        deadline::start()?;
        self.deadline = Some(after);
        Ok(())
    }

    /// Adds a launch; see [`Kernel::launch`]. A rejected launch leaves the command buffer unchanged.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    ///
    /// # Errors
    /// As [`Kernel::launch`], and [`Kernel::launch_cooperative`] for [`Grid::cooperative`], except that [`CommandBuffer::submit`] rejects mapped buffers.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn launch(&mut self, kernel: &Kernel, grid: Grid, args: impl Args) -> Result<()> {
        let notes = self.notes.filter(|notes| !self.has_traced_work || notes.times_launches());
        let now = || if notes.is_some() { Notes::now() } else { 0 };
        let mut times = [now(), 0, 0, 0];
        let recorded = self.record_launch(kernel, grid, args, &mut times, now);
        match notes {
            Some(notes) => self.note_launch(notes, kernel, times, recorded),
            None => self.noted(recorded.map(drop)),
        }
    }

    /// Records the steps of a launch in the trace.
    fn note_launch(
        &mut self,
        notes: Notes,
        kernel: &Kernel,
        mut times: [u64; 4],
        recorded: Result<Option<LaunchSize>>,
    ) -> Result<()> {
        let (pipeline, label) = (kernel.pipeline.clone(), kernel.label.clone());
        match recorded {
            Ok(Some((argument_count, threads, group))) => {
                (times[3], self.has_traced_work) = (Notes::now(), true);
                let (bytes, arguments) = match self.list.commands.last() {
                    Some(Command::Dispatch(dispatch)) => {
                        (bound_bytes(dispatch), notes.keeps_arguments().then(|| inline_arguments(dispatch)))
                    }
                    _ => (0, None),
                };
                let launch =
                    Launch { kernel: pipeline, label, argument_count, arguments, threads, group, bytes };
                self.traced.push(notes.launch(times, launch));
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => {
                let encode = TraceStep::Encode { kernel: pipeline, label };
                self.traced.push(notes.event_at(times[0], encode));
                self.noted(Err(error))
            }
        }
    }

    /// Adds a launch. Returns its number of arguments and its size, or `None` if nothing runs. `times` receives the times when its arguments
    /// were bound and its size was known.
    fn record_launch(
        &mut self,
        kernel: &Kernel,
        grid: Grid,
        args: impl Args,
        times: &mut [u64; 4],
        now: impl Fn() -> u64,
    ) -> Result<Option<LaunchSize>> {
        self.stream.device.expect_here("a launch")?;
        let (pipeline, label) = (&kernel.pipeline, &kernel.label);
        let name = &pipeline.signature().name;
        self.stream.device.expect_same(&kernel.device, || format!("kernel `{name}` is"))?;
        let bound = bind(&kernel.device, pipeline, args.into_args(), self.list.bindings())?;
        times[1] = now();
        let is_cooperative = grid.is_cooperative();
        let Some(Size { grid, group, counts }) = grid.resolve(kernel)? else {
            return Ok(None);
        };
        let Bound { bindings, uses, usages } = bound;
        let dispatch =
            Dispatch { pipeline: pipeline.clone(), bindings, uses, grid, group, label: label.clone() };
        dispatch.prepare()?;
        if dispatch.pipeline.signature().is_cooperative() {
            expect_resident(&dispatch, is_cooperative)?;
        }
        times[2] = now();
        let size = (dispatch.bindings.len() as u32, dispatch.grid.threads(), group);
        self.list.commands.push(Command::Dispatch(dispatch));
        self.usages.extend(usages.into_iter().chain(counts));
        Ok(Some(size))
    }

    /// Adds a launch of a kernel with bounds checks; see [`CheckedKernel::launch`].
    ///
    /// # Errors
    /// As [`CommandBuffer::launch`].
    #[allow(unsafe_code)] // calls the unchecked launch
    pub fn launch_checked(&mut self, kernel: &CheckedKernel, grid: Grid, args: impl Args) -> Result<()> {
        // SAFETY: the checks keep every access within the memory of the arguments.
        unsafe { self.launch(&kernel.kernel, grid, args) }
    }

    /// Adds a fill of a buffer or slice with `value`, of at most 16 bytes.
    ///
    /// # Errors
    /// `InvalidArgument` for an element of more than 16 bytes, or a buffer of another device.
    pub fn fill<'t, T: Pod>(&mut self, target: impl Into<BufferSliceMut<'t, T>>, value: T) -> Result<()> {
        let span = target.into().span;
        let pattern = bytemuck::bytes_of(&value).to_vec();
        if pattern.len() > 16 {
            let (name, size) = (std::any::type_name::<T>(), pattern.len());
            return Err(Error::invalid(format!("fill: `{name}` has {size} bytes, at most 16 allowed")));
        }
        self.record_use("fill: the buffer", &span, Access::Write)?;
        if span.len > 0 {
            self.list.commands.push(Command::Fill { target: span.memory_slice(), pattern });
            self.note_work(|| TraceStep::Fill { bytes: span.len });
        }
        Ok(())
    }

    /// Adds a copy within the device's memory.
    pub(crate) fn copy_span(&mut self, source: &Span, target: &Span) -> Result<()> {
        self.stream.device.expect_same(&target.storage.device, || "copy: the target is".into())?;
        self.record_use("copy: the source", source, Access::Read)?;
        self.record_use("copy: the target", target, Access::Write)?;
        self.push_copy(source, target);
        Ok(())
    }

    /// Records that a copy, whose commands are added by [`CommandBuffer::push_copy`], uses these spans, of any device.
    pub(crate) fn use_for_copy(&mut self, source: &Span, target: &Span) {
        for (who, span, access) in
            [("copy: the source", source, Access::Read), ("copy: the target", target, Access::Write)]
        {
            let (storage, covers) = (span.storage.clone(), span.covers_storage());
            self.usages.push(Usage { storage, who: Who::Operation(who), access, covers });
        }
    }

    /// Adds the command of a copy.
    pub(crate) fn push_copy(&mut self, source: &Span, target: &Span) {
        if source.len > 0 {
            let copy = Command::Copy { source: source.memory_slice(), target: target.memory_slice() };
            self.list.commands.push(copy);
            self.note_work(|| TraceStep::Copy { bytes: source.len });
        }
    }

    /// Adds a signal of an event: `value`, when preceding work has succeeded.
    pub fn signal(&mut self, event: &Event, value: u64) {
        let op = event.op(value, true);
        self.list.commands.push(Command::Signal { event: op.event.clone(), value: op.value });
        self.ops.push(op);
        self.events.push(event.clone());
        self.note(|| TraceStep::Signal);
    }

    /// Adds a wait until an event, of any device, has reached `value`.
    pub fn wait_for(&mut self, event: &Event, value: u64) {
        let op = event.op(value, false);
        self.list.commands.push(Command::Wait { event: op.event.clone(), value: op.value });
        self.ops.push(op);
        self.note(|| TraceStep::Wait);
    }

    /// Numbers of commands, uses and trace events, for [`CommandBuffer::truncate`].
    pub(crate) fn mark(&self) -> (usize, usize, usize) {
        (self.list.commands.len(), self.usages.len(), self.traced.len())
    }

    /// Removes what was added since `mark`. The trace keeps what was refused.
    pub(crate) fn truncate(&mut self, (commands, usages, traced): (usize, usize, usize)) {
        self.list.commands.truncate(commands);
        self.usages.truncate(usages);
        let refused = self.traced.drain(traced..).filter(Noted::is_refusal).collect::<Vec<Noted>>();
        self.traced.extend(refused);
    }

    /// Adds a validated command, with the memory that it uses.
    pub(crate) fn push(
        &mut self,
        command: Command,
        usages: impl IntoIterator<Item = Usage>,
        step: TraceStep,
    ) {
        self.list.commands.push(command);
        self.usages.extend(usages);
        match step {
            TraceStep::Timestamp => self.note(|| step),
            step => self.note_work(|| step),
        }
    }

    /// Submits the commands to the stream. An empty command buffer ends when the preceding work has ended.
    ///
    /// # Errors
    /// `InvalidArgument` if the buffer of a command has a conflicting map, or if the submission's waits would deadlock;
    /// `QueueFull` and the driver's. Nothing runs in that case.
    pub fn submit(mut self) -> Result<Completion> {
        let companions = std::mem::take(&mut self.companions);
        let done = self.submit_alone()?;
        companions.into_iter().for_each(|companion| companion(&done));
        Ok(done)
    }

    fn submit_alone(mut self) -> Result<Completion> {
        self.stream.device.expect_here("a submission")?;
        let count = self.replayed.as_ref().map_or(self.list.commands.len(), |commands| commands.len());
        let Some(notes) = self.notes else { return self.commit(&mut Vec::new(), (0, count)) };
        let (device, mut traced) = (self.stream.device.clone(), std::mem::take(&mut self.traced));
        let end = Notes::now();
        let result = self.commit(&mut traced, (end, count));
        let end = notes.event_at(end, TraceStep::End { commands: count });
        match &result {
            Err(error) => {
                let refused = notes.event(TraceStep::Refused(Box::new(error.clone())));
                // Behind the commit, only the refusal is missing.
                let end = Some(end).filter(|_| !traced.is_empty());
                device.note(notes, traced.into_iter().chain(end).chain([refused]));
            }
            // Not submitted, since content that it reads is missing after a failure.
            Ok(done) if !traced.is_empty() => {
                let ended = notes.ended(Notes::now(), done.wait().map_err(Box::new));
                device.note(notes, traced.into_iter().chain([end, ended]));
            }
            Ok(_) => {}
        }
        result
    }

    /// Passes the commands to the driver, and before that the recorded events to the trace. `end` is the time when the recording ended, and the
    /// number of commands.
    fn commit(self, traced: &mut Vec<Noted>, end: (u64, usize)) -> Result<Completion> {
        let due =
            self.deadline.and_then(|after| Some((Instant::now().checked_add(after)?, self.late(after))));
        let Self { stream, mut list, usages, ops, events, replayed, notes, graph, .. } = self;
        let in_flight = stream.in_flight_count.enter(stream.device.state())?;
        let (mut commands, mut times) = timed(replayed, &mut list, notes);
        if due.is_some() {
            commands = deadline::stoppable(&stream.device, &commands)?;
        }
        let alone = due.is_some() || !ops.is_empty();
        let entered = (!ops.is_empty()).then(|| dependencies::enter(stream.id, ops)).transpose()?;
        let watched: Option<Arc<OnceLock<Watched>>> = due.is_some().then(Arc::default);
        let device = stream.device.clone();
        // Moved to the driver: a list that nobody else has is used again.
        let mut commands = Some(commands);
        let submit = |storages: Storages| {
            let commands = commands.take().unwrap_or_else(|| Arc::new([]));
            // A recovering stream holds the work back during a reset.
            let uses_content = !stream.recovers() && storages.iter().any(|storage| storage.is_own());
            let (promise, outcome) = Promise::reuse(&mut list.reuse.outcomes);
            let submitted = list.reuse.submitted.take().unwrap_or_else(Arc::<Submitted>::default);
            let pending = PendingSubmission::new(&outcome, &commands, &stream.in_flight_count);
            let (_state, registration) = device.state().register(pending, uses_content)?;
            if let Some(notes) = notes {
                if notes.sample().is_none() {
                    device.trace().compare_clocks();
                }
                let commit = notes.commit(end, device.pool().live_and_idle(), times.take());
                device.note(notes, traced.drain(..).chain([commit]));
                list.reuse.keep_traced(std::mem::take(traced));
            }
            let held = Held {
                _storages: storages,
                _entered: entered,
                _events: events,
                _watched: watched.clone(),
                _in_flight: in_flight,
                commands: commands.clone(),
                list,
            };
            let span = event::submission(&device, stream.id, &commands, end.1);
            let submitted_ns = device.clock_ns();
            let of_device = device.clone();
            submitted.begin(Pending {
                promise,
                submitted_ns,
                registration,
                notes,
                span,
                named: [stream.named.clone(), graph],
                device: of_device,
                held,
            });
            let done = Done::shared(submitted);
            let handing_over = notes.filter(|notes| notes.sample().is_some()).map(|_| Notes::now());
            let origin = stream.hand_over(commands, done, notes, &outcome, alone)?;
            if let Some(begin) = handing_over {
                stream.device.counters().sampled_submit(Notes::ns_since(begin));
            }
            Ok((outcome, origin))
        };
        let (outcome, origin): (Arc<Outcome>, _) = commit(usages, stream.id, submit)?;
        if let (Some(commands), None, Some(Err(cause))) = (&commands, &origin, outcome.get()) {
            fail_signals(commands, cause);
        }
        if let (Some((_, submission)), Some((then, cause)), Some(watched)) = (&origin, due, watched) {
            // If the work has ended already, the deadline is dropped with the last reference, below.
            let due =
                Due::Stop(Late::new(stream.device.clone(), &stream.queue, *submission, cause, &outcome));
            let _first = watched.set(deadline::watch(then, due));
        }
        Ok(Completion::new(outcome, origin))
    }

    /// The error if it exceeds its deadline.
    fn late(&self, after: Duration) -> Error {
        let of = |name: &str, label: &Option<Arc<Label>>| {
            let label = label.as_ref().map_or_else(String::new, |label| format!(", launch {label}"));
            format!("{name}{label}")
        };
        let of_launch = |dispatch: &Dispatch| {
            of(&format!("kernel `{}`", dispatch.pipeline.signature().name), &dispatch.label)
        };
        let launch = self.list.commands.iter().find_map(|command| match command {
            Command::Dispatch(dispatch) => Some(of_launch(dispatch)),
            Command::LaunchNested(nested) => Some(of_launch(&nested.root)),
            Command::ExecuteCommands(execution) => Some(of("execute_commands", &execution.label)),
            _ => None,
        });
        let name = launch.unwrap_or_else(|| "a submission without launches".into());
        Error::Timeout(format!("{name}: not finished {after:?} after its submission"))
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.ops.is_empty()
    }

    /// Adds work of other devices, to be submitted behind this command buffer.
    pub(crate) fn accompany(&mut self, companion: Companion) {
        self.companions.push(companion);
    }

    /// Rejects work of other devices.
    ///
    /// # Errors
    /// `Unsupported` for a command buffer with copies between devices.
    pub(crate) fn expect_alone(&self, subject: &str) -> Result<()> {
        if self.companions.is_empty() {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "{subject}: the command buffer has work of several devices, such as a copy between them; `Graph::copy` is a node for that"
        )))
    }

    pub(crate) fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }

    /// Appends recorded commands.
    pub(crate) fn append(&mut self, recording: &Recording) {
        self.list.commands.extend_from_slice(&recording.commands);
        self.usages.extend(recording.usages.iter().cloned());
        self.note_replay(recording);
    }

    /// The recorded commands and uses.
    pub(crate) fn into_lists(mut self) -> (Arc<[Command]>, Vec<Usage>) {
        if self.notes.is_some_and(|notes| notes.sample().is_some()) {
            self.stream.device.counters().return_sample();
        }
        (self.list.commands.drain(..).collect(), self.usages.into_vec())
    }

    /// Sets a recorded list to be submitted instead of its own.
    pub(crate) fn replay(&mut self, recording: &Recording) {
        self.note_replay(recording);
        (self.replayed, self.usages) = (Some(recording.commands.clone()), recording.usages[..].into());
    }

    fn record_use(&mut self, subject: &'static str, span: &Span, access: Access) -> Result<()> {
        self.stream.device.expect_same(&span.storage.device, || format!("{subject} is"))?;
        let who = Who::Operation(subject);
        self.usages.push(Usage { storage: span.storage.clone(), who, access, covers: span.covers_storage() });
        Ok(())
    }
}

impl fmt::Debug for CommandBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommandBuffer({:?}, {} commands)", self.stream, self.list.commands.len())
    }
}

/// The commands of a submission, with timestamps in between if a trace measures each.
fn timed(
    replayed: Option<Arc<[Command]>>,
    list: &mut CommandList,
    notes: Option<Notes>,
) -> (Arc<[Command]>, Option<Box<LaunchTimes>>) {
    let commands = replayed.as_deref().unwrap_or(&list.commands);
    if !notes.is_some_and(|notes| notes.times_launches() && LaunchTimes::are_needed(commands)) {
        return (replayed.unwrap_or_else(|| list.take_commands()), None);
    }
    let layout = Layout::of(commands);
    let (commands, times) = match replayed {
        Some(replayed) => LaunchTimes::insert(replayed.iter().cloned(), layout),
        None => LaunchTimes::insert(list.commands.drain(..), layout),
    };
    (commands, Some(Box::new(times)))
}

/// Rejects a launch of a kernel with grid barriers that is not cooperative, or has more threadgroups than can be resident.
fn expect_resident(dispatch: &Dispatch, is_cooperative: bool) -> Result<()> {
    let name = &dispatch.pipeline.signature().name;
    let refuse = |why: &str| Err(Error::invalid(format!("kernel `{name}`: {why}")));
    if !is_cooperative {
        return refuse("it has a grid barrier; launch it with `launch_cooperative` or `Grid::cooperative`");
    }
    let Some(threads) = dispatch.grid.threads() else {
        return refuse("a cooperative launch cannot have its size in memory (`Grid::indirect`)");
    };
    let most = dispatch.pipeline.resident_groups(dispatch.group, dispatch.threadgroup_bytes())?;
    dispatch.expect_resident(threads.div_ceil(dispatch.group).volume(), most)
}
