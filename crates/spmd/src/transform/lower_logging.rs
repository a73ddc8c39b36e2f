//! Lowers log calls to calls of a function of the module that writes a record to the device's log ring.
//!
//! The ring is that of `elinvar_driver::log::ring`, which describes it. The function is not inlined and reads and writes only the ring, so
//! it runs once for each active thread of a vector, in their order. The pass runs after bounds checks, which would reject the function: its
//! memory belongs to no argument.

use std::collections::BTreeSet;

use elinvar_ir::{
    Atomic, BinaryOp, Function, Inst, IntPredicate, Module, Op, Operand, Ordering, RmwOp, Term, Type, Typed,
    ValueId,
};

use crate::intrinsic::Position;
use crate::logging::{self, FIXED, LogCall};
use crate::support::builder::{Builder, call, i64_const};
use crate::{ENTRY, Error, Target};

/// Prefix of the functions' names; the number of values follows.
const WRITE: &str = "elinvar_log_";

/// Byte offsets in the control block.
const HEAD: u64 = 64;
const ADDRESS: u64 = 128;
const MASK: u64 = 136;
/// Byte offset of the number of lost records in the ring's memory, and of its slots.
const LOST: u64 = 64;
const SLOTS: u64 = 128;
/// Bytes of a slot, values in a record's first slot, and in each further one.
const SLOT: u64 = 64;
const FIRST: usize = 5;
const FURTHER: usize = 7;

/// Whether a module has log calls.
pub(crate) fn is_needed(module: &Module) -> bool {
    let insts = module.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts);
    insts.into_iter().any(|inst| matches!(&inst.op, Op::Call(call) if logging::is_log(call)))
}

/// Lowers the log calls of the entry. `sites` has the calls of the module as the front end emitted it, whose indices are those of
/// records.
///
/// # Errors
/// `Malformed` for a call that is not in `sites`.
pub(crate) fn lower(module: &mut Module, sites: &[LogCall], target: Target) -> Result<(), Error> {
    let index = module.functions.iter().position(|f| f.name == ENTRY && !f.is_declaration());
    let index = index.ok_or_else(|| Error::Malformed(format!("there is no function `{ENTRY}`")))?;
    let mut entry = module.functions[index].clone();
    let ring = entry.new_value(Type::PTR, None);
    let kernel = entry.new_value(Type::I32, None);
    let mut sizes = BTreeSet::new();
    for block in &mut entry.blocks {
        for inst in &mut block.insts {
            let Op::Call(log) = &inst.op else { continue };
            if !logging::is_log(log) {
                continue;
            }
            let site = LogCall::of(module, log, module.location(&inst.metadata))?;
            let site = sites.iter().position(|other| *other == site);
            let site =
                site.ok_or_else(|| Error::Malformed("a log call that the source does not have".into()))?;
            let values = log.args.len() - FIXED;
            sizes.insert(values);
            let slots = slots_of(values);
            // The tag without the kernel's number.
            let tag = i64_const((slots << 48) | (site as u64) << 32);
            let mut args: Vec<(Type, Operand)> =
                vec![(Type::PTR, ring.into()), (Type::I32, kernel.into()), (Type::I64, tag.into())];
            args.extend(log.args[FIXED - 3..].iter().map(|arg| (arg.ty.clone(), arg.op.clone())));
            inst.op = call(Type::Void, &format!("{WRITE}{values}"), &args);
        }
    }
    let ask = |position: Position, ty: &Type, value| Inst {
        result: Some(value),
        op: call(ty.clone(), &position.function(), &[]),
        metadata: Vec::new(),
    };
    let first = [ask(Position::LogRing, &Type::PTR, ring), ask(Position::LogKernel, &Type::I32, kernel)];
    entry.blocks[0].insts.splice(0..0, first);
    module.functions[index] = entry;
    module.functions.extend(sizes.into_iter().map(|values| writer(values, target)));
    Ok(())
}

/// Number of slots of a record with this number of values.
fn slots_of(values: usize) -> u64 {
    1 + values.saturating_sub(FIRST).div_ceil(FURTHER) as u64
}

