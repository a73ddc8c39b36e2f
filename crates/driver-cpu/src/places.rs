//! [`Places`]: the processors on which workers are busy, so that a worker that is woken starts on another one.
//!
//! Linux starts a woken thread on an idle processor, or else on that of the thread that wakes it. In a virtual machine, a processor that has
//! halted may be taken for one that the hypervisor has preempted, which does not count as idle (`available_idle_cpu` and `vcpu_is_preempted` of
//! the kernel). Then a worker and the helper that it wakes take turns on one processor, and the other one is idle until the scheduler balances
//! the load, milliseconds later.
//!
//! Therefore, a thread that wakes a sleeping worker first excludes the processors of busy workers from its affinity. The worker restores its
//! affinity when it runs, so the scheduler may move it as any other thread.

use std::sync::atomic::{AtomicU32, Ordering};

use elinvar_driver::sync::Mutex;

use crate::host;

/// No thread, or no processor.
const NONE: u32 = u32::MAX;

/// The threads of workers, by index, and the processors on which they are busy.
#[derive(Default)]
pub(crate) struct Places(Box<[Place]>);

struct Place {
    /// The system's number of the thread; `NONE` before it has started.
    thread: AtomicU32,
    /// A hint: the thread may have been moved since.
    busy_on: AtomicU32,
    /// The thread's affinity before it was restricted.
    before: Mutex<Option<Affinity>>,
}

impl Places {
    pub(crate) fn new(count: usize) -> Self {
        let none = || AtomicU32::new(NONE);
        Self(
            (0..count).map(|_| Place { thread: none(), busy_on: none(), before: Mutex::default() }).collect(),
        )
    }

    /// The calling thread has this index.
    pub(crate) fn enter(&self, index: usize) {
        self.0[index].thread.store(host::thread_number().unwrap_or(NONE), Ordering::Relaxed);
    }

    /// The system's numbers of the first `count` threads, where it has some.
    pub(crate) fn threads(&self, count: usize) -> Vec<Option<u32>> {
        let number =
            |place: &Place| Some(place.thread.load(Ordering::Relaxed)).filter(|thread| *thread != NONE);
        self.0.iter().take(count).map(number).collect()
    }

    /// The calling thread is busy, where it runs now. Restores its affinity.
    pub(crate) fn occupy(&self, index: usize) {
        let before = self.0[index].before.lock().take();
        if let Some(affinity) = before {
            affinity.apply(0);
        }
        self.0[index].busy_on.store(this_processor().unwrap_or(NONE), Ordering::Relaxed);
    }

    /// The calling thread is no longer busy.
    pub(crate) fn vacate(&self, index: usize) {
        self.0[index].busy_on.store(NONE, Ordering::Relaxed);
    }

    /// Lets a sleeping thread, which is about to be woken, start apart from those that are busy. Without effect if no other processor is left.
    pub(crate) fn keep_apart(&self, index: usize) {
        let Place { thread, before, .. } = &self.0[index];
        let (thread, mut before) = (thread.load(Ordering::Relaxed), before.lock());
        if thread == NONE {
            return;
        }
        // It may have been woken in vain since it was restricted.
        let Some(affinity) = before.or_else(|| Affinity::of(thread)) else { return };
        let busy = self.0.iter().map(|place| place.busy_on.load(Ordering::Relaxed));
        let apart = busy.filter(|cpu| *cpu != NONE).fold(affinity, Affinity::without);
        let is_restricted = (1..affinity.count()).contains(&apart.count());
        let wanted = if is_restricted { apart } else { affinity };
        if (is_restricted || before.is_some()) && wanted.apply(thread) {
            *before = Some(affinity);
        }
    }
}

