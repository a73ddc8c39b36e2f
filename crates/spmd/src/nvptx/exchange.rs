//! Functions across a simdgroup: each call gets the mask of the lanes that make it together, and is one of the
//! library's then.

use std::collections::{BTreeSet, HashMap};

use elinvar_ir::{
    BlockId, Call, CallArg, Callee, CastOp, Function, Inst, Module, Op, Operand, Type, Typed, ValueId,
};

use super::masks::Masks;
use super::{library, product};
use crate::Error;
use crate::builder::call as call_of;
use crate::flow::Flow;
use crate::prepare::callee_name;
use crate::primitive::{SIMDGROUP_BARRIER, exchange};

const BARRIER: &str = "llvm.nvvm.bar.warp.sync";

/// Whether a kernel exchanges values.
pub(super) fn is_used(kernel: &Function) -> bool {
    kernel.blocks.iter().flat_map(|b| &b.insts).any(|inst| name_of(inst).is_some())
}

/// The primitive that an instruction calls, if it is one across a simdgroup.
fn name_of(inst: &Inst) -> Option<&str> {
    let Op::Call(call) = &inst.op else { return None };
    callee_name(call).filter(|name| *name == SIMDGROUP_BARRIER || exchange(name).is_some())
}

/// Write the kernel's calls, and add what they call to the module. All lanes of `mask` begin in `first`. Sums of matrix
/// products may be in any order where they are `approximate`.
pub(super) fn write(
    module: &mut Module,
    kernel: &mut Function,
    first: BlockId,
    mask: ValueId,
    approximate: bool,
) -> Result<(), Error> {
    let narrow = if approximate { widened(kernel) } else { HashMap::new() };
    let flow = Flow::new(kernel, first, |_| false)
        .map_err(|_| Error::unsupported("a loop with two entries around functions of a simdgroup", None))?;
    let calling: Vec<BlockId> = flow.order.iter().copied().filter(|b| calls_any(kernel, *b)).collect();
    let mut masks = Masks::new(kernel, flow, first, mask.into());
    let known: Vec<(BlockId, Operand)> = calling.into_iter().map(|b| (b, masks.of(b))).collect();
    masks.write();
    let mut needed = BTreeSet::new();
    for (block, mask) in known {
        let insts = std::mem::take(&mut kernel.block_mut(block).insts);
        let needed = &mut needed;
        let products = Vec::new();
        let mut written = Written { kernel, narrow: &narrow, needed, mask, products, out: Vec::new() };
        for inst in insts {
            written.inst(inst)?;
        }
        kernel.block_mut(block).insts = written.out;
    }
    library::add(module, needed)
}

/// Floats that were a `half` or a `bfloat` before.
fn widened(kernel: &Function) -> HashMap<ValueId, Typed> {
    let insts = kernel.blocks.iter().flat_map(|b| &b.insts);
    let from = insts.filter_map(|inst| match &inst.op {
        Op::Cast { op: CastOp::FpExt, from, to: Type::Float, .. } => Some((inst.result?, from.clone())),
        _ => None,
    });
    from.filter(|(_, from)| matches!(from.ty, Type::Half | Type::BFloat)).collect()
}

fn calls_any(kernel: &Function, block: BlockId) -> bool {
    kernel.block(block).insts.iter().any(|inst| name_of(inst).is_some())
}

/// A block being written.
struct Written<'k> {
    kernel: &'k mut Function,
    /// What was widened to a float, with its type.
    narrow: &'k HashMap<ValueId, Typed>,
    /// The functions of the library that are called.
    needed: &'k mut BTreeSet<String>,
    mask: Operand,
    /// Matrix products of this block: what they are of, and both elements.
    products: Vec<(Vec<CallArg>, ValueId)>,
    out: Vec<Inst>,
}

impl Written<'_> {
    fn inst(&mut self, inst: Inst) -> Result<(), Error> {
        let (Some(name), Op::Call(call)) = (name_of(&inst), &inst.op) else {
            self.out.push(inst);
            return Ok(());
        };
        let mask = (Type::I32, self.mask.clone());
        if name == SIMDGROUP_BARRIER {
            self.out.push(Inst { op: call_of(Type::Void, BARRIER, &[mask]), ..inst });
            return Ok(());
        }
        let function = exchange(name).unwrap_or_default();
        if function == "simd_matrix_multiply_accumulate" {
            let call = call.clone();
            return self.product(inst, &call);
        }
        let near = match (library::has_near(function), call.args.get(1).map(|a| &a.op)) {
            (Some(width), Some(Operand::Const(by))) => by.as_unsigned(16).is_some_and(|by| by < width.into()),
            _ => false,
        };
        let name = library::name(name, near);
        self.needed.insert(name.clone());
        let mut call = call.clone();
        call.callee = Callee::Function(name);
        call.attrs = String::new();
        call.args.push(CallArg { ty: mask.0, attrs: String::new(), op: mask.1 });
        self.out.push(Inst { op: Op::Call(call), ..inst });
        Ok(())
    }

    /// An element of a product; the calls for both elements of one are made once.
    fn product(&mut self, inst: Inst, call: &Call) -> Result<(), Error> {
        let malformed = || Error::Malformed("a matrix product without a constant element".into());
        let (element, of) = call.args.split_last().ok_or_else(malformed)?;
        let Operand::Const(element) = &element.op else { return Err(malformed()) };
        let element = element.as_unsigned(32).filter(|e| *e < 2).ok_or_else(malformed)? as u32;
        let made = self.products.iter().find(|(args, _)| args == of).map(|(_, pair)| *pair);
        let ty = Type::Struct { packed: false, fields: vec![Type::Float, Type::Float] };
        let pair = made.unwrap_or_else(|| {
            let mut args: Vec<_> = of.iter().map(|arg| (arg.ty.clone(), arg.op.clone())).collect();
            let factors = args.iter().take(4).map(|(_, op)| self.narrow.get(&op.value()?).cloned());
            let factors: Option<Vec<Typed>> = factors.collect();
            let name = match factors.filter(|f| f.iter().all(|factor| factor.ty == f[0].ty)) {
                Some(factors) => {
                    let name = product::of(&factors[0].ty.to_string());
                    args.splice(..4, factors.into_iter().map(|factor| (factor.ty, factor.op)));
                    name
                }
                None => product::FLOATS.to_owned(),
            };
            self.needed.insert(name.clone());
            let pair = self.kernel.new_value(ty.clone(), None);
            args.push((Type::I32, self.mask.clone()));
            let op = call_of(ty.clone(), &name, &args);
            self.out.push(Inst { result: Some(pair), op, metadata: inst.metadata.clone() });
            self.products.push((of.to_vec(), pair));
            pair
        });
        let op = Op::ExtractValue { agg: Typed::new(ty, pair), path: vec![element] };
        self.out.push(Inst { op, ..inst });
        Ok(())
    }
}
