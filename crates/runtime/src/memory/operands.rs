//! Operands of a launch as error messages name them: kernel, position, name and declaration.

use elinvar_driver as driver;
use elinvar_driver::{ArgKind, Error, Signature};

use crate::Device;

/// A resource of a launch as error messages name it.
pub(crate) fn used_place(signature: &Signature, number: usize) -> String {
    format!("kernel `{}`, resource {number} (used through its address)", signature.name)
}

/// The refusal of a device whose memory kernels can only have as arguments.
pub(crate) fn no_address(device: &Device) -> Error {
    Error::unsupported(format!("the memory of device `{}` has no address for kernels", device.name()))
}

/// An argument as error messages name it: kernel, position, name and declaration.
pub(crate) fn place(signature: &Signature, index: usize) -> String {
    let arg = &signature.args[index];
    let name = if arg.name.is_empty() { String::new() } else { format!(" `{}`", arg.name) };
    format!("kernel `{}`, argument {index}{name} ({})", signature.name, declaration(arg))
}

/// An argument's type as MSL writes it, without the parameter's name.
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

/// The memory of an indirect launch's counts as error messages name it.
pub(crate) fn counts_place(kernel: &str) -> String {
    format!("kernel `{kernel}`, the counts of its threadgroups")
}
