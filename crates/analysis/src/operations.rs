//! Arithmetic of a kernel: operations by type, and an estimate of the registers that it needs.

use std::collections::HashSet;

use elinvar_ir::{BinaryOp, Block, Callee, Function, Inst, Module, Op, Operand, Type, ValueId};
use elinvar_spmd::intrinsic::Intrinsic;
use serde::Serialize;

/// Numbers of operations. An operation on a vector counts once for each component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Operations {
    /// Additions, multiplications, divisions and comparisons of `float`; a fused multiply-add counts as two.
    pub f32: f64,
    /// The same of `half`.
    pub f16: f64,
    /// The same of `bfloat`.
    pub bf16: f64,
    /// Calls of math functions, such as `exp`, of any floating-point type.
    pub functions: f64,
    /// Operations and comparisons of integers, without addresses.
    pub integer: f64,
    /// Operations across a simdgroup.
    pub simdgroup: f64,
}

impl Operations {
    /// Floating-point operations of all types, with a function as one.
    pub fn flops(&self) -> f64 {
        self.f32 + self.f16 + self.bf16 + self.functions
    }

    /// Adds operations that are executed `times` times.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.f32 += other.f32 * times;
        self.f16 += other.f16 * times;
        self.bf16 += other.bf16 * times;
        self.functions += other.functions * times;
        self.integer += other.integer * times;
        self.simdgroup += other.simdgroup * times;
    }

    fn count(&mut self, ty: &Type, number: f64) {
        let lanes = if let Type::Vector(lanes, _) = ty { f64::from(*lanes) } else { 1.0 };
        let place = match ty.scalar() {
            Type::Float | Type::Double => &mut self.f32,
            Type::Half => &mut self.f16,
            Type::BFloat => &mut self.bf16,
            Type::Int(_) => &mut self.integer,
            _ => return,
        };
        *place += lanes * number;
    }
}

/// The operations of a block.
pub(crate) fn of_block(block: &Block) -> Operations {
    let mut all = Operations::default();
    for inst in &block.insts {
        match &inst.op {
            Op::Binary { op: BinaryOp::And | BinaryOp::Or | BinaryOp::Xor, ty, .. }
                if *ty.scalar() == Type::I1 => {}
            Op::Binary { ty, .. } | Op::FNeg { ty, .. } | Op::ICmp { ty, .. } | Op::FCmp { ty, .. } => {
                all.count(ty, 1.0);
            }
            Op::Call(call) => {
                let Callee::Function(name) = &call.callee else { continue };
                match Intrinsic::parse(name) {
                    Some(Intrinsic::Group(_)) => all.simdgroup += 1.0,
                    Some(_) => {}
                    None => of_call(&mut all, name, &call.ret),
                }
            }
            _ => {}
        }
    }
    all
}

fn of_call(all: &mut Operations, name: &str, ret: &Type) {
    let base = name.strip_prefix("llvm.").and_then(|rest| rest.split('.').next());
    match base {
        Some("fma" | "fmuladd") => all.count(ret, 2.0),
        Some("dbg" | "lifetime" | "assume" | "memcpy" | "memset" | "memmove" | "experimental") => {}
        Some(
            "umin" | "umax" | "smin" | "smax" | "abs" | "fabs" | "minnum" | "maxnum" | "minimum" | "maximum"
            | "copysign" | "floor" | "ceil" | "trunc" | "rint" | "round" | "canonicalize" | "ctpop" | "ctlz"
            | "cttz" | "bitreverse" | "bswap" | "fshl" | "fshr" | "uadd" | "usub" | "sadd" | "ssub",
        ) => all.count(ret, 1.0),
        _ if ret.scalar().is_float() => {
            all.functions += if let Type::Vector(lanes, _) = ret { f64::from(*lanes) } else { 1.0 };
        }
        _ => {}
    }
}

/// The largest number of 32-bit registers that values of one thread occupy at a time, if each is kept from its definition to its last use.
///
/// An estimate: compilers reorder, rematerialize and spill, and keep uniform values elsewhere.
pub(crate) fn live_registers(module: &Module, function: &Function) -> u64 {
    let words = |value: &ValueId| function.ty(*value).size_align(module).0.div_ceil(4);
    let is_counted = |value: &ValueId| function.params.iter().all(|param| param.value != *value);
    let count = function.blocks.len();
    let mut live_in: Vec<HashSet<ValueId>> = vec![HashSet::new(); count];
    let used = |op: &Op| {
        op.operands().into_iter().filter_map(Operand::value).filter(|v| is_counted(v)).collect::<Vec<_>>()
    };
    let mut most = 0;
    let mut is_changing = true;
    while is_changing {
        is_changing = false;
        for block in function.block_ids().collect::<Vec<_>>().into_iter().rev() {
            let code = function.block(block);
            let mut live: HashSet<ValueId> = HashSet::new();
            for next in code.term.successors() {
                live.extend(&live_in[next.0 as usize]);
                for inst in &function.block(next).insts {
                    let Op::Phi { incoming, .. } = &inst.op else { break };
                    let own = incoming.iter().filter(|(_, from)| *from == block);
                    live.extend(own.filter_map(|(operand, _)| operand.value()).filter(|v| is_counted(v)));
                }
            }
            live.extend(
                code.term.operands().into_iter().filter_map(Operand::value).filter(|v| is_counted(v)),
            );
            most = most.max(live.iter().map(words).sum());
            for Inst { result, op, .. } in code.insts.iter().rev() {
                if let Some(result) = result {
                    live.remove(result);
                }
                if !matches!(op, Op::Phi { .. }) {
                    live.extend(used(op));
                    most = most.max(live.iter().map(words).sum());
                }
            }
            if live != live_in[block.0 as usize] {
                live_in[block.0 as usize] = live;
                is_changing = true;
            }
        }
    }
    most
}
