//! Legality of vectorization: whether a kernel has a form in vector code.

use elinvar_ir::{Function, Module, Op, Type};

use super::cfg::Irreducible;
use super::{Analyses, FunctionCfg, RegionCfgs};
use crate::Error;
use crate::kernel::Kernel;

/// Checks that every value has a vector form, and that every loop has one entry.
///
/// # Errors
/// `Unsupported` that names the construct without a vector form.
pub(crate) fn vectorizable(module: &Module, kernel: &Kernel, analyses: &mut Analyses) -> Result<(), Error> {
    match scalar_only(module, &kernel.function) {
        Some(why) => Err(why),
        None => reducible(module, kernel, analyses),
    }
}

/// Checks that the loops of the function and of each region have one entry.
pub(crate) fn reducible(module: &Module, kernel: &Kernel, analyses: &mut Analyses) -> Result<(), Error> {
    analyses.get::<FunctionCfg>(module, kernel, &()).map_err(irreducible)?;
    analyses.get::<RegionCfgs>(module, kernel, &()).map_err(irreducible)?;
    Ok(())
}

pub(crate) fn irreducible(_: Irreducible) -> Error {
    Error::unsupported("irreducible control flow (a loop with several entries) in vector code", None)
}

/// The reason why a function cannot be vectorized: it has vectors, or integers of more than 64 bits.
fn scalar_only(module: &Module, function: &Function) -> Option<Error> {
    let reason = |ty: &Type| match ty {
        Type::Vector(..) => Some("a vector value"),
        Type::Int(width) if *width > 64 => Some("an integer of more than 64 bits"),
        Type::Array(..) | Type::Named(_) => Some("an array value"),
        _ => None,
    };
    let insts = function.blocks.iter().flat_map(|b| &b.insts);
    insts.into_iter().find_map(|inst| {
        let ty = match (&inst.op, inst.result) {
            (Op::Store { value, .. }, _) => &value.ty,
            (_, Some(result)) => function.ty(result),
            _ => return None,
        };
        reason(ty)
            .map(|what| Error::unsupported(format!("{what} in vector code"), module.location(&inst.metadata)))
    })
}