/// The processors on which a thread may run.
#[derive(Clone, Copy)]
pub(crate) struct Affinity(#[cfg(target_os = "linux")] libc::cpu_set_t);

#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // C functions
impl Affinity {
    pub(crate) fn new(cpus: &[u32]) -> Self {
        // SAFETY: a set of bits, for which zero is valid.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as u32) {
            // SAFETY: the number is below the set's size.
            unsafe { libc::CPU_SET(*cpu as usize, &mut set) };
        }
        Self(set)
    }

    /// That of a thread by its number; 0 is the calling thread.
    pub(crate) fn of(thread: u32) -> Option<Self> {
        let Self(mut set) = Self::new(&[]);
        // SAFETY: it writes at most the set's size.
        let read = unsafe { libc::sched_getaffinity(thread.cast_signed(), size_of_val(&set), &mut set) };
        (read == 0).then_some(Self(set))
    }

    /// Gives it to a thread; 0 is the calling thread. Returns whether the system has accepted it.
    pub(crate) fn apply(self, thread: u32) -> bool {
        // SAFETY: it reads the set.
        unsafe { libc::sched_setaffinity(thread.cast_signed(), size_of_val(&self.0), &self.0) == 0 }
    }

    pub(crate) fn cpus(self) -> Vec<u32> {
        // SAFETY: the numbers are below the set's size.
        (0..libc::CPU_SETSIZE as u32)
            .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu as usize, &self.0) })
            .collect()
    }

    fn without(mut self, cpu: u32) -> Self {
        if cpu < libc::CPU_SETSIZE as u32 {
            // SAFETY: the number is below the set's size.
            unsafe { libc::CPU_CLR(cpu as usize, &mut self.0) };
        }
        self
    }

    fn count(self) -> i32 {
        // SAFETY: it reads the set.
        unsafe { libc::CPU_COUNT(&self.0) }
    }
}

#[cfg(not(target_os = "linux"))]
impl Affinity {
    pub(crate) fn of(_thread: u32) -> Option<Self> {
        None
    }

    fn apply(self, _thread: u32) -> bool {
        false
    }

    fn without(self, _cpu: u32) -> Self {
        self
    }

    fn count(self) -> i32 {
        0
    }
}

/// The processor on which the calling thread runs.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // a C function
fn this_processor() -> Option<u32> {
    // SAFETY: returns a number, and accesses no memory.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

#[cfg(not(target_os = "linux"))]
fn this_processor() -> Option<u32> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    /// A thread that sleeps is woken apart from a busy one, and may run anywhere afterwards.
    #[test]
    fn a_woken_thread_starts_apart() {
        let all = Affinity::of(0).unwrap();
        if all.cpus().len() < 2 {
            return;
        }
        let places = Arc::new(Places::new(2));
        let (wake, woken) = channel::<()>();
        let (sender, states) = channel();
        let thread = std::thread::spawn({
            let places = places.clone();
            move || {
                places.enter(1);
                sender.send((Affinity::of(0).unwrap().cpus(), this_processor())).unwrap();
                woken.recv().unwrap();
                sender.send((Affinity::of(0).unwrap().cpus(), this_processor())).unwrap();
                places.occupy(1);
                sender.send((Affinity::of(0).unwrap().cpus(), None)).unwrap();
            }
        });
        assert_eq!(states.recv().unwrap().0, all.cpus());
        places.occupy(0);
        let busy_on = places.0[0].busy_on.load(Ordering::Relaxed);
        places.keep_apart(1);
        wake.send(()).unwrap();
        let (restricted, processor) = states.recv().unwrap();
        assert_eq!(restricted, all.without(busy_on).cpus());
        assert_ne!(processor, Some(busy_on));
        assert_eq!(states.recv().unwrap().0, all.cpus());
        thread.join().unwrap();
        // Nobody is busy: nothing is restricted.
        places.vacate(0);
        places.vacate(1);
        places.enter(1);
        places.keep_apart(1);
        assert_eq!(Affinity::of(0).unwrap().cpus(), all.cpus());
    }

    /// One processor is left to it: it is not taken away.
    #[test]
    fn a_thread_with_one_processor_keeps_it() {
        std::thread::spawn(|| {
            let places = Places::new(2);
            let own = Affinity::new(&Affinity::of(0).unwrap().cpus()[..1]);
            assert!(own.apply(0));
            places.enter(1);
            places.occupy(0);
            places.keep_apart(1);
            assert_eq!(Affinity::of(0).unwrap().cpus(), own.cpus());
        })
        .join()
        .unwrap();
    }
}
