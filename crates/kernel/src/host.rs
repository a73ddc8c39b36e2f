//! Runs kernels on the host, as an oracle for tests.
//!
//! [`run`] calls a function for each thread of a grid in order. [`run_groups`] gives each thread of a threadgroup a thread of the operating
//! system. One of them runs at a time, in the order of their index, until it ends or waits: at a barrier for all threads of the
//! threadgroup that have not ended, in a simdgroup function for those of its simdgroup. So results do not depend on timing.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads of a simdgroup.
pub const SIMDGROUP: u32 = 32;

/// Position of a thread, and sizes of its grid.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // Metal's names
pub struct Thread {
    pub thread_position_in_grid: [u32; 3],
    pub thread_position_in_threadgroup: [u32; 3],
    pub thread_index_in_threadgroup: [u32; 3],
    pub threadgroup_position_in_grid: [u32; 3],
    pub threads_per_grid: [u32; 3],
    pub threads_per_threadgroup: [u32; 3],
    pub threadgroups_per_grid: [u32; 3],
    pub thread_index_in_simdgroup: [u32; 3],
    pub simdgroup_index_in_threadgroup: [u32; 3],
    pub simdgroups_per_threadgroup: [u32; 3],
    pub threads_per_simdgroup: [u32; 3],
}

/// The threads of one threadgroup in order; at the edges of the grid there are fewer.
fn threads_of(grid: [u32; 3], group: [u32; 3], position: [u32; 3]) -> Vec<Thread> {
    let groups: [u32; 3] = std::array::from_fn(|d| grid[d].div_ceil(group[d]));
    let size: [u32; 3] = std::array::from_fn(|d| group[d].min(grid[d] - position[d] * group[d]));
    let volume = size.iter().product::<u32>();
    (0..volume)
        .map(|index| {
            let local = [index % size[0], index / size[0] % size[1], index / size[0] / size[1]];
            Thread {
                thread_position_in_grid: std::array::from_fn(|d| position[d] * group[d] + local[d]),
                thread_position_in_threadgroup: local,
                thread_index_in_threadgroup: [index, 0, 0],
                threadgroup_position_in_grid: position,
                threads_per_grid: grid,
                threads_per_threadgroup: size,
                threadgroups_per_grid: groups,
                thread_index_in_simdgroup: [index % SIMDGROUP, 0, 0],
                simdgroup_index_in_threadgroup: [index / SIMDGROUP, 0, 0],
                simdgroups_per_threadgroup: [volume.div_ceil(SIMDGROUP), 0, 0],
                threads_per_simdgroup: [SIMDGROUP, 0, 0],
            }
        })
        .collect()
}

