//! Statements and expressions.

use crate::opencl::ast::Node;
use crate::opencl::builtins;
use crate::opencl::program::Position;
use crate::opencl::types::{Scalar, Shape, Space, Type};

use super::Renderer;

/// Macros of clang's header that MSL has too, with the same value.
const COMMON_MACROS: &[&str] = &[
    "CHAR_BIT",
    "CHAR_MAX",
    "CHAR_MIN",
    "FLT_DIG",
    "FLT_EPSILON",
    "FLT_MANT_DIG",
    "FLT_MAX",
    "FLT_MAX_10_EXP",
    "FLT_MAX_EXP",
    "FLT_MIN",
    "FLT_MIN_10_EXP",
    "FLT_MIN_EXP",
    "FLT_RADIX",
    "INFINITY",
    "INT_MAX",
    "INT_MIN",
    "LONG_MAX",
    "LONG_MIN",
    "MAXFLOAT",
    "M_1_PI_F",
    "M_2_PI_F",
    "M_2_SQRTPI_F",
    "M_E_F",
    "M_LN10_F",
    "M_LN2_F",
    "M_LOG10E_F",
    "M_LOG2E_F",
    "M_PI_2_F",
    "M_PI_4_F",
    "M_PI_F",
    "M_SQRT1_2_F",
    "M_SQRT2_F",
    "NAN",
    "SCHAR_MAX",
    "SCHAR_MIN",
    "SHRT_MAX",
    "SHRT_MIN",
    "UCHAR_MAX",
    "UINT_MAX",
    "ULONG_MAX",
    "USHRT_MAX",
];

