//! Arithmetic in `double`, which Metal does not have.
//!
//! Constants of C++ are often `double` without need: `0.5 * x`. An operation on two values of `float` in `double`, rounded to `float`, has
//! the result of the operation in `float`, because 53 ≥ 2·24 + 2 (Figueroa, "When is double rounding innocuous?", 1995). Such operations, and
//! constants, are translated; others are refused.

use super::Renderer;
use crate::cuda::ast::Node;
use crate::cuda::types::Scalar;

impl Renderer<'_, '_> {
    /// A `double` that is converted to a smaller type, if the result is the same without `double`.
    pub(super) fn narrow(&mut self, node: &Node, to: Scalar) -> Option<String> {
        if let Some(value) = self.constant(node) {
            return Some(literal(value, to));
        }
        let convert = |text: String| match to {
            Scalar::Float => text,
            _ => format!("{}({text})", to.word()),
        };
        match node.kind.as_str() {
            "ParenExpr" => return self.narrow(node.first()?, to).map(|inner| format!("({inner})")),
            "UnaryOperator" if node.opcode == "-" => {
                return self.narrow(node.first()?, to).map(|inner| format!("-{}", Self::wrap(&inner)));
            }
            "ConditionalOperator" => {
                let [condition, one, other] = &node.children[..] else { return None };
                let (one, other) = (self.narrow(one, to)?, self.narrow(other, to)?);
                let condition = self.expr(condition);
                return Some(format!("({condition} ? {one} : {other})"));
            }
            "BinaryOperator" if matches!(node.opcode.as_str(), "+" | "-" | "*" | "/") => {
                let [a, b] = &node.children[..] else { return None };
                let fits = |this: &mut Self, operand: &Node| match to {
                    Scalar::Float => true,
                    _ => {
                        this.origin(operand) == Some(to)
                            || this.constant(operand).is_some_and(|value| fits(value, to))
                    }
                };
                if fits(self, a) && fits(self, b) {
                    let (a, b) = (self.single(a)?, self.single(b)?);
                    return Some(convert(format!("({a} {} {b})", node.opcode)));
                }
            }
            "CallExpr" if to == Scalar::Float => {
                let name = node.first()?.bare().refers.as_ref()?.name.clone();
                if name == "sqrt" {
                    let inner = self.single(node.children.get(1)?)?;
                    return Some(format!("precise::sqrt({inner})"));
                }
            }
            "ImplicitCastExpr" | "CXXStaticCastExpr" | "CStyleCastExpr" | "CXXFunctionalCastExpr"
                if node.cast == "IntegralToFloating" =>
            {
                let inner = node.first()?;
                // 64 bits are rounded to `double` first.
                let from = self.scalar(inner)?;
                if matches!(from, Scalar::Int | Scalar::UInt) && to == Scalar::Float {
                    return Some(format!("float({})", self.expr(inner)));
                }
            }
            _ => {}
        }
        if let Some(text) = self.single(node) {
            return Some(convert(text));
        }
        if self.loose {
            self.notes.difference("arithmetic in `double` is computed in `float`");
            let text = self.expr(node);
            return Some(convert(Self::wrap(&text)));
        }
        None
    }

    /// A `double` whose value is one of `float`, as that.
    pub(super) fn single(&mut self, node: &Node) -> Option<String> {
        if let Some(value) = self.constant(node) {
            return fits(value, Scalar::Float).then(|| literal(value, Scalar::Float));
        }
        match node.kind.as_str() {
            "ParenExpr" => self.single(node.first()?).map(|inner| format!("({inner})")),
            "UnaryOperator" if node.opcode == "-" || node.opcode == "+" => {
                self.single(node.first()?).map(|inner| format!("{}{}", node.opcode, Self::wrap(&inner)))
            }
            "ConditionalOperator" => {
                let [condition, one, other] = &node.children[..] else { return None };
                let (one, other) = (self.single(one)?, self.single(other)?);
                let condition = self.expr(condition);
                Some(format!("({condition} ? {one} : {other})"))
            }
            "ImplicitCastExpr" | "CXXStaticCastExpr" | "CStyleCastExpr" | "CXXFunctionalCastExpr" => {
                let inner = node.first()?;
                if node.cast == "NoOp" {
                    return self.single(inner);
                }
                let from = self.scalar(inner)?;
                if !from.fits_float() {
                    return None;
                }
                let text = self.expr(inner);
                Some(if from == Scalar::Float { Self::wrap(&text) } else { format!("float({text})") })
            }
            "CallExpr" => {
                let name = node.first()?.bare().refers.as_ref()?.name.clone();
                if !matches!(
                    name.as_str(),
                    "fabs"
                        | "fmax"
                        | "fmin"
                        | "floor"
                        | "ceil"
                        | "trunc"
                        | "round"
                        | "rint"
                        | "abs"
                        | "max"
                        | "min"
                ) {
                    return None;
                }
                let args: Option<Vec<String>> =
                    node.children.iter().skip(1).map(|arg| self.single(arg)).collect();
                Some(format!("{}({})", name.replace("abs", "fabs").replace("ff", "f"), args?.join(", ")))
            }
            _ => None,
        }
    }

    /// The type whose value a `double` is.
    fn origin(&self, node: &Node) -> Option<Scalar> {
        let mut node = node;
        while node.kind == "ParenExpr"
            || (node.kind.ends_with("CastExpr") && self.scalar(node) == Some(Scalar::Double))
        {
            node = node.first()?;
        }
        self.scalar(node)
    }

