//! The operand types of instructions.

use super::{Check, is_sized};
use crate::model::*;

/// Every operand with the type it is used as, in the order of the text.
pub(super) fn typed_operands(op: &Op) -> Vec<(&Type, &Operand)> {
    let types: Vec<&Type> = match op {
        Op::Binary { ty, .. } | Op::ICmp { ty, .. } | Op::FCmp { ty, .. } => vec![ty, ty],
        Op::FNeg { ty, .. } => vec![ty],
        Op::Phi { ty, incoming, .. } => vec![ty; incoming.len()],
        Op::Cast { from: v, .. }
        | Op::Freeze(v)
        | Op::Load { ptr: v, .. }
        | Op::ExtractValue { agg: v, .. }
        | Op::Alloca { count: Some(v), .. } => vec![&v.ty],
        Op::Select { cond: a, a: b, b: c, .. }
        | Op::InsertElement { vector: a, value: b, index: c }
        | Op::ShuffleVector { a, b, mask: c }
        | Op::CmpXchg { ptr: a, expected: b, new: c, .. } => vec![&a.ty, &b.ty, &c.ty],
        Op::Store { value: a, ptr: b, .. }
        | Op::InsertValue { agg: a, value: b, .. }
        | Op::ExtractElement { vector: a, index: b }
        | Op::AtomicRmw { ptr: a, value: b, .. } => vec![&a.ty, &b.ty],
        Op::Gep { base, indices, .. } => {
            std::iter::once(&base.ty).chain(indices.iter().map(|i| &i.ty)).collect()
        }
        Op::Call(call) => {
            let callee = matches!(call.callee, Callee::Indirect(_)).then_some(&Type::PTR);
            let bundles = call.bundles.iter().flat_map(|b| &b.inputs);
            callee.into_iter().chain(call.args.iter().map(|a| &a.ty)).chain(bundles.map(|i| &i.ty)).collect()
        }
        Op::Alloca { count: None, .. } | Op::Fence(_) => Vec::new(),
    };
    types.into_iter().zip(op.operands()).collect()
}

impl Check<'_> {
    /// The rules of one operation, beyond that each operand has the type it is used as.
    pub(super) fn instruction(&self, op: &Op) -> Result<(), String> {
        match op {
            Op::Binary { op, ty, .. } => {
                let float = matches!(
                    op,
                    BinaryOp::FAdd | BinaryOp::FSub | BinaryOp::FMul | BinaryOp::FDiv | BinaryOp::FRem
                );
                require(if float { ty.scalar().is_float() } else { ty.scalar().is_int() }, op.text(), ty)
            }
            Op::FNeg { ty, .. } => require(ty.scalar().is_float(), "fneg", ty),
            Op::ICmp { ty, .. } => require(ty.scalar().is_int() || ty.scalar().is_ptr(), "icmp", ty),
            Op::FCmp { ty, .. } => require(ty.scalar().is_float(), "fcmp", ty),
            Op::Cast { op, from, to, .. } => match cast_fits(*op, &from.ty, to) {
                true => Ok(()),
                false => Err(format!("`{op}` from `{}` to `{to}`", from.ty)),
            },
            Op::Select { cond, a, b, .. } => {
                let lanes = cond.ty == Type::I1 || cond.ty == a.ty.with_scalar(Type::I1);
                require(lanes, "select", &cond.ty)?;
                require(a.ty == b.ty, "select", &b.ty)
            }
            Op::Alloca { ty, count, .. } => {
                require(is_sized(ty), "alloca", ty)?;
                count.iter().try_for_each(|count| require(count.ty.is_int(), "alloca", &count.ty))
            }
            Op::Call(call) => self.call(call),
            Op::InsertValue { agg, value, path } => {
                require(agg.ty.at_path(path, self.module) == Some(&value.ty), "insertvalue", &value.ty)
            }
            Op::ExtractElement { index, .. } => require(index.ty.is_int(), "extractelement", &index.ty),
            Op::InsertElement { vector, value, index } => {
                require(vector.ty.lanes().is_some(), "insertelement", &vector.ty)?;
                require(*vector.ty.scalar() == value.ty, "insertelement", &value.ty)?;
                require(index.ty.is_int(), "insertelement", &index.ty)
            }
            Op::ShuffleVector { a, b, mask } => {
                require(a.ty == b.ty, "shufflevector", &b.ty)?;
                let constant = matches!(mask.op, Operand::Const(_));
                require(constant && *mask.ty.scalar() == Type::I32, "shufflevector", &mask.ty)
            }
            Op::Phi { ty, .. } => require(is_sized(ty), "phi", ty),
            Op::Freeze(_) | Op::ExtractValue { .. } => Ok(()),
            Op::Load { .. }
            | Op::Store { .. }
            | Op::Gep { .. }
            | Op::AtomicRmw { .. }
            | Op::CmpXchg { .. }
            | Op::Fence(_) => memory(op),
        }
    }

    fn call(&self, call: &Call) -> Result<(), String> {
        let Callee::Function(name) = &call.callee else { return Ok(()) };
        let Some(callee) = self.symbols.get(name.as_str()) else {
            return Err(format!("a call of `@{name}`, which is not declared"));
        };
        let Some(callee) = callee else {
            return Err(format!("a call of `@{name}`, which is not a function"));
        };
        if call.ret != callee.ret {
            return Err(format!("a call of `@{name}` as `{}`, which returns `{}`", call.ret, callee.ret));
        }
        let (given, wanted) = (call.args.len(), callee.params.len());
        if given < wanted || (given > wanted && !callee.variadic) {
            return Err(format!("a call of `@{name}` with {given} arguments, not {wanted}"));
        }
        for (at, (arg, param)) in call.args.iter().zip(&callee.params).enumerate() {
            if arg.ty != param.ty {
                return Err(format!(
                    "argument {at} of a call of `@{name}` is `{}`, not `{}`",
                    arg.ty, param.ty
                ));
            }
        }
        Ok(())
    }
}

