//! Conversion of a failed command buffer's error to an [`Error`].
//!
//! Metal reports for each encoder whether it caused the error, was affected by it, or had not begun. This identifies the commands in it,
//! and thereby kernel names and the program's labels.

use std::ops::Range;

use elinvar_driver::{Binding, Command, Dispatch, Error, Fault};
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
        _ => fault(&launches, within.iter().find_map(other), text, device),
    }
}

/// Page faults, stack overflows, internal errors, and codes that newer systems may add.
fn fault(launches: &[&Dispatch], other: Option<String>, message: String, device: &str) -> Error {
    match launches {
        [] => match other {
            Some(kernel) => Error::Fault(Fault { kernel, message, location: None, launch: None }),
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
    match command {
        Command::Dispatch(dispatch) => Some(dispatch),
        Command::LaunchNested(nested) => Some(&nested.root),
        _ => None,
    }
}

/// The name of work that is no launch.
fn other(command: &Command) -> Option<String> {
    match command {
        Command::Primitive { primitive, .. } => Some(primitive.kind().name().to_owned()),
        Command::ExecuteCommands(_) => Some("execute_commands".to_owned()),
        _ => None,
    }
}

/// The commands of the first encoder that caused the error, or else was affected; all commands if Metal does not report it.
fn faulted(error: &NSError, info: &BufferInfo) -> Option<Range<usize>> {
    let all = || Some(info.encoders.first()?.start..info.encoders.last()?.end);
    // A primitive may create several encoders, after which encoders cannot be matched to commands.
    let infos = infos(error).filter(|infos| infos.len() == info.encoders.len());
    let Some(infos) = infos else { return all() };
    let states: Vec<MTLCommandEncoderErrorState> = infos.iter().map(|info| info.errorState()).collect();
    let first = |state| states.iter().position(|other| *other == state);
    let at = first(MTLCommandEncoderErrorState::Faulted).or(first(MTLCommandEncoderErrorState::Affected));
    at.map_or_else(all, |at| info.encoders.get(at).cloned())
}

#[allow(unsafe_code)] // a constant of Metal's, and the type of what lies under it
fn infos(error: &NSError) -> Option<Retained<Infos>> {
    // SAFETY: a constant of the framework since macOS 11.
    let key = unsafe { MTLCommandBufferEncoderInfoErrorKey };
    let infos = error.userInfo().objectForKey(key)?;
    // SAFETY: according to Metal's documentation, this key has an array of such objects.
    Some(unsafe { Retained::cast_unchecked(infos) })
}

/// Number of bytes of memory that a launch or a primitive refers to.
fn bytes(command: &Command) -> u64 {
    let sum = |lengths: &mut dyn Iterator<Item = u64>| lengths.fold(0, u64::saturating_add);
    match command {
        Command::Dispatch(dispatch) => {
            let bound = dispatch.bindings.iter().map(|binding| match binding {
                Binding::Memory(slice) => slice.len,
                Binding::Bytes(_) | Binding::Threadgroup(_) | Binding::Unbound => 0,
            });
            sum(&mut bound.chain(dispatch.uses.iter().map(|used| used.slice.len)))
        }
        Command::Primitive { operands, .. } => sum(&mut operands.iter().map(|slice| slice.len)),
        _ => 0,
    }
}
