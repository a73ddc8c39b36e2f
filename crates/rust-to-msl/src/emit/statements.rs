//! Statements, loops and jumps.

use super::{Around, Code, Emit, Into_, needs_statements};
use crate::error::Result;
use crate::hir::{Arm, Block, Expr, Kind, Loop, LoopId, LoopKind, Range, Statement};
use crate::types::{Scalar, Ty};

impl Emit<'_, '_> {
    pub(super) fn block_statement(&mut self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::Let(local, value, span) => {
                self.writer.at(*span);
                let local = &self.function.locals[*local];
                let (name, ty) = (local.name.clone(), local.ty.clone());
                if matches!(ty, Ty::Unit | Ty::Never) {
                    return match value {
                        Some(value) => self.statement(value, &Into_::Nothing),
                        None => Ok(()),
                    };
                }
                let type_name = self.program.type_name(&ty)?;
                let Some(value) = value else {
                    self.writer.line(format!("{type_name} {name};"));
                    return Ok(());
                };
                if matches!(ty, Ty::Array(..)) && self.is_plain_array(value) {
                    return self.error(
                        value,
                        "kernels do not copy arrays of threadgroup memory and constants: copy elements",
                    );
                }
                if let Kind::Repeat(element, length) = &value.kind {
                    return self.repeat(&type_name, &name, element, length, value);
                }
                if self.is_statement(value) {
                    self.writer.line(format!("{type_name} {name};"));
                    return self.statement(value, &Into_::Variable(name));
                }
                let code = self.expr(value)?;
                self.writer.line(format!("{type_name} {name} = {};", code.text));
                Ok(())
            }
            Statement::Expr(expr) => {
                self.writer.at(expr.span);
                self.statement(expr, &Into_::Nothing)
            }
        }
    }

    /// Whether the value is a part of a threadgroup variable or of a constant, which are C arrays.
    fn is_plain_array(&self, value: &Expr) -> bool {
        match &value.kind {
            Kind::Index(base, _) | Kind::Deref(base) | Kind::Borrow(base) => self.is_plain_array(base),
            Kind::Local(local) => self.function.locals[*local].space == crate::types::Space::Threadgroup,
            Kind::Constant(_) => true,
            _ => false,
        }
    }

    /// Whether the expression itself is statements, not an operand of it.
    fn is_statement(&self, expr: &Expr) -> bool {
        needs_statements(expr)
            && match &expr.kind {
                Kind::Block(block) => block.tail.as_ref().is_some_and(|tail| self.is_statement(tail)),
                Kind::If(..) | Kind::Match(..) | Kind::Loop(_) => true,
                _ => false,
            }
    }

    /// An array whose elements are equal.
    fn repeat(
        &mut self,
        type_name: &str,
        name: &str,
        element: &Expr,
        length: &str,
        whole: &Expr,
    ) -> Result<()> {
        if is_zero(element) {
            self.writer.line(format!("{type_name} {name} = {{}};"));
            return Ok(());
        }
        let code = self.expr(element)?;
        let ty = self.ty(element);
        let value = self.spill(&code, &ty)?;
        self.writer.line(format!("{type_name} {name};"));
        let at = self.fresh("at");
        let _ = whole;
        self.writer
            .line(format!("for (uint {at} = 0u; {at} < {length}; ++{at}) {name}[{at}] = {};", value.text));
        Ok(())
    }

    /// An expression as a statement, with its value stored `into`.
    pub(super) fn statement(&mut self, expr: &Expr, into: &Into_) -> Result<()> {
        match &expr.kind {
            Kind::Block(block) => self.block(block, into),
            Kind::If(condition, then, otherwise) if !self.fits_ternary(expr, into) => {
                self.branch(condition, then, otherwise.as_deref(), into)
            }
            Kind::Match(_, arms) => self.arms(arms, into),
            Kind::Loop(body) => self.loop_statement(body, into),
            Kind::Repeat(element, length) => {
                let ty = self.ty(expr);
                let type_name = self.program.type_name(&ty)?;
                let name = self.fresh("value");
                self.repeat(&type_name, &name, element, length, expr)?;
                self.store(&Code::primary(name), into);
                Ok(())
            }
            Kind::Assign(place, value) => {
                if let (Kind::Local(local), true) = (&place.kind, self.is_statement(value)) {
                    let name = self.function.locals[*local].name.clone();
                    return self.statement(value, &Into_::Variable(name));
                }
                let (value, place) = self.value_and_place(value, place)?;
                self.writer.line(format!("{} = {};", place.text, value.text));
                Ok(())
            }
            Kind::AssignBinary(operator, place, value) => {
                let (value_code, place_code) = self.value_and_place(value, place)?;
                let result = self.binary(*operator, (place, &place_code), (value, &value_code))?;
                // `x = x + y` is `x += y`.
                let prefix = format!("{} ", place_code.text);
                let short = result.text.strip_prefix(&prefix).and_then(|rest| rest.split_once(' ')).filter(
                    |(symbol, _)| matches!(*symbol, "+" | "-" | "*" | "/" | "&" | "|" | "^" | "<<" | ">>"),
                );
                let line = match short {
                    Some((symbol, rest))
                        if rest == value_code.text || rest == format!("({})", value_code.text) =>
                    {
                        format!("{} {symbol}= {};", place_code.text, value_code.text)
                    }
                    _ => format!("{} = {};", place_code.text, result.text),
                };
                self.writer.line(line);
                Ok(())
            }
            Kind::Break(target, value) => self.break_statement(*target, value.as_deref()),
            Kind::Continue(target) => self.continue_statement(*target),
            Kind::Return(value) => {
                match value {
                    Some(value) if self.ty(value) != Ty::Unit => self.statement(value, &Into_::Return)?,
                    Some(value) => {
                        self.statement(value, &Into_::Nothing)?;
                        self.writer.line("return;");
                    }
                    None => self.writer.line("return;"),
                }
                Ok(())
            }
            _ => {
                let code = self.expr(expr)?;
                let ty = self.ty(expr);
                match ty {
                    Ty::Unit | Ty::Never if !code.text.is_empty() => {
                        self.writer.line(format!("{};", code.text))
                    }
                    Ty::Unit | Ty::Never => {}
                    _ => match into {
                        // A value that nothing uses is computed for its effects.
                        Into_::Nothing if super::has_effect(expr) && is_call(expr) => {
                            self.writer.line(format!("{};", code.text));
                        }
                        Into_::Nothing => {}
                        _ => self.store(&code, into),
                    },
                }
                Ok(())
            }
        }
    }

    /// The value and then the place of an assignment, which is Rust's order.
    fn value_and_place(&mut self, value: &Expr, place: &Expr) -> Result<(Code, Code)> {
        let mut code = self.expr(value)?;
        if super::has_effect(place) {
            let ty = self.ty(value);
            code = self.spill(&code, &ty)?;
        }
        let place = self.place(place, false)?;
        Ok((code, place))
    }

    fn store(&mut self, code: &Code, into: &Into_) {
        match into {
            Into_::Nothing => {}
            Into_::Variable(name) if *name == code.text => {}
            Into_::Variable(name) => self.writer.line(format!("{name} = {};", code.text)),
            Into_::Return => self.writer.line(format!("return {};", code.text)),
        }
    }

    fn fits_ternary(&self, expr: &Expr, into: &Into_) -> bool {
        !matches!(into, Into_::Nothing) && !needs_statements(expr)
    }

    fn branch(
        &mut self,
        condition: &Expr,
        then: &Block,
        otherwise: Option<&Expr>,
        into: &Into_,
    ) -> Result<()> {
        let condition = self.expr(condition)?;
        self.writer.open(format!("if ({}) {{", condition.text));
        self.block(then, into)?;
        let mut next = otherwise;
        while let Some(otherwise) = next {
            next = None;
            match &otherwise.kind {
                Kind::If(condition, then, otherwise)
                    if !needs_statements(condition) && !super::has_effect(condition) =>
                {
                    self.writer.at(condition.span);
                    let condition = self.expr(condition)?;
                    self.writer.close(format!("}} else if ({}) {{", condition.text));
                    self.indent();
                    self.block(then, into)?;
                    next = otherwise.as_deref();
                }
                Kind::Block(block) if block.statements.is_empty() && block.tail.is_none() => {}
                _ => {
                    self.writer.close("} else {");
                    self.indent();
                    self.statement(otherwise, into)?;
                }
            }
        }
        self.writer.close("}");
        Ok(())
    }

    fn indent(&mut self) {
        let line = self.writer.lines.pop();
        if let Some(line) = line {
            let span = line.span;
            self.writer.open(line.text);
            if let (Some(last), Some(span)) = (self.writer.lines.last_mut(), span) {
                last.span = Some(span);
            }
        }
    }

    fn arms(&mut self, arms: &[Arm], into: &Into_) -> Result<()> {
        // Bindings are copies of what is matched, so they can come first.
        for arm in arms {
            for binding in &arm.bindings {
                self.block_statement(binding)?;
            }
        }
        let mut is_first = true;
        let mut is_open = false;
        for arm in arms {
            for test in arm.condition.iter().chain(&arm.guard) {
                if super::has_effect(test) {
                    return self.error(test, "compute what this guard needs before the `match`");
                }
            }
            let condition = match &arm.condition {
                Some(condition) => Some(self.expr(condition)?),
                None => None,
            };
            let guard = match &arm.guard {
                Some(guard) => Some(self.expr(guard)?),
                None => None,
            };
            let test = match (condition, guard) {
                (Some(condition), Some(guard)) => {
                    Some(format!("{} && {}", condition.within(4), guard.within(4)))
                }
                (Some(test), None) | (None, Some(test)) => Some(test.text),
                (None, None) => None,
            };
            self.writer.at(arm.body.span);
            match (test, is_first) {
                (Some(test), true) => {
                    self.writer.open(format!("if ({test}) {{"));
                    is_open = true;
                }
                (Some(test), false) => {
                    self.writer.close(format!("}} else if ({test}) {{"));
                    self.indent();
                }
                (None, true) => {
                    self.statement(&arm.body, into)?;
                    break;
                }
                (None, false) => {
                    self.writer.close("} else {");
                    self.indent();
                }
            }
            self.statement(&arm.body, into)?;
            is_first = false;
            if arm.condition.is_none() && arm.guard.is_none() {
                break;
            }
        }
        if is_open {
            self.writer.close("}");
        }
        Ok(())
    }

    fn loop_statement(&mut self, body: &Loop, into: &Into_) -> Result<()> {
        let (mut breaks, mut continues) = (false, false);
        find_far_jumps(&body.body, body.id, true, &mut breaks, &mut continues);
        let breaks = breaks.then(|| self.fresh(&format!("break_{}", body.name)));
        if let Some(flag) = &breaks {
            self.writer.line(format!("bool {flag} = false;"));
        }
        let continues = continues.then(|| self.fresh(&format!("continue_{}", body.name)));
        let head = match &body.kind {
            LoopKind::Forever | LoopKind::Once => "while (true) {".to_owned(),
            LoopKind::While(condition) if needs_statements(condition) || super::has_effect(condition) => {
                "while (true) {".to_owned()
            }
            LoopKind::While(condition) => format!("while ({}) {{", self.expr(condition)?.text),
            LoopKind::Range(range) => self.range(range)?,
        };
        self.writer.open(head);
        if let LoopKind::While(condition) = &body.kind
            && (needs_statements(condition) || super::has_effect(condition))
        {
            let condition = self.expr(condition)?;
            self.writer.line(format!("if (!{}) break;", condition.within(super::UNARY)));
        }
        if let Some(flag) = &continues {
            self.writer.line(format!("bool {flag} = false;"));
        }
        self.loops.push(Around { id: body.id, breaks, continues, value: into.clone() });
        let result = self.block(&body.body, &Into_::Nothing);
        if matches!(body.kind, LoopKind::Once) {
            self.writer.line("break;");
        }
        self.loops.pop();
        result?;
        self.writer.close("}");
        self.after_loop(&body.body);
        Ok(())
    }

    /// Behind an inner loop: goes on with a jump out of it to an outer one.
    fn after_loop(&mut self, inner: &Block) {
        let mut lines = Vec::new();
        let depth = self.loops.len();
        for (index, around) in self.loops.iter().enumerate() {
            let (mut breaks, mut continues) = (false, false);
            find_far_jumps(inner, around.id, false, &mut breaks, &mut continues);
            let is_direct = index + 1 == depth;
            if let (true, Some(flag)) = (breaks, &around.breaks) {
                lines.push(format!("if ({flag}) break;"));
            }
            if let (true, Some(flag)) = (continues, &around.continues) {
                lines.push(format!("if ({flag}) {};", if is_direct { "continue" } else { "break" }));
            }
        }
        for line in lines {
            self.writer.line(line);
        }
    }

    /// The head of a `for` over a range.
    fn range(&mut self, range: &Range) -> Result<String> {
        let local = &self.function.locals[range.local];
        let (name, ty) = (local.name.clone(), local.ty.clone());
        let Ty::Scalar(scalar) = ty else {
            return self.error(&range.start, "a range of a kernel is of integers");
        };
        let type_name = scalar.msl();
        let codes = self.operands(&[&range.start, &range.end])?;
        let (start, mut end) = (codes[0].clone(), codes[1].clone());
        if !super::is_stable(self.function, &range.end) {
            end = self.spill(&end, &ty)?;
        }
        let (start, end_text) = (start.text, end.within(10));
        let end_open = end.text.clone();
        if let Some(step) = &range.step {
            let step_code = self.expr(step)?;
            let step_code = if super::is_stable(self.function, step) {
                step_code
            } else {
                self.spill(&step_code, &Ty::USIZE)?
            };
            let go = self.fresh("more");
            let wide = if scalar.bits() == 64 { "ulong" } else { "uint" };
            return Ok(format!(
                "for ({type_name} {name} = {start}, {go} = {name} < {end_text}; {go} != 0; {go} = {wide}({end_open}) - {wide}({name}) > {}, {name} += {go} != 0 ? {type_name}({}) : {type_name}(0)) {{",
                step_code.text, step_code.text
            ));
        }
        Ok(match (range.inclusive, range.reversed) {
            (false, false) => format!("for ({type_name} {name} = {start}; {name} < {end_text}; ++{name}) {{"),
            (false, true) => {
                let start = self.kept(&start, &range.start, scalar)?;
                let go = self.fresh("more");
                format!(
                    "for ({type_name} {go} = {start} < {end_text}, {name} = {go} != 0 ? {type_name}({end_open} - 1) : {end_open}; {go} != 0; {go} = {start} < {name}, {name} -= {go}) {{"
                )
            }
            (true, false) => match super::operators::literal(&range.end) {
                Some(value) if value < (1i128 << (scalar.bits() - 1)) - 1 => {
                    format!("for ({type_name} {name} = {start}; {name} <= {end_text}; ++{name}) {{")
                }
                _ => {
                    let go = self.fresh("more");
                    format!(
                        "for ({type_name} {name} = {start}, {go} = {name} <= {end_text}; {go} != 0; {go} = {name} < {end_text}, {name} += {go}) {{"
                    )
                }
            },
            (true, true) => {
                let start = self.kept(&start, &range.start, scalar)?;
                let go = self.fresh("more");
                format!(
                    "for ({type_name} {name} = {end_open}, {go} = {start} <= {name}; {go} != 0; {go} = {start} < {name}, {name} -= {go}) {{"
                )
            }
        })
    }

    /// The start of a range that counts down, which its condition reads again.
    fn kept(&mut self, code: &str, start: &Expr, scalar: Scalar) -> Result<String> {
        if super::is_stable(self.function, start) {
            return Ok(Code { text: code.to_owned(), precedence: 0 }.within(super::PRIMARY));
        }
        Ok(self.spill(&Code::primary(code), &Ty::Scalar(scalar))?.text)
    }

    fn break_statement(&mut self, target: LoopId, value: Option<&Expr>) -> Result<()> {
        let Some(index) = self.loops.iter().position(|around| around.id == target) else { return Ok(()) };
        if let Some(value) = value {
            let into = self.loops[index].value.clone();
            match into {
                // The loop is the value of the function: its value is returned from within.
                Into_::Return => return self.statement(value, &Into_::Return),
                into => self.statement(value, &into)?,
            }
        }
        if index + 1 < self.loops.len()
            && let Some(flag) = self.loops[index].breaks.clone()
        {
            self.writer.line(format!("{flag} = true;"));
        }
        self.writer.line("break;");
        Ok(())
    }

    fn continue_statement(&mut self, target: LoopId) -> Result<()> {
        let Some(index) = self.loops.iter().position(|around| around.id == target) else { return Ok(()) };
        if index + 1 < self.loops.len() {
            if let Some(flag) = self.loops[index].continues.clone() {
                self.writer.line(format!("{flag} = true;"));
            }
            self.writer.line("break;");
        } else {
            self.writer.line("continue;");
        }
        Ok(())
    }
}

