//! Lowers [`Intrinsic::Scale`], `a · 2ⁿ` rounded once, of the exponential functions.
//!
//! AVX-512 has `vscalefps` for it. The intrinsic becomes `llvm.ldexp`, which has a vector form, and [`definition`] the function that
//! computes it: LLVM 19 would call `ldexpf` for each lane. Other targets multiply by two powers of two: the first product is exact for the
//! intrinsic's operands, so the bits are the same.

use elinvar_ir::{BinaryOp, CastOp, Function, Inst, Module, Op, Operand, Type, Typed, ValueId};

use crate::intrinsic::Intrinsic;
use crate::support::builder::call as call_of;
use crate::support::ir::callee_name;
use crate::support::vector_intrinsics::mangled;

/// The scalar form, and the start of the vector forms' names.
const LDEXP: &str = "llvm.ldexp.f32.i32";
const LDEXP_OF_VECTORS: &str = "llvm.ldexp.v";
const SHARED: &str = "elinvar.ldexp.";
/// Lanes of a 512-bit register.
const REGISTER: u32 = 16;

/// Rewrites the calls of `function`. `has_scalef`: whether the processor has `vscalefps`.
pub(crate) fn lower(function: &mut Function, has_scalef: bool) {
    for index in 0..function.blocks.len() {
        let insts = std::mem::take(&mut function.blocks[index].insts);
        let mut out = Vec::with_capacity(insts.len());
        for mut inst in insts {
            if let Op::Call(call) = &inst.op
                && callee_name(call).and_then(Intrinsic::parse) == Some(Intrinsic::Scale)
                && let [a, n] = &call.args[..]
            {
                let (a, n) = (a.op.clone(), n.op.clone());
                inst.op = match has_scalef {
                    true => call_of(Type::Float, LDEXP, &[(Type::Float, a), (Type::I32, n)]),
                    false => in_two_steps(function, &mut out, a, n),
                };
            }
            out.push(inst);
        }
        function.blocks[index].insts = out;
    }
}

/// `a · 2^(n >> 1) · 2^(n - (n >> 1))`.
fn in_two_steps(function: &mut Function, out: &mut Vec<Inst>, a: Operand, n: Operand) -> Op {
    let mut define = |ty: &Type, op: Op| {
        let result = function.new_value(ty.clone(), None);
        out.push(Inst { result: Some(result), op, metadata: Vec::new() });
        result
    };
    let int = |op, a: Operand, b: Operand| Op::Binary { op, flags: String::new(), ty: Type::I32, a, b };
    let product = |a: Operand, b: ValueId| Op::Binary {
        op: BinaryOp::FMul,
        flags: String::new(),
        ty: Type::Float,
        a,
        b: b.into(),
    };
    let first = define(&Type::I32, int(BinaryOp::AShr, n.clone(), Operand::int(32, 1)));
    let rest = define(&Type::I32, int(BinaryOp::Sub, n, first.into()));
    let [first, rest] = [first, rest].map(|n| {
        let biased = define(&Type::I32, int(BinaryOp::Add, n.into(), Operand::int(32, 127)));
        let bits = define(&Type::I32, int(BinaryOp::Shl, biased.into(), Operand::int(32, 23)));
        let from = Typed::new(Type::I32, bits);
        define(&Type::Float, Op::Cast { op: CastOp::BitCast, flags: String::new(), from, to: Type::Float })
    });
    let half = define(&Type::Float, product(a, first));
    product(half.into(), rest)
}

/// Makes calls of `llvm.ldexp` of `float` calls of the functions of [`definition`].
pub(crate) fn share(module: &mut Module) {
    for inst in module.functions.iter_mut().flat_map(|f| &mut f.blocks).flat_map(|b| &mut b.insts) {
        if let Op::Call(call) = &mut inst.op
            && let Some(name) = callee_name(call)
            && (name == LDEXP || name.starts_with(LDEXP_OF_VECTORS) && *call.ret.scalar() == Type::Float)
        {
            let suffix = match call.ret {
                Type::Vector(lanes, _) => mangled(&Type::Float, lanes),
                _ => "f32".to_owned(),
            };
            call.callee = elinvar_ir::Callee::Function(format!("{SHARED}{suffix}"));
        }
    }
}

