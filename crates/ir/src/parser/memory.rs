//! Memory instructions.

use super::{Parser, Result};
use crate::lexer::Kind;
use crate::model::{Atomic, Op, Ordering, RmwOp};

impl Parser<'_> {
    /// `, align n`, if it follows.
    fn alignment(&mut self) -> Result<Option<u64>> {
        if !(self.is_punct(b',') && self.text_at(1) == "align") {
            return Ok(None);
        }
        self.advance();
        self.advance();
        let align: u64 = self.number("an alignment")?;
        match align.is_power_of_two() {
            true => Ok(Some(align)),
            false => self.error_behind(format!("alignment {align} is not a power of two")),
        }
    }

    /// `syncscope("…") ordering`.
    pub(super) fn atomic(&mut self) -> Result<Atomic> {
        let mut scope = None;
        if self.eat_word("syncscope") {
            self.expect(b'(')?;
            scope = Some(self.string("the name of a scope")?);
            self.expect(b')')?;
        }
        Ok(Atomic { ordering: self.ordering()?, scope })
    }

    fn ordering(&mut self) -> Result<Ordering> {
        let Some(ordering) = Ordering::parse(self.text()) else { return self.expected("a memory ordering") };
        self.advance();
        Ok(ordering)
    }

    pub(super) fn alloca(&mut self) -> Result<Op> {
        if self.is_word("inalloca") || self.is_word("swifterror") {
            return self.error(format!("unsupported `{}` alloca", self.text()));
        }
        let ty = self.ty()?;
        let mut count = None;
        if self.is_punct(b',') && self.peek_at(1).kind == Kind::Word && !is_property(self.text_at(1)) {
            self.advance();
            count = Some(self.typed()?);
        }
        let align = self.alignment()?;
        let mut addrspace = 0;
        if self.is_punct(b',') && self.text_at(1) == "addrspace" {
            self.advance();
            addrspace = self.address_space()?;
        }
        Ok(Op::Alloca { ty, count, align, addrspace })
    }

    pub(super) fn load(&mut self) -> Result<Op> {
        let is_atomic = self.eat_word("atomic");
        let volatile = self.eat_word("volatile");
        let ty = self.ty()?;
        self.expect(b',')?;
        let ptr = self.typed()?;
        let atomic = if is_atomic { Some(self.atomic()?) } else { None };
        Ok(Op::Load { ty, ptr, align: self.alignment()?, volatile, atomic })
    }

    pub(super) fn store(&mut self) -> Result<Op> {
        let is_atomic = self.eat_word("atomic");
        let volatile = self.eat_word("volatile");
        let (value, ptr) = self.two()?;
        let atomic = if is_atomic { Some(self.atomic()?) } else { None };
        Ok(Op::Store { value, ptr, align: self.alignment()?, volatile, atomic })
    }

    pub(super) fn gep(&mut self) -> Result<Op> {
        let flags = self.gep_flags(false)?;
        let source = self.ty()?;
        self.expect(b',')?;
        let base = self.typed()?;
        let mut indices = Vec::new();
        while self.is_punct(b',') && self.peek_at(1).kind != Kind::Metadata {
            self.advance();
            indices.push(self.typed()?);
        }
        Ok(Op::Gep { flags, source, base, indices })
    }

    pub(super) fn atomic_rmw(&mut self) -> Result<Op> {
        let volatile = self.eat_word("volatile");
        let Some(op) = RmwOp::parse(self.text()) else {
            return self.error(format!("unknown operation {} of `atomicrmw`", self.found()));
        };
        self.advance();
        let (ptr, value) = self.two()?;
        let atomic = self.atomic()?;
        Ok(Op::AtomicRmw { op, ptr, value, align: self.alignment()?, volatile, atomic })
    }

    pub(super) fn cmpxchg(&mut self) -> Result<Op> {
        let weak = self.eat_word("weak");
        let volatile = self.eat_word("volatile");
        let (ptr, expected, new) = self.three()?;
        let success = self.atomic()?;
        let failure = self.ordering()?;
        Ok(Op::CmpXchg { weak, ptr, expected, new, align: self.alignment()?, volatile, success, failure })
    }
}

fn is_property(word: &str) -> bool {
    word == "align" || word == "addrspace"
}
