//! Lowers simdgroup functions: each call gets the mask of the converged lanes and becomes a call of the library.

use std::collections::{BTreeSet, HashMap};

use elinvar_ir::{
    BlockId, Call, CallArg, Callee, CastOp, Function, Inst, Module, Op, Operand, Type, Typed, ValueId,
};

use super::active_masks::ActiveMasks;
use super::lane_bits::LaneBits;
use super::lane_permutation;
use super::library;
use super::matrix_loads::{Factor, MatrixLoads, Role};
use super::matrix_product::Step;
use super::mma_tiling;
use crate::Error;
use crate::analysis::cfg::Cfg;
use crate::analysis::divergence::DivergenceAnalysis;
use crate::intrinsic::{GroupCall, GroupOp, Intrinsic};
use crate::support::builder::call as call_of;
use crate::support::ir::callee_name;

pub(super) const BARRIER: &str = "llvm.nvvm.bar.warp.sync";

/// The library's barrier of a simdgroup that orders no accesses to memory.
pub(super) const EXECUTION_BARRIER: &str = "elinvar.execution_barrier";

/// Options of the lowering.
#[derive(Clone, Copy)]
pub(super) struct How<'t> {
    /// Whether sums of matrix products may be reassociated.
    pub approximate: bool,
    /// If lanes are permuted for matrix products, all of which use tensor cores: whether those of this simdgroup are.
    pub is_permuted: Option<&'t Operand>,
    /// The thread's position in its threadgroup, and the full threadgroup's size.
    pub threads: &'t [[Operand; 3]; 2],
}

/// Whether a kernel has simdgroup operations.
pub(super) fn is_used(kernel: &Function) -> bool {
    kernel.blocks.iter().flat_map(|b| &b.insts).any(|inst| convergent_op(inst).is_some())
}

/// A convergent operation of a simdgroup.
#[derive(Clone, Copy)]
enum ConvergentOp {
    Barrier,
    Group(GroupCall),
}

/// The convergent operation of an instruction, if any.
fn convergent_op(inst: &Inst) -> Option<ConvergentOp> {
    let Op::Call(call) = &inst.op else { return None };
    match Intrinsic::parse(callee_name(call)?)? {
        Intrinsic::SimdgroupBarrier => Some(ConvergentOp::Barrier),
        Intrinsic::Group(call) => Some(ConvergentOp::Group(call)),
        Intrinsic::Position(_)
        | Intrinsic::ThreadgroupBarrier
        | Intrinsic::GridBarrier
        | Intrinsic::Yield
        | Intrinsic::Scale
        | Intrinsic::Log
        | Intrinsic::HasTensorProduct
        | Intrinsic::TensorProduct => None,
    }
}

/// Whether an instruction is a barrier of a simdgroup that orders no accesses to memory (`mem_none`).
pub(super) fn orders_nothing(inst: &Inst) -> bool {
    let Op::Call(call) = &inst.op else { return false };
    let name = callee_name(call);
    let flags = call.args.first().map(|arg| &arg.op);
    let is_none = matches!(flags, Some(Operand::Const(flags)) if flags.as_unsigned(32) == Some(0));
    name == Some(EXECUTION_BARRIER)
        || is_none && name.and_then(Intrinsic::parse) == Some(Intrinsic::SimdgroupBarrier)
}

/// The group operation that an instruction calls, if any.
pub(super) fn of(inst: &Inst) -> Option<(GroupCall, &Call)> {
    match (convergent_op(inst)?, &inst.op) {
        (ConvergentOp::Group(function), Op::Call(call)) => Some((function, call)),
        _ => None,
    }
}

/// The call of a matrix product, if an instruction is one.
pub(super) fn product_of(inst: &Inst) -> Option<&Call> {
    of(inst).filter(|(call, _)| call.op == GroupOp::MatrixMultiplyAccumulate).map(|(_, product)| product)
}