    /// A comparison of two `double`s.
    pub(super) fn compare(&mut self, node: &Node) -> Option<String> {
        let [a, b] = &node.children[..] else { return None };
        if let (Some(a), Some(b)) = (self.single(a), self.single(b)) {
            return Some(format!("{a} {} {b}", node.opcode));
        }
        // A constant between two values of `float`.
        let (value, other, op) = match (self.constant(a), self.constant(b)) {
            (None, Some(value)) => (value, a, node.opcode.as_str()),
            (Some(value), None) => (
                value,
                b,
                match node.opcode.as_str() {
                    "<" => ">",
                    ">" => "<",
                    "<=" => ">=",
                    ">=" => "<=",
                    same => same,
                },
            ),
            _ => (f64::NAN, a, ""),
        };
        let text = self.single(other);
        if let (Some(text), false) = (text, value.is_nan() || op.is_empty()) {
            let near = value as f32;
            let (below, above) =
                if f64::from(near) < value { (near, near.next_up()) } else { (near.next_down(), near) };
            return Some(match op {
                "<" | "<=" => format!("{text} <= {}", literal(f64::from(below), Scalar::Float)),
                ">" | ">=" => format!("{text} >= {}", literal(f64::from(above), Scalar::Float)),
                "==" => "false".into(),
                _ => "true".into(),
            });
        }
        if self.loose {
            self.notes.difference("arithmetic in `double` is computed in `float`");
            return Some(format!("{} {} {}", self.expr(a), node.opcode, self.expr(b)));
        }
        None
    }

    /// The value of a constant expression of numbers.
    pub(super) fn constant(&self, node: &Node) -> Option<f64> {
        match node.kind.as_str() {
            "FloatingLiteral" => {
                let text = self.literal_text(node)?;
                match text.strip_suffix(['f', 'F']).filter(|_| !text.starts_with("0x")) {
                    Some(text) => text.parse::<f32>().ok().map(f64::from),
                    None => text.trim_end_matches(['l', 'L']).parse().ok(),
                }
            }
            "IntegerLiteral" => node.value.parse().ok(),
            "ParenExpr" | "ConstantExpr" | "SubstNonTypeTemplateParmExpr" => {
                self.constant(node.children.last()?)
            }
            "UnaryOperator" if node.opcode == "-" => Some(-self.constant(node.first()?)?),
            "ImplicitCastExpr" | "CStyleCastExpr" | "CXXStaticCastExpr" | "CXXFunctionalCastExpr" => {
                let value = self.constant(node.first()?)?;
                match (node.cast.as_str(), self.scalar(node)?) {
                    ("FloatingCast" | "IntegralToFloating", Scalar::Double)
                    | ("NoOp" | "LValueToRValue", _) => Some(value),
                    ("FloatingCast" | "IntegralToFloating", Scalar::Float) => Some(f64::from(value as f32)),
                    ("IntegralCast", _) if value >= 0.0 => Some(value),
                    _ => None,
                }
            }
            "BinaryOperator" if self.scalar(node)? == Scalar::Double => {
                let (a, b) = (self.constant(node.first()?)?, self.constant(node.children.get(1)?)?);
                Some(match node.opcode.as_str() {
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    "/" => a / b,
                    _ => return None,
                })
            }
            "DeclRefExpr" => {
                let declared = self.program.names.nodes.get(&node.refers.as_ref()?.id)?;
                let is_const = declared.kind == "VarDecl"
                    && (declared.is_constexpr || declared.ty.starts_with("const "));
                let scalar = self.scalar(declared)?;
                if !is_const || !scalar.is_float() {
                    return None;
                }
                let value = self.constant(declared.initializer()?)?;
                Some(if scalar == Scalar::Float { f64::from(value as f32) } else { value })
            }
            _ => None,
        }
    }
}

/// Whether a number is one of a type.
fn fits(value: f64, to: Scalar) -> bool {
    let single = f64::from(value as f32) == value;
    match to {
        Scalar::Float => single,
        // 11 and 8 bits of the significand, within the range of normal numbers.
        Scalar::Half => {
            single
                && (value == 0.0
                    || (value.to_bits() & ((1 << 42) - 1) == 0 && (6.2e-5..65505.0).contains(&value.abs())))
        }
        _ => single && value.to_bits() & ((1 << 45) - 1) == 0,
    }
}

/// A number in MSL. For types smaller than `float` it is first rounded to odd, so that the second rounding gives what one would.
pub(super) fn literal(value: f64, to: Scalar) -> String {
    let single = match to {
        Scalar::Float => value as f32,
        _ => {
            let near = value as f32;
            let is_exact = f64::from(near) == value || !value.is_finite() || near.is_infinite();
            let toward_zero =
                if f64::from(near).abs() > value.abs() { f32::from_bits(near.to_bits() - 1) } else { near };
            if is_exact { near } else { f32::from_bits(toward_zero.to_bits() | 1) }
        }
    };
    let text = if single.is_nan() {
        "NAN".to_owned()
    } else if single.is_infinite() {
        if single < 0.0 { "-INFINITY".to_owned() } else { "INFINITY".to_owned() }
    } else {
        let mut text = format!("{single:?}");
        if !text.contains(['.', 'e']) {
            text.push_str(".0");
        }
        text + "f"
    };
    match to {
        Scalar::Float => text,
        _ => format!("{}({text})", to.word()),
    }
}
