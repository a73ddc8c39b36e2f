//! Operands of instructions and terminators, and result types.
//!
//! Every operand is visited exactly once, in the order of the text; constants are visited like values.
//! Block references are not operands (see [`Term::successors`]).

use crate::model::*;

/// Passes every operand of an [`Op`] to `$f`. Match ergonomics make the operands references of the kind
/// that `$op` is, so one body serves reading and editing.
macro_rules! visit_op {
    ($op:expr, $f:expr) => {
        match $op {
            Op::Binary { a, b, .. } | Op::ICmp { a, b, .. } | Op::FCmp { a, b, .. } => {
                $f(a);
                $f(b);
            }
            Op::FNeg { a, .. }
            | Op::Cast { from: Typed { op: a, .. }, .. }
            | Op::Freeze(Typed { op: a, .. })
            | Op::Load { ptr: Typed { op: a, .. }, .. }
            | Op::ExtractValue { agg: Typed { op: a, .. }, .. }
            | Op::Alloca { count: Some(Typed { op: a, .. }), .. } => $f(a),
            Op::Select {
                cond: Typed { op: a, .. }, a: Typed { op: b, .. }, b: Typed { op: c, .. }, ..
            }
            | Op::InsertElement {
                vector: Typed { op: a, .. },
                value: Typed { op: b, .. },
                index: Typed { op: c, .. },
            }
            | Op::ShuffleVector {
                a: Typed { op: a, .. },
                b: Typed { op: b, .. },
                mask: Typed { op: c, .. },
            }
            | Op::CmpXchg {
                ptr: Typed { op: a, .. },
                expected: Typed { op: b, .. },
                new: Typed { op: c, .. },
                ..
            } => {
                $f(a);
                $f(b);
                $f(c);
            }
            Op::Store { value: Typed { op: a, .. }, ptr: Typed { op: b, .. }, .. }
            | Op::InsertValue { agg: Typed { op: a, .. }, value: Typed { op: b, .. }, .. }
            | Op::ExtractElement { vector: Typed { op: a, .. }, index: Typed { op: b, .. } }
            | Op::AtomicRmw { ptr: Typed { op: a, .. }, value: Typed { op: b, .. }, .. } => {
                $f(a);
                $f(b);
            }
            Op::Phi { incoming, .. } => {
                for (a, _) in incoming {
                    $f(a);
                }
            }
            Op::Gep { base: Typed { op: a, .. }, indices, .. } => {
                $f(a);
                for Typed { op, .. } in indices {
                    $f(op);
                }
            }
            Op::Call(Call { callee, args, bundles, .. }) => {
                if let Callee::Indirect(a) = callee {
                    $f(a);
                }
                for CallArg { op, .. } in args {
                    $f(op);
                }
                for Bundle { inputs, .. } in bundles {
                    for Typed { op, .. } in inputs {
                        $f(op);
                    }
                }
            }
            Op::Alloca { count: None, .. } | Op::Fence(_) => {}
        }
    };
}

impl Op {
    /// Every operand, in the order of the text.
    pub fn operands(&self) -> Vec<&Operand> {
        let mut all = Vec::new();
        visit_op!(self, |operand| all.push(operand));
        all
    }

    /// Apply `f` to every operand, in the order of the text.
    pub fn map_operands(&mut self, mut f: impl FnMut(&mut Operand)) {
        visit_op!(self, f);
    }

    /// The type of the result, `Void` for none; `None` when the operation is malformed, as when a path
    /// leaves its aggregate.
    pub fn result_type(&self, module: &Module) -> Option<Type> {
        Some(match self {
            Op::Binary { ty, .. } | Op::FNeg { ty, .. } | Op::Phi { ty, .. } | Op::Load { ty, .. } => {
                ty.clone()
            }
            Op::ICmp { ty, .. } | Op::FCmp { ty, .. } => ty.with_scalar(Type::I1),
            Op::Cast { to, .. } => to.clone(),
            Op::Select { a, .. } => a.ty.clone(),
            Op::Freeze(value) => value.ty.clone(),
            Op::Alloca { addrspace, .. } => Type::Ptr(*addrspace),
            Op::Store { .. } | Op::Fence(_) => Type::Void,
            Op::Gep { base, indices, .. } => gep_type(base, indices),
            Op::Call(call) => call.ret.clone(),
            Op::ExtractValue { agg, path } => agg.ty.at_path(path, module)?.clone(),
            Op::InsertValue { agg, .. } => agg.ty.clone(),
            Op::ExtractElement { vector, .. } => match &vector.ty {
                Type::Vector(_, element) => (**element).clone(),
                _ => return None,
            },
            Op::InsertElement { vector, .. } => vector.ty.clone(),
            Op::ShuffleVector { a, mask, .. } => match (&a.ty, &mask.ty) {
                (Type::Vector(_, element), Type::Vector(lanes, _)) => Type::Vector(*lanes, element.clone()),
                _ => return None,
            },
            Op::AtomicRmw { value, .. } => value.ty.clone(),
            Op::CmpXchg { expected, .. } => {
                Type::Struct { packed: false, fields: vec![expected.ty.clone(), Type::I1] }
            }
        })
    }
}

