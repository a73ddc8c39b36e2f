//! [`Recording`]: a checked list of commands that is submitted again and again.
//!
//! Recording does the checks of a command buffer once; a replay enters the use of the memory and hands the same list to the driver. The
//! memory lives as long as the recording.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use elinvar_driver::{Command, Error, Result};

use crate::memory::usage::Usage;
use crate::{CommandBuffer, Completion, Device, Stream};

/// Commands that were recorded by a command buffer and can be submitted any number of times.
pub struct Recording {
    device: Device,
    pub(crate) commands: Arc<[Command]>,
    pub(crate) usages: Vec<Usage>,
}

impl Recording {
    pub(crate) fn new(device: Device, commands: Arc<[Command]>, mut usages: Vec<Usage>) -> Self {
        distinct(&mut usages);
        Self { device, commands, usages }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// How many commands there are.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

/// Leaves the uses that differ for the account: of each allocation the first of a kind.
fn distinct(usages: &mut Vec<Usage>) {
    let mut seen = HashSet::new();
    usages.retain(|usage| seen.insert((Arc::as_ptr(&usage.storage), usage.access, usage.covers)));
}

impl Stream {
    /// Submit the commands of a recording, with the same arguments, behind the work that the stream has.
    ///
    /// # Safety
    /// As for each launch that was recorded, now: see [`crate::Kernel::launch`].
    ///
    /// # Errors
    /// As [`CommandBuffer::submit`]; `InvalidArgument` for a recording of another device.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn replay(&self, recording: &Recording) -> Result<Completion> {
        self.device.expect_same(&recording.device, || "replay: the recording is".into())?;
        let mut command_buffer = self.command_buffer();
        command_buffer.replay(recording.commands.clone(), recording.usages.clone());
        command_buffer.submit()
    }
}

impl CommandBuffer {
    /// The commands so far, to be submitted any number of times by [`Stream::replay`], on any stream of the device.
    ///
    /// # Errors
    /// `InvalidArgument` for a command buffer that signals or waits for events: an event reaches a value once.
    pub fn record(self) -> Result<Recording> {
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
