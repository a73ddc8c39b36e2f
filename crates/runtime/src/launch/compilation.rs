//! [`Compilation`]: a compilation in the background, as a future, and the threads that compile.
//!
//! There are as many threads as processors at most. They are started when there is work, and end when there has been none for a while.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use elinvar_driver::sync::{Condvar, Mutex};
use elinvar_driver::{Cancellation, Error, PerProcess, Process, Result, panic_text};

/// A compilation in the background.
///
/// A future of its result, for any async executor; threads can wait for it too. Dropping it cancels the compilation.
#[must_use = "a compilation is cancelled when it is dropped"]
pub struct Compilation<T> {
    state: Arc<State<T>>,
}

struct State<T> {
    cancellation: Arc<Cancellation>,
    process: Process,
    progress: Mutex<Progress<T>>,
    ended: Condvar,
}

struct Progress<T> {
    result: Option<Result<T>>,
    waker: Option<Waker>,
}

impl<T: Clone + Send + 'static> Compilation<T> {
    /// Compiles on a thread of the pool.
    pub(crate) fn begin(compile: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        let state = Arc::new(State {
            cancellation: Cancellation::new(),
            process: Process::this(),
            progress: Mutex::new(Progress { result: None, waker: None }),
            ended: Condvar::default(),
        });
        let of = state.clone();
        run_in_background(Box::new(move || {
            let cancelled = || of.cancellation.is_cancelled();
            if !cancelled() {
                let result = catch_unwind(AssertUnwindSafe(|| of.cancellation.run(compile)));
                let panicked = |payload: Box<dyn Any + Send>| {
                    Err(Error::Environment(format!("the compiler panicked: {}", panic_text(&*payload))))
                };
                of.end(result.unwrap_or_else(panicked));
            }
        }));
        Self { state }
    }

    /// Blocks until the compilation has ended. Returns what it compiled; repeated calls return the same.
    ///
    /// # Errors
    /// Those of the compilation; `Cancelled` if it was cancelled; `DeviceLost` in a forked child of the process that began it.
    pub fn wait(&self) -> Result<T> {
        self.state.process.expect_this(&"Compilation::wait")?;
        let mut progress = self.state.progress.lock();
        loop {
            if let Some(result) = &progress.result {
                return result.clone();
            }
            self.state.ended.wait(&mut progress);
        }
    }

    /// Whether the compilation has ended, successfully or not.
    pub fn is_done(&self) -> bool {
        self.state.progress.lock().result.is_some()
    }

    /// Cancels the compilation, which then ends in [`Error::Cancelled`]: its compiler is killed. Returns `false`, without effect, if it
    /// has ended.
    pub fn cancel(&self) -> bool {
        self.state.cancel()
    }
}

impl<T> State<T> {
    fn cancel(&self) -> bool {
        // A forked child has neither the threads nor the compiler, and a lock may have been held at the fork.
        if !self.process.is_this() {
            return false;
        }
        let first = self.end(Err(Error::Cancelled));
        self.cancellation.cancel();
        first
    }

    /// Sets the result; `false` if there is one.
    fn end(&self, result: Result<T>) -> bool {
        let waker = {
            let mut progress = self.progress.lock();
            if progress.result.is_some() {
                return false;
            }
            progress.result = Some(result);
            progress.waker.take()
        };
        self.ended.notify_all();
        // The user's code; a panic of it ends here.
        let _panicked = catch_unwind(AssertUnwindSafe(|| waker.map(Waker::wake)));
        true
    }
}

impl<T: Clone + Send + 'static> Future for Compilation<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut progress = self.state.progress.lock();
        if let Some(result) = &progress.result {
            return Poll::Ready(result.clone());
        }
        let earlier = progress.waker.replace(context.waker().clone());
        drop(progress);
        drop(earlier); // the user's code
        Poll::Pending
    }
}

impl<T> Drop for Compilation<T> {
    fn drop(&mut self) {
        self.state.cancel();
    }
}

impl<T> fmt::Debug for Compilation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_done = self.state.process.is_this() && self.state.progress.lock().result.is_some();
        f.debug_struct("Compilation").field("is_done", &is_done).finish_non_exhaustive()
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Threads {
    jobs: Mutex<Jobs>,
    added: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static THREADS: PerProcess<Threads> = PerProcess::new(Threads::default);

fn run_in_background(job: Job) {
    let threads = THREADS.get();
    let mut jobs = threads.jobs.lock();
    jobs.waiting.push_back(job);
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    if jobs.waiting.len() > jobs.idle && jobs.threads < most {
        jobs.threads += 1;
        drop(jobs);
        let started = std::thread::Builder::new().name("elinvar-compile".into()).spawn(|| threads.work());
        if let Err(error) = started {
            tracing::debug!("cannot start a thread that compiles: {error}");
            threads.jobs.lock().threads -= 1;
            threads.work_here();
        }
        return;
    }
    drop(jobs);
    threads.added.notify_one();
}

impl Threads {
    fn work(&self) {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                drop(jobs);
                job();
                jobs = self.jobs.lock();
                continue;
            }
            jobs.idle += 1;
            let waited = self.added.wait_for(&mut jobs, IDLE);
            jobs.idle -= 1;
            if waited.timed_out() && jobs.waiting.is_empty() {
                jobs.threads -= 1;
                return;
            }
        }
    }

    /// Without a thread, the caller compiles, unless others will.
    fn work_here(&self) {
        loop {
            let job = {
                let mut jobs = self.jobs.lock();
                if jobs.threads > 0 { None } else { jobs.waiting.pop_front() }
            };
            let Some(job) = job else { return };
            job();
        }
    }
}
