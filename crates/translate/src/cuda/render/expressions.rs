//! Expressions.

use super::Renderer;
use crate::cuda::ast::Node;
use crate::cuda::program::{Need, position};
use crate::cuda::types::{Scalar, Space, Ty, vector};

impl Renderer<'_, '_> {
    /// An expression.
    pub(super) fn expr(&mut self, node: &Node) -> String {
        match node.kind.as_str() {
            "ParenExpr" => match node.first() {
                Some(inner) => format!("({})", self.expr(inner)),
                None => String::new(),
            },
            "ExprWithCleanups" | "ConstantExpr" | "SubstNonTypeTemplateParmExpr" | "MaterializeTemporaryExpr"
            | "CXXBindTemporaryExpr" | "CXXDefaultArgExpr" | "CXXDefaultInitExpr" => match node.children.last() {
                Some(inner) => self.expr(inner),
                None => self.refuse(node, "a default value that is not known here"),
            },
            "ImplicitCastExpr" | "CStyleCastExpr" | "CXXStaticCastExpr" | "CXXReinterpretCastExpr" | "CXXConstCastExpr"
            | "CXXFunctionalCastExpr" => self.cast(node),
            "IntegerLiteral" => self.integer(node),
            "FloatingLiteral" => self.floating(node),
            "CharacterLiteral" => node.value.clone(),
            "StringLiteral" => node.value.clone(),
            "CXXBoolLiteralExpr" => node.value.clone(),
            "CXXNullPtrLiteralExpr" | "GNUNullExpr" => "nullptr".into(),
            "DeclRefExpr" => self.reference(node),
            "CXXThisExpr" => "(&self)".into(),
            "MemberExpr" => self.member(node),
            "ArraySubscriptExpr" => {
                let [base, index] = &node.children[..] else { return String::new() };
                let (base, index) = (self.expr(base), self.expr(index));
                format!("{}[{index}]", Self::wrap(&base))
            }
            "UnaryOperator" => self.unary(node),
            "BinaryOperator" => self.binary(node),
            "CompoundAssignOperator" => self.compound_assignment(node),
            "ConditionalOperator" => {
                let [condition, one, other] = &node.children[..] else { return String::new() };
                let scalar = self.scalar(node).filter(|_| node.category == "lvalue" && self.space(one) != self.space(other));
                let (condition, mut one, mut other) = (self.condition(condition), self.expr(one), self.expr(other));
                if let Some(scalar) = scalar {
                    one = format!("{}({one})", scalar.word());
                    other = format!("{}({other})", scalar.word());
                }
                format!("{condition} ? {one} : {other}")
            }
            "CallExpr" | "CXXMemberCallExpr" | "CXXOperatorCallExpr" => self.call(node),
            "CXXConstructExpr" | "CXXTemporaryObjectExpr" => self.construct(node),
            "InitListExpr" => self.list(node),
            "ImplicitValueInitExpr" | "CXXScalarValueInitExpr" => {
                let ty = self.ty(node);
                match ty.name().and_then(Scalar::named) {
                    Some(_) => format!("{}(0)", self.declare(&ty, &[], "", None, node.begin.unwrap_or(0))),
                    None if ty.is_pointer() => "nullptr".into(),
                    None if ty.name().is_some_and(|name| vector(name).is_some()) => {
                        format!("{}(0)", self.declare(&ty, &[], "", None, node.begin.unwrap_or(0)))
                    }
                    None => "{}".into(),
                }
            }
            "UnaryExprOrTypeTraitExpr" => self.size_of(node),
            "LambdaExpr" => self.closure(node),
            "CXXFoldExpr" | "PackExpansionExpr" => self.refuse(node, "an expansion that is not instantiated"),
            "CUDAKernelCallExpr" => self.refuse(node, "a launch from a kernel (dynamic parallelism) is not translated; Elinvar's counterpart is `<elinvar/launch>`"),
            "CXXNewExpr" | "CXXDeleteExpr" => self.refuse(node, "Metal has no memory allocation in kernels"),
            "CXXThrowExpr" => self.refuse(node, "Metal has no exceptions"),
            "CXXDynamicCastExpr" | "CXXTypeidExpr" => self.refuse(node, "Metal has no run-time type information"),
            "StmtExpr" => self.refuse(node, "a statement as an expression is not supported"),
            kind => self.refuse(node, format!("`{kind}` has no translation")),
        }
    }

