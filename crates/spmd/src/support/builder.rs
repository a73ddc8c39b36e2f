//! [`Builder`]: appends instructions to a block of a function.

use elinvar_ir::{
    Attachments, BinaryOp, BlockId, Call, CallArg, Callee, Const, Function, Inst, IntPredicate, Op, Operand,
    Term, Type, Typed, ValueId,
};

/// An insertion point at the end of a block.
pub(crate) struct Builder<'f> {
    pub f: &'f mut Function,
    pub at: BlockId,
    /// The debug location of instructions that have no attachments.
    pub location: Attachments,
}

impl<'f> Builder<'f> {
    pub fn new(f: &'f mut Function, at: BlockId) -> Self {
        Self { f, at, location: Attachments::new() }
    }

    /// Appends an instruction with a result.
    pub fn value(&mut self, ty: Type, name: Option<&str>, op: Op) -> ValueId {
        let result = self.f.new_value(ty, name);
        self.push(Inst { result: Some(result), op, metadata: Vec::new() });
        result
    }

    /// Appends an instruction without a result.
    pub fn effect(&mut self, op: Op) {
        self.push(Inst { result: None, op, metadata: Vec::new() });
    }

    pub fn push(&mut self, mut inst: Inst) {
        if inst.metadata.is_empty() {
            inst.metadata.clone_from(&self.location);
        }
        self.f.block_mut(self.at).insts.push(inst);
    }

    pub fn end(&mut self, term: Term) {
        self.f.block_mut(self.at).term = term;
    }

    pub fn br(&mut self, to: BlockId) {
        self.end(Term::Br(to));
    }

    pub fn cond_br(&mut self, cond: impl Into<Operand>, then: BlockId, other: BlockId) {
        self.end(Term::CondBr { cond: cond.into(), then, other });
    }

    pub fn alloca(&mut self, ty: Type, align: u64, name: &str) -> ValueId {
        let op = Op::Alloca { ty, count: None, align: Some(align), addrspace: 0 };
        self.value(Type::PTR, Some(name), op)
    }

    pub fn load(&mut self, ty: Type, ptr: impl Into<Operand>, name: Option<&str>) -> ValueId {
        let ptr = Typed::new(Type::PTR, ptr);
        let op = Op::Load { ty: ty.clone(), ptr, align: None, volatile: false, atomic: None };
        self.value(ty, name, op)
    }

    pub fn store(&mut self, ty: Type, value: impl Into<Operand>, ptr: impl Into<Operand>) {
        let (value, ptr) = (Typed::new(ty, value), Typed::new(Type::PTR, ptr));
        self.effect(Op::Store { value, ptr, align: None, volatile: false, atomic: None });
    }

    pub fn load_aligned(&mut self, ty: Type, ptr: impl Into<Operand>, align: u64) -> ValueId {
        let ptr = Typed::new(Type::PTR, ptr);
        let op = Op::Load { ty: ty.clone(), ptr, align: Some(align), volatile: false, atomic: None };
        self.value(ty, None, op)
    }

    pub fn store_aligned(
        &mut self,
        ty: Type,
        value: impl Into<Operand>,
        ptr: impl Into<Operand>,
        align: u64,
    ) {
        let (value, ptr) = (Typed::new(ty, value), Typed::new(Type::PTR, ptr));
        self.effect(Op::Store { value, ptr, align: Some(align), volatile: false, atomic: None });
    }

    /// `base` plus `index` elements of `element`; the index is an i64.
    pub fn gep(&mut self, element: Type, base: impl Into<Operand>, index: impl Into<Operand>) -> ValueId {
        let op = Op::Gep {
            flags: String::new(),
            source: element,
            base: Typed::new(Type::PTR, base),
            indices: vec![Typed::new(Type::I64, index)],
        };
        self.value(Type::PTR, None, op)
    }

