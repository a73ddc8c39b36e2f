//! Facts about a kernel's optimized code.

use elinvar_ir::{Module, Op};

use crate::analysis::{mod_ref, stack_usage};
use crate::intrinsic::Intrinsic;
use crate::support::ir::{callee_name, threadgroup_globals};
use crate::{ENTRY, Error};

/// Facts about a kernel's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Static threadgroup memory in bytes, each variable rounded up to a multiple of 16.
    pub threadgroup_memory: u64,
    /// Number of threadgroup barriers.
    pub barriers: u32,
    /// Number of grid barriers.
    pub grid_barriers: u32,
    /// Number of atomic operations: read-modify-write, compare-exchange, atomic loads and stores.
    pub atomics: u32,
    /// Whether it uses simdgroup or quadgroup functions.
    pub simdgroup: bool,
    /// Bit set of arguments (bit i: argument i) that the code writes and never reads, by clang's attributes.
    pub only_written: u64,
    /// Bit set of arguments (bit i: argument i) that the code may write, regardless of their declared types.
    pub may_write: u64,
}

/// Collects facts about the entry of `module` and the functions that it calls.
pub fn facts(module: &Module) -> Result<Facts, Error> {
    if module.function(ENTRY).is_none() {
        return Err(Error::Malformed(format!("there is no function `{ENTRY}`")));
    }
    stack_usage::check(module)?;
    let mut facts = Facts::default();
    let threadgroup = threadgroup_globals(module);
    for global in module.globals.iter().filter(|g| threadgroup.contains(&g.name)) {
        facts.threadgroup_memory += global.ty.size_align(module).0.next_multiple_of(16);
    }
    for inst in module.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts) {
        match &inst.op {
            Op::AtomicRmw { .. } | Op::CmpXchg { .. } => facts.atomics += 1,
            Op::Load { atomic: Some(_), .. } | Op::Store { atomic: Some(_), .. } => facts.atomics += 1,
            Op::Call(call) => match callee_name(call).and_then(Intrinsic::parse) {
                Some(Intrinsic::ThreadgroupBarrier) => facts.barriers += 1,
                Some(Intrinsic::GridBarrier) => facts.grid_barriers += 1,
                Some(Intrinsic::Yield) => facts.barriers += 1,
                Some(Intrinsic::SimdgroupBarrier | Intrinsic::Group(_) | Intrinsic::TensorProduct) => {
                    facts.simdgroup = true;
                }
                Some(
                    Intrinsic::Position(_) | Intrinsic::Scale | Intrinsic::Log | Intrinsic::HasTensorProduct,
                )
                | None => {}
            },
            _ => {}
        }
    }
    facts.only_written = only_written(module);
    facts.may_write = module.function(ENTRY).map_or(0, |entry| mod_ref::may_write(module, entry));
    Ok(facts)
}

fn only_written(module: &Module) -> u64 {
    let params = module.function(ENTRY).map_or(&[][..], |entry| &entry.params);
    let marked = |attrs: &str| attrs.split_whitespace().any(|attr| attr == "writeonly");
    let bits = params.iter().take(64).enumerate().filter(|(_, param)| marked(&param.attrs));
    bits.fold(0, |bits, (index, _)| bits | 1 << index)
}
