//! [`StreamGroup`]: several streams for independent work.
//!
//! A group creates streams on demand, up to the number that the device runs concurrently with a gain, and assigns work to the
//! least busy one. It does not order work; dependencies are expressed with events.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Priority, Result};

use crate::{Device, Stream};

/// Streams of a device for independent work. A clone is another handle on the same streams.
#[derive(Clone)]
pub struct StreamGroup {
    device: Device,
    priority: Priority,
    most: usize,
    members: Arc<Members>,
}

/// The open streams, and the time of the last request for each.
#[derive(Default)]
pub(crate) struct Members {
    streams: Mutex<Vec<(Stream, Instant)>>,
}

impl StreamGroup {
    pub(crate) fn new(device: Device, most: usize, priority: Priority) -> Self {
        let group = Self { device, priority, most: most.max(1), members: Arc::default() };
        group.device.register(Arc::downgrade(&group.members));
        group
    }

    /// Maximum number of streams, at least 1.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Number of open streams.
    pub fn open(&self) -> usize {
        self.members.streams.lock().len()
    }

    /// Returns the stream for the next work: an idle one; otherwise a new one; otherwise, at the maximum, the one with the fewest
    /// pending submissions, and of several the one whose last request is the oldest.
    ///
    /// # Errors
    /// The driver's, if it cannot create another queue.
    pub fn next(&self) -> Result<Stream> {
        let mut streams = self.members.streams.lock();
        let load = |(stream, asked): &&mut (Stream, Instant)| (stream.in_flight(), *asked);
        let full = streams.len() >= self.most;
        let least = streams.iter_mut().min_by_key(load).filter(|(stream, _)| full || stream.in_flight() == 0);
        if let Some((stream, asked)) = least {
            *asked = Instant::now();
            return Ok(stream.clone());
        }
        let stream = self.device.stream_with(self.priority)?;
        streams.push((stream.clone(), Instant::now()));
        Ok(stream)
    }

    /// Blocks until everything submitted to its streams so far has ended.
    ///
    /// # Errors
    /// As [`Stream::synchronize`], of the first failed stream; the others are waited for in any case.
    pub fn synchronize(&self) -> Result<()> {
        let streams: Vec<Stream> =
            self.members.streams.lock().iter().map(|(stream, _)| stream.clone()).collect();
        let ends: Vec<_> = streams.iter().map(|stream| stream.command_buffer().submit()).collect();
        let results: Vec<Result<()>> = ends.into_iter().map(|end| end?.wait().map(drop)).collect();
        results.into_iter().collect()
    }
}

impl Members {
    /// Closes the idle streams whose last request was before `then`.
    pub(crate) fn drop_idle_since(members: &Weak<Self>, then: Instant) {
        if let Some(members) = members.upgrade() {
            let keep = |(stream, asked): &(Stream, Instant)| stream.in_flight() > 0 || *asked > then;
            let mut streams = members.streams.lock();
            let gone: Vec<_> = streams.extract_if(.., |member| !keep(member)).collect();
            drop(streams);
            drop(gone);
        }
    }
}

impl fmt::Debug for StreamGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamGroup({} of {} streams, {})", self.open(), self.most, self.device.name())
    }
}
