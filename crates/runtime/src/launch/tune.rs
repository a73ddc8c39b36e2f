//! [`Kernel::tune`]: the threadgroup size that a launch is fastest with, measured and kept.
//!
//! A device keeps what was measured by kernel and by the size of the grid, rounded up to powers of two. A launch without a
//! threadgroup size has the one that was measured, if there is one that its kernel allows. What is kept goes to other
//! processes through [`crate::Device::save_tuning`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use elinvar_driver::sync::RwLock;
use elinvar_driver::{Dim3, Error, Result};

use crate::launch::suggest::candidates;
use crate::{Args, Grid, Kernel, Stream, Suggestion};

/// Times that each size is measured, after one launch that is not counted.
const TIMES: usize = 5;

/// A measured size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) group: Dim3,
    /// The shortest time of a launch.
    pub(crate) ns: u64,
}

/// Kernel, and the grid in powers of two.
type Key = (Arc<str>, [u32; 3]);

/// What was measured on a device.
#[derive(Default)]
pub(crate) struct Tuned {
    /// Whether there is any, so that launches need not look.
    any: AtomicBool,
    sizes: RwLock<BTreeMap<Key, Measured>>,
}

impl Tuned {
    pub(crate) fn suggestion(&self, kernel: &Arc<str>, threads: Dim3) -> Option<Suggestion> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let measured = self.sizes.read().get(&(kernel.clone(), class(threads))).copied()?;
        let Measured { group, ns } = measured;
        let [x, y, z] = class(threads);
        let reason =
            format!("measured for grids up to {x} x {y} x {z}: {ns} ns, the least of the sizes tried");
        Some(Suggestion { group, reason })
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

/// Grids that share what is measured.
fn class(threads: Dim3) -> [u32; 3] {
    threads.to_array().map(|side| side.checked_next_power_of_two().unwrap_or(u32::MAX))
}

impl Kernel {
    /// Measure which threadgroup size a launch over this grid is fastest with, by the device's clock, and have launches of about
    /// that size use it from now on where none is given. Each size that is tried runs the kernel a few times, so its buffers
    /// then hold what that leaves. Waits until all has run.
    ///
    /// # Safety
    /// As for so many launches; see [`Kernel::launch`]. The kernel does the same whatever the size of its threadgroups.
    ///
    /// # Errors
    /// As [`Kernel::launch`] and [`Stream::profile`]; `InvalidArgument` for a grid that gives a threadgroup size.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn tune(&self, stream: &Stream, grid: Grid, args: impl Args) -> Result<Suggestion> {
        if grid.has_group() {
            let kernel = &self.signature().name;
            return Err(Error::invalid(format!(
                "kernel `{kernel}`: tune: the grid gives the size of a threadgroup"
            )));
        }
        let threads = grid.resolve(self)?.and_then(|size| size.grid.threads());
        let Some(threads) = threads else { return Ok(self.choose(Dim3::new(0, 1, 1))) };
        let args = args.into_args();
        let most = self.max_threads_per_threadgroup();
        let mut best: Option<Measured> = None;
        for group in candidates(threads, most, self.device.caps(), self.signature()) {
            let profile = stream.profile(1 + TIMES, |command_buffer| {
                // SAFETY: the caller vouches for launches with any size.
                unsafe { command_buffer.launch(self, Grid::threads(threads).group(group), &args) }
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
