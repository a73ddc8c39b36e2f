//! Kernel entry: the kernel's parameters, and positions from the [`prologue`] in place of intrinsics.

use std::collections::HashMap;

use elinvar_ir::{BlockId, CastOp, Function, Inst, Module, Op, Operand, Term, Type, Typed, ValueId};

use super::prologue::{self, Prologue};
use super::{Argument, Options, Parameter, lane_permutation, shared_memory};
use crate::Error;
use crate::intrinsic::Position;
use crate::support::builder::Builder;
use crate::support::calls::{self, CallKind};
use crate::support::ir::rename_incoming;

/// The address space of global memory.
pub(super) const GLOBAL: u32 = 1;

/// Converts the entry to the kernel, whose block 0 is the prologue.
pub(super) fn wrap(module: &Module, kernel: &mut Function, options: &Options) -> Result<Wrapped, Error> {
    if kernel.params.len() != options.arguments.len() {
        return Err(Error::Malformed(format!(
            "the entry takes {} arguments, the signature has {}",
            kernel.params.len(),
            options.arguments.len()
        )));
    }
    let asked = take_positions(module, kernel)?;
    let body = split(kernel);
    let outside = kernel.new_block(None);
    kernel.block_mut(outside).term = Term::Ret(None);

    let given: Vec<ValueId> = std::mem::take(&mut kernel.params).iter().map(|p| p.value).collect();
    let mut parameters = Vec::new();
    for (index, (value, argument)) in given.iter().zip(&options.arguments).enumerate() {
        take_argument(kernel, *value, argument, options.checks.is_some());
        parameters.push(Parameter::Argument(index, *argument));
    }
    let mut number = |kernel: &mut Function, parameter, ty| {
        parameters.push(parameter);
        kernel.add_param(ty, "", None)
    };
    let threads = [0, 1, 2].map(|d| number(kernel, Parameter::Threads(d), Type::I32));
    let extent = number(kernel, Parameter::Extent, Type::I32);
    let linear = [0, 1].map(|d| number(kernel, Parameter::Linear(d), Type::I32));
    let mut launch =
        Launch { threads, extent, linear, record: None, bytes: Vec::new(), counter: None, log: None };
    if options.checks.is_some() {
        launch.record = Some(number(kernel, Parameter::Record, Type::Ptr(GLOBAL)));
        let bytes = |index| number(kernel, Parameter::Bytes(index), Type::I64);
        launch.bytes = (0..given.len()).map(bytes).collect();
    }
    let asks = |which| asked.iter().any(|(_, position, _)| *position == which);
    if asks(Position::GridCounter) {
        launch.counter = Some(number(kernel, Parameter::GridCounter, Type::Ptr(GLOBAL)));
    }
    if asks(Position::LogRing) {
        let ring = number(kernel, Parameter::LogRing, Type::Ptr(GLOBAL));
        launch.log = Some((ring, number(kernel, Parameter::LogKernel, Type::I32)));
    }
    let permuted = lane_permutation::suits(kernel, options.approximate);
    let Prologue { known, mask, is_permuted } = prologue::write(kernel, &launch, [body, outside], permuted);
    let names: HashMap<ValueId, Operand> =
        asked.iter().filter_map(|(value, p, d)| Some((*value, known.get(&(*p, *d))?.clone()))).collect();
    rename(kernel, &names);
    // The entry's blocks follow the prologue's.
    let term = kernel.block(body).term.clone();
    rename_incoming(kernel, &term, BlockId(0), body);
    kernel.name = options.name.clone();
    kernel.linkage = "ptx_kernel".into();
    kernel.suffix = "nounwind".into();
    let of = |position| [0, 1, 2].map(|d| known[&(position, d)].clone());
    let threads = [of(Position::Thread), of(Position::FullGroupSize)];
    Ok(Wrapped { parameters, body, mask, is_permuted, threads })
}

/// The kernel's shape.
pub(super) struct Wrapped {
    pub parameters: Vec<Parameter>,
    /// The block in which the prologue continues.
    pub body: BlockId,
    /// The mask of lanes that reach it, if the kernel has simdgroup operations.
    pub mask: Option<ValueId>,
    /// If lanes are permuted for matrix products: whether those of this simdgroup are.
    pub is_permuted: Option<Operand>,
    /// The thread's position in its threadgroup, and the full threadgroup's size.
    pub threads: [[Operand; 3]; 2],
}

