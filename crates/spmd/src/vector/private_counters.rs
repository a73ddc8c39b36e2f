//! Privatization of atomic counters, such as the bins of a histogram: a small buffer that a kernel only updates, by atomic operations
//! without results, gets a table in the worker's memory. Updates of the table are not atomic; when the call ends, the table's elements
//! are combined with the buffer's atomically.
//!
//! The order of relaxed operations on one location is not specified, and nothing in the kernel observes the buffer, so their results
//! may arrive late. This requires that every pointer of the kernel is known, that it has no other atomic operations on device memory
//! and no fences, and, tested at the start of a call, that the buffer has no memory in common with another argument and that the call
//! has enough threads for the table to pay off. A table without use has no bytes; addresses outside of it are updated atomically.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{
    Atomic, BinaryOp, CastOp, Const, IntPredicate, Op, Operand, Ordering, RmwOp, Type, Typed, ValueId,
};

use crate::Options;
use crate::kernel::Kernel;
use crate::support::builder::{Builder, call, i64_const};
use crate::support::constants::mentions;
use crate::vector::prologue::Prologue;

/// Size of a table in bytes; larger ones evict other data from the L1 cache.
const TABLE_BYTES: u64 = 8 << 10;
/// Maximum size of a table for each thread of a call, in bytes. Clearing and reading two elements costs less than an atomic operation.
const BYTES_PER_THREAD: u64 = 8;
/// Maximum number of buffers with tables.
const MOST: usize = 2;

/// A parameter whose memory is only updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    pub param: ValueId,
    /// The operation that combines a table's element with the buffer's. Its identity is zero.
    op: RmwOp,
    ty: Type,
}

/// The table of a parameter.
#[derive(Clone)]
pub(crate) struct Table {
    counters: Counters,
    pub address: Operand,
    /// Size in bytes, a multiple of the element's; 0 if the call does not use it.
    pub bytes: Operand,
    /// Address of the buffer, and the same as an i64.
    buffer: Operand,
    pub first: Operand,
}

/// Object that a pointer points into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Root {
    Param(ValueId),
    /// Threadgroup memory, a private array, a constant table, or no object.
    Own,
    Unknown,
}

/// The kernel's counters; none if their values could be observed.
pub(crate) fn find(kernel: &Kernel, options: &Options) -> Vec<Counters> {
    let found = kernel.callees.is_empty().then(|| Pointers::new(kernel, options).counters()).flatten();
    found.filter(|counters| counters.len() <= MOST).unwrap_or_default()
}

/// The pointers of a kernel.
struct Pointers<'a> {
    kernel: &'a Kernel,
    bases: HashMap<ValueId, &'a Operand>,
    params: HashSet<ValueId>,
    used: HashSet<ValueId>,
}

impl<'a> Pointers<'a> {
    fn new(kernel: &'a Kernel, options: &Options) -> Self {
        let (mut bases, mut used) = (HashMap::new(), HashSet::new());
        for block in &kernel.function.blocks {
            for inst in &block.insts {
                used.extend(inst.op.operands().into_iter().filter_map(Operand::value));
                if let (Op::Gep { base, .. }, Some(result)) = (&inst.op, inst.result) {
                    bases.insert(result, &base.op);
                }
            }
            used.extend(block.term.operands().into_iter().filter_map(Operand::value));
        }
        let params = device_params(kernel, options).map(|(_, param)| param).collect();
        Self { kernel, bases, params, used }
    }

    fn root(&self, pointer: &Operand) -> Root {
        let mut at = pointer;
        while let Some(base) = at.value().and_then(|value| self.bases.get(&value)) {
            at = base;
        }
        match at {
            Operand::Const(Const::Null) => Root::Own,
            Operand::Const(c) if mentions(c, &|_| true) => Root::Own,
            Operand::Value(value) if self.params.contains(value) => Root::Param(*value),
            Operand::Value(value) => {
                let is_array = self.kernel.private_arrays.iter().any(|array| array.value == *value);
                let is_param = self.kernel.function.params.iter().any(|param| param.value == *value);
                if is_array || is_param { Root::Own } else { Root::Unknown }
            }
            Operand::Const(_) => Root::Unknown,
        }
    }

