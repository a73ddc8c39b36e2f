//! Prologue of a kernel: computes positions from CUDA's registers and the launch's parameters; threads outside the grid exit.
//!
//! ```text
//! first ── groups whole? ──> near ── all along x? ──> enter
//!   │                          └────> deep ────────────┤
//!   └─> far ── folded? ──> fold
//!         └────> sized ── one row? ──> row ──> tested ─┘
//!                  └────> edged ─────────────────┴── outside? ──> return
//! ```
//!
//! Most launches take the shortest path, `first`, `near`, `enter`. It computes nothing for y and z and nothing for the grid's
//! edges, since the time until a thread's first load dominates short kernels.

use std::collections::HashMap;

use elinvar_ir::{BinaryOp, BlockId, CastOp, Const, Function, IntPredicate, Op, Operand, Type, ValueId};

use super::entry::{GLOBAL, Launch};
use super::{Block, Extent, active_masks, lane_permutation, simdgroup};
use crate::intrinsic::Position;
use crate::support::builder::{Builder, i32_const};

/// Values available to the kernel's code.
pub(super) struct Prologue {
    /// Positions and sizes, by dimension, and the launch's memory.
    pub known: HashMap<(Position, usize), Operand>,
    /// The mask of lanes that reach the kernel's code, if it has simdgroup operations.
    pub mask: Option<ValueId>,
    /// If lanes are permuted: whether those of this simdgroup are.
    pub is_permuted: Option<Operand>,
}

/// Values of a dimension on entry.
#[derive(Clone)]
struct Place {
    thread: Operand,
    group: Operand,
    /// Size of a full threadgroup, and of this one.
    full: Operand,
    size: Operand,
}

/// A path to the kernel's code: its last block, the values of each dimension, and the mask.
struct Way {
    from: BlockId,
    places: [Place; 3],
    mask: Operand,
}

