//! Lowers fast-math flags: decides which multiplications and additions are contracted, and drops the flags.
//!
//! Afterwards every operation has one result, whatever LLVM's optimization level, the number of lanes and the version (uniform or masked)
//! of a region. Reassociation, and division by constants as multiplication, are the front end's, which optimizes one thread's code.
//!
//! A multiplication is contracted with its only use, an addition or subtraction of the same block, if both have the flag `contract`, as
//! LLVM's instruction selection does. The result is `llvm.fmuladd`, which the target fuses if it has an FMA instruction.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BinaryOp, CastOp, Function, Inst, Op, Operand, Type, ValueId};

use crate::support::builder::call as call_of;

/// Rewrites the instructions of `function`.
pub(crate) fn lower(function: &mut Function) {
    let uses = uses(function);
    for index in 0..function.blocks.len() {
        contract(function, index, &uses);
        for inst in &mut function.blocks[index].insts {
            drop_flags(&mut inst.op);
        }
    }
}

/// Number of uses of each value.
fn uses(function: &Function) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    let mut count = |operands: Vec<&Operand>| {
        for operand in operands {
            if let Operand::Value(value) = operand {
                *uses.entry(*value).or_default() += 1;
            }
        }
    };
    for block in &function.blocks {
        block.insts.iter().for_each(|inst| count(inst.op.operands()));
        count(block.term.operands());
    }
    uses
}

/// The factors of a multiplication.
type Factors = (Operand, Operand);

/// Contracts multiplications of a block with their uses.
fn contract(function: &mut Function, index: usize, uses: &HashMap<ValueId, usize>) {
    let insts = std::mem::take(&mut function.blocks[index].insts);
    let mut products: HashMap<ValueId, Factors> = HashMap::new();
    let mut contracted = HashSet::new();
    let mut out: Vec<Inst> = Vec::with_capacity(insts.len());
    for mut inst in insts {
        match (&inst.op, inst.result) {
            (Op::Binary { op: BinaryOp::FMul, flags, ty, a, b }, Some(result))
                if is_contractable(flags, ty) && uses.get(&result) == Some(&1) =>
            {
                products.insert(result, (a.clone(), b.clone()));
            }
            (Op::Binary { op: op @ (BinaryOp::FAdd | BinaryOp::FSub), flags, ty, a, b }, _)
                if is_contractable(flags, ty) =>
            {
                let factors = |operand: &Operand| match operand {
                    Operand::Value(value) => Some((*value, products.get(value)?.clone())),
                    Operand::Const(_) => None,
                };
                let (ty, subtracts) = (ty.clone(), *op == BinaryOp::FSub);
                let mut negated = |operand: Operand| {
                    if !subtracts {
                        return operand;
                    }
                    let result = function.new_value(ty.clone(), None);
                    let op = Op::FNeg { flags: String::new(), ty: ty.clone(), a: operand };
                    out.push(Inst { result: Some(result), op, metadata: inst.metadata.clone() });
                    result.into()
                };
                // a * b - c is a * b + -c, and c - a * b is -a * b + c.
                let found = match (factors(a), factors(b)) {
                    (Some((product, (x, y))), _) => Some((product, [x, y, negated(b.clone())])),
                    (None, Some((product, (x, y)))) => Some((product, [negated(x), y, a.clone()])),
                    (None, None) => None,
                };
                if let Some((product, operands)) = found {
                    contracted.insert(product);
                    inst.op = multiply_add(&ty, operands);
                }
            }
            _ => {}
        }
        out.push(inst);
    }
    out.retain(|inst| inst.result.is_none_or(|result| !contracted.contains(&result)));
    function.blocks[index].insts = out;
}

fn multiply_add(ty: &Type, operands: [Operand; 3]) -> Op {
    let name = if *ty == Type::Half { "llvm.fmuladd.f16" } else { "llvm.fmuladd.f32" };
    call_of(ty.clone(), name, &operands.map(|operand| (ty.clone(), operand)))
}

fn is_contractable(flags: &str, ty: &Type) -> bool {
    matches!(ty, Type::Float | Type::Half) && flags.split(' ').any(|flag| matches!(flag, "contract" | "fast"))
}

fn drop_flags(op: &mut Op) {
    match op {
        Op::Binary { op: BinaryOp::FAdd | BinaryOp::FSub | BinaryOp::FMul, flags, .. }
        | Op::Binary { op: BinaryOp::FDiv | BinaryOp::FRem, flags, .. }
        | Op::FNeg { flags, .. }
        | Op::FCmp { flags, .. }
        | Op::Select { flags, .. }
        | Op::Phi { flags, .. }
        | Op::Cast { op: CastOp::FpExt | CastOp::FpTrunc, flags, .. } => flags.clear(),
        Op::Call(call) => call.flags.clear(),
        _ => {}
    }
}
