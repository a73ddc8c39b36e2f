//! Takes the entry out of its module and puts it in the form that the passes work on: no calls of
//! intrinsics left, each barrier an edge, private arrays listed.

use std::collections::HashMap;

use elinvar_ir::{
    BlockId, Call, Callee, Const, Function, Inst, Location, Module, Op, Operand, Term, Type, ValueId,
};

use crate::intrinsic::{DEVICE_FLAGS, Position};
use crate::support::calls::{self, CallKind};
use crate::transform::hoist_invariant_loads::InvariantLoad;
use crate::transform::scalarize::scalarize;
use crate::{ENTRY, Error, THREADGROUP_SECTION};

/// The per-thread function, prepared.
pub(crate) struct Kernel {
    /// The entry, its blocks split at barriers; the calls of intrinsics and the allocas are taken out,
    /// so the values they defined have no defining instruction.
    pub function: Function,
    /// The barriers. Each is the edge `from → cont`, the only edge out of `from` and into `cont`.
    pub barriers: Vec<Barrier>,
    /// Values that a thread asks for, with the dimension.
    pub positions: HashMap<ValueId, (Position, usize)>,
    /// Values that are the same for all threads of all groups, loaded once.
    pub invariant_loads: Vec<InvariantLoad>,
    /// Private arrays: what each thread has one of.
    pub private_arrays: Vec<PrivateArray>,
    /// Names of the module's threadgroup variables.
    pub threadgroup: Vec<String>,
    /// Functions of the module that the entry calls, directly or not.
    pub callees: Vec<String>,
    /// Where threads of a simdgroup first exchange values or wait for one another, if they do.
    pub exchanges: Option<Option<Location>>,
    /// Why the function cannot be written for vectors, if it cannot.
    pub scalar_only: Option<Error>,
    /// Where each branch of the function is in the user's source, by block.
    pub branch_locations: HashMap<BlockId, Location>,
}

/// A barrier edge.
pub(crate) struct Barrier {
    pub from: BlockId,
    pub cont: BlockId,
    /// Whether it orders device memory too.
    pub device: bool,
    pub location: Option<Location>,
}

/// A private array.
pub(crate) struct PrivateArray {
    pub value: ValueId,
    pub ty: Type,
    pub align: u64,
    /// Bytes from a thread's first element to its neighbour's.
    pub lane_stride: u64,
}

impl Kernel {
    /// The barrier on the edge out of `block`.
    pub fn barrier_after(&self, block: BlockId) -> Option<usize> {
        self.barriers.iter().position(|b| b.from == block)
    }
}

/// Names of the threadgroup variables of a module.
pub(crate) fn threadgroup_globals(module: &Module) -> Vec<String> {
    let is_threadgroup = |section: &Option<String>| section.as_deref() == Some(THREADGROUP_SECTION);
    module.globals.iter().filter(|g| is_threadgroup(&g.section)).map(|g| g.name.clone()).collect()
}

/// Prepare the entry of `module`.
pub(crate) fn prepare(module: &Module) -> Result<Kernel, Error> {
    let entry = module
        .function(ENTRY)
        .filter(|f| !f.is_declaration())
        .ok_or_else(|| Error::Malformed(format!("there is no function `{ENTRY}`")))?;
    let threadgroup = threadgroup_globals(module);
    let callees = calls::callees(module, entry, &threadgroup)?;
    let mut kernel = Kernel {
        function: entry.clone(),
        barriers: Vec::new(),
        positions: HashMap::new(),
        invariant_loads: Vec::new(),
        private_arrays: Vec::new(),
        threadgroup,
        callees,
        exchanges: None,
        scalar_only: None,
        branch_locations: HashMap::new(),
    };
    for index in 0..kernel.function.blocks.len() {
        prepare_block(module, &mut kernel, BlockId(index as u32))?;
    }
    scalarize(module, &mut kernel.function);
    kernel.scalar_only = scalar_only(module, &kernel.function);
    Ok(kernel)
}

/// Why a function cannot be written for vectors: it has vectors of its own, or numbers of more than 64 bits.
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

