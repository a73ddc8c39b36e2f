//! Lowers grid barriers to a function over a counter in global memory, the parameter [`GridCounter`](super::Parameter::GridCounter).
//!
//! The threads of a block meet at `bar.sync`. One of them adds to the counter: the first block 2³¹ - (n - 1), each other of the n blocks 1, so
//! that the upper bit flips when the last one has arrived and the lower bits are 0 again; it then waits for the flip, and the threads
//! meet a second time. This is the barrier of CUDA's cooperative groups, whose thread is the block's first. Here that one may have
//! returned, so the threads at the barrier choose one of them by writing to one word of shared memory.
//!
//! A fence before the addition and one behind the wait make all that the blocks wrote before the barrier visible behind it (PTX ISA, "Memory
//! Consistency Model": causality order; `bar.sync` synchronizes the threads of a block). In PTX the second fence and the loads of the wait
//! become loads that acquire (`elinvar-ptx`).

use elinvar_ir::{Const, Global, Inst, Module, Op, Operand, Type};

use crate::intrinsic::{Intrinsic, Position};
use crate::support::builder::call;
use crate::support::ir::callee_name;
use crate::{ENTRY, Error, THREADGROUP_SECTION};

/// The function.
const WAIT: &str = "elinvar_grid_wait";
/// The word for the choice of a thread.
const CHOSEN: &str = "elinvar_grid_chosen";

const DEFINITION: &str = "
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.z()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.z()
declare void @llvm.nvvm.barrier0()
declare void @llvm.nvvm.membar.gl()
define internal void @elinvar_grid_wait(ptr %counter, ptr %chosen) alwaysinline convergent nounwind {
start:
  %x = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %y = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %z = call i32 @llvm.nvvm.read.ptx.sreg.tid.z()
  %width = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %height = call i32 @llvm.nvvm.read.ptx.sreg.ntid.y()
  %layer = mul i32 %z, %height
  %row = add i32 %layer, %y
  %before = mul i32 %row, %width
  %own = add i32 %before, %x
  store volatile i32 %own, ptr %chosen, align 4
  call void @llvm.nvvm.barrier0()
  %one = load volatile i32, ptr %chosen, align 4
  %is_chosen = icmp eq i32 %one, %own
  br i1 %is_chosen, label %arrive, label %meet
arrive:
  %groups_x = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %groups_y = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.y()
  %groups_z = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.z()
  %plane = mul i32 %groups_x, %groups_y
  %groups = mul i32 %plane, %groups_z
  %group_x = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %group_y = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %group_z = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()
  %xy = or i32 %group_x, %group_y
  %xyz = or i32 %xy, %group_z
  %is_first = icmp eq i32 %xyz, 0
  %flip = sub i32 -2147483647, %groups
  %added = select i1 %is_first, i32 %flip, i32 1
  call void @llvm.nvvm.membar.gl()
  %old = atomicrmw add ptr %counter, i32 %added monotonic, align 4
  br label %wait
wait:
  %now = load volatile i32, ptr %counter, align 4
  %differs = xor i32 %old, %now
  %has_flipped = icmp slt i32 %differs, 0
  br i1 %has_flipped, label %passed, label %wait
passed:
  call void @llvm.nvvm.membar.gl()
  br label %meet
meet:
  call void @llvm.nvvm.barrier0()
  ret void
}
";

/// Whether the entry of a module has a grid barrier.
pub(super) fn is_needed(module: &Module) -> bool {
    let insts = module.function(ENTRY).into_iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts);
    insts.into_iter().any(is_grid_barrier)
}

fn is_grid_barrier(inst: &Inst) -> bool {
    match &inst.op {
        Op::Call(call) => callee_name(call).and_then(Intrinsic::parse) == Some(Intrinsic::GridBarrier),
        _ => false,
    }
}

/// Lowers the grid barriers of the entry.
pub(super) fn lower(module: &mut Module) -> Result<(), Error> {
    let index = module.functions.iter().position(|f| f.name == ENTRY && !f.is_declaration());
    let index = index.ok_or_else(|| Error::Malformed(format!("there is no function `{ENTRY}`")))?;
    let entry = &mut module.functions[index];
    let counter = entry.new_value(Type::PTR, None);
    let chosen = Operand::Const(Const::Global(CHOSEN.into()));
    let args = [(Type::PTR, counter.into()), (Type::PTR, chosen)];
    let insts = entry.blocks.iter_mut().flat_map(|block| &mut block.insts);
    insts.filter(|inst| is_grid_barrier(inst)).for_each(|inst| inst.op = call(Type::Void, WAIT, &args));
    let ask = call(Type::PTR, &Position::GridCounter.function(), &[]);
    let ask = Inst { result: Some(counter), op: ask, metadata: Vec::new() };
    entry.blocks[0].insts.insert(0, ask);
    module.globals.push(Global {
        name: CHOSEN.into(),
        linkage: "internal".into(),
        constant: false,
        ty: Type::I32,
        init: Some(Const::Undef),
        section: Some(THREADGROUP_SECTION.into()),
        align: Some(4),
        suffix: String::new(),
        metadata: Vec::new(),
    });
    let parsed = Module::parse(DEFINITION).map_err(|error| Error::Malformed(format!("{WAIT}: {error}")))?;
    for function in parsed.functions {
        if module.function(&function.name).is_none() {
            module.functions.push(function);
        }
    }
    Ok(())
}
