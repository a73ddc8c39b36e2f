//! Worker threads. A worker runs a task (the turn of a queue) or helps with a job that another worker has published. If there is neither,
//! it spins for a bounded time, then sleeps.
//!
//! Invariants:
//! - A worker waits for other workers only as the owner of a job, and only for those that are executing its threadgroups. Therefore any number of
//!   queues make progress on any number of workers.
//! - A thread that adds or takes work wakes a sleeping worker if there is more work than spinning workers will find.
//! - Workers outlive the pool's handle until no task is left. They are never joined, because the last handle may be dropped on a
//!   worker, in a callback.
//!
//! A dispatch starts on the worker that took the command and stays there if it is short, estimated from the previous dispatch or from
//! its own first threadgroups. The threshold depends on who could help: help of a spinning worker is cheap. Waking a worker is expensive, and
//! is done only for a single long dispatch, or after several dispatches that would each have justified the help of a spinning worker.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use elinvar_driver::sync::{Condvar, Mutex};
use elinvar_driver::{Error, Priority, Process, ResidentThreads, Result};

use crate::cores::Cores;
use crate::crash;
use crate::encode::Running;
use crate::job::{self, AWAKE, AWAKE_IN_JOBS, Demand, Job, Pace, Work, wait_awake};
use crate::places::Places;
use crate::scratch::Scratch;

/// Stack size: compiled code keeps threadgroup memory and private arrays on the stack.
pub(crate) const STACK_BYTES: usize = 16 << 20;
/// Minimum duration on one worker for which the help of a spinning worker pays off.
const SHORT_NS: u64 = 8_000;
/// Minimum duration on one worker for which waking another worker pays off.
const LONG_NS: u64 = 50_000;

/// Names of the threads, before the index.
pub(crate) const THREAD_NAME: &str = "elinvar-cpu-";

/// A task for one worker: the turn of a queue.
pub(crate) trait Task: Send + Sync {
    fn run(self: Arc<Self>, worker: &mut Worker);
}

/// Handle of the worker threads. After it is dropped, they finish the remaining tasks and exit.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// The process that owns the threads.
    process: Process,
}

/// Context of a task: the thread's scratch memory and its access to other workers.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    /// Index of the worker; guests have the index that follows those of the workers.
    index: usize,
    scratch: Scratch,
    /// Memory of suspended threadgroups, while no dispatch uses it.
    pub(crate) suspended: Scratch,
    /// Packed factors of products.
    pub(crate) panels: Scratch,
    /// Time that dispatches took alone since the last shared job, although a spinning worker could have helped.
    alone_ns: u64,
    /// The last dispatch, for reuse by the next.
    pub(crate) spare: Option<Arc<Running>>,
    /// How it sleeps, for the thread of a resident kernel.
    pub(crate) resident: Option<ResidentThreads>,
}

#[derive(Default)]
struct Shared {
    workers: usize,
    state: Mutex<State>,
    /// By worker.
    wake: Box<[Condvar]>,
    /// Number of workers for which there is work, readable without the lock.
    found: AtomicUsize,
    /// Number of busy workers, readable without the lock.
    busy: AtomicUsize,
    /// Number of spinning workers. Changes under the lock.
    spinning: AtomicUsize,
    /// By worker; the last one is the guests'.
    places: Places,
}

#[derive(Default)]
struct State {
    /// By priority, highest first; in order of arrival within a priority.
    tasks: VecDeque<(Priority, Arc<dyn Task>)>,
    jobs: Vec<Arc<Job>>,
    /// Sleeping workers; the last to fall asleep is woken first.
    asleep: Vec<usize>,
    /// Number of busy workers.
    busy: usize,
    /// Maximum number of busy workers.
    most: usize,
    closed: bool,
}

enum Next {
    Task(Arc<dyn Task>),
    Job(Arc<Job>),
}

/// What a worker has just finished.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Task,
    Job,
}

impl Pool {
    /// Starts a thread for each worker, at least one.
    #[cfg(test)]
    pub(crate) fn new(workers: usize) -> Result<Self> {
        Self::on(&Cores { workers, ..Cores::default() })
    }

