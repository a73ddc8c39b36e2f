//! Workgroup tiling: the loops over threadgroups.
//!
//! ```text
//! run ⟲ → row ⟲ → threadgroup ⟲ → the iterations of one row of one threadgroup
//! ```
//!
//! A run is a sequence of consecutive threadgroups along x. If the threads of a vector access adjacent memory, one row of threads
//! is executed in all threadgroups of the run before the next row, so that the accesses are contiguous over the length of the
//! run. This requires threads that do not wait for one another, in a kernel that cannot observe the order of threadgroups.
//! Otherwise all iterations are one row, and threadgroups run from start to end in ascending order.

use elinvar_ir::{
    BinaryOp, BlockId, CastOp, Const, Function, IntPredicate, Op, Operand, Type, Typed, ValueId,
};

use crate::analysis::lane_layout::Layout;
use crate::support::builder::{Builder, Counter, i32_const};
use crate::vector::prologue::Prologue;
use crate::vector::workgroup::Inputs;

/// Number of threads along x of a run with several rows. Long enough for hardware prefetchers, short enough that
/// data shared by the run's rows stays in the L1 cache.
const RUN: u32 = 256;
/// Maximum range in bytes of a vector's accesses that count as adjacent.
const TOGETHER: u64 = 1024;

/// Loops whose body is still to be emitted.
pub(crate) struct WorkgroupLoops {
    /// Position of the current threadgroup.
    pub position: [Operand; 3],
    /// Its size.
    pub size: [Operand; 3],
    /// Whether it is a full threadgroup, and exact if that depends on a dynamic size.
    pub complete: Operand,
    /// Current row, if rows are interleaved.
    pub row: Option<Operand>,
    /// Start of the body, without a terminator.
    pub body: BlockId,
    /// Target of the body's end.
    pub next: BlockId,
    /// Target of the loops' exit; empty.
    pub exit: BlockId,
}

/// Whether the rows of a full threadgroup, if it has several, are to be interleaved over several threadgroups.
pub(crate) fn is_profitable(inputs: &Inputs<'_>) -> bool {
    let Inputs { kernel, uniform, layout, options, .. } = *inputs;
    let together = |block: BlockId, ptr: &Typed| {
        let known = uniform.at(&ptr.op, &ptr.ty, block);
        known.pattern().is_some_and(|p| p.offsets.span(layout.lanes) <= TOGETHER)
    };
    let function = &kernel.function;
    let mut insts = function.block_ids().flat_map(|b| function.block(b).insts.iter().map(move |i| (b, i)));
    let is_free = kernel.barriers.is_empty() && !options.ascending && layout.lanes > 1;
    is_free
        && (layout.is_dynamic || layout.rows() > 1)
        && insts.all(|(block, inst)| match &inst.op {
            Op::Load { ptr, .. } | Op::Store { ptr, .. } => together(block, ptr),
            _ => true,
        })
}

/// Number of rows that are interleaved, and maximum number of threadgroups of a run.
fn tile(
    b: &mut Builder<'_>,
    prologue: &Prologue,
    layout: &Layout,
    is_tiled: bool,
) -> (Operand, Option<Operand>) {
    match &prologue.full.dynamic {
        _ if !is_tiled => (i32_const(1).into(), None),
        None => (i32_const(layout.rows()).into(), Some(i32_const((RUN / layout.group[0]).max(1)).into())),
        Some(dynamic) => {
            let x = prologue.full.threads[0].clone();
            let most = b.binary(BinaryOp::UDiv, "", &Type::I32, i32_const(RUN), x);
            let none = b.icmp(IntPredicate::Eq, &Type::I32, most, i32_const(0));
            let most = b.select(&Type::I32, none, i32_const(1), most);
            let most = b.select(&Type::I32, dynamic.is_single.clone(), i32_const(u32::MAX), most);
            (dynamic.rows.clone(), Some(most.into()))
        }
    }
}

/// Emits the loops over threadgroups, from the entry block.
pub(crate) fn loops(
    f: &mut Function,
    prologue: &Prologue,
    layout: &Layout,
    is_tiled: bool,
) -> WorkgroupLoops {
    let [head, run, row, group] = ["runs", "run", "row", "group"].map(|name| f.new_block(Some(name)));
    let [body, next, next_row, next_run] = [(); 4].map(|()| f.new_block(None));
    let exit = f.new_block(Some("exit"));
    let mut b = Builder::new(f, prologue.entry);
    let first = first_position(&mut b, prologue);
    let (rows, most) = tile(&mut b, prologue, layout, is_tiled);
    b.br(head);

    let index = Counter::new(b.f, head, "group.index", Type::I64, (prologue.begin.clone(), prologue.entry));
    let [x, y, z] = [("run.x", 0), ("group.y", 1), ("group.z", 2)]
        .map(|(name, d)| Counter::new(b.f, head, name, Type::I32, (first[d].clone(), prologue.entry)));
    b.at = head;
    let more = b.icmp(IntPredicate::Ult, &Type::I64, index.value, prologue.end.clone());
    b.cond_br(more, run, exit);

    b.at = run;
    let count = run_length(&mut b, prologue, &index, &x, most);
    let end = b.binary(BinaryOp::Add, "nuw", &Type::I32, x.value, count);
    let (y_size, y_full) = size(&mut b, prologue, 1, y.value);
    let (z_size, z_full) = size(&mut b, prologue, 2, z.value);
    let mut yz_full = b.binary(BinaryOp::And, "", &Type::I1, y_full, z_full);
    if let Some(is_exact) = prologue.full.dynamic.as_ref().and_then(|dynamic| dynamic.is_exact.as_ref()) {
        yz_full = b.binary(BinaryOp::And, "", &Type::I1, yz_full, is_exact.clone());
    }
    b.br(row);
    let row_number = Counter::new(b.f, row, "row", Type::I32, (i32_const(0), run));
    b.at = row;
    b.br(group);
    let group_x = Counter::new(b.f, group, "group.x", Type::I32, (x.value, row));
    b.at = group;
    let (x_size, x_full) = size(&mut b, prologue, 0, group_x.value);
    let complete = b.binary(BinaryOp::And, "", &Type::I1, yz_full, x_full).into();
    b.br(body);
    let groups = WorkgroupLoops {
        position: [group_x.value, y.value, z.value].map(Operand::from),
        size: [x_size, y_size, z_size],
        complete,
        row: is_tiled.then(|| row_number.value.into()),
        body,
        next,
        exit,
    };

    again(&mut b, group_x, end, (next, next_row));
    again(&mut b, row_number, rows, (next_row, next_run));
    b.at = next_run;
    let wide = b.cast(CastOp::ZExt, Type::I32, count, Type::I64);
    let after = b.binary(BinaryOp::Add, "nuw", &Type::I64, index.value, wide);
    index.end(b.f, after, next_run);
    let [x_after, y_after, z_after] = next_position(&mut b, prologue, end, y.value, z.value);
    for (counter, after) in [(x, x_after), (y, y_after), (z, z_after)] {
        counter.end(b.f, after, next_run);
    }
    b.br(head);
    groups
}

