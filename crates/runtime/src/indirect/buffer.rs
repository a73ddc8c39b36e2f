//! [`IndirectCommandBuffer`]: its memory, its kernels, and commands that the host encodes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use elinvar_driver::indirect::{MAX_COMMAND_BUFFERS, expect_command_kernel};
use elinvar_driver::{CommandHeader, CommandRecord, Dim3, Error, ExecuteCommands, Pipeline, Result};

use crate::launch::args::{Element, Value};
use crate::launch::grid::checked;
use crate::{Arg, Buffer, CheckedKernel, Device, Extent, Kernel};

/// Properties of an [`IndirectCommandBuffer`] (`MTLIndirectCommandBufferDescriptor`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndirectCommandBufferDescriptor {
    commands: u32,
    buffers: u32,
    inherits_buffers: bool,
    inherits_kernel: bool,
}

impl IndirectCommandBufferDescriptor {
    /// A buffer for `commands` commands, each of which can set any buffer.
    pub const fn new(commands: u32) -> Self {
        Self { commands, buffers: MAX_COMMAND_BUFFERS, inherits_buffers: false, inherits_kernel: false }
    }

    /// Sets the number of buffers that a command can set, at most 31: `buffer(0)` to `buffer(count - 1)` (`maxKernelBufferBindCount`).
    #[must_use]
    pub const fn buffers(mut self, count: u32) -> Self {
        self.buffers = count;
        self
    }

    /// The commands have the buffers of the execution, and cannot set their own (`inheritBuffers`).
    #[must_use]
    pub const fn inherit_buffers(mut self) -> Self {
        self.inherits_buffers = true;
        self
    }

    /// The commands have the kernel of the execution, and cannot set their own (`inheritPipelineState`).
    #[must_use]
    pub const fn inherit_kernel(mut self) -> Self {
        self.inherits_kernel = true;
        self
    }

    /// The header of a buffer with so many kernels.
    fn header(&self, kernels: usize) -> CommandHeader {
        let flag = |set, flag| if set { flag } else { 0 };
        CommandHeader {
            capacity: self.commands,
            max_buffers: self.buffers,
            flags: flag(self.inherits_buffers, CommandHeader::INHERITS_BUFFERS)
                | flag(self.inherits_kernel, CommandHeader::INHERITS_PIPELINE),
            pipelines: u32::try_from(kernels).unwrap_or(u32::MAX),
            ..CommandHeader::default()
        }
    }

    pub(crate) const fn max_buffers(&self) -> u32 {
        self.buffers
    }

    pub(crate) const fn inherits_buffers(&self) -> bool {
        self.inherits_buffers
    }

    pub(crate) const fn inherits_kernel(&self) -> bool {
        self.inherits_kernel
    }

    /// Whether commands with one can be copied to those with the other.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        *self == Self { commands: self.commands, ..*other }
    }
}

