//! [`Stream`]: an ordered list of work.
//!
//! Streams are ordered within themselves, and by events where the program says so. The runtime orders neither launches
//! nor copies of different streams by itself; host access alone waits for work. How a command gets into a stream is in
//! [`crate::launch::command_buffer`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use elinvar_driver::{Command, Done, Error, Priority, Queue, Result, Submission, Timing};

use crate::observe::trace::Notes;
use crate::recovery::RecoveringQueue;
use crate::sync::coalesce::Coalescer;
use crate::sync::completion::Outcome;
use crate::sync::in_flight::InFlightCount;
use crate::{BufferSlice, BufferSliceMut, CommandBuffer, Completion, Device, Event, WhenFull};

static NEXT_STREAM: AtomicU64 = AtomicU64::new(0);

/// An ordered list of work for a device. Cloning gives another handle on the same list.
///
/// Dropping all handles lets what was submitted finish.
#[derive(Clone)]
pub struct Stream {
    pub(crate) device: Device,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) id: u64,
    pub(crate) priority: Priority,
    pub(crate) in_flight_count: Arc<InFlightCount>,
    /// The queue once more, if it recovers.
    recovering: Option<Arc<RecoveringQueue>>,
    coalescer: Arc<Coalescer>,
}

impl Stream {
    pub(crate) fn new(device: Device, queue: Arc<dyn Queue>, priority: Priority) -> Self {
        let id = NEXT_STREAM.fetch_add(1, Ordering::Relaxed);
        let coalescer = Coalescer::new(&device, &queue);
        Self { device, queue, id, priority, in_flight_count: Arc::default(), recovering: None, coalescer }
    }

    pub(crate) fn recovering(device: Device, queue: Arc<RecoveringQueue>, priority: Priority) -> Self {
        Self { recovering: Some(queue.clone()), ..Self::new(device, queue, priority) }
    }

    pub(crate) fn recovers(&self) -> bool {
        self.recovering.is_some()
    }

    /// Hands commands to the queue, or keeps them for a while if they may go with others; says who knows them.
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
                    // Nobody knows the outcome yet who could wait for it.
                    outcome.is_kept_in(&self.coalescer);
                    return Ok((self.coalescer.clone(), submission));
                }
                Err(back) => (commands, done) = back,
            }
        }
        self.coalescer.flush();
        Ok((self.queue.clone(), self.queue.submit(commands, done)?))
    }

    /// Hand over what the stream has gathered; see [`crate::PowerPreference::LowPower`]. Waiting for work does so too.
    pub fn flush(&self) {
        if self.device.is_here() {
            self.coalescer.flush();
        }
    }

    /// This stream with at most `most` submissions in flight, at least one, of those that are submitted through the handle
    /// that is returned and its clones.
    #[must_use]
    pub fn limited(mut self, most: usize, when_full: WhenFull) -> Self {
        self.in_flight_count = Arc::new(InFlightCount::limited(most, when_full));
        self
    }

    /// The device that does the work.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Submissions that have not ended.
    pub fn in_flight(&self) -> usize {
        self.in_flight_count.count()
    }

    /// Raise an event to `value` once the work that the stream has now has ended well; if it fails, so does the event.
    ///
    /// # Errors
    /// As [`CommandBuffer::submit`].
    pub fn signal(&self, event: &Event, value: u64) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.signal(event, value);
        command_buffer.submit()
    }

    /// Let what is submitted from now on begin when an event, of any device, has reached `value`. The host does not wait.
    ///
    /// # Errors
    /// As [`CommandBuffer::submit`].
    pub fn wait_for(&self, event: &Event, value: u64) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.wait_for(event, value);
        command_buffer.submit()
    }

    /// An empty command buffer, to submit many commands at once.
    pub fn command_buffer(&self) -> CommandBuffer {
        CommandBuffer::new(self.clone())
    }

    /// Set all elements of a buffer or slice to `value`, on the device.
    ///
    /// # Errors
    /// As [`CommandBuffer::fill`].
    pub fn fill<'t, T: Pod>(&self, target: impl Into<BufferSliceMut<'t, T>>, value: T) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.fill(target, value)?;
        command_buffer.submit()
    }

    /// Copy a buffer or slice to another, on the device.
    ///
    /// # Errors
    /// As [`CommandBuffer::copy`].
    pub fn copy<'s, 't, T: Pod>(
        &self,
        source: impl Into<BufferSlice<'s, T>>,
        target: impl Into<BufferSliceMut<'t, T>>,
    ) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.copy(source, target)?;
        command_buffer.submit()
    }

    /// Block until everything submitted so far has ended.
    ///
    /// # Errors
    /// `Poisoned` with the first cause when the stream has failed and that is not acknowledged.
    pub fn synchronize(&self) -> Result<Timing> {
        self.command_buffer().submit()?.wait()
    }

    /// Forget a failure, so that later work runs again. Returns the failure, or `None` if there was none.
    ///
    /// Buffers that failed work should have written stay unreadable until they are written anew.
    pub fn acknowledge(&self) -> Option<Error> {
        self.device.expect_here("Stream::acknowledge").ok()?;
        // What was submitted before is behind the failure.
        self.coalescer.flush();
        self.queue.acknowledge()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}, {})", self.id, self.device.name())
    }
}
