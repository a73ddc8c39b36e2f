//! Operators and casts with Rust's semantics.

use super::{Code, Emit, PRIMARY, UNARY};
use crate::error::Result;
use crate::hir::{Binary, Expr, Kind, Unary};
use crate::types::{Scalar, Ty};

/// The operator's text and precedence in C++.
fn spelled(operator: Binary) -> (&'static str, u8) {
    match operator {
        Binary::Mul => ("*", 13),
        Binary::Div => ("/", 13),
        Binary::Rem => ("%", 13),
        Binary::Add => ("+", 12),
        Binary::Sub => ("-", 12),
        Binary::Shl => ("<<", 11),
        Binary::Shr => (">>", 11),
        Binary::Less => ("<", 9),
        Binary::LessEqual => ("<=", 9),
        Binary::Greater => (">", 9),
        Binary::GreaterEqual => (">=", 9),
        Binary::Equal => ("==", 8),
        Binary::NotEqual => ("!=", 8),
        Binary::And => ("&", 7),
        Binary::Xor => ("^", 6),
        Binary::Or => ("|", 5),
        Binary::LogicalAnd => ("&&", 4),
        Binary::LogicalOr => ("||", 3),
    }
}

fn infix(operator: Binary, left: &Code, right: &Code) -> Code {
    let (text, precedence) = spelled(operator);
    // Mixed `&`, `|`, shifts and comparisons are hard to read without parentheses.
    let careful = matches!(operator, Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr);
    let (l, r) = if careful { (UNARY, UNARY) } else { (precedence, precedence + 1) };
    Code { text: format!("{} {text} {}", left.within(l), right.within(r)), precedence }
}

fn cast(ty: &str, code: &Code) -> Code {
    Code::primary(format!("{ty}({})", code.text))
}

impl Emit<'_, '_> {
    pub(super) fn binary(
        &mut self,
        operator: Binary,
        (left, left_code): (&Expr, &Code),
        (right, right_code): (&Expr, &Code),
    ) -> Result<Code> {
        let (ty, right_ty) = (self.ty(left), self.ty(right));
        let result = match (&ty, &right_ty) {
            (Ty::Scalar(_), Ty::Vector(..)) => right_ty.clone(),
            _ => ty.clone(),
        };
        let plain = infix(operator, left_code, right_code);
        if matches!(operator, Binary::LogicalAnd | Binary::LogicalOr) {
            return Ok(plain);
        }
        let is_comparison = matches!(
            operator,
            Binary::Equal
                | Binary::NotEqual
                | Binary::Less
                | Binary::LessEqual
                | Binary::Greater
                | Binary::GreaterEqual
        );
        if is_comparison {
            return Ok(match (&ty, operator) {
                (Ty::Vector(..), Binary::Equal) => Code::primary(format!("all({})", plain.text)),
                (Ty::Vector(..), Binary::NotEqual) => Code::primary(format!("any({})", plain.text)),
                _ => plain,
            });
        }
        if let Ty::Param(name) = &result {
            let support = match operator {
                Binary::Add => "add",
                Binary::Sub => "sub",
                Binary::Mul => "mul",
                Binary::Div => "div",
                Binary::Rem => "rem",
                _ => {
                    return self.error(left, format!("type parameters (`{name}`) have + - * / % in kernels"));
                }
            };
            self.program.generic_operator(support);
            return Ok(Code::primary(format!("{support}({}, {})", left_code.text, right_code.text)));
        }
        let Some(scalar) = result.scalar() else {
            return self.error(left, format!("`{result}` has no such operator in kernels"));
        };
        let lanes = if let Ty::Vector(lanes, _) = result { lanes } else { 1 };
        if scalar.is_float() {
            return Ok(match operator {
                Binary::Rem => Code::primary(format!("fmod({}, {})", left_code.text, right_code.text)),
                _ => plain,
            });
        }
        if scalar == Scalar::Bool {
            return Ok(cast("bool", &plain));
        }
        if self.constant && !matches!(operator, Binary::Shl | Binary::Shr) {
            return Ok(plain);
        }
        let is_narrow = scalar.bits() < 32 && lanes == 1;
        let name = self.program.type_name(&result)?;
        let narrowed = |code: Code| if is_narrow { cast(&name, &code) } else { code };
        let support = match operator {
            Binary::And | Binary::Or | Binary::Xor => return Ok(narrowed(plain)),
            Binary::Add if is_narrow || scalar.is_signed() => "wrapping_add",
            Binary::Sub if is_narrow || scalar.is_signed() => "wrapping_sub",
            Binary::Mul if is_narrow || scalar.is_signed() => "wrapping_mul",
            Binary::Div | Binary::Rem if lanes == 1 => {
                if literal(right).is_some_and(|value| value != 0 && value != -1) {
                    return Ok(narrowed(plain));
                }
                if operator == Binary::Div { "divide" } else { "remainder" }
            }
            Binary::Shl | Binary::Shr if lanes == 1 => {
                let amount = literal(right).filter(|amount| (0..i128::from(scalar.bits())).contains(amount));
                let amount_code = match amount {
                    Some(amount) => Code::primary(format!("{amount}u")),
                    None => right_code.clone(),
                };
                if amount.is_some() && (operator == Binary::Shr || !scalar.is_signed()) {
                    return Ok(narrowed(infix(operator, left_code, &amount_code)));
                }
                let support = if operator == Binary::Shl { "shift_left" } else { "shift_right" };
                self.program.support(support, scalar, 1);
                // A negative or wide amount keeps its low bits.
                let amount =
                    if amount.is_some() || matches!(right_ty, Ty::Scalar(Scalar::U32 | Scalar::Usize)) {
                        amount_code.text
                    } else {
                        format!("uint({})", amount_code.text)
                    };
                return Ok(Code::primary(format!("{support}({}, {amount})", left_code.text)));
            }
            Binary::Div | Binary::Rem | Binary::Shl | Binary::Shr => {
                return self
                    .error(left, "vectors of integers have + - * & | ^ in kernels: compute lanes alone");
            }
            _ => return Ok(plain),
        };
        self.program.support(support, scalar, lanes);
        let wide = |expr: &Expr, code: &Code, ty: &Ty| {
            let _ = expr;
            if lanes > 1 && !matches!(ty, Ty::Vector(..)) {
                format!("{name}({})", code.text)
            } else {
                code.text.clone()
            }
        };
        Ok(Code::primary(format!(
            "{support}({}, {})",
            wide(left, left_code, &ty),
            wide(right, right_code, &right_ty)
        )))
    }