    /// Starts a thread for each worker of `cores`, at least one.
    pub(crate) fn on(cores: &Cores) -> Result<Self> {
        let workers = cores.workers.max(1);
        let state = Mutex::new(State { most: workers, ..State::default() });
        let wake = (0..workers).map(|_| Condvar::new()).collect();
        let shared =
            Arc::new(Shared { workers, state, wake, places: Places::new(workers + 1), ..Shared::default() });
        let pool = Self { shared, process: Process::this() };
        for index in 0..workers {
            let shared = pool.shared.clone();
            let (mut worker, cores) = (Worker::new(shared, index), cores.clone());
            let run = move || {
                cores.bind();
                worker.shared.places.enter(index);
                worker.work();
            };
            let thread = std::thread::Builder::new().name(format!("{THREAD_NAME}{index}"));
            thread.stack_size(STACK_BYTES).spawn(run).map_err(|error| {
                Error::Environment(format!("cannot start worker thread {index} of {workers}: {error}"))
            })?;
        }
        Ok(pool)
    }

    /// # Errors
    /// `DeviceLost` in a forked child of the process that owns the threads.
    pub(crate) fn expect_here(&self, what: &str) -> Result<()> {
        self.process.expect_this(&what)
    }

    /// The system's numbers of the workers' threads, where it has some.
    pub(crate) fn threads(&self) -> Vec<Option<u32>> {
        self.shared.places.threads(self.shared.workers)
    }

    /// Adds a task behind all others of its priority.
    pub(crate) fn push_with(&self, priority: Priority, task: Arc<dyn Task>) {
        self.shared.change(|state| state.add(priority, task));
    }

    /// A worker for the calling thread, a guest. It takes no tasks by itself; it runs tasks with [`Worker::invite`], and its jobs are
    /// shared with the pool's threads.
    pub(crate) fn guest(&self) -> Worker {
        // Guests do not help each other, so two guests never meet in one job.
        let (shared, index) = (self.shared.clone(), self.shared.workers);
        Worker::new(shared, index)
    }

    /// Limits the number of busy workers, at least 1. Running tasks are not interrupted.
    pub(crate) fn use_workers(&self, most: usize) {
        self.shared.change(|state| state.most = most.max(1));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A forked child has no threads to end, and the lock may have been held at the fork.
        if !self.process.is_this() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.closed = true;
        std::mem::take(&mut state.asleep)
            .into_iter()
            .for_each(|worker| self.shared.wake[worker].notify_one());
    }
}

impl Worker {
    fn new(shared: Arc<Shared>, index: usize) -> Self {
        let [scratch, suspended, panels] = [(); 3].map(|()| Scratch::new());
        Self { shared, index, scratch, suspended, panels, alone_ns: 0, spare: None, resident: None }
    }

    /// Runs a task on this thread, a guest's, within the limit of busy workers. Returns the task if others wait already.
    pub(crate) fn invite(&mut self, task: Arc<dyn Task>) -> Option<Arc<dyn Task>> {
        {
            let mut state = self.shared.state.lock();
            if state.busy >= state.most || !state.tasks.is_empty() {
                return Some(task);
            }
            state.busy += 1;
            self.shared.note(&state);
        }
        self.shared.places.occupy(self.index);
        task.run(self);
        self.shared.places.vacate(self.index);
        self.shared.change(|state| state.busy -= 1);
        None
    }

    /// Whether a task waits for a worker.
    pub(crate) fn tasks_wait(&self) -> bool {
        !self.shared.state.lock().tasks.is_empty()
    }

    /// Number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.shared.workers
    }

    /// Runs a dispatch, with the help of other workers if that pays off. Returns the time per threadgroup when all have ended.
    pub(crate) fn run<W: Work + 'static>(&mut self, work: &Arc<W>, demand: Demand) -> Result<u64> {
        let mut pace = Pace::new(demand.group_ns, demand.range_ns);
        let leave = |pace: &Pace, left| self.shared.is_worth_sharing(self.alone_ns, demand, pace, left);
        let next = job::run_alone(&**work, demand, &mut pace, &mut self.scratch, leave)?;
        if next == demand.groups {
            if pace.ns > SHORT_NS {
                self.alone_ns += pace.ns;
            }
            return Ok(pace.group_ns());
        }
        self.alone_ns = 0;
        let known = Demand { group_ns: pace.group_ns().max(demand.group_ns), ..demand };
        let participants = self.shared.workers.max(self.index + 1);
        let job = Arc::new(Job::new(work.clone(), known, next, participants));
        self.shared.places.occupy(self.index);
        self.shared.change(|state| state.jobs.push(job.clone()));
        let shared = job.take_part(self.index, &mut self.scratch);
        self.shared.change(|state| state.jobs.retain(|other| !Arc::ptr_eq(other, &job)));
        job.wait_for_helpers();
        job.panicked().map_or(Ok(pace.with(&shared).group_ns()), Err)
    }

    /// Runs all threadgroups of a dispatch on this thread, in one range that is not timed.
    pub(crate) fn run_whole(&mut self, work: &dyn Work, groups: u64) -> Result<ControlFlow<()>> {
        job::run_whole(work, groups, &mut self.scratch)
    }

    fn work(&mut self) {
        let _thread = crash::Thread::enter(STACK_BYTES);
        let mut before = Before::Nothing;
        while let Some(next) = self.shared.next(self.index, before) {
            self.shared.places.occupy(self.index);
            before = match next {
                Next::Task(task) => {
                    task.run(self);
                    Before::Task
                }
                Next::Job(job) => {
                    job.help(self.index, &mut self.scratch);
                    Before::Job
                }
            };
            self.shared.places.vacate(self.index);
        }
    }
}