    pub fn binary(
        &mut self,
        op: BinaryOp,
        flags: &str,
        ty: &Type,
        a: impl Into<Operand>,
        b: impl Into<Operand>,
    ) -> ValueId {
        let op = Op::Binary { op, flags: flags.into(), ty: ty.clone(), a: a.into(), b: b.into() };
        self.value(ty.clone(), None, op)
    }

    pub fn icmp(
        &mut self,
        pred: IntPredicate,
        ty: &Type,
        a: impl Into<Operand>,
        b: impl Into<Operand>,
    ) -> ValueId {
        let op = Op::ICmp { flags: String::new(), pred, ty: ty.clone(), a: a.into(), b: b.into() };
        self.value(Type::I1, None, op)
    }

    pub fn select(
        &mut self,
        ty: &Type,
        cond: impl Into<Operand>,
        a: impl Into<Operand>,
        b: impl Into<Operand>,
    ) -> ValueId {
        let op = Op::Select {
            flags: String::new(),
            cond: Typed::new(Type::I1, cond),
            a: Typed::new(ty.clone(), a),
            b: Typed::new(ty.clone(), b),
        };
        self.value(ty.clone(), None, op)
    }

    /// Appends a call of a function by name.
    pub fn call(&mut self, ret: Type, name: &str, args: &[(Type, Operand)]) -> ValueId {
        let op = call(ret.clone(), name, args);
        self.value(ret, None, op)
    }

    pub fn cast(
        &mut self,
        op: elinvar_ir::CastOp,
        from: Type,
        value: impl Into<Operand>,
        to: Type,
    ) -> ValueId {
        let op = Op::Cast { op, flags: String::new(), from: Typed::new(from, value), to: to.clone() };
        self.value(to, None, op)
    }
}

/// An induction variable whose next value is not yet set.
pub(crate) struct Counter {
    /// The loop's header.
    pub at: BlockId,
    pub value: ValueId,
    first: (Operand, BlockId),
    ty: Type,
}

impl Counter {
    /// Creates a variable with this value on the edge from a block.
    pub fn new(
        f: &mut Function,
        at: BlockId,
        name: &str,
        ty: Type,
        (first, from): (impl Into<Operand>, BlockId),
    ) -> Self {
        let value = f.new_value(ty.clone(), Some(name));
        Self { at, value, first: (first.into(), from), ty }
    }

    /// Sets the next value, on the back edge from a block.
    pub fn end(self, f: &mut Function, next: impl Into<Operand>, from: BlockId) {
        let incoming = vec![self.first, (next.into(), from)];
        let op = Op::Phi { flags: String::new(), ty: self.ty, incoming };
        let phi = Inst { result: Some(self.value), op, metadata: Vec::new() };
        f.block_mut(self.at).insts.insert(0, phi);
    }

    /// Increments an i32 variable on the back edge from `b`'s block; returns whether the new value is below `end`.
    pub fn count(self, b: &mut Builder<'_>, flags: &str, end: impl Into<Operand>) -> ValueId {
        let next = b.binary(BinaryOp::Add, flags, &Type::I32, self.value, i32_const(1));
        let more = b.icmp(IntPredicate::Ult, &Type::I32, next, end);
        let from = b.at;
        self.end(b.f, next, from);
        more
    }
}

/// A call of a function by name.
pub(crate) fn call(ret: Type, name: &str, args: &[(Type, Operand)]) -> Op {
    let args = args.iter().map(|(ty, op)| CallArg { ty: ty.clone(), attrs: String::new(), op: op.clone() });
    Op::Call(Call {
        tail: String::new(),
        flags: String::new(),
        ret_attrs: String::new(),
        ret,
        variadic: None,
        callee: Callee::Function(name.to_owned()),
        args: args.collect(),
        attrs: String::new(),
        bundles: Vec::new(),
    })
}

/// A 32-bit constant.
pub(crate) fn i32_const(value: u32) -> Const {
    Const::int(32, i128::from(value))
}

/// A 64-bit constant.
pub(crate) fn i64_const(value: u64) -> Const {
    Const::int(64, i128::from(value))
}
