//! Copies of a small constant number of bytes for each lane. Those of lanes side by side are one copy. In the uniform version only.

use elinvar_ir::{Const, Inst, Op, Operand, Type, Typed};

use super::Emit;
use super::replicate::UNROLLED;
use crate::support::builder::{call, i32_const, i64_const};
use crate::support::ir::callee_name;

/// Maximum size of a lane's copy in bytes: a few instructions.
const SMALL: u128 = 64;
/// Maximum size of a copy in bytes.
const LONGEST: u64 = 256;

impl Emit<'_, '_> {
    /// Emits a copy, if the instruction is one, and lanes are side by side.
    pub(super) fn copy_by_rows(&mut self, inst: &Inst, part: usize) -> bool {
        let Some((to, from, bytes)) = small_copy(&inst.op) else { return false };
        let rows = |typed: &Typed| self.source.rows.at(self.source.uniform, &typed.op, &typed.ty, self.block);
        let (to_rows, from_rows) = (rows(&to), rows(&from));
        // Whether a lane's bytes are those behind the ones of the lane before.
        let follows = |lane: usize| {
            [&to_rows, &from_rows].into_iter().all(|rows| {
                rows.as_ref().is_some_and(|rows| {
                    rows.first(lane) == rows.first(lane - 1)
                        && rows.offset(lane) - rows.offset(lane - 1) == bytes as i64
                })
            })
        };
        let mut runs: Vec<(u32, u64)> = Vec::new();
        for lane in 0..self.lanes() {
            match runs.last_mut() {
                Some((_, length)) if *length + bytes <= LONGEST && follows(lane as usize) => *length += bytes,
                _ => runs.push((lane, bytes)),
            }
        }
        if runs.len() as u32 > UNROLLED.min(self.lanes() - 1) {
            return false;
        }
        let lanes: Vec<u32> = runs.iter().map(|run| run.0).collect();
        let to = self.addresses_of(&to, &lanes, part);
        let from = self.addresses_of(&from, &lanes, part);
        for (((_, length), to), from) in runs.iter().zip(to).zip(from) {
            let args = [
                (Type::PTR, to),
                (Type::PTR, from),
                (Type::I64, i64_const(*length).into()),
                (Type::I1, Const::int(1, 0).into()),
            ];
            // The bytes of one lane may be another's source.
            self.b.effect(call(Type::Void, "llvm.memmove.p0.p0.i64", &args));
        }
        true
    }

    /// The addresses of some lanes. All lanes are active, so that a loose pattern is exact.
    fn addresses_of(&mut self, ptr: &Typed, lanes: &[u32], part: usize) -> Vec<Operand> {
        let known = self.known(&ptr.op, &ptr.ty);
        if let Some(pattern) = known.pattern() {
            let first = self.scalar(&ptr.op, part);
            let offset = |lane: &u32| Const::int(64, i128::from(pattern.offsets.at(*lane)));
            return lanes
                .iter()
                .map(|lane| self.b.gep(Type::I8, first.clone(), offset(lane)).into())
                .collect();
        }
        let vector = self.vector(&ptr.op, &ptr.ty, part);
        lanes.iter().map(|lane| self.extract(vector.clone(), &ptr.ty, i32_const(*lane).into())).collect()
    }
}

/// The addresses and the size of a copy.
fn small_copy(op: &Op) -> Option<(Typed, Typed, u64)> {
    let Op::Call(call) = op else { return None };
    let name = callee_name(call)?;
    let [to, from, size, volatile] = &call.args[..] else { return None };
    let constant = |operand: &Operand, width| match operand {
        Operand::Const(c) => c.as_unsigned(width),
        Operand::Value(_) => None,
    };
    let bytes = constant(&size.op, 64).filter(|bytes| (1..=SMALL).contains(bytes))?;
    let plain = name.starts_with("llvm.memcpy.p0.p0.") && constant(&volatile.op, 1) == Some(0);
    let typed = |arg: &elinvar_ir::CallArg| Typed::new(arg.ty.clone(), arg.op.clone());
    plain.then(|| (typed(to), typed(from), bytes as u64))
}
