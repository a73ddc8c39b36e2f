//! What comes before a kernel's own code: positions from CUDA's registers and the launch's parameters, and the way out for
//! threads outside the grid.
//!
//! ```text
//! first ── one row? ──> row ──────────────────────────┐
//!   └──> shaped ── may one be outside? ──> edged ──> tested ── outside? ──> return
//!          └──> whole ──> enter <─────────────────────┘
//! ```
//!
//! Most launches take the shortest way, `first`, `shaped`, `whole`, `enter`: what a kernel does not ask for is
//! not computed on it.

use std::collections::HashMap;

use elinvar_ir::{BinaryOp, BlockId, CastOp, Const, Function, IntPredicate, Op, Type, ValueId};

use super::entry::{GLOBAL, Launch};
use super::{exchange, masks};
use crate::builder::{Builder, i32_const};
use crate::primitive::Position;

/// What the kernel's own code can rely on.
pub(super) struct Prologue {
    /// Every position and size, by dimension, and the launch's memory.
    pub known: HashMap<(Position, usize), ValueId>,
    /// The lanes of the simdgroup that come to the kernel's own code, if they exchange values.
    pub mask: Option<ValueId>,
}

/// Fill block 0 and new blocks, from which threads inside the grid go to `body` and the others to `outside`.
pub(super) fn write(kernel: &mut Function, launch: &Launch, body: BlockId, outside: BlockId) -> Prologue {
    let exchanges = exchange::is_used(kernel);
    let [row, shaped, edged, whole, tested, enter] = [(); 6].map(|()| kernel.new_block(None));
    let mut b = Builder::new(kernel, BlockId(0));
    let is_row = b.icmp(IntPredicate::Ne, &Type::I32, launch.linear[0], i32_const(0));
    b.cond_br(is_row, row, shaped);
    b.at = row;
    let in_row = in_row(&mut b, launch.linear);
    b.br(tested);
    b.at = shaped;
    let is_whole = b.icmp(IntPredicate::Ne, &Type::I32, launch.linear[1], i32_const(0));
    b.cond_br(is_whole, whole, edged);
    b.at = edged;
    let plain = [0, 1, 2].map(|d| register(&mut b, "ctaid", d));
    b.br(tested);
    b.at = whole;
    let quick = [0, 1, 2].map(|d| register(&mut b, "ctaid", d));
    let all = exchanges.then(|| masks::vote_of_all(&mut b, Const::int(1, 1)));
    b.br(enter);
    b.at = tested;
    let joined = [0, 1, 2].map(|d| phi(&mut b, (in_row[d], row), (plain[d], edged)));
    let inside = inside(&mut b, launch, joined);
    let some = exchanges.then(|| masks::vote_of_all(&mut b, inside));
    b.cond_br(inside, enter, outside);
    b.at = enter;
    let groups = [0, 1, 2].map(|d| phi(&mut b, (quick[d], whole), (joined[d], tested)));
    let mask = all.zip(some).map(|(all, some)| phi(&mut b, (all, whole), (some, tested)));
    let known = positions(&mut b, launch, groups);
    b.br(body);
    Prologue { known, mask }
}

fn phi(b: &mut Builder<'_>, (x, from_x): (ValueId, BlockId), (y, from_y): (ValueId, BlockId)) -> ValueId {
    let incoming = vec![(x.into(), from_x), (y.into(), from_y)];
    b.value(Type::I32, None, Op::Phi { flags: String::new(), ty: Type::I32, incoming })
}

/// Read a special register.
fn register(b: &mut Builder<'_>, name: &str, d: usize) -> ValueId {
    b.call(Type::I32, &format!("llvm.nvvm.read.ptx.sreg.{name}.{}", ["x", "y", "z"][d]), &[])
}

/// The threadgroup's position where all are in one row.
fn in_row(b: &mut Builder<'_>, [along_x, along_y]: [ValueId; 2]) -> [ValueId; 3] {
    let index = register(b, "ctaid", 0);
    let x = b.binary(BinaryOp::URem, "", &Type::I32, index, along_x);
    let rows = b.binary(BinaryOp::UDiv, "", &Type::I32, index, along_x);
    let y = b.binary(BinaryOp::URem, "", &Type::I32, rows, along_y);
    let z = b.binary(BinaryOp::UDiv, "", &Type::I32, rows, along_y);
    [x, y, z]
}

/// Threads of the grid from the threadgroup's first on.
fn rest(b: &mut Builder<'_>, launch: &Launch, group: ValueId, d: usize) -> ValueId {
    let full = register(b, "ntid", d);
    let begin = b.binary(BinaryOp::Mul, "", &Type::I32, group, full);
    b.binary(BinaryOp::Sub, "", &Type::I32, launch.threads[d], begin)
}

/// Whether the thread is inside the grid.
fn inside(b: &mut Builder<'_>, launch: &Launch, groups: [ValueId; 3]) -> ValueId {
    let [x, y, z] = [0, 1, 2].map(|d| {
        let rest = rest(b, launch, groups[d], d);
        let thread = register(b, "tid", d);
        b.icmp(IntPredicate::Ult, &Type::I32, thread, rest)
    });
    let xy = b.binary(BinaryOp::And, "", &Type::I1, x, y);
    b.binary(BinaryOp::And, "", &Type::I1, xy, z)
}

fn positions(
    b: &mut Builder<'_>,
    launch: &Launch,
    groups: [ValueId; 3],
) -> HashMap<(Position, usize), ValueId> {
    let mut known = HashMap::new();
    for (d, group) in groups.into_iter().enumerate() {
        let thread = register(b, "tid", d);
        let full = register(b, "ntid", d);
        let rest = rest(b, launch, group, d);
        let size = b.call(Type::I32, "llvm.umin.i32", &[(Type::I32, full.into()), (Type::I32, rest.into())]);
        let before = b.binary(BinaryOp::Sub, "", &Type::I32, launch.threads[d], i32_const(1));
        let last = b.binary(BinaryOp::UDiv, "", &Type::I32, before, full);
        let groups = b.binary(BinaryOp::Add, "", &Type::I32, last, i32_const(1));
        let values = [
            (Position::Thread, thread),
            (Position::Group, group),
            (Position::GroupSize, size),
            (Position::FullGroupSize, full),
            (Position::Grid, launch.threads[d]),
            (Position::Groups, groups),
        ];
        known.extend(values.map(|(position, value)| ((position, d), value)));
    }
    for (index, bytes) in launch.bytes.iter().enumerate() {
        known.insert((Position::ArgumentBytes, index), *bytes);
    }
    if let Some(record) = launch.record {
        let record = b.cast(CastOp::AddrSpaceCast, Type::Ptr(GLOBAL), record, Type::PTR);
        known.insert((Position::FaultRecord, 0), record);
    }
    known
}
