//! Zeroes the threadgroup memory of checked kernels, so that they cannot read content of other kernels.
//!
//! The threads of a threadgroup share the work, and synchronize before the kernel's code.

use elinvar_ir::{
    BinaryOp, BlockId, CastOp, Const, Function, Inst, IntPredicate, Op, Operand, Term, Type, ValueId,
};

use super::Argument;
use crate::intrinsic::{Intrinsic, Position};
use crate::support::builder::{Builder, call, i32_const, i64_const};
use crate::support::ir::rename_incoming;

/// Makes `entry` zero the variables with these names and sizes, and its threadgroup arguments. Sizes are rounded up to words, as their
/// allocations are.
pub(super) fn write(entry: &mut Function, variables: &[(String, u64)], arguments: &[Argument]) {
    let given = arguments.iter().enumerate().filter(|(_, argument)| **argument == Argument::Threadgroup);
    let given: Vec<usize> = given.map(|(index, _)| index).collect();
    if variables.is_empty() && given.is_empty() {
        return;
    }
    let body = split(entry);
    let mut b = Builder::new(entry, BlockId(0));
    let [x, y, z] = [0, 1, 2].map(|d| ask(&mut b, Position::Thread, d));
    let [width, height, depth] = [0, 1, 2].map(|d| ask(&mut b, Position::GroupSize, d));
    let i32 = |b: &mut Builder<'_>, op, a: ValueId, c: ValueId| b.binary(op, "", &Type::I32, a, c);
    let deep = i32(&mut b, BinaryOp::Mul, z, height);
    let rows = i32(&mut b, BinaryOp::Add, deep, y);
    let before = i32(&mut b, BinaryOp::Mul, rows, width);
    let first = i32(&mut b, BinaryOp::Add, before, x);
    let flat = i32(&mut b, BinaryOp::Mul, width, height);
    let threads = i32(&mut b, BinaryOp::Mul, flat, depth);
    let [first, threads] = [first, threads].map(|v| b.cast(CastOp::ZExt, Type::I32, v, Type::I64));
    for (name, bytes) in variables {
        let words = Operand::from(i64_const(bytes.div_ceil(4)));
        each(&mut b, Const::Global(name.clone()).into(), &words, first, threads);
    }
    for index in given {
        let place = b.f.params[index].value;
        let bytes = [(Type::I32, i32_const(index as u32).into())];
        let bytes = b.call(Type::I64, &Position::ArgumentBytes.function(), &bytes);
        let up = b.binary(BinaryOp::Add, "", &Type::I64, bytes, i64_const(3));
        let words = b.binary(BinaryOp::LShr, "", &Type::I64, up, i64_const(2));
        each(&mut b, place.into(), &words.into(), first, threads);
    }
    b.effect(call(Type::Void, &Intrinsic::ThreadgroupBarrier.name(), &[(Type::I32, i32_const(2).into())]));
    b.br(body);
}

fn ask(b: &mut Builder<'_>, position: Position, dimension: u32) -> ValueId {
    b.call(Type::I32, &position.function(), &[(Type::I32, i32_const(dimension).into())])
}

/// Zeroes words at an address; this thread zeroes every `threads`-th from `first` on.
fn each(b: &mut Builder<'_>, place: Operand, words: &Operand, first: ValueId, threads: ValueId) {
    let [head, body, done] = [(); 3].map(|()| b.f.new_block(None));
    let from = b.at;
    b.br(head);
    let [index, next] = [(); 2].map(|()| b.f.new_value(Type::I64, None));
    let incoming = vec![(first.into(), from), (next.into(), body)];
    let phi = Op::Phi { flags: String::new(), ty: Type::I64, incoming };
    b.f.block_mut(head).insts.push(Inst { result: Some(index), op: phi, metadata: Vec::new() });
    b.at = head;
    let more = b.icmp(IntPredicate::Ult, &Type::I64, index, words.clone());
    b.cond_br(more, body, done);
    b.at = body;
    let at = b.gep(Type::I32, place, Operand::from(index));
    b.store(Type::I32, i32_const(0), at);
    let step = Op::Binary {
        op: BinaryOp::Add,
        flags: String::new(),
        ty: Type::I64,
        a: index.into(),
        b: threads.into(),
    };
    b.push(Inst { result: Some(next), op: step, metadata: Vec::new() });
    b.br(head);
    b.at = done;
}

/// Moves the instructions of block 0, except allocas, to a new block.
fn split(entry: &mut Function) -> BlockId {
    let body = entry.new_block(None);
    let first = entry.block_mut(BlockId(0));
    let (own, rest) =
        std::mem::take(&mut first.insts).into_iter().partition(|inst| matches!(inst.op, Op::Alloca { .. }));
    first.insts = own;
    let term = std::mem::replace(&mut first.term, Term::Unreachable);
    let metadata = std::mem::take(&mut first.term_metadata);
    rename_incoming(entry, &term, BlockId(0), body);
    let block = entry.block_mut(body);
    (block.insts, block.term, block.term_metadata) = (rest, term, metadata);
    body
}
