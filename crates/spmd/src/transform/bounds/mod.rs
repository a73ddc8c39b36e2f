//! Bounds checks: guards every access of a kernel that could be out of bounds.
//!
//! An out-of-bounds read returns zero, an out-of-bounds write is dropped, and the first such access of a launch is recorded in
//! its [`FaultRecord`]; the kernel continues. The pass is the first one on the per-thread entry. Each access becomes a branch
//! around it, on a comparison of the pointer with its root's bounds (`alias_roots`). If a pointer may have several roots, its
//! base, size and root are computed beside it (`shadows`). Accesses that are provably in bounds get no check, and provably
//! aligned pointers no alignment check. A null pointer has empty bounds.
//!
//! The code is made free of undefined behavior first ([`freeze`](mod@freeze)), so that the checks hold for every input.
//!
//! The bounds of a pointer loaded from memory, or of a parameter of a function that is not inlined, are unknown: kernels with
//! such accesses are rejected.

mod access;
pub(crate) mod freeze;
mod reach;
mod shadows;

pub use crate::analysis::alias_roots::{Given, Root, RootKind};
pub(crate) use crate::analysis::alias_roots::{Roots, Source};
pub(crate) use reach::all_of;
pub use reach::{Reach, reach};

use std::collections::HashMap;

use elinvar_ir::{
    BinaryOp, BlockId, Call, CallArg, Callee, CastOp, Const, Function, Inst, IntPredicate, Location, Module,
    Op, Operand, Term, Type, ValueId,
};

use crate::analysis::alignment::Alignments;
use crate::intrinsic::Position;
use crate::support::builder::{Builder, i32_const, i64_const};
use crate::support::ir::{rename_incoming, threadgroup_globals};
use crate::{ENTRY, Error};
use access::{Access, accesses, constant_geps, is_certain};
use shadows::Shadows;

/// The function that compiled code calls to record a fault.
pub(crate) const RECORD: &str = "elinvar_record_fault";

/// Record of the first out-of-bounds access, written by compiled code. All zero before the launch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRecord {
    /// 1 after a fault.
    pub taken: u32,
    /// Index into [`Checks::sites`].
    pub site: u32,
    /// Index into [`Checks::roots`].
    pub root: u32,
    /// Position of the thread in the grid.
    pub thread: [u32; 3],
    /// Offset from the root's start in bytes; may be negative.
    pub offset: i64,
    /// Size of the root in bytes.
    pub size: u64,
}

/// Tables for the indices in a [`FaultRecord`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Checks {
    /// The checked accesses.
    pub sites: Vec<Site>,
    /// The memory objects of the kernel.
    pub roots: Vec<Root>,
}

/// A checked access.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Site {
    /// Whether it writes.
    pub writes: bool,
    /// Number of bytes; 0 if it is known at run time only.
    pub bytes: u64,
    /// Location in the user's source.
    pub location: Option<Location>,
}

/// Inserts bounds checks into the entry of `module`, and freezes the module. `given` has the guarantees for each argument.
///
/// # Errors
/// `Unsupported` for an access with unknown bounds, with its line.
pub(crate) fn insert(module: &mut Module, given: &[Given]) -> Result<Checks, Error> {
    let index = module.functions.iter().position(|f| f.name == ENTRY && !f.is_declaration());
    let index = index.ok_or_else(|| Error::Malformed(format!("there is no function `{ENTRY}`")))?;
    let entry = module.functions[index].clone();
    let roots = Roots::new(module, &entry, given, &threadgroup_globals(module));
    let mut pass = Pass::new(module, entry, roots);
    pass.run()?;
    let Pass { function, sites, roots, .. } = pass;
    module.functions[index] = function;
    module.functions.push(record_function());
    Ok(Checks { sites, roots: roots.list })
}

struct Pass<'m> {
    module: &'m Module,
    function: Function,
    roots: Roots,
    shadows: Shadows,
    geps: HashMap<ValueId, Op>,
    alignments: Alignments,
    record: ValueId,
    sites: Vec<Site>,
}

impl<'m> Pass<'m> {
    fn new(module: &'m Module, mut function: Function, roots: Roots) -> Self {
        let mut first = Vec::new();
        let record = function.new_value(Type::PTR, None);
        first.push(ask(Position::FaultRecord, Type::PTR, None, record));
        let mut sizes = HashMap::new();
        for index in 0..function.params.len() {
            let size = function.new_value(Type::I64, None);
            first.push(ask(Position::ArgumentBytes, Type::I64, Some(index as u32), size));
            sizes.insert(index, size);
        }
        let entry = &mut function.blocks[0].insts;
        entry.splice(0..0, first);
        let shadows = Shadows::new(&mut function, &roots, &sizes);
        let geps = constant_geps(&function);
        let alignments = Alignments::new(module, &function, &roots);
        Self { module, function, roots, shadows, geps, alignments, record, sites: Vec::new() }
    }

    fn run(&mut self) -> Result<(), Error> {
        for index in 0..self.function.blocks.len() {
            self.block(BlockId(index as u32))?;
        }
        Ok(())
    }