fn memory(op: &Op) -> Result<(), String> {
    match op {
        Op::Load { ty, ptr, align, atomic, .. } => {
            require(ptr.ty.is_ptr(), "load", &ptr.ty)?;
            require(is_sized(ty), "load", ty)?;
            require(atomic.is_none() || align.is_some(), "atomic load without alignment", ty)
        }
        Op::Store { value, ptr, align, atomic, .. } => {
            require(ptr.ty.is_ptr(), "store", &ptr.ty)?;
            require(atomic.is_none() || align.is_some(), "atomic store without alignment", &value.ty)
        }
        Op::Gep { source, base, indices, .. } => {
            require(is_sized(source), "getelementptr", source)?;
            require(base.ty.scalar().is_ptr(), "getelementptr", &base.ty)?;
            indices.iter().try_for_each(|i| require(i.ty.scalar().is_int(), "getelementptr", &i.ty))
        }
        Op::AtomicRmw { op, ptr, value, .. } => {
            let fits = match op {
                RmwOp::FAdd | RmwOp::FSub | RmwOp::FMax | RmwOp::FMin => value.ty.scalar().is_float(),
                RmwOp::Xchg => value.ty.is_int() || value.ty.is_float() || value.ty.is_ptr(),
                _ => value.ty.is_int(),
            };
            require(ptr.ty.is_ptr(), "atomicrmw", &ptr.ty)?;
            require(fits, "atomicrmw", &value.ty)
        }
        Op::CmpXchg { ptr, expected, new, .. } => {
            require(ptr.ty.is_ptr(), "cmpxchg", &ptr.ty)?;
            require(expected.ty == new.ty, "cmpxchg", &new.ty)?;
            require(new.ty.is_int() || new.ty.is_ptr(), "cmpxchg", &new.ty)
        }
        Op::Fence(atomic) => match atomic.ordering {
            Ordering::Unordered | Ordering::Monotonic => Err(format!("a fence that is {}", atomic.ordering)),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn require(fits: bool, what: &str, ty: &Type) -> Result<(), String> {
    if fits { Ok(()) } else { Err(format!("`{what}` with an operand of type `{ty}`")) }
}

fn cast_fits(op: CastOp, from: &Type, to: &Type) -> bool {
    let (a, b) = (from.scalar(), to.scalar());
    let lanes = from.lanes() == to.lanes();
    match op {
        CastOp::Trunc => lanes && int_bits(a) > int_bits(b) && b.is_int(),
        CastOp::ZExt | CastOp::SExt => lanes && int_bits(a) < int_bits(b) && a.is_int(),
        CastOp::FpTrunc => lanes && float_bits(a) > float_bits(b) && b.is_float(),
        CastOp::FpExt => lanes && float_bits(a) < float_bits(b) && a.is_float(),
        CastOp::FpToUi | CastOp::FpToSi => lanes && a.is_float() && b.is_int(),
        CastOp::UiToFp | CastOp::SiToFp => lanes && a.is_int() && b.is_float(),
        CastOp::PtrToInt => lanes && a.is_ptr() && b.is_int(),
        CastOp::IntToPtr => lanes && a.is_int() && b.is_ptr(),
        CastOp::AddrSpaceCast => lanes && a.is_ptr() && b.is_ptr() && a != b,
        CastOp::BitCast => match (bits(from), bits(to)) {
            (Some(a), Some(b)) => a == b,
            _ => lanes && a.is_ptr() && a == b,
        },
    }
}

fn int_bits(ty: &Type) -> u32 {
    match ty {
        Type::Int(bits) => *bits,
        _ => 0,
    }
}

fn float_bits(ty: &Type) -> u32 {
    match ty {
        Type::Half | Type::BFloat => 16,
        Type::Float => 32,
        Type::Double => 64,
        _ => 0,
    }
}

/// The bits of a number or a vector of numbers.
fn bits(ty: &Type) -> Option<u64> {
    let scalar = ty.scalar();
    let bits = u64::from(int_bits(scalar) + float_bits(scalar));
    (bits > 0).then(|| bits * u64::from(ty.lanes().unwrap_or(1)))
}
