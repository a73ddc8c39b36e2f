//! Loads whose lanes probably access consecutive elements: an index is consecutive but for a bound that clamps it or wraps it around, as at the edges
//! of a stencil. A test at run time chooses a contiguous load; else the elements are gathered, which takes several times as long.

use elinvar_ir::{BinaryOp, Callee, CastOp, IntPredicate, Op, Operand, Type, Typed};

use super::Emit;
use super::access::Access;
use crate::analysis::vector_shape::Offsets;
use crate::support::builder::i32_const;

/// Maximum number of operations between an address and the consecutive number.
const DEPTH: u32 = 6;
/// Intrinsics that return the first operand, or nearly so, in most lanes.
const CLAMPS: [&str; 6] =
    ["llvm.umin.", "llvm.umax.", "llvm.smin.", "llvm.smax.", "llvm.usub.sat.", "llvm.uadd.sat."];

impl Emit<'_, '_> {
    /// Whether lanes probably access consecutive elements of `size` bytes.
    pub(super) fn is_likely_row(&self, ptr: &Operand, size: i64) -> bool {
        let Some(Op::Gep { source, base, indices, .. }) = self.operation(ptr) else { return false };
        let ([index], true) = (&indices[..], self.known(&base.op, &base.ty).is_uniform()) else {
            return false;
        };
        source.size_align(self.source.module).0 as i64 == size && self.is_nearly_consecutive(index, DEPTH)
    }

    fn operation(&self, of: &Operand) -> Option<&Op> {
        self.source.definition(of.value()?).map(|inst| &inst.op)
    }

    fn is_consecutive(&self, number: &Typed) -> bool {
        let known = self.known(&number.op, &number.ty);
        known.pattern().is_some_and(|pattern| pattern.offsets == Offsets::Linear(1))
    }

    /// Whether a number is consecutive in lanes within a bound.
    fn is_nearly_consecutive(&self, number: &Typed, depth: u32) -> bool {
        let Some(op) = self.operation(&number.op).filter(|_| depth > 0) else { return false };
        let is_uniform = |of: &Typed| self.known(&of.op, &of.ty).is_uniform();
        let is_bounded = |of: &Typed| self.is_consecutive(of) || self.is_nearly_consecutive(of, depth - 1);
        match op {
            Op::Cast { op: CastOp::ZExt | CastOp::SExt, from, .. } => {
                self.is_nearly_consecutive(from, depth - 1)
            }
            Op::Freeze(of) => self.is_nearly_consecutive(of, depth - 1),
            Op::Binary { op, ty, a, b, .. } => {
                let [a, b] = [a, b].map(|of| Typed::new(ty.clone(), of.clone()));
                match op {
                    BinaryOp::URem | BinaryOp::SRem | BinaryOp::And => is_uniform(&b) && is_bounded(&a),
                    BinaryOp::Add => {
                        is_uniform(&b) && self.is_nearly_consecutive(&a, depth - 1)
                            || is_uniform(&a) && self.is_nearly_consecutive(&b, depth - 1)
                    }
                    BinaryOp::Sub => is_uniform(&b) && self.is_nearly_consecutive(&a, depth - 1),
                    _ => false,
                }
            }
            Op::Select { a, b, .. } => is_bounded(a) || is_bounded(b),
            Op::Call(call) => {
                let Callee::Function(name) = &call.callee else { return false };
                let mut args = call.args.iter().map(|arg| Typed::new(arg.ty.clone(), arg.op.clone()));
                CLAMPS.iter().any(|clamp| name.starts_with(clamp)) && args.any(|arg| is_bounded(&arg))
            }
            _ => false,
        }
    }

    /// Loads from the addresses of lanes that are probably consecutive.
    pub(super) fn load_likely_row(
        &mut self,
        access: &Access,
        ptr: &Typed,
        addresses: Operand,
        part: usize,
    ) -> Operand {
        let (pointers, numbers) = (self.wide(&Type::PTR), self.wide(&Type::I64));
        // Of inactive lanes, addresses may be poison.
        let frozen =
            self.b.value(pointers.clone(), None, Op::Freeze(Typed::new(pointers.clone(), addresses)));
        let first = self.extract(frozen.into(), &Type::PTR, i32_const(0).into());
        let row = self.spread_pointer(first.clone(), &Offsets::Linear(access.size));
        let [actual, expected] = [frozen.into(), row]
            .map(|of: Operand| self.b.cast(CastOp::PtrToInt, pointers.clone(), of, numbers.clone()));
        let differs = Op::ICmp {
            flags: String::new(),
            pred: IntPredicate::Ne,
            ty: numbers,
            a: actual.into(),
            b: expected.into(),
        };
        let mut differs: Operand = self.b.value(self.mask_type(), None, differs).into();
        if self.mask.is_some() {
            let (mask, ty) = (self.part_mask(part), self.mask_type());
            differs = self.b.binary(BinaryOp::And, "", &ty, mask, differs).into();
        }
        let any = self.any(&[differs]);
        let [consecutive, apart, done] = [(); 3].map(|()| self.b.f.new_block(None));
        self.b.cond_br(any, apart, consecutive);
        self.b.at = consecutive;
        let loaded = self.load_row(access, first, part);
        let consecutive = self.b.at;
        self.b.br(done);
        self.b.at = apart;
        // In this block, where clang finds their base.
        let addresses = self.addresses(ptr, part);
        let gathered = self.gather(access, addresses, part);
        let apart = self.b.at;
        self.b.br(done);
        self.b.at = done;
        let ty = self.wide(&access.ty);
        let incoming = vec![(loaded, consecutive), (gathered, apart)];
        self.b.value(ty.clone(), None, Op::Phi { flags: String::new(), ty, incoming }).into()
    }
}
