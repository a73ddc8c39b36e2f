//! Functions: their heads, bodies and blocks.

use super::scope::{Name, Scope};
use super::{ParseError, Parser, Result};
use crate::lexer::Kind;
use crate::model::{Attachments, Block, BlockId, Function, Inst, Op, Param, Term, Type, ValueId};

impl Parser<'_> {
    pub(super) fn declare(&mut self) -> Result<()> {
        self.advance();
        let metadata = self.attachments()?;
        let mut function = self.head()?;
        function.metadata = metadata;
        function.values = std::mem::take(&mut self.scope.values);
        self.module.functions.push(function);
        Ok(())
    }

    pub(super) fn define(&mut self) -> Result<()> {
        self.advance();
        let mut function = self.head()?;
        function.metadata = self.attachments()?;
        let line = self.line();
        self.expect(b'{')?;
        while !self.eat(b'}') {
            let block = self.block()?;
            function.blocks.push(block);
        }
        if function.blocks.is_empty() {
            return Err(ParseError::new(line, format!("function `@{}` has no blocks", function.name)));
        }
        self.scope.finish(&mut function.blocks)?;
        function.values = std::mem::take(&mut self.scope.values);
        self.module.functions.push(function);
        Ok(())
    }

    /// Everything up to the body or the end of a declaration; opens the function's scope.
    fn head(&mut self) -> Result<Function> {
        self.scope = Scope::default();
        let linkage = self.function_linkage()?;
        let ret_attrs = self.attributes()?;
        let ret = self.ty()?;
        let name = self.name(Kind::Global, "the name of a function")?;
        let mut function = Function { linkage, ret_attrs, ..Function::new(name, ret) };
        self.expect(b'(')?;
        while !self.eat(b')') {
            if function.variadic || !function.params.is_empty() {
                self.expect(b',')?;
            }
            match self.eat_word("...") {
                true if !function.variadic => function.variadic = true,
                _ => {
                    let param = self.param()?;
                    function.params.push(param);
                }
            }
            if function.variadic && !self.is_punct(b')') {
                return self.expected("`)` after `...`");
            }
        }
        function.suffix = self.function_suffix()?;
        Ok(function)
    }

    fn param(&mut self) -> Result<Param> {
        let line = self.line();
        let ty = self.ty()?;
        if ty == Type::Void {
            return Err(ParseError::new(line, "a parameter of type `void`"));
        }
        let attrs = self.attributes()?;
        let name = match self.peek().kind {
            Kind::Local => Some(self.local_name()?),
            Kind::Punct(b',' | b')') => None,
            _ => return self.error(format!("unknown parameter attribute {}", self.found())),
        };
        let value = self.scope.define_value(name, ty.clone(), line)?;
        Ok(Param { ty, attrs, value })
    }

    /// `%name` or `%7`.
    pub(super) fn local_name(&mut self) -> Result<Name> {
        let line = self.line();
        let text = self.name(Kind::Local, "a local name")?;
        Name::new(text).ok_or_else(|| ParseError::new(line, "the number of a value is too large"))
    }

    fn block(&mut self) -> Result<Block> {
        let line = self.line();
        let label = self.label()?;
        self.scope.define_block(label.clone(), line)?;
        let name = label.and_then(Name::into_text);
        let mut insts = Vec::new();
        loop {
            if let Some((term, term_metadata)) = self.block_line(&mut insts)? {
                return Ok(Block { name, insts, term, term_metadata });
            }
        }
    }

    /// `name:`, `7:`, `"a b":`, or nothing.
    fn label(&mut self) -> Result<Option<Name>> {
        if self.peek_at(1).kind != Kind::Punct(b':') {
            return Ok(None);
        }
        let text = match self.peek().kind {
            Kind::Word | Kind::Int => self.text().to_owned(),
            Kind::String => {
                let text = self.text();
                self.utf8(&text[1..text.len() - 1])?
            }
            _ => return self.expected("a label"),
        };
        let numbered = super::is_number(&text);
        if text.is_empty() || (numbered && self.peek().kind == Kind::String) {
            return self.error(format!("unsupported name `{}`", self.text()));
        }
        let Some(name) = Name::new(text) else { return self.error("the number of a block is too large") };
        self.advance();
        self.advance();
        Ok(Some(name))
    }

    /// One instruction, which is appended, one debug record, which is dropped, or the terminator.
    fn block_line(&mut self, insts: &mut Vec<Inst>) -> Result<Option<(Term, Attachments)>> {
        if self.peek().kind == Kind::Hash {
            return self.debug_record().map(|()| None);
        }
        let line = self.line();
        let result = match self.peek().kind {
            Kind::Local => {
                let name = self.local_name()?;
                self.expect(b'=')?;
                Some(name)
            }
            _ => None,
        };
        let opcode = self.word("an instruction")?;
        if Term::is_opcode(opcode) {
            if let Some(name) = result {
                return Err(ParseError::new(line, format!("`{opcode}` has no result to name `{name}`")));
            }
            let term = self.terminator(opcode)?;
            return Ok(Some((term, self.attachments_after_commas()?)));
        }
        let op = self.instruction(opcode, line)?;
        let metadata = self.attachments_after_commas()?;
        if let Some(op) = op {
            let result = self.define_result(&op, result, opcode, line)?;
            insts.push(Inst { result, op, metadata });
        }
        Ok(None)
    }

    fn define_result(
        &mut self,
        op: &Op,
        name: Option<Name>,
        opcode: &str,
        line: u32,
    ) -> Result<Option<ValueId>> {
        match (op.result_type(&self.module), name) {
            (None, _) => {
                Err(ParseError::new(line, format!("the operands of `{opcode}` do not fit its type")))
            }
            (Some(Type::Void), None) => Ok(None),
            (Some(Type::Void), Some(name)) => {
                Err(ParseError::new(line, format!("`{opcode}` has no result to name `{name}`")))
            }
            (Some(ty), name) => self.scope.define_value(name, ty, line).map(Some),
        }
    }

    /// `#dbg_value(…)` and its like.
    fn debug_record(&mut self) -> Result<()> {
        match self.text() {
            "#dbg_value" | "#dbg_declare" | "#dbg_assign" | "#dbg_label" | "#dbg_declare_value" => {
                self.advance();
                match self.is_punct(b'(') {
                    true => self.skip_group(),
                    false => self.expected("`(`"),
                }
            }
            other => self.error(format!("unknown record `{other}`")),
        }
    }

    fn terminator(&mut self, opcode: &str) -> Result<Term> {
        match opcode {
            "br" if self.is_word("label") => Ok(Term::Br(self.block_use()?)),
            "br" => {
                let cond = self.typed()?;
                if cond.ty != Type::I1 {
                    return self.error_behind(format!("a branch on a value of type `{}`", cond.ty));
                }
                self.expect(b',')?;
                let then = self.block_use()?;
                self.expect(b',')?;
                Ok(Term::CondBr { cond: cond.op, then, other: self.block_use()? })
            }
            "switch" => self.switch(),
            "ret" if self.eat_word("void") => Ok(Term::Ret(None)),
            "ret" => Ok(Term::Ret(Some(self.typed()?))),
            _ => Ok(Term::Unreachable),
        }
    }

    fn switch(&mut self) -> Result<Term> {
        let value = self.typed()?;
        if !value.ty.is_int() {
            return self.error_behind(format!("a switch on a value of type `{}`", value.ty));
        }
        self.expect(b',')?;
        let default = self.block_use()?;
        self.expect(b'[')?;
        let mut cases = Vec::new();
        while !self.eat(b']') {
            let (ty, constant) = self.typed_const()?;
            if ty != value.ty {
                return self.error_behind(format!("a case of type `{ty}` in a switch on `{}`", value.ty));
            }
            self.expect(b',')?;
            cases.push((constant, self.block_use()?));
        }
        Ok(Term::Switch { value, default, cases })
    }

    /// `label %name`.
    fn block_use(&mut self) -> Result<BlockId> {
        self.expect_word("label")?;
        self.block_name_use()
    }

    /// `%name`, as a block.
    pub(super) fn block_name_use(&mut self) -> Result<BlockId> {
        let line = self.line();
        let name = self.local_name()?;
        self.scope.use_block(name, line)
    }
}
