//! [`Kernel`]: a kernel function of a library.
//!
//! A kernel is a handle on the driver's pipeline. Launches are in [`crate::launch::command_buffer`].

use std::fmt;
use std::sync::Arc;

use elinvar_analysis::Analysis;
use elinvar_driver::{Dim3, Label, Pipeline, Result, Signature};

use crate::launch::grid::checked;
use crate::launch::suggest::{Suggestion, suggest, suggested_size};
use crate::launch::tune::Measured;
use crate::observe::profiling::analysis;
use crate::{Compilation, Device, Extent, Grid};

/// A kernel of a [`crate::Library`]. A clone is another handle.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) device: Device,
    pub(crate) pipeline: Arc<dyn Pipeline>,
    pub(crate) label: Option<Arc<Label>>,
    /// Equal in all processes that compile the same source with the same options.
    pub(crate) identity: Arc<str>,
}

impl Kernel {
    pub(crate) fn new(device: Device, pipeline: Arc<dyn Pipeline>, identity: Arc<str>) -> Self {
        Self { device, pipeline, label: None, identity }
    }

    /// Arguments, position parameters and code facts of the kernel.
    pub fn signature(&self) -> &Signature {
        self.pipeline.signature()
    }

    /// Maximum number of threads of a threadgroup of this kernel (`maxTotalThreadsPerThreadgroup` in Metal).
    pub fn max_threads_per_threadgroup(&self) -> u32 {
        self.pipeline.max_threads_per_threadgroup()
    }

    /// Threadgroup size of a launch over this grid, specified or chosen, in threads; `None` if nothing would run.
    ///
    /// # Errors
    /// `InvalidArgument` if the grid or its threadgroup is out of range.
    pub fn threadgroup_size(&self, grid: Grid) -> Result<Option<Dim3>> {
        Ok(grid.resolve(self)?.map(|size| size.group))
    }

    /// What the kernel does to memory and arithmetic units, from its code ([`elinvar_analysis`]); with
    /// [`Analysis::launch`], totals of a launch. The front end reads the code again, or its cache.
    ///
    /// # Errors
    /// `Unsupported` with the reason on devices that do not have the code of one thread: other than the CPU, and for a kernel of a bundle.
    pub fn analysis(&self) -> Result<Analysis> {
        analysis(&self.pipeline)
    }

    /// Prepares the kernel for launches with threadgroups of `group` threads, so that the first takes as long as later ones: optimized code
    /// for this size is compiled and loaded, and the kernel's [metrics](Device::metrics) begin, with zero launches.
    ///
    /// The device's other costs of a first launch remain: a stream is created by [`Device::stream`], memory by [`Pool::reserve`](crate::Pool::reserve).
    ///
    /// # Errors
    /// `InvalidArgument` for a size that is out of range; `Environment` if the compiler fails; `Unsupported` with the source line.
    pub fn prepare(&self, group: impl Extent) -> Result<()> {
        let group = checked(&self.signature().name, "threadgroup", group.sizes())?;
        self.pipeline.prepare(group)?;
        self.pipeline.optimize(group)?;
        self.device.counters().prepare(&self.pipeline);
        Ok(())
    }

    /// Prepares the kernel as [`Kernel::prepare`], in the background. The compilation can be cancelled.
    pub fn prepare_async(&self, group: impl Extent) -> Compilation<()> {
        let (kernel, group) = (self.clone(), checked(&self.signature().name, "threadgroup", group.sizes()));
        Compilation::begin(move || kernel.prepare(group?))
    }

    /// The largest number of threadgroups of `group` threads in a cooperative launch ([`Kernel::launch_cooperative`]), with
    /// `threadgroup_bytes` bytes of dynamic threadgroup memory in each. On a GPU as many as fit on its cores at once; on the CPU, as
    /// many as its memory has room for.
    ///
    /// # Errors
    /// `InvalidArgument` for a size that is out of range; `Unsupported` with the reason on a device without cooperative launches;
    /// `Compile` or `Unsupported` if the kernel cannot be built for the size.
    pub fn resident_groups(&self, group: impl Extent, threadgroup_bytes: u64) -> Result<u64> {
        let group = checked(&self.signature().name, "threadgroup", group.sizes())?;
        self.pipeline.resident_groups(group, threadgroup_bytes)
    }

    /// Waits until optimized code that is specialized for threadgroups of `group` threads is ready; later launches with this size run it. Until then, launches of a
    /// kernel that is costly to optimize run unoptimized code ([`Tier::Adaptive`](elinvar_driver::Tier::Adaptive)).
    ///
    /// # Errors
    /// `InvalidArgument` for a size that is out of range; `Environment` if the compiler fails.
    pub fn optimize(&self, group: impl Extent) -> Result<()> {
        self.pipeline.optimize(checked(&self.signature().name, "threadgroup", group.sizes())?)
    }

    /// Whether a launch with threadgroups of `group` threads would run optimized code; `None` before the first launch with this size.
    /// Always `Some(true)` on devices other than the CPU, which have one tier of code.
    ///
    /// # Errors
    /// `InvalidArgument` if a size is not within 0 to `u32::MAX`.
    pub fn is_optimized(&self, group: impl Extent) -> Result<Option<bool>> {
        Ok(self.pipeline.is_optimized(checked(&self.signature().name, "threadgroup", group.sizes())?))
    }

