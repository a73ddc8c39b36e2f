//! [`Kernel`]: the form of a kernel on which the passes of the CPU back end work: one function without calls of intrinsics.

use std::collections::HashMap;

use elinvar_ir::{BlockId, Const, Function, Inst, Location, Module, Op, Operand, Type, Typed, ValueId};

use crate::ENTRY;
use crate::analysis::size_bound::SizeBound;
use crate::intrinsic::{Intrinsic, Position};
use crate::support::builder::{call, i32_const};
use crate::support::declarations::declare_called;
use crate::transform::hoist_invariant_loads::InvariantLoad;

/// A thread's function, its intrinsics lowered.
pub(crate) struct Kernel {
    /// The entry, its blocks split at barriers; the calls of intrinsics and the allocas are taken out,
    /// so the values they defined have no defining instruction.
    pub function: Function,
    /// The barriers. Each is the edge `from → cont`, the only edge out of `from` and into `cont`.
    pub barriers: Vec<Barrier>,
    /// Position and size values, with the dimension.
    pub positions: HashMap<ValueId, (Position, usize)>,
    /// Invariant loads: uniform over the launch, executed once per call.
    pub invariant_loads: Vec<InvariantLoad>,
    /// Private arrays: one for each thread.
    pub private_arrays: Vec<PrivateArray>,
    /// Names of the module's threadgroup variables.
    pub threadgroup: Vec<String>,
    /// The functions of the module that the entry calls, directly or not.
    pub callees: Vec<Function>,
    /// Location of the first simdgroup operation or barrier, if any.
    pub exchanges: Option<Option<Location>>,
    /// Source location of each block's branch.
    pub branch_locations: HashMap<BlockId, Location>,
    /// Upper bound of the sizes of the objects that arguments and pointers in memory point to.
    pub objects: SizeBound,
}

/// A barrier edge.
pub(crate) struct Barrier {
    pub from: BlockId,
    pub cont: BlockId,
    /// Whether it orders device memory too.
    pub device: bool,
    pub kind: BarrierKind,
    pub location: Option<Location>,
}

/// What a barrier waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    /// The threads of the threadgroup.
    Threadgroup,
    /// All threadgroups of the grid.
    Grid,
    /// The threads of the threadgroup, and the driver, which resumes it; see [`Intrinsic::Yield`].
    Yield { idle: bool },
}

impl BarrierKind {
    /// Whether the function returns there.
    pub fn suspends(self) -> bool {
        self != Self::Threadgroup
    }
}

/// A private array.
pub(crate) struct PrivateArray {
    pub value: ValueId,
    pub ty: Type,
    pub align: u64,
    /// Distance in bytes between the first elements of consecutive threads.
    pub lane_stride: u64,
}

impl Kernel {
    /// The barrier on the edge out of `block`.
    pub fn barrier_after(&self, block: BlockId) -> Option<usize> {
        self.barriers.iter().position(|b| b.from == block)
    }

    /// Whether it has a barrier at which a threadgroup is suspended, and resumed by a later call.
    pub fn is_cooperative(&self) -> bool {
        self.barriers.iter().any(|barrier| barrier.kind.suspends())
    }

    /// The entry and the functions it calls.
    pub fn functions_mut(&mut self) -> impl Iterator<Item = &mut Function> {
        std::iter::once(&mut self.function).chain(&mut self.callees)
    }

    /// Converts the kernel back to a module, to print and verify it: positions and barriers are calls, private arrays are allocas, and
    /// invariant loads are at the start of the entry.
    pub fn to_module(&self, module: &Module) -> Module {
        let mut output = module.clone();
        let mut function = self.function.clone();
        let mut first: Vec<Inst> = Vec::new();
        let mut define =
            |result: Option<ValueId>, op: Op| first.push(Inst { result, op, metadata: Vec::new() });
        for array in &self.private_arrays {
            let op = Op::Alloca { ty: array.ty.clone(), count: None, align: Some(array.align), addrspace: 0 };
            define(Some(array.value), op);
        }
        let mut positions: Vec<_> = self.positions.iter().collect();
        positions.sort();
        for (value, (position, dim)) in positions {
            let dim = (Type::I32, i32_const(*dim as u32).into());
            let args = if position.has_dimension() { &[dim][..] } else { &[][..] };
            define(
                Some(*value),
                call(function.ty(*value).clone(), &Intrinsic::Position(*position).name(), args),
            );
        }
        for load in &self.invariant_loads {
            let at = function.new_value(Type::PTR, None);
            let offset = Typed::new(Type::I64, Const::int(64, i128::from(load.offset)));
            let base = Typed::new(Type::PTR, function.params[load.param].value);
            let indices = vec![offset];
            define(Some(at), Op::Gep { flags: String::new(), source: Type::I8, base, indices });
            let ptr = Typed::new(Type::PTR, at);
            let op = Op::Load { ty: load.ty.clone(), ptr, align: load.align, volatile: false, atomic: None };
            define(Some(load.value), op);
        }
        function.block_mut(BlockId(0)).insts.splice(0..0, first);
        for barrier in &self.barriers {
            let flags: Operand = i32_const(if barrier.device { 3 } else { 2 }).into();
            let op = match barrier.kind {
                BarrierKind::Grid => call(Type::Void, &Intrinsic::GridBarrier.name(), &[]),
                BarrierKind::Threadgroup => {
                    call(Type::Void, &Intrinsic::ThreadgroupBarrier.name(), &[(Type::I32, flags)])
                }
                BarrierKind::Yield { idle } => {
                    let args = [u32::from(idle), 0].map(|n| (Type::I32, i32_const(n).into()));
                    call(Type::Void, &Intrinsic::Yield.name(), &args)
                }
            };
            function.block_mut(barrier.from).insts.push(Inst { result: None, op, metadata: Vec::new() });
        }
        output
            .functions
            .retain(|f| f.name != ENTRY && self.callees.iter().all(|callee| callee.name != f.name));
        output.functions.insert(0, function);
        output.functions.extend(self.callees.iter().cloned());
        declare_called(&mut output, |_| true);
        output
    }
}
