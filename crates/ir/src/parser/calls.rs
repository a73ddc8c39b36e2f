//! Calls.

use super::attributes::{is_convention, join};
use super::{Parser, Result, flags};
use crate::lexer::Kind;
use crate::model::{Bundle, Call, CallArg, Callee, Const, Op, Operand, Type};

impl Parser<'_> {
    /// A call; `None` for one of `llvm.dbg.*`, whose operands are dropped unread.
    pub(super) fn call(&mut self, opcode: &str) -> Result<Option<Op>> {
        let tail = match opcode {
            "call" => "",
            tail => {
                self.expect_word("call")?;
                tail
            }
        };
        let flags = self.call_flags()?;
        let ret_attrs = self.attributes()?;
        let ret = self.ty()?;
        let variadic = self.function_type()?;
        if self.peek().kind == Kind::Global && self.text().starts_with("@llvm.dbg.") {
            self.advance();
            self.skip_group()?;
            self.attributes()?;
            return Ok(None);
        }
        let callee = self.callee()?;
        self.expect(b'(')?;
        let args = self.list(b')', |p| p.argument())?;
        let attrs = self.attributes()?;
        let bundles = self.bundles()?;
        let tail = tail.to_owned();
        Ok(Some(Op::Call(Call { tail, flags, ret_attrs, ret, variadic, callee, args, attrs, bundles })))
    }

    /// Fast-math flags, then the calling convention.
    fn call_flags(&mut self) -> Result<String> {
        let mut text = self.flags(flags::FAST_MATH);
        let start = self.at;
        if self.eat_word("cc") {
            self.number::<u32>("the number of a calling convention")?;
        } else if self.peek().kind == Kind::Word && is_convention(self.text()) {
            self.advance();
        }
        if self.at > start {
            join(&mut text, self.slice(start, self.at));
        }
        Ok(text)
    }

    /// The parameter list of a full function type, `(ptr, ...)`, if one is written.
    fn function_type(&mut self) -> Result<Option<Vec<Type>>> {
        if !self.eat(b'(') {
            return Ok(None);
        }
        let mut params = Vec::new();
        let mut variadic = false;
        while !self.eat(b')') {
            if !params.is_empty() {
                self.expect(b',')?;
            }
            match self.eat_word("...") {
                true => {
                    variadic = true;
                    self.expect(b')')?;
                    break;
                }
                false => params.push(self.ty()?),
            }
        }
        Ok(variadic.then_some(params))
    }

    fn callee(&mut self) -> Result<Callee> {
        match self.peek().kind {
            Kind::Global => Ok(Callee::Function(self.name(Kind::Global, "a function")?)),
            Kind::Word if self.text() == "asm" => self.error("unsupported inline assembly"),
            Kind::Word if self.text() == "addrspace" => self.error("unsupported address space of a call"),
            _ => Ok(Callee::Indirect(self.operand(&Type::PTR)?)),
        }
    }

    fn argument(&mut self) -> Result<CallArg> {
        let ty = self.ty()?;
        if ty == Type::Metadata {
            if self.at_type() {
                return self.error("unsupported metadata of a value");
            }
            let attrs = self.metadata_text()?.to_owned();
            return Ok(CallArg { ty, attrs, op: Operand::Const(Const::Undef) });
        }
        if ty == Type::Void {
            return self.error_behind("an argument of type `void`");
        }
        let attrs = self.attributes()?;
        let op = self.operand(&ty)?;
        Ok(CallArg { ty, attrs, op })
    }

    /// `[ "tag"(T a, …), … ]`.
    fn bundles(&mut self) -> Result<Vec<Bundle>> {
        if !self.eat(b'[') {
            return Ok(Vec::new());
        }
        self.list(b']', |p| {
            let tag = p.string("the tag of an operand bundle")?;
            p.expect(b'(')?;
            Ok(Bundle { tag, inputs: p.list(b')', |p| p.typed())? })
        })
    }
}
