//! Lowers intrinsics: extracts the entry from its module as a [`Kernel`].
//!
//! Calls of position intrinsics become values without a defining instruction, barriers become edges between blocks, and allocas
//! become private arrays of the kernel.

use std::collections::HashMap;

use elinvar_ir::{BlockId, Call, Location, Module, Op, Operand, Term, Type};

use crate::analysis::size_bound::SizeBound;
use crate::intrinsic::DEVICE_FLAGS;
use crate::kernel::{Barrier, Kernel, PrivateArray};
use crate::support::calls::{self, CallKind};
use crate::support::gep::stride;
use crate::support::ir::{rename_incoming, threadgroup_globals};
use crate::{ENTRY, Error};

/// Lowers the entry of `module`.
///
/// # Errors
/// `Malformed` without an entry; `Unsupported` for an unknown call, or a private array of variable length.
pub(crate) fn lower(module: &Module) -> Result<Kernel, Error> {
    let entry = module
        .function(ENTRY)
        .filter(|f| !f.is_declaration())
        .ok_or_else(|| Error::Malformed(format!("there is no function `{ENTRY}`")))?;
    let threadgroup = threadgroup_globals(module);
    let callees = calls::callees(module, entry, &threadgroup)?;
    let callees = callees.iter().filter_map(|name| module.function(name).cloned()).collect();
    let mut kernel = Kernel {
        function: entry.clone(),
        barriers: Vec::new(),
        positions: HashMap::new(),
        invariant_loads: Vec::new(),
        private_arrays: Vec::new(),
        threadgroup,
        callees,
        exchanges: None,
        branch_locations: HashMap::new(),
        objects: SizeBound::DEFAULT,
    };
    for index in 0..kernel.function.blocks.len() {
        lower_block(module, &mut kernel, BlockId(index as u32))?;
    }
    Ok(kernel)
}

fn lower_block(module: &Module, kernel: &mut Kernel, start: BlockId) -> Result<(), Error> {
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
                let natural = ty.size_align(module).1;
                let align = align.unwrap_or(natural);
                let ty = padded(module, ty, align);
                let value = inst.result.ok_or_else(|| Error::Malformed("alloca without a result".into()))?;
                let lane_stride = stride(module, &ty);
                kernel.private_arrays.push(PrivateArray { value, ty, align, lane_stride });
            }
            Op::Call(call) => match calls::classify(module, call, location.clone())? {
                CallKind::Dropped => {}
                // Log calls were lowered; analyses before that keep them.
                CallKind::Ordinary | CallKind::Log => kernel.function.block_mut(at).insts.push(inst),
                CallKind::Position(position, dim) => {
                    let value =
                        inst.result.ok_or_else(|| Error::Malformed("position without a result".into()))?;
                    kernel.positions.insert(value, (position, dim));
                }
                CallKind::Group => {
                    kernel.exchanges.get_or_insert(location);
                    kernel.function.block_mut(at).insts.push(inst);
                }
                // A vector is a whole simdgroup, whose memory operations are in order.
                CallKind::SimdgroupBarrier => {
                    kernel.exchanges.get_or_insert(location);
                }
                CallKind::Barrier(kind) => {
                    let cont = kernel.function.new_block(None);
                    kernel.function.block_mut(at).term = Term::Br(cont);
                    let device = kind.suspends() || orders_device(call);
                    kernel.barriers.push(Barrier { from: at, cont, device, kind, location });
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

/// The type of an array whose elements are aligned if they follow one another, as those of consecutive threads do. clang aligns small
/// parts of a larger array to more than their size.
fn padded(module: &Module, ty: Type, align: u64) -> Type {
    let more = stride(module, &ty).next_multiple_of(align) - stride(module, &ty);
    match &ty {
        _ if more == 0 => ty,
        Type::Array(count, element) if more.is_multiple_of(stride(module, element)) => {
            Type::array(count + more / stride(module, element), (**element).clone())
        }
        _ => Type::Struct { packed: false, fields: vec![ty, Type::array(more, Type::I8)] },
    }
}

/// The constant length of an alloca, which must be in the entry block.
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

/// Whether a barrier's flags include device memory; true if they are unknown.
fn orders_device(call: &Call) -> bool {
    match call.args.first().map(|a| &a.op) {
        Some(Operand::Const(c)) => c.as_unsigned(32).is_none_or(|flags| flags & DEVICE_FLAGS != 0),
        _ => true,
    }
}