/// Finds jumps to the loop `target` from loops within the block; `direct` if the block is the body of that loop itself.
fn find_far_jumps(block: &Block, target: LoopId, direct: bool, breaks: &mut bool, continues: &mut bool) {
    if direct {
        // Only jumps within inner loops are far.
        crate::visit::block(block, &mut |expr| {
            if let Kind::Loop(inner) = &expr.kind {
                find_far_jumps(&inner.body, target, false, breaks, continues);
            }
        });
        return;
    }
    crate::visit::block(block, &mut |expr| match &expr.kind {
        Kind::Break(to, _) => *breaks |= *to == target,
        Kind::Continue(to) => *continues |= *to == target,
        _ => {}
    });
}

fn is_zero(expr: &Expr) -> bool {
    match &expr.kind {
        Kind::Integer(digits) => digits == "0",
        Kind::Float(digits) => {
            digits.parse::<f64>().is_ok_and(|value| value == 0.0 && value.is_sign_positive())
        }
        Kind::Bool(value) => !value,
        Kind::Repeat(element, _) => is_zero(element),
        Kind::Vector(lanes) | Kind::Array(lanes) => lanes.iter().all(is_zero),
        _ => false,
    }
}

fn is_call(expr: &Expr) -> bool {
    matches!(expr.kind, Kind::Operation { .. } | Kind::Call { .. })
}
