//! [`Launch`]: a kernel with its arguments in a device's memory, to be launched in threadgroups of any size.

use elinvar::driver::{Access, ElementType, Scalar};
use elinvar::{Arg, Buffer, Device, Error, Grid, Kernel, Stream, Tuning};

use super::{Size, sides, size_text};
use crate::bench::cpu::problem::Argument;
use crate::failure::Result;

/// An argument of a launch.
pub enum Given {
    /// Bytes of one or a few values.
    Value(Vec<u8>),
    /// Contents of a buffer.
    Memory(Vec<u8>),
}

impl Given {
    /// The argument of a benchmark's problem.
    pub fn of(argument: &Argument) -> Self {
        let bytes = argument.raw().to_vec();
        match argument {
            Argument::Float(_) | Argument::Word(_) => Self::Value(bytes),
            _ => Self::Memory(bytes),
        }
    }
}

/// A kernel with its arguments, which all sizes share.
pub struct Launch {
    pub kernel: Kernel,
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
    pub fn new(device: &Device, kernel: Kernel, threads: Size, given: Vec<Given>) -> Result<Self> {
        let declared = kernel.signature().args.clone();
        if declared.len() != given.len() {
            let (name, count) = (&kernel.signature().name, declared.len());
            let why = format!("kernel `{name}` has {count} parameters, the benchmark {}", given.len());
            return Err(Error::InvalidArgument(why).into());
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
    pub fn prepare(&self, sizes: &[Size]) -> Result<()> {
        let pending: Vec<_> = sizes.iter().map(|size| self.kernel.prepare_async(*size)).collect();
        Ok(pending.into_iter().try_for_each(|compilation| compilation.wait())?)
    }

    /// Launches it `count` times in one submission, and returns the duration.
    #[allow(unsafe_code)] // launches
    pub fn run(&mut self, group: Size, count: u64) -> Result<u64> {
        let grid = Grid::threads(self.threads).group(group);
        let args = self.args();
        let mut commands = self.stream.command_buffer();
        for _ in 0..count {
            // SAFETY: the arguments have the sizes that the kernel's definition requires.
            unsafe { commands.launch(&self.kernel, grid.clone(), &args) }?;
        }
        let timing = commands.submit()?.wait()?;
        Ok(timing.end_ns - timing.start_ns)
    }

    /// The size that [`Kernel::tune_with`] measures.
    #[allow(unsafe_code)] // launches
    pub fn tune(&mut self) -> Result<Size> {
        let args = self.args();
        let grid = Grid::threads(self.threads);
        // SAFETY: as above.
        let found = unsafe { self.kernel.tune_with(&self.stream, grid, &args, Tuning::Measured) }?;
        Ok(sides(&found))
    }

    /// What one launch writes, from the same contents each time: the buffers that the kernel may write.
    pub fn results(&mut self, group: Size) -> Result<Vec<Vec<u8>>> {
        for held in &mut self.args {
            if let Held::Buffer { buffer, before: Some(before), .. } = held {
                buffer.write(before)?;
            }
        }
        self.run(group, 1)?;
        let written = self.args.iter().filter_map(|held| match held {
            Held::Buffer { buffer, before: Some(_), .. } => Some(buffer.to_vec()),
            _ => None,
        });
        Ok(written.collect::<elinvar::Result<_>>()?)
    }

    /// Compares each byte that launches in threadgroups of these sizes write with what threadgroups of `usual` write.
    ///
    /// # Errors
    /// `DeviceLost` if results differ, or if no buffer changes.
    pub fn expect_same(&mut self, usual: Size, sizes: &[Size]) -> Result<()> {
        let name = self.kernel.signature().name.clone();
        let expected = self.results(usual)?;
        let before = self.args.iter().filter_map(|held| match held {
            Held::Buffer { before, .. } => before.as_ref(),
            Held::Value(_) => None,
        });
        if before.eq(&expected) {
            return Err(Error::DeviceLost(format!("{name}: a launch writes nothing")).into());
        }
        for size in sizes.iter().filter(|size| **size != usual) {
            for (which, (ours, expected)) in self.results(*size)?.iter().zip(&expected).enumerate() {
                if let Some(byte) = ours.iter().zip(expected).position(|(a, b)| a != b) {
                    let (size, usual) = (size_text(*size), size_text(usual));
                    let place = format!("byte {byte} of written argument {which}");
                    let why = format!("{name}: {place} differs between threadgroups of {size} and {usual}");
                    return Err(Error::DeviceLost(why).into());
                }
            }
        }
        Ok(())
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