    fn block(&mut self, start: BlockId) -> Result<(), Error> {
        let block = self.function.block_mut(start);
        let insts = std::mem::take(&mut block.insts);
        let term = std::mem::replace(&mut block.term, Term::Unreachable);
        let metadata = std::mem::take(&mut block.term_metadata);
        let mut at = start;
        for inst in insts {
            let location = self.module.location(&inst.metadata);
            let mut checks = Vec::new();
            for access in accesses(self.module, &inst.op, location.clone())? {
                if let Some(check) = self.needed(access, &location)? {
                    checks.push(check);
                }
            }
            at = match checks.is_empty() {
                true => {
                    self.function.block_mut(at).insts.push(inst);
                    at
                }
                false => self.guarded(at, inst, &checks, location),
            };
        }
        if at != start {
            rename_incoming(&mut self.function, &term, start, at);
        }
        let block = self.function.block_mut(at);
        block.term = term;
        block.term_metadata = metadata;
        Ok(())
    }

    /// An access with its pointer's bounds, unless it is provably within them.
    fn needed(&self, access: Access, location: &Option<Location>) -> Result<Option<Check>, Error> {
        let known = self.alignments.of(self.module, &self.roots, &access.pointer);
        let aligned = known >= access.align;
        self.expect_writable(&access, location)?;
        if aligned && is_certain(self.module, &self.geps, &self.roots, &access) {
            return Ok(None);
        }
        let shadow = match self.roots.source(&access.pointer) {
            Source::One(root) => self.shadows.of_root(root),
            Source::Mixed => self.shadows.of_value(&access.pointer),
            Source::None => self.shadows.of_root(self.roots.null),
            Source::Unknown(made) => return Err(unknown_bounds(made.or_else(|| location.clone()))),
        };
        let shadow = shadow.ok_or_else(|| Error::Malformed("a pointer without bounds".into()))?;
        let align = if aligned { 1 } else { access.align };
        Ok(Some(Check { access, shadow, align }))
    }

    /// Rejects writes to constant tables, which are in read-only memory.
    fn expect_writable(&self, access: &Access, location: &Option<Location>) -> Result<(), Error> {
        let roots = reach::all_of(&self.function, &self.roots, &access.pointer);
        let is_constant = |name: &String| self.module.global(name).is_none_or(|global| global.constant);
        let table = |root: &&Root| matches!(&root.kind, RootKind::Constant(name) if is_constant(name));
        match roots.into_iter().find(table).filter(|_| access.writes) {
            Some(_) => Err(Error::unsupported("a write to a constant array", location.clone())),
            None => Ok(()),
        }
    }

    /// Appends `inst` behind its checks; returns the block in which the code continues.
    fn guarded(
        &mut self,
        at: BlockId,
        mut inst: Inst,
        checks: &[Check],
        location: Option<Location>,
    ) -> BlockId {
        let (good, go_on) = (self.function.new_block(None), self.function.new_block(None));
        let mut bad_blocks = Vec::new();
        let mut from = at;
        for (number, check) in checks.iter().enumerate() {
            let bad = self.function.new_block(None);
            let next = if number + 1 == checks.len() { good } else { self.function.new_block(None) };
            let Access { writes, bytes, .. } = &check.access;
            let bytes = match bytes {
                Operand::Const(bytes) => {
                    bytes.as_unsigned(64).and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
                }
                Operand::Value(_) => 0,
            };
            self.sites.push(Site { writes: *writes, bytes, location: location.clone() });
            let site = self.sites.len() as u32 - 1;
            let offset = self.compare(from, check, next, bad);
            self.report(bad, site, check, offset, go_on);
            bad_blocks.push(bad);
            from = next;
        }
        let result = inst.result;
        let checked = result.map(|r| {
            let ty = self.function.ty(r).clone();
            (r, self.function.new_value(ty.clone(), None), ty)
        });
        inst.result = checked.as_ref().map(|(_, inner, _)| *inner);
        let metadata = inst.metadata.clone();
        let instead = access::instead(&inst.op);
        let good_block = self.function.block_mut(good);
        good_block.insts.push(inst);
        good_block.term = Term::Br(go_on);
        if let Some((outer, inner, ty)) = checked {
            let mut incoming = vec![(Operand::Value(inner), good)];
            incoming.extend(bad_blocks.iter().map(|bad| (Operand::Const(instead.clone()), *bad)));
            let op = Op::Phi { flags: String::new(), ty, incoming };
            self.function.block_mut(go_on).insts.push(Inst { result: Some(outer), op, metadata });
        }
        go_on
    }

