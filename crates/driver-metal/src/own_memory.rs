//! Checks that a kernel cannot leave memory that is not a buffer: thread and threadgroup arrays, constant tables.
//!
//! Metal's shader validation is documented for buffers only, so a checked kernel must not depend on it for other memory.

use elinvar_driver::{Arg, ArgKind, Constant, Error, Result};
use elinvar_ir::Module;
use elinvar_msl::CachedProgram;
use elinvar_spmd::bounds::{Given, Reach, RootKind, reach};

/// The error for a kernel that cannot have bounds checks.
pub(crate) fn refusal(kernel: &str, why: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("bounds checks in kernel `{kernel}`: {why}"))
}

/// Checks that a kernel cannot leave any memory other than its buffers, whatever its arguments are.
///
/// # Errors
/// `Unsupported`, with the access that could.
pub(crate) fn expect_only_buffers(
    checked: &CachedProgram,
    kernel: &str,
    constants: &[Constant],
) -> Result<()> {
    let specialized = checked.specialize(kernel, constants)?;
    let args = &specialized.signature.args;
    let module = Module::parse(&specialized.ir).map_err(|error| refusal(kernel, error))?;
    let of = |arg: &Arg| Given {
        bytes: if arg.kind == ArgKind::Reference { arg.element_size } else { 0 },
        align: 1,
    };
    let given: Vec<Given> = args.iter().map(of).collect();
    let is_buffer = |index: &usize| args.get(*index).is_some_and(|arg| arg.kind != ArgKind::Threadgroup);
    let looked_at = |kind: &RootKind| matches!(kind, RootKind::Argument(index) if is_buffer(index));
    let found = reach(&module, &given, looked_at).map_err(|error| refusal(kernel, error))?;
    let Some(Reach { root, location }) = found else { return Ok(()) };
    let what = match &root.kind {
        RootKind::Argument(index) => {
            let name = args.get(*index).map_or("", |arg| &arg.name);
            format!("threadgroup memory (`{name}`)")
        }
        RootKind::Threadgroup(name) => format!("threadgroup memory (`{name}`)"),
        RootKind::Private => "a private array".to_owned(),
        RootKind::Constant(_) => "a constant array".to_owned(),
        RootKind::Null => "memory by a null pointer".to_owned(),
    };
    let place = location.map_or_else(String::new, |place| format!("{}:{}: ", place.file, place.line));
    Err(refusal(
        kernel,
        format!(
            "{place}{what} may be accessed out of bounds, and Metal's shader validation is documented for buffers only"
        ),
    ))
}
