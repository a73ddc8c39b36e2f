//! The loops over threadgroups.
//!
//! ```text
//! run ⟲ → row ⟲ → group ⟲ → the steps of one row of one group
//! ```
//! A run is groups that follow one another along x. Where the threads of a vector reach what lies together, a row of
//! threads is run in all groups of the run before the next row is: what they reach then follows in memory for as long
//! as the run is. That needs threads that never wait for one another, in a kernel that cannot tell in which order groups
//! start. Otherwise all steps are one row, and groups run from start to end in ascending order.

use elinvar_ir::{
    BinaryOp, BlockId, CastOp, Const, Function, IntPredicate, Op, Operand, Type, Typed, ValueId,
};

use crate::support::builder::{Builder, Counter, i32_const};
use crate::vector::prologue::Prologue;
use crate::vector::workgroup::Inputs;

/// Threads along x that a run of several rows covers. Long enough for the prefetchers of processors, short enough that
/// what the run's rows have in common stays in the first cache.
const RUN: u32 = 256;
/// Bytes within which the lanes of a vector reach for what lies together.
const TOGETHER: u64 = 1024;

/// Loops whose body is still to be written.
pub(crate) struct WorkgroupLoops {
    /// The group that the loops are at.
    pub position: [Operand; 3],
    /// Its size.
    pub size: [Operand; 3],
    /// Whether it is as large as a full one.
    pub complete: Operand,
    /// The row that the loops are at; 0 if there is one.
    pub row: Operand,
    /// Where the body starts; it has no terminator yet.
    pub body: BlockId,
    /// Where the body goes when it is done.
    pub next: BlockId,
    /// Where the loops go when all groups are done; empty.
    pub exit: BlockId,
}

/// How many rows of steps of a full group are run in turn in several groups.
pub(crate) fn rows(inputs: &Inputs<'_>) -> u32 {
    let Inputs { kernel, uniform, layout, options, .. } = *inputs;
    let together = |block: BlockId, ptr: &Typed| {
        let known = uniform.at(&ptr.op, &ptr.ty, block);
        known.pattern().is_some_and(|p| p.offsets.span(layout.lanes) <= TOGETHER)
    };
    let function = &kernel.function;
    let mut insts = function.block_ids().flat_map(|b| function.block(b).insts.iter().map(move |i| (b, i)));
    let is_free = kernel.barriers.is_empty() && !options.ascending && layout.lanes > 1;
    let in_rows = is_free
        && insts.all(|(block, inst)| match &inst.op {
            Op::Load { ptr, .. } | Op::Store { ptr, .. } => together(block, ptr),
            _ => true,
        });
    if in_rows { layout.rows() } else { 1 }
}

