//! [`Execution`]: a range of an indirect command buffer's commands with what they use, and its way to the driver.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use elinvar_driver::indirect::{MAX_COMMAND_BUFFERS, expect_command_kernel};
use elinvar_driver::{
    Access, Binding, Command, CommandRange, CommandRecord, Error, ExecuteCommands, InheritedBuffer, Label,
    Result, Use,
};

use crate::indirect::IndirectCommandBuffer;
use crate::launch::args::{ArgList, Value};
use crate::memory::memory_effects::{COMMANDS, INHERITED, RANGE, USED};
use crate::memory::operands::no_address;
use crate::memory::span::Span;
use crate::memory::usage::{Access as Usages, Usage, Who};
use crate::observe::trace::TraceStep;
use crate::{Arg, Args, Buffer, BufferSlice, CheckedKernel, CommandBuffer, Completion, Kernel, Stream};

/// Which commands are executed: a range, or a buffer or slice with two `u32`, the first command and the number of commands, which the device
/// reads when the execution begins.
#[derive(Clone)]
pub struct CommandSpan(Source);

#[derive(Clone)]
enum Source {
    Known(Range<u32>),
    Memory(Span),
}

impl From<Range<u32>> for CommandSpan {
    fn from(range: Range<u32>) -> Self {
        Self(Source::Known(range))
    }
}

impl From<&Buffer<u32>> for CommandSpan {
    fn from(words: &Buffer<u32>) -> Self {
        Self(Source::Memory(words.span.clone()))
    }
}

impl From<BufferSlice<'_, u32>> for CommandSpan {
    fn from(words: BufferSlice<'_, u32>) -> Self {
        Self(Source::Memory(words.span))
    }
}

impl fmt::Debug for CommandSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Known(range) => write!(f, "{range:?}"),
            Source::Memory(span) => write!(f, "range in {span:?}"),
        }
    }
}

/// The execution of a range of commands; see [`IndirectCommandBuffer::execution`].
#[derive(Clone)]
pub struct Execution<'a> {
    commands: &'a IndirectCommandBuffer,
    span: CommandSpan,
    uses: ArgList,
    kernel: Option<(Kernel, bool)>,
    buffers: Vec<(u32, Arg)>,
    label: Option<Arc<Label>>,
}

impl IndirectCommandBuffer {
    /// An execution of a range of commands, to be passed to [`Stream::execute_commands`].
    pub fn execution(&self, range: impl Into<CommandSpan>) -> Execution<'_> {
        Execution {
            commands: self,
            span: range.into(),
            uses: ArgList::new(),
            kernel: None,
            buffers: Vec::new(),
            label: None,
        }
    }
}

