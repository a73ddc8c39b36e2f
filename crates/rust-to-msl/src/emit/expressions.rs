//! Expressions.

use super::{Code, Emit, Into_, TERNARY, has_effect, is_stable, is_ternary};
use crate::error::Result;
use crate::hir::{Binary, Block, Expr, Kind, Operation};
use crate::print::{self, Piece};
use crate::types::{Scalar, Ty};

impl Emit<'_, '_> {
    /// The expression, with statements in front of it where it needs some.
    pub(super) fn expr(&mut self, expr: &Expr) -> Result<Code> {
        match &expr.kind {
            Kind::Integer(digits) => self.integer(expr, digits),
            Kind::Float(digits) => Ok(match self.ty(expr) {
                Ty::Scalar(Scalar::F16) => Code::primary(format!("half({digits}f)")),
                _ => number(format!("{digits}f")),
            }),
            Kind::Bool(value) => Ok(Code::primary(value.to_string())),
            Kind::Local(local) => Ok(Code::primary(self.function.locals[*local].name.clone())),
            Kind::Constant(name) => {
                if let Ty::Enum(name) = self.ty(expr) {
                    self.program.use_enum(&name)?;
                }
                self.program.use_constant(name)?;
                Ok(Code::primary(name.clone()))
            }
            Kind::Raw(text) => {
                let ty = self.ty(expr);
                let name = if text.contains("$T") { self.program.type_name(&ty)? } else { String::new() };
                Ok(number(text.replace("$T", &name)))
            }
            Kind::Unary(operator, value) => self.unary(*operator, value),
            Kind::Binary(Binary::LogicalAnd, left, right) if has_effect(right) => {
                self.lazily(left, right, true)
            }
            Kind::Binary(Binary::LogicalOr, left, right) if has_effect(right) => {
                self.lazily(left, right, false)
            }
            Kind::Binary(operator, left, right) => {
                let codes = self.operands(&[left.as_ref(), right.as_ref()])?;
                self.binary(*operator, (left, &codes[0]), (right, &codes[1]))
            }
            Kind::Cast(value) => {
                let to = self.ty(expr);
                self.cast(value, &to)
            }
            Kind::Index(..) | Kind::Field(..) | Kind::Deref(_) | Kind::Borrow(_) => self.place(expr, false),
            Kind::Operation { operation, operands, .. } => self.operation(expr, operation, operands),
            Kind::Print(pieces, values) => self.print(expr, pieces, values),
            Kind::Call { function, generics, constants, arguments } => {
                self.call(expr, function, generics, constants, arguments)
            }
            Kind::Length(local) => {
                self.lengths.insert(*local);
                Ok(Code::primary(format!("{}_len", self.function.locals[*local].name)))
            }
            Kind::Vector(lanes) => {
                let ty = self.ty(expr);
                let codes = self.all(lanes)?;
                let name = self.program.type_name(&ty)?;
                Ok(Code::primary(format!("{name}({})", join(&codes))))
            }
            Kind::Tuple(fields) | Kind::Array(fields) => {
                let ty = self.ty(expr);
                let codes = self.all(fields)?;
                let name = self.program.type_name(&ty)?;
                // `array` holds a C array, whose braces may be left out for scalars only.
                let nested = matches!(&ty, Ty::Array(element, _) if !matches!(**element, Ty::Scalar(_)));
                let (open, close) = if nested { ("{{", "}}") } else { ("{", "}") };
                Ok(Code::primary(format!("{name}{open}{}{close}", join(&codes))))
            }
            Kind::Struct(name, fields) => self.struct_value(expr, name, fields),
            Kind::Block(block) if !matches!(self.ty(expr), Ty::Unit | Ty::Never) => {
                for statement in &block.statements {
                    self.block_statement(statement)?;
                }
                match &block.tail {
                    Some(tail) => self.expr(tail),
                    None => Ok(Code::primary(String::new())),
                }
            }
            Kind::If(condition, then, Some(otherwise)) if is_ternary(then, Some(otherwise)) => {
                let condition = self.expr(condition)?;
                let then = match &then.tail {
                    Some(tail) => self.expr(tail)?,
                    None => Code::primary(String::new()),
                };
                let otherwise = self.expr(otherwise)?;
                let text = format!(
                    "{} ? {} : {}",
                    condition.within(3),
                    then.within(TERNARY + 1),
                    otherwise.within(TERNARY)
                );
                Ok(Code { text, precedence: TERNARY })
            }
            _ => self.by_statements(expr),
        }
    }