/// Write the loops, from the entry block on, over groups of this full size with so many rows.
pub(crate) fn loops(f: &mut Function, prologue: &Prologue, full: [u32; 3], rows: u32) -> WorkgroupLoops {
    let [head, run, row, group] = ["runs", "run", "row", "group"].map(|name| f.new_block(Some(name)));
    let [body, next, next_row, next_run] = [(); 4].map(|()| f.new_block(None));
    let exit = f.new_block(Some("exit"));
    let mut b = Builder::new(f, prologue.entry);
    let first = first_position(&mut b, prologue);
    b.br(head);

    let index = Counter::new(b.f, head, "group.index", Type::I64, (prologue.begin.clone(), prologue.entry));
    let [x, y, z] = [("run.x", 0), ("group.y", 1), ("group.z", 2)]
        .map(|(name, d)| Counter::new(b.f, head, name, Type::I32, (first[d].clone(), prologue.entry)));
    b.at = head;
    let more = b.icmp(IntPredicate::Ult, &Type::I64, index.value, prologue.end.clone());
    b.cond_br(more, run, exit);

    b.at = run;
    let most = if rows > 1 { (RUN / full[0]).max(1) } else { u32::MAX };
    let count = run_length(&mut b, prologue, &index, &x, most);
    let end = b.binary(BinaryOp::Add, "nuw", &Type::I32, x.value, count);
    let (y_size, y_full) = size(&mut b, prologue, full, 1, y.value);
    let (z_size, z_full) = size(&mut b, prologue, full, 2, z.value);
    let yz_full = b.binary(BinaryOp::And, "", &Type::I1, y_full, z_full);
    b.br(row);
    let row_number = Counter::new(b.f, row, "row", Type::I32, (i32_const(0), run));
    b.at = row;
    b.br(group);
    let group_x = Counter::new(b.f, group, "group.x", Type::I32, (x.value, row));
    b.at = group;
    let (x_size, x_full) = size(&mut b, prologue, full, 0, group_x.value);
    let complete = b.binary(BinaryOp::And, "", &Type::I1, yz_full, x_full).into();
    b.br(body);
    let groups = WorkgroupLoops {
        position: [group_x.value, y.value, z.value].map(Operand::from),
        size: [x_size, y_size, z_size],
        complete,
        row: if rows > 1 { row_number.value.into() } else { i32_const(0).into() },
        body,
        next,
        exit,
    };

    again(&mut b, group_x, end, (next, next_row));
    again(&mut b, row_number, i32_const(rows), (next_row, next_run));
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

/// In the block `at`: count on, and back to the counter's block, or to `onward` at the end.
fn again(b: &mut Builder<'_>, counter: Counter, end: impl Into<Operand>, (at, onward): (BlockId, BlockId)) {
    b.at = at;
    let back = counter.at;
    let more = counter.count(b, "nuw", end);
    b.cond_br(more, back, onward);
}

/// The position of the first group.
fn first_position(b: &mut Builder<'_>, prologue: &Prologue) -> [Operand; 3] {
    let begin = prologue.begin.clone();
    let wide = [0, 1].map(|d| b.cast(CastOp::ZExt, Type::I32, prologue.groups[d].clone(), Type::I64));
    let x = b.binary(BinaryOp::URem, "", &Type::I64, begin.clone(), wide[0]);
    let rest = b.binary(BinaryOp::UDiv, "", &Type::I64, begin, wide[0]);
    let y = b.binary(BinaryOp::URem, "", &Type::I64, rest, wide[1]);
    let z = b.binary(BinaryOp::UDiv, "", &Type::I64, rest, wide[1]);
    [x, y, z].map(|p| Operand::from(b.cast(CastOp::Trunc, Type::I64, p, Type::I32)))
}

/// How many groups of a run there are, at most `most`: those left along x and those left at all.
fn run_length(b: &mut Builder<'_>, prologue: &Prologue, index: &Counter, x: &Counter, most: u32) -> ValueId {
    let left = b.binary(BinaryOp::Sub, "nuw", &Type::I64, prologue.end.clone(), index.value);
    let along = b.binary(BinaryOp::Sub, "nuw", &Type::I32, prologue.groups[0].clone(), x.value);
    let wide = b.cast(CastOp::ZExt, Type::I32, along, Type::I64);
    let fewer = b.icmp(IntPredicate::Ult, &Type::I64, left, wide);
    let left = b.cast(CastOp::Trunc, Type::I64, left, Type::I32);
    let count = b.select(&Type::I32, fewer, left, along);
    if most == u32::MAX {
        return count;
    }
    let fewer = b.icmp(IntPredicate::Ult, &Type::I32, count, i32_const(most));
    b.select(&Type::I32, fewer, count, i32_const(most))
}

/// The size of a group at this position along a dimension, and whether it is the full one.
fn size(
    b: &mut Builder<'_>,
    prologue: &Prologue,
    full: [u32; 3],
    dim: usize,
    at: ValueId,
) -> (Operand, Operand) {
    let full = full[dim];
    if full == 1 {
        return (i32_const(1).into(), Const::int(1, -1).into());
    }
    let first = b.binary(BinaryOp::Mul, "nuw", &Type::I32, at, i32_const(full));
    let left = b.binary(BinaryOp::Sub, "nuw", &Type::I32, prologue.grid[dim].clone(), first);
    let whole = b.icmp(IntPredicate::Uge, &Type::I32, left, i32_const(full));
    (b.select(&Type::I32, whole, i32_const(full), left).into(), whole.into())
}

/// The position of the group behind a run that ends at `end`.
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
