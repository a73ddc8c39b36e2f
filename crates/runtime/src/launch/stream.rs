//! [`Stream`]: an ordered queue of work.
//!
//! Work of one stream is ordered; streams are ordered by events only. The runtime does not order launches or copies of different
//! streams; host access waits for conflicting work of all streams. Recording is in [`crate::launch::command_buffer`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use elinvar_driver::{Command, Done, Error, Priority, Queue, Result, Submission, Timing};

use crate::observe::metrics::SubmissionCounters;
use crate::observe::trace::Notes;
use crate::recovery::RecoveringQueue;
use crate::sync::coalesce::Coalescer;
use crate::sync::completion::Outcome;
use crate::sync::in_flight::InFlightCount;
use crate::{BufferSliceMut, CommandBuffer, Completion, Device, Event, WhenFull};

static NEXT_STREAM: AtomicU64 = AtomicU64::new(0);

/// An ordered queue of work for a device. A clone is another handle on the same queue.
///
/// Submitted work completes after all handles have been dropped.
#[derive(Clone)]
pub struct Stream {
    pub(crate) device: Device,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) id: u64,
    pub(crate) priority: Priority,
    pub(crate) in_flight_count: Arc<InFlightCount>,
    /// The queue of a recovering stream.
    recovering: Option<Arc<RecoveringQueue>>,
    coalescer: Arc<Coalescer>,
    /// Counters of its name.
    pub(crate) named: Option<Arc<SubmissionCounters>>,
}

impl Stream {
    pub(crate) fn new(device: Device, queue: Arc<dyn Queue>, priority: Priority) -> Self {
        let id = NEXT_STREAM.fetch_add(1, Ordering::Relaxed);
        let coalescer = Coalescer::new(&device, &queue);
        Self {
            device,
            queue,
            id,
            priority,
            in_flight_count: Arc::default(),
            recovering: None,
            coalescer,
            named: None,
        }
    }

    pub(crate) fn recovering(device: Device, queue: Arc<RecoveringQueue>, priority: Priority) -> Self {
        Self { recovering: Some(queue.clone()), ..Self::new(device, queue, priority) }
    }

    pub(crate) fn recovers(&self) -> bool {
        self.recovering.is_some()
    }

    /// Submits commands to the queue or the coalescer; returns which, and the number of the submission.
    pub(crate) fn hand_over(
        &self,
        commands: Arc<[Command]>,
        done: Done,
        notes: Option<Notes>,
        outcome: &Outcome,
        alone: bool,
    ) -> Result<(Arc<dyn Queue>, Submission)> {
        let (mut commands, mut done) = (commands, done);
        if let Some(queue) = &self.recovering {
            return Ok((queue.clone(), queue.submit_noted(commands, done, notes)?));
        }
        if !(alone || self.in_flight_count.is_limited()) {
            match self.coalescer.keep(commands, done) {
                Ok(submission) => {
                    // No waiter can have the outcome yet.
                    outcome.is_kept_in(&self.coalescer);
                    return Ok((self.coalescer.clone(), submission));
                }
                Err(back) => (commands, done) = back,
            }
        }
        self.coalescer.flush();
        Ok((self.queue.clone(), self.queue.submit(commands, done)?))
    }

    /// Submits coalesced work to the device; see [`crate::PowerPreference::LowPower`]. Waiting for work implies it.
    pub fn flush(&self) {
        if self.device.is_here() {
            self.coalescer.flush();
        }
    }

    /// Limits the number of pending submissions to `most` (0 counts as 1), for submissions through the returned handle and its
    /// clones. `when_full` determines what a submission at the limit does.
    #[must_use]
    pub fn limited(mut self, most: usize, when_full: WhenFull) -> Self {
        self.in_flight_count = Arc::new(InFlightCount::limited(most, when_full));
        self
    }

    /// Counts submissions through the returned handle and its clones by this name, in the [metrics](Device::metrics)
    /// `elinvar.stream.submissions` and `elinvar.stream.duration`. Streams of a device may share a name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.named = Some(self.device.counters().stream(name));
        self
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Number of the stream in traces, unique in the process.
    pub fn number(&self) -> u64 {
        self.id
    }

    /// Number of pending submissions.
    pub fn in_flight(&self) -> usize {
        self.in_flight_count.count()
    }

    /// Signals `value` when the stream's pending work has succeeded; if it fails, so does the event.
    ///
    /// # Errors
    /// As [`CommandBuffer::submit`].
    pub fn signal(&self, event: &Event, value: u64) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.signal(event, value);
        command_buffer.submit()
    }

    /// Blocks later work of the stream until an event, of any device, has reached `value`. The host does not block.
    ///
    /// # Errors
    /// As [`CommandBuffer::submit`].
    pub fn wait_for(&self, event: &Event, value: u64) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.wait_for(event, value);
        command_buffer.submit()
    }

    /// An empty command buffer, to submit several commands together.
    pub fn command_buffer(&self) -> CommandBuffer {
        CommandBuffer::new(self.clone())
    }

    /// Sets all elements of a buffer or slice to `value`, on the device.
    ///
    /// # Errors
    /// As [`CommandBuffer::fill`] and [`CommandBuffer::submit`].
    pub fn fill<'t, T: Pod>(&self, target: impl Into<BufferSliceMut<'t, T>>, value: T) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.fill(target, value)?;
        command_buffer.submit()
    }

    /// Blocks until everything submitted so far has ended.
    ///
    /// # Errors
    /// `Poisoned` with the first cause if the stream has failed and the failure has not been acknowledged; `WouldDeadlock` as
    /// [`Completion::wait`].
    pub fn synchronize(&self) -> Result<Timing> {
        self.command_buffer().submit()?.wait()
    }

    /// Clears and returns the stream's failure, so that later work runs; `None` if it has not failed.
    ///
    /// Buffers that failed work should have written remain unreadable until they are overwritten in full.
    pub fn acknowledge(&self) -> Option<Error> {
        self.device.expect_here("Stream::acknowledge").ok()?;
        // Coalesced work was submitted before the acknowledgment.
        self.coalescer.flush();
        self.queue.acknowledge()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}, {})", self.id, self.device.name())
    }
}
