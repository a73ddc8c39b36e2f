//! Prologue of the function over threadgroups, executed once per call: arguments, sizes, threadgroup memory.

use elinvar_ir::{BlockId, Const, Function, Op, Operand, Type, Typed, ValueId};

use super::barrier_context::BarrierContext;
use super::full_size::FullSize;
use super::safepoints;
use crate::analysis::lane_layout::Layout;
use crate::intrinsic::Position;
use crate::kernel::Kernel;
use crate::support::builder::{Builder, i64_const};
use crate::support::constants::Threadgroup;
use crate::transform::hoist_invariant_loads::InvariantLoad;
use crate::{Error, Options};

/// Byte offsets in `Launch` of arrays of three u32.
const LAUNCH_THREADS: u64 = 8;
const LAUNCH_GROUPS: u64 = 20;
/// Byte offsets in `Launch` of addresses.
const LAUNCH_SIZES: u64 = 32;
const LAUNCH_RECORD: u64 = 40;
const LAUNCH_STOP: u64 = 48;
/// Byte offset in `Launch` of the full threadgroup size, three u32.
pub(super) const LAUNCH_GROUP: u64 = 56;
/// Byte offsets in `Launch` of the kernel's number in log records, a u32, and of the address of the log's control block.
const LAUNCH_LOG_KERNEL: u64 = 68;
const LAUNCH_LOG_RING: u64 = 72;

/// Values of the entry block.
pub(crate) struct Prologue {
    pub entry: BlockId,
    pub scratch: Operand,
    pub begin: Operand,
    pub end: Operand,
    /// Addresses of the per-thread function's parameters.
    pub arguments: Vec<(ValueId, Operand)>,
    /// Invariant loads.
    pub invariant: Vec<(ValueId, Operand)>,
    /// `threads_per_grid` and `threadgroups_per_grid`, i32 each.
    pub grid: [Operand; 3],
    pub groups: [Operand; 3],
    /// `dispatch_threads_per_threadgroup`.
    pub full: FullSize,
    /// Sizes of the arguments' memory in bytes, with bounds checks or private counters.
    pub sizes: Vec<Operand>,
    /// Address of the fault record, with bounds checks.
    pub record: Operand,
    /// Address of the log's control block and the kernel's number in log records, with log calls.
    pub log_ring: Operand,
    pub log_kernel: Operand,
    /// Threadgroup memory that is zeroed for each threadgroup, with bounds checks: address and size in bytes.
    pub cleared: Vec<(Operand, Operand)>,
    /// Address of the stop byte, if the function polls it.
    pub stop: Option<Operand>,
    /// Slot for the number of the barrier that the threadgroup's threads have reached, 0 for none.
    pub arrived: Operand,
}

impl Prologue {
    /// Write the entry block of `f`; also gives where its threadgroup variables are. The dynamic threadgroup memory begins behind the
    /// barrier contexts in the scratch memory.
    pub fn write(
        module: &elinvar_ir::Module,
        kernel: &Kernel,
        options: &Options,
        layout: &Layout,
        (context, needs_sizes): (&BarrierContext, bool),
        f: &mut Function,
    ) -> Result<(Prologue, Threadgroup), Error> {
        let launch = f.add_param(Type::PTR, "nocapture noundef readonly", Some("launch"));
        let scratch = f.add_param(Type::PTR, "noalias noundef align 64", Some("scratch"));
        let begin = f.add_param(Type::I64, "noundef", Some("begin"));
        let end = f.add_param(Type::I64, "noundef", Some("end"));
        let entry = f.new_block(Some("entry"));
        let mut b = Builder::new(f, entry);
        let mut threadgroup = Threadgroup::default();
        let mut cleared = Vec::new();
        for name in &kernel.threadgroup {
            let Some(global) = module.global(name) else { continue };
            let variable = match context.threadgroup(name) {
                Some(offset) => b.gep(Type::I8, scratch, i64_const(offset)),
                None => b.alloca(global.ty.clone(), global.align.unwrap_or(1).max(64), "threadgroup"),
            };
            threadgroup.insert(name.clone(), variable.into());
            cleared.push((variable.into(), i64_const(global.ty.size_align(module).0).into()));
        }
        for operand in constants(&kernel.function) {
            threadgroup.materialize(operand, &mut b)?;
        }
        let arrived = b.alloca(Type::I32, 4, "arrived").into();
        let arguments = arguments(&mut b, kernel, options, context.bytes, launch, scratch);
        let invariant =
            kernel.invariant_loads.iter().map(|f| load_invariant(&mut b, f, &arguments)).collect();
        let grid = load_dims(&mut b, launch, LAUNCH_THREADS, "grid");
        let groups = load_dims(&mut b, launch, LAUNCH_GROUPS, "groups");
        let full = FullSize::write(&mut b, layout, launch);
        let sizes = match options.checks.is_some() || needs_sizes {
            true => load_sizes(&mut b, launch, kernel.function.params.len()),
            false => Vec::new(),
        };
        let record = match options.checks {
            Some(_) => {
                let place = b.gep(Type::I8, launch, i64_const(LAUNCH_RECORD));
                b.load(Type::PTR, place, Some("record")).into()
            }
            None => Const::Null.into(),
        };
        let has_logs = kernel.positions.values().any(|(position, _)| *position == Position::LogRing);
        let [log_ring, log_kernel] = match has_logs {
            true => [(LAUNCH_LOG_RING, Type::PTR), (LAUNCH_LOG_KERNEL, Type::I32)].map(|(offset, ty)| {
                let place = b.gep(Type::I8, launch, i64_const(offset));
                b.load(ty, place, Some("log")).into()
            }),
            false => [Const::Null.into(), Const::Zero.into()],
        };
        match options.checks {
            Some(_) => {
                let dynamic = options.threadgroup_args.iter().zip(&arguments).zip(&sizes);
                let dynamic = dynamic.filter(|((is_threadgroup, _), _)| **is_threadgroup);
                cleared.extend(dynamic.map(|((_, (_, address)), bytes)| (address.clone(), bytes.clone())));
            }
            None => cleared.clear(),
        }
        let stop = options.stoppable.then(|| {
            let place = b.gep(Type::I8, launch, i64_const(LAUNCH_STOP));
            b.load(Type::PTR, place, Some("stop")).into()
        });
        let (scratch, begin, end) = (scratch.into(), begin.into(), end.into());
        let frame = Prologue {
            entry,
            scratch,
            begin,
            end,
            arguments,
            invariant,
            grid,
            groups,
            full,
            sizes,
            record,
            log_ring,
            log_kernel,
            cleared,
            stop,
            arrived,
        };
        Ok((frame, threadgroup))
    }
}

