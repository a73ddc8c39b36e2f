//! [`BySize`]: a kernel's code for the threadgroup sizes and the bounds of buffers that it was launched with, unoptimized and optimized.
//!
//! Code for a size is built once, by the first thread that prepares it. Code that is not optimized is replaced when the background thread has built
//! optimized code. Launches that are running keep the code that they began with.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use elinvar_driver::sync::{Mutex, OnceLock, RwLock};
use elinvar_driver::{Dim3, Result};
use elinvar_spmd::SizeBound;

use crate::background;

/// Code for a size, and its tier.
pub struct Made<C> {
    /// The code.
    pub code: C,
    /// Whether it is optimized.
    pub optimized: bool,
    /// Whether it is to be replaced by optimized code.
    pub optimizable: bool,
}

/// Threadgroup size and bound of buffers.
type Size = (Dim3, SizeBound);

/// Builds code for a size; the optimized code, if the second parameter is true.
type Build<C> = Box<dyn Fn(Size, bool) -> Result<Made<C>> + Send + Sync>;

/// A kernel's code by threadgroup size.
pub struct BySize<C>(Arc<Shared<C>>);

struct Shared<C> {
    build: Build<C>,
    /// The size that was prepared first, which most kernels use alone. Read without a lock.
    first: OnceLock<(Size, Arc<Slot<C>>)>,
    /// All prepared sizes.
    ready: RwLock<HashMap<Size, Arc<Slot<C>>>>,
    /// Per size, a lock that the thread that builds it holds.
    building: Mutex<HashMap<Size, Arc<Mutex<()>>>>,
}

/// The code for one size.
struct Slot<C> {
    made: Made<Arc<C>>,
    /// What replaces it.
    optimized: OnceLock<Made<Arc<C>>>,
}

impl<C> Slot<C> {
    fn newest(&self) -> &Made<Arc<C>> {
        self.optimized.get().unwrap_or(&self.made)
    }
}

impl<C: Send + Sync + 'static> BySize<C> {
    /// No code. `build` makes it for a threadgroup size and a bound of buffers: the optimized code if its third parameter is true, otherwise
    /// that of the kernel's tier.
    pub fn new(build: impl Fn(Dim3, SizeBound, bool) -> Result<Made<C>> + Send + Sync + 'static) -> Self {
        let build = move |(group, objects): Size, optimize| build(group, objects, optimize);
        let (first, ready, building) = (OnceLock::new(), RwLock::default(), Mutex::default());
        Self(Arc::new(Shared { build: Box::new(build), first, ready, building }))
    }

    /// The code for a size, if it has been prepared: the optimized code as soon as it is there.
    pub fn get(&self, group: Dim3, objects: SizeBound) -> Option<Arc<C>> {
        let size = (group, objects);
        match self.0.first.get() {
            Some((first, slot)) if *first == size => Some(slot.newest().code.clone()),
            _ => self.0.ready.read().get(&size).map(|slot| slot.newest().code.clone()),
        }
    }

    /// Whether all code for a threadgroup size is optimized; `None` if none has been prepared.
    pub fn is_optimized(&self, group: Dim3) -> Option<bool> {
        let ready = self.0.ready.read();
        let mut all = ready.iter().filter(|((of, _), _)| *of == group).peekable();
        all.peek()?;
        Some(all.all(|(_, slot)| slot.newest().optimized))
    }

    /// Builds the code for a size, unless there is some.
    ///
    /// # Errors
    /// Those of `build`. The next call tries again.
    pub fn prepare(&self, group: Dim3, objects: SizeBound) -> Result<()> {
        match self.get(group, objects) {
            Some(_) => Ok(()),
            None => self.0.prepare((group, objects), true),
        }
    }

    /// Builds optimized code for a threadgroup size and all bounds that have been prepared, or the default one, or waits until the background
    /// thread has.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn optimize(&self, group: Dim3) -> Result<()> {
        let known: Vec<Size> = self.0.ready.read().keys().copied().filter(|(of, _)| *of == group).collect();
        if known.is_empty() {
            self.0.prepare((group, SizeBound::DEFAULT), false)?;
            return self.0.optimize((group, SizeBound::DEFAULT));
        }
        known.into_iter().try_for_each(|size| self.0.optimize(size))
    }
}

impl<C: Send + Sync + 'static> Shared<C> {
    /// Whether code that can be optimized is, `in_background`.
    fn prepare(self: &Arc<Self>, size: Size, in_background: bool) -> Result<()> {
        let turn = self.turn(size);
        let _mine = turn.lock();
        if self.ready.read().contains_key(&size) {
            return Ok(());
        }
        let Made { code, optimized, optimizable } = (self.build)(size, false)?;
        let made = Made { code: Arc::new(code), optimized, optimizable };
        let slot = Arc::new(Slot { made, optimized: OnceLock::new() });
        self.first.get_or_init(|| (size, slot.clone()));
        self.ready.write().insert(size, slot);
        if optimizable && in_background {
            let kernel = Arc::downgrade(self);
            background::spawn(move || optimize_later(&kernel, size));
        }
        Ok(())
    }

    /// Replaces the code for a prepared size, if it is optimizable.
    fn optimize(&self, size: Size) -> Result<()> {
        let turn = self.turn(size);
        let _mine = turn.lock();
        let slot = self.ready.read().get(&size).cloned();
        let Some(slot) = slot.filter(|slot| slot.newest().optimizable) else { return Ok(()) };
        let Made { code, optimized, optimizable: _ } = (self.build)(size, true)?;
        slot.optimized.get_or_init(|| Made { code: Arc::new(code), optimized, optimizable: false });
        Ok(())
    }

    fn turn(&self, size: Size) -> Arc<Mutex<()>> {
        self.building.lock().entry(size).or_default().clone()
    }
}

