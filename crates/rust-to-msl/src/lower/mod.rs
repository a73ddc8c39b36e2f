//! [`Lower`]: from the syntax tree of a function to the typed tree. Closures are inlined, nested items were collected before.

mod calls;
mod expressions;
mod literals;
mod loops;
mod methods;
mod paths;
mod patterns;
mod types;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use proc_macro2::Span;
use syn::spanned::Spanned;

use crate::error::{Error, Result, fail};
use crate::hir::{Block, Expr, Function, Kind, Local, LoopId, Statement};
use crate::items::Items;
use crate::reserved::is_reserved;
use crate::types::{Space, Table, Ty};

pub(crate) use expressions::field_name;

/// What a name in scope means.
#[derive(Clone)]
enum Meaning {
    Local(usize),
    /// A const parameter or a constant of the body, by its name in MSL.
    Constant(String, Ty),
    Closure(Rc<Closure>),
}

/// A closure, which each call inlines where it is.
struct Closure {
    syntax: syn::ExprClosure,
    scopes: Vec<HashMap<String, Meaning>>,
}

/// A loop around an expression.
struct Enclosing {
    id: LoopId,
    label: Option<String>,
    /// The type of its value, for `loop` and labeled blocks.
    value: Option<Ty>,
    /// A labeled block, which a `break` without a label passes by.
    once: bool,
}

/// The lowering of one function.
pub(crate) struct Lower<'a> {
    items: &'a Items,
    table: Table,
    locals: Vec<Local>,
    scopes: Vec<HashMap<String, Meaning>>,
    names: HashSet<String>,
    loops: Vec<Enclosing>,
    next_loop: LoopId,
    result: Ty,
    /// Type parameters, with their types in this instance.
    generics: BTreeMap<String, Ty>,
    /// Closures that are being inlined; a `return` in one is an error.
    inlining: usize,
    errors: Vec<Error>,
    /// Types of literals and variables that have to be known in the end.
    obligations: Vec<(Ty, Span)>,
}

impl<'a> Lower<'a> {
    pub(crate) fn new(items: &'a Items, generics: BTreeMap<String, Ty>) -> Self {
        Self {
            items,
            table: Table::default(),
            locals: Vec::new(),
            scopes: vec![HashMap::new()],
            names: HashSet::new(),
            loops: Vec::new(),
            next_loop: 0,
            result: Ty::Unit,
            generics,
            inlining: 0,
            errors: Vec::new(),
            obligations: Vec::new(),
        }
    }

    /// Adds a parameter. `local.name` is its name in Rust.
    pub(crate) fn parameter(&mut self, local: Local) -> usize {
        let rust = local.name.clone();
        let name = self.unique(&rust);
        self.bind(&rust, Local { name, ..local })
    }

    /// Adds a const parameter, with its value in MSL.
    pub(crate) fn constant(&mut self, name: &str, msl: &str, ty: Ty) {
        self.names.insert(msl.to_owned());
        self.scope().insert(name.to_owned(), Meaning::Constant(msl.to_owned(), ty));
    }

    /// Lowers the body, whose value has type `result`.
    pub(crate) fn function(
        mut self,
        block: &syn::Block,
        result: Ty,
    ) -> std::result::Result<(Function, Table), Vec<Error>> {
        self.result = result.clone();
        let lowered = self.block(block);
        let mut body = match lowered {
            Ok(body) => body,
            Err(error) => {
                self.report(error);
                return Err(self.errors);
            }
        };
        if let Some(tail) = &body.tail {
            let (ty, span) = (tail.ty.clone(), tail.span);
            self.same(&ty, &result, span);
        }
        if result == Ty::Unit
            && let Some(tail) = body.tail.take()
        {
            body.statements.push(Statement::Expr(*tail));
        }
        self.check_obligations();
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        for local in &mut self.locals {
            local.ty = self.table.resolve(&local.ty);
        }
        Ok((Function { locals: self.locals, body, result }, self.table))
    }

    /// Lowers the value of a constant.
    pub(crate) fn constant_value(
        self,
        value: &syn::Expr,
        ty: &Ty,
    ) -> std::result::Result<(Function, Table), Vec<Error>> {
        let statement = syn::Stmt::Expr(value.clone(), None);
        let block = syn::Block { brace_token: syn::token::Brace::default(), stmts: vec![statement] };
        self.function(&block, ty.clone())
    }