/// Launches in device memory (`MTLIndirectCommandBuffer`): encoded by the host with [`IndirectCommandBuffer::command`], or by a kernel with
/// MSL's `compute_command`; executed by [`Stream::execute_commands`](crate::Stream::execute_commands).
///
/// A new one has empty commands only. Commands remain when they have been executed. A kernel that encodes has the
/// [handle](IndirectCommandBuffer::handle) in an argument buffer, and uses the indirect command buffer ([`Arg::use_resource`]).
///
/// ```no_run
/// # fn main() -> elinvar::Result<()> {
/// use elinvar::{Arg, Device, Grid, IndirectCommandBuffer, IndirectCommandBufferDescriptor, Source};
///
/// let device = Device::system_default()?;
/// let library = device.compile(Source::msl(
///     "#include <metal_stdlib>
///      using namespace metal;
///      struct Commands { command_buffer commands; compute_pipeline_state add; };
///      kernel void encode(constant Commands& c, device float* x, uint i [[thread_position_in_grid]]) {
///          compute_command command(c.commands, i);
///          command.set_compute_pipeline_state(c.add);
///          command.set_kernel_buffer(x + i, 0);
///          command.concurrent_dispatch_threads(uint3(4 - i, 1, 1), uint3(32, 1, 1));
///      }
///      kernel void add(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }",
/// ))?;
/// let (encode, add) = (library.kernel("encode")?, library.kernel("add")?);
/// let mut commands = IndirectCommandBuffer::new(&device, IndirectCommandBufferDescriptor::new(4), &[&add])?;
/// let mut x = device.buffer::<f32>(4)?;
/// let stream = device.stream()?;
/// let arguments = [commands.handle()?, commands.number(&add)?];
/// // SAFETY: `encode` encodes four commands, which stay within `x`.
/// unsafe {
///     encode.launch(&stream, Grid::threads(4), (Arg::value(&arguments), &mut x, Arg::use_resource(&mut commands)))?;
///     stream.execute_commands(&commands.execution(0..4).uses((&mut x,)))?;
/// }
/// assert_eq!(x.to_vec()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok(())
/// # }
/// ```
pub struct IndirectCommandBuffer {
    pub(crate) descriptor: IndirectCommandBufferDescriptor,
    pub(crate) memory: Buffer<u8>,
    /// In the order of their numbers.
    pub(crate) pipelines: Arc<[Arc<dyn Pipeline>]>,
    /// Whether all kernels have bounds checks.
    pub(crate) is_checked: bool,
}

impl IndirectCommandBuffer {
    /// Creates an indirect command buffer whose commands launch these kernels; none if commands inherit the kernel.
    ///
    /// # Errors
    /// `InvalidArgument` for a descriptor that is out of range, and a kernel of another device; `Unsupported` with the reason on a device
    /// that does not execute commands, and for a kernel with a grid barrier, an inbox, a queue or a `visible_function_table`.
    pub fn new(
        device: &Device,
        descriptor: IndirectCommandBufferDescriptor,
        kernels: &[&Kernel],
    ) -> Result<Self> {
        Self::with(device, descriptor, kernels, false)
    }

    /// As [`IndirectCommandBuffer::new`], for kernels with bounds checks; executing the commands is safe
    /// ([`Stream::execute_checked`](crate::Stream::execute_checked)).
    ///
    /// # Errors
    /// As [`IndirectCommandBuffer::new`].
    pub fn checked(
        device: &Device,
        descriptor: IndirectCommandBufferDescriptor,
        kernels: &[&CheckedKernel],
    ) -> Result<Self> {
        let kernels: Vec<&Kernel> = kernels.iter().map(|checked| &checked.kernel).collect();
        Self::with(device, descriptor, &kernels, true)
    }

    fn with(
        device: &Device,
        descriptor: IndirectCommandBufferDescriptor,
        kernels: &[&Kernel],
        is_checked: bool,
    ) -> Result<Self> {
        device.driver().expect_executes_commands()?;
        let refuse = |why: String| Err(Error::invalid(format!("indirect command buffer: {why}")));
        let IndirectCommandBufferDescriptor { commands, buffers, inherits_kernel, .. } = descriptor;
        if commands == 0 || buffers > MAX_COMMAND_BUFFERS {
            return refuse(format!(
                "{commands} commands with {buffers} buffers; at least 1 with 0 to {MAX_COMMAND_BUFFERS}"
            ));
        }
        if kernels.is_empty() != inherits_kernel {
            return refuse(format!(
                "{} kernels given; commands that inherit the kernel need none, others at least one",
                kernels.len()
            ));
        }
        for kernel in kernels {
            let name = &kernel.signature().name;
            device.expect_same(&kernel.device, || format!("indirect command buffer: kernel `{name}` is"))?;
            expect_command_kernel(&*kernel.pipeline, false)?;
        }
        let bytes = usize::try_from(ExecuteCommands::bytes(commands)).unwrap_or(usize::MAX);
        let mut memory = device.buffer::<u8>(bytes)?;
        let head = descriptor.header(kernels.len()).to_bytes();
        memory.slice_mut(0..head.len())?.write(&head)?;
        let pipelines = kernels.iter().map(|kernel| kernel.pipeline.clone()).collect();
        Ok(Self { descriptor, memory, pipelines, is_checked })
    }