/// Fills block 0 and new blocks, from which threads inside the grid continue at `body` and others at `outside`. The lanes of a
/// simdgroup are those of the warp, or `permuted` for matrix products.
pub(super) fn write(
    kernel: &mut Function,
    launch: &Launch,
    [body, outside]: [BlockId; 2],
    permuted: bool,
) -> Prologue {
    let exchanges = simdgroup::is_used(kernel);
    let [near, deep, far, fold, sized, row, edged, tested, enter] = [(); 9].map(|()| kernel.new_block(None));
    let mut b = Builder::new(kernel, BlockId(0));
    let threads = permuted.then(|| {
        let [thread, full] = ["tid", "ntid"].map(|name| [0, 1, 2].map(|d| register(&mut b, name, d)));
        lane_permutation::threads(&mut b, thread, full)
    });
    let (threads, is_permuted) = threads.unzip();
    let place = |b: &mut Builder<'_>, d: usize| Place::whole(b, threads.as_ref(), d);
    let extent =
        |b: &mut Builder<'_>, pred, of: Extent| b.icmp(pred, &Type::I32, launch.extent, i32_const(of as u32));
    let is_whole = extent(&mut b, IntPredicate::Ule, Extent::Whole);
    let is_whole = expected(&mut b, is_whole);
    b.cond_br(is_whole, near, far);

    b.at = near;
    let all = Operand::from(i32_const(u32::MAX));
    let along_x = place(&mut b, 0);
    let flat = Way { from: near, places: [along_x.clone(), Place::one(), Place::one()], mask: all.clone() };
    let is_flat = extent(&mut b, IntPredicate::Eq, Extent::Flat);
    b.cond_br(is_flat, enter, deep);
    b.at = deep;
    let places = [along_x, place(&mut b, 1), place(&mut b, 2)];
    let whole = Way { from: deep, places, mask: all.clone() };
    b.br(enter);

    b.at = far;
    let plain = [0, 1, 2].map(|d| place(&mut b, d));
    let rows = b.binary(BinaryOp::LShr, "", &Type::I32, launch.extent, i32_const(Block::SHIFT));
    let is_folded = b.icmp(IntPredicate::Ne, &Type::I32, rows, i32_const(0));
    b.cond_br(is_folded, fold, sized);
    b.at = fold;
    let unfolded = unfolded(&mut b, &plain[1], rows);
    b.br(sized);
    b.at = sized;
    let [_, y, z] = &plain;
    let [y, z] = [(y, &unfolded[0]), (z, &unfolded[1])].map(|(plain, unfolded)| {
        let mut either = |of: fn(&Place) -> &Operand| -> Operand {
            phi(&mut b, &[(of(plain).clone(), far), (of(unfolded).clone(), fold)]).into()
        };
        let (thread, full) = (either(|place| &place.thread), either(|place| &place.full));
        Place { thread, full, ..plain.clone() }
    });
    let places = [plain[0].clone(), y, z];
    let mapping = b.binary(BinaryOp::And, "", &Type::I32, launch.extent, i32_const((1 << Block::SHIFT) - 1));
    let is_row = b.icmp(IntPredicate::Eq, &Type::I32, mapping, i32_const(Extent::Row as u32));
    b.cond_br(is_row, row, edged);
    b.at = row;
    let in_row = in_row(&mut b, launch.linear);
    b.br(tested);
    b.at = edged;
    let plain = [0, 1, 2].map(|d| register(&mut b, "ctaid", d));
    b.br(tested);
    b.at = tested;
    let groups = [0, 1, 2].map(|d| phi(&mut b, &[(in_row[d].into(), row), (plain[d].into(), edged)]));
    let (places, inside) = inside(&mut b, launch, places, groups);
    let mask = if exchanges { active_masks::vote_of_all(&mut b, inside).into() } else { all };
    b.cond_br(inside, enter, outside);
    let cut = Way { from: tested, places, mask };

    b.at = enter;
    let ways = [flat, whole, cut];
    let joined = |b: &mut Builder<'_>, of: &dyn Fn(&Way) -> Operand| {
        phi(b, &ways.each_ref().map(|way| (of(way), way.from)))
    };
    let places = [0, 1, 2].map(|d| Place {
        thread: joined(&mut b, &|way| way.places[d].thread.clone()).into(),
        group: joined(&mut b, &|way| way.places[d].group.clone()).into(),
        full: joined(&mut b, &|way| way.places[d].full.clone()).into(),
        size: joined(&mut b, &|way| way.places[d].size.clone()).into(),
    });
    let mask = exchanges.then(|| joined(&mut b, &|way| way.mask.clone()));
    let known = positions(&mut b, launch, places);
    b.br(body);
    Prologue { known, mask, is_permuted }
}

impl Place {
    /// The values of a full threadgroup.
    fn whole(b: &mut Builder<'_>, threads: Option<&[Operand; 3]>, d: usize) -> Self {
        let thread = threads.map_or_else(|| register(b, "tid", d).into(), |threads| threads[d].clone());
        let [group, full] = ["ctaid", "ntid"].map(|name| Operand::from(register(b, name, d)));
        Self { thread, group, size: full.clone(), full }
    }

    /// The values of a dimension of size 1.
    fn one() -> Self {
        let [zero, one] = [0, 1].map(|n| Operand::from(i32_const(n)));
        Self { thread: zero.clone(), group: zero, full: one.clone(), size: one }
    }
}

/// The values of y and z in a block whose layers are rows ([`Block`]), from those of its y.
fn unfolded(b: &mut Builder<'_>, y: &Place, rows: ValueId) -> [Place; 2] {
    let mut by_rows = |op, a: &Operand| Operand::from(b.binary(op, "", &Type::I32, a.clone(), rows));
    let thread = [BinaryOp::URem, BinaryOp::UDiv].map(|op| by_rows(op, &y.thread));
    let layers = by_rows(BinaryOp::UDiv, &y.full);
    let [thread_y, thread_z] = thread;
    [
        Place { thread: thread_y, full: rows.into(), ..y.clone() },
        Place { thread: thread_z, full: layers, ..y.clone() },
    ]
}

/// A condition that is likely.
fn expected(b: &mut Builder<'_>, condition: ValueId) -> ValueId {
    let args = [(Type::I1, condition.into()), (Type::I1, Const::int(1, 1).into())];
    b.call(Type::I1, "llvm.expect.i1", &args)
}