    /// Threadgroup size of a launch over `threads` threads that specifies none, with the reason.
    ///
    /// # Errors
    /// `InvalidArgument` if a size is not within 0 to `u32::MAX`.
    pub fn suggest(&self, threads: impl Extent) -> Result<Suggestion> {
        let threads = checked(&self.signature().name, "grid", threads.sizes())?;
        Ok(self.choose(threads))
    }

    /// The size for a grid, with the reason: the measured one, otherwise a heuristic.
    pub(crate) fn choose(&self, threads: Dim3) -> Suggestion {
        let measured = self.measured(threads).map(|measured| measured.suggestion(threads));
        let suggest = || suggest(threads, self.most_threads(), self.device.caps(), self.signature());
        measured.unwrap_or_else(suggest)
    }

    /// The size for a grid, as [`Kernel::choose`].
    pub(crate) fn choose_size(&self, threads: Dim3) -> Dim3 {
        let measured = self.measured(threads).map(|measured| measured.group);
        let size = || suggested_size(threads, self.most_threads(), self.device.caps(), self.signature());
        measured.unwrap_or_else(size)
    }

    /// Maximum number of threads of a threadgroup, by kernel and device.
    pub(crate) fn most_threads(&self) -> u32 {
        self.max_threads_per_threadgroup().min(self.device.caps().limits.max_threads_per_threadgroup)
    }

    /// The measured size for a grid, if it is within the limits.
    fn measured(&self, threads: Dim3) -> Option<Measured> {
        let (caps, most) = (self.device.caps(), self.most_threads());
        let fits = |tuned: &Measured| {
            let (size, limits) = (tuned.group.to_array(), caps.limits.max_threadgroup_size.to_array());
            let volume = tuned.group.volume();
            volume > 0
                && volume <= u128::from(most)
                && size.iter().zip(limits).all(|(size, most)| *size <= most)
        };
        self.device.tuned().measured(&self.identity, threads).filter(fits)
    }

    /// This kernel with a label for its launches, which traces and errors show.
    #[must_use]
    pub fn labeled(&self, name: impl Into<String>, id: u64) -> Self {
        let label = Some(Arc::new(Label { name: name.into(), id }));
        Self { label, ..self.clone() }
    }

    /// The device that it was compiled for.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// A kernel of a [`crate::Library`] with compiled-in bounds checks. A clone is another handle.
///
/// Each access is checked against the bounds of the argument, threadgroup variable or private array that its pointer is derived
/// from, and its address against the alignment of its type. An out-of-bounds read returns 0, an out-of-bounds write is dropped,
/// and the launch ends in [`elinvar_driver::Error::Fault`] for the first of them, with kernel, argument, element, thread and
/// source line. Examples:
///
/// | access | message of the fault |
/// |---|---|
/// | outside an argument | `write to element 4096 of argument 1 `out` (uint, 4096 elements)` |
/// | outside a threadgroup variable, a private or a constant array | `read of byte 64 of a private array of 64 bytes` |
/// | through a null or uninitialized pointer, with any offset | `write to address 0x10 by a null pointer` |
/// | in bounds, at an address that is misaligned for its type, such as through a cast pointer | `misaligned read of element 3 of …` |
///
/// A kernel that uses a pointer with unknown bounds, such as one loaded from memory, is rejected
/// ([`elinvar_driver::Error::Unsupported`]). After a fault the kernel runs to its end, but its buffers count as not written.
///
/// Data races between threads remain possible: they make values unpredictable, but do not violate memory safety.
#[derive(Clone)]
pub struct CheckedKernel {
    pub(crate) kernel: Kernel,
}

impl CheckedKernel {
    /// The kernel, with its bounds checks, where one of either kind is expected.
    pub fn as_kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Arguments, position parameters and code facts of the kernel.
    pub fn signature(&self) -> &Signature {
        self.kernel.signature()
    }

    /// Maximum number of threads of a threadgroup of this kernel.
    pub fn max_threads_per_threadgroup(&self) -> u32 {
        self.kernel.max_threads_per_threadgroup()
    }

    /// As [`Kernel::threadgroup_size`].
    ///
    /// # Errors
    /// As [`Kernel::threadgroup_size`].
    pub fn threadgroup_size(&self, grid: Grid) -> Result<Option<Dim3>> {
        self.kernel.threadgroup_size(grid)
    }

    /// As [`Kernel::resident_groups`].
    ///
    /// # Errors
    /// As [`Kernel::resident_groups`].
    pub fn resident_groups(&self, group: impl Extent, threadgroup_bytes: u64) -> Result<u64> {
        self.kernel.resident_groups(group, threadgroup_bytes)
    }

    /// As [`Kernel::labeled`].
    #[must_use]
    pub fn labeled(&self, name: impl Into<String>, id: u64) -> Self {
        Self { kernel: self.kernel.labeled(name, id) }
    }

    /// The device that it was compiled for.
    pub fn device(&self) -> &Device {
        self.kernel.device()
    }
}

impl fmt::Debug for CheckedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckedKernel({})", self.signature().name)
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.signature().name)
    }
}