impl Renderer<'_> {
    /// A statement or expression.
    pub fn node(&mut self, node: &Node) -> String {
        match self.edits.get(&node.id).cloned() {
            Some(edit) => self.edited(node, edit),
            None => self.unedited(node),
        }
    }

    pub(super) fn unedited(&mut self, node: &Node) -> String {
        // A macro may be more than a literal: `INT_MIN` is `(-INT_MAX - 1)`.
        if node.from_header && COMMON_MACROS.contains(&self.source(node)) {
            return self.source(node).to_owned();
        }
        match node.kind.as_str() {
            "DeclStmt" => self.declaration_statement(node, false),
            "ForStmt" => {
                let children: Vec<&Node> = node.children.iter().collect();
                let first = node.children.first().and_then(|child| child.begin);
                self.splice_with(node, &children, |this, child| {
                    if child.kind == "DeclStmt" && child.begin == first {
                        this.declaration_statement(child, true)
                    } else {
                        this.node(child)
                    }
                })
            }
            "ImplicitCastExpr" => self.implicit_cast(node),
            "CStyleCastExpr" => self.cast(node),
            "CompoundLiteralExpr" => self.compound_literal(node),
            "IntegerLiteral" => self.integer(node),
            "FloatingLiteral" => self.floating(node),
            "CallExpr" => self.call_expression(node),
            "BinaryOperator" | "CompoundAssignOperator" => self.binary(node),
            "UnaryOperator" => self.unary(node),
            "ConditionalOperator" => self.conditional(node),
            "ExtVectorElementExpr" => self.components(node),
            "AsTypeExpr" => self.as_type(node),
            "UnaryExprOrTypeTraitExpr" => self.size_of(node),
            "DeclRefExpr" => self.reference(node),
            "MemberExpr" => self.member(node),
            "InitListExpr" => self.initializer(node),
            "ParenExpr" if node.from_header => match node.first() {
                Some(inner) => format!("({})", self.node(inner)),
                None => String::new(),
            },
            "ArraySubscriptExpr" => self.subscript(node),
            "RecordDecl" => self.record(node),
            "EnumDecl" => self.enumeration(node),
            "AttributedStmt" => self.attributed(node),
            // Jumps to it are no longer `goto`.
            "LabelStmt" => match (node.first(), node.begin) {
                (Some(inner), Some(begin)) => {
                    let text = self.node(inner);
                    self.fit(begin, inner.begin.unwrap_or(begin), String::new()) + &text
                }
                _ => self.splice(node),
            },
            "GotoStmt" => String::new(),
            "IndirectGotoStmt" | "AddrLabelExpr" => self.refuse(node, "Metal has no `goto`"),
            "GCCAsmStmt" | "MSAsmStmt" => self.refuse(node, "inline assembly has no counterpart in Metal"),
            "VAArgExpr" => self.refuse(node, "variable arguments have no counterpart in Metal"),
            "StmtExpr" => self.refuse(node, "a statement in an expression has no counterpart in Metal"),
            _ => self.splice(node),
        }
    }

    /// A loop with hints, which are dropped.
    fn attributed(&mut self, node: &Node) -> String {
        let statement =
            node.children.iter().rev().find(|child| child.begin.is_some() && !child.kind.ends_with("Attr"));
        match (statement, node.begin) {
            (Some(statement), Some(begin)) => {
                let text = self.node(statement);
                let lines = self
                    .text
                    .get(begin..statement.begin.unwrap_or(begin))
                    .unwrap_or("")
                    .matches('\n')
                    .count();
                "\n".repeat(lines) + &text
            }
            _ => self.splice(node),
        }
    }

    fn reference(&mut self, node: &Node) -> String {
        let Some(found) = &node.refers else { return self.splice(node) };
        if let Some(name) = self.renamed.get(&found.id) {
            return name.clone();
        }
        if found.kind == "FunctionDecl" && self.program.function(found.id).is_none() {
            return self.refuse(node, format!("the function `{}` is used other than in a call", found.name));
        }
        self.program.names.of(&found.name)
    }

    fn member(&mut self, node: &Node) -> String {
        let Some(base) = node.first() else { return self.splice(node) };
        let (Some(from), Some(end)) = (base.end, node.end) else { return self.splice(node) };
        let base = self.node(base);
        let rest = self.text.get(from..end).unwrap_or("");
        // A member of an anonymous struct is that of the struct around it.
        if rest.is_empty() { base } else { format!("{base}{}", self.rename_words(rest)) }
    }

    fn subscript(&mut self, node: &Node) -> String {
        let children: Vec<&Node> = node.children.iter().collect();
        if let Some(base) = node.first()
            && Shape::of(&base.plain).is_wide()
        {
            return self.refuse(
                node,
                "an index of a vector of 8 or 16 components is not supported; write `.s0` and so on",
            );
        }
        let index = node.children.get(1).map(|child| child.id);
        self.splice_with(node, &children, |this, child| {
            match this.position(child).filter(|_| Some(child.id) == index) {
                Some((text, _)) => text,
                None => this.node(child),
            }
        })
    }

    /// The 32-bit value of a call of `get_global_id` and the like, and whether it is one.
    pub fn position(&mut self, node: &Node) -> Option<(String, Position)> {
        let call = node.bare();
        if call.kind != "CallExpr" {
            return None;
        }
        let callee = call.first()?.bare().refers.as_ref()?;
        if self.program.function(callee.id).is_some() {
            return None;
        }
        let position =
            *Position::needed_by(&callee.name).first().filter(|_| callee.name.starts_with("get_"))?;
        let word = self.program.names.added(position.word());
        let dimension = call.children.get(1)?;
        let text = match dimension.bare().value.parse::<u32>() {
            Ok(0) => format!("{word}.x"),
            Ok(1) => format!("{word}.y"),
            Ok(2) => format!("{word}.z"),
            Ok(_) => format!("{}u", position.beyond()),
            Err(_) => {
                let dimension = self.node(dimension);
                self.helpers.add("cl_dimension", "cl_dimension", || {
                    "// Component `dimension` of a position or size, or `otherwise` beyond the third.\n\
                     inline uint cl_dimension(uint3 of, uint dimension, uint otherwise) {\n    \
                     return dimension < 3 ? of[dimension] : otherwise;\n}"
                        .into()
                });
                format!("cl_dimension({word}, {dimension}, {})", position.beyond())
            }
        };
        Some((text, position))
    }

    fn call_expression(&mut self, node: &Node) -> String {
        let callee = node.first().map(Node::bare);
        let Some(found) = callee.and_then(|callee| callee.refers.clone()) else {
            return self.refuse(node, "a call through a pointer to a function has no counterpart here");
        };
        if found.kind != "FunctionDecl" {
            return self.refuse(node, "a call through a pointer to a function has no counterpart here");
        }
        if let Some(index) = self.program.function(found.id) {
            return self.call(node, index);
        }
        if let Some((text, _)) = self.position(node) {
            return format!("size_t({text})");
        }
        let text = builtins::call(self, node, &found.name);
        match (node.begin, node.end) {
            (Some(begin), Some(end)) => self.fit(begin, end, text),
            _ => text,
        }
    }

    fn implicit_cast(&mut self, node: &Node) -> String {
        let Some(inner) = node.first() else { return String::new() };
        match node.cast.as_str() {
            "VectorSplat" => {
                let shape = Shape::of(&node.plain);
                let scalar = self.exactly(inner, Shape::Scalar(shape.scalar().unwrap_or(Scalar::Int)));
                self.splat(shape, &scalar)
            }
            "NullToPointer" => "nullptr".into(),
            "BitCast" | "IntegralToPointer" | "PointerToIntegral" => {
                let is_void = |ty: Option<&Type>| {
                    ty.and_then(Type::pointee)
                        .is_some_and(|to| matches!(to, Type::Named(_, base) if base == "void"))
                };
                let target = self.parse_type(node);
                let text = self.node(inner);
                match target {
                    Some(target) if !is_void(Some(&target)) => {
                        format!("({})({text})", self.declare(&target, ""))
                    }
                    _ => text,
                }
            }
            "NoOp" if loses_qualifiers(&inner.plain, &node.plain) => {
                let target = self.parse_type(node);
                let text = self.node(inner);
                target.map_or(text.clone(), |target| format!("({})({text})", self.declare(&target, "")))
            }
            "IntegralCast" | "IntegralToFloating" => match self.position(inner) {
                Some((text, _)) => text,
                None => self.converted_literal(node, inner).unwrap_or_else(|| self.node(inner)),
            },
            _ => self.node(inner),
        }
    }

    /// An integer literal where a `float` is needed, as in `2 * x`.
    fn converted_literal(&mut self, node: &Node, inner: &Node) -> Option<String> {
        let Shape::Scalar(target) = Shape::of(&node.plain) else { return None };
        (inner.kind == "IntegerLiteral" && target.is_float()).then(|| self.literal_as(inner, target))?
    }

    /// A literal in the form of a type.
    fn literal_as(&mut self, node: &Node, target: Scalar) -> Option<String> {
        let text = self.source(node);
        let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
        let is_decimal = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let is_octal = digits.len() > 1 && digits.starts_with('0');
        let is_number = is_decimal || digits.starts_with("0x") || digits.starts_with("0X");
        match target {
            Scalar::Float if is_decimal && !is_octal => Some(format!("{digits}.0f")),
            Scalar::Int if is_number && Shape::of(&node.plain) == Shape::Scalar(Scalar::Int) => {
                Some(text.into())
            }
            Scalar::UInt if is_number && node.value.parse::<u32>().is_ok() => Some(format!("{digits}u")),
            Scalar::ULong if is_number => Some(format!("{digits}ul")),
            Scalar::Long if is_number && node.value.parse::<i64>().is_ok() => Some(format!("{digits}l")),
            _ => None,
        }
    }

    /// An expression with exactly this type, so that overloads and braces see what C's conversions make.
    pub fn exactly(&mut self, node: &Node, shape: Shape) -> String {
        let own = Shape::of(&node.plain);
        if let (Shape::Vector(scalar, _), Shape::Scalar(_)) = (shape, own) {
            let one = self.exactly(node, Shape::Scalar(scalar));
            return self.splat(shape, &one);
        }
        let Shape::Scalar(target) = shape else { return self.node(node) };
        let bare = {
            let mut at = node;
            while at.kind == "ImplicitCastExpr"
                && let Some(inner) = at.first()
            {
                at = inner;
            }
            at
        };
        if bare.kind == "IntegerLiteral"
            && let Some(text) = self.literal_as(bare, target)
        {
            return text;
        }
        if bare.kind == "FloatingLiteral" && target == Scalar::Float {
            return self.node(bare);
        }
        if let Some((text, _)) = self.position(node) {
            return if target == Scalar::UInt { text } else { format!("{}({text})", target.name()) };
        }
        let is_same = Shape::of(&bare.plain) == shape && !is_truth(bare) && bare.kind != "CharacterLiteral";
        // Arithmetic on smaller integers has type `int` in both languages.
        let text = self.node(node);
        if is_same || own == Shape::Pointer { text } else { format!("{}({})", target.name(), strip(&text)) }
    }

    fn cast(&mut self, node: &Node) -> String {
        let Some(inner) = node.children.last() else { return self.splice(node) };
        let shape = Shape::of(&node.plain);
        if node.cast == "VectorSplat" {
            let scalar = self.exactly(inner, Shape::Scalar(shape.scalar().unwrap_or(Scalar::Int)));
            return self.splat(shape, &scalar);
        }
        if let Shape::Scalar(target) = shape
            && let Some((text, _)) = self.position(inner)
        {
            let name =
                if node.ty.contains(' ') { target.name().to_owned() } else { self.type_name(&node.ty) };
            return format!("{name}({text})");
        }
        if shape.is_vector() {
            // Same components, or a reinterpretation between vectors, which OpenCL C does not have.
            return self.node(inner);
        }
        let Some(target) = self.parse_type(node) else {
            return self.refuse(node, format!("the type `{}` has no counterpart in MSL", node.ty));
        };
        self.expect_type(node);
        let (Some(begin), Some(from)) = (node.begin, inner.begin) else { return self.splice(node) };
        let head = format!("({})", self.declare(&target, ""));
        let text = self.node(inner);
        let gap = self.text.get(begin..from).unwrap_or("");
        let space = if gap.ends_with(' ') { " " } else { "" };
        let head = self.fit(begin, from, head + space);
        head + &text
    }

    fn compound_literal(&mut self, node: &Node) -> String {
        let shape = Shape::of(&node.plain);
        let Some(list) = node.children.iter().find(|child| child.kind == "InitListExpr") else {
            return self.splice(node);
        };
        if shape.is_vector() {
            return self.vector_literal(list, shape);
        }
        match self.parse_type(node) {
            Some(Type::Named(_, name)) => {
                let name = self.type_name(&name);
                format!("{name}{}", self.initializer(list))
            }
            _ => self.refuse(node, "a literal of an array has no counterpart in Metal; declare a variable"),
        }
    }

    /// `(float4)(a, b)` or `{a, b, c, d}`.
    pub fn vector_literal(&mut self, list: &Node, shape: Shape) -> String {
        let scalar = shape.scalar().unwrap_or(Scalar::Float);
        let mut values = Vec::new();
        let mut shapes = Vec::new();
        let mut lanes = 0;
        for child in list.children.iter().filter(|child| child.begin.is_some()) {
            let own = Shape::of(&child.plain);
            let target = if own.is_vector() { own } else { Shape::Scalar(scalar) };
            lanes += own.lanes();
            shapes.push(target);
            // The constructor converts scalars.
            let is_literal = matches!(child.bare().kind.as_str(), "IntegerLiteral" | "FloatingLiteral");
            let text = if is_literal { self.exactly(child, target) } else { self.node(child) };
            values.push(text);
        }
        // What braces leave out is zero.
        while lanes < shape.lanes() {
            values.push("0".into());
            shapes.push(Shape::Scalar(scalar));
            lanes += 1;
        }
        if lanes > shape.lanes() {
            return self.refuse(list, format!("{lanes} values for a vector of {} components", shape.lanes()));
        }
        let text = self.construct(shape, &values, &shapes);
        match (list.begin, list.end) {
            (Some(begin), Some(end)) => self.fit(begin, end, text),
            _ => text,
        }
    }

    fn integer(&mut self, node: &Node) -> String {
        let text = self.source(node);
        if node.from_header && !COMMON_MACROS.contains(&text) {
            let suffix = match Shape::of(&node.plain).scalar() {
                Some(Scalar::UInt) => "u",
                Some(Scalar::Long) => "l",
                Some(Scalar::ULong) => "ul",
                _ => "",
            };
            return format!("{}{suffix}", node.value);
        }
        text.to_owned()
    }

    fn floating(&mut self, node: &Node) -> String {
        let text = self.source(node);
        if node.from_header {
            return if COMMON_MACROS.contains(&text) { text.to_owned() } else { float_text(&node.value) };
        }
        let is_hex = text.starts_with("0x") || text.starts_with("0X");
        let has_suffix = if is_hex {
            text.contains(['p', 'P'])
                && text.ends_with(['f', 'F', 'h', 'H', 'l', 'L'])
                && text.rsplit(['p', 'P']).next().is_some_and(|e| e.ends_with(['f', 'F', 'h', 'H', 'l', 'L']))
        } else {
            text.ends_with(['f', 'F', 'h', 'H', 'l', 'L'])
        };
        if has_suffix { text.trim_end_matches(['l', 'L']).to_owned() } else { format!("{text}f") }
    }

    fn as_type(&mut self, node: &Node) -> String {
        let Some(inner) = node.first() else { return String::new() };
        let (from, to) = (Shape::of(&inner.plain), Shape::of(&node.plain));
        let mut text = self.node(inner);
        if from.scalar().is_some_and(|scalar| !from.is_vector() && scalar.bits() == 32)
            && let Shape::Scalar(scalar) = from
        {
            text = self.exactly(inner.bare(), Shape::Scalar(scalar));
        }
        self.reinterpret(node, strip(&text), from, to)
    }

    fn size_of(&mut self, node: &Node) -> String {
        let word = self.source(node).split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or("");
        match (&node.argument, word) {
            (Some(argument), "sizeof") => match self.parse_types(argument, argument) {
                Some(found) => format!("sizeof({})", self.declare(&found, "")),
                None => self.splice(node),
            },
            (_, "vec_step") => {
                let plain = node.argument.clone().or_else(|| node.first().map(|inner| inner.plain.clone()));
                match plain.map(|plain| Shape::of(&plain).lanes()) {
                    Some(3) => "4".into(),
                    Some(lanes) => lanes.to_string(),
                    None => self.refuse(node, "`vec_step` of this type is not supported"),
                }
            }
            (None, _) => self.splice(node),
            (Some(_), _) => self.refuse(node, format!("`{word}` of a type is not supported")),
        }
    }
}