/// The function that writes a record with this number of values.
fn writer(values: usize, target: Target) -> Function {
    let mut f = Function::new(format!("{WRITE}{values}"), Type::Void);
    f.linkage = "internal".into();
    f.suffix = "noinline cold nounwind".into();
    let control = f.add_param(Type::PTR, "", Some("control"));
    let kernel = f.add_param(Type::I32, "", Some("kernel"));
    let tag = f.add_param(Type::I64, "", Some("tag"));
    let position: Vec<ValueId> = (0..3).map(|_| f.add_param(Type::I32, "", None)).collect();
    let words: Vec<ValueId> = (0..values).map(|_| f.add_param(Type::I64, "", None)).collect();
    let slots = slots_of(values);
    let [entry, reserve, take_back, lose, store] = [(); 5].map(|()| f.new_block(None));
    let mut w = Writer { b: Builder::new(&mut f, entry), target };

    let ring = w.load(Type::PTR, control, ADDRESS);
    let mask = w.load(Type::I64, control, MASK);
    let capacity = w.b.binary(BinaryOp::Add, "", &Type::I64, mask, i64_const(1));
    let tail = w.load_tail(ring);
    let reserved = w.load_counter(control);
    let fits = w.fits(reserved, slots, tail, capacity);
    w.b.cond_br(fits, reserve, lose);

    w.b.at = reserve;
    let reserved = w.add(control, 0, RmwOp::Add, slots);
    let fits = w.fits(reserved, slots, tail, capacity);
    w.b.cond_br(fits, store, take_back);

    w.b.at = take_back;
    w.add(control, 0, RmwOp::Sub, slots);
    w.b.br(lose);
    w.b.at = lose;
    w.add(ring, LOST, RmwOp::Add, 1);
    w.b.end(Term::Ret(None));

    w.b.at = store;
    let at = w.add(control, HEAD, RmwOp::Add, slots);
    let places: Vec<ValueId> = (0..slots).map(|slot| w.slot(ring, at, mask, slot)).collect();
    for place in &places[1..] {
        w.store(i64_const(u64::MAX), *place, 0);
    }
    let [x, y, z] = [0, 1, 2].map(|d| w.extended(position[d]));
    let high = w.b.binary(BinaryOp::Shl, "", &Type::I64, y, i64_const(32));
    let xy = w.b.binary(BinaryOp::Or, "", &Type::I64, x, high);
    w.store(xy, places[0], 8);
    w.store(z, places[0], 16);
    for (index, word) in words.iter().enumerate() {
        let (slot, place) = match index.checked_sub(FIRST) {
            None => (0, 3 + index),
            Some(further) => (1 + further / FURTHER, 1 + further % FURTHER),
        };
        w.store(*word, places[slot], 8 * place as u64);
    }
    let kernel = w.extended(kernel);
    let tag = w.b.binary(BinaryOp::Or, "", &Type::I64, tag, kernel);
    w.publish(tag, places[0]);
    w.b.end(Term::Ret(None));
    f
}

struct Writer<'f> {
    b: Builder<'f>,
    target: Target,
}

impl Writer<'_> {
    fn place(&mut self, base: ValueId, offset: u64) -> ValueId {
        self.b.gep(Type::I8, base, i64_const(offset))
    }

    fn load(&mut self, ty: Type, base: ValueId, offset: u64) -> ValueId {
        let place = self.place(base, offset);
        self.b.load_aligned(ty, place, 8)
    }

    /// The host's position.
    fn load_tail(&mut self, ring: ValueId) -> ValueId {
        self.load_atomic(ring, Ordering::Acquire)
    }

    fn load_counter(&mut self, control: ValueId) -> ValueId {
        self.load_atomic(control, Ordering::Monotonic)
    }

    fn load_atomic(&mut self, place: ValueId, ordering: Ordering) -> ValueId {
        // On a GPU a volatile access is one of the whole system, and what follows depends on it.
        let atomic = match self.target {
            Target::Cpu => Some(Atomic { ordering, scope: None }),
            Target::Nvptx => None,
        };
        let volatile = atomic.is_none();
        let ptr = Typed::new(Type::PTR, place);
        self.b.value(Type::I64, None, Op::Load { ty: Type::I64, ptr, align: Some(8), volatile, atomic })
    }

    /// Changes a counter; returns its value before.
    fn add(&mut self, base: ValueId, offset: u64, op: RmwOp, by: u64) -> ValueId {
        let ordering = match self.target {
            Target::Cpu => Ordering::AcqRel,
            Target::Nvptx => Ordering::Monotonic,
        };
        let ptr = Typed::new(Type::PTR, self.place(base, offset));
        let value = Typed::new(Type::I64, i64_const(by));
        let atomic = Atomic { ordering, scope: None };
        self.b.value(
            Type::I64,
            None,
            Op::AtomicRmw { op, ptr, value, align: Some(8), volatile: false, atomic },
        )
    }

    /// Whether slots behind `reserved` are free.
    fn fits(&mut self, reserved: ValueId, slots: u64, tail: ValueId, capacity: ValueId) -> ValueId {
        let end = self.b.binary(BinaryOp::Add, "", &Type::I64, reserved, i64_const(slots));
        let used = self.b.binary(BinaryOp::Sub, "", &Type::I64, end, tail);
        self.b.icmp(IntPredicate::Ule, &Type::I64, used, capacity)
    }

    /// Address of a slot of the record at `at`.
    fn slot(&mut self, ring: ValueId, at: ValueId, mask: ValueId, slot: u64) -> ValueId {
        let position = self.b.binary(BinaryOp::Add, "", &Type::I64, at, i64_const(slot));
        let index = self.b.binary(BinaryOp::And, "", &Type::I64, position, mask);
        let bytes = self.b.binary(BinaryOp::Mul, "", &Type::I64, index, i64_const(SLOT));
        let offset = self.b.binary(BinaryOp::Add, "", &Type::I64, bytes, i64_const(SLOTS));
        self.b.gep(Type::I8, ring, offset)
    }

    fn store(&mut self, value: impl Into<Operand>, base: ValueId, offset: u64) {
        let place = self.place(base, offset);
        self.b.store_aligned(Type::I64, value, place, 8);
    }

    fn extended(&mut self, value: ValueId) -> ValueId {
        self.b.cast(elinvar_ir::CastOp::ZExt, Type::I32, value, Type::I64)
    }

    /// Stores the tag behind everything else.
    fn publish(&mut self, tag: ValueId, place: ValueId) {
        let (value, ptr) = (Typed::new(Type::I64, tag), Typed::new(Type::PTR, place));
        let (volatile, atomic) = match self.target {
            Target::Cpu => (false, Some(Atomic { ordering: Ordering::Release, scope: None })),
            Target::Nvptx => {
                self.b.effect(call(Type::Void, "llvm.nvvm.membar.sys", &[]));
                (true, None)
            }
        };
        self.b.effect(Op::Store { value, ptr, align: Some(8), volatile, atomic });
    }
}