fn positions(grid: [u32; 3], group: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    let groups: [u32; 3] = std::array::from_fn(|d| grid[d].div_ceil(group[d].max(1)));
    let volume = groups.iter().map(|count| u64::from(*count)).product::<u64>();
    (0..volume).map(move |index| {
        let (x, y) = (u64::from(groups[0]), u64::from(groups[1]));
        [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
    })
}

/// Calls `thread` for each thread of a grid, in the order of threadgroups and of threads in them.
pub fn run(grid: [u32; 3], group: [u32; 3], mut thread: impl FnMut(&Thread)) {
    for position in positions(grid, group) {
        threads_of(grid, group, position).iter().for_each(&mut thread);
    }
}

/// Calls `thread` for each thread of each threadgroup, as described for the module. `shared` makes what the threads of a threadgroup share.
///
/// # Panics
/// If a thread panics, with its message; if threads wait for others that wait elsewhere.
pub fn run_groups<S: Sync>(
    grid: [u32; 3],
    group: [u32; 3],
    mut shared: impl FnMut() -> S,
    thread: impl Fn(&Thread, &S) + Sync,
) {
    for position in positions(grid, group) {
        let threads = threads_of(grid, group, position);
        let shared = shared();
        let group = Arc::new(Group::new(threads.len()));
        std::thread::scope(|scope| {
            for (index, one) in threads.iter().enumerate() {
                let (own, shared, thread) = (group.clone(), &shared, &thread);
                let spawned =
                    std::thread::Builder::new().stack_size(512 << 10).spawn_scoped(scope, move || {
                        CURRENT.set(Some((own.clone(), index)));
                        let result = catch_unwind(AssertUnwindSafe(|| {
                            own.begin(index);
                            thread(one, shared);
                        }));
                        CURRENT.set(None);
                        own.end(index, result.err());
                    });
                if let Err(error) = spawned {
                    group.end(index, Some(Box::new(format!("a thread of the threadgroup: {error}"))));
                }
            }
        });
        let panic = group.state().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<(Arc<Group>, usize)>> = const { RefCell::new(None) };
}

/// The running thread's group, and its index.
///
/// # Panics
/// Outside of [`run_groups`].
pub(crate) fn current(what: &str) -> (Arc<Group>, usize) {
    match CURRENT.with_borrow(Clone::clone) {
        Some(current) => current,
        None => panic!("`{what}` outside of a kernel's `host`, which runs the threads that it waits for"),
    }
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Runnable,
    /// Waits at a barrier of the threadgroup.
    Barrier,
    /// Waits in a simdgroup function.
    Simdgroup,
    Ended,
}

struct State {
    doing: Vec<Doing>,
    running: usize,
    /// What threads give to the others of their simdgroup; what those gave in the last exchange.
    given: Vec<Option<u64>>,
    taken: Vec<Arc<[Option<u64>]>>,
    panic: Option<Box<dyn Any + Send>>,
}

/// The threads of a threadgroup.
pub(crate) struct Group {
    state: Mutex<State>,
    turns: Vec<Condvar>,
}

/// The payload of threads that end because another has panicked.
struct Stopped;

impl Group {
    fn new(count: usize) -> Self {
        let simdgroups = count.div_ceil(SIMDGROUP as usize);
        let state = State {
            doing: vec![Doing::Runnable; count],
            running: 0,
            given: vec![None; count],
            taken: vec![Arc::from([]); simdgroups],
            panic: None,
        };
        Self { state: Mutex::new(state), turns: (0..count).map(|_| Condvar::new()).collect() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is the thread's turn.
    fn turn(&self, index: usize, mut state: MutexGuard<'_, State>) {
        while state.running != index && state.panic.is_none() {
            state = self.turns[index].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.panic.is_some() {
            drop(state);
            resume_unwind(Box::new(Stopped));
        }
    }

    fn begin(&self, index: usize) {
        let state = self.state();
        self.turn(index, state);
    }

    fn end(&self, index: usize, panic: Option<Box<dyn Any + Send>>) {
        let mut state = self.state();
        state.doing[index] = Doing::Ended;
        match panic {
            Some(panic) if !panic.is::<Stopped>() => {
                state.panic.get_or_insert(panic);
            }
            _ => {}
        }
        if state.panic.is_some() {
            self.turns.iter().for_each(Condvar::notify_all);
        } else if state.running == index {
            self.next(&mut state, index);
        }
    }

    fn wait(&self, index: usize, doing: Doing) {
        let mut state = self.state();
        state.doing[index] = doing;
        self.next(&mut state, index);
        self.turn(index, state);
    }

    /// Passes the turn to the next thread that can run.
    fn next(&self, state: &mut State, from: usize) {
        self.release(state, from);
        let count = state.doing.len();
        let next =
            (1..=count).map(|step| (from + step) % count).find(|at| state.doing[*at] == Doing::Runnable);
        match next {
            Some(next) => {
                state.running = next;
                self.turns[next].notify_all();
            }
            None if state.doing.iter().all(|doing| *doing == Doing::Ended) => {}
            None => {
                state.panic = Some(Box::new(
                    "threads wait at a barrier for others that wait in a simdgroup function, or the other way round".to_owned(),
                ));
                self.turns.iter().for_each(Condvar::notify_all);
            }
        }
    }

    /// Lets threads go on whose wait has ended.
    fn release(&self, state: &mut State, from: usize) {
        let width = SIMDGROUP as usize;
        let first = from / width * width;
        let lanes = first..(first + width).min(state.doing.len());
        let waits = |doing: &[Doing], what| {
            doing.contains(&what) && doing.iter().all(|doing| [what, Doing::Ended].contains(doing))
        };
        if waits(&state.doing[lanes.clone()], Doing::Simdgroup) {
            state.taken[from / width] = state.given[lanes.clone()].into();
            for lane in lanes {
                state.given[lane] = None;
                if state.doing[lane] == Doing::Simdgroup {
                    state.doing[lane] = Doing::Runnable;
                }
            }
        }
        if waits(&state.doing, Doing::Barrier) {
            for doing in &mut state.doing {
                if *doing == Doing::Barrier {
                    *doing = Doing::Runnable;
                }
            }
        }
    }

    /// Waits for all threads that have not ended.
    pub(crate) fn barrier(&self, index: usize) {
        self.wait(index, Doing::Barrier);
    }

    /// Gives a value to the threads of the simdgroup, and returns theirs; `None` for those that have ended.
    pub(crate) fn exchange(&self, index: usize, value: u64) -> Arc<[Option<u64>]> {
        self.state().given[index] = Some(value);
        self.wait(index, Doing::Simdgroup);
        self.state().taken[index / SIMDGROUP as usize].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Shared, mem_flags, simd_sum, threadgroup_barrier};

    #[test]
    fn barriers_order_threads() {
        let mut out = vec![0u32; 100];
        let shared_out = Shared::new(&mut out[..]);
        run_groups(
            [100, 1, 1],
            [40, 1, 1],
            || std::sync::Mutex::new(vec![0u32; 40]),
            |thread, tile| {
                let mut out = shared_out;
                let [local, ..] = thread.thread_index_in_threadgroup;
                let [grid, ..] = thread.thread_position_in_grid;
                let count = thread.threads_per_threadgroup[0];
                tile.lock().expect("not poisoned")[local as usize] = grid;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                out[grid as usize] = tile.lock().expect("not poisoned")[(count - 1 - local) as usize];
            },
        );
        let expected: Vec<u32> = (0..40).rev().chain((40..80).rev()).chain((80..100).rev()).collect();
        assert_eq!(out, expected);
    }

    #[test]
    fn a_panic_of_one_thread_ends_all() {
        let panic = catch_unwind(|| {
            run_groups(
                [64, 1, 1],
                [64, 1, 1],
                || (),
                |thread, ()| {
                    assert!(thread.thread_index_in_threadgroup[0] != 5, "thread five");
                    threadgroup_barrier(mem_flags::mem_none);
                },
            );
        });
        let panic = panic.expect_err("thread 5 panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"thread five"));
    }

    #[test]
    fn simdgroups_exchange_values_of_threads_that_have_not_ended() {
        let sums = Mutex::new(vec![0u32; 40]);
        run_groups(
            [40, 1, 1],
            [40, 1, 1],
            || (),
            |thread, ()| {
                let [index, ..] = thread.thread_index_in_threadgroup;
                if index == 3 {
                    return;
                }
                let sum = simd_sum(index);
                sums.lock().expect("not poisoned")[index as usize] = sum;
            },
        );
        let sums = sums.into_inner().expect("not poisoned");
        for (index, sum) in sums.iter().enumerate() {
            let expected = match index {
                3 => 0,
                0..32 => (0..32).sum::<u32>() - 3,
                _ => (32..40).sum(),
            };
            assert_eq!(*sum, expected, "thread {index}");
        }
    }
}
