//! [`BySize`]: a kernel's code for the threadgroup sizes and the bounds of buffers that it was launched with, unoptimized and optimized.
//!
//! Code is built once, by the first thread that prepares it. The first sizes have specialized code; later ones share general code, if that
//! serves them ([`Specialization`]). Code that is not optimized, and general code that has run for long with one size, is replaced when the
//! background thread has built optimized code for the size. Launches that are running keep the code that they began with.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use elinvar_driver::sync::{Mutex, OnceLock};
use elinvar_driver::{Dim3, Error, Result};
use elinvar_spmd::{RowSizes, SizeBound};

use crate::background;
use crate::specialization::Specialization;

/// Code for a size, and its tier.
pub struct Made<C> {
    /// The code.
    pub code: C,
    /// Whether it is optimized.
    pub optimized: bool,
    /// Whether it is to be replaced by optimized code.
    pub optimizable: bool,
    /// The sizes that the kernel's general code serves, if there is such code.
    pub row_sizes: Option<RowSizes>,
}

/// Threadgroup size, or `None` for general code, and bound of buffers.
type Size = (Option<Dim3>, SizeBound);

/// Builds code for a size; the optimized code, if the second parameter is true.
type Build<C> = Box<dyn Fn(Size, bool) -> Result<Made<C>> + Send + Sync>;

/// A kernel's code by threadgroup size.
pub struct BySize<C>(Arc<Shared<C>>);

struct Shared<C> {
    specialization: Specialization,
    build: Build<C>,
    /// All prepared sizes, in their order, and the general code. Read without a lock, from the start: most kernels have one size, few have many.
    ready: boxcar::Vec<(Size, Arc<Slot<C>>)>,
    /// Per size, a lock that the thread that builds it holds. A thread that holds that of a size may wait for that of the general code.
    building: Mutex<HashMap<Size, Arc<Mutex<()>>>>,
}

/// The code for one size.
struct Slot<C> {
    base: Base<C>,
    /// What replaces it.
    replacement: OnceLock<Made<Arc<C>>>,
}

/// The code with which a size begins.
enum Base<C> {
    Own(Made<Arc<C>>),
    /// General code, and the time in nanoseconds that it has run with this size.
    General(Arc<Slot<C>>, AtomicU64),
}

impl<C> Slot<C> {
    fn new(base: Base<C>) -> Arc<Self> {
        Arc::new(Self { base, replacement: OnceLock::new() })
    }

    fn newest(&self) -> &Made<Arc<C>> {
        self.replacement.get().unwrap_or_else(|| match &self.base {
            Base::Own(made) => made,
            Base::General(general, _) => general.newest(),
        })
    }

    /// Whether optimized code is to replace it.
    fn is_replaceable(&self) -> bool {
        let has_better = match &self.base {
            Base::Own(made) => made.optimizable,
            Base::General(..) => true,
        };
        has_better && self.replacement.get().is_none()
    }

    /// Adds the time of a launch. Returns whether general code has now run for as long as `evidence`.
    fn ran(&self, ns: u64, evidence: Duration) -> bool {
        let Base::General(_, time) = &self.base else { return false };
        let before = u128::from(time.fetch_add(ns, Ordering::Relaxed));
        (before..before + u128::from(ns)).contains(&(evidence.as_nanos() - 1))
    }
}

