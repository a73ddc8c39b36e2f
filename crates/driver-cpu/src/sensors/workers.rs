//! Processor time of worker threads: what each ran, and what it waited while other threads had its processor.

use elinvar_driver::{Error, Quantity, Readings, Result};

use super::files::{Root, shortened};
use crate::pool::THREAD_NAME;

/// Adds the times of the workers of this process, in order.
pub(super) fn read(root: &Root, threads: &[Option<u32>], readings: &mut Readings) {
    for (worker, thread) in threads.iter().enumerate() {
        let none =
            || Error::unsupported("the system has no numbers of threads, or the worker has not started");
        let times = thread.ok_or_else(none).and_then(|thread| times(root, "self", thread));
        add(&worker.to_string(), times, readings);
    }
}

/// Adds the times of the workers of another process, which are found by the names of its threads.
pub(super) fn read_process(root: &Root, process: &str, readings: &mut Readings) {
    let threads = root.list(&format!("proc/{process}/task"));
    // A process that cannot be read is told by its processor time.
    for thread in threads.unwrap_or_default().iter().filter_map(|thread| thread.parse().ok()) {
        let name = root.text(&format!("proc/{process}/task/{thread}/comm")).unwrap_or_default();
        if let Some(worker) = name.trim_end().strip_prefix(THREAD_NAME) {
            add(worker, times(root, process, thread), readings);
        }
    }
}

fn add(worker: &str, times: Result<[f64; 2]>, readings: &mut Readings) {
    for (at, state) in ["running", "waiting"].into_iter().enumerate() {
        readings.add(Quantity::WorkerTime, &[state, worker], times.clone().map(|times| times[at]));
    }
}

/// Seconds that a thread ran and waited: the first two numbers of its `schedstat` in nanoseconds (the kernel's "Scheduler Statistics").
fn times(root: &Root, process: &str, thread: u32) -> Result<[f64; 2]> {
    let file = format!("proc/{process}/task/{thread}/schedstat");
    let text = root.text(&file)?;
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(running)), Some(Ok(waiting))) = (numbers.next(), numbers.next()) else {
        return Err(Error::unsupported(format!("`/{file}` has no times: `{}`", shortened(text.trim()))));
    };
    Ok([running, waiting].map(|ns| ns as f64 / 1e9))
}
