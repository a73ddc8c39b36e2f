//! Literals, and macros in expressions, which kernels lack.

use syn::spanned::Spanned;

use super::Lower;
use crate::error::{Result, fail};
use crate::hir::{Expr, Kind};
use crate::types::{Scalar, Ty};

impl Lower<'_> {
    /// A literal, negated in a pattern.
    pub(super) fn literal(&mut self, literal: &syn::Lit, negative: bool) -> Result<Expr> {
        let span = literal.span();
        let sign = if negative { "-" } else { "" };
        let suffixed = |suffix: &str| Scalar::named(suffix).map(Ty::Scalar);
        match literal {
            syn::Lit::Bool(value) => Ok(Self::expr_of(Ty::BOOL, span, Kind::Bool(value.value))),
            syn::Lit::Int(int) => {
                let digits = format!("{sign}{}", int.base10_digits());
                let ty = match int.suffix() {
                    "" => self.table.integer(),
                    "f64" => return fail(span, "Metal has no `f64`: use `f32`"),
                    suffix => match suffixed(suffix) {
                        Some(ty) => ty,
                        None => {
                            return fail(
                                span,
                                format!("Metal has no `{suffix}`: use a type of at most 64 bits"),
                            );
                        }
                    },
                };
                if ty.scalar().is_some_and(Scalar::is_float) {
                    return Ok(Self::expr_of(ty, span, Kind::Float(format!("{digits}.0"))));
                }
                Ok(Self::expr_of(ty, span, Kind::Integer(digits)))
            }
            syn::Lit::Float(float) => {
                let ty = match float.suffix() {
                    "" => self.table.float(),
                    "f64" => return fail(span, "Metal has no `f64`: use `f32`"),
                    suffix => match suffixed(suffix) {
                        Some(ty) => ty,
                        None => return fail(span, format!("Metal has no `{suffix}`: use `f32`")),
                    },
                };
                self.obligations.push((ty.clone(), span));
                let mut digits = format!("{sign}{}", float.base10_digits());
                if digits.ends_with('.') {
                    digits.push('0');
                }
                if !digits.contains(['.', 'e', 'E']) {
                    digits.push_str(".0");
                }
                Ok(Self::expr_of(ty, span, Kind::Float(digits)))
            }
            syn::Lit::Byte(byte) => {
                Ok(Self::expr_of(Ty::Scalar(Scalar::U8), span, Kind::Integer(byte.value().to_string())))
            }
            syn::Lit::Str(_) | syn::Lit::ByteStr(_) | syn::Lit::CStr(_) | syn::Lit::Char(_) => {
                fail(span, "kernels have no text: use numbers, such as the byte `b'a'`")
            }
            _ => fail(span, "this literal is not one that kernels use"),
        }
    }

    /// A macro as an expression or statement; `None` if it is nothing on devices.
    pub(super) fn expr_macro(&mut self, call: &syn::Macro) -> Result<Option<Expr>> {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let span = call.path.span();
        match name.as_str() {
            "printf" => {
                let print = crate::print::read(call)?;
                let values =
                    print.values.iter().map(|value| self.expr(&value.expr)).collect::<Result<_>>()?;
                Ok(Some(Self::expr_of(Ty::Unit, span, Kind::Print(print.pieces, values))))
            }
            // Checked by the host's version alone.
            "debug_assert" | "debug_assert_eq" | "debug_assert_ne" => Ok(None),
            "panic" | "todo" | "unimplemented" | "unreachable" => fail(
                span,
                format!(
                    "kernels do not panic (`{name}!`): `return`, and write a number that means the error to an argument"
                ),
            ),
            "assert" | "assert_eq" | "assert_ne" => fail(
                span,
                format!(
                    "kernels do not panic (`{name}!`): use `debug_{name}!`, which only the host's version checks"
                ),
            ),
            "println" | "print" | "eprintln" | "eprint" | "dbg" => {
                fail(span, format!("kernels print with `printf!`, not `{name}!`"))
            }
            "vec" | "format" => {
                fail(span, format!("kernels do not allocate (`{name}!`): use an array, as in `[0.0f32; 16]`"))
            }
            _ => fail(
                span,
                format!("kernels call no macros (`{name}!`): write a function with `#[elinvar::device]`"),
            ),
        }
    }
}
