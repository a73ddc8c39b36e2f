//! [`Emit`]: from the typed tree of a function to lines of MSL.
//!
//! Blocks, `match` and loops that are expressions become statements in front of the statement with a variable for their value. Operands are
//! evaluated from left to right, as in Rust: where the order can be seen, those before an effect are kept in variables.

mod calls;
mod expressions;
mod operators;
mod statements;
mod types;
mod writer;

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::hir::{Block, Expr, Function, Kind, LoopId};
use crate::program::Program;
use crate::types::{Table, Ty};

pub(crate) use types::integer_text;
pub use writer::Line;
use writer::Writer;

/// An expression of MSL and how tightly its outermost operator binds.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    text: String,
    precedence: u8,
}

const PRIMARY: u8 = 16;
const UNARY: u8 = 15;
const TERNARY: u8 = 1;

impl Code {
    fn primary(text: impl Into<String>) -> Self {
        Self { text: text.into(), precedence: PRIMARY }
    }

    /// The text, in parentheses unless it binds at least as tightly.
    fn within(&self, precedence: u8) -> String {
        if self.precedence >= precedence { self.text.clone() } else { format!("({})", self.text) }
    }
}

/// Where the value of a statement goes.
#[derive(Clone, Debug)]
enum Into_ {
    Nothing,
    Variable(String),
    Return,
}

/// A loop around a statement.
struct Around {
    id: LoopId,
    /// Jumps to this loop from within others: the flag of `break`, and that of `continue`.
    breaks: Option<String>,
    continues: Option<String>,
    /// Where `break` with a value stores it.
    value: Into_,
}

/// The emission of one function.
pub(crate) struct Emit<'a, 'p> {
    program: &'p mut Program<'a>,
    function: &'p Function,
    table: &'p Table,
    writer: Writer,
    loops: Vec<Around>,
    names: BTreeSet<String>,
    /// Variables of the translation, which are set once.
    temporaries: BTreeSet<String>,
    /// It is the value of a constant, in which nothing overflows.
    constant: bool,
    /// Slices whose length is used.
    pub(crate) lengths: BTreeSet<usize>,
}

impl<'a, 'p> Emit<'a, 'p> {
    pub(crate) fn new(program: &'p mut Program<'a>, function: &'p Function, table: &'p Table) -> Self {
        let names = function.locals.iter().map(|local| local.name.clone()).collect();
        Self {
            program,
            function,
            table,
            writer: Writer::default(),
            loops: Vec::new(),
            names,
            temporaries: BTreeSet::new(),
            constant: false,
            lengths: BTreeSet::new(),
        }
    }

    /// The lines of the body, and the slices whose lengths it uses.
    pub(crate) fn body(mut self) -> Result<(Vec<Line>, BTreeSet<usize>)> {
        let into = if self.function.result == Ty::Unit { Into_::Nothing } else { Into_::Return };
        let function = self.function;
        self.block(&function.body, &into)?;
        Ok((self.writer.lines, self.lengths))
    }

    /// The value of a constant, and the statements that it needs.
    pub(crate) fn value(mut self, expr: &Expr) -> Result<(String, Vec<Line>)> {
        self.constant = true;
        let code = self.expr(expr)?;
        Ok((code.text, self.writer.lines))
    }

    fn ty(&self, expr: &Expr) -> Ty {
        self.table.resolve(&expr.ty)
    }

    /// A name that nothing in the function has.
    fn fresh(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut count = 0;
        while crate::reserved::is_reserved(&name) || self.names.contains(&name) || self.program.taken(&name) {
            count += 1;
            name = format!("{base}_{count}");
        }
        self.names.insert(name.clone());
        name
    }

    /// Declares a variable for a value, and returns its name.
    fn declare(&mut self, base: &str, ty: &Ty) -> Result<String> {
        let name = self.fresh(base);
        self.temporaries.insert(name.clone());
        let ty = self.program.type_name(ty)?;
        self.writer.line(format!("{ty} {name};"));
        Ok(name)
    }

    /// Keeps a value in a variable.
    fn spill(&mut self, code: &Code, ty: &Ty) -> Result<Code> {
        if self.temporaries.contains(&code.text) {
            return Ok(code.clone());
        }
        let name = self.fresh("value");
        self.temporaries.insert(name.clone());
        let ty = self.program.type_name(ty)?;
        self.writer.line(format!("{ty} {name} = {};", code.text));
        Ok(Code::primary(name))
    }

    fn error<T>(&self, expr: &Expr, message: impl Into<String>) -> Result<T> {
        Err(Error::new(expr.span, message))
    }
}

/// Whether the expression has the same value later: literals, constants, and variables that do not change.
fn is_stable(function: &Function, expr: &Expr) -> bool {
    match &expr.kind {
        Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Bool(_)
        | Kind::Constant(_)
        | Kind::Raw(_)
        | Kind::Length(_) => true,
        Kind::Local(local) => {
            function.locals[*local].stable || matches!(function.locals[*local].ty, Ty::Ref { .. })
        }
        Kind::Borrow(one) => matches!(one.kind, Kind::Local(_) | Kind::Index(..) | Kind::Field(..)),
        Kind::Cast(one) | Kind::Unary(_, one) | Kind::Field(one, _) => is_stable(function, one),
        Kind::Binary(_, one, other) => is_stable(function, one) && is_stable(function, other),
        _ => false,
    }
}

/// Whether the expression needs statements in front of it.
fn needs_statements(expr: &Expr) -> bool {
    let mut found = false;
    crate::visit::expr(expr, &mut |expr| {
        found |= match &expr.kind {
            Kind::Block(block) => !block.statements.is_empty() || block.tail.is_none(),
            Kind::If(_, then, otherwise) => !is_ternary(then, otherwise.as_deref()),
            Kind::Match(..)
            | Kind::Loop(_)
            | Kind::Break(..)
            | Kind::Continue(_)
            | Kind::Return(_)
            | Kind::Assign(..)
            | Kind::AssignBinary(..)
            | Kind::Repeat(..) => true,
            _ => false,
        };
    });
    found
}

/// Whether the expression does something beside giving a value, or what it gives depends on when it is evaluated by more than variables.
fn has_effect(expr: &Expr) -> bool {
    let mut found = needs_statements(expr);
    crate::visit::expr(expr, &mut |expr| {
        found |= match &expr.kind {
            Kind::Operation { effect, .. } => *effect,
            Kind::Print(..) => true,
            Kind::Call { arguments, .. } => arguments.iter().any(|argument| {
                matches!(&argument.ty, Ty::Ref { mutable: true, .. }) || !argument_is_value(argument)
            }),
            _ => false,
        };
    });
    found
}

/// Whether an argument cannot be changed by the function: not a reference.
fn argument_is_value(argument: &Expr) -> bool {
    !matches!(argument.ty, Ty::Ref { .. })
}

/// Whether an `if` is short enough for `a ? b : c`.
fn is_ternary(then: &Block, otherwise: Option<&Expr>) -> bool {
    fn value(block: &Block) -> Option<&Expr> {
        if block.statements.is_empty() { block.tail.as_deref() } else { None }
    }
    let Some(then) = value(then) else { return false };
    let Some(otherwise) = otherwise else { return false };
    let otherwise = match &otherwise.kind {
        Kind::Block(block) => match value(block) {
            Some(value) => value,
            None => return false,
        },
        _ => otherwise,
    };
    [then, otherwise].iter().all(|arm| !matches!(arm.ty, Ty::Unit | Ty::Never) && !has_effect(arm))
}
