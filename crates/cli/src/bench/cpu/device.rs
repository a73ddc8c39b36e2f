//! A problem on an Elinvar device: buffers, one submission of many dispatches, timed by the device's clock.

use elinvar::{Arg, Buffer, Device, Grid, Kernel, KernelOptions, Stream, Tier};

use super::super::carried::compile;
use super::Contestant;
use super::problem::{Argument, Problem};
use crate::failure::Result;

pub struct OnDevice {
    kernel: Kernel,
    stream: Stream,
    grid: Grid,
    args: Vec<Held>,
}

/// An argument in the device's memory.
enum Held {
    Floats(Buffer<f32>),
    Words(Buffer<u32>),
    Bytes(Buffer<u8>),
    Quads(Buffer<[f32; 4]>),
    Float(f32),
    Word(u32),
}

impl OnDevice {
    pub fn new(device: &Device, problem: &Problem) -> Result<Self> {
        let library = compile(device, format!("{}.metal", problem.file), problem.metal)?;
        let kernel = library.kernel_with(problem.kernel, KernelOptions::new().tier(Tier::Optimized))?;
        Self::with(device, kernel, problem.threads, problem.group, &problem.args)
    }

    /// A kernel with its own copy of the data.
    pub fn with(
        device: &Device,
        kernel: Kernel,
        threads: [usize; 3],
        group: [usize; 3],
        args: &[Argument],
    ) -> Result<Self> {
        let hold = |argument: &Argument| -> Result<Held> {
            Ok(match argument {
                Argument::Floats(values) => Held::Floats(device.buffer_with_data(values)?),
                Argument::Words(values) => Held::Words(device.buffer_with_data(values)?),
                Argument::Bytes(values) => Held::Bytes(device.buffer_with_data(values)?),
                Argument::Quads(values) => Held::Quads(device.buffer_with_data(values)?),
                Argument::Float(value) => Held::Float(*value),
                Argument::Word(value) => Held::Word(*value),
            })
        };
        Ok(Self {
            kernel,
            stream: device.stream()?,
            grid: Grid::threads(threads).group(group),
            args: args.iter().map(hold).collect::<Result<_>>()?,
        })
    }
}

impl OnDevice {
    pub fn args(&mut self) -> Vec<Arg> {
        self.args.iter_mut().map(Held::arg).collect()
    }
}

impl Contestant for OnDevice {
    #[allow(unsafe_code)] // launches
    fn run(&mut self, iterations: u64) -> Result<u64> {
        let args = self.args();
        let mut commands = self.stream.command_buffer();
        for _ in 0..iterations {
            // SAFETY: the sizes of a problem are those of its kernel's arguments.
            unsafe { commands.launch(&self.kernel, self.grid.clone(), &args) }?;
        }
        let timing = commands.submit()?.wait()?;
        Ok(timing.end_ns - timing.start_ns)
    }

    fn arguments(&self) -> Result<Vec<Argument>> {
        self.args.iter().map(Held::argument).collect()
    }
}

impl Held {
    fn arg(&mut self) -> Arg {
        match self {
            Self::Floats(buffer) => buffer.into(),
            Self::Words(buffer) => buffer.into(),
            Self::Bytes(buffer) => buffer.into(),
            Self::Quads(buffer) => buffer.into(),
            Self::Float(value) => (*value).into(),
            Self::Word(value) => (*value).into(),
        }
    }

    fn argument(&self) -> Result<Argument> {
        Ok(match self {
            Self::Floats(buffer) => Argument::Floats(buffer.to_vec()?),
            Self::Words(buffer) => Argument::Words(buffer.to_vec()?),
            Self::Bytes(buffer) => Argument::Bytes(buffer.to_vec()?),
            Self::Quads(buffer) => Argument::Quads(buffer.to_vec()?),
            Self::Float(value) => Argument::Float(*value),
            Self::Word(value) => Argument::Word(*value),
        })
    }
}