    /// Terminates `from` with the comparison; returns the offset of the access from its root's start.
    fn compare(&mut self, from: BlockId, check: &Check, good: BlockId, bad: BlockId) -> ValueId {
        let mut b = Builder::new(&mut self.function, from);
        let pointer = b.cast(CastOp::PtrToInt, Type::PTR, check.access.pointer.clone(), Type::I64);
        let base = b.cast(CastOp::PtrToInt, Type::PTR, check.shadow.base.clone(), Type::I64);
        let offset = b.binary(BinaryOp::Sub, "", &Type::I64, pointer, base);
        let bytes = check.access.bytes.clone();
        let fits = b.icmp(IntPredicate::Uge, &Type::I64, check.shadow.size.clone(), bytes.clone());
        let room = b.binary(BinaryOp::Sub, "", &Type::I64, check.shadow.size.clone(), bytes);
        let within = b.icmp(IntPredicate::Ule, &Type::I64, offset, room);
        let mut fine = b.binary(BinaryOp::And, "", &Type::I1, fits, within);
        if check.align > 1 {
            let low = b.binary(BinaryOp::And, "", &Type::I64, pointer, i64_const(check.align - 1));
            let aligned = b.icmp(IntPredicate::Eq, &Type::I64, low, i64_const(0));
            fine = b.binary(BinaryOp::And, "", &Type::I1, fine, aligned);
        }
        b.cond_br(fine, good, bad);
        offset
    }

    /// Fills `bad`: records the fault and continues.
    fn report(&mut self, bad: BlockId, site: u32, check: &Check, offset: ValueId, go_on: BlockId) {
        let mut args = vec![
            arg(Type::PTR, self.record.into()),
            arg(Type::I32, i32_const(site).into()),
            arg(Type::I32, check.shadow.root.clone()),
        ];
        for dim in 0..3 {
            let asked = [Position::Thread, Position::Group, Position::FullGroupSize];
            let [thread, group, size] = asked.map(|position| {
                let value = self.function.new_value(Type::I32, None);
                self.function.block_mut(bad).insts.push(ask(position, Type::I32, Some(dim), value));
                value
            });
            let mut b = Builder::new(&mut self.function, bad);
            let first = b.binary(BinaryOp::Mul, "", &Type::I32, group, size);
            args.push(arg(Type::I32, b.binary(BinaryOp::Add, "", &Type::I32, first, thread).into()));
        }
        args.push(arg(Type::I64, offset.into()));
        args.push(arg(Type::I64, check.shadow.size.clone()));
        let block = self.function.block_mut(bad);
        block.insts.push(Inst { result: None, op: call(RECORD, Type::Void, args), metadata: Vec::new() });
        block.term = Term::Br(go_on);
    }
}

fn unknown_bounds(location: Option<Location>) -> Error {
    Error::unsupported("bounds checks for a pointer that does not come from an argument directly", location)
}

/// An access that needs a check.
struct Check {
    access: Access,
    shadow: shadows::Shadow,
    /// Alignment to check at run time; 1 if it is provable.
    align: u64,
}

fn arg(ty: Type, op: Operand) -> CallArg {
    CallArg { ty, attrs: String::new(), op }
}

fn call(name: &str, ret: Type, args: Vec<CallArg>) -> Op {
    Op::Call(Call {
        tail: String::new(),
        flags: String::new(),
        ret_attrs: String::new(),
        ret,
        variadic: None,
        callee: Callee::Function(name.into()),
        args,
        attrs: String::new(),
        bundles: Vec::new(),
    })
}

/// A call of a position intrinsic.
fn ask(position: Position, ret: Type, number: Option<u32>, result: ValueId) -> Inst {
    let args = number.map(|n| arg(Type::I32, i32_const(n).into())).into_iter().collect();
    Inst { result: Some(result), op: call(&position.function(), ret, args), metadata: Vec::new() }
}

/// `record(ptr, site, root, x, y, z, offset, size)`: the first call of a launch fills the record.
fn record_function() -> Function {
    let mut f = Function::new(RECORD, Type::Void);
    f.linkage = "internal".into();
    f.suffix = "noinline cold nounwind".into();
    let record = f.add_param(Type::PTR, "", Some("record"));
    let words: Vec<ValueId> = (0..5).map(|_| f.add_param(Type::I32, "", None)).collect();
    let longs: Vec<ValueId> = (0..2).map(|_| f.add_param(Type::I64, "", None)).collect();
    let [entry, fill, done] = [(); 3].map(|()| f.new_block(None));
    let mut b = Builder::new(&mut f, entry);
    let exchange = Op::AtomicRmw {
        op: elinvar_ir::RmwOp::Xchg,
        ptr: elinvar_ir::Typed::new(Type::PTR, record),
        value: elinvar_ir::Typed::new(Type::I32, i32_const(1)),
        align: Some(4),
        volatile: false,
        atomic: elinvar_ir::Atomic { ordering: elinvar_ir::Ordering::Monotonic, scope: None },
    };
    let before = b.value(Type::I32, None, exchange);
    let first = b.icmp(IntPredicate::Eq, &Type::I32, before, Const::int(32, 0));
    b.cond_br(first, fill, done);
    b.at = fill;
    for (index, word) in words.into_iter().enumerate() {
        let place = b.gep(Type::I32, record, i64_const(index as u64 + 1));
        b.store(Type::I32, word, place);
    }
    for (index, long) in longs.into_iter().enumerate() {
        let place = b.gep(Type::I64, record, i64_const(index as u64 + 3));
        b.store(Type::I64, long, place);
    }
    b.br(done);
    b.at = done;
    b.end(Term::Ret(None));
    f
}