fn prepare_block(module: &Module, kernel: &mut Kernel, start: BlockId) -> Result<(), Error> {
    let block = kernel.function.block_mut(start);
    let insts = std::mem::take(&mut block.insts);
    let term = std::mem::replace(&mut block.term, Term::Unreachable);
    let term_location = module.location(&block.term_metadata);
    let mut at = start;
    for inst in insts {
        let location = module.location(&inst.metadata);
        match &inst.op {
            Op::Alloca { ty, count, align, .. } => {
                let count = array_count(count.as_ref().map(|c| &c.op), start, location)?;
                let ty = if count == 1 { ty.clone() } else { Type::array(count, ty.clone()) };
                let (size, natural) = ty.size_align(module);
                let value = inst.result.ok_or_else(|| Error::Malformed("alloca without a result".into()))?;
                let step = size.next_multiple_of(natural);
                kernel.private_arrays.push(PrivateArray {
                    value,
                    ty,
                    align: align.unwrap_or(natural),
                    lane_stride: step,
                });
            }
            Op::Call(call) => match calls::classify(module, call, location.clone())? {
                CallKind::Dropped => {}
                CallKind::Ordinary => kernel.function.block_mut(at).insts.push(inst),
                CallKind::Position(position, dim) => {
                    let value =
                        inst.result.ok_or_else(|| Error::Malformed("position without a result".into()))?;
                    kernel.positions.insert(value, (position, dim));
                }
                CallKind::Group => {
                    kernel.exchanges.get_or_insert(location);
                    kernel.function.block_mut(at).insts.push(inst);
                }
                // A vector is a simdgroup then, and does one thing after the other.
                CallKind::SimdgroupBarrier => {
                    kernel.exchanges.get_or_insert(location);
                }
                CallKind::Barrier => {
                    let cont = kernel.function.new_block(None);
                    kernel.function.block_mut(at).term = Term::Br(cont);
                    kernel.barriers.push(Barrier { from: at, cont, device: orders_device(call), location });
                    at = cont;
                }
            },
            _ => kernel.function.block_mut(at).insts.push(inst),
        }
    }
    if at != start {
        rename_incoming(&mut kernel.function, &term, start, at);
    }
    if let Some(location) = term_location {
        kernel.branch_locations.insert(at, location);
    }
    kernel.function.block_mut(at).term = term;
    Ok(())
}

/// The constant length of an alloca, which must stand in the entry block.
fn array_count(count: Option<&Operand>, block: BlockId, location: Option<Location>) -> Result<u64, Error> {
    let constant = match count {
        None => Some(1),
        Some(Operand::Const(c)) => c.as_unsigned(64).map(|n| n as u64),
        Some(Operand::Value(_)) => None,
    };
    match constant {
        Some(n) if block == BlockId(0) => Ok(n),
        _ => Err(Error::unsupported("a private array of variable length", location)),
    }
}

/// Whether a barrier's flags, if they are known, include device memory.
fn orders_device(call: &Call) -> bool {
    match call.args.first().map(|a| &a.op) {
        Some(Operand::Const(c)) => c.as_unsigned(32).is_none_or(|flags| flags & DEVICE_FLAGS != 0),
        _ => true,
    }
}

/// The blocks that are reached, each behind one that comes before it on every path.
pub(crate) fn blocks_in_order(function: &Function) -> Vec<BlockId> {
    let successors = |b: &elinvar_ir::Block| b.term.successors().iter().map(|s| s.0 as usize).collect();
    let successors: Vec<Vec<usize>> = function.blocks.iter().map(successors).collect();
    let order = elinvar_ir::postorder(&successors, 0);
    order.into_iter().rev().map(|b| BlockId(b as u32)).collect()
}

/// Whether a type is a number or an address, one that a lane of a vector can be.
pub(crate) fn is_number(ty: &Type) -> bool {
    matches!(ty, Type::Int(8 | 16 | 32 | 64) | Type::Half | Type::BFloat | Type::Float | Type::Ptr(_))
}

/// In the phis of the blocks behind `term`, `old` as a predecessor becomes `new`.
pub(crate) fn rename_incoming(function: &mut Function, term: &Term, old: BlockId, new: BlockId) {
    for successor in term.successors() {
        for inst in &mut function.block_mut(successor).insts {
            let Inst { op: Op::Phi { incoming, .. }, .. } = inst else { break };
            for (_, from) in incoming {
                if *from == old {
                    *from = new;
                }
            }
        }
    }
}

/// The name of the function that a call names.
pub(crate) fn callee_name(call: &Call) -> Option<&str> {
    match &call.callee {
        Callee::Function(name) => Some(name),
        Callee::Indirect(Operand::Const(Const::Global(name))) => Some(name),
        Callee::Indirect(_) => None,
    }
}
