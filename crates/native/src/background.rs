//! One background thread for each process, which optimizes code at a lower priority.
//!
//! The thread is started with the first job and ends when no job is left. Processes that it starts inherit its priority on Linux.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use elinvar_driver::PerProcess;
use elinvar_driver::sync::Mutex;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Whether the thread exists. It ends under the lock.
    is_running: bool,
}

/// Runs a job behind those that are queued. If no thread can be started, the job is dropped, and its kernel remains unoptimized.
pub(crate) fn spawn(job: impl FnOnce() + Send + 'static) {
    static QUEUE: PerProcess<Mutex<Queue>> = PerProcess::new(Mutex::default);
    let queue = QUEUE.get();
    let mut state = queue.lock();
    state.jobs.push_back(Box::new(job));
    if state.is_running {
        return;
    }
    match std::thread::Builder::new().name("elinvar-optimize".into()).spawn(move || work(queue)) {
        Ok(_) => state.is_running = true,
        Err(error) => {
            tracing::warn!("cannot start a thread that optimizes kernels: {error}");
            state.jobs.clear();
        }
    }
}

fn work(queue: &Mutex<Queue>) {
    yield_to_others();
    loop {
        let job = {
            let mut state = queue.lock();
            let job = state.jobs.pop_front();
            state.is_running = job.is_some();
            job
        };
        let Some(job) = job else { return };
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("optimizing a kernel panicked");
        }
    }
}

/// Lowers the priority of this thread.
#[allow(unsafe_code)] // calls a system function
fn yield_to_others() {
    // On Linux the call affects one thread, elsewhere the process.
    #[cfg(target_os = "linux")]
    // SAFETY: takes no pointers. Failure is harmless.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 10);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn jobs_run_in_order_and_a_panic_ends_none_of_the_others() {
        let (send, receive) = channel();
        for number in 0..20 {
            let send = send.clone();
            spawn(move || {
                assert!(number % 5 != 4, "an expected panic");
                send.send((number, std::thread::current().name().map(str::to_owned))).unwrap();
            });
        }
        for number in (0..20).filter(|number| number % 5 != 4) {
            let (got, thread) = receive.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_eq!((got, thread.as_deref()), (number, Some("elinvar-optimize")));
        }
    }
}
