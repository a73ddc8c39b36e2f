//! A kernel as a state machine: basic blocks between grid barriers, with the variables that are declared around barriers kept in memory.

use std::ops::Range;

use super::declaration::{Value, declared};
use super::statements::{Form, Loop, Statement};
use super::tokens::{Kind, Text};
use super::{Refusal, statements};

/// Stands for the code that keeps the variables.
const SAVE: &str = "\u{1}";
/// A variable that is kept.
struct Kept {
    ty: String,
    name: String,
    bound: Option<String>,
}

pub(super) struct Render<'t> {
    text: &'t Text<'t>,
    blocks: Vec<String>,
    current: usize,
    kept: Vec<Kept>,
    /// Names of variables and what they are renamed to, the innermost last.
    scope: Vec<(String, String)>,
    /// Of the loops around: where `break` and `continue` go.
    loops: Vec<[usize; 2]>,
}

impl<'t> Render<'t> {
    pub(super) fn new(text: &'t Text<'t>) -> Self {
        Self {
            text,
            blocks: vec![String::new()],
            current: 0,
            kept: Vec::new(),
            scope: Vec::new(),
            loops: Vec::new(),
        }
    }

    /// Keeps a variable under a new name.
    pub(super) fn keep(&mut self, ty: String, name: &str, bound: Option<String>) -> String {
        let new = format!("kept{}_{name}", self.kept.len());
        self.kept.push(Kept { ty, name: new.clone(), bound });
        self.scope.push((name.to_owned(), new.clone()));
        new
    }

    fn push(&mut self, code: &str) {
        self.blocks[self.current].push_str(code);
    }

    fn block(&mut self) -> usize {
        self.blocks.push(String::new());
        self.blocks.len() - 1
    }

    fn jump(&mut self, to: usize) {
        self.push(&format!("\nat_in_memory = {to}; continue;\n"));
    }

    /// The text of tokens with the variables renamed.
    fn emitted(&self, range: &Range<usize>) -> Result<String, Refusal> {
        let (mut out, mut at) = (String::new(), range.start);
        let mut end = self.text.tokens.get(at).map_or(0, |token| token.at.start);
        while at < range.end {
            let token = &self.text.tokens[at];
            let word = self.text.word(at);
            if token.kind == Kind::Directive {
                return Err(Refusal::new(at, "a directive of the preprocessor in the kernel"));
            }
            out.push_str(&self.text.text[end..token.at.start]);
            end = token.at.end;
            let before = at.checked_sub(1).map_or("", |before| self.text.word(before));
            let is_member = before == "."
                || before == ":" && at > 1 && self.text.word(at - 2) == ":"
                || before == ">" && at > 1 && self.text.word(at - 2) == "-";
            match self.scope.iter().rev().find(|(name, _)| name == word).filter(|_| !is_member) {
                Some((_, new)) if token.kind == Kind::Word => out.push_str(new),
                _ => out.push_str(word),
            }
            at += 1;
        }
        Ok(out)
    }

    fn statement(&mut self, of: &Statement) -> Result<(), Refusal> {
        let (file, line) = self.text.place(of.range.start);
        if !matches!(of.form, Form::Block(_)) {
            self.push(&format!("\n#line {line} \"{file}\"\n"));
        }
        match &of.form {
            Form::Simple => self.simple(&of.range)?,
            _ if !of.is_split() => {
                let code = self.emitted(&of.range)?;
                self.push(&code);
            }
            Form::Barrier => {
                let next = self.block();
                self.push(&format!("{SAVE} state_in_memory.at = {next}; return;"));
                self.current = next;
            }
            Form::Block(all) => {
                let before = self.scope.len();
                all.iter().try_for_each(|one| self.statement(one))?;
                self.scope.truncate(before);
            }
            Form::If { condition, then, otherwise } => {
                let [yes, no, end] = [self.block(), self.block(), self.block()];
                let condition = self.emitted(condition)?;
                self.push(&format!("at_in_memory = ({condition}) ? {yes} : {no}; continue;\n"));
                for (at, branch) in [(yes, Some(then)), (no, otherwise.as_ref())] {
                    self.current = at;
                    if let Some(branch) = branch {
                        self.scoped(branch)?;
                    }
                    self.jump(end);
                }
                self.current = end;
            }
            Form::Loop(of) => self.repeat(of)?,
            Form::Break | Form::Continue => {
                let Some([ends, goes_on]) = self.loops.last().copied() else {
                    return Err(Refusal::new(of.range.start, "an exit of no loop"));
                };
                self.jump(if matches!(of.form, Form::Break) { ends } else { goes_on });
                self.current = self.block();
            }
            Form::Switch => {}
        }
        Ok(())
    }

