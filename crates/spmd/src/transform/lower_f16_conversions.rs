//! Lowers conversions of `half` to integers to conversions of `float`, which represents every `half` exactly.
//!
//! LLVM 19 compiles `llvm.fptosi.sat.i16.f16` for processors with AVX512-FP16 to code that gives -32768 for NaN, where the
//! intrinsic gives 0; conversions from `float` are correct everywhere.

use elinvar_ir::{Call, CastOp, Function, Inst, Op, Type, Typed};

use crate::support::builder::call as call_of;
use crate::support::ir::callee_name;

/// Rewrites the conversions of `function`.
pub(crate) fn lower(function: &mut Function) {
    for index in 0..function.blocks.len() {
        let insts = std::mem::take(&mut function.blocks[index].insts);
        let mut out = Vec::with_capacity(insts.len());
        for mut inst in insts {
            if let Op::Call(call) = &inst.op
                && let Some((name, wide)) = widened(call)
            {
                let (ret, given) =
                    (call.ret.clone(), Typed::new(call.args[0].ty.clone(), call.args[0].op.clone()));
                let float = function.new_value(wide.clone(), None);
                let op = Op::Cast { op: CastOp::FpExt, flags: String::new(), from: given, to: wide.clone() };
                out.push(Inst { result: Some(float), op, metadata: inst.metadata.clone() });
                inst.op = call_of(ret, &name, &[(wide, float.into())]);
            }
            out.push(inst);
        }
        function.blocks[index].insts = out;
    }
}

/// The intrinsic for `float` and its parameter's type, if a call converts a `half`.
fn widened(call: &Call) -> Option<(String, Type)> {
    let name = callee_name(call)?;
    let is_conversion = ["llvm.fptosi.sat.", "llvm.fptoui.sat."].iter().any(|start| name.starts_with(start));
    let wide = match &call.args.first()?.ty {
        Type::Half => Type::Float,
        Type::Vector(lanes, element) if **element == Type::Half => Type::vector(*lanes, Type::Float),
        _ => return None,
    };
    let kept = name.strip_suffix("f16").filter(|_| is_conversion)?;
    Some((format!("{kept}f32"), wide))
}

#[cfg(test)]
mod tests {
    use elinvar_ir::Module;

    use super::*;

    #[test]
    fn only_halves_become_floats_first() {
        let text = "define i16 @f(half %h, <3 x half> %v, bfloat %b) {
              %x = call i16 @llvm.fptosi.sat.i16.f16(half %h)
              %y = call <3 x i8> @llvm.fptoui.sat.v3i8.v3f16(<3 x half> %v)
              %z = call i16 @llvm.fptosi.sat.i16.bf16(bfloat %b)
              %s = add i16 %x, %z
              ret i16 %s
            }
            declare i16 @llvm.fptosi.sat.i16.f16(half)
            declare <3 x i8> @llvm.fptoui.sat.v3i8.v3f16(<3 x half>)
            declare i16 @llvm.fptosi.sat.i16.bf16(bfloat)";
        let mut function = Module::parse(text).unwrap().functions.remove(0);
        lower(&mut function);
        let lines: Vec<String> = function.to_string().lines().map(|line| line.trim().to_owned()).collect();
        assert_eq!(
            &lines[1..6],
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