    /// A text of the source.
    pub(super) fn literal_text(&self, node: &Node) -> Option<&str> {
        self.program.text.text.get(node.begin?..node.end?)
    }

    fn integer(&mut self, node: &Node) -> String {
        let suffix = match self.scalar(node) {
            Some(Scalar::UInt) => "u",
            Some(Scalar::Long) => "l",
            Some(Scalar::ULong) => "ul",
            _ => "",
        };
        let text = self.literal_text(node).unwrap_or("").replace('\'', "");
        let is_number = text.starts_with(|c: char| c.is_ascii_digit());
        if !is_number {
            return format!("{}{suffix}", node.value);
        }
        let digits = text.trim_end_matches(['u', 'U', 'l', 'L', 'z', 'Z']);
        // Octal numbers and others are the same in MSL.
        format!("{digits}{suffix}")
    }

    fn floating(&mut self, node: &Node) -> String {
        let text = self.literal_text(node).unwrap_or("").replace('\'', "");
        if self.scalar(node) == Some(Scalar::Double) {
            if self.loose {
                let value = self.constant(node).unwrap_or(0.0);
                return super::doubles::literal(value, Scalar::Float);
            }
            return self.refuse(node, "`double` does not exist in Metal; write `f` behind the number");
        }
        if text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            let text = text.trim_end_matches('F').trim_end_matches('f');
            let text = if text.starts_with("0x") || text.contains(['.', 'e', 'E']) {
                text.to_owned()
            } else {
                format!("{text}.0")
            };
            return format!("{text}f");
        }
        node.value.clone() + "f"
    }

    fn reference(&mut self, node: &Node) -> String {
        let Some(to) = node.refers.clone() else { return String::new() };
        if to.kind == "EnumConstantDecl" {
            let value = self.program.names.constants.get(&to.id).map_or(0, |(_, value)| *value);
            return value.to_string();
        }
        if to.kind == "FunctionDecl" || to.kind == "CXXMethodDecl" {
            return self.refuse(node, format!("`{}`: functions as values are not supported", to.name));
        }
        if to.kind == "NonTypeTemplateParmDecl" {
            return self.refuse(node, "a template parameter without a value");
        }
        let Some(declared) = self.program.names.nodes.get(&to.id).copied() else {
            return self.variable(to.id, &to.name);
        };
        self.use_variable(node, declared)
    }

    pub(super) fn use_variable(&mut self, node: &Node, declared: &Node) -> String {
        if let Some(index) = position(&declared.name).filter(|_| self.program.is_header(declared)) {
            return super::position_name(index).into();
        }
        let is_own = self.program.instances[self.instance].spaces.variables.contains_key(&declared.id);
        if declared.has("CUDASharedAttr") {
            return match declared.storage.as_str() {
                "extern" if self.variables.contains_key(&declared.id) => self.variables[&declared.id].clone(),
                "extern" => self.dynamic(declared),
                _ => self.need_name(Need::Shared(declared.id)),
            };
        }
        if self.program.names.globals.contains_key(&declared.id)
            || (declared.storage == "static" && declared.kind == "VarDecl")
        {
            return self.global(node, declared);
        }
        if !is_own && self.program.capture(declared.id).is_some() {
            let name = self.program.names.local(&declared.name);
            return format!("self.{name}");
        }
        let name = if declared.name.is_empty() {
            format!("unnamed_{}", declared.begin.unwrap_or(0))
        } else {
            declared.name.clone()
        };
        self.variable(declared.id, &name)
    }

    /// Shared memory whose size the launch gives, as what the declaration says it is.
    fn dynamic(&mut self, declared: &Node) -> String {
        let ty = self.ty(declared);
        let at = declared.begin.unwrap_or(0);
        match &ty {
            Ty::Array(of, _) => {
                let pointer = self.declare(&Ty::Pointer(of.clone()), &[Space::Threadgroup], "", None, at);
                format!("(({pointer})shared_memory)")
            }
            other => {
                let pointer =
                    self.declare(&Ty::Pointer(Box::new(other.clone())), &[Space::Threadgroup], "", None, at);
                format!("(*({pointer})shared_memory)")
            }
        }
    }

    fn global(&mut self, node: &Node, declared: &Node) -> String {
        if self.program.is_argument(declared) {
            return self.need_name(Need::Global(declared.id));
        }
        let is_const =
            declared.is_constexpr || declared.ty.starts_with("const ") || declared.has("CUDAConstantAttr");
        if !is_const {
            let why = match declared.storage.as_str() {
                "static" => "a static variable that changes has no counterpart in Metal",
                _ => "a variable of the host cannot be used in a kernel",
            };
            return self.refuse(node, format!("`{}`: {why}", declared.name));
        }
        // A number that is not in the text.
        if let (Some(Scalar::Double), Some(value)) = (self.scalar(declared), self.constant(node)) {
            return super::doubles::literal(value, Scalar::Float);
        }
        if !self.globals.contains(&declared.id) {
            self.globals.push(declared.id);
        }
        self.program.global_name(declared)
    }

    fn member(&mut self, node: &Node) -> String {
        let Some(base) = node.first() else { return String::new() };
        let id = node.refers.as_ref().map_or(0, |to| to.id);
        if let Some(declared) = self.program.names.nodes.get(&id).copied()
            && declared.kind == "VarDecl"
        {
            return self.global(node, declared);
        }
        if let Some((_, value)) = self.program.names.constants.get(&id) {
            return value.to_string();
        }
        let name = self.program.names.local(&node.name);
        if base.bare().kind == "CXXThisExpr" {
            let inner = self.base_path(base, "self".into());
            return format!("{inner}.{name}");
        }
        let text = self.expr(base);
        if node.name.is_empty() {
            // A member of an anonymous union.
            return if node.is_arrow { format!("(*{})", Self::wrap(&text)) } else { text };
        }
        // A vector of one component is a scalar.
        if self.lanes_of(base, node.is_arrow) == Some(1) {
            return if node.is_arrow { format!("(*{})", Self::wrap(&text)) } else { text };
        }
        format!("{}{}{name}", Self::wrap(&text), if node.is_arrow { "->" } else { "." })
    }

    /// The members of bases on the way from an object to that of a class that it derives from.
    fn base_path(&mut self, node: &Node, object: String) -> String {
        let mut text = object;
        let mut casts = Vec::new();
        let mut inner = node;
        while inner.kind != "CXXThisExpr" {
            if inner.cast.ends_with("DerivedToBase") {
                casts.push(inner);
            }
            let Some(next) = inner.first() else { break };
            inner = next;
        }
        for cast in casts.into_iter().rev() {
            text = self.base_of(cast, &text);
        }
        text
    }

    /// The components of a vector that an object is.
    pub(super) fn lanes_of(&self, base: &Node, is_arrow: bool) -> Option<usize> {
        let ty = self.ty(base);
        let ty = if is_arrow { ty.pointee().cloned()? } else { ty.referred().clone() };
        vector(ty.name()?).map(|(_, lanes)| lanes)
    }

    fn unary(&mut self, node: &Node) -> String {
        let Some(inner) = node.first() else { return String::new() };
        match node.opcode.as_str() {
            "&" => return self.address(inner),
            "!" => {
                let text = self.condition(inner);
                return format!("!{}", Self::wrap(&text));
            }
            "__extension__" => return self.expr(inner),
            "__real" | "__imag" => return self.refuse(node, "complex numbers are not supported"),
            _ => {}
        }
        let text = self.expr(inner);
        match node.opcode.as_str() {
            "*" if text.starts_with("(&") && text.ends_with(')') => text[2..text.len() - 1].to_owned(),
            op if node.is_postfix => format!("{}{op}", Self::wrap(&text)),
            // `- -x` is no decrement.
            op => format!("{op}{}", Self::wrap(&text)),
        }
    }

    /// The address of an lvalue. A component of a vector has none in Metal: it is that of an element of the vector's memory.
    pub(super) fn address(&mut self, inner: &Node) -> String {
        let bare = {
            let mut node = inner;
            while node.kind == "ParenExpr"
                && let Some(next) = node.first()
            {
                node = next;
            }
            node
        };
        if bare.kind == "MemberExpr"
            && let Some(base) = bare.first()
            && let Some(lanes) = self.lanes_of(base, bare.is_arrow).filter(|lanes| *lanes > 1)
        {
            let index = "xyzw".find(&bare.name).unwrap_or(0).min(lanes);
            let ty = self.ty(bare);
            let space = self.space(bare);
            let pointer =
                self.declare(&Ty::Pointer(Box::new(ty)), &[space], "", None, bare.begin.unwrap_or(0));
            let text = self.expr(base);
            let address = if bare.is_arrow { Self::wrap(&text) } else { format!("&{}", Self::wrap(&text)) };
            return if index == 0 {
                format!("(({pointer}){address})")
            } else {
                format!("(({pointer}){address} + {index})")
            };
        }
        let text = self.expr(inner);
        format!("(&{})", Self::wrap(&text))
    }

    fn binary(&mut self, node: &Node) -> String {
        let [a, b] = &node.children[..] else { return String::new() };
        let is_double = self.scalar(a) == Some(Scalar::Double) && self.scalar(b) == Some(Scalar::Double);
        if is_double && matches!(node.opcode.as_str(), "<" | ">" | "<=" | ">=" | "==" | "!=") {
            return match self.compare(node) {
                Some(text) => text,
                None => self.refuse(node, "a comparison of `double`s that `float` cannot do"),
            };
        }
        if self.scalar(node) == Some(Scalar::Double) && !self.loose {
            return self.refuse(node, "arithmetic in `double`, which does not exist in Metal");
        }
        if matches!(node.opcode.as_str(), "&&" | "||") {
            let (a, b) = (self.condition(a), self.condition(b));
            return format!("{a} {} {b}", node.opcode);
        }
        let (a, b) = (self.expr(a), self.expr(b));
        if node.opcode == "," {
            return format!("{a}, {b}");
        }
        format!("{a} {} {b}", node.opcode)
    }

    /// A value as a condition.
    pub(super) fn condition(&mut self, node: &Node) -> String {
        if node.kind == "ImplicitCastExpr"
            && node.cast == "FloatingToBoolean"
            && self.scalar(node.first().unwrap_or(node)) == Some(Scalar::Double)
        {
            return match node.first().and_then(|inner| self.single(inner)) {
                Some(text) => format!("{text} != 0.0f"),
                None => self.refuse(node, "arithmetic in `double`, which does not exist in Metal"),
            };
        }
        self.expr(node)
    }

    fn compound_assignment(&mut self, node: &Node) -> String {
        let [a, b] = &node.children[..] else { return String::new() };
        let left = self.expr(a);
        let op = node.opcode.as_str();
        if Scalar::named(self.parse(&node.compute).name().unwrap_or("")) == Some(Scalar::Double) {
            let to = self.scalar(a);
            let right = match to {
                Some(Scalar::Float) => self.single(b),
                Some(to @ (Scalar::Half | Scalar::BFloat)) => self
                    .constant(b)
                    .filter(|_| matches!(op, "*=" | "+=" | "-=" | "/="))
                    .map(|value| super::doubles::literal(value, to)),
                _ => None,
            };
            return match right {
                Some(right) => format!("{left} {op} {right}"),
                None if self.loose => {
                    self.notes.difference("arithmetic in `double` is computed in `float`");
                    format!("{left} {op} {}", self.expr(b))
                }
                None => self.refuse(node, "arithmetic in `double`, which does not exist in Metal"),
            };
        }
        let right = self.expr(b);
        // Small types are computed in `float`, if the other operand is one.
        let from = self.scalar(a);
        if matches!(from, Some(Scalar::BFloat | Scalar::Half)) && self.scalar(b) == Some(Scalar::Float) {
            let word = from.map_or("half", Scalar::word);
            let op = op.trim_end_matches('=');
            return format!("{left} = {word}(float({left}) {op} {})", Self::wrap(&right));
        }
        format!("{left} {op} {right}")
    }

    fn size_of(&mut self, node: &Node) -> String {
        let ty = match (&node.argument, node.first()) {
            (Some(text), _) => self.parse(text),
            (None, Some(inner)) => self.ty(inner),
            (None, None) => return String::new(),
        };
        let at = node.begin.unwrap_or(0);
        if ty.innermost().name().and_then(Scalar::named) == Some(Scalar::Double)
            && ty.levels() == 0
            && !ty.is_array()
        {
            return "8ul".into();
        }
        let levels = vec![Space::Device; ty.levels()];
        let text = self.declare(ty.referred(), &levels, "", None, at);
        let word = if node.name == "alignof" { "alignof" } else { "sizeof" };
        format!("{word}({})", text.trim_start_matches("const "))
    }

    /// A list of values in braces.
    pub(super) fn list(&mut self, node: &Node) -> String {
        let ty = self.ty(node);
        let at = node.begin.unwrap_or(0);
        let name = ty.name().map(str::to_owned);
        if let Some((scalar, _)) = name.as_deref().and_then(vector) {
            let values: Vec<String> = node.children.iter().map(|child| self.exact(child, scalar)).collect();
            let of = self.type_name(name.as_deref().unwrap_or(""), at);
            return if values.is_empty() {
                format!("{of}(0)")
            } else {
                format!("{of}({})", values.join(", "))
            };
        }
        if name.as_deref().and_then(Scalar::named).is_some() {
            let of = self.type_name(name.as_deref().unwrap_or(""), at);
            return match node.first() {
                Some(inner) => format!("{of}({})", self.expr(inner)),
                None => format!("{of}(0)"),
            };
        }
        let values: Vec<String> = node
            .children
            .iter()
            .filter(|child| !child.is_null() && child.kind != "ImplicitValueInitExpr")
            .map(|child| match self.scalar(child) {
                // C++ does not allow narrowing in braces.
                Some(scalar) if child.kind == "ImplicitCastExpr" && child.cast != "LValueToRValue" => {
                    self.exact(child, scalar)
                }
                _ => self.expr(child),
            })
            .collect();
        match name.filter(|_| !ty.is_array()) {
            Some(name) => {
                let of = self.type_name(&name, at);
                format!("{of}{{{}}}", values.join(", "))
            }
            None => format!("{{{}}}", values.join(", ")),
        }
    }

    /// A value of exactly this type.
    pub(super) fn exact(&mut self, node: &Node, scalar: Scalar) -> String {
        if node.kind == "ImplicitCastExpr" && node.bare().kind == "IntegerLiteral" {
            let value = node.bare().value.clone();
            match scalar {
                Scalar::Float => return format!("{value}.0f"),
                Scalar::UInt => return format!("{value}u"),
                _ => {}
            }
        }
        let text = self.expr(node);
        let is_cast = node.kind == "ImplicitCastExpr" && node.cast != "LValueToRValue" && node.cast != "NoOp";
        let is_done = text.starts_with(&format!("{}(", scalar.word()))
            || text.ends_with('f') && scalar == Scalar::Float && self.constant(node).is_some();
        if is_cast && !is_done { format!("{}({text})", scalar.word()) } else { text }
    }
}
