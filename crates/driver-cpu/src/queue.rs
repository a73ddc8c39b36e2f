//! The CPU backend of the [submission core](elinvar_driver::submission): commands execute synchronously, on the worker that has the queue's
//! turn.

use std::sync::Arc;

use elinvar_driver::submission::{Backend, Deferred, Issue, Issued, QueueHandle, SubmissionQueue};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, Priority, ResidentThreads, Result};

use crate::job::worker_panicked;
use crate::pool::{Pool, STACK_BYTES, Task, Worker};
use crate::stop::Stop;
use crate::{crash, encode, host};

/// Number of stop flags that a queue keeps for reuse.
const SPARE: usize = 16;

pub(crate) type CpuQueue = QueueHandle<CpuBackend>;

pub(crate) struct CpuBackend {
    pool: Arc<Pool>,
    priority: Priority,
    /// Unused stop flags, of submissions that have ended.
    spare: Mutex<Vec<Arc<Stop>>>,
    /// For a queue of resident kernels, which has threads of its own.
    resident: Option<ResidentThreads>,
}

impl CpuBackend {
    pub(crate) fn new(pool: Arc<Pool>, priority: Priority) -> Self {
        Self { pool, priority, spare: Mutex::default(), resident: None }
    }

    pub(crate) fn resident(pool: Arc<Pool>, threads: ResidentThreads) -> Self {
        Self { resident: Some(threads), ..Self::new(pool, Priority::Normal) }
    }

    /// Runs a turn of a queue of resident kernels on a new thread.
    fn run_apart(
        &self,
        queue: &Arc<SubmissionQueue<Self>>,
        threads: &ResidentThreads,
    ) -> std::io::Result<()> {
        let mut worker = self.pool.guest();
        worker.resident = Some(threads.clone());
        let queue = queue.clone();
        let run = move || {
            let _thread = crash::Thread::enter(STACK_BYTES);
            queue.turn(&mut worker);
        };
        let thread = std::thread::Builder::new().name("elinvar-resident".into()).stack_size(STACK_BYTES);
        thread.spawn(run).map(drop)
    }

    /// Runs a queue's turn on a guest's thread, unless tasks of the pool come first.
    pub(crate) fn run_on(queue: Arc<SubmissionQueue<Self>>, guest: &mut Worker) {
        let backend = queue.clone();
        let Self { pool, priority, .. } = backend.backend();
        if let Some(task) = guest.invite(queue) {
            pool.push_with(*priority, task);
        }
    }
}

#[allow(unsafe_code)] // promises what the trait asks for
// SAFETY: `begin` returns after all workers have left the commands.
unsafe impl Backend for CpuBackend {
    type Thread = Worker;
    type Work = Arc<Stop>;
    /// Nothing is in flight between calls of `begin`.
    type Fence = std::convert::Infallible;

    fn work(&self) -> Arc<Stop> {
        self.spare.lock().pop().unwrap_or_default()
    }

    fn recycle(&self, mut stop: Arc<Stop>) {
        if Arc::get_mut(&mut stop).is_some_and(|stop| stop.check().is_ok()) {
            let mut spare = self.spare.lock();
            if spare.len() < SPARE {
                spare.push(stop);
            }
        }
    }

    fn expect_here(&self, what: &str) -> Result<()> {
        self.pool.expect_here(what)
    }

    fn begin(&self, issue: &mut Issue<'_, Self>, worker: &mut Worker) -> Result<Issued> {
        let start_ns = host::now_ns();
        let stop = issue.with_work(|stop| stop.clone()).unwrap_or_default();
        // Timestamps among them take effect at once, since all earlier commands have been executed.
        let commands = issue.run_with_timestamps();
        encode::run(commands, &stop, worker)?;
        Ok(Issued::Executed { next: issue.next() + commands.len(), start_ns, end_ns: host::now_ns() })
    }

    fn panicked(&self, message: &str) -> Error {
        worker_panicked(message)
    }

    fn schedule(&self, queue: Arc<SubmissionQueue<Self>>) {
        if let Some(threads) = &self.resident
            && self.run_apart(&queue, threads).is_ok()
        {
            return;
        }
        // On the pool's threads `begin` refuses resident kernels.
        self.pool.push_with(self.priority, queue);
    }

    fn yields(&self, worker: &Worker) -> bool {
        worker.tasks_wait()
    }

    fn now_ns(&self) -> u64 {
        host::now_ns()
    }

    fn stop(
        &self,
        stop: &Arc<Stop>,
        _fences: &mut dyn Iterator<Item = &Self::Fence>,
        cause: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>> {
        stop.set(cause.clone());
        if let Some(threads) = &self.resident {
            threads.doorbell.ring();
        }
        Ok(None)
    }
}

impl Task for SubmissionQueue<CpuBackend> {
    fn run(self: Arc<Self>, worker: &mut Worker) {
        self.turn(worker);
    }
}