    /// Number of commands.
    pub fn len(&self) -> u32 {
        self.descriptor.commands
    }

    /// Always false: there is at least one command, which may be empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    /// Value of a `command_buffer` in an argument buffer.
    ///
    /// # Errors
    /// `Unsupported` if the device has no addresses.
    pub fn handle(&self) -> Result<u64> {
        self.memory.gpu_address()
    }

    /// Value of a `compute_pipeline_state` in an argument buffer: the number of a kernel, from 1.
    ///
    /// # Errors
    /// `InvalidArgument` if the indirect command buffer does not have the kernel.
    pub fn number(&self, kernel: &Kernel) -> Result<u64> {
        let at = self.pipelines.iter().position(|pipeline| Arc::ptr_eq(pipeline, &kernel.pipeline));
        at.map(|at| at as u64 + 1).ok_or_else(|| {
            let name = &kernel.signature().name;
            Error::invalid(format!("indirect command buffer: kernel `{name}` is not among its kernels"))
        })
    }

    /// Encodes a command from the host. Nothing is written before the call of [`HostCommand::dispatch_threads`] or
    /// [`HostCommand::dispatch_threadgroups`].
    ///
    /// # Errors
    /// `InvalidArgument` for an index that is out of range.
    pub fn command(&mut self, index: u32) -> Result<HostCommand<'_>> {
        self.range(&(index..index.saturating_add(1)))?;
        Ok(HostCommand { index, record: CommandRecord::empty(), of: self })
    }

    /// Makes commands empty, from the host. Waits for pending work that uses the indirect command buffer;
    /// [`Stream::reset_commands`](crate::Stream::reset_commands) does not. Resetting all commands makes it usable again after a kernel that encodes
    /// has failed.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that is out of range; as [`Buffer::fill`].
    pub fn reset(&mut self, range: Range<u32>) -> Result<()> {
        let records = self.range(&range)?;
        if range == (0..self.len()) {
            let mut bytes = self.descriptor.header(self.pipelines.len()).to_bytes().to_vec();
            bytes.resize(self.memory.len(), 0);
            return self.memory.write(&bytes);
        }
        self.memory.slice_mut(records)?.fill(0)?;
        self.memory.slice_mut(Self::BEYOND)?.fill(0)
    }

    /// The command at an index, as host or kernel has encoded it. Waits for pending work that writes the indirect command buffer.
    ///
    /// # Errors
    /// `InvalidArgument` for an index that is out of range; as [`Buffer::read`].
    pub fn record(&self, index: u32) -> Result<CommandRecord> {
        let range = self.range(&(index..index.saturating_add(1)))?;
        Ok(CommandRecord::from_bytes(&self.memory.slice(range)?.to_vec()?))
    }

    /// Overwrites the command at an index with any record; the driver validates it when it is executed. Waits for pending work that uses the
    /// indirect command buffer.
    ///
    /// # Errors
    /// `InvalidArgument` for an index that is out of range; as [`Buffer::write`].
    pub fn write_record(&mut self, index: u32, record: &CommandRecord) -> Result<()> {
        let range = self.range(&(index..index.saturating_add(1)))?;
        self.memory.slice_mut(range)?.write(&record.to_bytes())
    }

    /// Compiles the code that the commands of a range need, with full optimization, so that their execution does not (`optimize` of a blit
    /// encoder in Metal). Waits for pending work that writes the indirect command buffer.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that is out of range, or a command that is invalid; as [`Kernel::prepare`].
    pub fn optimize(&self, range: Range<u32>) -> Result<()> {
        let bytes = self.memory.slice(self.range(&range)?)?.to_vec()?;
        let mut done: Vec<(u32, [u32; 3])> = Vec::new();
        for (index, bytes) in range.zip(bytes.chunks_exact(CommandRecord::BYTES as usize)) {
            let record = CommandRecord::from_bytes(bytes);
            let key = (record.pipeline, record.group);
            if record.kind == CommandRecord::EMPTY || record.pipeline == 0 || done.contains(&key) {
                continue;
            }
            let pipeline = self.pipelines.get(record.pipeline as usize - 1).ok_or_else(|| {
                let (number, count) = (record.pipeline, self.pipelines.len());
                Error::invalid(format!("optimize: command {index} has kernel number {number} of {count}"))
            })?;
            pipeline.prepare(record.group.into())?;
            pipeline.optimize(record.group.into())?;
            done.push(key);
        }
        Ok(())
    }

    /// Bytes of the header's `beyond`.
    pub(crate) const BEYOND: Range<usize> = 16..20;

    /// Bytes of the records of a range.
    pub(crate) fn range(&self, range: &Range<u32>) -> Result<Range<usize>> {
        let (first, end, capacity) = (range.start, range.end, self.len());
        if first > end || end > capacity {
            return Err(Error::invalid(format!(
                "commands {first}..{end} of an indirect command buffer of {capacity} commands"
            )));
        }
        Ok(ExecuteCommands::offset(first) as usize..ExecuteCommands::offset(end) as usize)
    }
}

