//! [`Library::tune`]: measures which values of a kernel's function constants are fastest, of those that the caller declares.
//!
//! Each combination of values is a variant of the kernel: specialized, and launched over a grid of its own, since the size of a tile decides how
//! many threadgroups there are. What was measured is kept in the user's cache, as threadgroup sizes are.

use elinvar_cache::{Cache, decode, encode};
use elinvar_driver::{Error, Result};

use crate::launch::tune::{Kept, Run, fastest};
use crate::{Args, ConstantValue, Constants, Grid, Kernel, Library, Stream, Tuning};

/// Largest number of variants.
const MOST_VARIANTS: usize = 256;

/// Values of function constants to choose from; the variants of a kernel are their combinations.
///
/// ```
/// # use elinvar::{Constants, Variants};
/// let variants = Variants::new().constant("tile", [16u32, 8, 32]).constant("unroll", [1u32, 4]);
/// let variants = variants.retain(|constants| constants.get::<u32>("tile") != Some(32) || constants.get("unroll") == Some(1u32));
/// let first = Constants::new().set("tile", 16u32).set("unroll", 1u32);
/// assert_eq!((variants.list().len(), &variants.list()[0]), (5, &first));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Variants {
    list: Vec<Constants>,
}

impl Default for Variants {
    fn default() -> Self {
        Self::new()
    }
}

impl Variants {
    /// One variant, without constants.
    pub fn new() -> Self {
        Self { list: vec![Constants::new()] }
    }

    /// Combines each variant with each of these values of a constant. The first variant, which has the first value of each constant, is the
    /// default. Without values, no variant is left.
    pub fn constant<V: ConstantValue + Copy>(self, name: &str, values: impl IntoIterator<Item = V>) -> Self {
        let values: Vec<V> = values.into_iter().collect();
        let with = |variant: &Constants| -> Vec<Constants> {
            values.iter().map(|value| variant.clone().set(name, *value)).collect()
        };
        Self { list: self.list.iter().flat_map(with).collect() }
    }

    /// Leaves out the variants for which `keep` returns `false`.
    pub fn retain(mut self, keep: impl FnMut(&Constants) -> bool) -> Self {
        self.list.retain(keep);
        self
    }

    /// The variants, the default first.
    pub fn list(&self) -> &[Constants] {
        &self.list
    }
}

/// The variant that [`Library::tune`] has found.
#[derive(Clone, Debug)]
pub struct TunedKernel {
    /// The specialized kernel.
    pub kernel: Kernel,
    /// Its function constants.
    pub constants: Constants,
    /// The grid to be launched over.
    pub grid: Grid,
    /// The reason, for display.
    pub reason: String,
}

impl Library {
    /// Finds the fastest of a kernel's variants for launches over grids of about this size. `grid` gives the grid of a variant.
    ///
    /// A measurement runs each variant several times, in turns, on the device's clock, and blocks until all runs have ended. Arguments that the kernel may
    /// write have their contents back afterwards. A variant is taken in place of the default only if it is faster by more than 2 %. Variants that the device refuses
    /// (too much threadgroup memory, a threadgroup that is too large) are left out. The result is kept in the user's cache, by source, kernel, variants, the default's grid rounded up to
    /// powers of two, and device. With [`Tuning::Predicted`], the result is the default: the model does not tell variants apart.
    ///
    /// A grid without a threadgroup size has the size that a launch would have; see [`Kernel::tune`].
    ///
    /// # Safety
    /// As for a launch of each variant; see [`Kernel::launch`].
    ///
    /// # Errors
    /// `InvalidArgument` if there are no variants, or more than 256; the first variant's error if the device refuses all of them; any other
    /// error of [`Library::kernel_with`], [`Kernel::launch`] and [`Stream::profile`]; `OutOfMemory` for the copies of arguments.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn tune(
        &self,
        stream: &Stream,
        kernel: &str,
        variants: &Variants,
        grid: impl Fn(&Constants) -> Grid,
        args: impl Args,
        tuning: Tuning,
    ) -> Result<TunedKernel> {
        let list = variants.list();
        if list.is_empty() || list.len() > MOST_VARIANTS {
            return Err(Error::invalid(format!(
                "kernel `{kernel}`: tune: {} variants; allowed are 1 to {MOST_VARIANTS}",
                list.len()
            )));
        }
        let specialized = |constants: &Constants| self.kernel_with(kernel, constants);
        let tuned = |constants: &Constants, specialized: Kernel, reason: String| TunedKernel {
            kernel: specialized,
            constants: constants.clone(),
            grid: grid(constants),
            reason,
        };
        if tuning == Tuning::Predicted {
            let reason = "the default, not measured".into();
            return Ok(tuned(&list[0], specialized(&list[0])?, reason));
        }
        let cache = Cache::user(env!("CARGO_PKG_VERSION"));
        let key = cache
            .key("variant, 1")
            .text(&self.device().identity())
            .text(&self.identity(kernel, &Default::default()));
        let key = key.text(&format!("{list:?} {:?}", grid(&list[0]).size_class())).finish();
        let known: Option<(u32, u64)> = match tuning {
            Tuning::Remembered => cache.load(&key).and_then(|bytes| decode(&bytes)),
            _ => None,
        };
        if let Some((index, ns)) = known
            && let Some(constants) = list.get(index as usize)
        {
            let reason = format!("{ns} ns, the fastest of {} variants, measured earlier", list.len());
            return Ok(tuned(constants, specialized(constants)?, reason));
        }
        let args = args.into_args();
        let kept = Kept::new(stream, &args)?;
        let runs = || {
            let mut runs = Vec::new();
            let mut refused: Option<Error> = None;
            for (index, constants) in list.iter().enumerate() {
                let run = specialized(constants).and_then(|kernel| Run::new(index, kernel, grid(constants)));
                // SAFETY: the caller vouches for a launch of each variant.
                match run.and_then(|run| unsafe { run.once(stream, &args) }.map(|_| run)) {
                    Ok(run) => runs.push(run),
                    Err(error @ (Error::InvalidArgument(_) | Error::Unsupported(_))) => {
                        refused.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            refused.filter(|_| runs.is_empty()).map_or(Ok(runs), Err)
        };
        // SAFETY: as above.
        let best = runs().and_then(|runs| unsafe { fastest(stream, runs, &args) });
        kept.restore(stream)?;
        let best = best?;
        cache.store(&key, &encode(&(best.index as u32, best.ns)));
        let reason = format!("{} ns, the fastest of {} variants", best.ns, list.len());
        Ok(tuned(&list[best.index], best.kernel, reason))
    }
}
