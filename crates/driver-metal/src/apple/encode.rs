//! Translation of commands to Metal calls: the one `match` on [`Command`].
//!
//! Host commands, such as waits, are executed between command buffers, when everything before them has completed. A command buffer holds the
//! commands between two of them. A signal or a timestamp within a command buffer is encoded for the GPU if possible; one at its end is
//! executed by the host, with the end time of the command buffer.

use std::any::Any;

use elinvar_driver::{
    Access, Arg, Binding, Command, Dim3, Dispatch, Error, Grid, MemorySlice, Pipeline as _, Result,
};
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLCommandEncoder as _, MTLCommandQueue, MTLComputeCommandEncoder as _, MTLResourceUsage, MTLSize,
};

use super::buffer::Buffer;
use super::commands;
use super::copies::Copies;
use super::core::Core;
use super::crossing;
use super::encoding::{BufferInfo, CommandBuffer, ComputeEncoder, Encoding, Place};
use super::marks::Marks;
use super::memory::located;
use super::mps;
use super::pipeline::MetalPipeline;
use super::rounds;
use crate::hazards::Touch;

/// Granularity of threadgroup memory, in bytes.
const THREADGROUP_ALIGN: u64 = 16;

/// Encodes commands from `next` on, up to the next host command, and advances `next`. Returns the command buffer to commit; `None` if the
/// device has nothing to do.
pub(super) fn encode(
    core: &Core,
    queue: &ProtocolObject<dyn MTLCommandQueue>,
    marks: &Marks,
    commands: &[Command],
    next: &mut usize,
    info: &mut BufferInfo,
) -> Result<Option<CommandBuffer>> {
    core.expect_present()?;
    // MPS kernels use objects that only the command buffer retains, and do not know the fence.
    let library = together(&commands[*next..]).any(|command| matches!(command, Command::Primitive { .. }));
    let mut encoding = Encoding::new(core, queue, info, library);
    let notes_times = !library && times_within(&commands[*next..]);
    let stamps = if notes_times { marks.stamps(core).filter(|stamps| stamps.has(core, 0)) } else { None };
    let times = stamps.is_some();
    encoding.note_times(stamps);
    while let Some(command) = commands.get(*next) {
        encoding.command = *next;
        match command {
            Command::Dispatch(launch) if rounds::is_for(launch) => break,
            Command::Dispatch(launch) => dispatch(&mut encoding, launch)?,
            Command::Copy { source, target } if source.len != target.len => {
                let (from, to) = (source.len, target.len);
                return Err(Error::invalid(format!("copy of {from} bytes to {to} bytes")));
            }
            Command::Copy { source, target } if crossing::crosses(source, target) => {
                if source.len > 0 {
                    break;
                }
            }
            Command::Copy { source, target } => copy(&mut encoding, source, target)?,
            Command::Fill { target, pattern } => {
                let (buffer, offset) = located(core, target)?;
                encoding.fill(Place { buffer, offset }, target.len as usize, pattern)?;
            }
            Command::Primitive { primitive, operands } => mps::encode(&mut encoding, primitive, operands)?,
            Command::Signal { .. } if encoding.has_begun() && goes_on(&commands[*next..], times) => {
                match marks.signals.as_ref().filter(|_| encoding.ends_as_metal_says()) {
                    Some(signals) => encoding.signal(signals)?,
                    None => break,
                }
            }
            Command::Timestamp { .. } if encoding.has_begun() && goes_on(&commands[*next..], times) => {
                if !encoding.stamp()? {
                    break;
                }
            }
            Command::Signal { .. } | Command::Timestamp { .. } | Command::Wait { .. } => break,
            Command::ExecuteCommands(_) | Command::LaunchNested(_) => break,
            other => return Err(Error::unsupported(format!("the Metal driver has no command {other:?}"))),
        }
        *next += 1;
    }
    Ok(encoding.finish())
}

/// Whether a command is a copy between two devices, which needs its own command buffer.
pub(super) fn crosses(command: &Command) -> bool {
    matches!(command, Command::Copy { source, target } if source.len > 0 && source.len == target.len && crossing::crosses(source, target))
}

/// Whether device work follows signals, or timestamps if `times` are sampled within command buffers.
fn goes_on(commands: &[Command], times: bool) -> bool {
    let behind = commands.iter().find(|command| match command {
        Command::Signal { .. } => false,
        Command::Timestamp { .. } => !times,
        _ => true,
    });
    behind.is_some_and(|command| !is_hosts(command))
}

/// The commands up to the next wait that is behind device work: the commands of one command buffer.
pub(super) fn together(commands: &[Command]) -> impl Iterator<Item = &Command> {
    let behind = commands.iter().skip_while(|command| is_hosts(command));
    behind.take_while(|command| !matches!(command, Command::Wait { .. }))
}

/// Whether a command needs its own command buffer, with nothing behind it before it has succeeded.
pub(super) fn is_alone(command: &Command) -> bool {
    crosses(command) || commands::executes(command) || rounds::is_command(command)
}