    /// A place: its indices are evaluated in order, and it is read after them. `keep` if something evaluated later may change an index.
    pub(super) fn place(&mut self, expr: &Expr, keep: bool) -> Result<Code> {
        match &expr.kind {
            Kind::Index(base, index) => {
                let base = self.place(base, keep || has_effect(index))?;
                let mut code = self.expr(index)?;
                if keep && !is_stable(self.function, index) {
                    code = self.spill(&code, &Ty::USIZE)?;
                }
                Ok(Code::primary(format!("{}[{}]", base.within(super::PRIMARY), code.text)))
            }
            Kind::Field(base, name) => {
                let base = self.place(base, keep)?;
                Ok(Code::primary(format!("{}.{name}", base.within(super::PRIMARY))))
            }
            Kind::Deref(value) | Kind::Borrow(value) => self.place(value, keep),
            _ => self.expr(expr),
        }
    }

    fn integer(&self, expr: &Expr, digits: &str) -> Result<Code> {
        let scalar = match self.ty(expr) {
            Ty::Scalar(scalar) => scalar,
            other => return self.error(expr, format!("an integer is no `{other}`")),
        };
        match digits.parse::<i128>() {
            Ok(value) => Ok(number(super::integer_text(scalar, value))),
            Err(_) => self.error(expr, "Metal has no integers of more than 64 bits"),
        }
    }

    /// The value of an expression that is statements in MSL.
    fn by_statements(&mut self, expr: &Expr) -> Result<Code> {
        let ty = self.ty(expr);
        if matches!(ty, Ty::Unit | Ty::Never) {
            self.statement(expr, &Into_::Nothing)?;
            return Ok(Code::primary(String::new()));
        }
        let name = self.declare("value", &ty)?;
        self.statement(expr, &Into_::Variable(name.clone()))?;
        Ok(Code::primary(name))
    }

    /// `a && b` or `a || b` with effects in `b`.
    fn lazily(&mut self, left: &Expr, right: &Expr, and: bool) -> Result<Code> {
        let left = self.expr(left)?;
        let name = self.fresh("value");
        self.writer.line(format!("bool {name} = {};", left.text));
        self.writer.open(if and { format!("if ({name}) {{") } else { format!("if (!{name}) {{") });
        self.statement(right, &Into_::Variable(name.clone()))?;
        self.writer.close("}");
        Ok(Code::primary(name))
    }

    fn all(&mut self, exprs: &[Expr]) -> Result<Vec<Code>> {
        let exprs: Vec<&Expr> = exprs.iter().collect();
        self.operands(&exprs)
    }

    /// Operands in order: with an effect among them, those up to it are kept in variables.
    pub(super) fn operands(&mut self, exprs: &[&Expr]) -> Result<Vec<Code>> {
        let last = exprs.iter().rposition(|expr| has_effect(expr));
        let changing = exprs.iter().filter(|expr| !is_stable(self.function, expr)).count();
        let mut codes = Vec::new();
        for (index, expr) in exprs.iter().enumerate() {
            let code = self.expr(expr)?;
            let before = last.is_some_and(|last| index <= last);
            let keep = before && changing > 1 && !is_stable(self.function, expr);
            let ty = self.ty(expr);
            codes.push(match ty {
                // A place: its index is kept where it is computed.
                Ty::Ref { .. } | Ty::Slice(_) | Ty::Unit | Ty::Never | Ty::Atomic(_) => code,
                _ if keep => self.spill(&code, &ty)?,
                _ => code,
            });
        }
        Ok(codes)
    }

    /// A line of the log.
    fn print(&mut self, expr: &Expr, pieces: &[Piece], values: &[Expr]) -> Result<Code> {
        let codes = self.all(values)?;
        let (mut format, mut next) = (String::new(), values.iter());
        for piece in pieces {
            match (piece, piece_value(piece).and_then(|style| Some((style, next.next()?)))) {
                (Piece::Text(text), _) => format.push_str(&print::escaped(text)),
                (_, Some((style, value))) => match print::conversion(style, &self.ty(value)) {
                    Ok(conversion) => format.push_str(&conversion),
                    Err(message) => return self.error(value, message),
                },
                _ => return self.error(expr, "the format has more places than there are values"),
            }
        }
        self.program.logs = true;
        let codes = if codes.is_empty() { String::new() } else { format!(", {}", join(&codes)) };
        Ok(Code::primary(format!("os_log_default.log(\"{format}\"{codes})")))
    }