    fn scoped(&mut self, of: &Statement) -> Result<(), Refusal> {
        let before = self.scope.len();
        self.statement(of)?;
        self.scope.truncate(before);
        Ok(())
    }

    fn repeat(&mut self, of: &Loop) -> Result<(), Refusal> {
        let before = self.scope.len();
        if let Some(init) = &of.init {
            self.statement(init)?;
        }
        let [body, step, test, end] = [self.block(), self.block(), self.block(), self.block()];
        self.jump(if of.is_do { body } else { test });
        self.current = test;
        let condition = if of.condition.is_empty() { "true".into() } else { self.emitted(&of.condition)? };
        self.push(&format!("at_in_memory = ({condition}) ? {body} : {end}; continue;\n"));
        self.current = step;
        if !of.step.is_empty() {
            let code = self.emitted(&of.step)?;
            self.push(&format!("{code};"));
        }
        self.jump(test);
        self.current = body;
        self.loops.push([end, step]);
        self.scoped(&of.body)?;
        self.loops.pop();
        self.jump(step);
        self.current = end;
        self.scope.truncate(before);
        Ok(())
    }

    /// A declaration becomes an assignment.
    fn simple(&mut self, range: &Range<usize>) -> Result<(), Refusal> {
        let Some(all) = declared(self.text, range)? else {
            let code = self.emitted(range)?;
            self.push(&code);
            return Ok(());
        };
        for one in all {
            let bound = one.bound.as_ref().map(|bound| self.emitted(bound)).transpose()?;
            let is_kept = |bound: &String| bound.contains("kept");
            if bound.as_ref().is_some_and(is_kept) {
                return Err(Refusal::new(range.start, "an array whose size is a variable"));
            }
            // The name is in scope only behind its value; `T x = x;` would be undefined.
            let (ty, name) = (one.ty.clone(), self.text.word(one.name));
            let code = match &one.value {
                Value::None => String::new(),
                Value::Of(value) => format!("{ty}({})", self.emitted(value)?),
                Value::Braces(value) => format!("{ty}{}", self.emitted(value)?),
            };
            let is_pointer = ty.contains('*');
            let code = match &one.value {
                Value::Of(value) if is_pointer => self.emitted(value)?,
                _ => code,
            };
            let new = self.keep(one.ty, name, bound);
            if !code.is_empty() {
                self.push(&format!("{new} = {code};"));
            }
        }
        Ok(())
    }

    /// The state's members, and the body of the kernel.
    pub(super) fn finish(mut self, body: &Statement, begin: &str) -> Result<(String, String), Refusal> {
        self.statement(body)?;
        self.push("return;");
        let (mut members, mut locals, mut save, mut load) =
            (String::new(), String::new(), String::new(), String::new());
        for Kept { ty, name, bound } in &self.kept {
            let array = bound.as_ref().map_or(String::new(), |bound| format!("[{bound}]"));
            members.push_str(&format!("{ty} {name}{array};\n"));
            locals.push_str(&format!("{ty} {name}{array};\n"));
            let each = |to: &str, from: &str| match bound {
                Some(bound) => {
                    format!("for (uint k = 0; k < uint({bound}); ++k) {to}{name}[k] = {from}{name}[k];\n")
                }
                None => format!("{to}{name} = {from}{name};\n"),
            };
            save.push_str(&each("state_in_memory.", ""));
            load.push_str(&each("", "state_in_memory."));
        }
        let save = format!(
            "metal::atomic_store_explicit(waits_in_memory, 1u, metal::memory_order_relaxed);\n{save}"
        );
        let mut code = format!(
            "uint at_in_memory = state_in_memory.at;\nif (at_in_memory == ~0u) return;\nstate_in_memory.at = ~0u;\n{locals}if (at_in_memory == 0) {{\n{begin}}} else {{\n{load}}}\nfor (;;) {{ switch (at_in_memory) {{\n"
        );
        for (number, block) in self.blocks.iter().enumerate() {
            code.push_str(&format!("case {number}: {{ {} }}\n", block.replace(SAVE, &save)));
        }
        code.push_str("default: return; } }\n");
        if code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(statements::is_of_barrier) {
            return Err(Refusal::new(body.range.start, "a grid barrier that the driver cannot read"));
        }
        Ok((members, code))
    }
}
