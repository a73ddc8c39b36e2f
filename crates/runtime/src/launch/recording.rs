//! [`Recording`]: a validated list of commands that can be submitted repeatedly.
//!
//! Recording validates once; a replay records the use of the memory and passes the same list to the driver. The recording keeps
//! the memory alive.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_driver::{Command, Error, Result};

use crate::memory::usage::Usage;
use crate::observe::trace::Origin;
use crate::{CommandBuffer, Completion, Device, Stream};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Commands recorded by a command buffer, which can be submitted any number of times.
pub struct Recording {
    origin: Origin,
    device: Device,
    pub(crate) commands: Arc<[Command]>,
    pub(crate) usages: Vec<Usage>,
}

impl Recording {
    pub(crate) fn new(device: Device, commands: Arc<[Command]>, mut usages: Vec<Usage>) -> Self {
        distinct(&mut usages);
        let origin = Origin::Recording { number: NEXT.fetch_add(1, Ordering::Relaxed) };
        Self { origin, device, commands, usages }
    }

    /// The same commands, as those of a graph.
    pub(crate) fn of(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }

    /// Where its commands come from, for [traces](crate::Trace).
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Number of commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there are no commands.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

/// Removes uses that are equivalent for the usage records: keeps the first of each kind for each allocation.
fn distinct(usages: &mut Vec<Usage>) {
    let mut seen = HashSet::new();
    usages.retain(|usage| seen.insert((Arc::as_ptr(&usage.storage), usage.access, usage.covers)));
}

impl Stream {
    /// Submits the commands of a recording, with the recorded arguments, behind the stream's pending work.
    ///
    /// # Safety
    /// As for each recorded launch, at the time of the replay; see [`crate::Kernel::launch`].
    ///
    /// # Errors
    /// As [`CommandBuffer::submit`]; `InvalidArgument` for a recording of another device.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn replay(&self, recording: &Recording) -> Result<Completion> {
        self.device.expect_same(&recording.device, || "replay: the recording is".into())?;
        let mut command_buffer = self.command_buffer();
        command_buffer.replay(recording);
        command_buffer.submit()
    }
}

impl CommandBuffer {
    /// Converts the command buffer to a recording, which [`Stream::replay`] submits on any stream of the device.
    ///
    /// # Errors
    /// `InvalidArgument` for a command buffer with signals or waits: an event reaches a value only once; `Unsupported` for one with copies between devices.
    pub fn record(self) -> Result<Recording> {
        self.expect_alone("record")?;
        let (device, has_events) = (self.device().clone(), self.has_events());
        if has_events {
            return Err(Error::invalid(
                "record: the command buffer has events, which reach a value only once",
            ));
        }
        let (commands, usages) = self.into_lists();
        Ok(Recording::new(device, commands, usages))
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recording({} commands, {})", self.len(), self.device.name())
    }
}
