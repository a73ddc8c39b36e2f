//! [`StreamGroup`]: a few streams for work that does not depend on one another.
//!
//! A group opens streams as work comes, up to as many as the device runs side by side with profit, and gives each piece
//! of work the stream with the least to do. It orders nothing: what depends on other work is ordered by events.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Priority, Result};

use crate::{Device, Stream};

/// Streams of one device for independent work. Cloning gives another handle on the same streams.
#[derive(Clone)]
pub struct StreamGroup {
    device: Device,
    priority: Priority,
    most: usize,
    members: Arc<Members>,
}

/// The streams that are open, and when each was asked for last.
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

    /// The most streams that it opens.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The streams that are open.
    pub fn open(&self) -> usize {
        self.members.streams.lock().len()
    }

    /// The stream for the next piece of work: an open one with nothing to do; else a new one; else, when as many are open
    /// as there may be, the one with the least submissions in flight, of several the one that was not asked for longest.
    ///
    /// # Errors
    /// What the driver answers when it cannot open another queue.
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

    /// Block until everything submitted to its streams so far has ended.
    ///
    /// # Errors
    /// As [`Stream::synchronize`], of the first stream that has failed; the others are waited for all the same.
    pub fn synchronize(&self) -> Result<()> {
        let streams: Vec<Stream> =
            self.members.streams.lock().iter().map(|(stream, _)| stream.clone()).collect();
        let ends: Vec<_> = streams.iter().map(|stream| stream.command_buffer().submit()).collect();
        let results: Vec<Result<()>> = ends.into_iter().map(|end| end?.wait().map(drop)).collect();
        results.into_iter().collect()
    }
}

impl Members {
    /// Closes the streams that have nothing to do and were last asked for before `then`.
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