impl From<&IndirectCommandBuffer> for Arg {
    /// Its memory, for reads.
    fn from(commands: &IndirectCommandBuffer) -> Self {
        (&commands.memory).into()
    }
}

impl From<&mut IndirectCommandBuffer> for Arg {
    /// Its memory, for reads and writes; a kernel that encodes uses it so ([`Arg::use_resource`]).
    fn from(commands: &mut IndirectCommandBuffer) -> Self {
        (&mut commands.memory).into()
    }
}

impl fmt::Debug for IndirectCommandBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.pipelines.iter().map(|pipeline| pipeline.signature().name.as_str()).collect();
        write!(f, "IndirectCommandBuffer({} commands, kernels {names:?})", self.len())
    }
}

/// A command that the host encodes (`MTLIndirectComputeCommand`). It replaces what the command was.
pub struct HostCommand<'a> {
    of: &'a mut IndirectCommandBuffer,
    index: u32,
    record: CommandRecord,
}

impl HostCommand<'_> {
    /// Sets the kernel.
    ///
    /// # Errors
    /// `InvalidArgument` if the indirect command buffer does not have the kernel, or its commands inherit one.
    pub fn kernel(mut self, kernel: &Kernel) -> Result<Self> {
        if self.of.descriptor.inherits_kernel {
            return self.refuse("sets a kernel; the indirect command buffer's commands inherit it");
        }
        self.record.pipeline = self.of.number(kernel)? as u32;
        Ok(self)
    }

    /// As [`HostCommand::kernel`], with bounds checks.
    ///
    /// # Errors
    /// As [`HostCommand::kernel`].
    pub fn checked_kernel(self, kernel: &CheckedKernel) -> Result<Self> {
        self.kernel(&kernel.kernel)
    }

    /// Sets `[[buffer(index)]]` to a buffer or slice, which the execution has to use ([`Execution::uses`](crate::Execution::uses)), or to a
    /// value. The values of a command have at most 128 bytes, each rounded up to a multiple of 16.
    ///
    /// # Errors
    /// `InvalidArgument` for an index that is out of range, an argument that is neither buffer nor value, too large values, a buffer of another
    /// device, or if the commands inherit buffers.
    pub fn buffer(mut self, index: u32, buffer: impl Into<Arg>) -> Result<Self> {
        if self.of.descriptor.inherits_buffers {
            return self.refuse("sets a buffer; the indirect command buffer's commands inherit them");
        }
        let most = self.of.descriptor.buffers;
        if index >= most {
            return self.refuse(format_args!("sets buffer {index} of {most}"));
        }
        let (at, bit) = (index as usize, 1 << index);
        self.record.values_set &= !bit;
        match buffer.into().value {
            Value::Memory { span, .. } => {
                let place = || format!("command {}: buffer {index} is", self.index);
                self.of.device().expect_same(&span.storage.device, place)?;
                self.record.buffers[at] = span.gpu_address()?;
            }
            Value::Bytes { element: Element::Double, .. } => {
                return self.refuse("a value of f64, but MSL has no double; use f32");
            }
            Value::Bytes { bytes, .. } => {
                let first = self.record.payload_bytes as usize;
                let Some(to) = self.record.payload.get_mut(first..first + bytes.len()) else {
                    return self.refuse(format_args!(
                        "its values have more than {} bytes",
                        CommandRecord::PAYLOAD_BYTES
                    ));
                };
                to.copy_from_slice(&bytes);
                self.record.payload_bytes = (first + bytes.len()).next_multiple_of(16) as u32;
                self.record.buffers[at] = first as u64 | (bytes.len() as u64) << 32;
                self.record.values_set |= bit;
            }
            _ => return self.refuse(format_args!("buffer {index} is neither a buffer nor a value")),
        }
        self.record.buffers_set |= bit;
        Ok(self)
    }

    /// Sets the size of `[[threadgroup(index)]]`.
    ///
    /// # Errors
    /// `InvalidArgument` for an index or a size that is out of range.
    pub fn threadgroup_memory(mut self, index: u32, bytes: usize) -> Result<Self> {
        let (Ok(bytes), true) = (u32::try_from(bytes), index < MAX_COMMAND_BUFFERS) else {
            return self.refuse(format_args!("sets threadgroup memory {index} to {bytes} bytes"));
        };
        self.record.lengths[index as usize] = bytes;
        self.record.lengths_set |= 1 << index;
        Ok(self)
    }

    /// The command begins when all commands before it have ended. Without, it may run together with those before it.
    #[must_use]
    pub fn barrier(mut self) -> Self {
        self.record.flags |= CommandRecord::BARRIER;
        self
    }

    /// Encodes a launch over `threads` threads in threadgroups of `group` threads.
    ///
    /// # Errors
    /// `InvalidArgument` for a size that is out of range, or without a kernel.
    pub fn dispatch_threads(self, threads: impl Extent, group: impl Extent) -> Result<()> {
        self.dispatch(CommandRecord::THREADS, threads.sizes(), group.sizes())
    }

    /// Encodes a launch of `groups` threadgroups of `group` threads.
    ///
    /// # Errors
    /// As [`HostCommand::dispatch_threads`].
    pub fn dispatch_threadgroups(self, groups: impl Extent, group: impl Extent) -> Result<()> {
        self.dispatch(CommandRecord::THREADGROUPS, groups.sizes(), group.sizes())
    }

    fn dispatch(mut self, kind: u32, grid: [i128; 3], group: [i128; 3]) -> Result<()> {
        let pipeline =
            (self.record.pipeline as usize).checked_sub(1).and_then(|at| self.of.pipelines.get(at));
        let name = match (pipeline, self.of.descriptor.inherits_kernel) {
            (Some(pipeline), _) => pipeline.signature().name.clone(),
            (None, true) => format!("command {}", self.index),
            (None, false) => return self.refuse("has no kernel"),
        };
        let (grid, group): (Dim3, Dim3) =
            (checked(&name, "grid", grid)?, checked(&name, "threadgroup", group)?);
        let most = pipeline.map_or(self.of.device().caps().limits.max_threads_per_threadgroup, |pipeline| {
            pipeline.max_threads_per_threadgroup()
        });
        if group.volume() == 0 || group.volume() > u128::from(most) {
            return self.refuse(format_args!("threadgroups of {group} threads; 1 to {most} are allowed"));
        }
        if kind == CommandRecord::THREADGROUPS && grid.of_pieces(group).is_none() {
            return self.refuse(format_args!(
                "{grid} threadgroups of {group} threads; at most {} threads along a dimension",
                u32::MAX
            ));
        }
        (self.record.kind, self.record.grid, self.record.group) = (kind, grid.to_array(), group.to_array());
        self.of.write_record(self.index, &self.record)
    }

    fn refuse<T>(&self, why: impl fmt::Display) -> Result<T> {
        Err(Error::invalid(format!("command {}: {why}", self.index)))
    }
}

impl fmt::Debug for HostCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostCommand({} of {:?})", self.index, self.of)
    }
}