    /// Reports types that nothing determined.
    fn check_obligations(&mut self) {
        if !self.errors.is_empty() {
            return;
        }
        let mut reported = Vec::new();
        for (ty, span) in &self.obligations {
            // One error for each variable, not for each use.
            let variable = self.table.shallow(ty);
            if reported.contains(&variable) {
                continue;
            }
            let known = self.errors.len();
            if self.table.is_float_literal(ty) {
                self.errors.push(Error::new(
                    *span,
                    "this number is an `f64`, which Metal lacks: write its type, as in `1.0f32`",
                ));
            } else if matches!(self.table.resolve(ty), Ty::Var(_)) {
                self.errors.push(Error::new(
                    *span,
                    "the type of this is not known here: write it, as in `let x: f32`",
                ));
            }
            if self.errors.len() > known {
                reported.push(variable);
            }
        }
    }

    fn scope(&mut self) -> &mut HashMap<String, Meaning> {
        if self.scopes.is_empty() {
            self.scopes.push(HashMap::new());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    fn find(&self, name: &str) -> Option<&Meaning> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// A name for MSL that nothing else in the function has.
    fn unique(&mut self, rust: &str) -> String {
        let rust = rust.strip_prefix("r#").unwrap_or(rust);
        let plain: String =
            rust.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { 'u' }).collect();
        let mut base = plain.trim_start_matches('_').to_owned();
        if base.is_empty() || base.starts_with(|c: char| c.is_ascii_digit()) {
            base = format!("v{base}");
        }
        let mut name = base.clone();
        let mut count = 0;
        while is_reserved(&name) || self.names.contains(&name) || self.taken(&name) {
            count += 1;
            name = format!("{base}_{count}");
        }
        self.names.insert(name.clone());
        name
    }

    /// Whether an item has this name.
    fn taken(&self, name: &str) -> bool {
        self.items.functions.contains_key(name)
            || self.items.structs.contains_key(name)
            || self.items.constants.contains_key(name)
            || self.items.enums.contains_key(name)
            || self.generics.contains_key(name)
    }

    fn bind(&mut self, rust: &str, local: Local) -> usize {
        self.locals.push(local);
        let index = self.locals.len() - 1;
        self.scope().insert(rust.to_owned(), Meaning::Local(index));
        index
    }

    /// A new variable of the function that is bound to `rust`.
    fn variable(&mut self, rust: &str, ty: Ty, mutable: bool) -> usize {
        let name = self.unique(rust);
        self.bind(rust, Local { name, ty, space: Space::Thread, stable: !mutable })
    }

    /// A new variable that has no name in Rust.
    fn temporary(&mut self, name: &str, ty: Ty) -> usize {
        let name = self.unique(name);
        self.locals.push(Local { name, ty, space: Space::Thread, stable: true });
        self.locals.len() - 1
    }

    /// Makes the types equal, or reports what differs.
    fn same(&mut self, found: &Ty, expected: &Ty, span: Span) {
        if !self.table.unify(found, expected) {
            let (found, expected) = (self.table.resolve(found), self.table.resolve(expected));
            if self.table.is_float_literal(&found) || self.table.is_float_literal(&expected) {
                self.errors.push(Error::new(
                    span,
                    "a floating-point number does not convert to this type: use `as`",
                ));
            } else {
                self.errors.push(Error::new(span, format!("expected `{expected}`, found `{found}`")));
            }
        }
    }

    fn with_scope<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(HashMap::new());
        let result = body(self);
        self.scopes.pop();
        result
    }

    /// Lowers a block in a scope of its own.
    fn block(&mut self, block: &syn::Block) -> Result<Block> {
        self.with_scope(|this| this.statements(&block.stmts))
    }