impl<C: Send + Sync + 'static> BySize<C> {
    /// No code. `build` makes it for a threadgroup size, or general code for `None`, and a bound of buffers: the optimized code if its third
    /// parameter is true, otherwise that of the kernel's tier.
    pub fn new(
        specialization: Specialization,
        build: impl Fn(Option<Dim3>, SizeBound, bool) -> Result<Made<C>> + Send + Sync + 'static,
    ) -> Self {
        let build = move |(group, objects): Size, optimize| build(group, objects, optimize);
        let (ready, building) = (boxcar::Vec::new(), Mutex::default());
        Self(Arc::new(Shared { specialization, build: Box::new(build), ready, building }))
    }

    /// The code for a launch with this size, if it has been prepared: the optimized code as soon as it is there.
    pub fn get(&self, group: Dim3, objects: SizeBound) -> Option<Arc<C>> {
        self.0.ready((Some(group), objects)).map(|slot| slot.newest().code.clone())
    }

    /// Reports the processor time of a launch with this size.
    pub fn ran(&self, group: Dim3, objects: SizeBound, ns: u64) {
        let (size, Some(evidence)) = ((Some(group), objects), self.0.specialization.evidence) else { return };
        if self.0.ready(size).is_some_and(|slot| slot.ran(ns, evidence)) {
            self.0.optimize_in_background(size);
        }
    }

    /// Whether all code for a threadgroup size is optimized; `None` if none has been prepared.
    pub fn is_optimized(&self, group: Dim3) -> Option<bool> {
        let mut all = self.0.all().filter(|((of, _), _)| *of == Some(group)).peekable();
        all.peek()?;
        Some(all.all(|(_, slot)| slot.newest().optimized))
    }

    /// Builds the code for a size, unless there is some.
    ///
    /// # Errors
    /// Those of `build`. The next call tries again.
    pub fn prepare(&self, group: Dim3, objects: SizeBound) -> Result<()> {
        let size = (Some(group), objects);
        match self.0.ready(size) {
            Some(_) => Ok(()),
            None => self.0.prepare(size, true, true),
        }
    }

    /// Builds optimized code that is specialized for a threadgroup size, for all bounds that have been prepared, or the default one, or waits
    /// until the background thread has.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn optimize(&self, group: Dim3) -> Result<()> {
        let known: Vec<Size> =
            self.0.all().map(|(size, _)| *size).filter(|(of, _)| *of == Some(group)).collect();
        if known.is_empty() {
            let size = (Some(group), SizeBound::DEFAULT);
            self.0.prepare(size, self.0.specialization.evidence.is_none(), false)?;
            return self.0.optimize(size);
        }
        known.into_iter().try_for_each(|size| self.0.optimize(size))
    }
}

