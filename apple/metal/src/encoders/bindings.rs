//! [`Bindings`]: state of a compute encoder or of an indirect command: pipeline, buffers, bytes, threadgroup memory lengths; and construction
//! and validation of dispatches.

use std::sync::Arc;

use elinvar_driver::{Arg, ArgKind};
use elinvar_objc::Ref;

use crate::commands::pass::{Argument, Dispatch, Grid};
use crate::device::Device;
use crate::library::pipeline::Pipeline;
use crate::memory::buffer::Held;
use crate::require;
use crate::values::Size;

/// Number of buffer indices, and of threadgroup memory indices.
pub const PLACES: usize = 31;

/// Binding of an index.
#[derive(Clone)]
pub enum Bound {
    /// A buffer, an offset in it, and its length.
    Buffer(Held, usize, usize),
    Bytes(Arc<[u8]>),
}

/// What is set.
#[derive(Clone, Default)]
pub struct Bindings {
    pub pipeline: Option<Ref<Pipeline>>,
    pub places: [Option<Bound>; PLACES],
    pub threadgroup: [usize; PLACES],
}

impl Bindings {
    /// A dispatch of the current state; `None` if it is invalid, which has been reported.
    pub fn dispatch(&self, device: &Device, method: &str, grid: Grid, group: Size) -> Option<Dispatch> {
        require!(self.pipeline.is_some(), "{method} no compute pipeline state is set");
        let pipeline = self.pipeline.clone()?;
        check_group(device, &pipeline, method, &grid, group)?;
        let signature = pipeline.signature();
        let mut arguments = Vec::with_capacity(signature.args.len());
        let mut threadgroup = pipeline.threadgroup_memory();
        for arg in &signature.args {
            let argument = self.argument(device, method, &signature.name, arg)?;
            if let Argument::Threadgroup(bytes) = argument {
                threadgroup = threadgroup.saturating_add(bytes);
            }
            arguments.push(argument);
        }
        let limit = device.profile.threadgroup_memory;
        require!(
            threadgroup <= limit,
            "{method} kernel {} has {threadgroup} bytes of threadgroup memory: the limit is {limit}",
            signature.name
        );
        Some(Dispatch { pipeline, arguments, grid, group })
    }

    fn argument(&self, device: &Device, method: &str, kernel: &str, arg: &Arg) -> Option<Argument> {
        let (index, name) = (arg.index as usize, &arg.name);
        require!(index < PLACES, "{method} kernel {kernel}: argument {name} has index {index}, over 30");
        if arg.kind == ArgKind::Threadgroup {
            let bytes = self.threadgroup[index];
            require!(
                bytes > 0,
                "{method} kernel {kernel}: no threadgroup memory at index {index} for {name}"
            );
            return Some(Argument::Threadgroup(bytes));
        }
        let bound = self.places[index].as_ref();
        require!(
            bound.is_some(),
            "{method} kernel {kernel}: missing buffer binding at index {index} for {name}"
        );
        let needs =
            if arg.kind == ArgKind::Reference { usize::try_from(arg.element_size).unwrap_or(0) } else { 1 };
        match bound? {
            Bound::Bytes(bytes) => {
                let has = bytes.len();
                require!(
                    has >= needs,
                    "{method} kernel {kernel}: {has} bytes at index {index}, {name} has {needs}"
                );
                Some(Argument::Bytes(bytes.clone()))
            }
            Bound::Buffer(held, offset, length) => {
                let has = length - offset;
                require!(
                    has >= needs,
                    "{method} kernel {kernel}: {has} bytes at index {index}, {name} has {needs}"
                );
                let align = alignment(device, arg);
                require!(
                    offset.is_multiple_of(align),
                    "{method} kernel {kernel}: offset {offset} at index {index} is not a multiple of {align}"
                );
                Some(Argument::Buffer(held.clone(), *offset))
            }
        }
    }
}

/// Required alignment of a buffer's offset: the alignment of the data; in the constant address space, 32 bytes on
/// [families](https://developer.apple.com/metal/Metal-Feature-Set-Tables.pdf) other than Apple's.
fn alignment(device: &Device, arg: &Arg) -> usize {
    let own = usize::try_from(arg.element_align).unwrap_or(1).min(16);
    if arg.constant && device.profile.apple_family == 0 { own.max(32) } else { own }
}

fn check_group(device: &Device, pipeline: &Pipeline, method: &str, grid: &Grid, group: Size) -> Option<()> {
    let name = &pipeline.signature().name;
    let threads = group.volume().filter(|threads| *threads > 0);
    require!(threads.is_some(), "{method} kernel {name}: a threadgroup of {group} has no threads");
    let threads = threads?;
    let limit = pipeline.max_threads();
    require!(
        threads <= limit,
        "{method} kernel {name}: a threadgroup of {group} has {threads} threads: the limit is {limit}"
    );
    let width = device.cpu.caps().limits.simdgroup_width as usize;
    require!(
        !pipeline.multiple || threads.is_multiple_of(width),
        "{method} kernel {name}: {threads} threads are not a multiple of {width}, as its descriptor promises"
    );
    if let Grid::Threads(_) = grid {
        require!(device.profile.nonuniform, "{method} the device has no threadgroups of different sizes");
    }
    Some(())
}