/// A pointer, or a vector of pointers when the base or any index is a vector.
fn gep_type(base: &Typed, indices: &[Typed]) -> Type {
    let lanes = indices.iter().find_map(|i| match i.ty {
        Type::Vector(lanes, _) => Some(lanes),
        _ => None,
    });
    match (&base.ty, lanes) {
        (Type::Vector(..), _) | (_, None) => base.ty.clone(),
        (ty, Some(lanes)) => Type::vector(lanes, ty.clone()),
    }
}

impl Term {
    /// Every operand, in the order of the text; the constants of a switch's cases are not operands.
    pub fn operands(&self) -> Vec<&Operand> {
        match self {
            Term::CondBr { cond: op, .. }
            | Term::Switch { value: Typed { op, .. }, .. }
            | Term::Ret(Some(Typed { op, .. })) => vec![op],
            Term::Br(_) | Term::Ret(None) | Term::Unreachable => Vec::new(),
        }
    }

    /// Apply `f` to every operand, in the order of the text.
    pub fn map_operands(&mut self, mut f: impl FnMut(&mut Operand)) {
        match self {
            Term::CondBr { cond: op, .. }
            | Term::Switch { value: Typed { op, .. }, .. }
            | Term::Ret(Some(Typed { op, .. })) => f(op),
            Term::Br(_) | Term::Ret(None) | Term::Unreachable => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(n: u32, ty: Type) -> Typed {
        Typed::new(ty, ValueId(n))
    }

    fn ids(op: &Op) -> Vec<u32> {
        op.operands().iter().filter_map(|o| o.value()).map(|v| v.0).collect()
    }

    #[test]
    fn operands_come_in_the_order_of_the_text() {
        let vector = Type::vector(4, Type::Float);
        let select = Op::Select {
            flags: String::new(),
            cond: value(0, Type::I1),
            a: value(1, Type::Float),
            b: value(2, Type::Float),
        };
        assert_eq!(ids(&select), [0, 1, 2]);
        let insert = Op::InsertElement {
            vector: value(3, vector),
            value: value(4, Type::Float),
            index: value(5, Type::I32),
        };
        assert_eq!(ids(&insert), [3, 4, 5]);
        let exchange = Op::CmpXchg {
            weak: false,
            ptr: value(6, Type::PTR),
            expected: value(7, Type::I32),
            new: value(8, Type::I32),
            align: None,
            volatile: false,
            success: Atomic { ordering: Ordering::SeqCst, scope: None },
            failure: Ordering::Monotonic,
        };
        assert_eq!(ids(&exchange), [6, 7, 8]);
    }

    #[test]
    fn a_call_reads_its_callee_arguments_and_bundles() {
        let mut op = Op::Call(Call {
            tail: String::new(),
            flags: String::new(),
            ret_attrs: String::new(),
            ret: Type::Void,
            variadic: None,
            callee: Callee::Indirect(ValueId(0).into()),
            args: vec![CallArg { ty: Type::I32, attrs: String::new(), op: ValueId(1).into() }],
            attrs: String::new(),
            bundles: vec![Bundle { tag: "align".to_owned(), inputs: vec![value(2, Type::PTR)] }],
        });
        assert_eq!(ids(&op), [0, 1, 2]);
        op.map_operands(|operand| *operand = Operand::int(32, 7));
        assert!(op.operands().iter().all(|o| **o == Operand::int(32, 7)));
    }

    #[test]
    fn result_types_follow_the_operands() {
        let module = Module::default();
        let lanes = Type::vector(4, Type::Float);
        let compare = Op::FCmp {
            flags: String::new(),
            pred: FloatPredicate::Olt,
            ty: lanes.clone(),
            a: ValueId(0).into(),
            b: ValueId(1).into(),
        };
        assert_eq!(compare.result_type(&module), Some(Type::vector(4, Type::I1)));
        let gep = Op::Gep {
            flags: String::new(),
            source: Type::I8,
            base: value(0, Type::PTR),
            indices: vec![value(1, Type::vector(8, Type::I64))],
        };
        assert_eq!(gep.result_type(&module), Some(Type::vector(8, Type::PTR)));
        let outside = Op::ExtractValue { agg: value(0, Type::array(2, Type::I8)), path: vec![2] };
        assert_eq!(outside.result_type(&module), None);
    }
}