    /// `None` if something could observe the counters.
    fn counters(&self) -> Option<Vec<Counters>> {
        let (mut counters, mut accessed) = (Vec::<Counters>::new(), HashSet::new());
        for inst in self.kernel.function.blocks.iter().flat_map(|block| &block.insts) {
            let pointer = match &inst.op {
                Op::Gep { .. } => continue,
                Op::Fence(_) => return None,
                Op::AtomicRmw { ptr, .. } if self.root(&ptr.op) == Root::Own => continue,
                Op::AtomicRmw { op, ptr, value, volatile, atomic, .. } => {
                    let Root::Param(param) = self.root(&ptr.op) else { return None };
                    let unused = inst.result.is_none_or(|result| !self.used.contains(&result));
                    let is_relaxed = !volatile && atomic.ordering == Ordering::Monotonic;
                    let one = Counters { param, op: combining(*op)?, ty: value.ty.clone() };
                    if !unused || !is_relaxed || !matches!(one.ty, Type::Int(32 | 64)) {
                        return None;
                    }
                    match counters.iter().find(|other| other.param == param) {
                        Some(other) if *other != one => return None,
                        Some(_) => {}
                        None => counters.push(one),
                    }
                    continue;
                }
                Op::Load { ptr, volatile, atomic, .. } | Op::Store { ptr, volatile, atomic, .. } => {
                    if (*volatile || atomic.is_some()) && self.root(&ptr.op) != Root::Own {
                        return None;
                    }
                    Some(&ptr.op)
                }
                _ => None,
            };
            // Of a load or a store, the address; otherwise each pointer.
            let operands = inst.op.operands();
            let is_pointer = |operand: &&&Operand| {
                operand.value().is_some_and(|value| self.kernel.function.ty(value).scalar().is_ptr())
            };
            for pointer in pointer.iter().chain(operands.iter().filter(is_pointer)) {
                match self.root(pointer) {
                    Root::Param(param) => drop(accessed.insert(param)),
                    Root::Own => {}
                    Root::Unknown => return None,
                }
            }
        }
        let hidden = counters.iter().all(|one| !accessed.contains(&one.param));
        (hidden && !counters.is_empty()).then_some(counters)
    }
}

/// The operation that combines partial results of this one, if its identity is zero.
fn combining(op: RmwOp) -> Option<RmwOp> {
    match op {
        RmwOp::Add | RmwOp::Sub => Some(RmwOp::Add),
        RmwOp::Or | RmwOp::Xor | RmwOp::UMax => Some(op),
        _ => None,
    }
}

/// The parameters that point to device memory, with their positions.
fn device_params(kernel: &Kernel, options: &Options) -> impl Iterator<Item = (usize, ValueId)> {
    let is_device = |(_, (_, is_threadgroup)): &(usize, (_, &bool))| !**is_threadgroup;
    let params = kernel.function.params.iter().zip(&options.threadgroup_args).enumerate();
    params.filter(is_device).map(|(index, (param, _))| (index, param.value))
}

