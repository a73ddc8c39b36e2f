//! Names of a launch's operands in error messages: kernel, position, name and declaration.

use elinvar_driver as driver;
use elinvar_driver::{ArgKind, Error, Signature};

use crate::Device;

/// Name of a resource of a launch.
pub(crate) fn used_place(signature: &Signature, number: usize) -> String {
    format!("kernel `{}`, resource {number} (used through its address)", signature.name)
}

/// The error of a device without device addresses.
pub(crate) fn no_address(device: &Device) -> Error {
    Error::unsupported(format!("device `{}` has no device addresses for buffers", device.name()))
}

/// Name of an argument: kernel, position, name and declaration.
pub(crate) fn place(signature: &Signature, index: usize) -> String {
    let arg = &signature.args[index];
    let name = if arg.name.is_empty() { String::new() } else { format!(" `{}`", arg.name) };
    format!("kernel `{}`, argument {index}{name} ({})", signature.name, declaration(arg))
}

/// MSL declaration of an argument without the parameter's name.
pub(crate) fn declaration(arg: &driver::Arg) -> String {
    let space = match arg.kind {
        ArgKind::Threadgroup => "threadgroup ",
        _ if arg.constant => "constant ",
        _ if arg.access == driver::Access::Read => "device const ",
        _ => "device ",
    };
    let mark = if arg.kind == ArgKind::Reference { '&' } else { '*' };
    format!("{space}{}{mark}", arg.element)
}

/// Name of the memory with an indirect launch's threadgroup counts.
pub(crate) fn counts_place(kernel: &str) -> String {
    format!("kernel `{kernel}`, the counts of its threadgroups")
}
