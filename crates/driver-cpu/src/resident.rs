//! Launches of resident kernels, whose threadgroups run until the host stops them.
//!
//! Such a launch has threads of its own, one for each threadgroup and at most as many as the device has workers, so that it takes none of the
//! pool's. Compiled code returns where the kernel yields ([`elinvar_spmd::YIELDED_BUSY`]). A thread resumes its threadgroups in turn; when all have
//! found nothing to do for some time it sleeps until the bell is rung.

use std::time::Instant;

use elinvar_driver::ResidentThreads;

use crate::crash;
use crate::encode::Running;
use crate::pool::STACK_BYTES;

/// What a threadgroup did when it was resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumed {
    /// It yielded after work.
    Busy,
    /// It yielded because it found nothing to do.
    Idle,
    /// It has ended, now or before.
    Ended,
    /// The launch has failed or was stopped.
    Failed,
}

/// Runs the threadgroups of a launch until they have ended, or one has failed.
pub(crate) fn run(running: &Running, groups: u64, most: usize, sleep: &ResidentThreads) {
    let threads = groups.min(most.max(1) as u64);
    std::thread::scope(|scope| {
        for first in 1..threads {
            let body = move || {
                let _thread = crash::Thread::enter(STACK_BYTES);
                serve(running, (first..groups).step_by(threads as usize), sleep);
            };
            let thread = std::thread::Builder::new().name(format!("elinvar-resident-{first}"));
            if let Err(error) = thread.stack_size(STACK_BYTES).spawn_scoped(scope, body) {
                running.cannot_start(&error);
            }
        }
        serve(running, (0..groups).step_by(threads as usize), sleep);
    });
}

/// Resumes a thread's threadgroups in turn.
fn serve(running: &Running, groups: impl Iterator<Item = u64> + Clone, sleep: &ResidentThreads) {
    let ResidentThreads { doorbell, sleep_after, longest_sleep } = sleep;
    let mut idle_since: Option<Instant> = None;
    loop {
        match round(running, groups.clone()) {
            Resumed::Ended => return,
            // The other threads may sleep.
            Resumed::Failed => return doorbell.ring(),
            Resumed::Busy => {
                idle_since = None;
                // Without queues, only the host makes work for other threads.
                if longest_sleep.is_some() {
                    doorbell.ring();
                }
            }
            Resumed::Idle => {
                if idle_since.get_or_insert_with(Instant::now).elapsed() < *sleep_after {
                    std::hint::spin_loop();
                    continue;
                }
                let ticket = doorbell.enter();
                match round(running, groups.clone()) {
                    Resumed::Idle => {
                        doorbell.wait(ticket, *longest_sleep);
                        // More items are likely: one thread that sleeps makes each submission slow.
                        if longest_sleep.is_none() {
                            idle_since = None;
                        }
                    }
                    Resumed::Busy => idle_since = None,
                    Resumed::Ended | Resumed::Failed => {}
                }
                doorbell.leave();
            }
        }
    }
}

/// Resumes each threadgroup once. Returns the first that applies: failed, busy, idle, ended.
fn round(running: &Running, groups: impl Iterator<Item = u64>) -> Resumed {
    let mut result = Resumed::Ended;
    for group in groups {
        match running.resume_resident(group) {
            Resumed::Failed => return Resumed::Failed,
            Resumed::Busy => result = Resumed::Busy,
            Resumed::Idle if result == Resumed::Ended => result = Resumed::Idle,
            Resumed::Idle | Resumed::Ended => {}
        }
    }
    result
}
