//! Operators: shifts by any amount, comparisons of vectors, components, and vectors of 8 and 16 components.

use crate::opencl::ast::Node;
use crate::opencl::types::{Scalar, Shape, Space, parse};

use super::Renderer;
use super::expressions::strip;

/// Letters of the components of vectors in MSL.
const LETTERS: &[u8; 4] = b"xyzw";

impl Renderer<'_> {
    pub fn binary(&mut self, node: &Node) -> String {
        let [left, right] = &node.children[..] else { return self.splice(node) };
        let (shape, operand) = (Shape::of(&node.plain), Shape::of(&left.plain));
        let op = node.opcode.as_str();
        if matches!(op, "<<" | ">>" | "<<=" | ">>=") {
            return self.shift(node, left, right);
        }
        if operand.is_vector() {
            match op {
                "<" | ">" | "<=" | ">=" | "==" | "!=" | "&&" | "||" => {
                    let mask = self.mask(node);
                    return self.truth(shape, &mask);
                }
                _ => {}
            }
        }
        if op == "="
            && operand.is_vector()
            && left.bare().kind == "ExtVectorElementExpr"
            && let Some(text) = self.assign_components(node, left.bare(), right)
        {
            return text;
        }
        if shape.is_wide() && !matches!(op, "=" | ",") {
            return self.wide_binary(node, left, right, shape);
        }
        if shape == Shape::Pointer || operand == Shape::Pointer {
            let children: Vec<&Node> = node.children.iter().collect();
            return self.splice_with(node, &children, |this, child| match this.position(child) {
                Some((text, _)) => text,
                None => this.node(child),
            });
        }
        let children: Vec<&Node> = node.children.iter().collect();
        let is_arithmetic = matches!(op, "+" | "-" | "*" | "/" | "%" | "&" | "|" | "^");
        self.splice_with(node, &children, |this, child| {
            // A scalar operand beside a vector stays one.
            if is_arithmetic
                && child.kind == "ImplicitCastExpr"
                && child.cast == "VectorSplat"
                && !shape.is_wide()
                && let (Some(inner), Some(scalar)) = (child.first(), shape.scalar())
            {
                let text = this.exactly(inner, Shape::Scalar(scalar));
                return if is_simple(&text) { text } else { format!("({})", strip(&text)) };
            }
            this.node(child)
        })
    }

    /// OpenCL C shifts by the amount modulo the width (6.3.j); in MSL a larger amount is undefined.
    fn shift(&mut self, node: &Node, left: &Node, right: &Node) -> String {
        let own = Shape::of(&left.plain);
        let result = Shape::of(&node.plain);
        let scalar = if own.is_vector() {
            own.scalar()
        } else if node.opcode.ends_with('=') {
            promoted(own)
        } else {
            result.scalar()
        };
        let Some(scalar) = scalar else { return self.splice(node) };
        let bits = scalar.bits();
        let amount = constant(right);
        let in_range =
            amount.is_some_and(|amount| (0..i64::from(bits)).contains(&amount)) || is_masked(right, bits);
        if in_range && !result.is_wide() {
            let children: Vec<&Node> = node.children.iter().collect();
            return self.splice_with(node, &children, |this, child| {
                match (own, child.kind.as_str(), child.first()) {
                    (Shape::Vector(lane, _), "ImplicitCastExpr", Some(inner))
                        if child.cast == "VectorSplat" =>
                    {
                        this.exactly(inner, Shape::Scalar(lane))
                    }
                    _ => this.node(child),
                }
            });
        }
        let (Some(from), Some(to)) = (left.end, right.begin) else { return self.splice(node) };
        let gap = self.text.get(from..to).unwrap_or("").to_owned();
        let left_text = self.node(left);
        let right_shape = Shape::of(&right.plain);
        let right_text = match (right_shape, own) {
            (Shape::Vector(..), Shape::Vector(lane, _))
                if right.kind == "ImplicitCastExpr" && right.cast == "VectorSplat" =>
            {
                let one =
                    right.first().map(|inner| self.exactly(inner, Shape::Scalar(lane))).unwrap_or_default();
                self.splat(own, &one)
            }
            (Shape::Vector(..), _) => self.node(right),
            (_, Shape::Vector(..)) => self.exactly(right, own),
            _ => self.node(right),
        };
        if result.is_wide() {
            let shape = result;
            let op = node.opcode.trim_end_matches('=');
            self.operator(op, shape);
            if node.opcode.ends_with('=') {
                return format!("{left_text} = {left_text} {op} {right_text}");
            }
            return format!("({left_text} {op} {right_text})");
        }
        let mask = match own {
            Shape::Vector(lane, _) if !matches!(lane, Scalar::Int) => {
                format!("{}({})", lane.name(), bits - 1)
            }
            _ => (bits - 1).to_string(),
        };
        let amount = format!("({} & {mask})", wrap(&right_text));
        // A position is an unsigned integer of 64 bits.
        format!("{left_text}{gap}{amount}")
    }

    pub fn unary(&mut self, node: &Node) -> String {
        let Some(inner) = node.first() else { return self.splice(node) };
        let shape = Shape::of(&node.plain);
        if shape.is_vector() && node.opcode == "!" {
            let mask = self.mask(node);
            return self.truth(shape, &mask);
        }
        if shape.is_wide() && matches!(node.opcode.as_str(), "-" | "~") {
            self.prefix(&node.opcode, shape);
            return self.splice(node);
        }
        if shape.is_wide() && node.opcode != "*" {
            return self.refuse(
                node,
                format!("`{}` on a vector of 8 or 16 components is not supported", node.opcode),
            );
        }
        let _operand = inner;
        self.splice(node)
    }

    /// Declares a prefix operator for a wide vector.
    fn prefix(&mut self, op: &str, shape: Shape) {
        if !shape.is_wide() {
            return;
        }
        self.wide(shape);
        let half = self.half(shape);
        self.prefix(op, half);
        let name = shape.name();
        self.helpers.add(&format!("{name} prefix {op}"), &name, || {
            format!("inline {name} operator{op}({name} a) {{ return {name}{{{op}a.lo, {op}a.hi}}; }}")
        });
    }

    pub fn conditional(&mut self, node: &Node) -> String {
        let [condition, yes, no] = &node.children[..] else { return self.splice(node) };
        let shape = Shape::of(&condition.plain);
        if !shape.is_vector() {
            return self.splice(node);
        }
        let result = Shape::of(&node.plain);
        let mask = self.mask(condition);
        let (yes, no) = (self.exactly(yes, result), self.exactly(no, result));
        let text = self.pick(result, strip(&no), strip(&yes), &mask);
        match (node.begin, node.end) {
            (Some(begin), Some(end)) => self.fit(begin, end, text),
            _ => text,
        }
    }

    /// `mask ? yes : no` by components.
    pub fn pick(&mut self, shape: Shape, no: &str, yes: &str, mask: &str) -> String {
        if shape.is_wide() {
            let mask_shape = shape.with(Scalar::Bool);
            self.wide(mask_shape);
            self.halves("cl_pick", shape, &[shape, shape, mask_shape], |args| {
                format!("select({}, {}, {})", args[0], args[1], args[2])
            });
            return format!("cl_pick({no}, {yes}, {mask})");
        }
        format!("select({no}, {yes}, {mask})")
    }

    /// Zero and minus one from a vector of booleans.
    pub fn truth(&mut self, shape: Shape, mask: &str) -> String {
        let name = shape.name();
        if shape.is_wide() {
            let from = shape.with(Scalar::Bool);
            self.wide(from);
            let half = self.half(shape);
            let one = format!("cl_truth_{name}");
            let half_name = half.name();
            let convert = move |part: &str| {
                if half.is_wide() {
                    format!("cl_truth_{half_name}({part})")
                } else {
                    format!("-{half_name}({part})")
                }
            };
            if half.is_wide() {
                self.truth(half, "");
            }
            self.wide(shape);
            let (from, to) = (from.name(), name.clone());
            self.helpers.add(&one, &one, || {
                format!(
                    "inline {to} cl_truth_{to}({from} a) {{ return {to}{{{}, {}}}; }}",
                    convert("a.lo"),
                    convert("a.hi")
                )
            });
            return format!("{one}({mask})");
        }
        format!("-{name}({})", strip(mask))
    }

    /// A vector of booleans for an expression of which OpenCL C looks at the most significant bits.
    pub fn mask(&mut self, node: &Node) -> String {
        let shape = Shape::of(&node.plain);
        let inner = {
            let mut at = node;
            while at.kind == "ParenExpr"
                && let Some(next) = at.first()
            {
                at = next;
            }
            at
        };
        let booleans = shape.with(Scalar::Bool);
        match (inner.kind.as_str(), inner.opcode.as_str()) {
            ("BinaryOperator", op @ ("<" | ">" | "<=" | ">=" | "==" | "!=")) => {
                let [left, right] = &inner.children[..] else { return self.node(inner) };
                let operand = Shape::of(&left.plain);
                let operand = if operand.is_vector() { operand } else { Shape::of(&right.plain) };
                if operand.is_wide() {
                    self.wide(booleans);
                    self.compare(op, operand);
                }
                let (left, right) = (self.operand(left, operand), self.operand(right, operand));
                format!("({left} {op} {right})")
            }
            ("BinaryOperator", op @ ("&&" | "||")) => {
                let [left, right] = &inner.children[..] else { return self.node(inner) };
                let (left, right) = (self.nonzero(left), self.nonzero(right));
                let op = if op == "&&" { "&" } else { "|" };
                if shape.is_wide() {
                    self.wide(booleans);
                    self.operator(op, booleans);
                }
                format!("({left} {op} {right})")
            }
            ("UnaryOperator", "!") => {
                let Some(operand) = inner.first() else { return self.node(inner) };
                let shape = Shape::of(&operand.plain);
                if shape.is_wide() {
                    self.wide(booleans);
                    self.compare("==", shape);
                }
                let text = self.operand(operand, shape);
                let zero = self.zero(shape);
                format!("({text} == {zero})")
            }
            _ => {
                if inner.kind == "CallExpr"
                    && let Some(text) = crate::opencl::builtins::as_mask(self, inner)
                {
                    return text;
                }
                let text = self.node(inner);
                self.sign_bits(shape, &text)
            }
        }
    }

    /// The sign bits of a vector of integers, or whether the sign bit of one is set.
    pub fn sign_bits(&mut self, shape: Shape, text: &str) -> String {
        let Some(scalar) = shape.scalar() else { return text.to_owned() };
        let signed = shape.with(scalar.signed());
        let text = if scalar.is_signed() { wrap(text) } else { self.reinterpret_text(text, shape, signed) };
        if shape.is_wide() {
            self.wide(shape.with(Scalar::Bool));
            self.compare("<", signed);
        }
        let zero = self.zero(signed);
        format!("({text} < {zero})")
    }

    /// The zero that a vector is compared with.
    fn zero(&mut self, shape: Shape) -> String {
        match shape {
            _ if shape.is_wide() => self.splat(shape, "0"),
            Shape::Vector(Scalar::Int, _) | Shape::Scalar(_) => "0".into(),
            Shape::Vector(scalar, _) => format!("{}(0)", scalar.name()),
            _ => "0".into(),
        }
    }

    /// An operand of an operator on vectors.
    fn operand(&mut self, node: &Node, shape: Shape) -> String {
        if !shape.is_wide()
            && node.kind == "ImplicitCastExpr"
            && node.cast == "VectorSplat"
            && let (Some(inner), Some(scalar)) = (node.first(), shape.scalar())
        {
            return wrap(&self.exactly(inner, Shape::Scalar(scalar)));
        }
        let text = self.exactly(node, shape);
        if node.bare().kind.ends_with("Operator") { wrap(&text) } else { text }
    }

    /// A vector of booleans: the components that are not zero.
    fn nonzero(&mut self, node: &Node) -> String {
        let shape = Shape::of(&node.plain);
        let bare = node.bare();
        if super::expressions::is_truth(bare) {
            return self.mask(node);
        }
        if shape.is_wide() {
            self.wide(shape.with(Scalar::Bool));
            self.compare("!=", shape);
        }
        let text = self.operand(node, shape);
        let zero = self.zero(shape);
        format!("({text} != {zero})")
    }

    /// Components of a vector: `.s03`, `.lo`, `.even`.
    pub fn components(&mut self, node: &Node) -> String {
        let Some(base) = node.first() else { return String::new() };
        let Some((indices, arrow)) = self.indices(node) else {
            return self.refuse(node, "these components of a vector are not supported");
        };
        let of = base_shape(base);
        let mut text = self.node(base);
        if base.bare().kind.ends_with("Operator") || base.kind == "CStyleCastExpr" {
            text = wrap(&text);
        }
        let dot = if arrow { "->" } else { "." };
        self.select_components(of, &text, dot, &indices)
    }

    /// The components `indices` of a vector.
    fn select_components(&mut self, of: Shape, text: &str, dot: &str, indices: &[u32]) -> String {
        if !of.is_wide() && indices.len() <= 4 {
            return format!("{text}{dot}{}", letters(indices));
        }
        if let Some(path) = direct_path(of.lanes(), indices) {
            return format!("{text}{dot}{path}");
        }
        let digits: String = indices.iter().filter_map(|index| char::from_digit(*index, 16)).collect();
        let name = format!("cl_s{digits}");
        let result =
            Shape::Vector(of.scalar().unwrap_or(Scalar::Float), u32::try_from(indices.len()).unwrap_or(0));
        self.wide(of);
        self.wide(result);
        let one = |index: &u32| {
            format!("v.{}", direct_path(of.lanes(), &[*index]).unwrap_or_else(|| letters(&[*index])))
        };
        let parts: Vec<String> = indices.iter().map(one).collect();
        let value = nested(result, &parts);
        self.helpers.add(&format!("{name} {}", of.name()), &name, || {
            format!("inline {} {name}({} v) {{ return {value}; }}", result.name(), of.name())
        });
        let text = if dot == "->" { format!("*{text}") } else { text.to_owned() };
        format!("{name}({text})")
    }

    /// `v.even = x` for components that are no member of the struct, or null for those that are.
    fn assign_components(&mut self, node: &Node, left: &Node, right: &Node) -> Option<String> {
        let base = left.first()?;
        let (indices, arrow) = self.indices(left)?;
        let of = base_shape(base);
        if !of.is_wide() || direct_path(of.lanes(), &indices).is_some() {
            return None;
        }
        let space = parse(&base.plain).and_then(|ty| ty.qualifiers().space).unwrap_or(Space::Private).msl();
        let digits: String = indices.iter().filter_map(|index| char::from_digit(*index, 16)).collect();
        let name = format!("cl_set_s{digits}");
        let value = Shape::of(&left.plain);
        self.wide(of);
        let mut body = String::new();
        for (k, index) in indices.iter().enumerate() {
            let from = u32::try_from(k).ok()?;
            let from = direct_path(value.lanes(), &[from]).unwrap_or_else(|| letters(&[from]));
            body.push_str(&format!(" v.{} = x.{from};", direct_path(of.lanes(), &[*index])?));
        }
        self.helpers.add(&format!("{name} {} {space}", of.name()), &name, || {
            format!("inline void {name}({space} {}& v, {} x) {{{body} }}", of.name(), value.name())
        });
        let text = self.node(base);
        let star = if arrow { "*" } else { "" };
        let value = self.exactly(right, value);
        Some(self.fit(node.begin?, node.end?, format!("{name}({star}{text}, {value})")))
    }

    /// The component numbers of an access, and whether it is one through a pointer.
    fn indices(&self, node: &Node) -> Option<(Vec<u32>, bool)> {
        let base = node.first()?;
        let lanes = base_shape(base).lanes();
        let gap = self.text.get(base.end?..node.end?)?;
        let arrow = gap.contains("->");
        let word = gap.rsplit(|c: char| !c.is_alphanumeric()).next()?;
        let lanes = if lanes == 3 { 4 } else { lanes };
        let half = lanes / 2;
        let found: Vec<u32> = match word {
            "lo" => (0..half).collect(),
            "hi" => (half..lanes).collect(),
            "even" => (0..half).map(|k| 2 * k).collect(),
            "odd" => (0..half).map(|k| 2 * k + 1).collect(),
            _ if word.starts_with(['s', 'S']) => {
                word[1..].chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?
            }
            _ => word
                .chars()
                .map(|c| match c {
                    'x' | 'r' => Some(0),
                    'y' | 'g' => Some(1),
                    'z' | 'b' => Some(2),
                    'w' | 'a' => Some(3),
                    _ => None,
                })
                .collect::<Option<_>>()?,
        };
        // The fourth component of a vector of three is undefined.
        let last = base_shape(base).lanes() - 1;
        Some((found.into_iter().map(|index| index.min(last)).collect(), arrow))
    }
}

