//! [`Kernel`]: a function of a library, ready to be launched.
//!
//! The kernel is a handle on the driver's pipeline. Its launch is in [`crate::launch::command_buffer`], with everything else
//! that a launch goes through.

use std::fmt;
use std::sync::Arc;

use elinvar_driver::{Dim3, Label, Pipeline, Result, Signature};

use crate::launch::grid::checked;
use crate::launch::suggest::{Suggestion, suggest};
use crate::{Device, Extent, Grid};

/// A kernel of a [`crate::Library`]. Cloning gives another handle.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) device: Device,
    pub(crate) pipeline: Arc<dyn Pipeline>,
    pub(crate) label: Option<Arc<Label>>,
    /// The same in every process that compiles the same source with the same options.
    pub(crate) identity: Arc<str>,
}

impl Kernel {
    pub(crate) fn new(device: Device, pipeline: Arc<dyn Pipeline>, identity: Arc<str>) -> Self {
        Self { device, pipeline, label: None, identity }
    }

    /// What the kernel takes.
    pub fn signature(&self) -> &Signature {
        self.pipeline.signature()
    }

    /// Threads of the largest threadgroup that this kernel can have on its device.
    pub fn max_threads_per_threadgroup(&self) -> u32 {
        self.pipeline.max_threads_per_threadgroup()
    }

    /// Threads of a threadgroup in a launch over this grid, given or chosen; `None` when nothing would run.
    ///
    /// # Errors
    /// `InvalidArgument` when the grid or its group is out of range.
    pub fn threadgroup_size(&self, grid: Grid) -> Result<Option<Dim3>> {
        Ok(grid.resolve(self)?.map(|size| size.group))
    }

    /// The threadgroup size that a launch over so many threads has when none is given, and why.
    ///
    /// # Errors
    /// `InvalidArgument` when a size does not fit 32 bits.
    pub fn suggest(&self, threads: impl Extent) -> Result<Suggestion> {
        let threads = checked(&self.signature().name, "grid", threads.sizes())?;
        Ok(self.choose(threads))
    }

    /// The size for a grid: as it was measured, else by the facts.
    pub(crate) fn choose(&self, threads: Dim3) -> Suggestion {
        let caps = self.device.caps();
        let most = self.max_threads_per_threadgroup().min(caps.limits.max_threads_per_threadgroup);
        let tuned = self.device.tuned().suggestion(&self.identity, threads);
        let fits = |tuned: &Suggestion| {
            let (size, limits) = (tuned.group.to_array(), caps.limits.max_threadgroup_size.to_array());
            let volume = tuned.group.volume();
            volume > 0
                && volume <= u128::from(most)
                && size.iter().zip(limits).all(|(size, most)| *size <= most)
        };
        tuned.filter(fits).unwrap_or_else(|| suggest(threads, most, caps, self.signature()))
    }

    /// This kernel with a name and a number for its launches, which traces and errors show.
    #[must_use]
    pub fn labeled(&self, name: impl Into<String>, id: u64) -> Self {
        let label = Some(Arc::new(Label { name: name.into(), id }));
        Self { label, ..self.clone() }
    }

    /// The device it was compiled for.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// A kernel of a [`crate::Library`] with bounds checks compiled in. Cloning gives another handle.
///
/// Each access of the kernel is checked against the argument, threadgroup variable or private array that
/// it is made through, and its address against the alignment that its type needs. A read outside gives zero, a write outside is dropped, and the launch ends in
/// [`elinvar_driver::Error::Fault`] for the first of them, naming kernel, argument, element, thread and
/// source line. What is told of:
///
/// | access | the fault says |
/// |---|---|
/// | outside an argument | `write to element 4096 of argument 1 `out` (uint, 4096 elements)` |
/// | outside a threadgroup variable, a private or a constant array | `read of byte 64 of a private array of 64 bytes` |
/// | through a null pointer, or one that was never given a value, with whatever offset | `write to address 0x10 by a null pointer` |
/// | within its memory at an address that its type may not have, as by a pointer that was cast | `misaligned read of element 3 of …` |
///
/// A kernel that uses a pointer of which nothing is known, such as one that is read from memory, is refused
/// ([`elinvar_driver::Error::Unsupported`]). The kernel runs to its end all the same, so its other results are there, but its buffers
/// count as not written.
///
/// Races between threads stay the kernel's own: they make values unpredictable, not memory unsafe.
#[derive(Clone)]
pub struct CheckedKernel {
    pub(crate) kernel: Kernel,
}

impl CheckedKernel {
    /// What the kernel takes.
    pub fn signature(&self) -> &Signature {
        self.kernel.signature()
    }

    /// Threads of the largest threadgroup that this kernel can have on its device.
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

    /// As [`Kernel::labeled`].
    #[must_use]
    pub fn labeled(&self, name: impl Into<String>, id: u64) -> Self {
        Self { kernel: self.kernel.labeled(name, id) }
    }

    /// The device it was compiled for.
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
