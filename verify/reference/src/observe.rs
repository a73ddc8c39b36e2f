//! Observation of accesses: each load, store, atomic operation and copy of the entry, in the order of execution.

use elinvar_ir::{BlockId, Call, Callee, Inst, Op, Operand, Type, Typed};

use crate::fault::Result;
use crate::machine::Machine;
use crate::memory::Place;
use crate::thread::Thread;
use crate::value::{Value, truncated};

/// An object that is accessed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// Memory of the argument with this index.
    Argument(usize),
    /// A threadgroup variable.
    Threadgroup(String),
    /// A variable at program scope.
    Constant(String),
    /// A thread's own variable.
    Private,
}

/// An access by one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Position of the threadgroup.
    pub group: [u32; 3],
    /// Index of the thread in a full threadgroup.
    pub thread: usize,
    /// The instruction's block and its index there.
    pub site: (BlockId, usize),
    /// Which of the instruction's accesses: a copy reads first, then writes.
    pub which: usize,
    /// The object.
    pub object: Object,
    /// Offset in bytes from the object's start.
    pub offset: i64,
    /// Size in bytes.
    pub bytes: u64,
}

impl Machine<'_> {
    /// Records the accesses of the next instruction of a thread, if it is the entry's.
    pub(crate) fn observe(&mut self, thread: &Thread<'_>, inst: &Inst) -> Result<()> {
        if self.accesses.is_none() || thread.frames.len() != 1 {
            return Ok(());
        }
        let frame = thread.frame()?;
        let sized = |ptr: &Typed, ty: &Type| vec![(ptr.op.clone(), ty.size_align(self.module).0)];
        let touched = match &inst.op {
            Op::Load { ty, ptr, .. } => sized(ptr, ty),
            Op::Store { value, ptr, .. } | Op::AtomicRmw { value, ptr, .. } => sized(ptr, &value.ty),
            Op::CmpXchg { new, ptr, .. } => sized(ptr, &new.ty),
            Op::Call(call) => copied(call),
            _ => Vec::new(),
        };
        for (which, (ptr, bytes)) in touched.into_iter().enumerate() {
            let address = match self.operand(frame, &Type::PTR, &ptr)? {
                Value::Bits(bits) => truncated(bits, 64) as u64,
                _ => continue,
            };
            let Some((place, offset)) = self.memory.locate(address) else { continue };
            let object = match place {
                Place::Argument(index) => Object::Argument(*index),
                Place::Threadgroup(name) => Object::Threadgroup(name.clone()),
                Place::Constant(name) => Object::Constant(name.clone()),
                Place::Private(_) => Object::Private,
                Place::Function(_) => continue,
            };
            let site = (frame.block, frame.inst);
            let group = self.sizes.group;
            let access = Access { group, thread: thread.nominal, site, which, object, offset, bytes };
            self.accesses.get_or_insert_default().push(access);
        }
        Ok(())
    }
}

/// The addresses and sizes of a copy or a fill of constant size.
fn copied(call: &Call) -> Vec<(Operand, u64)> {
    let Callee::Function(name) = &call.callee else { return Vec::new() };
    let length = match call.args.get(2).map(|arg| &arg.op) {
        Some(Operand::Const(length)) => length.as_unsigned(64).map_or(0, |length| length as u64),
        _ => return Vec::new(),
    };
    let at = |index: usize| (call.args[index].op.clone(), length);
    match name {
        _ if name.starts_with("llvm.memcpy") || name.starts_with("llvm.memmove") => vec![at(1), at(0)],
        _ if name.starts_with("llvm.memset") => vec![at(0)],
        _ => Vec::new(),
    }
}