/// The shape of a vector, or of what a pointer to one points to.
fn base_shape(base: &Node) -> Shape {
    match Shape::of(&base.plain) {
        shape @ Shape::Vector(..) => shape,
        _ => Shape::of(&base.plain.replace('*', "")),
    }
}

/// `xyz` for component numbers.
pub(in crate::opencl) fn letters(indices: &[u32]) -> String {
    indices.iter().map(|index| char::from(LETTERS[*index as usize % 4])).collect()
}

/// The members of the struct of a vector of 8 or 16 components that are these components, such as `lo.hi.xy`.
pub(in crate::opencl) fn direct_path(lanes: u32, indices: &[u32]) -> Option<String> {
    if lanes <= 4 {
        return None;
    }
    let half = lanes / 2;
    let count = u32::try_from(indices.len()).ok()?;
    let first = *indices.first()?;
    let is_run = indices.iter().zip(first..).all(|(a, b)| *a == b);
    if is_run && count == half && first % half == 0 {
        return Some(if first == 0 { "lo".into() } else { "hi".into() });
    }
    let (side, offset) = if first < half { ("lo", 0) } else { ("hi", half) };
    if !indices.iter().all(|index| (offset..offset + half).contains(index)) {
        return None;
    }
    let inner: Vec<u32> = indices.iter().map(|index| index - offset).collect();
    if half <= 4 {
        return (count <= 4).then(|| format!("{side}.{}", letters(&inner)));
    }
    direct_path(half, &inner).map(|rest| format!("{side}.{rest}"))
}

