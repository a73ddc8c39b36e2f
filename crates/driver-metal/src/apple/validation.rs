//! Checked kernels with Metal's shader validation, which instruments a kernel's memory accesses.
//!
//! Shader validation is a layer of the whole process. Environment variables enable it before the first device is created; since macOS 15, a
//! pipeline's descriptor selects whether it applies to that pipeline
//! ([Apple's page](https://developer.apple.com/documentation/xcode/validating-your-apps-metal-shader-usage), `man
//! MetalValidation`). Accesses outside of a buffer read zero, and writes have no effect. The command buffer then has no error; its logs
//! give the encoder, and the location in the source if known.
//!
//! The documentation mentions checks of buffers only. Therefore a kernel is rejected if it could leave other memory
//! ([`own_memory`](crate::own_memory)). The bounds are those of a buffer, so a checked launch
//! works on copies with exactly the bytes of its arguments (`copies`).
//!
//! The logs do not tell the argument, the element, the thread, and whether it was a read or a write.

use std::ptr::NonNull;

use elinvar_driver::{Command, Fault, Result};
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObjectProtocol as _, ProtocolObject};
use objc2::sel;
use objc2_foundation::{NSFastEnumeration, NSFastEnumerationState};
use objc2_metal::{
    MTLCommandBuffer, MTLComputePipelineDescriptor, MTLComputePipelineState, MTLFunctionLog,
    MTLFunctionLogDebugLocation as _, MTLShaderValidation,
};

use super::encoding::BufferInfo;
use crate::own_memory::refusal;

type Log = Retained<ProtocolObject<dyn MTLFunctionLog>>;

const LAYER: &str = "MTL_SHADER_VALIDATION";

/// Environment variables that disable parts of it, with the values that do not.
const PARTS: [(&str, &str); 4] = [
    ("MTL_SHADER_VALIDATION_FAIL_MODE", "zerofill"),
    ("MTL_SHADER_VALIDATION_GLOBAL_MEMORY", "1"),
    ("MTL_SHADER_VALIDATION_DEVICE_MEMORY", "1"),
    ("MTL_SHADER_VALIDATION_ENABLE_ERROR_REPORTING", "1"),
];

/// Whether it is enabled in this process.
pub(super) fn is_on() -> bool {
    std::env::var_os(LAYER).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Requests validation of a kernel's pipeline.
///
/// # Errors
/// `Unsupported` if the system or the process does not have it, or a part of it is disabled.
pub(super) fn ask(descriptor: &MTLComputePipelineDescriptor, kernel: &str) -> Result<()> {
    if !descriptor.respondsToSelector(sel!(setShaderValidation:)) {
        return Err(refusal(kernel, "shader validation of single pipelines needs macOS 15"));
    }
    if !is_on() {
        let why = format!("shader validation is off; start the process with {LAYER}=1 in its environment");
        return Err(refusal(kernel, why));
    }
    for (name, whole) in PARTS {
        if let Some(value) = std::env::var_os(name).filter(|value| value != whole) {
            let value = value.to_string_lossy();
            return Err(refusal(
                kernel,
                format!("{name} is `{value}`, so Metal's shader validation is only partly enabled"),
            ));
        }
    }
    descriptor.setShaderValidation(MTLShaderValidation::Enabled);
    Ok(())
}

/// Checks that a pipeline for which [`ask`] was called has validation.
///
/// # Errors
/// `Unsupported` if not.
#[allow(unsafe_code)] // the bindings know no system that all have it
pub(super) fn expect(state: &ProtocolObject<dyn MTLComputePipelineState>, kernel: &str) -> Result<()> {
    // SAFETY: pipeline states have the property if descriptors do.
    match unsafe { state.shaderValidation() } {
        MTLShaderValidation::Enabled => Ok(()),
        _ => Err(refusal(kernel, "Metal did not enable shader validation for the pipeline")),
    }
}

/// The faults that validation has found in a command buffer that has ended. Logs of other encoders belong to launches that did not request
/// validation; logs without an encoder label are counted, so that no fault is missed.
pub(super) fn fault(
    buffer: &ProtocolObject<dyn MTLCommandBuffer>,
    commands: &[Command],
    info: &BufferInfo,
) -> Option<Fault> {
    let (_, first) = info.validated.first()?;
    let (log, command) = logs(buffer).into_iter().find_map(|log| {
        let Some(label) = log.encoderLabel() else { return Some((log, *first)) };
        let label = label.to_string();
        let (_, command) = info.validated.iter().find(|(known, _)| *known == label)?;
        Some((log, *command))
    })?;
    let Some(Command::Dispatch(dispatch)) = commands.get(command) else { return None };
    let signature = dispatch.pipeline.signature();
    let location = log.debugLocation().map(|place| {
        let file = place.URL().and_then(|url| url.path()).map_or_else(String::new, |path| path.to_string());
        // Use the program's name for the source, if the log refers to the source.
        let own = signature.file.rsplit('/').next();
        let file = if file.rsplit('/').next() == own { &signature.file } else { &file };
        format!("{file}:{}", place.line())
    });
    let message = "an access outside of an argument's memory; Metal's shader validation does not report the argument, \
                   element and thread";
    let (kernel, launch) = (signature.name.clone(), dispatch.label.clone());
    Some(Fault { kernel, message: message.to_owned(), location, launch })
}

/// Logs of a command buffer.
#[allow(unsafe_code)] // enumerates what has no other interface
fn logs(buffer: &ProtocolObject<dyn MTLCommandBuffer>) -> Vec<Log> {
    let container = buffer.logs();
    let (mut found, mut room) = (Vec::new(), [std::ptr::null_mut::<AnyObject>(); 8]);
    // SAFETY: a structure of integers and pointers, which must be zeroed initially.
    let mut state: NSFastEnumerationState = unsafe { std::mem::zeroed() };
    loop {
        let (at, into) = (NonNull::from(&mut state), NonNull::from(&mut room).cast());
        // SAFETY: both are valid, and there is room for that many.
        let count = unsafe { container.countByEnumeratingWithState_objects_count(at, into, room.len()) };
        if count == 0 {
            return found;
        }
        for index in 0..count {
            // SAFETY: that many objects were returned, which according to the documentation are function logs.
            found.extend(unsafe { Retained::retain(state.itemsPtr.add(index).read().cast()) });
        }
    }
}
