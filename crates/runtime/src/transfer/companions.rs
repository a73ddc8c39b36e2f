//! [`Companions`]: queues of a device for work that belongs to streams of other devices.
//!
//! A queue is used by one transfer at a time, and again if that has succeeded; a queue that has failed is dropped, so that a failed transfer affects no other.

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Priority, Queue, Result};

use std::sync::Arc;

use crate::{Completion, Device, Stream};

/// Maximum number of queues that are kept.
const MOST: usize = 8;

/// Idle and busy queues.
#[derive(Default)]
pub(crate) struct Companions(Mutex<Vec<(Arc<dyn Queue>, Completion)>>);

impl Companions {
    /// A stream over a queue whose work has succeeded, or over a new queue.
    pub(crate) fn take(&self, device: &Device) -> Result<Stream> {
        let mut queues = self.0.lock();
        queues.retain(|(_, last)| !last.is_done() || last.timing().is_some());
        let idle = queues.iter().position(|(_, last)| last.is_done());
        let queue = idle.map(|at| queues.swap_remove(at).0);
        drop(queues);
        match queue {
            Some(queue) => Ok(Stream::new(device.clone(), queue, Priority::Normal)),
            None => device.stream(),
        }
    }

    /// Keeps the queue of a stream whose last work is `last`.
    pub(crate) fn keep(&self, stream: &Stream, last: Completion) {
        let mut queues = self.0.lock();
        if queues.len() < MOST {
            queues.push((stream.queue.clone(), last));
        }
    }
}
