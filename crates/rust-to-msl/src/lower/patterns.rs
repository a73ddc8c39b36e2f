//! Patterns: bindings of `let`, and the arms of `match`.

use proc_macro2::Span;
use syn::spanned::Spanned;

use super::Lower;
use crate::error::{Result, fail};
use crate::hir::{Arm, Binary, Expr, Kind, Statement};
use crate::names::is_constant;
use crate::types::Ty;

/// The names that a pattern binds.
pub(super) fn names(pattern: &syn::Pat) -> Vec<String> {
    match pattern {
        syn::Pat::Ident(ident) => vec![ident.ident.to_string()],
        syn::Pat::Type(typed) => names(&typed.pat),
        syn::Pat::Tuple(tuple) => tuple.elems.iter().flat_map(names).collect(),
        syn::Pat::TupleStruct(tuple) => tuple.elems.iter().flat_map(names).collect(),
        syn::Pat::Paren(paren) => names(&paren.pat),
        _ => Vec::new(),
    }
}

/// The test of a pattern, and what it binds.
#[derive(Default)]
struct Test {
    condition: Option<Expr>,
    bindings: Vec<Statement>,
}

impl Lower<'_> {
    /// Binds the names of a pattern that matches every value.
    pub(super) fn bind_pattern(
        &mut self,
        pattern: &syn::Pat,
        value: Expr,
        span: Span,
        statements: &mut Vec<Statement>,
    ) -> Result<()> {
        match pattern {
            syn::Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
                let name = ident.ident.to_string();
                let ty = value.ty.clone();
                if let Ty::Ref { .. } = self.table.shallow(&ty) {
                    return fail(
                        value.span,
                        "kernels keep no references in variables: copy the value, or index the slice where it is used",
                    );
                }
                self.obligations.push((ty.clone(), ident.ident.span()));
                let index = self.variable(&name, ty, ident.mutability.is_some());
                statements.push(Statement::Let(index, Some(value), span));
                Ok(())
            }
            syn::Pat::Wild(_) => {
                statements.push(Statement::Expr(value));
                Ok(())
            }
            syn::Pat::Paren(paren) => self.bind_pattern(&paren.pat, value, span, statements),
            syn::Pat::Type(typed) => {
                let ty = self.ty(&typed.ty)?;
                self.same(&value.ty, &ty, value.span);
                self.bind_pattern(&typed.pat, value, span, statements)
            }
            syn::Pat::Tuple(tuple) => {
                let fields: Vec<Ty> = tuple.elems.iter().map(|_| self.table.any()).collect();
                let whole = Ty::Tuple(fields.clone());
                self.same(&value.ty, &whole, value.span);
                let index = self.temporary("tuple", whole.clone());
                statements.push(Statement::Let(index, Some(value), span));
                for (at, (pattern, ty)) in tuple.elems.iter().zip(fields).enumerate() {
                    if matches!(pattern, syn::Pat::Wild(_)) {
                        continue;
                    }
                    let whole = Self::expr_of(whole.clone(), span, Kind::Local(index));
                    let field = Self::expr_of(ty, span, Kind::Field(Box::new(whole), format!("_{at}")));
                    self.bind_pattern(pattern, field, span, statements)?;
                }
                Ok(())
            }
            syn::Pat::Reference(_) => fail(pattern.span(), "kernels have no patterns of references: use `*`"),
            _ => fail(pattern.span(), "a pattern of a `let` in a kernel is a name or a tuple of names"),
        }
    }

    /// The arms of a `match` on a local.
    pub(super) fn arms(&mut self, scrutinee: &Expr, arms: &[syn::Arm], ty: &Ty) -> Result<Vec<Arm>> {
        let count = arms.len();
        let mut lowered = Vec::new();
        for (index, arm) in arms.iter().enumerate() {
            self.scopes.push(std::collections::HashMap::new());
            let result = self.arm(scrutinee, arm, ty, index + 1 == count);
            self.scopes.pop();
            lowered.push(result?);
        }
        Ok(lowered)
    }

    fn arm(&mut self, scrutinee: &Expr, arm: &syn::Arm, ty: &Ty, last: bool) -> Result<Arm> {
        let mut test = Test::default();
        self.test(&arm.pat, scrutinee, &mut test)?;
        let guard = match &arm.guard {
            Some((_, guard)) => {
                let guard = self.expr(guard)?;
                self.same(&guard.ty, &Ty::BOOL, guard.span);
                Some(guard)
            }
            None => None,
        };
        let body = self.expr(&arm.body)?;
        self.same(&body.ty, ty, body.span);
        // rustc has checked that the arms are exhaustive.
        let condition = if last && guard.is_none() { None } else { test.condition };
        Ok(Arm { condition, bindings: test.bindings, guard, body })
    }

    fn test(&mut self, pattern: &syn::Pat, value: &Expr, test: &mut Test) -> Result<()> {
        let span = pattern.span();
        let compare = |op: Binary, left: &Expr, right: Expr| {
            Self::expr_of(Ty::BOOL, span, Kind::Binary(op, Box::new(left.clone()), Box::new(right)))
        };
        let condition = match pattern {
            syn::Pat::Wild(_) => return Ok(()),
            syn::Pat::Paren(paren) => return self.test(&paren.pat, value, test),
            syn::Pat::Ident(ident) if is_constant(&ident.ident.to_string()) && ident.subpat.is_none() => {
                let constant = self.path(&ident.ident.clone().into())?;
                self.same(&value.ty, &constant.ty, span);
                compare(Binary::Equal, value, constant)
            }
            syn::Pat::Ident(ident) => {
                if let Some((_, pattern)) = &ident.subpat {
                    self.test(pattern, value, test)?;
                }
                let index =
                    self.variable(&ident.ident.to_string(), value.ty.clone(), ident.mutability.is_some());
                test.bindings.push(Statement::Let(index, Some(value.clone()), span));
                return Ok(());
            }
            syn::Pat::Lit(literal) => {
                let literal = self.literal(&literal.lit, false)?;
                self.same(&literal.ty, &value.ty, span);
                self.equal(value, literal, span)
            }
            syn::Pat::Path(path) => {
                let constant = self.path(&path.path)?;
                self.same(&value.ty, &constant.ty, span);
                compare(Binary::Equal, value, constant)
            }
            syn::Pat::Range(range) => {
                let mut condition = None;
                if let Some(start) = &range.start {
                    let start = self.expr(start)?;
                    self.same(&value.ty, &start.ty, span);
                    condition = Some(compare(Binary::GreaterEqual, value, start));
                }
                if let Some(end) = &range.end {
                    let end = self.expr(end)?;
                    self.same(&value.ty, &end.ty, span);
                    let op = match range.limits {
                        syn::RangeLimits::Closed(_) => Binary::LessEqual,
                        syn::RangeLimits::HalfOpen(_) => Binary::Less,
                    };
                    let below = compare(op, value, end);
                    condition = Some(and(condition, below));
                }
                match condition {
                    Some(condition) => condition,
                    None => return Ok(()),
                }
            }
            syn::Pat::Or(or) => {
                let mut any: Option<Expr> = None;
                for case in &or.cases {
                    let mut inner = Test::default();
                    self.test(case, value, &mut inner)?;
                    if !inner.bindings.is_empty() {
                        return fail(
                            case.span(),
                            "alternatives of a pattern bind no names in kernels: use `name @ (1 | 2)`",
                        );
                    }
                    let Some(condition) = inner.condition else { return Ok(()) };
                    any = Some(match any {
                        Some(any) => Self::expr_of(
                            Ty::BOOL,
                            span,
                            Kind::Binary(Binary::LogicalOr, Box::new(any), Box::new(condition)),
                        ),
                        None => condition,
                    });
                }
                match any {
                    Some(any) => any,
                    None => return Ok(()),
                }
            }
            syn::Pat::Tuple(tuple) => {
                let fields: Vec<Ty> = tuple.elems.iter().map(|_| self.table.any()).collect();
                self.same(&value.ty, &Ty::Tuple(fields.clone()), span);
                for (at, (pattern, ty)) in tuple.elems.iter().zip(fields).enumerate() {
                    let field =
                        Self::expr_of(ty, span, Kind::Field(Box::new(value.clone()), format!("_{at}")));
                    self.test(pattern, &field, test)?;
                }
                return Ok(());
            }
            syn::Pat::TupleStruct(_) => {
                return fail(
                    span,
                    "kernels have no enums with fields, such as `Option`: match on a number or a `bool`",
                );
            }
            _ => {
                return fail(
                    span,
                    "kernels match numbers, ranges, constants, enums without fields, and tuples of these",
                );
            }
        };
        let condition = and(test.condition.take(), condition);
        test.condition = Some(condition);
        Ok(())
    }

    fn equal(&mut self, value: &Expr, literal: Expr, span: Span) -> Expr {
        match literal.kind {
            Kind::Bool(true) => value.clone(),
            Kind::Bool(false) => {
                Self::expr_of(Ty::BOOL, span, Kind::Unary(crate::hir::Unary::Not, Box::new(value.clone())))
            }
            _ => Self::expr_of(
                Ty::BOOL,
                span,
                Kind::Binary(Binary::Equal, Box::new(value.clone()), Box::new(literal)),
            ),
        }
    }
}

fn and(first: Option<Expr>, second: Expr) -> Expr {
    match first {
        Some(first) => Expr {
            ty: Ty::BOOL,
            span: second.span,
            kind: Kind::Binary(Binary::LogicalAnd, Box::new(first), Box::new(second)),
        },
        None => second,
    }
}
