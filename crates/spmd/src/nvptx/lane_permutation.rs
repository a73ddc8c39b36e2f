//! Lane permutation for matrix products: the mapping from a warp's lanes to threads of a simdgroup.
//!
//! Lane i of a simdgroup holds row i / 16 * 4 + i / 2 % 4 of a matrix, and two columns from i / 8 % 2 * 4 + i % 2 * 2 on. A
//! warp's lane p holds row p / 4 and two columns from p % 4 * 2 on of the left operand and the result of `mma` (PTX ISA, "Matrix
//! Fragments for mma.m16n8k8"). Both are permutations of a number's bits. If lane p *is* the thread whose index has its bits in
//! the order 4, 1, 3, 2, 0, Metal's matrix layout is the fragment layout, and no element needs to be moved.
//!
//! Positions are derived from the permuted index. Only kernels whose other simdgroup functions do not depend on the order of
//! lanes are permuted, or name a lane by an index or by the bits in which its index differs: those are permuted as well.

use elinvar_ir::{BinaryOp, Call, Function, Inst, IntPredicate, Op, Operand, Type, Typed, ValueId};

use super::simdgroup;
use crate::intrinsic::{Group, GroupCall, GroupOp};
use crate::support::builder::{Builder, i32_const};

/// Whether a kernel's lanes are permuted: it has matrix products, all of them on tensor cores.
pub(super) fn suits(kernel: &Function, approximate: bool) -> bool {
    if !approximate {
        return false;
    }
    let narrow = simdgroup::widened(kernel);
    let insts = kernel.blocks.iter().flat_map(|b| &b.insts);
    let calls: Vec<(GroupCall, &Call)> = insts.filter_map(simdgroup::of).collect();
    let is_product = |call: &GroupCall| call.op == GroupOp::MatrixMultiplyAccumulate;
    let one = |(function, call): &(GroupCall, &Call)| match is_product(function) {
        true => simdgroup::narrow_factors(&narrow, call).is_some(),
        false => is_orderless(*function) || names_lanes(*function),
    };
    calls.iter().any(|(function, _)| is_product(function)) && calls.iter().all(one)
}

/// Whether an operation's result is independent of the order of lanes.
fn is_orderless(call: GroupCall) -> bool {
    let of_simdgroup = call.group == Group::Simdgroup;
    match call.op {
        GroupOp::Sum
        | GroupOp::Product
        | GroupOp::Min
        | GroupOp::Max
        | GroupOp::And
        | GroupOp::Or
        | GroupOp::Xor => of_simdgroup,
        GroupOp::Ballot
        | GroupOp::IsFirst
        | GroupOp::Broadcast
        | GroupOp::BroadcastFirst
        | GroupOp::Shuffle
        | GroupOp::ShuffleXor
        | GroupOp::ShuffleUp
        | GroupOp::ShuffleDown
        | GroupOp::ShuffleRotateUp
        | GroupOp::ShuffleRotateDown
        | GroupOp::ShuffleAndFillUp
        | GroupOp::ShuffleAndFillDown
        | GroupOp::PrefixInclusiveSum
        | GroupOp::PrefixExclusiveSum
        | GroupOp::PrefixInclusiveProduct
        | GroupOp::PrefixExclusiveProduct
        | GroupOp::MatrixMultiplyAccumulate => false,
    }
}

/// Whether an operation's second parameter is an index of a thread in its simdgroup, or bits of one.
pub(super) fn names_lanes(call: GroupCall) -> bool {
    let names = matches!(call.op, GroupOp::Broadcast | GroupOp::Shuffle | GroupOp::ShuffleXor);
    names && call.group == Group::Simdgroup
}

/// The lane of the thread with an index in its simdgroup. Bits in which two indices differ are those in which the lanes do.
const fn lane(index: u128) -> u128 {
    index & 17 | index << 1 & 12 | index >> 2 & 2
}