/// Whether C says `int` and C++ `bool`.
pub(in crate::opencl) fn is_truth(node: &Node) -> bool {
    match node.kind.as_str() {
        "BinaryOperator" => {
            matches!(node.opcode.as_str(), "<" | ">" | "<=" | ">=" | "==" | "!=" | "&&" | "||")
        }
        "UnaryOperator" => node.opcode == "!",
        "ParenExpr" => node.first().is_some_and(is_truth),
        _ => false,
    }
}

/// A float value that clang has printed, as a literal.
fn float_text(value: &str) -> String {
    match value {
        "+Inf" | "inf" => "INFINITY".into(),
        "NaN" | "nan" => "NAN".into(),
        _ if value.contains(['.', 'e', 'E']) => format!("{value}f"),
        _ => format!("{value}.0f"),
    }
}

/// The text without parentheses around all of it.
pub(in crate::opencl) fn strip(text: &str) -> &str {
    let is_whole = text.starts_with('(') && crate::opencl::text::closing(text, 0) == Some(text.len());
    if is_whole { &text[1..text.len() - 1] } else { text }
}

/// Whether a pointer's target loses `const` or `volatile`.
fn loses_qualifiers(from: &str, to: &str) -> bool {
    let of = |text: &str| {
        crate::opencl::types::parse(text).and_then(|ty| ty.pointee().map(|to| to.qualifiers().clone()))
    };
    match (of(from), of(to)) {
        (Some(from), Some(to)) => {
            (from.is_const && !to.is_const && from.space != Some(Space::Constant))
                || (from.is_volatile && !to.is_volatile)
        }
        _ => false,
    }
}
