//! Conversions.

use super::Renderer;
use crate::cuda::ast::Node;
use crate::cuda::types::{Scalar, Ty, vector};

impl Renderer<'_, '_> {
    pub(super) fn cast(&mut self, node: &Node) -> String {
        let Some(inner) = node.children.last() else { return String::new() };
        let is_explicit = node.kind != "ImplicitCastExpr";
        match node.cast.as_str() {
            "LValueToRValue"
            | "ArrayToPointerDecay"
            | "FunctionToPointerDecay"
            | "ConstructorConversion"
            | "UserDefinedConversion"
            | "BuiltinFnToFnPtr" => self.expr(inner),
            "NullToPointer" => "nullptr".into(),
            "ToVoid" => {
                let text = self.expr(inner);
                format!("(void){}", Self::wrap(&text))
            }
            "UncheckedDerivedToBase" | "DerivedToBase" => {
                let text = self.expr(inner);
                match self.ty(node).is_pointer() {
                    true => {
                        let object = match text.strip_prefix("(&").and_then(|rest| rest.strip_suffix(')')) {
                            Some(object) => object.to_owned(),
                            None => format!("(*{})", Self::wrap(&text)),
                        };
                        format!("(&{})", self.base_of(node, &object))
                    }
                    false => self.base_of(node, &text),
                }
            }
            "NoOp" if !is_explicit => self.expr(inner),
            "NoOp" => self.explicit(node, inner),
            "PointerToBoolean" => {
                let text = self.expr(inner);
                format!("({} != nullptr)", Self::wrap(&text))
            }
            "LValueBitCast" => {
                let ty = self.ty(node);
                let space = self.space(inner);
                let pointer = self.declare(
                    &Ty::Pointer(Box::new(ty.referred().clone())),
                    &[space],
                    "",
                    None,
                    node.begin.unwrap_or(0),
                );
                let address = self.address(inner);
                format!("(*({pointer}){address})")
            }
            "BitCast" => self.pointer(node, inner),
            "PointerToIntegral" => {
                let text = self.expr(inner);
                let to = self.scalar(node).map_or("ulong", Scalar::word);
                format!("{to}(reinterpret_cast<ulong>({text}))")
            }
            "IntegralToPointer" => {
                let levels = self.levels(node);
                let ty = self.ty(node);
                let pointer = self.declare(&ty, &levels, "", None, node.begin.unwrap_or(0));
                let text = self.expr(inner);
                format!("reinterpret_cast<{pointer}>({text})")
            }
            "FloatingCast"
            | "IntegralCast"
            | "IntegralToFloating"
            | "FloatingToIntegral"
            | "IntegralToBoolean"
            | "FloatingToBoolean"
            | "BooleanToSignedIntegral" => self.convert(node, inner, is_explicit),
            kind => self.refuse(node, format!("a conversion of the kind `{kind}` is not supported")),
        }
    }

    /// A conversion of numbers.
    fn convert(&mut self, node: &Node, inner: &Node, is_explicit: bool) -> String {
        let (Some(from), Some(to)) = (self.scalar(inner), self.scalar(node)) else {
            return self.refuse(node, format!("a conversion of `{}` to `{}`", inner.ty, node.ty));
        };
        if to == Scalar::Double {
            if self.loose {
                return self.expr(inner);
            }
            return self.refuse(node, "arithmetic in `double`, which does not exist in Metal");
        }
        if from == Scalar::Double {
            if to.is_float() {
                return match self.narrow(inner, to) {
                    Some(text) => text,
                    None => self.refuse(node, "arithmetic in `double`, which does not exist in Metal, with a result that `float` does not give"),
                };
            }
            return match self.single(inner) {
                Some(text) => format!("{}({text})", to.word()),
                None if self.loose => format!("{}({})", to.word(), self.expr(inner)),
                None => self.refuse(node, "arithmetic in `double`, which does not exist in Metal"),
            };
        }
        let text = self.expr(inner);
        let needs_name = from == Scalar::BFloat || to == Scalar::BFloat || (from.is_float() && to.is_float());
        if is_explicit || needs_name { format!("{}({text})", to.word()) } else { text }
    }

    /// `T(x)`, `(T)x` or `static_cast<T>(x)` with a type of the same kind, or around the conversion.
    fn explicit(&mut self, node: &Node, inner: &Node) -> String {
        let ty = self.ty(node);
        if ty.is_pointer() {
            return self.pointer(node, inner);
        }
        if let (Some(to), "ImplicitCastExpr") = (self.scalar(node), inner.kind.as_str())
            && inner.cast != "LValueToRValue"
            && let Some(value) = inner.first()
        {
            let text = match inner.cast.as_str() {
                "FloatingCast" | "IntegralCast" | "IntegralToFloating" | "FloatingToIntegral"
                | "IntegralToBoolean" | "FloatingToBoolean" => self.convert(inner, value, true),
                _ => self.expr(inner),
            };
            let is_done = text.starts_with(&format!("{}(", to.word()))
                || self.constant(inner).is_some() && to == Scalar::Float;
            return if is_done { text } else { format!("{}({text})", to.word()) };
        }
        let text = self.expr(inner);
        match self.scalar(node) {
            Some(to) if node.category == "prvalue" && to != Scalar::Double => {
                format!("{}({text})", to.word())
            }
            _ => text,
        }
    }

    fn pointer(&mut self, node: &Node, inner: &Node) -> String {
        let ty = self.ty(node);
        let levels = self.levels(node);
        let text = self.expr(inner);
        let to = self.declare(&ty, &levels, "", None, node.begin.unwrap_or(0));
        let levels = self.levels(inner);
        let from_ty = self.ty(inner);
        if let Ty::Pointer(of) = &from_ty
            && of.innermost().name() == Some("double")
        {
            return self.refuse(node, "`double` does not exist in Metal");
        }
        let from = self.declare(&from_ty, &levels, "", None, node.begin.unwrap_or(0));
        if from == to { text } else { format!("(({to}){})", Self::wrap(&text)) }
    }

    /// The member that stands for a base of an object.
    pub(super) fn base_of(&mut self, cast: &Node, object: &str) -> String {
        let Some(inner) = cast.first() else { return object.to_owned() };
        let from = self.ty(inner);
        let to = self.ty(cast);
        let name = |ty: &Ty| match ty {
            Ty::Pointer(of) => of.name().map(str::to_owned),
            other => other.referred().name().map(str::to_owned),
        };
        let (Some(from), Some(to)) = (name(&from), name(&to)) else { return object.to_owned() };
        let mut path = Vec::new();
        if !self.base_members(&from, &to, &mut path) {
            return self.refuse(cast, format!("`{to}` is no base of `{from}`"));
        }
        let mut text = Self::wrap(object);
        for member in path {
            text = format!("{text}.{member}");
        }
        text
    }

    fn base_members(&self, from: &str, to: &str, path: &mut Vec<String>) -> bool {
        let names = self.program.names;
        let (Some(from), Some(to)) = (names.record_of(from), names.record_of(to)) else { return false };
        if from == to {
            return true;
        }
        for base in &names.records[&from].node.bases {
            let ty = self.parse(base);
            let Some(name) = ty.name() else { continue };
            let Some(id) = names.record_of(name) else { continue };
            path.push(format!("base_{}", names.records[&id].msl));
            if id == to || self.base_members(name, &names.records[&to].name, path) {
                return true;
            }
            path.pop();
        }
        false
    }

    /// Whether a type is a vector of CUDA's header.
    pub(super) fn is_vector(&self, ty: &Ty) -> bool {
        ty.referred().name().is_some_and(|name| vector(name).is_some())
    }
}
