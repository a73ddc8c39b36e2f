//! Calls of helper functions.

use super::expressions::join;
use super::{Code, Emit};
use crate::error::Result;
use crate::hir::{Expr, Kind};
use crate::program::Instance;
use crate::types::{Space, Ty};

impl Emit<'_, '_> {
    /// The address space of what a reference refers to.
    fn space(&self, expr: &Expr) -> Space {
        match &expr.kind {
            Kind::Local(local) => self.function.locals[*local].space,
            Kind::Index(base, _) | Kind::Field(base, _) | Kind::Borrow(base) | Kind::Deref(base) => {
                self.space(base)
            }
            _ => Space::Thread,
        }
    }

    pub(super) fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        generics: &[(String, Ty)],
        constants: &[(String, String)],
        arguments: &[Expr],
    ) -> Result<Code> {
        let spaces = arguments
            .iter()
            .map(|argument| match argument.ty {
                Ty::Ref { .. } => self.space(argument),
                _ => Space::Thread,
            })
            .collect();
        let generics = generics.iter().map(|(name, ty)| (name.clone(), self.table.resolve(ty))).collect();
        let instance =
            Instance { function: function.to_owned(), generics, constants: constants.to_vec(), spaces };
        let callee = self.program.instance(&instance, expr.span)?;
        let arguments_: Vec<&Expr> = arguments.iter().collect();
        let codes = self.operands(&arguments_)?;
        let mut given = Vec::new();
        for (index, (argument, code)) in arguments.iter().zip(codes).enumerate() {
            let ty = self.ty(argument);
            let Ty::Ref { inner, .. } = &ty else {
                given.push(code);
                continue;
            };
            if is_constant(argument) {
                return self.error(
                    argument,
                    "kernels pass no references to constants: name the constant in the function",
                );
            }
            let length = callee.lengths.contains(&index);
            match (inner.as_ref(), callee.parameters.get(index)) {
                (Ty::Array(_, length_of), Some(Ty::Ref { inner, .. })) if matches!(**inner, Ty::Slice(_)) => {
                    given.push(Code::primary(format!("&{}[0]", code.within(super::PRIMARY))));
                    if length {
                        given.push(Code::primary(format!("uint({length_of})")));
                    }
                }
                (Ty::Slice(_), _) => {
                    given.push(code);
                    if length {
                        let Some(local) = root(argument) else {
                            return self.error(argument, "pass the slice itself");
                        };
                        self.lengths.insert(local);
                        given.push(Code::primary(format!("{}_len", self.function.locals[local].name)));
                    }
                }
                _ => {
                    let is_place = matches!(argument.kind, Kind::Local(_)) || is_place(argument);
                    let in_constant = root(argument)
                        .is_some_and(|local| self.program.in_constant(&self.function.locals[local].name));
                    if is_place && !in_constant {
                        given.push(code);
                    } else {
                        given.push(self.spill(&code, inner)?);
                    }
                }
            }
        }
        Ok(Code::primary(format!("{}({})", callee.name, join(&given))))
    }
}

/// The variable that a place is a part of.
fn root(expr: &Expr) -> Option<usize> {
    match &expr.kind {
        Kind::Local(local) => Some(*local),
        Kind::Index(base, _) | Kind::Field(base, _) | Kind::Borrow(base) | Kind::Deref(base) => root(base),
        _ => None,
    }
}

/// Whether the expression borrows a constant array.
fn is_constant(expr: &Expr) -> bool {
    match &expr.kind {
        Kind::Constant(_) => matches!(expr.ty, Ty::Array(..)),
        Kind::Index(base, _) | Kind::Borrow(base) => is_constant(base),
        _ => false,
    }
}

/// Whether the expression borrows a place.
fn is_place(expr: &Expr) -> bool {
    match &expr.kind {
        Kind::Borrow(inner) => root(inner).is_some(),
        _ => false,
    }
}