fn phi(b: &mut Builder<'_>, incoming: &[(Operand, BlockId)]) -> ValueId {
    let incoming = incoming.to_vec();
    b.value(Type::I32, None, Op::Phi { flags: String::new(), ty: Type::I32, incoming })
}

/// Reads a special register.
fn register(b: &mut Builder<'_>, name: &str, d: usize) -> ValueId {
    b.call(Type::I32, &format!("llvm.nvvm.read.ptx.sreg.{name}.{}", ["x", "y", "z"][d]), &[])
}

/// The threadgroup's position for [`Extent::Row`].
fn in_row(b: &mut Builder<'_>, [along_x, along_y]: [ValueId; 2]) -> [ValueId; 3] {
    let index = register(b, "ctaid", 0);
    let x = b.binary(BinaryOp::URem, "", &Type::I32, index, along_x);
    let rows = b.binary(BinaryOp::UDiv, "", &Type::I32, index, along_x);
    let y = b.binary(BinaryOp::URem, "", &Type::I32, rows, along_y);
    let z = b.binary(BinaryOp::UDiv, "", &Type::I32, rows, along_y);
    [x, y, z]
}

/// The values of each dimension of a threadgroup at the grid's edge, and whether the thread is inside.
fn inside(
    b: &mut Builder<'_>,
    launch: &Launch,
    places: [Place; 3],
    groups: [ValueId; 3],
) -> ([Place; 3], ValueId) {
    let mut all = Vec::new();
    let mut dimension = 0..;
    let places = places.map(|Place { thread, full, .. }| {
        let d = dimension.next().unwrap_or(2);
        let begin = b.binary(BinaryOp::Mul, "", &Type::I32, groups[d], full.clone());
        let rest = b.binary(BinaryOp::Sub, "", &Type::I32, launch.threads[d], begin);
        all.push(b.icmp(IntPredicate::Ult, &Type::I32, thread.clone(), rest));
        let args = [(Type::I32, full.clone()), (Type::I32, rest.into())];
        let size = b.call(Type::I32, "llvm.umin.i32", &args).into();
        Place { thread, group: groups[d].into(), full, size }
    });
    let xy = b.binary(BinaryOp::And, "", &Type::I1, all[0], all[1]);
    (places, b.binary(BinaryOp::And, "", &Type::I1, xy, all[2]))
}

fn positions(
    b: &mut Builder<'_>,
    launch: &Launch,
    places: [Place; 3],
) -> HashMap<(Position, usize), Operand> {
    let mut known = HashMap::new();
    for (d, Place { thread, group, full, size }) in places.into_iter().enumerate() {
        let before = b.binary(BinaryOp::Sub, "", &Type::I32, launch.threads[d], i32_const(1));
        let last = b.binary(BinaryOp::UDiv, "", &Type::I32, before, full.clone());
        let groups = b.binary(BinaryOp::Add, "", &Type::I32, last, i32_const(1)).into();
        let values = [
            (Position::Thread, thread),
            (Position::Group, group),
            (Position::GroupSize, size),
            (Position::FullGroupSize, full),
            (Position::Grid, launch.threads[d].into()),
            (Position::Groups, groups),
        ];
        known.extend(values.map(|(position, value)| ((position, d), value)));
    }
    for (index, bytes) in launch.bytes.iter().enumerate() {
        known.insert((Position::ArgumentBytes, index), (*bytes).into());
    }
    if let Some(record) = launch.record {
        let record = b.cast(CastOp::AddrSpaceCast, Type::Ptr(GLOBAL), record, Type::PTR);
        known.insert((Position::FaultRecord, 0), record.into());
    }
    if let Some(counter) = launch.counter {
        let counter = b.cast(CastOp::AddrSpaceCast, Type::Ptr(GLOBAL), counter, Type::PTR);
        known.insert((Position::GridCounter, 0), counter.into());
    }
    if let Some((ring, kernel)) = launch.log {
        let ring = b.cast(CastOp::AddrSpaceCast, Type::Ptr(GLOBAL), ring, Type::PTR);
        known.insert((Position::LogRing, 0), ring.into());
        known.insert((Position::LogKernel, 0), kernel.into());
    }
    known
}