impl Execution<'_> {
    /// Adds buffers or slices that the commands have as arguments, or reach through an address (`useResource` in Metal): `&buffer` if
    /// kernels only read it, `&mut buffer` otherwise. A command with another address is a fault.
    #[must_use]
    pub fn uses(mut self, buffers: impl Args) -> Self {
        self.uses.extend(buffers.into_args());
        self
    }

    /// The kernel of all commands, if they inherit it.
    #[must_use]
    pub fn kernel(mut self, kernel: &Kernel) -> Self {
        self.kernel = Some((kernel.clone(), false));
        self
    }

    /// As [`Execution::kernel`], with bounds checks.
    #[must_use]
    pub fn checked_kernel(mut self, kernel: &CheckedKernel) -> Self {
        self.kernel = Some((kernel.kernel.clone(), true));
        self
    }

    /// `[[buffer(index)]]` of all commands, if they inherit buffers: a buffer, a slice, or a value.
    #[must_use]
    pub fn buffer(mut self, index: u32, buffer: impl Into<Arg>) -> Self {
        self.buffers.push((index, buffer.into()));
        self
    }

    /// Labels the execution: faults of its commands show name and number.
    #[must_use]
    pub fn labeled(mut self, name: impl Into<String>, id: u64) -> Self {
        self.label = Some(Arc::new(Label { name: name.into(), id }));
        self
    }

    fn expect_checked(&self) -> Result<()> {
        let own = self.commands.is_checked;
        if own && self.kernel.as_ref().is_none_or(|(_, is_checked)| *is_checked) {
            return Ok(());
        }
        Err(Error::invalid(
            "execute_checked: the commands' kernels have no bounds checks; create the indirect command buffer with `checked`",
        ))
    }

    /// The command, and the memory that it uses.
    fn build(&self) -> Result<(ExecuteCommands, Vec<Usage>)> {
        let (commands, device) = (self.commands, self.commands.device());
        let descriptor = commands.descriptor;
        let refuse = |why: String| Err(Error::invalid(format!("execute_commands: {why}")));
        let mut usages = vec![used(&commands.memory.span, Usages::Read, COMMANDS)];
        let range = match &self.span.0 {
            Source::Known(range) => {
                commands.range(range)?;
                CommandRange::Known(range.clone())
            }
            Source::Memory(span) => {
                device.expect_same(&span.storage.device, || "execute_commands: the range is".into())?;
                if span.len < CommandRange::BYTES {
                    return refuse(format!("the range has two u32, the buffer has {} bytes", span.len));
                }
                usages.push(used(span, Usages::Read, RANGE));
                CommandRange::Indirect(span.memory_slice())
            }
        };
        let mut uses = Vec::with_capacity(self.uses.len());
        for arg in &self.uses {
            let (Value::Memory { span, writable, .. } | Value::Use(Some((span, writable)))) = &arg.value
            else {
                return refuse("uses what is not a buffer".into());
            };
            device.expect_same(&span.storage.device, || "execute_commands: a used buffer is".into())?;
            if span.storage.block.memory.gpu_address().is_none() {
                return Err(no_address(device));
            }
            let (access, usage) = accesses(*writable);
            uses.push(Use { slice: span.memory_slice(), access });
            usages.push(used(span, usage, USED));
        }
        if self.kernel.is_some() != descriptor.inherits_kernel() {
            return refuse(match &self.kernel {
                Some((kernel, _)) => {
                    format!("given kernel `{}`, but the commands have their own", kernel.signature().name)
                }
                None => "the commands inherit the kernel, and the execution has none".into(),
            });
        }
        if let Some((kernel, _)) = &self.kernel {
            let name = &kernel.signature().name;
            device.expect_same(&kernel.device, || format!("execute_commands: kernel `{name}` is"))?;
            expect_command_kernel(&*kernel.pipeline, false)?;
        }
        if !self.buffers.is_empty() && !descriptor.inherits_buffers() {
            return refuse("given a buffer, but the commands have their own".into());
        }
        let mut buffers = Vec::with_capacity(self.buffers.len());
        for (index, arg) in &self.buffers {
            if *index >= MAX_COMMAND_BUFFERS {
                return refuse(format!("buffer {index}; the index must be 0 to {}", MAX_COMMAND_BUFFERS - 1));
            }
            let (binding, access) = match &arg.value {
                Value::Memory { span, writable, .. } => {
                    device.expect_same(&span.storage.device, || {
                        format!("execute_commands: buffer {index} is")
                    })?;
                    let (access, usage) = accesses(*writable);
                    usages.push(used(span, usage, INHERITED));
                    (Binding::Memory(span.memory_slice()), access)
                }
                Value::Bytes { bytes, .. } => (Binding::Bytes(bytes.clone()), Access::Read),
                _ => return refuse(format!("buffer {index} is neither a buffer nor a value")),
            };
            buffers.push(InheritedBuffer { index: *index, binding, access });
        }
        let execution = ExecuteCommands {
            commands: commands.memory.span.memory_slice(),
            capacity: commands.len(),
            max_buffers: descriptor.max_buffers(),
            pipelines: commands.pipelines.clone(),
            range,
            pipeline: self.kernel.as_ref().map(|(kernel, _)| kernel.pipeline.clone()),
            buffers: descriptor.inherits_buffers().then_some(buffers),
            uses,
            max_threadgroup_memory: device.caps().limits.max_threadgroup_memory,
            label: self.label.clone(),
        };
        Ok((execution, usages))
    }
}

impl fmt::Debug for Execution<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Execution({:?} of {:?})", self.span, self.commands)
    }
}

fn accesses(writable: bool) -> (Access, Usages) {
    if writable { (Access::ReadWrite, Usages::Write) } else { (Access::Read, Usages::Read) }
}

fn used(span: &Span, access: Usages, name: &'static str) -> Usage {
    Usage { storage: span.storage.clone(), who: Who::Operation(name), access, covers: false }
}

impl Stream {
    /// Executes commands of an indirect command buffer, behind the stream's pending work. Does not block.
    ///
    /// # Safety
    /// As [`Kernel::launch`], for every command that runs. The driver validates commands: what is not a valid command is a fault.
    ///
    /// # Errors
    /// As [`CommandBuffer::execute_commands`] and [`CommandBuffer::submit`].
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn execute_commands(&self, execution: &Execution<'_>) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        // SAFETY: the caller vouches for the same.
        unsafe { command_buffer.execute_commands(execution) }?;
        command_buffer.submit()
    }