/// Lowers the kernel's calls, and adds the called functions to the module. All lanes of `mask` begin in `first`.
pub(super) fn write(
    module: &mut Module,
    kernel: &mut Function,
    first: BlockId,
    mask: ValueId,
    how: How<'_>,
) -> Result<(), Error> {
    let narrow = if how.approximate { widened(kernel) } else { HashMap::new() };
    let cfg = Cfg::new(kernel, first, |_| false).map_err(|_| {
        Error::unsupported(
            "irreducible control flow (a loop with several entries) around simdgroup functions",
            None,
        )
    })?;
    let (is_permuted, permuted) = (how.is_permuted, how.is_permuted.is_some());
    let divergence = DivergenceAnalysis::new(kernel, &cfg);
    let matrices = has_products(kernel).then(|| Matrices::new(module, kernel, &divergence, how.threads));
    let calling: Vec<BlockId> = cfg.order.iter().copied().filter(|b| calls_any(kernel, *b)).collect();
    let mut masks = ActiveMasks::new(kernel, cfg, divergence, first, mask.into());
    let known: Vec<(BlockId, Operand)> = calling.into_iter().map(|b| (b, masks.of(b))).collect();
    masks.write();
    let mut needed = BTreeSet::new();
    for (block, mask) in known {
        let insts = std::mem::take(&mut kernel.block_mut(block).insts);
        let needed = &mut needed;
        let mut loads = matrices.as_ref().map(|matrices| matrices.loads(module, &insts, &narrow, permuted));
        let (steps, words, out) = (Vec::new(), HashMap::new(), Vec::new());
        let mut written = Written { kernel, narrow: &narrow, is_permuted, needed, mask, steps, words, out };
        for (at, inst) in insts.into_iter().enumerate() {
            if let Some(loads) = &mut loads {
                written.load(loads, at);
            }
            written.inst(inst)?;
        }
        kernel.block_mut(block).insts = written.out;
        if permuted {
            mma_tiling::join(kernel, block, needed);
        }
        if let Some(loads) = loads {
            loads.combine(kernel, block, |name| {
                needed.insert(name.to_owned());
            });
        }
    }
    library::add(module, needed)
}

/// `float` values extended from `half` or `bfloat`.
pub(super) fn widened(kernel: &Function) -> HashMap<ValueId, Typed> {
    let insts = kernel.blocks.iter().flat_map(|b| &b.insts);
    let from = insts.filter_map(|inst| match &inst.op {
        Op::Cast { op: CastOp::FpExt, from, to: Type::Float, .. } => Some((inst.result?, from.clone())),
        _ => None,
    });
    from.filter(|(_, from)| matches!(from.ty, Type::Half | Type::BFloat)).collect()
}

/// The elements of a product's factors before their extension to `float`, if all had one type.
pub(super) fn narrow_factors(widened: &HashMap<ValueId, Typed>, product: &Call) -> Option<[Typed; 4]> {
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| widened.get(&product.args.get(at)?.op.value()?));
    let all = [a?, b?, c?, d?];
    all.iter().all(|other| other.ty == all[0].ty).then(|| all.map(Clone::clone))
}

fn calls_any(kernel: &Function, block: BlockId) -> bool {
    kernel.block(block).insts.iter().any(|inst| convergent_op(inst).is_some())
}

fn has_products(kernel: &Function) -> bool {
    let mut insts = kernel.blocks.iter().flat_map(|b| &b.insts);
    insts.any(|inst| product_of(inst).is_some())
}

/// What is known of the addresses of a kernel's matrices.
struct Matrices {
    definitions: HashMap<ValueId, Op>,
    bits: LaneBits,
}

impl Matrices {
    fn new(
        module: &Module,
        kernel: &Function,
        divergence: &DivergenceAnalysis,
        threads: &[[Operand; 3]; 2],
    ) -> Self {
        let bits = LaneBits::new(module, kernel, divergence, threads);
        let insts = kernel.blocks.iter().flat_map(|b| &b.insts);
        let address = insts.filter(|inst| matches!(inst.op, Op::Gep { .. } | Op::Binary { .. }));
        let disjoint = |mut op: Op| {
            if bits.adds(&op)
                && let Op::Binary { flags, .. } = &mut op
            {
                *flags = "disjoint".into();
            }
            op
        };
        let definitions =
            address.filter_map(|inst| Some((inst.result?, disjoint(inst.op.clone())))).collect();
        Self { definitions, bits }
    }

    /// The loads of factors in a block.
    fn loads(
        &self,
        module: &Module,
        insts: &[Inst],
        narrow: &HashMap<ValueId, Typed>,
        permuted: bool,
    ) -> MatrixLoads {
        let factors = |inst: &Inst| {
            let product = product_of(inst)?;
            narrow_factors(narrow, product).or_else(|| {
                let args = product.args.iter().take(4).map(|arg| Typed::new(arg.ty.clone(), arg.op.clone()));
                args.collect::<Vec<_>>().try_into().ok()
            })
        };
        MatrixLoads::new(module, &self.definitions, &self.bits, insts, permuted, factors)
    }
}

/// A block being emitted.
struct Written<'k> {
    kernel: &'k mut Function,
    /// Values extended to `float`, with the original type.
    narrow: &'k HashMap<ValueId, Typed>,
    is_permuted: Option<&'k Operand>,
    /// Called functions of the library.
    needed: &'k mut BTreeSet<String>,
    mask: Operand,
    /// Steps of matrix products in this block, with their arguments.
    steps: Vec<(String, Vec<Typed>, ValueId)>,
    /// Factors that were loaded for products.
    words: HashMap<Factor, Typed>,
    out: Vec<Inst>,
}

