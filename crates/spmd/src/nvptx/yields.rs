//! Lowers the yields of resident kernels to threadgroup barriers of all memory, behind a sleep of the thread's warp where the kernel has found
//! nothing to do (PTX ISA, "nanosleep").

use elinvar_ir::{Inst, Module, Op, Operand, Type};

use crate::intrinsic::Intrinsic;
use crate::support::builder::{call, i32_const};
use crate::support::ir::callee_name;
use crate::{ENTRY, Error};

/// The function that sleeps.
const SLEEP: &str = "elinvar_sleep";

const DEFINITION: &str = "
declare void @llvm.nvvm.nanosleep(i32)
define internal void @elinvar_sleep(i32 %nanoseconds) alwaysinline nounwind {
start:
  %none = icmp eq i32 %nanoseconds, 0
  br i1 %none, label %end, label %sleep
sleep:
  call void @llvm.nvvm.nanosleep(i32 %nanoseconds)
  br label %end
end:
  ret void
}
";

fn is_yield(inst: &Inst) -> bool {
    match &inst.op {
        Op::Call(call) => callee_name(call).and_then(Intrinsic::parse) == Some(Intrinsic::Yield),
        _ => false,
    }
}

/// Whether the entry of a module yields.
pub(super) fn is_needed(module: &Module) -> bool {
    let insts = module.function(ENTRY).into_iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts);
    insts.into_iter().any(is_yield)
}

/// Lowers the yields of the entry.
pub(super) fn lower(module: &mut Module) -> Result<(), Error> {
    let entry = module.functions.iter_mut().find(|f| f.name == ENTRY && !f.is_declaration());
    let entry = entry.ok_or_else(|| Error::Malformed(format!("there is no function `{ENTRY}`")))?;
    for block in &mut entry.blocks {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            if is_yield(&inst) {
                insts.extend(sleep(&inst));
                let flags: Operand = i32_const(3).into();
                inst.op = call(Type::Void, &Intrinsic::ThreadgroupBarrier.name(), &[(Type::I32, flags)]);
            }
            insts.push(inst);
        }
        block.insts = insts;
    }
    let parsed = Module::parse(DEFINITION).map_err(|error| Error::Malformed(format!("{SLEEP}: {error}")))?;
    for function in parsed.functions {
        if module.function(&function.name).is_none() {
            module.functions.push(function);
        }
    }
    Ok(())
}

/// The call of [`SLEEP`] before a yield that may sleep.
fn sleep(inst: &Inst) -> Option<Inst> {
    let Op::Call(of) = &inst.op else { return None };
    let nanoseconds = &of.args.get(1)?.op;
    let never = matches!(nanoseconds, Operand::Const(c) if c.as_unsigned(32) == Some(0));
    let op = call(Type::Void, SLEEP, &[(Type::I32, nanoseconds.clone())]);
    (!never).then(|| Inst { result: None, op, metadata: inst.metadata.clone() })
}
