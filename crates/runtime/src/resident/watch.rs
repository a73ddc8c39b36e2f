//! Wakers of tasks that await items: the device wakes nobody, so one thread of the process polls while there are any.

use std::sync::{Arc, LazyLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use elinvar_driver::sync::{Condvar, Mutex};
use elinvar_driver::{Error, Result};

use super::persistent_kernel::Shared;

/// Shortest and longest sleep between polls.
const NAPS: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// A task that awaits an item.
struct Waiting {
    shared: Arc<Shared>,
    number: u64,
    deadline: Instant,
    waker: Waker,
}

impl Waiting {
    fn is_for(&self, shared: &Arc<Shared>, number: u64) -> bool {
        self.number == number && Arc::ptr_eq(&self.shared, shared)
    }

    fn is_over(&self, now: Instant) -> bool {
        now > self.deadline || self.shared.may_be_over(self.number)
    }
}

#[derive(Default)]
struct Watch {
    waiting: Mutex<Vec<Waiting>>,
    changed: Condvar,
}

/// The thread, or why there is none.
static WATCH: LazyLock<Result<Arc<Watch>>> = LazyLock::new(|| {
    let watch = Arc::<Watch>::default();
    let own = watch.clone();
    let thread = std::thread::Builder::new().name("elinvar-tickets".into());
    let began = thread.spawn(move || own.run());
    began.map_err(|error| Error::Environment(format!("a thread for awaited items: {error}")))?;
    Ok(watch)
});

/// Wakes a task once, when an item may be over, or at the deadline.
///
/// # Errors
/// `Environment` if the system has no thread for it.
pub(super) fn wake(shared: &Arc<Shared>, number: u64, deadline: Instant, waker: Waker) -> Result<()> {
    let watch = WATCH.as_ref().map_err(Clone::clone)?;
    let mut waiting = watch.waiting.lock();
    let new = Waiting { shared: shared.clone(), number, deadline, waker };
    let replaced = match waiting.iter_mut().find(|one| one.is_for(shared, number)) {
        Some(old) => Some(std::mem::replace(old, new)),
        None => {
            waiting.push(new);
            None
        }
    };
    drop(waiting);
    watch.changed.notify_one();
    // The drop of a waker is the user's code.
    drop(replaced);
    Ok(())
}

/// Forgets a task whose ticket is dropped.
pub(super) fn forget(shared: &Arc<Shared>, number: u64) {
    if let Ok(watch) = &*WATCH {
        let mut waiting = watch.waiting.lock();
        let at = waiting.iter().position(|one| one.is_for(shared, number));
        let forgotten = at.map(|at| waiting.swap_remove(at));
        drop(waiting);
        drop(forgotten);
    }
}

impl Watch {
    fn run(&self) {
        let mut nap = NAPS[0];
        loop {
            let mut waiting = self.waiting.lock();
            while waiting.is_empty() {
                self.changed.wait(&mut waiting);
                nap = NAPS[0];
            }
            let now = Instant::now();
            let over: Vec<Waiting> = waiting.extract_if(.., |one| one.is_over(now)).collect();
            drop(waiting);
            nap = if over.is_empty() { (nap * 2).min(NAPS[1]) } else { NAPS[0] };
            for one in over {
                // A panic in a waker must not end the thread for the others.
                let _panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one.waker.wake()));
            }
            std::thread::sleep(nap);
        }
    }
}
