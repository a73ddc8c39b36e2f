//! Loops, and jumps out of them.

use proc_macro2::Span;
use syn::spanned::Spanned;

use super::{Enclosing, Lower};
use crate::error::{Result, fail};
use crate::hir::{Block, Expr, Kind, Loop, LoopKind, Range};
use crate::types::Ty;

impl Lower<'_> {
    fn enter(&mut self, label: Option<&syn::Lifetime>, value: Option<Ty>, once: bool) -> (usize, String) {
        self.next_loop += 1;
        let id = self.next_loop;
        let label = label.map(|label| label.ident.to_string());
        let name = label.clone().unwrap_or_else(|| "loop".into());
        self.loops.push(Enclosing { id, label, value, once });
        (id, name)
    }

    /// `loop`.
    pub(super) fn forever(&mut self, expr: &syn::ExprLoop) -> Result<Expr> {
        let value = self.table.any();
        let (id, name) = self.enter(expr.label.as_ref().map(|label| &label.name), Some(value.clone()), false);
        let body = self.block(&expr.body);
        self.loops.pop();
        let body = unit(body?);
        let breaks = breaks(&body, id);
        let ty = if breaks { value } else { Ty::Never };
        Ok(Self::expr_of(ty, expr.span(), Kind::Loop(Loop { id, kind: LoopKind::Forever, body, name })))
    }

    /// `'label: { … }`.
    pub(super) fn labeled(&mut self, expr: &syn::ExprBlock, label: &syn::Label) -> Result<Expr> {
        let value = self.table.any();
        let (id, name) = self.enter(Some(&label.name), Some(value.clone()), true);
        let body = self.block(&expr.block);
        self.loops.pop();
        let mut body = body?;
        match body.tail.take() {
            Some(tail) => {
                self.same(&tail.ty, &value, tail.span);
                let span = tail.span;
                let unit = matches!(self.table.shallow(&tail.ty), Ty::Unit | Ty::Never);
                body.statements.push(crate::hir::Statement::Expr(if unit {
                    *tail
                } else {
                    Self::expr_of(Ty::Never, span, Kind::Break(id, Some(tail)))
                }));
            }
            None if !ends(&body) => self.same(&value, &Ty::Unit, expr.span()),
            None => {}
        }
        Ok(Self::expr_of(value, expr.span(), Kind::Loop(Loop { id, kind: LoopKind::Once, body, name })))
    }

    /// `while`.
    pub(super) fn while_loop(&mut self, expr: &syn::ExprWhile) -> Result<Expr> {
        if let syn::Expr::Let(condition) = expr.cond.as_ref() {
            return fail(condition.span(), "kernels have no patterns that can fail: use a condition");
        }
        let condition = self.expr(&expr.cond)?;
        self.same(&condition.ty, &Ty::BOOL, condition.span);
        let (id, name) = self.enter(expr.label.as_ref().map(|label| &label.name), None, false);
        let body = self.block(&expr.body);
        self.loops.pop();
        let body = unit(body?);
        let kind = LoopKind::While(Box::new(condition));
        Ok(Self::expr_of(Ty::Unit, expr.span(), Kind::Loop(Loop { id, kind, body, name })))
    }

    /// `for` over a range.
    pub(super) fn for_loop(&mut self, expr: &syn::ExprForLoop) -> Result<Expr> {
        let (start, end, inclusive, reversed, step) = self.range(&expr.expr)?;
        let ty = start.ty.clone();
        self.scopes.push(std::collections::HashMap::new());
        let (mutable, local) = match expr.pat.as_ref() {
            syn::Pat::Ident(ident) => {
                let mutable = ident.mutability.is_some();
                let index = self.variable(&ident.ident.to_string(), ty.clone(), false);
                (mutable.then(|| ident.ident.to_string()), index)
            }
            syn::Pat::Wild(_) => (None, self.temporary("i", ty.clone())),
            other => {
                self.scopes.pop();
                return fail(other.span(), "the pattern of a `for` in a kernel is a name or `_`");
            }
        };
        let (id, name) = self.enter(expr.label.as_ref().map(|label| &label.name), None, false);
        // A `mut` variable is a copy: changes of it do not change the loop.
        let copy = mutable.map(|name| {
            let index = self.variable(&name, ty.clone(), true);
            let value = Self::expr_of(ty.clone(), expr.pat.span(), Kind::Local(local));
            crate::hir::Statement::Let(index, Some(value), expr.pat.span())
        });
        let body = self.block(&expr.body);
        self.loops.pop();
        self.scopes.pop();
        let mut body = unit(body?);
        if let Some(copy) = copy {
            body.statements.insert(0, copy);
        }
        let kind = LoopKind::Range(Box::new(Range { local, start, end, inclusive, reversed, step }));
        Ok(Self::expr_of(Ty::Unit, expr.span(), Kind::Loop(Loop { id, kind, body, name })))
    }

    #[allow(clippy::type_complexity)] // start, end, inclusive, reversed, step
    fn range(&mut self, expr: &syn::Expr) -> Result<(Expr, Expr, bool, bool, Option<Expr>)> {
        let over = "a `for` of a kernel is over a range: `a..b`, `a..=b`, `(a..b).rev()` or `(a..b).step_by(n)`; \
                    index slices within it";
        match expr {
            syn::Expr::Paren(paren) => self.range(&paren.expr),
            syn::Expr::Group(group) => self.range(&group.expr),
            syn::Expr::Range(range) => {
                let (Some(start), Some(end)) = (&range.start, &range.end) else {
                    return fail(range.span(), "this range has no end: use `loop`");
                };
                let (start, end) = (self.expr(start)?, self.expr(end)?);
                self.same(&end.ty, &start.ty, end.span);
                Ok((start, end, matches!(range.limits, syn::RangeLimits::Closed(_)), false, None))
            }
            syn::Expr::MethodCall(call) if call.method == "rev" => {
                let (start, end, inclusive, reversed, step) = self.range(&call.receiver)?;
                if step.is_some() {
                    return fail(
                        call.method.span(),
                        "`rev` of a range with steps is not translated: compute the index",
                    );
                }
                Ok((start, end, inclusive, !reversed, None))
            }
            syn::Expr::MethodCall(call) if call.method == "step_by" && call.args.len() == 1 => {
                let (start, end, inclusive, reversed, step) = self.range(&call.receiver)?;
                if step.is_some() || reversed || inclusive {
                    return fail(
                        call.method.span(),
                        "`step_by` is translated for `a..b` only: compute the index",
                    );
                }
                let step = self.expr(&call.args[0])?;
                self.same(&step.ty, &Ty::USIZE, step.span);
                Ok((start, end, false, false, Some(step)))
            }
            other => fail(other.span(), over),
        }
    }

    fn target(&self, label: Option<&syn::Lifetime>, span: Span) -> Result<usize> {
        let found = match label {
            Some(label) => {
                let name = label.ident.to_string();
                self.loops.iter().rposition(|one| one.label.as_deref() == Some(name.as_str()))
            }
            None => self.loops.iter().rposition(|one| !one.once),
        };
        match found {
            Some(found) => Ok(found),
            None => fail(span, "this jump is in no loop of the function"),
        }
    }

    /// `break`.
    pub(super) fn break_expr(&mut self, expr: &syn::ExprBreak) -> Result<Expr> {
        let target = self.target(expr.label.as_ref(), expr.span())?;
        let (id, ty) = (self.loops[target].id, self.loops[target].value.clone());
        let value = match (&expr.expr, ty) {
            (Some(value), Some(ty)) => {
                let value = self.expr(value)?;
                self.same(&value.ty, &ty, value.span);
                Some(Box::new(value))
            }
            (Some(value), None) => return fail(value.span(), "only `loop` and labeled blocks have values"),
            (None, Some(ty)) => {
                self.same(&ty, &Ty::Unit, expr.span());
                None
            }
            (None, None) => None,
        };
        Ok(Self::expr_of(Ty::Never, expr.span(), Kind::Break(id, value)))
    }

    /// `continue`.
    pub(super) fn continue_expr(&mut self, expr: &syn::ExprContinue) -> Result<Expr> {
        let target = self.target(expr.label.as_ref(), expr.span())?;
        Ok(Self::expr_of(Ty::Never, expr.span(), Kind::Continue(self.loops[target].id)))
    }
}

/// The block with its value, `()`, as a statement.
pub(super) fn unit(mut block: Block) -> Block {
    if let Some(tail) = block.tail.take() {
        block.statements.push(crate::hir::Statement::Expr(*tail));
    }
    block
}

/// Whether control does not reach the block's end.
pub(super) fn ends(block: &Block) -> bool {
    block.tail.as_ref().is_some_and(|tail| tail.ty == Ty::Never)
        || block
            .statements
            .iter()
            .any(|statement| matches!(statement, crate::hir::Statement::Expr(expr) if expr.ty == Ty::Never))
}

/// Whether a `break` in the block has this target.
fn breaks(block: &Block, id: usize) -> bool {
    let mut found = false;
    crate::visit::block(block, &mut |expr| {
        found |= matches!(&expr.kind, Kind::Break(target, _) if *target == id)
    });
    found
}