/// The function with this name: `a · 2ⁿ` by `vscalefps`, for vectors a register at a time.
pub(crate) fn definition(name: &str) -> Option<Function> {
    let suffix = name.strip_prefix(SHARED)?;
    let text = match suffix.strip_prefix('v').and_then(|rest| rest.strip_suffix("f32")) {
        None => "%power = sitofp i32 %n to float
          %low = insertelement <4 x float> zeroinitializer, float %a, i32 0
          %by = insertelement <4 x float> zeroinitializer, float %power, i32 0
          %scaled = call <4 x float> @llvm.x86.avx512.mask.scalef.ss(<4 x float> %low, <4 x float> %by, <4 x float> %low, i8 -1, i32 4)
          %all = extractelement <4 x float> %scaled, i32 0
          ret float %all"
            .to_owned(),
        Some(lanes) => of_vectors(lanes.parse().ok()?),
    };
    let (float, int) = match suffix {
        "f32" => ("float".to_owned(), "i32".to_owned()),
        _ => {
            let lanes = &suffix[1..suffix.len() - 3];
            (format!("<{lanes} x float>"), format!("<{lanes} x i32>"))
        }
    };
    let text = format!(
        "define internal {float} @{name}({float} %a, {int} %n) alwaysinline nounwind {{\nentry:\n{text}\n}}\n"
    );
    Module::parse(&text).ok()?.functions.into_iter().find(|f| f.name == name)
}

fn of_vectors(lanes: u32) -> String {
    let (float, int) = (format!("<{lanes} x float>"), format!("<{lanes} x i32>"));
    let one = REGISTER;
    let mut text = format!("%power = sitofp {int} %n to {float}\n");
    let indices = |range: std::ops::Range<u32>, lanes: u32| {
        let all: Vec<String> =
            range.map(|at| if at < lanes { format!("i32 {at}") } else { "i32 poison".into() }).collect();
        format!("<{} x i32> <{}>", all.len(), all.join(", "))
    };
    let parts = lanes.div_ceil(one);
    for part in 0..parts {
        let places = indices(part * one..(part + 1) * one, lanes);
        for (name, from) in [("a", "%a"), ("by", "%power")] {
            text += &format!("%{name}{part} = shufflevector {float} {from}, {float} poison, {places}\n");
        }
        text += &format!(
            "%s{part} = call <{one} x float> @llvm.x86.avx512.mask.scalef.ps.512(<{one} x float> %a{part}, <{one} x float> %by{part}, \
             <{one} x float> %a{part}, i16 -1, i32 4)\n"
        );
    }
    let all = match parts {
        1 => format!(
            "%all = shufflevector <{one} x float> %s0, <{one} x float> poison, {}\n",
            indices(0..lanes, lanes)
        ),
        _ => format!(
            "%all = shufflevector <{one} x float> %s0, <{one} x float> %s1, {}\n",
            indices(0..lanes, lanes)
        ),
    };
    text + &all + &format!("ret {float} %all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_of_scalars_and_of_vectors_of_any_size() {
        for (lanes, calls) in [(0, 1), (2, 1), (4, 1), (8, 1), (16, 1), (32, 2)] {
            let suffix = if lanes == 0 { "f32".to_owned() } else { mangled(&Type::Float, lanes) };
            let function = definition(&format!("{SHARED}{suffix}")).unwrap_or_else(|| panic!("{suffix}"));
            let insts = function.blocks.iter().flat_map(|b| &b.insts);
            let found = insts.filter(|inst| matches!(&inst.op, Op::Call(_))).count();
            assert_eq!(found, calls, "{suffix}");
        }
        assert!(definition("elinvar.gather.v16f32").is_none());
    }
}
