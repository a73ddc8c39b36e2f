//! Dispatch on opcodes, and instructions that neither access memory nor call.

use super::{ParseError, Parser, Result, flags};
use crate::lexer::Kind;
use crate::model::{BinaryOp, CastOp, FloatPredicate, IntPredicate, Op, Operand, Type, Typed};

/// Instructions that are rejected by name.
const UNSUPPORTED: &[&str] = &[
    "invoke",
    "callbr",
    "indirectbr",
    "resume",
    "catchswitch",
    "catchret",
    "catchpad",
    "cleanupret",
    "cleanuppad",
    "landingpad",
    "va_arg",
];

impl Parser<'_> {
    /// The instruction behind its opcode; `None` for a call that is a debug record.
    pub(super) fn instruction(&mut self, opcode: &str, line: u32) -> Result<Option<Op>> {
        if let Some(op) = BinaryOp::parse(opcode) {
            return self.binary(op).map(Some);
        }
        if let Some(op) = CastOp::parse(opcode) {
            let flags = self.flags(flags::of_cast(op));
            let from = self.typed()?;
            self.expect_word("to")?;
            return Ok(Some(Op::Cast { op, flags, from, to: self.ty()? }));
        }
        let op = match opcode {
            "call" | "tail" | "musttail" | "notail" => return self.call(opcode),
            "fneg" => {
                let flags = self.flags(flags::FAST_MATH);
                let value = self.typed()?;
                Op::FNeg { flags, ty: value.ty, a: value.op }
            }
            "icmp" => self.icmp()?,
            "fcmp" => self.fcmp()?,
            "select" => {
                let flags = self.flags(flags::FAST_MATH);
                let (cond, a, b) = self.three()?;
                Op::Select { flags, cond, a, b }
            }
            "phi" => self.phi()?,
            "freeze" => Op::Freeze(self.typed()?),
            "alloca" => self.alloca()?,
            "load" => self.load()?,
            "store" => self.store()?,
            "getelementptr" => self.gep()?,
            "atomicrmw" => self.atomic_rmw()?,
            "cmpxchg" => self.cmpxchg()?,
            "fence" => Op::Fence(self.atomic()?),
            "extractvalue" => Op::ExtractValue { agg: self.typed()?, path: self.path()? },
            "insertvalue" => {
                let (agg, value) = self.two()?;
                Op::InsertValue { agg, value, path: self.path()? }
            }
            "extractelement" => {
                let (vector, index) = self.two()?;
                Op::ExtractElement { vector, index }
            }
            "insertelement" => {
                let (vector, value, index) = self.three()?;
                Op::InsertElement { vector, value, index }
            }
            "shufflevector" => {
                let (a, b, mask) = self.three()?;
                Op::ShuffleVector { a, b, mask }
            }
            other if UNSUPPORTED.contains(&other) => {
                return Err(ParseError::new(line, format!("unsupported instruction `{other}`")));
            }
            other => return Err(ParseError::new(line, format!("unknown instruction `{other}`"))),
        };
        Ok(Some(op))
    }

    /// `T v`, with a value or constant.
    pub(super) fn typed(&mut self) -> Result<Typed> {
        let ty = self.ty()?;
        if matches!(ty, Type::Void | Type::Metadata) {
            return self.error_behind(format!("an operand of type `{ty}`"));
        }
        let op = self.operand(&ty)?;
        Ok(Typed { ty, op })
    }

    pub(super) fn operand(&mut self, ty: &Type) -> Result<Operand> {
        if self.peek().kind != Kind::Local {
            return Ok(Operand::Const(self.constant(ty)?));
        }
        let line = self.line();
        let name = self.local_name()?;
        Ok(Operand::Value(self.scope.use_value(name, ty, line)?))
    }

    pub(super) fn two(&mut self) -> Result<(Typed, Typed)> {
        let a = self.typed()?;
        self.expect(b',')?;
        Ok((a, self.typed()?))
    }

    pub(super) fn three(&mut self) -> Result<(Typed, Typed, Typed)> {
        let (a, b) = self.two()?;
        self.expect(b',')?;
        Ok((a, b, self.typed()?))
    }

    /// `T a, b`.
    fn pair(&mut self) -> Result<(Type, Operand, Operand)> {
        let a = self.typed()?;
        self.expect(b',')?;
        let b = self.operand(&a.ty)?;
        Ok((a.ty, a.op, b))
    }

    fn binary(&mut self, op: BinaryOp) -> Result<Op> {
        let flags = self.flags(flags::of_binary(op));
        let (ty, a, b) = self.pair()?;
        Ok(Op::Binary { op, flags, ty, a, b })
    }

    fn icmp(&mut self) -> Result<Op> {
        let flags = self.flags(&["samesign"]);
        let Some(pred) = IntPredicate::parse(self.text()) else {
            return self.error(format!("unknown predicate {} of `icmp`", self.found()));
        };
        self.advance();
        let (ty, a, b) = self.pair()?;
        Ok(Op::ICmp { flags, pred, ty, a, b })
    }

    fn fcmp(&mut self) -> Result<Op> {
        let flags = self.flags(flags::FAST_MATH);
        let Some(pred) = FloatPredicate::parse(self.text()) else {
            return self.error(format!("unknown predicate {} of `fcmp`", self.found()));
        };
        self.advance();
        let (ty, a, b) = self.pair()?;
        Ok(Op::FCmp { flags, pred, ty, a, b })
    }

    fn phi(&mut self) -> Result<Op> {
        let flags = self.flags(flags::FAST_MATH);
        let ty = self.ty()?;
        let mut incoming = Vec::new();
        while incoming.is_empty() || (self.is_punct(b',') && self.peek_at(1).kind == Kind::Punct(b'[')) {
            if !incoming.is_empty() {
                self.advance();
            }
            self.expect(b'[')?;
            let value = self.operand(&ty)?;
            self.expect(b',')?;
            incoming.push((value, self.block_name_use()?));
            self.expect(b']')?;
        }
        Ok(Op::Phi { flags, ty, incoming })
    }

    /// `, 1, 2`: the indices of an aggregate.
    fn path(&mut self) -> Result<Vec<u32>> {
        let mut path = Vec::new();
        while self.is_punct(b',') && self.peek_at(1).kind == Kind::Int {
            self.advance();
            path.push(self.number("an index")?);
        }
        match path.is_empty() {
            true => self.expected("`,` and an index"),
            false => Ok(path),
        }
    }
}