/// Values of the launch's parameters.
pub(super) struct Launch {
    pub threads: [ValueId; 3],
    pub extent: ValueId,
    pub linear: [ValueId; 2],
    pub record: Option<ValueId>,
    pub bytes: Vec<ValueId>,
    /// The counter of grid barriers.
    pub counter: Option<ValueId>,
    /// The log ring's control block, and the kernel's number in log records.
    pub log: Option<(ValueId, ValueId)>,
}

/// A value and its position intrinsic.
type Asked = Vec<(ValueId, Position, usize)>;

/// Removes the calls of position intrinsics.
fn take_positions(module: &Module, kernel: &mut Function) -> Result<Asked, Error> {
    let mut asked = Vec::new();
    for block in &mut kernel.blocks {
        let mut kept = Vec::with_capacity(block.insts.len());
        for inst in std::mem::take(&mut block.insts) {
            let Op::Call(call) = &inst.op else {
                kept.push(inst);
                continue;
            };
            match (calls::classify(module, call, module.location(&inst.metadata))?, inst.result) {
                (CallKind::Dropped, _) => {}
                (CallKind::Position(position, dim), Some(value)) => asked.push((value, position, dim)),
                _ => kept.push(inst),
            }
        }
        block.insts = kept;
    }
    Ok(asked)
}

/// Moves the instructions of block 0, except allocas, to a new block.
fn split(kernel: &mut Function) -> BlockId {
    let body = kernel.new_block(None);
    let first = kernel.block_mut(BlockId(0));
    let insts = std::mem::take(&mut first.insts);
    let (own, rest) = insts.into_iter().partition(|inst| matches!(inst.op, Op::Alloca { .. }));
    first.insts = own;
    let term = std::mem::replace(&mut first.term, Term::Unreachable);
    let metadata = std::mem::take(&mut first.term_metadata);
    let block = kernel.block_mut(body);
    (block.insts, block.term, block.term_metadata) = (rest, term, metadata);
    body
}

/// Adds a kernel parameter for an argument, and defines the entry's `value` from it.
fn take_argument(kernel: &mut Function, value: ValueId, argument: &Argument, checked: bool) {
    let define = |kernel: &mut Function, op| {
        kernel.block_mut(BlockId(0)).insts.push(Inst { result: Some(value), op, metadata: Vec::new() });
    };
    let cast = |from, operand: Operand| Op::Cast {
        op: CastOp::AddrSpaceCast,
        flags: String::new(),
        from: Typed::new(from, operand),
        to: Type::PTR,
    };
    match argument {
        Argument::Pointer { constant } => {
            // Arguments may alias: a checked value is loaded once.
            let attrs = if *constant && !checked { "noalias readonly" } else { "" };
            let given = kernel.add_param(Type::Ptr(GLOBAL), attrs, None);
            define(kernel, cast(Type::Ptr(GLOBAL), given.into()));
        }
        Argument::Value { bytes, align } => {
            let attrs = format!("byval([{bytes} x i8]) align {align}");
            kernel.params.push(elinvar_ir::Param { ty: Type::PTR, attrs, value });
        }
        Argument::Threadgroup => {
            let offset = kernel.add_param(Type::I32, "", None);
            let (ty, base) = shared_memory::dynamic();
            let op = Op::Gep {
                flags: String::new(),
                source: Type::I8,
                base: Typed::new(ty.clone(), base),
                indices: vec![Typed::new(Type::I32, offset)],
            };
            let place = Builder::new(kernel, BlockId(0)).value(ty.clone(), None, op);
            define(kernel, cast(ty, place.into()));
        }
    }
}

/// Replaces values.
fn rename(function: &mut Function, names: &HashMap<ValueId, Operand>) {
    let one = |operand: &mut Operand| {
        if let Some(other) = operand.value().and_then(|value| names.get(&value)) {
            *operand = other.clone();
        }
    };
    for block in &mut function.blocks {
        block.insts.iter_mut().for_each(|inst| inst.op.map_operands(one));
        block.term.map_operands(one);
    }
}
