//! Approximate division and square roots of `float`, if the source's math mode allows errors of some ulp.
//!
//! clang is instructed to divide with `div.full.f32`, whose results are within 2 ulp; divisions that must be correctly rounded,
//! such as those of the library, are marked here. The library's reciprocal square root becomes `rsqrt.approx.f32`, with a
//! relative error of at most 2^-22.9 (PTX ISA, "div", "rsqrt").

use std::collections::HashMap;

use elinvar_ir::{BinaryOp, Const, Function, Inst, Op, Operand, Type, ValueId};

use crate::support::builder::call;
use crate::support::ir::callee_name;

const DIVIDE: &str = "llvm.nvvm.div.rn.f";
const ROOT: &str = "llvm.sqrt.f32";
const RECIPROCAL_ROOT: &str = "llvm.nvvm.rsqrt.approx.f";

/// Rewrites the `float` divisions of a function.
pub(super) fn write(function: &mut Function) {
    let roots: HashMap<ValueId, Operand> =
        function.blocks.iter().flat_map(|b| &b.insts).filter_map(root_of).collect();
    for inst in function.blocks.iter_mut().flat_map(|b| &mut b.insts) {
        let Op::Binary { op: BinaryOp::FDiv, flags, ty: Type::Float, a, b } = &inst.op else { continue };
        let root = b.value().and_then(|value| roots.get(&value)).filter(|_| is_one(a));
        inst.op = match root {
            Some(of) => call(Type::Float, RECIPROCAL_ROOT, &[(Type::Float, of.clone())]),
            None if flags.contains("afn") || flags.contains("arcp") => continue,
            None => call(Type::Float, DIVIDE, &[(Type::Float, a.clone()), (Type::Float, b.clone())]),
        };
    }
}

/// A square root and its operand.
fn root_of(inst: &Inst) -> Option<(ValueId, Operand)> {
    match &inst.op {
        Op::Call(call) if callee_name(call) == Some(ROOT) => {
            Some((inst.result?, call.args.first()?.op.clone()))
        }
        _ => None,
    }
}

fn is_one(operand: &Operand) -> bool {
    matches!(operand, Operand::Const(Const::Float(text)) if text == "1.000000e+00")
}

#[cfg(test)]
mod tests {
    use elinvar_ir::Module;

    use super::*;

    #[test]
    fn exact_divisions_stay_exact_and_reciprocal_roots_are_quick() {
        let text = "define float @f(float %a, float %b) {
              %q = fdiv float %a, %b
              %quick = fdiv reassoc arcp afn float %q, %b
              %s = call float @llvm.sqrt.f32(float %quick)
              %r = fdiv float 1.000000e+00, %s
              %t = fdiv float 2.000000e+00, %s
              %sum = fadd float %r, %t
              ret float %sum
            }
            declare float @llvm.sqrt.f32(float)";
        let mut function = Module::parse(text).unwrap().functions.remove(0);
        write(&mut function);
        let written = function.to_string();
        for line in [
            "%q = call float @llvm.nvvm.div.rn.f(float %a, float %b)",
            "%quick = fdiv reassoc arcp afn float %q, %b",
            "%r = call float @llvm.nvvm.rsqrt.approx.f(float %quick)",
            "%t = call float @llvm.nvvm.div.rn.f(float 2.000000e+00, float %s)",
        ] {
            assert!(written.contains(line), "{line} in {written}");
        }
    }
}