    pub(super) fn unary(&mut self, operator: Unary, value: &Expr) -> Result<Code> {
        let code = self.expr(value)?;
        let ty = self.ty(value);
        let Some(scalar) = ty.scalar() else {
            return match (&ty, operator) {
                (Ty::Param(_), Unary::Neg) => {
                    Ok(Code { text: format!("-{}", code.within(PRIMARY)), precedence: UNARY })
                }
                _ => self.error(value, format!("`{ty}` has no such operator in kernels")),
            };
        };
        let lanes = if let Ty::Vector(lanes, _) = ty { lanes } else { 1 };
        match operator {
            Unary::Not if scalar == Scalar::Bool => {
                Ok(Code { text: format!("!{}", code.within(UNARY)), precedence: UNARY })
            }
            Unary::Not => {
                let code = Code { text: format!("~{}", code.within(UNARY)), precedence: UNARY };
                let name = self.program.type_name(&ty)?;
                Ok(if scalar.bits() < 32 && lanes == 1 { cast(&name, &code) } else { code })
            }
            Unary::Neg if scalar.is_float() => {
                Ok(Code { text: format!("-{}", code.within(PRIMARY)), precedence: UNARY })
            }
            Unary::Neg => {
                self.program.support("negate", scalar, lanes);
                Ok(Code::primary(format!("negate({})", code.text)))
            }
        }
    }

    pub(super) fn cast(&mut self, value: &Expr, to: &Ty) -> Result<Code> {
        let code = self.expr(value)?;
        let from = self.ty(value);
        let name = self.program.type_name(to)?;
        if from == *to || self.program.type_name(&from).is_ok_and(|from| from == name) {
            return Ok(code);
        }
        let (from, to) = match (&from, to) {
            (Ty::Enum(_), Ty::Scalar(to)) => (Scalar::U32, *to),
            (Ty::Scalar(from), Ty::Scalar(to)) => (*from, *to),
            _ => return self.error(value, format!("`{from}` does not convert to `{to}` in kernels")),
        };
        if from.is_float() && to.is_integer() {
            let function = self.program.saturating(to);
            let value = if from == Scalar::F16 { format!("float({})", code.text) } else { code.text };
            return Ok(Code::primary(format!("{function}({value})")));
        }
        Ok(cast(&name, &code))
    }
}

/// The value of an integer literal.
pub(super) fn literal(expr: &Expr) -> Option<i128> {
    match &expr.kind {
        Kind::Integer(digits) => digits.parse().ok(),
        _ => None,
    }
}