    /// Executes commands whose kernels have bounds checks ([`IndirectCommandBuffer::checked`]).
    ///
    /// # Errors
    /// As [`Stream::execute_commands`]; `InvalidArgument` for kernels without checks.
    pub fn execute_checked(&self, execution: &Execution<'_>) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.execute_checked(execution)?;
        command_buffer.submit()
    }

    /// Makes commands empty, behind the stream's pending work.
    ///
    /// # Errors
    /// As [`CommandBuffer::reset_commands`] and [`CommandBuffer::submit`].
    pub fn reset_commands(
        &self,
        commands: &mut IndirectCommandBuffer,
        range: Range<u32>,
    ) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.reset_commands(commands, range)?;
        command_buffer.submit()
    }

    /// Copies commands to another indirect command buffer, behind the stream's pending work.
    ///
    /// # Errors
    /// As [`CommandBuffer::copy_commands`] and [`CommandBuffer::submit`].
    pub fn copy_commands(
        &self,
        source: &IndirectCommandBuffer,
        range: Range<u32>,
        target: &mut IndirectCommandBuffer,
        first: u32,
    ) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.copy_commands(source, range, target, first)?;
        command_buffer.submit()
    }
}

impl CommandBuffer {
    /// Adds the execution of commands. Each is read and validated when its turn comes; a command that is invalid ends the execution in
    /// [`Error::Fault`], which names command, kernel and argument.
    ///
    /// # Safety
    /// As [`Stream::execute_commands`].
    ///
    /// # Errors
    /// `InvalidArgument` for a range that is out of range, a kernel or buffer that is missing, or not inherited, or of another device.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn execute_commands(&mut self, execution: &Execution<'_>) -> Result<()> {
        let recorded = self.record_execution(execution);
        self.noted(recorded)
    }

    /// Adds the execution of commands whose kernels have bounds checks.
    ///
    /// # Errors
    /// As [`Stream::execute_checked`].
    #[allow(unsafe_code)] // calls the unchecked execution
    pub fn execute_checked(&mut self, execution: &Execution<'_>) -> Result<()> {
        let checked = execution.expect_checked();
        self.noted(checked)?;
        // SAFETY: the driver validates the commands, and the checks keep every access within the memory of their arguments, which the
        // execution uses.
        unsafe { self.execute_commands(execution) }
    }

    fn record_execution(&mut self, execution: &Execution<'_>) -> Result<()> {
        let ours = self.device().clone();
        ours.expect_here("execute_commands")?;
        ours.expect_same(execution.commands.device(), || {
            "execute_commands: the indirect command buffer is".into()
        })?;
        let (command, usages) = execution.build()?;
        let label = command.label.clone();
        self.push(Command::ExecuteCommands(Box::new(command)), usages, TraceStep::ExecuteCommands { label });
        Ok(())
    }

    /// Adds a reset: commands become empty.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that is out of range, or an indirect command buffer of another device.
    pub fn reset_commands(&mut self, commands: &mut IndirectCommandBuffer, range: Range<u32>) -> Result<()> {
        let records = commands.range(&range)?;
        self.fill(commands.memory.slice_mut(records)?, 0_u8)?;
        self.fill(commands.memory.slice_mut(IndirectCommandBuffer::BEYOND)?, 0_u8)
    }

    /// Adds a copy of commands to another indirect command buffer, or to other commands of the same one, from command `first` on. Both must have
    /// the same kernels and inherit the same.
    ///
    /// # Errors
    /// `InvalidArgument` for ranges that are out of range, and indirect command buffers that differ in kernels or descriptor.
    pub fn copy_commands(
        &mut self,
        source: &IndirectCommandBuffer,
        range: Range<u32>,
        target: &mut IndirectCommandBuffer,
        first: u32,
    ) -> Result<()> {
        let from = source.range(&range)?;
        let to = target.range(&(first..first.saturating_add(range.end - range.start)))?;
        let same_kernels = source.pipelines.len() == target.pipelines.len()
            && source
                .pipelines
                .iter()
                .zip(target.pipelines.iter())
                .all(|(one, other)| Arc::ptr_eq(one, other));
        if !same_kernels || !source.descriptor.matches(&target.descriptor) {
            return Err(Error::invalid(
                "copy_commands: the indirect command buffers differ in their kernels, numbers of buffers, or what they inherit",
            ));
        }
        debug_assert_eq!(from.len() % CommandRecord::BYTES as usize, 0);
        self.copy(source.memory.slice(from)?, target.memory.slice_mut(to)?)
    }
}
