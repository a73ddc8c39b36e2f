//! What Metal says of a command buffer that has failed, as an [`Error`].
//!
//! Metal tells for each encoder whether it has caused the error, has been affected by it, or has not begun; that leads to the
//! commands in it, and so to the kernels' names and the program's labels.

use std::ops::Range;

use elinvar_driver::{Binding, Command, Dispatch, Error, Fault, PrimitiveKind};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSArray, NSError};
use objc2_metal::{
    MTLCommandBufferEncoderInfo, MTLCommandBufferEncoderInfoErrorKey, MTLCommandBufferError,
    MTLCommandEncoderErrorState,
};

use super::core::Core;
use super::encoding::BufferInfo;

type Infos = NSArray<ProtocolObject<dyn MTLCommandBufferEncoderInfo>>;

/// The error of a command buffer with these commands.
pub(super) fn error(core: &Core, error: &NSError, commands: &[Command], info: &BufferInfo) -> Error {
    let text = error.localizedDescription().to_string();
    let within = faulted(error, info).and_then(|range| commands.get(range)).unwrap_or_default();
    let launches: Vec<&Dispatch> = within.iter().filter_map(launch).collect();
    let device = &core.caps.name;
    let code = MTLCommandBufferError(usize::try_from(error.code()).unwrap_or(0));
    match code {
        MTLCommandBufferError::Timeout => {
            Error::Timeout(format!("{}Metal device `{device}`: {text}", named(&launches)))
        }
        MTLCommandBufferError::AccessRevoked
        | MTLCommandBufferError::NotPermitted
        | MTLCommandBufferError::DeviceRemoved => {
            Error::DeviceLost(format!("Metal device `{device}`: {text}"))
        }
        MTLCommandBufferError::OutOfMemory => {
            let requested = commands.iter().map(bytes).fold(0, u64::saturating_add);
            Error::OutOfMemory { requested, available: core.available() }
        }
        MTLCommandBufferError::InvalidResource => {
            Error::InvalidArgument(format!("{}Metal device `{device}`: {text}", named(&launches)))
        }
        MTLCommandBufferError::Memoryless => Error::unsupported(format!("Metal device `{device}`: {text}")),
        _ => fault(&launches, within.iter().find_map(primitive), text, device),
    }
}

/// Page faults, stack overflows, internal errors, and what newer systems may add.
fn fault(launches: &[&Dispatch], other: Option<PrimitiveKind>, message: String, device: &str) -> Error {
    match launches {
        [] => match other {
            Some(kind) => {
                let kernel = kind.name().to_owned();
                Error::Fault(Fault { kernel, message, location: None, launch: None })
            }
            None => Error::Environment(format!("Metal device `{device}`: {message}")),
        },
        [one] => Error::Fault(Fault {
            kernel: one.pipeline.signature().name.clone(),
            message,
            location: None,
            launch: one.label.clone(),
        }),
        several => {
            let mut names: Vec<&str> =
                several.iter().map(|one| one.pipeline.signature().name.as_str()).collect();
            names.dedup();
            let message = format!("{message} (one of {} launches that ran side by side)", several.len());
            Error::Fault(Fault { kernel: names.join("` or `"), message, location: None, launch: None })
        }
    }
}

fn named(launches: &[&Dispatch]) -> String {
    let mut names: Vec<String> = launches
        .iter()
        .map(|one| match &one.label {
            Some(label) => format!("kernel `{}`, launch {label}", one.pipeline.signature().name),
            None => format!("kernel `{}`", one.pipeline.signature().name),
        })
        .collect();
    names.dedup();
    if names.is_empty() { String::new() } else { format!("{}: ", names.join(" or ")) }
}

fn launch(command: &Command) -> Option<&Dispatch> {
    if let Command::Dispatch(dispatch) = command { Some(dispatch) } else { None }
}

fn primitive(command: &Command) -> Option<PrimitiveKind> {
    if let Command::Primitive { primitive, .. } = command { Some(primitive.kind()) } else { None }
}

/// The commands of the first encoder that has caused the error, or else was affected; of all where Metal does not say.
fn faulted(error: &NSError, info: &BufferInfo) -> Option<Range<usize>> {
    let all = || Some(info.encoders.first()?.start..info.encoders.last()?.end);
    // A command that encodes itself may have several encoders; then it is not known whose is whose.
    let infos = infos(error).filter(|infos| infos.len() == info.encoders.len());
    let Some(infos) = infos else { return all() };
    let states: Vec<MTLCommandEncoderErrorState> = infos.iter().map(|info| info.errorState()).collect();
    let first = |state| states.iter().position(|other| *other == state);
    let at = first(MTLCommandEncoderErrorState::Faulted).or(first(MTLCommandEncoderErrorState::Affected));
    at.map_or_else(all, |at| info.encoders.get(at).cloned())
}

#[allow(unsafe_code)] // a constant of Metal's, and the type of what lies under it
fn infos(error: &NSError) -> Option<Retained<Infos>> {
    // SAFETY: a constant of the framework, there since macOS 11.
    let key = unsafe { MTLCommandBufferEncoderInfoErrorKey };
    let infos = error.userInfo().objectForKey(key)?;
    // SAFETY: Metal's documentation says that an array of such objects lies under this key.
    Some(unsafe { Retained::cast_unchecked(infos) })
}

/// Bytes of memory that a launch or a primitive names.
fn bytes(command: &Command) -> u64 {
    let sum = |lengths: &mut dyn Iterator<Item = u64>| lengths.fold(0, u64::saturating_add);
    match command {
        Command::Dispatch(dispatch) => {
            let bound = dispatch.bindings.iter().map(|binding| match binding {
                Binding::Memory(slice) => slice.len,
                Binding::Bytes(_) | Binding::Threadgroup(_) => 0,
            });
            sum(&mut bound.chain(dispatch.uses.iter().map(|used| used.slice.len)))
        }
        Command::Primitive { operands, .. } => sum(&mut operands.iter().map(|slice| slice.len)),
        _ => 0,
    }
}