/// A vector from the texts of its components.
pub(in crate::opencl) fn nested(shape: Shape, parts: &[String]) -> String {
    let name = shape.name();
    if !shape.is_wide() {
        return format!("{name}({})", parts.join(", "));
    }
    let scalar = shape.scalar().unwrap_or(Scalar::Float);
    let half = Shape::Vector(scalar, shape.lanes() / 2);
    let (low, high) = parts.split_at(parts.len() / 2);
    format!("{name}{{{}, {}}}", nested(half, low), nested(half, high))
}

/// The type of a scalar in arithmetic.
fn promoted(shape: Shape) -> Option<Scalar> {
    shape.scalar().map(|scalar| if scalar.bits() < 32 { Scalar::Int } else { scalar })
}

/// The value of a constant expression of literals.
fn constant(node: &Node) -> Option<i64> {
    let bare = match node.kind.as_str() {
        "ImplicitCastExpr" | "ParenExpr" | "CStyleCastExpr" => return constant(node.children.last()?),
        _ => node,
    };
    match (bare.kind.as_str(), &bare.children[..]) {
        ("IntegerLiteral", _) => bare.value.parse().ok(),
        ("UnaryOperator", [inner]) if bare.opcode == "-" => constant(inner)?.checked_neg(),
        ("BinaryOperator", [left, right]) => {
            let (left, right) = (constant(left)?, constant(right)?);
            match bare.opcode.as_str() {
                "+" => left.checked_add(right),
                "-" => left.checked_sub(right),
                "*" => left.checked_mul(right),
                "/" => left.checked_div(right),
                "%" => left.checked_rem(right),
                "&" => Some(left & right),
                "|" => Some(left | right),
                "^" => Some(left ^ right),
                "<<" => left.checked_shl(u32::try_from(right).ok()?),
                ">>" => left.checked_shr(u32::try_from(right).ok()?),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether an amount is `x & m` with `m` below the width, or `x % m` of an unsigned `x`.
fn is_masked(node: &Node, bits: u32) -> bool {
    let bare = node.bare();
    let [left, right] = &bare.children[..] else { return false };
    if bare.kind != "BinaryOperator" {
        return false;
    }
    let below = |value: Option<i64>, limit: i64| value.is_some_and(|value| (0..=limit).contains(&value));
    match bare.opcode.as_str() {
        "&" => below(constant(left), i64::from(bits) - 1) || below(constant(right), i64::from(bits) - 1),
        "%" => {
            let is_unsigned = Shape::of(&bare.plain).scalar().is_some_and(|scalar| !scalar.is_signed());
            is_unsigned && below(constant(right), i64::from(bits)) && constant(right) != Some(0)
        }
        _ => false,
    }
}

/// Whether a text is one name, literal, call or access.
fn is_simple(text: &str) -> bool {
    let mut depth = 0_i32;
    text.chars().all(|c| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        depth > 0 || c.is_alphanumeric() || matches!(c, '_' | '.' | ')' | ']' | ':')
    })
}

/// The text in parentheses, unless it is one name, literal or call.
pub(in crate::opencl) fn wrap(text: &str) -> String {
    if is_simple(text) || strip(text).len() < text.len() { text.to_owned() } else { format!("({text})") }
}