impl Shared {
    /// Whether help pays off for the remaining threadgroups of a dispatch.
    fn is_worth_sharing(&self, alone_ns: u64, demand: Demand, pace: &Pace, left: u64) -> bool {
        if self.workers == 1 || left == 1 {
            return false;
        }
        let known = if pace.ns > SHORT_NS { pace.group_ns() } else { demand.group_ns };
        let expected_ns = left.saturating_mul(known);
        let awake = self.spinning.load(Ordering::Relaxed) > 0;
        expected_ns > SHORT_NS && (awake || alone_ns.saturating_add(expected_ns) > LONG_NS)
    }

    /// Changes the state under the lock, and wakes sleeping workers for new work.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.announce(&mut state);
    }

    fn announce(&self, state: &mut State) {
        self.note(state);
        for _ in 0..state.sleepers_to_wake(self.spinning.load(Ordering::Relaxed)) {
            if let Some(worker) = state.asleep.pop() {
                self.places.keep_apart(worker);
                self.wake[worker].notify_one();
            }
        }
    }

    /// Publishes the number of workers for which there is work, for those that spin without the lock.
    fn note(&self, state: &State) {
        let found = if state.busy < state.most { state.tasks.len() + state.vacancies() } else { 0 };
        self.found.store(found, Ordering::Relaxed);
        self.busy.store(state.busy, Ordering::Relaxed);
    }

    /// Spins until there may be work, for a bounded time. Returns whether there may be.
    fn spin(&self, before: Before) -> bool {
        let found = || self.found.load(Ordering::Relaxed) != 0;
        let is_last = || self.busy.load(Ordering::Relaxed) == 0;
        wait_awake(AWAKE, found)
            || (before == Before::Job && wait_awake(AWAKE_IN_JOBS, || found() || is_last()) && found())
    }

    /// Waits for work of a worker. `None` when the pool is closed and no task is left.
    fn next(&self, worker: usize, before: Before) -> Option<Next> {
        let mut state = self.state.lock();
        state.busy -= usize::from(before != Before::Nothing);
        loop {
            if let Some(next) = state.take() {
                self.announce(&mut state);
                return Some(next);
            }
            // A job may have been drained, which is not signaled.
            self.note(&state);
            self.spinning.fetch_add(1, Ordering::Relaxed);
            drop(state);
            let found = self.spin(before);
            state = self.state.lock();
            self.spinning.fetch_sub(1, Ordering::Relaxed);
            if found {
                continue; // others may have been quicker
            }
            if let Some(next) = state.take() {
                self.announce(&mut state);
                return Some(next);
            }
            if state.closed {
                return None;
            }
            state.asleep.push(worker);
            while state.asleep.contains(&worker) {
                self.wake[worker].wait(&mut state);
            }
        }
    }
}

impl State {
    fn add(&mut self, priority: Priority, task: Arc<dyn Task>) {
        let behind = self.tasks.partition_point(|(other, _)| *other >= priority);
        self.tasks.insert(behind, (priority, task));
    }

    /// Prefers a task, because it needs no other worker; otherwise the job with the fewest helpers.
    fn take(&mut self) -> Option<Next> {
        if self.busy >= self.most {
            return None;
        }
        let next = match self.tasks.pop_front() {
            Some((_, task)) => Next::Task(task),
            None => {
                let open = self.jobs.iter().filter(|job| job.vacancies() > 0);
                let job = open.min_by_key(|job| job.helpers())?;
                job.join();
                Next::Job(job.clone())
            }
        };
        self.busy += 1;
        Some(next)
    }

    /// Number of additional workers that the jobs could use.
    fn vacancies(&self) -> usize {
        self.jobs.iter().map(|job| job.vacancies()).sum()
    }