/// Emits the tables of a call in the entry block.
pub(crate) fn begin(
    b: &mut Builder<'_>,
    kernel: &Kernel,
    options: &Options,
    prologue: &Prologue,
    counters: Vec<Counters>,
) -> HashMap<ValueId, Table> {
    if counters.is_empty() {
        return HashMap::new();
    }
    let addresses: HashMap<ValueId, &Operand> = prologue.arguments.iter().map(|(v, at)| (*v, at)).collect();
    let mut ranges = Vec::new();
    for (index, param) in device_params(kernel, options) {
        let (at, bytes) = (addresses[&param].clone(), prologue.sizes[index].clone());
        let first: Operand = b.cast(CastOp::PtrToInt, Type::PTR, at.clone(), Type::I64).into();
        let end = b.binary(BinaryOp::Add, "", &Type::I64, first.clone(), bytes.clone());
        ranges.push((param, at, bytes, first, end));
    }
    let groups = b.binary(BinaryOp::Sub, "", &Type::I64, prologue.end.clone(), prologue.begin.clone());
    // At most 1024 threads.
    let [x, y, z] = prologue.full.threads.clone();
    let plane = b.binary(BinaryOp::Mul, "nuw nsw", &Type::I32, x, y);
    let volume = b.binary(BinaryOp::Mul, "nuw nsw", &Type::I32, plane, z);
    let volume = b.cast(CastOp::ZExt, Type::I32, volume, Type::I64);
    let threads = b.binary(BinaryOp::Mul, "", &Type::I64, groups, volume);
    let most = b.binary(BinaryOp::Mul, "", &Type::I64, threads, i64_const(BYTES_PER_THREAD));
    let mut tables = HashMap::new();
    for counters in counters {
        let Some((param, buffer, bytes, first, end)) = ranges.iter().find(|r| r.0 == counters.param) else {
            continue;
        };
        let mut fits = b.icmp(IntPredicate::Ule, &Type::I64, bytes.clone(), i64_const(TABLE_BYTES));
        let pays = b.icmp(IntPredicate::Ule, &Type::I64, bytes.clone(), most);
        fits = b.binary(BinaryOp::And, "", &Type::I1, fits, pays);
        for (_, _, _, other, other_end) in ranges.iter().filter(|r| r.0 != *param) {
            let below = b.icmp(IntPredicate::Ule, &Type::I64, *end, other.clone());
            let above = b.icmp(IntPredicate::Ule, &Type::I64, *other_end, first.clone());
            let apart = b.binary(BinaryOp::Or, "", &Type::I1, below, above);
            fits = b.binary(BinaryOp::And, "", &Type::I1, fits, apart);
        }
        let bytes = b.select(&Type::I64, fits, bytes.clone(), i64_const(0));
        let whole = Const::int(64, -i128::from(size(&counters.ty)));
        let bytes: Operand = b.binary(BinaryOp::And, "", &Type::I64, bytes, whole).into();
        let address: Operand = b.alloca(Type::array(TABLE_BYTES, Type::I8), 64, "counters").into();
        let args = [
            (Type::PTR, address.clone()),
            (Type::I8, Const::int(8, 0).into()),
            (Type::I64, bytes.clone()),
            (Type::I1, Const::int(1, 0).into()),
        ];
        b.effect(call(Type::Void, "llvm.memset.p0.i64", &args));
        let table = Table { counters, address, bytes, buffer: buffer.clone(), first: first.clone() };
        tables.insert(*param, table);
    }
    tables
}

impl Table {
    /// Combines the table with the buffer, element by element. Zeros change nothing.
    pub fn flush(&self, b: &mut Builder<'_>, entry: elinvar_ir::BlockId) {
        let ty = &self.counters.ty;
        let slot = Builder::new(b.f, entry).alloca(Type::I64, 8, "flushed");
        b.store(Type::I64, i64_const(0), slot);
        let [head, body, update, next, done] = [(); 5].map(|()| b.f.new_block(None));
        b.br(head);
        b.at = head;
        let at = b.load(Type::I64, slot, None);
        let more = b.icmp(IntPredicate::Ult, &Type::I64, at, self.bytes.clone());
        b.cond_br(more, body, done);
        b.at = body;
        let from = b.gep(Type::I8, self.address.clone(), at);
        let value = b.load(ty.clone(), from, None);
        let is_changed = b.icmp(IntPredicate::Ne, ty, value, Const::Int(0.into()));
        b.cond_br(is_changed, update, next);
        b.at = update;
        let to = Typed::new(Type::PTR, b.gep(Type::I8, self.buffer.clone(), at));
        let op = Op::AtomicRmw {
            op: self.counters.op,
            ptr: to,
            value: Typed::new(ty.clone(), value),
            align: Some(size(ty)),
            volatile: false,
            atomic: Atomic { ordering: Ordering::Monotonic, scope: None },
        };
        b.value(ty.clone(), None, op);
        b.br(next);
        b.at = next;
        let after = b.binary(BinaryOp::Add, "", &Type::I64, at, i64_const(size(ty)));
        b.store(Type::I64, after, slot);
        b.br(head);
        b.at = done;
    }
}

/// Size of an element in bytes.
fn size(ty: &Type) -> u64 {
    if *ty == Type::I64 { 8 } else { 4 }
}