impl Written<'_> {
    fn inst(&mut self, inst: Inst) -> Result<(), Error> {
        let (Some(together), Op::Call(call)) = (convergent_op(&inst), &inst.op) else {
            self.out.push(inst);
            return Ok(());
        };
        let mask = (Type::I32, self.mask.clone());
        let function = match together {
            ConvergentOp::Barrier => {
                let name = if orders_nothing(&inst) { EXECUTION_BARRIER } else { BARRIER };
                if name == EXECUTION_BARRIER {
                    self.needed.insert(name.to_owned());
                }
                self.out.push(Inst { op: call_of(Type::Void, name, &[mask]), ..inst });
                return Ok(());
            }
            ConvergentOp::Group(function) => function,
        };
        if function.op == GroupOp::MatrixMultiplyAccumulate {
            let call = call.clone();
            return self.product(inst, &call);
        }
        let near = match (library::has_near(function), call.args.get(1).map(|a| &a.op)) {
            (Some(width), Some(Operand::Const(by))) => by.as_unsigned(16).is_some_and(|by| by < width.into()),
            _ => false,
        };
        let name = library::name(function, near);
        self.needed.insert(name.clone());
        let mut call = call.clone();
        if let (Some(is_permuted), Some(by), true) =
            (self.is_permuted, call.args.get_mut(1), lane_permutation::names_lanes(function))
        {
            by.op = lane_permutation::lane_of(self.kernel, &mut self.out, &by.op, is_permuted);
        }
        call.callee = Callee::Function(name);
        call.attrs = String::new();
        call.args.push(CallArg { ty: mask.0, attrs: String::new(), op: mask.1 });
        self.out.push(Inst { op: Op::Call(call), ..inst });
        Ok(())
    }

    /// An element of a product; common steps are emitted once.
    fn product(&mut self, inst: Inst, call: &Call) -> Result<(), Error> {
        let malformed = || Error::Malformed("a matrix product without a constant element".into());
        let (element, of) = call.args.split_last().ok_or_else(malformed)?;
        let Operand::Const(element) = &element.op else { return Err(malformed()) };
        let element = element.as_unsigned(32).filter(|e| *e < 2).ok_or_else(malformed)? as u32;
        let given: Vec<Typed> = of.iter().map(|arg| Typed::new(arg.ty.clone(), arg.op.clone())).collect();
        let [a0, a1, b0, b1, c0, c1] = &given[..] else { return Err(malformed()) };
        let factors = narrow_factors(self.narrow, call);
        let [a0, a1, b0, b1] = factors.unwrap_or_else(|| [a0, a1, b0, b1].map(Clone::clone));
        let ty = a0.ty.clone();
        let [left, right, sum] = match self.is_permuted.is_some() {
            true => [Step::Word, Step::Turned, Step::Tiles { rows: 1, depth: 1 }],
            false => [Step::Left, Step::Right, Step::Sum],
        };
        let left = self.factor(left, Role::Left, &ty, [a0, a1], &inst);
        let right = self.factor(right, Role::Right, &ty, [b0, b1], &inst);
        let pair = self.step(sum, &ty, vec![left, right, c0.clone(), c1.clone()], &inst);
        let op = Op::ExtractValue { agg: pair, path: vec![element] };
        self.out.push(Inst { op, ..inst });
        Ok(())
    }

    /// Emits the loads of matrices before the instruction with this index.
    fn load(&mut self, loads: &mut MatrixLoads, at: usize) {
        let need = |name: &str| {
            self.needed.insert(name.to_owned());
        };
        let words = loads.emit(self.kernel, at, &mut self.out, need);
        self.words.extend(words);
    }

    /// A factor as it was loaded, or by a step.
    fn factor(&mut self, step: Step, role: Role, ty: &Type, elements: [Typed; 2], inst: &Inst) -> Typed {
        let values = elements.each_ref().map(|element| element.op.value());
        let loaded = match values {
            [Some(first), Some(second)] => self.words.get(&([first, second], role)),
            _ => None,
        };
        match loaded {
            Some(word) => word.clone(),
            None => self.step(step, ty, elements.to_vec(), inst),
        }
    }

    /// A step of a product, emitted once for the same arguments.
    fn step(&mut self, step: Step, factor: &Type, mut args: Vec<Typed>, inst: &Inst) -> Typed {
        let (name, ty) = (step.name(factor), step.result(factor));
        let known = self.steps.iter().find(|(known, of, _)| *known == name && *of == args);
        if let Some((_, _, made)) = known {
            return Typed::new(ty, *made);
        }
        let made = self.kernel.new_value(ty.clone(), None);
        self.needed.insert(name.clone());
        self.steps.push((name.clone(), args.clone(), made));
        args.push(Typed::new(Type::I32, self.mask.clone()));
        let args: Vec<_> = args.into_iter().map(|arg| (arg.ty, arg.op)).collect();
        let op = call_of(ty.clone(), &name, &args);
        self.out.push(Inst { result: Some(made), op, metadata: inst.metadata.clone() });
        Typed::new(ty, made)
    }
}