/// In the block `at`: increments the counter and branches to its block, or to `onward` at the end.
fn again(b: &mut Builder<'_>, counter: Counter, end: impl Into<Operand>, (at, onward): (BlockId, BlockId)) {
    b.at = at;
    let back = counter.at;
    let more = counter.count(b, "nuw", end);
    b.cond_br(more, back, onward);
}

/// Position of the first threadgroup.
fn first_position(b: &mut Builder<'_>, prologue: &Prologue) -> [Operand; 3] {
    let begin = prologue.begin.clone();
    let wide = [0, 1].map(|d| b.cast(CastOp::ZExt, Type::I32, prologue.groups[d].clone(), Type::I64));
    let x = b.binary(BinaryOp::URem, "", &Type::I64, begin.clone(), wide[0]);
    let rest = b.binary(BinaryOp::UDiv, "", &Type::I64, begin, wide[0]);
    let y = b.binary(BinaryOp::URem, "", &Type::I64, rest, wide[1]);
    let z = b.binary(BinaryOp::UDiv, "", &Type::I64, rest, wide[1]);
    [x, y, z].map(|p| Operand::from(b.cast(CastOp::Trunc, Type::I64, p, Type::I32)))
}

/// Number of threadgroups of a run: at most `most`, if it is given, the rest along x, and the rest of the range.
fn run_length(
    b: &mut Builder<'_>,
    prologue: &Prologue,
    index: &Counter,
    x: &Counter,
    most: Option<Operand>,
) -> ValueId {
    let left = b.binary(BinaryOp::Sub, "nuw", &Type::I64, prologue.end.clone(), index.value);
    let along = b.binary(BinaryOp::Sub, "nuw", &Type::I32, prologue.groups[0].clone(), x.value);
    let wide = b.cast(CastOp::ZExt, Type::I32, along, Type::I64);
    let fewer = b.icmp(IntPredicate::Ult, &Type::I64, left, wide);
    let left = b.cast(CastOp::Trunc, Type::I64, left, Type::I32);
    let count = b.select(&Type::I32, fewer, left, along);
    let Some(most) = most else { return count };
    let fewer = b.icmp(IntPredicate::Ult, &Type::I32, count, most.clone());
    b.select(&Type::I32, fewer, count, most)
}

/// Size of the threadgroup at a position along a dimension, and whether it is full.
fn size(b: &mut Builder<'_>, prologue: &Prologue, dim: usize, at: ValueId) -> (Operand, Operand) {
    if prologue.full.is_one(dim) {
        return (i32_const(1).into(), Const::int(1, -1).into());
    }
    let full = &prologue.full.threads[dim];
    let first = b.binary(BinaryOp::Mul, "nuw", &Type::I32, at, full.clone());
    let left = b.binary(BinaryOp::Sub, "nuw", &Type::I32, prologue.grid[dim].clone(), first);
    let whole = b.icmp(IntPredicate::Uge, &Type::I32, left, full.clone());
    (b.select(&Type::I32, whole, full.clone(), left).into(), whole.into())
}

/// Position of the threadgroup after a run that ends at `end`.
fn next_position(
    b: &mut Builder<'_>,
    prologue: &Prologue,
    end: ValueId,
    y: ValueId,
    z: ValueId,
) -> [ValueId; 3] {
    let one = || i32_const(1);
    let x_ends = b.icmp(IntPredicate::Eq, &Type::I32, end, prologue.groups[0].clone());
    let y_after = b.binary(BinaryOp::Add, "", &Type::I32, y, one());
    let y_after = b.select(&Type::I32, x_ends, y_after, y);
    let y_ends = b.icmp(IntPredicate::Eq, &Type::I32, y_after, prologue.groups[1].clone());
    let z_after = b.binary(BinaryOp::Add, "", &Type::I32, z, one());
    let z_after = b.select(&Type::I32, y_ends, z_after, z);
    let x_after = b.select(&Type::I32, x_ends, i32_const(0), end);
    [x_after, b.select(&Type::I32, y_ends, i32_const(0), y_after), z_after]
}