    fn operation(&mut self, expr: &Expr, operation: &Operation, operands: &[Expr]) -> Result<Code> {
        let codes = self.all(operands)?;
        match operation {
            Operation::Function(name) => {
                let simd_type =
                    name.starts_with("simd_") && operands.first().is_some_and(|one| self.ty(one) == Ty::BOOL);
                let _ = simd_type;
                let narrow = self.narrow_result(name, expr, operands);
                let text = format!("{name}({})", join(&codes));
                Ok(Code::primary(match narrow {
                    Some(ty) => format!("{ty}({text})"),
                    None => text,
                }))
            }
            Operation::Support(name) => {
                let ty = operands.first().map(|one| self.ty(one));
                let Some(Ty::Scalar(scalar)) = ty else {
                    return self.error(expr, format!("`{name}` of this type is not translated to MSL"));
                };
                self.program.support(name, scalar, 1);
                Ok(Code::primary(format!("{name}({})", join(&codes))))
            }
            Operation::Text(text) => {
                let ty = self.ty(expr);
                let name = if text.contains("$T") { self.program.type_name(&ty)? } else { String::new() };
                let mut out = text.replace("$T", &name);
                for (index, code) in codes.iter().enumerate() {
                    let hole = format!("${index}");
                    // Inside a call's parentheses alone, no others are needed.
                    let inside = format!("({hole})");
                    let comma = format!(", {hole}");
                    let code = if text.contains(&inside)
                        || text.contains(&comma) && !text.contains(&format!("{hole} "))
                    {
                        code.text.clone()
                    } else {
                        code.within(super::PRIMARY)
                    };
                    out = out.replace(&hole, &code);
                }
                let precedence =
                    if text.contains("$0 *") || text.ends_with("/ $0") { 13 } else { super::PRIMARY };
                Ok(Code { text: out, precedence })
            }
        }
    }

    /// The type of the result, where Metal's function gives another for a narrow integer.
    fn narrow_result(&self, name: &str, expr: &Expr, operands: &[Expr]) -> Option<&'static str> {
        let _ = operands;
        match self.ty(expr) {
            Ty::Scalar(scalar) if scalar.is_integer() && scalar.bits() < 32 && !name.starts_with("simd") => {
                Some(scalar.msl())
            }
            _ => None,
        }
    }

    fn struct_value(&mut self, expr: &Expr, name: &str, fields: &[(String, Expr)]) -> Result<Code> {
        self.program.use_struct(name)?;
        let values: Vec<&Expr> = fields.iter().map(|(_, value)| value).collect();
        let codes = self.operands(&values)?;
        let mut ordered = Vec::new();
        for (field, ..) in self.program.items.fields(name, expr.span)? {
            let field = crate::lower::field_name(&field);
            match fields.iter().position(|(given, _)| *given == field) {
                Some(index) => ordered.push(codes[index].clone()),
                None => return self.error(expr, format!("`{name}` also has the field `{field}`")),
            }
        }
        Ok(Code::primary(format!("{name}{{{}}}", join(&ordered))))
    }

    /// A block, with its value.
    pub(super) fn block(&mut self, block: &Block, into: &Into_) -> Result<()> {
        for statement in &block.statements {
            self.block_statement(statement)?;
        }
        match &block.tail {
            Some(tail) => self.statement(tail, into),
            None => Ok(()),
        }
    }
}

fn piece_value(piece: &Piece) -> Option<&print::Style> {
    match piece {
        Piece::Value(style) => Some(style),
        Piece::Text(_) => None,
    }
}

/// A literal, which binds as an operator if it is negative.
fn number(text: String) -> Code {
    let precedence = if text.starts_with('-') { super::UNARY } else { super::PRIMARY };
    Code { text, precedence }
}

/// The codes as a list of arguments.
pub(super) fn join(codes: &[Code]) -> String {
    codes.iter().map(|code| code.text.clone()).collect::<Vec<_>>().join(", ")
}
