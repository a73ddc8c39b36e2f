//! Lowers operations on `half` whose results are the same in `float`, which represents every `half` exactly.
//!
//! Conversions to integers: LLVM 19 compiles `llvm.fptosi.sat.i16.f16` for processors with AVX512-FP16 to code that gives -32768 for NaN,
//! where the intrinsic gives 0; conversions from `float` are correct everywhere.
//!
//! Comparisons, minima, maxima and rounding to integers, for targets without instructions for them: LLVM would take their vectors apart,
//! while vectors are converted by single instructions. `llvm.arithmetic.fence` keeps it from narrowing the operations again.

use elinvar_ir::{CastOp, Function, Inst, Op, Operand, Type, Typed, ValueId};

use crate::support::builder::call as call_of;
use crate::support::ir::callee_name;

/// Conversions to integers.
const CONVERSIONS: &[&str] = &["llvm.fptosi.sat.", "llvm.fptoui.sat."];
/// Operations from halves to a half.
const EXACT: &[&str] = &[
    "llvm.ceil.",
    "llvm.floor.",
    "llvm.maximum.",
    "llvm.maxnum.",
    "llvm.minimum.",
    "llvm.minnum.",
    "llvm.nearbyint.",
    "llvm.rint.",
    "llvm.round.",
    "llvm.roundeven.",
    "llvm.trunc.",
];

/// Rewrites the operations of `function`. `has_half`: whether the target has instructions for arithmetic with halves.
pub(crate) fn lower(function: &mut Function, has_half: bool) {
    for index in 0..function.blocks.len() {
        let insts = std::mem::take(&mut function.blocks[index].insts);
        let mut out = Vec::with_capacity(insts.len());
        for inst in insts {
            Lowering { function, out: &mut out, has_half }.inst(inst);
        }
        function.blocks[index].insts = out;
    }
}

struct Lowering<'a> {
    function: &'a mut Function,
    out: &'a mut Vec<Inst>,
    has_half: bool,
}

impl Lowering<'_> {
    fn inst(&mut self, mut inst: Inst) {
        match &mut inst.op {
            Op::FCmp { ty, a, b, .. } if !self.has_half => {
                if let Some(wide) = widened(ty) {
                    for operand in [a, b] {
                        let float = self.extend(ty, &wide, operand);
                        *operand = self.fence(&wide, float);
                    }
                    *ty = wide;
                }
            }
            Op::Call(call) => {
                let name = callee_name(call).and_then(|name| Some((name, name.strip_suffix("f16")?)));
                if let (Some((name, kept)), Some(from)) = (name, call.args.first().map(|arg| arg.ty.clone()))
                    && let Some(wide) = widened(&from)
                {
                    let is = |list: &[&str]| list.iter().any(|start| name.starts_with(start));
                    let name = format!("{kept}f32");
                    let operands: Vec<Operand> = call.args.iter().map(|arg| arg.op.clone()).collect();
                    if is(CONVERSIONS) {
                        let float = self.extend(&from, &wide, &operands[0]);
                        inst.op = call_of(call.ret.clone(), &name, &[(wide, float.into())]);
                    } else if is(EXACT) && !self.has_half {
                        inst.op = self.exact(&name, &from, &wide, &operands);
                    }
                }
            }
            _ => {}
        }
        self.out.push(inst);
    }

    /// The operation in `float`, and its conversion to `half`.
    fn exact(&mut self, name: &str, from: &Type, wide: &Type, operands: &[Operand]) -> Op {
        let args: Vec<(Type, Operand)> = operands
            .iter()
            .map(|operand| {
                let float = self.extend(from, wide, operand);
                (wide.clone(), self.fence(wide, float))
            })
            .collect();
        let result = self.define(wide, call_of(wide.clone(), name, &args));
        let result = self.fence(wide, result);
        let given = Typed::new(wide.clone(), result);
        Op::Cast { op: CastOp::FpTrunc, flags: String::new(), from: given, to: from.clone() }
    }

    fn define(&mut self, ty: &Type, op: Op) -> ValueId {
        let result = self.function.new_value(ty.clone(), None);
        self.out.push(Inst { result: Some(result), op, metadata: Vec::new() });
        result
    }

    fn extend(&mut self, from: &Type, wide: &Type, operand: &Operand) -> ValueId {
        let from = Typed::new(from.clone(), operand.clone());
        self.define(wide, Op::Cast { op: CastOp::FpExt, flags: String::new(), from, to: wide.clone() })
    }

    fn fence(&mut self, ty: &Type, value: ValueId) -> Operand {
        let types = match ty {
            Type::Vector(lanes, _) => format!("v{lanes}f32"),
            _ => "f32".to_owned(),
        };
        let name = format!("llvm.arithmetic.fence.{types}");
        self.define(ty, call_of(ty.clone(), &name, &[(ty.clone(), value.into())])).into()
    }
}

