//! Worker threads. A worker takes a task (the turn of a queue, or a callback to make) or joins a
//! parallel job that another worker has published; with neither it spins briefly, then sleeps.
//!
//! Invariants:
//! - A worker waits for others only as the owner of a job, and then only for those that are running
//!   its groups. So any number of queues make progress on any number of workers.
//! - Whoever adds or takes work wakes a sleeper while more is there than spinning workers will find.
//! - Workers outlive the pool's handle until no task is left. They are never joined: the last handle
//!   may be dropped on a worker, in a callback.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use elinvar_driver::{Error, Result};
use parking_lot::{Condvar, Mutex};

use crate::job::{Job, Share, Work};
use crate::scratch::Scratch;

/// Compiled code keeps threadgroup memory and private arrays on the stack.
const STACK_BYTES: usize = 16 << 20;
/// How long a worker without work looks for some before it sleeps.
const SPIN: Duration = Duration::from_micros(30);
/// A job shorter than this is not worth waking another worker.
const LONG_NS: u64 = 50_000;

/// Something for one worker to do.
pub(crate) type Task = Box<dyn FnOnce(&mut Worker) + Send>;

/// The handle of the worker threads; dropping it lets them finish what was added and end.
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

/// What a task is given: the thread's own memory and its way to the others.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    scratch: Scratch,
}

struct Shared {
    workers: usize,
    state: Mutex<State>,
    wake: Condvar,
    /// Entries in the state's two lists, to be looked at without its lock.
    found: AtomicUsize,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    jobs: Vec<Arc<Job<dyn Work>>>,
    spinning: usize,
    asleep: usize,
    closed: bool,
}

enum Next {
    Task(Task),
    Job(Arc<Job<dyn Work>>),
}

impl Pool {
    /// Start `workers` threads, at least one.
    pub(crate) fn new(workers: usize) -> Result<Self> {
        let workers = workers.max(1);
        let (state, wake) = (Mutex::default(), Condvar::new());
        let pool = Self { shared: Arc::new(Shared { workers, state, wake, found: AtomicUsize::new(0) }) };
        for index in 0..workers {
            let mut worker = Worker { shared: pool.shared.clone(), scratch: Scratch::new() };
            let thread = std::thread::Builder::new().name(format!("elinvar-cpu-{index}"));
            thread.stack_size(STACK_BYTES).spawn(move || worker.work()).map_err(|error| {
                Error::Environment(format!("cannot start worker thread {index} of {workers}: {error}"))
            })?;
        }
        Ok(pool)
    }

    /// Add a task behind all others.
    pub(crate) fn push(&self, task: Task) {
        self.shared.change(|state| state.tasks.push_back(task));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

impl Worker {
    /// Add a task behind all others.
    pub(crate) fn push(&self, task: Task) {
        self.shared.change(|state| state.tasks.push_back(task));
    }

    /// Whether some task waits for a worker.
    pub(crate) fn tasks_wait(&self) -> bool {
        !self.shared.state.lock().tasks.is_empty()
    }

    /// The number of worker threads.
    pub(crate) fn workers(&self) -> usize {
        self.shared.workers
    }

    /// Run a job that this thread has made, with the others' help if it takes long or `estimate_ns`
    /// says that it will. Returns this thread's own share when all groups have ended.
    pub(crate) fn run<W: Work + 'static>(&mut self, job: &Arc<Job<W>>, estimate_ns: u64) -> Result<Share> {
        let shared = &*self.shared;
        let mut published = false;
        let mut publish_if = |long: bool| {
            if long && !published && shared.workers > 1 && job.remaining() > 0 {
                published = true;
                shared.change(|state| state.jobs.push(job.clone()));
            }
        };
        publish_if(estimate_ns > LONG_NS && job.remaining() > 1);
        let share = job.take_part(&mut self.scratch, |share| publish_if(share.ns > LONG_NS));
        if published {
            let this: Arc<Job<dyn Work>> = job.clone();
            shared.change(|state| state.jobs.retain(|other| !Arc::ptr_eq(other, &this)));
            job.wait_for_helpers();
        }
        job.panicked().map_or(Ok(share), Err)
    }

    fn work(&mut self) {
        while let Some(next) = self.shared.next() {
            match next {
                Next::Task(task) => task(self),
                Next::Job(job) => job.help(&mut self.scratch),
            }
        }
    }
}

impl Shared {
    /// Change what there is to do, and wake sleepers for what is new.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.announce(&state);
    }

    fn announce(&self, state: &State) {
        self.found.store(state.tasks.len() + state.jobs.len(), Ordering::Relaxed);
        for _ in 0..state.sleepers_to_wake() {
            self.wake.notify_one();
        }
    }