    /// Wakes at most two workers. Each wakes two more, which is faster than one thread waking all.
    fn sleepers_to_wake(&self, spinning: usize) -> usize {
        if self.asleep.is_empty() {
            return 0;
        }
        let free = self.most.saturating_sub(self.busy);
        (self.vacancies() + self.tasks.len()).min(free).saturating_sub(spinning).min(self.asleep.len()).min(2)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    struct Once<F>(Mutex<Option<F>>);

    impl<F: FnOnce(&mut Worker) + Send> Task for Once<F> {
        fn run(self: Arc<Self>, worker: &mut Worker) {
            let f = self.0.lock().take();
            f.expect("a task runs once")(worker);
        }
    }

    fn once(f: impl FnOnce(&mut Worker) + Send + 'static) -> Arc<dyn Task> {
        Arc::new(Once(Mutex::new(Some(f))))
    }

    impl Pool {
        pub(crate) fn push(&self, f: impl FnOnce(&mut Worker) + Send + 'static) {
            self.push_with(Priority::Normal, once(f));
        }
    }

    #[test]
    fn what_is_worth_sharing() {
        let worth = |workers, spinning, alone_ns, group_ns, left| {
            let spinning = AtomicUsize::new(spinning);
            let shared = Shared { workers, spinning, ..Shared::default() };
            let demand = Demand { groups: left, group_ns, ascending: false, range_ns: job::RANGE_NS };
            shared.is_worth_sharing(alone_ns, demand, &Pace::new(group_ns, job::RANGE_NS), left)
        };
        assert!(worth(2, 0, 0, LONG_NS / 10, 11));
        assert!(!worth(2, 0, 0, LONG_NS / 10, 10));
        // A worker is spinning, or there was similar work before.
        assert!(worth(2, 1, 0, LONG_NS / 10, 2));
        assert!(worth(2, 0, LONG_NS, LONG_NS / 10, 2));
        assert!(!worth(2, 1, LONG_NS, SHORT_NS / 10, 10));
        // No other workers, nothing to share, or the duration is still unknown.
        assert!(!worth(1, 0, 0, LONG_NS, 100));
        assert!(!worth(2, 1, LONG_NS, LONG_NS, 1));
        assert!(!worth(2, 1, LONG_NS, 0, 1 << 40));
    }

    #[test]
    fn no_more_workers_are_used_than_allowed() {
        let pool = Pool::new(4).unwrap();
        pool.use_workers(1);
        let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (sender, ran) = channel();
        for _ in 0..200 {
            let (now, peak, sender) = (now.clone(), peak.clone(), sender.clone());
            pool.push(move |_| {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                sender.send(()).unwrap();
            });
        }
        (0..200).for_each(|_| ran.recv().unwrap());
        assert_eq!(peak.load(Ordering::SeqCst), 1);
        // Four threadgroups that wait for one another need four workers; two are woken when the first two have joined.
        let all = Arc::new(std::sync::Barrier::new(4));
        for _ in 0..4 {
            let (all, sender) = (all.clone(), sender.clone());
            pool.push(move |_| {
                all.wait();
                sender.send(()).unwrap();
            });
        }
        pool.use_workers(4);
        (0..4).for_each(|_| ran.recv().unwrap());
    }

    #[test]
    fn tasks_that_were_added_run_after_the_handle_is_gone() {
        let (sender, ran) = channel();
        let pool = Pool::new(2).unwrap();
        for n in 0..100 {
            let sender = sender.clone();
            pool.push(move |_| sender.send(n).unwrap());
        }
        drop((pool, sender));
        assert_eq!(ran.iter().count(), 100);
    }

    #[test]
    fn a_guest_runs_what_nobody_else_has_to() {
        let pool = Pool::new(1).unwrap();
        let (sender, ran) = channel();
        let mut guest = pool.guest();
        let this = std::thread::current().id();
        let task = |sender: &std::sync::mpsc::Sender<_>| -> Arc<dyn Task> {
            let sender = sender.clone();
            once(move |_| sender.send(std::thread::current().id()).unwrap())
        };
        assert!(guest.invite(task(&sender)).is_none());
        assert_eq!(ran.try_recv(), Ok(this));
        // The only worker that may be busy is busy.
        let (go, wait) = channel::<()>();
        let (begun, begins) = channel();
        pool.push(move |_| {
            begun.send(()).unwrap();
            wait.recv().unwrap();
        });
        begins.recv().unwrap();
        let back = guest.invite(task(&sender)).expect("it is not the guest's turn");
        pool.push_with(Priority::Normal, back);
        go.send(()).unwrap();
        assert_ne!(ran.recv().unwrap(), this);
        // It may run again after the other has ended; its job is shared with the pool's thread.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while guest.invite(task(&sender)).is_some() {
            assert!(std::time::Instant::now() < deadline);
        }
        assert_eq!(ran.recv().unwrap(), this);
    }
}