/// Whether there is device work on both sides of a timestamp.
pub(super) fn times_within(commands: &[Command]) -> bool {
    within(commands, |command| matches!(command, Command::Timestamp { .. }))
}

/// Whether there is device work on both sides of such a command.
pub(super) fn within(commands: &[Command], is_it: impl Fn(&Command) -> bool) -> bool {
    let mut rest = together(commands).skip_while(|command| !is_it(command));
    rest.any(|command| !is_hosts(command))
}

/// Whether the host executes it.
pub(super) fn is_hosts(command: &Command) -> bool {
    !matches!(
        command,
        Command::Dispatch(_) | Command::Copy { .. } | Command::Fill { .. } | Command::Primitive { .. }
    )
}

fn copy(encoding: &mut Encoding<'_>, source: &MemorySlice, target: &MemorySlice) -> Result<()> {
    let (from, from_offset) = located(encoding.core, source)?;
    let (to, to_offset) = located(encoding.core, target)?;
    let (source, len) = (Place { buffer: from, offset: from_offset }, source.len as usize);
    encoding.copy(source, Place { buffer: to, offset: to_offset }, len)
}

pub(super) fn dispatch(encoding: &mut Encoding<'_>, dispatch: &Dispatch) -> Result<()> {
    let core = encoding.core;
    let pipeline: &dyn Any = &*dispatch.pipeline;
    let pipeline = pipeline.downcast_ref::<MetalPipeline>().filter(|pipeline| pipeline.is_of(core));
    let pipeline = pipeline.ok_or_else(|| {
        let (kernel, device) = (&dispatch.pipeline.signature().name, &core.caps.name);
        Error::invalid(format!("kernel `{kernel}` was not compiled for Metal device `{device}`"))
    })?;
    if matches!(&dispatch.grid, Grid::Threads(threads) if threads.volume() == 0) {
        return Ok(());
    }
    let copies = pipeline.is_checked().then(|| Copies::fill(encoding, dispatch)).transpose()?;
    let encoder = match &copies {
        Some(_) => encoding.alone(label_of(pipeline, dispatch, encoding.command))?,
        None => encoding.compute(touches(pipeline, dispatch))?,
    };
    launch(encoding, &encoder, pipeline, dispatch, copies.as_ref())?;
    if let Some(copies) = copies {
        encoding.end();
        copies.write_back(encoding, dispatch)?;
    }
    Ok(())
}

/// Encodes a launch to an open encoder.
pub(super) fn launch(
    encoding: &mut Encoding<'_>,
    encoder: &ComputeEncoder,
    pipeline: &MetalPipeline,
    dispatch: &Dispatch,
    copies: Option<&Copies>,
) -> Result<()> {
    let core = encoding.core;
    let shape = match &dispatch.grid {
        Grid::Threads(threads) => Shape::of(core, pipeline, *threads, dispatch.group)?,
        Grid::Indirect(counts) => Shape::Counted(counts, dispatch.group),
    };
    let group = dispatch.label.as_ref().map(|label| Group::open(encoder, &label.name));
    if group.is_none() {
        encoder.insertDebugSignpost(pipeline.name());
    }
    encoder.setComputePipelineState(pipeline.state());
    for (position, (arg, binding)) in pipeline.signature().args.iter().zip(&dispatch.bindings).enumerate() {
        match copies.and_then(|copies| copies.of(position)) {
            Some(copy) => bind_buffer(encoder, copy, 0, arg.index as usize),
            None => bind(encoding, encoder, arg, binding)?,
        }
    }
    for used in &dispatch.uses {
        let (buffer, _) = located(core, &used.slice)?;
        let usage = match used.access {
            Access::Read => MTLResourceUsage::Read,
            Access::ReadWrite => MTLResourceUsage::Read | MTLResourceUsage::Write,
        };
        encoder.useResource_usage(ProtocolObject::from_ref(&**buffer), usage);
    }
    shape.dispatch(core, encoder)?;
    drop(group);
    Ok(())
}

/// A debug group of an encoder, popped on drop: Metal requires debug groups to be closed before the encoder ends.
struct Group<'a>(&'a ComputeEncoder);

impl<'a> Group<'a> {
    fn open(encoder: &'a ComputeEncoder, name: &str) -> Self {
        encoder.pushDebugGroup(&NSString::from_str(name));
        Self(encoder)
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        self.0.popDebugGroup();
    }
}

/// Label that identifies a launch with shader validation.
fn label_of(pipeline: &MetalPipeline, dispatch: &Dispatch, command: usize) -> String {
    let kernel = &pipeline.signature().name;
    match &dispatch.label {
        Some(label) => format!("{} ({kernel}, command {command})", label.name),
        None => format!("{kernel} (command {command})"),
    }
}