/// Optimizes a kernel that still exists.
fn optimize_later<C: Send + Sync + 'static>(kernel: &Weak<Shared<C>>, size: Size) {
    if let Some(kernel) = kernel.upgrade()
        && let Err(error) = kernel.optimize(size)
    {
        tracing::warn!("a kernel remains unoptimized: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use elinvar_driver::Error;

    use super::*;

    const SIZE: Dim3 = Dim3 { x: 32, y: 2, z: 1 };
    const BOUND: SizeBound = SizeBound::DEFAULT;

    fn made(code: &'static str, optimizable: bool) -> Made<&'static str> {
        Made { code, optimized: code == "optimized", optimizable }
    }

    #[test]
    fn threads_that_prepare_the_same_size_build_it_once() {
        let builds = Arc::new(AtomicUsize::new(0));
        let count = builds.clone();
        let code = BySize::new(move |_, _, _| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(made("optimized", false))
        });
        assert!(code.get(SIZE, BOUND).is_none() && code.is_optimized(SIZE).is_none());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| code.prepare(SIZE, BOUND).unwrap());
            }
        });
        assert_eq!(builds.load(Ordering::Relaxed), 1);
        assert_eq!((*code.get(SIZE, BOUND).unwrap(), code.is_optimized(SIZE)), ("optimized", Some(true)));
        assert!(code.get(Dim3::from(64), BOUND).is_none());
        code.optimize(SIZE).unwrap();
        assert_eq!(builds.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_failed_build_is_tried_again() {
        let tries = AtomicUsize::new(0);
        let code = BySize::new(move |_, _, _| match tries.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Error::Environment("first".into())),
            _ => Ok(made("optimized", false)),
        });
        assert_eq!(code.prepare(SIZE, BOUND).unwrap_err().to_string(), "first");
        code.prepare(SIZE, BOUND).unwrap();
    }

    #[test]
    fn optimized_code_replaces_the_other_when_it_is_ready() {
        let (allow, allowed) = channel();
        let allowed = Mutex::new(allowed);
        let code = BySize::new(move |_, _, optimize| {
            if !optimize {
                return Ok(made("quick", true));
            }
            allowed.lock().recv().unwrap();
            Ok(made("optimized", false))
        });
        for size in [SIZE, Dim3::from(8)] {
            code.prepare(size, BOUND).unwrap();
            code.prepare(size, BOUND).unwrap();
            let running = code.get(size, BOUND).unwrap();
            assert_eq!((*running, code.is_optimized(size)), ("quick", Some(false)));
            allow.send(()).unwrap();
            code.optimize(size).unwrap();
            assert_eq!((*code.get(size, BOUND).unwrap(), code.is_optimized(size)), ("optimized", Some(true)));
            assert_eq!(*running, "quick");
        }
    }

    #[test]
    fn all_bounds_of_a_size_are_optimized() {
        let code = BySize::new(move |_, _, optimize| {
            Ok(made(if optimize { "optimized" } else { "quick" }, !optimize))
        });
        let large = SizeBound::of(u64::MAX);
        code.prepare(SIZE, large).unwrap();
        code.optimize(SIZE).unwrap();
        assert_eq!((*code.get(SIZE, large).unwrap(), code.is_optimized(SIZE)), ("optimized", Some(true)));
        assert!(code.get(SIZE, BOUND).is_none());
    }

    #[test]
    fn optimization_that_fails_leaves_the_code_and_is_an_error_for_who_waits() {
        let (reached, started) = channel();
        let code = BySize::new(move |_, _, optimize| match optimize {
            false => Ok(made("quick", true)),
            true => {
                reached.send(()).ok();
                Err(Error::Environment("no clang".into()))
            }
        });
        code.prepare(SIZE, BOUND).unwrap();
        started.recv().unwrap();
        assert_eq!(code.optimize(SIZE).unwrap_err().to_string(), "no clang");
        assert_eq!((*code.get(SIZE, BOUND).unwrap(), code.is_optimized(SIZE)), ("quick", Some(false)));
    }

    #[test]
    fn code_that_exceeds_a_limit_is_not_optimized_again() {
        let builds = Arc::new(AtomicUsize::new(0));
        let count = builds.clone();
        let code = BySize::new(move |_, _, optimize| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(made("quick", !optimize))
        });
        code.optimize(SIZE).unwrap();
        code.optimize(SIZE).unwrap();
        assert_eq!((builds.load(Ordering::Relaxed), code.is_optimized(SIZE)), (2, Some(false)));
    }

    #[test]
    fn kernels_that_are_dropped_are_not_optimized() {
        let (send, receive) = channel();
        let (other, blocks) = channel();
        background::spawn(move || blocks.recv().unwrap());
        let code = BySize::new(move |_, _, optimize| {
            send.send(optimize).unwrap();
            Ok(made("quick", true))
        });
        code.prepare(SIZE, BOUND).unwrap();
        drop(code);
        other.send(()).unwrap();
        assert_eq!(receive.iter().collect::<Vec<_>>(), [false]);
    }
}
