//! [`Watch`]: which rank keeps the others waiting. MPI does not tell.
//!
//! Each process has a thread that answers, on a communicator of its own, how many collectives this rank has begun, whatever the rank's other threads do. When an operation
//! makes no progress in time, its rank asks all others: one that does not answer does not run, and one that has begun fewer collectives is late.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::library::{Loaded, Object, calling};

/// Interval at which questions are answered.
const INTERVAL: Duration = Duration::from_millis(10);
/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(1);
const TAG: i32 = 7;

/// Whether it is a question, the sender's rank, and the number of collectives that it has begun.
type Message = [u64; 3];

pub(super) struct Watch {
    shared: Arc<Shared>,
}

struct Shared {
    loaded: Arc<Loaded>,
    comm: usize,
    rank: u32,
    begun: AtomicU64,
    /// The answers, by rank.
    heard: Mutex<Vec<Option<u64>>>,
    has_ended: AtomicBool,
}

impl Watch {
    /// Of a rank, over a communicator that nothing else uses.
    pub(super) fn new(loaded: Arc<Loaded>, comm: usize, rank: u32, size: u32) -> std::io::Result<Self> {
        let heard = Mutex::new(vec![None; size as usize]);
        let (begun, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { loaded, comm, rank, begun, heard, has_ended });
        if size > 1 {
            let of_thread = shared.clone();
            let answer = move || {
                while !of_thread.has_ended.load(Ordering::Relaxed) && of_thread.answer() {
                    std::thread::sleep(INTERVAL);
                }
            };
            std::thread::Builder::new().name("elinvar-mpi".into()).spawn(answer)?;
        }
        Ok(Self { shared })
    }

    /// Notes that this rank begins a collective.
    pub(super) fn begin(&self) {
        self.shared.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// The rank for which the others wait, and why; `None` if all have begun the collective.
    pub(super) fn late(&self) -> Option<(u32, &'static str)> {
        let shared = &*self.shared;
        let heard = || shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let size = heard().len() as u32;
        heard().fill(None);
        let others = || (0..size).filter(|rank| *rank != shared.rank);
        let own = shared.begun.load(Ordering::Relaxed);
        others().for_each(|rank| shared.send([1, u64::from(shared.rank), own], rank));
        let begin = Instant::now();
        while begin.elapsed() < ANSWER && others().any(|rank| heard()[rank as usize].is_none()) {
            std::thread::sleep(INTERVAL);
        }
        let heard = heard();
        let silent = others().find(|rank| heard[*rank as usize].is_none());
        let behind = others().filter(|rank| heard[*rank as usize].is_some_and(|begun| begun < own));
        let last = behind.min_by_key(|rank| heard[*rank as usize]);
        silent
            .map(|rank| (rank, "it does not answer"))
            .or(last.map(|rank| (rank, "it has not begun the collective")))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// Takes all messages that have come, and answers questions. Returns whether the library is still there.
    #[allow(unsafe_code)] // C functions
    fn answer(&self) -> bool {
        let (mpi, abi) = (&self.loaded.functions, self.loaded.abi);
        let comm = || ptr::with_exposed_provenance_mut(self.comm);
        let Ok(byte) = self.loaded.handle(Object::Byte) else { return false };
        loop {
            let mut message: Message = [0; 3];
            {
                let Some(_call) = calling() else { return false };
                let mut has_come = 0;
                // SAFETY: it writes a number.
                let code = unsafe {
                    (mpi.probe)(abi.any_source(), TAG, comm(), &mut has_come, abi.ignored_status())
                };
                if code != 0 || has_come == 0 {
                    return code == 0;
                }
                let (bytes, len) = (message.as_mut_ptr().cast::<c_void>(), size_of::<Message>() as i32);
                // SAFETY: it writes at most these bytes; the message is there, and no other thread takes it.
                let code = unsafe {
                    (mpi.take)(bytes, len, byte, abi.any_source(), TAG, comm(), abi.ignored_status())
                };
                if code != 0 {
                    return false;
                }
            }
            let [is_question, rank, begun] = message;
            if is_question == 1 {
                self.send([0, u64::from(self.rank), self.begun.load(Ordering::Relaxed)], rank as u32);
            }
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = heard.get_mut(rank as usize) {
                *known = Some(begun);
            }
        }
    }

    /// Sends a message, whatever becomes of it.
    #[allow(unsafe_code)] // C functions
    fn send(&self, message: Message, rank: u32) {
        let mpi = &self.loaded.functions;
        let Ok(byte) = self.loaded.handle(Object::Byte) else { return };
        // MPI may read it until the process ends; there are few, all behind a failure.
        let bytes = Box::leak(Box::new(message)).as_mut_ptr().cast::<c_void>();
        let mut request = ptr::null_mut();
        let Some(_call) = calling() else { return };
        let comm = ptr::with_exposed_provenance_mut(self.comm);
        // SAFETY: the message stays where it is. A request that is freed ends by itself.
        unsafe {
            if (mpi.send)(bytes, size_of::<Message>() as i32, byte, rank as i32, TAG, comm, &mut request) == 0
            {
                (mpi.free_request)(&mut request);
            }
        }
    }
}