/// The lane of the thread with the index `thread`, of 16 bits, in a simdgroup that is permuted if `is_whole`.
pub(super) fn lane_of(
    kernel: &mut Function,
    out: &mut Vec<Inst>,
    thread: &Operand,
    is_whole: &Operand,
) -> Operand {
    let ty = Type::Int(16);
    let mut value = |kernel: &mut Function, ty: &Type, op| -> Operand {
        let made = kernel.new_value(ty.clone(), None);
        out.push(Inst { result: Some(made), op, metadata: Vec::new() });
        made.into()
    };
    let number = |value: u128| Operand::int(16, value as i128);
    let known = match thread {
        Operand::Const(index) => index.as_unsigned(16).map(|index| index & 31),
        _ => None,
    };
    let permuted = match known {
        Some(index) if lane(index) == index => return number(index),
        Some(index) => number(lane(index)),
        None => {
            let mut binary = |kernel: &mut Function, op, a: Operand, b: Operand| {
                let flags = String::new();
                value(kernel, &ty, Op::Binary { op, flags, ty: ty.clone(), a, b })
            };
            let kept = binary(kernel, BinaryOp::And, thread.clone(), number(17));
            let up = binary(kernel, BinaryOp::Shl, thread.clone(), number(1));
            let up = binary(kernel, BinaryOp::And, up, number(12));
            let down = binary(kernel, BinaryOp::LShr, thread.clone(), number(2));
            let down = binary(kernel, BinaryOp::And, down, number(2));
            let moved = binary(kernel, BinaryOp::Or, up, down);
            binary(kernel, BinaryOp::Or, kept, moved)
        }
    };
    let [a, b] = [permuted, thread.clone()].map(|operand| Typed::new(ty.clone(), operand));
    let cond = Typed::new(Type::I1, is_whole.clone());
    value(kernel, &ty, Op::Select { flags: String::new(), cond, a, b })
}

/// The position of a thread in its threadgroup, from CUDA's thread and block indices, and whether its simdgroup is permuted.
///
/// A partial last simdgroup is not, since it cannot compute products.
pub(super) fn threads(
    b: &mut Builder<'_>,
    thread: [ValueId; 3],
    full: [ValueId; 3],
) -> ([Operand; 3], Operand) {
    let ty = Type::I32;
    let rows = b.binary(BinaryOp::Mul, "", &ty, thread[2], full[1]);
    let row = b.binary(BinaryOp::Add, "", &ty, rows, thread[1]);
    let before = b.binary(BinaryOp::Mul, "", &ty, row, full[0]);
    let index = b.binary(BinaryOp::Add, "", &ty, before, thread[0]);
    let layer = b.binary(BinaryOp::Mul, "", &ty, full[0], full[1]);
    let total = b.binary(BinaryOp::Mul, "", &ty, layer, full[2]);

    let kept = b.binary(BinaryOp::And, "", &ty, index, i32_const(!14));
    let down = b.binary(BinaryOp::LShr, "", &ty, index, i32_const(1));
    let down = b.binary(BinaryOp::And, "", &ty, down, i32_const(6));
    let up = b.binary(BinaryOp::Shl, "", &ty, index, i32_const(2));
    let up = b.binary(BinaryOp::And, "", &ty, up, i32_const(8));
    let moved = b.binary(BinaryOp::Or, "", &ty, down, up);
    let moved = b.binary(BinaryOp::Or, "", &ty, kept, moved);
    let last = b.binary(BinaryOp::Or, "", &ty, index, i32_const(31));
    let is_whole = b.icmp(IntPredicate::Ult, &ty, last, total);
    let index = b.select(&ty, is_whole, moved, index);

    let x = b.binary(BinaryOp::URem, "", &ty, index, full[0]);
    let row = b.binary(BinaryOp::UDiv, "", &ty, index, full[0]);
    let y = b.binary(BinaryOp::URem, "", &ty, row, full[1]);
    let z = b.binary(BinaryOp::UDiv, "", &ty, row, full[1]);
    ([x.into(), y.into(), z.into()], is_whole.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_the_inverse_of_threads() {
        // As `threads` computes it.
        let thread = |lane: u128| lane & !14 | lane >> 1 & 6 | lane << 2 & 8;
        assert!((0..32).all(|index| thread(lane(index)) == index));
        assert!((0..32).all(|a| (0..32).all(|b| lane(a ^ b) == lane(a) ^ lane(b))));
    }
}
