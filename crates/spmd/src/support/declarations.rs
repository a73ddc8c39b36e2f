//! Declarations of functions that passes call.

use std::collections::BTreeMap;

use elinvar_ir::{Call, Function, Module, Op};

use crate::support::ir::callee_name;

/// `module` with a declaration of every called function: passes call intrinsics of the headers and of LLVM that it does not declare
/// before it is complete.
pub(crate) fn declared(module: &Module) -> Module {
    let mut module = module.clone();
    declare_called(&mut module, |_| true);
    module
}

/// Declares the called functions that the module lacks, with the types of their calls, if `wanted` holds for the name.
pub(crate) fn declare_called(module: &mut Module, wanted: impl Fn(&str) -> bool) {
    let mut missing = BTreeMap::new();
    for inst in module.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts) {
        if let Op::Call(call) = &inst.op
            && let Some(name) = callee_name(call)
            && wanted(name)
            && module.function(name).is_none()
        {
            missing.insert(name.to_owned(), declaration(name, call));
        }
    }
    module.functions.extend(missing.into_values());
}

/// The declaration of an intrinsic that passes call.
pub(crate) fn declaration(name: &str, call: &Call) -> Function {
    let mut function = Function::new(name, call.ret.clone());
    for (i, arg) in call.args.iter().enumerate() {
        let attrs = if is_immediate(name, i) { "immarg" } else { "" };
        function.add_param(arg.ty.clone(), attrs, None);
    }
    function
}

/// Whether a parameter of an intrinsic is `immarg`: the alignment of masked accesses, flags.
fn is_immediate(name: &str, parameter: usize) -> bool {
    match parameter {
        0 => false,
        1 => {
            let flagged = [
                "llvm.abs.",
                "llvm.ctlz.",
                "llvm.cttz.",
                "llvm.is.fpclass.",
                "llvm.masked.load.",
                "llvm.masked.gather.",
            ];
            flagged.iter().any(|f| name.starts_with(f))
        }
        2 => name.starts_with("llvm.masked.store.") || name.starts_with("llvm.masked.scatter."),
        _ => false,
    }
}