/// `float` or a vector of it for `half`.
fn widened(ty: &Type) -> Option<Type> {
    match ty {
        Type::Half => Some(Type::Float),
        Type::Vector(lanes, element) if **element == Type::Half => Some(Type::vector(*lanes, Type::Float)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use elinvar_ir::Module;

    use super::*;

    fn lowered(text: &str, has_half: bool) -> Vec<String> {
        let mut function = Module::parse(text).unwrap().functions.remove(0);
        lower(&mut function, has_half);
        let lines: Vec<String> = function.to_string().lines().map(|line| line.trim().to_owned()).collect();
        lines[1..lines.len() - 2].to_vec()
    }

    #[test]
    fn only_halves_become_floats_first() {
        let text = "define i16 @f(half %h, <3 x half> %v, bfloat %b) {
              %x = call i16 @llvm.fptosi.sat.i16.f16(half %h)
              %y = call <3 x i8> @llvm.fptoui.sat.v3i8.v3f16(<3 x half> %v)
              %z = call i16 @llvm.fptosi.sat.i16.bf16(bfloat %b)
              ret i16 %x
            }
            declare i16 @llvm.fptosi.sat.i16.f16(half)
            declare <3 x i8> @llvm.fptoui.sat.v3i8.v3f16(<3 x half>)
            declare i16 @llvm.fptosi.sat.i16.bf16(bfloat)";
        for has_half in [true, false] {
            assert_eq!(
                lowered(text, has_half),
                [
                    "%1 = fpext half %h to float",
                    "%x = call i16 @llvm.fptosi.sat.i16.f32(float %1)",
                    "%2 = fpext <3 x half> %v to <3 x float>",
                    "%y = call <3 x i8> @llvm.fptoui.sat.v3i8.v3f32(<3 x float> %2)",
                    "%z = call i16 @llvm.fptosi.sat.i16.bf16(bfloat %b)",
                ]
            );
        }
    }

    #[test]
    fn comparisons_and_maxima_are_of_floats_for_targets_without_halves() {
        let text = "define i1 @f(half %a, <2 x half> %v, float %x) {
              %c = fcmp olt half %a, %a
              %m = call <2 x half> @llvm.maxnum.v2f16(<2 x half> %v, <2 x half> %v)
              %d = fcmp olt float %x, %x
              ret i1 %c
            }
            declare <2 x half> @llvm.maxnum.v2f16(<2 x half>, <2 x half>)";
        assert_eq!(lowered(text, true).len(), 3);
        assert_eq!(
            lowered(text, false),
            [
                "%1 = fpext half %a to float",
                "%2 = call float @llvm.arithmetic.fence.f32(float %1)",
                "%3 = fpext half %a to float",
                "%4 = call float @llvm.arithmetic.fence.f32(float %3)",
                "%c = fcmp olt float %2, %4",
                "%5 = fpext <2 x half> %v to <2 x float>",
                "%6 = call <2 x float> @llvm.arithmetic.fence.v2f32(<2 x float> %5)",
                "%7 = fpext <2 x half> %v to <2 x float>",
                "%8 = call <2 x float> @llvm.arithmetic.fence.v2f32(<2 x float> %7)",
                "%9 = call <2 x float> @llvm.maxnum.v2f32(<2 x float> %6, <2 x float> %8)",
                "%10 = call <2 x float> @llvm.arithmetic.fence.v2f32(<2 x float> %9)",
                "%m = fptrunc <2 x float> %10 to <2 x half>",
                "%d = fcmp olt float %x, %x",
            ]
        );
    }
}
