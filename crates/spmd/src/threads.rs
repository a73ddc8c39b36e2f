//! The loop over the threads of a group, around one region.

use elinvar_ir::{BinaryOp, BlockId, CastOp, IntPredicate, Op, Operand, Term, Type, ValueId};

use crate::builder::{Builder, i32_const, i64_const};

/// A loop over threads whose body is still to be written.
pub(crate) struct ThreadLoop {
    /// The thread's position, an i32 per dimension.
    pub position: [Operand; 3],
    /// The thread's index in a full group, an i64.
    pub index: Operand,
    /// Where the body starts; it has no terminator yet.
    pub body: BlockId,
    /// Where the body goes when a thread is done.
    pub next: BlockId,
    /// Where the loop goes when all threads are done; empty.
    pub done: BlockId,
}

/// One dimension's loop.
struct Level {
    dim: usize,
    head: BlockId,
    counter: ValueId,
}

/// Write the loop, entered from the block that `b` appends to. `group` is the size of a full group,
/// `size` the sizes of this one as i32 values, each at least 1. A dimension of size 1 has no loop.
pub(crate) fn thread_loop(b: &mut Builder<'_>, group: [u32; 3], size: &[Operand; 3]) -> ThreadLoop {
    let mut position = [(); 3].map(|()| Operand::from(i32_const(0)));
    let mut levels: Vec<Level> = Vec::new();
    for dim in [2, 1, 0].into_iter().filter(|d| group[*d] > 1) {
        let before = b.at;
        let head = b.f.new_block(None);
        b.br(head);
        b.at = head;
        let incoming = vec![(i32_const(0).into(), before)];
        let counter = b.value(Type::I32, Some(["x", "y", "z"][dim]), phi(incoming));
        position[dim] = counter.into();
        levels.push(Level { dim, head, counter });
    }
    if levels.is_empty() {
        let body = b.f.new_block(None);
        b.br(body);
        b.at = body;
    }
    let body = b.at;
    let next = b.f.new_block(None);
    let mut at = next;
    for level in levels.iter().rev() {
        b.at = at;
        let after = b.f.new_block(None);
        let plus_one = b.binary(BinaryOp::Add, "nuw nsw", &Type::I32, level.counter, i32_const(1));
        let more = b.icmp(IntPredicate::Ult, &Type::I32, plus_one, size[level.dim].clone());
        b.cond_br(more, level.head, after);
        let Op::Phi { incoming, .. } = &mut b.f.block_mut(level.head).insts[0].op else { unreachable!() };
        incoming.push((plus_one.into(), at));
        at = after;
    }
    let done = if at == next {
        let done = b.f.new_block(None);
        b.f.block_mut(next).term = Term::Br(done);
        done
    } else {
        at
    };
    b.at = body;
    let index = linear_index(b, group, &position);
    ThreadLoop { position, index, body, next, done }
}

fn phi(incoming: Vec<(Operand, BlockId)>) -> Op {
    Op::Phi { flags: String::new(), ty: Type::I32, incoming }
}

/// `x + group.x * (y + group.y * z)` as an i64.
fn linear_index(b: &mut Builder<'_>, group: [u32; 3], position: &[Operand; 3]) -> Operand {
    let mut index: Option<Operand> = None;
    for dim in [2, 1, 0].into_iter().filter(|d| group[*d] > 1) {
        let wide: Operand = b.cast(CastOp::ZExt, Type::I32, position[dim].clone(), Type::I64).into();
        index = Some(match index {
            None => wide,
            Some(outer) => {
                // Between two looped dimensions every dimension of size 1 contributes a factor of 1.
                let scaled =
                    b.binary(BinaryOp::Mul, "nuw nsw", &Type::I64, outer, i64_const(group[dim].into()));
                b.binary(BinaryOp::Add, "nuw nsw", &Type::I64, scaled, wide).into()
            }
        });
    }
    index.unwrap_or_else(|| i64_const(0).into())
}
