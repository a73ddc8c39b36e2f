//! [`Launch`]: a kernel with its arguments in a device's memory, to be launched in threadgroups of any size.

use elinvar::driver::{Access, ElementType, Scalar};
use elinvar::{Arg, Buffer, CheckedKernel, Device, Error, Grid, Kernel, Result, Stream, Tuning};

use crate::{Size, sides, size_text};

/// An argument of a launch.
pub enum Given {
    /// Bytes of one or a few values.
    Value(Vec<u8>),
    /// Contents of a buffer.
    Memory(Vec<u8>),
}

/// A kernel with its arguments, which all sizes share.
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// Threads of the grid.
    pub threads: Size,
    stream: Stream,
    args: Vec<Held>,
}

enum Held {
    Value(Vec<u8>),
    Buffer {
        buffer: Buffer<u8>,
        scalar: Option<Scalar>,
        /// Contents before a launch, if the kernel may write it.
        before: Option<Vec<u8>>,
    },
}

impl Launch {
    /// Copies the arguments to the device's memory.
    ///
    /// # Safety
    /// Launches over the grid must be valid with these arguments in threadgroups of any size ([`Kernel::launch`]): they have the sizes that the kernel's
    /// definition requires.
    ///
    /// # Errors
    /// `InvalidArgument` for another number of arguments than the kernel's; others of the runtime.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn new(device: &Device, kernel: Kernel, threads: Size, given: Vec<Given>) -> Result<Self> {
        let declared = kernel.signature().args.clone();
        if declared.len() != given.len() {
            let (name, count) = (&kernel.signature().name, declared.len());
            let why = format!("kernel `{name}` has {count} parameters, the launch {}", given.len());
            return Err(Error::InvalidArgument(why));
        }
        let mut args = Vec::new();
        for (declared, given) in declared.iter().zip(given) {
            let scalar = match &declared.element {
                ElementType::Scalar(scalar) | ElementType::Atomic(scalar) => Some(*scalar),
                ElementType::Vector { scalar, .. } => Some(*scalar),
                _ => None,
            };
            args.push(match given {
                Given::Value(bytes) => Held::Value(bytes),
                Given::Memory(bytes) => {
                    let buffer = device.buffer_with_data(&bytes)?;
                    let before = (declared.access != Access::Read).then_some(bytes);
                    Held::Buffer { buffer, scalar, before }
                }
            });
        }
        Ok(Self { kernel, threads, stream: device.stream()?, args })
    }

    /// Compiles the code for these sizes.
    ///
    /// # Errors
    /// Of the runtime.
    pub fn prepare(&self, sizes: &[Size]) -> Result<()> {
        let pending: Vec<_> = sizes.iter().map(|size| self.kernel.prepare_async(*size)).collect();
        pending.into_iter().try_for_each(|compilation| compilation.wait())
    }

    /// Launches it `count` times in one submission, and returns the duration in nanoseconds.
    ///
    /// # Errors
    /// Of the runtime.
    #[allow(unsafe_code)] // launches
    pub fn run(&mut self, group: Size, count: u64) -> Result<u64> {
        let grid = Grid::threads(self.threads).group(group);
        let args = self.args();
        let mut commands = self.stream.command_buffer();
        for _ in 0..count {
            // SAFETY: whoever made `self` vouches for it.
            unsafe { commands.launch(&self.kernel, grid.clone(), &args) }?;
        }
        let timing = commands.submit()?.wait()?;
        Ok(timing.end_ns - timing.start_ns)
    }

    /// The size that [`Kernel::tune_with`] measures.
    ///
    /// # Errors
    /// Of the runtime.
    #[allow(unsafe_code)] // launches
    pub fn tune(&mut self) -> Result<Size> {
        let args = self.args();
        let grid = Grid::threads(self.threads);
        // SAFETY: as above.
        let found = unsafe { self.kernel.tune_with(&self.stream, grid, &args, Tuning::Measured) }?;
        Ok(sides(&found))
    }

    /// What one launch writes, from the same contents each time: the buffers that the kernel may write.
    ///
    /// # Errors
    /// Of the runtime.
    pub fn results(&mut self, group: Size) -> Result<Vec<Vec<u8>>> {
        self.restore()?;
        self.run(group, 1)?;
        self.written()
    }

    /// [`Launch::results`] of the kernel with bounds checks.
    ///
    /// # Errors
    /// `Fault` for an access out of bounds; others of the runtime.
    pub fn checked_results(&mut self, kernel: &CheckedKernel, group: Size) -> Result<Vec<Vec<u8>>> {
        self.restore()?;
        let grid = Grid::threads(self.threads).group(group);
        let args = self.args();
        kernel.launch(&self.stream, grid, args)?.wait()?;
        self.written()
    }

    /// The first difference between what launches in threadgroups of these sizes and of `usual` write, of all bytes; or that they write nothing.
    ///
    /// # Errors
    /// Of the runtime.
    pub fn difference(&mut self, usual: Size, sizes: &[Size]) -> Result<Option<String>> {
        let name = self.kernel.signature().name.clone();
        let expected = self.results(usual)?;
        let before = self.args.iter().filter_map(|held| match held {
            Held::Buffer { before, .. } => before.as_ref(),
            Held::Value(_) => None,
        });
        if before.eq(&expected) {
            return Ok(Some(format!("{name}: a launch writes nothing")));
        }
        for size in sizes.iter().filter(|size| **size != usual) {
            for (which, (ours, expected)) in self.results(*size)?.iter().zip(&expected).enumerate() {
                if let Some(byte) = ours.iter().zip(expected).position(|(a, b)| a != b) {
                    let (size, usual) = (size_text(*size), size_text(usual));
                    let place = format!("byte {byte} of written argument {which}");
                    return Ok(Some(format!(
                        "{name}: {place} differs between threadgroups of {size} and {usual}"
                    )));
                }
            }
        }
        Ok(None)
    }

    /// [`Launch::run`] from the first contents: the time of a kernel that works in place may depend on them, such as on denormal numbers.
    ///
    /// # Errors
    /// Of the runtime.
    pub fn run_afresh(&mut self, group: Size, count: u64) -> Result<u64> {
        self.restore()?;
        self.run(group, count)
    }

    /// Gives the buffers that the kernel may write their first contents.
    pub(crate) fn restore(&mut self) -> Result<()> {
        for held in &mut self.args {
            if let Held::Buffer { buffer, before: Some(before), .. } = held {
                buffer.write(before)?;
            }
        }
        Ok(())
    }

    fn written(&self) -> Result<Vec<Vec<u8>>> {
        let written = self.args.iter().filter_map(|held| match held {
            Held::Buffer { buffer, before: Some(_), .. } => Some(buffer.to_vec()),
            _ => None,
        });
        written.collect()
    }

    fn args(&mut self) -> Vec<Arg> {
        let arg = |held: &mut Held| match held {
            Held::Value(bytes) => Arg::bytes(bytes.clone()),
            Held::Buffer { buffer, scalar, before } => {
                let arg = if before.is_some() { Arg::from(buffer) } else { Arg::from(&*buffer) };
                scalar.map_or_else(|| arg.clone(), |scalar| arg.clone().of(scalar))
            }
        };
        self.args.iter_mut().map(arg).collect()
    }
}
