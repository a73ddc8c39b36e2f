//! Finds accesses that may be out of bounds, by the kind of memory that they access.
//!
//! For devices that check accesses to some kinds of memory only: kernels whose safety the device would not guarantee are
//! rejected.

use elinvar_ir::{Function, Inst, Location, Module, Op, Operand, ValueId};

use super::access::{accesses, constant_geps, is_certain};
use super::unknown_bounds;
use crate::analysis::alias_roots::{Given, Root, RootKind, Roots, Source};
use crate::analysis::allowlist;
use crate::support::ir::threadgroup_globals;
use crate::{ENTRY, Error};

/// An access that may be out of bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Its root; one of several if that is determined at run time.
    pub root: Root,
    /// Location in the user's source.
    pub location: Option<Location>,
}

/// The first access that may be out of bounds of memory for which `is_checked` does not hold. `given` has the
/// guarantees for each argument.
///
/// # Errors
/// `Unsupported` for a pointer with unknown bounds.
pub fn reach(
    module: &Module,
    given: &[Given],
    is_checked: impl Fn(&RootKind) -> bool,
) -> Result<Option<Reach>, Error> {
    allowlist::check(module)?;
    let entry = module.function(ENTRY).filter(|entry| !entry.is_declaration());
    let entry = entry.ok_or_else(|| Error::Malformed(format!("there is no function `{ENTRY}`")))?;
    let roots = Roots::new(module, entry, given, &threadgroup_globals(module));
    let geps = constant_geps(entry);
    for inst in entry.blocks.iter().flat_map(|block| &block.insts) {
        let location = module.location(&inst.metadata);
        for access in accesses(module, &inst.op, location.clone())? {
            if is_certain(module, &geps, &roots, &access) {
                continue;
            }
            if let Source::Unknown(made) = roots.source(&access.pointer) {
                return Err(unknown_bounds(made.or(location)));
            }
            let unchecked =
                all_of(entry, &roots, &access.pointer).into_iter().find(|root| !is_checked(&root.kind));
            if let Some(root) = unchecked {
                return Ok(Some(Reach { root: root.clone(), location }));
            }
        }
    }
    Ok(None)
}

/// Every root that an access may have.
pub(crate) fn all_of<'r>(function: &Function, roots: &'r Roots, pointer: &Operand) -> Vec<&'r Root> {
    let (mut found, mut seen) = (Vec::new(), Vec::<ValueId>::new());
    let mut open = vec![pointer.clone()];
    while let Some(operand) = open.pop() {
        match (roots.source(&operand), &operand) {
            (Source::None, _) => found.push(&roots.list[roots.null]),
            (Source::One(root), _) => found.push(&roots.list[root]),
            (Source::Mixed | Source::Unknown(_), Operand::Value(value)) if !seen.contains(value) => {
                seen.push(*value);
                open.extend(made_from(function, *value));
            }
            _ => {}
        }
    }
    found
}

/// The pointers from which a pointer is selected or computed.
fn made_from(function: &Function, value: ValueId) -> Vec<Operand> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    let made = insts.into_iter().find(|inst| inst.result == Some(value));
    match made.map(|Inst { op, .. }| op) {
        Some(Op::Gep { base, .. }) => vec![base.op.clone()],
        Some(Op::Freeze(inner)) => vec![inner.op.clone()],
        Some(Op::Select { a, b, .. }) => vec![a.op.clone(), b.op.clone()],
        Some(Op::Phi { incoming, .. }) => incoming.iter().map(|(operand, _)| operand.clone()).collect(),
        Some(Op::Call(call)) => call.args.first().map(|arg| arg.op.clone()).into_iter().collect(),
        _ => Vec::new(),
    }
}