impl<C: Send + Sync + 'static> Shared<C> {
    fn all(&self) -> impl Iterator<Item = &(Size, Arc<Slot<C>>)> {
        self.ready.iter().map(|(_, prepared)| prepared)
    }

    fn ready(&self, size: Size) -> Option<&Arc<Slot<C>>> {
        self.all().find(|(of, _)| *of == size).map(|(_, slot)| slot)
    }

    /// Builds the code for a size; `may_share`: or shares general code. Code that can be optimized is, `in_background`.
    fn prepare(self: &Arc<Self>, size: Size, may_share: bool, in_background: bool) -> Result<()> {
        let turn = self.turn(size);
        let _mine = turn.lock();
        if self.ready(size).is_some() {
            return Ok(());
        }
        let general = if may_share { self.general(size)? } else { None };
        let is_own = general.is_none();
        let slot = match general {
            Some(general) => Slot::new(Base::General(general, AtomicU64::new(0))),
            None => {
                let Made { code, optimized, optimizable, row_sizes } = (self.build)(size, false)?;
                Slot::new(Base::Own(Made { code: Arc::new(code), optimized, optimizable, row_sizes }))
            }
        };
        let is_replaceable = slot.is_replaceable();
        self.ready.push((size, slot));
        if in_background && is_own && is_replaceable {
            self.optimize_in_background(size);
        }
        Ok(())
    }

    /// The general code, if it is to serve a size.
    fn general(self: &Arc<Self>, (group, objects): Size) -> Result<Option<Arc<Slot<C>>>> {
        let (Some(group), general) = (group, (None, objects)) else { return Ok(None) };
        if self.specialization.sizes == 0 {
            match self.prepare(general, false, true) {
                // Not every kernel has general code.
                Err(Error::Unsupported(_)) => return Ok(None),
                outcome => outcome?,
            }
        }
        let is_enough = {
            let served = self.all().find_map(|(_, slot)| slot.newest().row_sizes);
            let is_served = |group: Dim3| served.is_some_and(|sizes| sizes.contains(group.to_array()));
            let is_other = |(of, bound): &Size| *bound == objects && of.is_some_and(is_served);
            let others = self.all().filter(|(size, _)| is_other(size)).count();
            is_served(group) && others >= self.specialization.sizes
        };
        if !is_enough {
            return Ok(None);
        }
        self.prepare(general, false, true)?;
        Ok(self.ready(general).cloned())
    }

    /// Replaces the code for a prepared size, if it is replaceable.
    fn optimize(self: &Arc<Self>, size: Size) -> Result<()> {
        let Some(slot) = self.ready(size) else { return Ok(()) };
        if matches!(slot.base, Base::General(..)) && self.specialization.evidence.is_none() {
            return self.optimize((None, size.1));
        }
        let turn = self.turn(size);
        let _mine = turn.lock();
        if !slot.is_replaceable() {
            return Ok(());
        }
        let Made { code, optimized, optimizable: _, row_sizes } = (self.build)(size, true)?;
        slot.replacement.get_or_init(|| Made {
            code: Arc::new(code),
            optimized,
            optimizable: false,
            row_sizes,
        });
        Ok(())
    }

    fn optimize_in_background(self: &Arc<Self>, size: Size) {
        let kernel = Arc::downgrade(self);
        background::spawn(move || optimize_later(&kernel, size));
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
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;

    use super::*;

    const SIZE: Dim3 = Dim3 { x: 32, y: 2, z: 1 };
    const BOUND: SizeBound = SizeBound::DEFAULT;

    fn made(code: &'static str, optimizable: bool) -> Made<&'static str> {
        Made { code, optimized: code == "optimized", optimizable, row_sizes: None }
    }

    #[test]
    fn threads_that_prepare_the_same_size_build_it_once() {
        let builds = Arc::new(AtomicUsize::new(0));
        let count = builds.clone();
        let code = BySize::new(Specialization::ALWAYS, move |_, _, _| {
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
        let code =
            BySize::new(Specialization::ALWAYS, move |_, _, _| match tries.fetch_add(1, Ordering::Relaxed) {
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
        let code = BySize::new(Specialization::ALWAYS, move |_, _, optimize| {
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
        let code = BySize::new(Specialization::ALWAYS, move |_, _, optimize| {
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
        let code = BySize::new(Specialization::ALWAYS, move |_, _, optimize| match optimize {
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
        let code = BySize::new(Specialization::ALWAYS, move |_, _, optimize| {
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
        let code = BySize::new(Specialization::ALWAYS, move |_, _, optimize| {
            send.send(optimize).unwrap();
            Ok(made("quick", true))
        });
        code.prepare(SIZE, BOUND).unwrap();
        drop(code);
        other.send(()).unwrap();
        assert_eq!(receive.iter().collect::<Vec<_>>(), [false]);
    }

    /// Sizes that general code serves, with 16 lanes, and one that it does not serve.
    const SERVED: [Dim3; 4] =
        [Dim3::new(64, 1, 1), Dim3::new(100, 1, 1), Dim3::new(32, 8, 1), Dim3::new(16, 4, 4)];
    const ACROSS: Dim3 = Dim3::new(8, 8, 1);

    /// Code that is described by its size and whether it was built to be optimized; and the list of builds.
    fn described(specialization: Specialization) -> (BySize<String>, Arc<Mutex<Vec<String>>>) {
        let builds = Arc::new(Mutex::new(Vec::new()));
        let list = builds.clone();
        let code = BySize::new(specialization, move |group, _, optimize| {
            let size = group.map_or("general".to_owned(), |group| group.to_string());
            let code = if optimize { format!("{size} optimized") } else { size };
            list.lock().push(code.clone());
            let row_sizes = Some(RowSizes::new(16, false));
            Ok(Made { code, optimized: true, optimizable: false, row_sizes })
        });
        (code, builds)
    }

    fn launch(code: &BySize<String>, group: Dim3) -> String {
        code.prepare(group, BOUND).unwrap();
        let ran = code.get(group, BOUND).unwrap();
        code.ran(group, BOUND, 1_000_000);
        ran.to_string()
    }

    #[test]
    fn general_code_serves_all_sizes_of_its_layout_but_the_first() {
        let (code, builds) = described(Specialization { sizes: 1, evidence: None });
        for _ in 0..100 {
            let ran = SERVED.map(|group| launch(&code, group));
            assert_eq!(ran, ["64×1×1", "general", "general", "general"]);
        }
        assert_eq!(launch(&code, ACROSS), "8×8×1");
        assert_eq!(*builds.lock(), ["64×1×1", "general", "8×8×1"]);
        let all = SERVED.map(|group| code.is_optimized(group));
        assert_eq!(all, [Some(true); 4]);
        // Without evidence, general code stays.
        SERVED.iter().for_each(|group| code.optimize(*group).unwrap());
        assert_eq!(launch(&code, SERVED[1]), "general");
        // Another bound of buffers is other code.
        let large = SizeBound::of(u64::MAX);
        SERVED.iter().for_each(|group| code.prepare(*group, large).unwrap());
        assert_eq!(builds.lock()[3..], ["64×1×1", "general"]);
    }

    #[test]
    fn a_size_that_general_code_does_not_serve_does_not_call_for_it() {
        let (code, builds) = described(Specialization { sizes: 1, evidence: None });
        assert_eq!(
            [ACROSS, SERVED[0], SERVED[1]].map(|group| launch(&code, group)),
            ["8×8×1", "64×1×1", "general"]
        );
        assert_eq!(builds.lock().len(), 3);
    }

    #[test]
    fn general_code_is_replaced_on_evidence_and_on_request() {
        let (code, builds) = described(Specialization { sizes: 1, evidence: Some(Duration::from_millis(3)) });
        let [first, often, seldom, asked] = SERVED;
        assert_eq!(launch(&code, first), "64×1×1");
        let running = {
            code.prepare(often, BOUND).unwrap();
            code.get(often, BOUND).unwrap()
        };
        let group = [often, often, seldom, seldom, asked];
        assert_eq!(group.map(|group| launch(&code, group)), ["general"; 5]);
        code.optimize(asked).unwrap();
        assert_eq!(launch(&code, asked), "16×4×4 optimized");
        assert_eq!(launch(&code, often), "general", "the third launch");
        let start = std::time::Instant::now();
        while launch(&code, often) == "general" {
            assert!(start.elapsed().as_secs() < 60, "it has not been replaced");
            std::thread::yield_now();
        }
        assert_eq!(launch(&code, often), "100×1×1 optimized");
        assert_eq!((running.as_str(), launch(&code, first).as_str()), ("general", "64×1×1"));
        assert_eq!(*builds.lock(), ["64×1×1", "general", "16×4×4 optimized", "100×1×1 optimized"]);
        // A size that has not been launched is specialized at once.
        code.optimize(Dim3::from(128)).unwrap();
        assert_eq!(builds.lock()[4..], ["128×1×1"]);
    }

    #[test]
    fn general_code_for_every_size_is_built_once() {
        let (code, builds) = described(Specialization { sizes: 0, evidence: None });
        assert_eq!(SERVED.map(|group| launch(&code, group)), ["general"; 4]);
        assert_eq!(launch(&code, ACROSS), "8×8×1");
        assert_eq!(*builds.lock(), ["general", "8×8×1"]);
        let code = BySize::new(Specialization { sizes: 0, evidence: None }, |group, _, _| match group {
            None => Err(Error::unsupported("none")),
            Some(_) => Ok(made("optimized", false)),
        });
        code.prepare(SIZE, BOUND).unwrap();
        assert_eq!(*code.get(SIZE, BOUND).unwrap(), "optimized");
    }

    #[test]
    fn general_code_that_is_costly_is_optimized_itself() {
        let code = BySize::new(Specialization { sizes: 0, evidence: None }, |group, _, optimize| {
            assert!(group.is_none());
            let row_sizes = Some(RowSizes::new(16, false));
            Ok(Made { row_sizes, ..made(if optimize { "optimized" } else { "quick" }, !optimize) })
        });
        SERVED.iter().for_each(|group| code.prepare(*group, BOUND).unwrap());
        code.optimize(SERVED[2]).unwrap();
        assert_eq!(SERVED.map(|group| *code.get(group, BOUND).unwrap()), ["optimized"; 4]);
    }
}