    /// Wait for something to do; `None` once the pool is closed and no task is left.
    fn next(&self) -> Option<Next> {
        let mut state = self.state.lock();
        loop {
            if let Some(next) = self.take(&mut state) {
                return Some(next);
            }
            state.spinning += 1;
            drop(state);
            self.spin();
            state = self.state.lock();
            state.spinning -= 1;
            if let Some(next) = self.take(&mut state) {
                return Some(next);
            }
            if state.closed {
                return None;
            }
            state.asleep += 1;
            self.wake.wait(&mut state);
            state.asleep -= 1;
        }
    }

    /// Look for work without the lock, for a bounded time.
    fn spin(&self) {
        let begun = Instant::now();
        while self.found.load(Ordering::Relaxed) == 0 && begun.elapsed() < SPIN {
            for _ in 0..16 {
                std::hint::spin_loop();
            }
        }
    }

    fn take(&self, state: &mut State) -> Option<Next> {
        let next = state.take()?;
        self.announce(state);
        Some(next)
    }
}

impl State {
    /// A task first: it needs nobody else. Then the job with the fewest helpers.
    fn take(&mut self) -> Option<Next> {
        if let Some(task) = self.tasks.pop_front() {
            return Some(Next::Task(task));
        }
        let open = self.jobs.iter().filter(|job| job.remaining() > 0);
        let job = open.min_by_key(|job| job.helpers())?;
        job.join();
        Some(Next::Job(job.clone()))
    }

    /// At most two: those wake two more each, which is quicker than one waking all.
    fn sleepers_to_wake(&self) -> u64 {
        if self.asleep == 0 {
            return 0;
        }
        let groups: u64 = self.jobs.iter().map(|job| job.remaining()).fold(0, u64::saturating_add);
        let work = groups.saturating_add(self.tasks.len() as u64);
        work.saturating_sub(self.spinning as u64).min(self.asleep as u64).min(2)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::{ControlFlow, Range};
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    /// Runs a job of `total` groups on a worker of the pool.
    fn run<W: Work + 'static>(
        pool: &Pool,
        work: W,
        total: u64,
        estimate_ns: u64,
    ) -> (Arc<Job<W>>, Result<Share>) {
        let (sender, outcome) = channel();
        pool.push(Box::new(move |worker| {
            let job = Arc::new(Job::new(work, total, worker.workers()));
            let share = worker.run(&job, estimate_ns);
            sender.send((job, share)).unwrap();
        }));
        outcome.recv().unwrap()
    }

    /// Every group waits until as many others run.
    struct Together(Barrier);

    impl Work for Together {
        fn run(&self, groups: Range<u64>, _scratch: &mut Scratch) -> ControlFlow<()> {
            for _ in groups {
                self.0.wait();
            }
            ControlFlow::Continue(())
        }
    }

    #[test]
    fn all_workers_take_part_in_a_long_job() {
        for workers in [2, 5] {
            let pool = Pool::new(workers).unwrap();
            for _ in 0..50 {
                let work = Together(Barrier::new(workers));
                let (_, share) = run(&pool, work, workers as u64, LONG_NS + 1);
                assert_eq!(share.unwrap().groups, 1);
            }
        }
    }

    /// Panics in this group.
    struct Fails(u64);

    impl Work for Fails {
        fn run(&self, groups: Range<u64>, _scratch: &mut Scratch) -> ControlFlow<()> {
            assert!(!groups.contains(&self.0), "group {}", self.0);
            ControlFlow::Continue(())
        }
    }

    #[test]
    fn a_panic_in_a_job_is_its_owners_error() {
        let pool = Pool::new(3).unwrap();
        for estimate_ns in [0, u64::MAX] {
            for last in [0, 1, 500] {
                let (job, share) = run(&pool, Fails(last), 100_000, estimate_ns);
                let Err(Error::DeviceLost(message)) = share else { panic!("no error") };
                assert!(message.ends_with(&format!("group {last}")), "{message}");
                assert_eq!(job.remaining(), 0);
            }
        }
        let (_, share) = run(&pool, Together(Barrier::new(1)), 10, 0);
        share.unwrap();
    }

    #[test]
    fn tasks_that_were_added_run_after_the_handle_is_gone() {
        let (sender, ran) = channel();
        let pool = Pool::new(2).unwrap();
        for n in 0..100 {
            let sender = sender.clone();
            pool.push(Box::new(move |_| sender.send(n).unwrap()));
        }
        drop((pool, sender));
        assert_eq!(ran.iter().count(), 100);
    }
}