/// The memory accesses of a dispatch.
fn touches(pipeline: &MetalPipeline, dispatch: &Dispatch) -> impl Iterator<Item = Touch> {
    let args = pipeline.signature().args.iter().zip(&dispatch.bindings);
    let bound = args.filter_map(|(arg, binding)| match binding {
        Binding::Memory(slice) => Some(Touch::new(slice, arg.access)),
        _ => None,
    });
    let counts = dispatch.grid.counts().map(|counts| Touch::new(counts, Access::Read));
    bound.chain(dispatch.uses.iter().map(|used| Touch::new(&used.slice, used.access))).chain(counts)
}

#[allow(unsafe_code)] // binds what a kernel takes
fn bind_buffer(encoder: &ComputeEncoder, buffer: &Buffer, offset: usize, index: usize) {
    // SAFETY: the offset is within the buffer, which the submission keeps alive. What the kernel does with it is the caller's
    // responsibility.
    unsafe { encoder.setBuffer_offset_atIndex(Some(buffer), offset, index) };
}

#[allow(unsafe_code)] // binds what a kernel takes
fn bind(encoding: &mut Encoding<'_>, encoder: &ComputeEncoder, arg: &Arg, binding: &Binding) -> Result<()> {
    let index = arg.index as usize;
    match binding {
        Binding::Memory(slice) => {
            let (buffer, offset) = located(encoding.core, slice)?;
            // An empty slice at the end of a buffer has no address.
            let offset = if slice.len == 0 { 0 } else { offset };
            bind_buffer(encoder, buffer, offset, index);
        }
        Binding::Bytes(bytes) => encoding.set_bytes(encoder, bytes, index)?,
        Binding::Threadgroup(bytes) => {
            let length = bytes.max(&1).checked_next_multiple_of(THREADGROUP_ALIGN);
            let length = length.and_then(|length| usize::try_from(length).ok());
            let length =
                length.ok_or_else(|| Error::invalid(format!("{bytes} bytes of threadgroup memory")))?;
            // SAFETY: the runtime has checked the length against the device's limit.
            unsafe { encoder.setThreadgroupMemoryLength_atIndex(length, index) };
        }
        // Metal's validation requires a buffer.
        Binding::Unbound => {
            let element = encoding.exact(arg.element_size)?;
            bind_buffer(encoder, &element, 0, index);
        }
    }
    Ok(())
}

/// How a grid is dispatched.
enum Shape<'d> {
    Threads(Dim3, Dim3),
    Groups(Dim3, Dim3),
    /// With threadgroup counts that the GPU reads from memory.
    Counted(&'d MemorySlice, Dim3),
}

impl Shape<'_> {
    /// On a device without nonuniform threadgroups, the grid must consist of whole threadgroups: of the requested size, or, for a
    /// kernel that cannot observe it, of the largest size that divides the grid.
    fn of(core: &Core, pipeline: &MetalPipeline, threads: Dim3, group: Dim3) -> Result<Self> {
        if core.features.edges {
            return Ok(Self::Threads(threads, group));
        }
        let whole = Dim3::new(
            largest_divisor(threads.x, group.x),
            largest_divisor(threads.y, group.y),
            largest_divisor(threads.z, group.z),
        );
        if whole != group && pipeline.sees_groups() {
            let (kernel, device) = (&pipeline.signature().name, &core.caps.name);
            return Err(Error::unsupported(format!(
                "kernel `{kernel}`: the grid of {threads} threads is not a multiple of the threadgroup size {group}; Metal device \
                 `{device}` has no nonuniform threadgroups, and the kernel's results depend on the threadgroup size"
            )));
        }
        Ok(Self::Groups(threads.div_ceil(whole), whole))
    }

    #[allow(unsafe_code)] // names memory to Metal
    fn dispatch(self, core: &Core, encoder: &ComputeEncoder) -> Result<()> {
        match self {
            Self::Threads(threads, group) => {
                encoder.dispatchThreads_threadsPerThreadgroup(size(threads), size(group));
            }
            Self::Groups(groups, group) => {
                encoder.dispatchThreadgroups_threadsPerThreadgroup(size(groups), size(group));
            }
            Self::Counted(counts, group) => {
                let (buffer, offset) = located(core, counts)?;
                // SAFETY: the runtime has checked that the counts are within the buffer, at a multiple of 4; the submission keeps it alive.
                unsafe {
                    encoder
                        .dispatchThreadgroupsWithIndirectBuffer_indirectBufferOffset_threadsPerThreadgroup(
                            buffer,
                            offset,
                            size(group),
                        );
                }
            }
        }
        Ok(())
    }
}

/// The largest divisor of `count` that is at most `most`.
fn largest_divisor(count: u32, most: u32) -> u32 {
    let most = most.clamp(1, count.max(1));
    (1..=most).rev().find(|divisor| count.is_multiple_of(*divisor)).unwrap_or(1)
}

fn size(size: Dim3) -> MTLSize {
    let Dim3 { x, y, z } = size;
    MTLSize { width: x as usize, height: y as usize, depth: z as usize }
}