impl Prologue {
    /// Returns from the function if the stop byte is set.
    pub fn poll(&self, b: &mut Builder<'_>) {
        if let Some(stop) = &self.stop {
            safepoints::poll(b, stop, safepoints::stopped());
        }
    }
}

/// Every constant operand of a function.
fn constants(function: &Function) -> impl Iterator<Item = &Const> {
    let operands = function.blocks.iter().flat_map(|block| {
        block.insts.iter().flat_map(|i| i.op.operands()).chain(block.term.operands()).collect::<Vec<_>>()
    });
    operands.filter_map(|o| match o {
        Operand::Const(c) => Some(c),
        Operand::Value(_) => None,
    })
}

/// Loads the arguments' addresses.
fn arguments(
    b: &mut Builder<'_>,
    kernel: &Kernel,
    options: &Options,
    context_bytes: u64,
    launch: ValueId,
    scratch: ValueId,
) -> Vec<(ValueId, Operand)> {
    let args = b.load(Type::PTR, launch, Some("args"));
    let address = |(index, param): (usize, &elinvar_ir::Param)| {
        let place = b.gep(Type::PTR, args, i64_const(index as u64));
        let address = if options.threadgroup_args[index] {
            let offset = b.load(Type::I64, place, None);
            let dynamic = b.gep(Type::I8, scratch, i64_const(context_bytes));
            b.gep(Type::I8, dynamic, offset)
        } else {
            b.load(Type::PTR, place, None)
        };
        (param.value, address.into())
    };
    kernel.function.params.iter().enumerate().map(address).collect()
}

fn load_invariant(
    b: &mut Builder<'_>,
    invariant: &InvariantLoad,
    arguments: &[(ValueId, Operand)],
) -> (ValueId, Operand) {
    let mut at = arguments[invariant.param].1.clone();
    if invariant.offset > 0 {
        at = b.gep(Type::I8, at, i64_const(invariant.offset)).into();
    }
    let (ty, ptr) = (invariant.ty.clone(), Typed::new(Type::PTR, at));
    let op = Op::Load { ty: ty.clone(), ptr, align: invariant.align, volatile: false, atomic: None };
    (invariant.value, b.value(ty, None, op).into())
}

/// Loads the arguments' sizes.
fn load_sizes(b: &mut Builder<'_>, launch: ValueId, arguments: usize) -> Vec<Operand> {
    let place = b.gep(Type::I8, launch, i64_const(LAUNCH_SIZES));
    let sizes = b.load(Type::PTR, place, Some("sizes"));
    let sizes = (0..arguments as u64).map(|index| {
        let place = b.gep(Type::I64, sizes, i64_const(index));
        b.load(Type::I64, place, None).into()
    });
    sizes.collect()
}

/// Loads an array of three u32 of `Launch`.
pub(super) fn load_dims(b: &mut Builder<'_>, launch: ValueId, offset: u64, name: &str) -> [Operand; 3] {
    [0, 1, 2].map(|dim| {
        let place = b.gep(Type::I8, launch, i64_const(offset + 4 * dim));
        b.load(Type::I32, place, Some(name)).into()
    })
}