    fn statements(&mut self, statements: &[syn::Stmt]) -> Result<Block> {
        let mut lowered = Block::default();
        for statement in statements {
            if let syn::Stmt::Item(syn::Item::Const(constant)) = statement {
                let ty = self.ty(&constant.ty)?;
                let name = constant.ident.to_string();
                self.scope().insert(name.clone(), Meaning::Constant(name, ty));
            }
        }
        for (index, statement) in statements.iter().enumerate() {
            let last = index + 1 == statements.len();
            let result = match statement {
                syn::Stmt::Local(local) => self.let_statement(local, &mut lowered.statements),
                syn::Stmt::Item(
                    syn::Item::Fn(_)
                    | syn::Item::Const(_)
                    | syn::Item::Struct(_)
                    | syn::Item::Enum(_)
                    | syn::Item::Use(_),
                ) => Ok(()),
                syn::Stmt::Item(item) => fail(
                    item.span(),
                    "kernels use functions, constants, structs and enums; move this item out of the kernel",
                ),
                syn::Stmt::Macro(statement) => self.expr_macro(&statement.mac).map(|expr| {
                    lowered.statements.extend(expr.map(Statement::Expr));
                }),
                syn::Stmt::Expr(syn::Expr::Macro(expr), _) => self.expr_macro(&expr.mac).map(|expr| {
                    lowered.statements.extend(expr.map(Statement::Expr));
                }),
                syn::Stmt::Expr(expr, None) if last => {
                    self.expr(expr).map(|expr| lowered.tail = Some(Box::new(expr)))
                }
                syn::Stmt::Expr(expr, _) => {
                    self.expr(expr).map(|expr| lowered.statements.push(Statement::Expr(expr)))
                }
            };
            if let Err(error) = result {
                self.report(error);
                self.forget(statement);
            }
        }
        Ok(lowered)
    }

    /// Keeps an error, unless it only follows from an earlier one.
    fn report(&mut self, error: Error) {
        if !error.message.is_empty() || self.errors.is_empty() {
            self.errors.push(error);
        }
    }

    /// An error about something whose type is not known, which follows from an earlier error if there is one.
    fn unknown<T>(&self, span: Span, ty: &Ty, message: impl Into<String>) -> Result<T> {
        let follows = !self.errors.is_empty() && matches!(self.table.shallow(ty), Ty::Var(_));
        fail(span, if follows { String::new() } else { message.into() })
    }

    /// Binds the names of a statement that has an error, so that uses of them are not errors too.
    fn forget(&mut self, statement: &syn::Stmt) {
        if let syn::Stmt::Local(local) = statement {
            for name in patterns::names(&local.pat) {
                let ty = self.table.any();
                self.variable(&name, ty, true);
            }
        }
    }

    fn let_statement(&mut self, local: &syn::Local, statements: &mut Vec<Statement>) -> Result<()> {
        let span = local.span();
        let (pattern, annotation) = match &local.pat {
            syn::Pat::Type(typed) => (typed.pat.as_ref(), Some(self.ty(&typed.ty)?)),
            other => (other, None),
        };
        let Some(init) = &local.init else {
            let syn::Pat::Ident(ident) = pattern else {
                return fail(pattern.span(), "give this pattern a value where it is declared");
            };
            let ty = annotation.unwrap_or_else(|| self.table.any());
            self.obligations.push((ty.clone(), ident.ident.span()));
            let index = self.variable(&ident.ident.to_string(), ty, true);
            statements.push(Statement::Let(index, None, span));
            return Ok(());
        };
        if let Some((_, diverge)) = &init.diverge {
            return fail(
                diverge.span(),
                "`let … else` needs patterns that can fail, which kernels lack: use `if`",
            );
        }
        if let (syn::Expr::Closure(closure), syn::Pat::Ident(ident)) = (init.expr.as_ref(), pattern) {
            return self.define_closure(closure, &ident.ident);
        }
        let value = self.expr(&init.expr)?;
        if let Some(annotation) = annotation {
            self.same(&value.ty, &annotation, value.span);
        }
        self.bind_pattern(pattern, value, span, statements)
    }

    fn define_closure(&mut self, closure: &syn::ExprClosure, name: &syn::Ident) -> Result<()> {
        if let Some(capture) = &closure.capture {
            return fail(
                capture.span(),
                "closures are inlined where they are called: write this one without `move`",
            );
        }
        let closure = Rc::new(Closure { syntax: closure.clone(), scopes: self.scopes.clone() });
        self.scope().insert(name.to_string(), Meaning::Closure(closure));
        Ok(())
    }

    fn expr_of(ty: Ty, span: Span, kind: Kind) -> Expr {
        Expr { ty, span, kind }
    }
}
