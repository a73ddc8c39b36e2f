//! [`Kernel::tune`]: measures the fastest threadgroup size of a launch.
//!
//! A device keeps the results by kernel and by the grid's size, rounded up to powers of two. A launch without a threadgroup size
//! uses the measured one, if its kernel allows it. [`crate::Device::save_tuning`] passes the results to other processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use elinvar_driver::sync::RwLock;
use elinvar_driver::{Dim3, Error, Result};

use crate::launch::suggest::candidates;
use crate::{Args, Grid, Kernel, Stream, Suggestion};

/// Number of measurements of each size, after one warm-up launch.
const TIMES: usize = 5;

/// A measured size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) group: Dim3,
    /// The shortest duration of a launch.
    pub(crate) ns: u64,
}

/// Kernel, and grid rounded up to powers of two.
type Key = (Arc<str>, [u32; 3]);

/// Measured sizes of a device.
#[derive(Default)]
pub(crate) struct Tuned {
    /// Whether there are any, so that launches can skip the lookup.
    any: AtomicBool,
    sizes: RwLock<BTreeMap<Key, Measured>>,
}

impl Tuned {
    pub(crate) fn measured(&self, kernel: &Arc<str>, threads: Dim3) -> Option<Measured> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.sizes.read().get(&(kernel.clone(), class(threads))).copied()
    }

    pub(crate) fn insert(&self, kernel: Arc<str>, class: [u32; 3], measured: Measured) {
        self.sizes.write().insert((kernel, class), measured);
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn list(&self) -> Vec<(Arc<str>, [u32; 3], Measured)> {
        let sizes = self.sizes.read();
        sizes.iter().map(|((kernel, class), measured)| (kernel.clone(), *class, *measured)).collect()
    }
}

impl Measured {
    /// The suggestion for a grid of its class.
    pub(crate) fn suggestion(self, threads: Dim3) -> Suggestion {
        let Self { group, ns } = self;
        let [x, y, z] = class(threads);
        let reason =
            format!("measured for grids up to {x} x {y} x {z}: {ns} ns, the fastest of the sizes tried");
        Suggestion { group, reason }
    }
}

/// Class of grids that share a result.
fn class(threads: Dim3) -> [u32; 3] {
    threads.to_array().map(|side| side.checked_next_power_of_two().unwrap_or(u32::MAX))
}

impl Kernel {
    /// Measures which threadgroup size is fastest for a launch over this grid, on the device's clock. Later launches over grids
    /// of similar size use it if they specify none. Runs the kernel several times for each candidate, with the corresponding
    /// effects on its buffers, and blocks until all runs have ended.
    ///
    /// # Safety
    /// As for each of these launches; see [`Kernel::launch`]. The kernel's result must not depend on the threadgroup size.
    ///
    /// # Errors
    /// As [`Kernel::launch`] and [`Stream::profile`]; `InvalidArgument` for a grid with a threadgroup size.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn tune(&self, stream: &Stream, grid: Grid, args: impl Args) -> Result<Suggestion> {
        if grid.has_group() {
            let kernel = &self.signature().name;
            return Err(Error::invalid(format!(
                "kernel `{kernel}`: tune: the grid must not have a threadgroup size"
            )));
        }
        let threads = grid.resolve(self)?.and_then(|size| size.grid.threads());
        let Some(threads) = threads else { return Ok(self.choose(Dim3::new(0, 1, 1))) };
        let args = args.into_args();
        let most = self.max_threads_per_threadgroup();
        let mut best: Option<Measured> = None;
        // Kernels with grid barriers can be tuned too.
        let grid = |group| Grid::threads(threads).group(group).cooperative();
        for group in candidates(threads, most, self.device.caps(), self.signature()) {
            self.pipeline.optimize(group)?;
            let profile = stream.profile(1 + TIMES, |command_buffer| {
                // SAFETY: the caller vouches for launches with any size.
                unsafe { command_buffer.launch(self, grid(group), &args[..]) }
            })?;
            let ns = profile.min_ns();
            if best.is_none_or(|best| ns < best.ns) {
                best = Some(Measured { group, ns });
            }
        }
        if let Some(best) = best {
            self.device.tuned().insert(self.identity.clone(), class(threads), best);
        }
        Ok(self.choose(threads))
    }
}
