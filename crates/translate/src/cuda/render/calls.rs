//! Calls, and objects that are made.

use super::Renderer;
use crate::cuda::ast::{Node, is_expression};
use crate::cuda::builtins;
use crate::cuda::program::Need;
use crate::cuda::spaces::key;
use crate::cuda::types::{Scalar, Ty, vector};

impl Renderer<'_, '_> {
    pub(super) fn call(&mut self, node: &Node) -> String {
        if let Some(index) = self.program.instances[self.instance].calls.get(&key(node)).copied() {
            return self.own_call(node, index);
        }
        if self.program.callee(node).is_some() {
            // Recursion, which has its error.
            return "0".into();
        }
        let Some(callee) = node.callee() else { return String::new() };
        let Some(to) = callee.refers.clone() else {
            return self.refuse(node, "a call through a pointer is not supported");
        };
        let args: Vec<&Node> = node.children.iter().skip(1).collect();
        match to.name.as_str() {
            // Assignments that clang has added.
            "operator=" if args.len() == 2 => {
                let (a, b) = (self.expr(args[0]), self.expr(args[1]));
                return format!("{a} = {b}");
            }
            "operator=" if node.kind == "CXXMemberCallExpr" && args.len() == 1 => {
                let object = callee.first().map_or(String::new(), |base| self.expr(base));
                return format!("{object} = {}", self.expr(args[0]));
            }
            "" => return self.refuse(node, "a call through a pointer is not supported"),
            _ => {}
        }
        let declared = self.program.names.nodes.get(&to.id).copied();
        if to.kind != "FunctionDecl" && to.kind != "CXXMethodDecl" && to.kind != "member" {
            return self.refuse(node, format!("`{}`: a call through a pointer is not supported", to.name));
        }
        // clang declares its own functions where they are first used.
        let is_builtin = to.name.starts_with("__builtin_");
        let is_header = is_builtin || declared.is_none_or(|declared| self.program.is_header(declared));
        if !is_header {
            return self.refuse(node, format!("`{}` has no definition in the source", to.name));
        }
        builtins::call(self, node, &to.name, &args)
    }

    /// A call of a function that is translated.
    fn own_call(&mut self, node: &Node, index: usize) -> String {
        let instance = &self.program.instances[index];
        let (function, name) = (instance.node, instance.name.clone());
        let needs: Vec<Need> = instance.needs.iter().copied().collect();
        let has_object = instance.record.is_some();
        let mut args: Vec<&Node> = node.children.iter().skip(1).collect();
        let mut texts = Vec::new();
        if node.kind == "CXXMemberCallExpr" {
            let callee = node.callee();
            if let (Some(member), true) = (callee, has_object)
                && let Some(base) = member.first()
            {
                texts.push(self.object(base, member.is_arrow));
            }
        } else if node.kind == "CXXOperatorCallExpr" && self.program.names.members.contains_key(&function.id)
        {
            let object = args.remove(0);
            if has_object {
                texts.push(self.expr(object));
            }
        }
        texts.extend(self.arguments(function, &args));
        let hidden: Vec<String> = needs.iter().map(|need| self.need_name(*need)).collect();
        texts.extend(hidden);
        format!("{name}({})", texts.join(", "))
    }

    /// The object that a member function is called for.
    fn object(&mut self, base: &Node, is_arrow: bool) -> String {
        let text = self.expr(base);
        if !is_arrow {
            return text;
        }
        match text.strip_prefix("(&").and_then(|rest| rest.strip_suffix(')')) {
            Some(object) => object.to_owned(),
            None => format!("*{}", Self::wrap(&text)),
        }
    }

    fn arguments(&mut self, function: &Node, args: &[&Node]) -> Vec<String> {
        let params: Vec<&Node> = function.params().collect();
        let mut texts = Vec::new();
        for (arg, param) in args.iter().zip(params) {
            let ty = self.ty(param);
            let is_scalar = ty.referred().name().and_then(Scalar::named);
            texts.push(match is_scalar {
                Some(scalar) if arg.category == "prvalue" => self.exact(arg, scalar),
                _ => self.expr(arg),
            });
        }
        texts
    }

    pub(super) fn construct(&mut self, node: &Node) -> String {
        if let Some(index) = self.program.instances[self.instance].calls.get(&key(node)).copied() {
            let instance = &self.program.instances[index];
            let (function, name) = (instance.node, instance.name.clone());
            let needs: Vec<Need> = instance.needs.iter().copied().collect();
            let args: Vec<&Node> = node.children.iter().collect();
            let mut texts = self.arguments(function, &args);
            let hidden: Vec<String> = needs.iter().map(|need| self.need_name(*need)).collect();
            texts.extend(hidden);
            return format!("{name}({})", texts.join(", "));
        }
        let ty = self.ty(node);
        let at = node.begin.unwrap_or(0);
        if let Some(name) = ty.name()
            && let Some((scalar, lanes)) = vector(name)
        {
            if node.children.len() == 1 && self.is_vector(&self.ty(&node.children[0])) {
                return self.expr(&node.children[0]);
            }
            let of = self.type_name(name, at);
            if node.children.is_empty() && name != "dim3" {
                return format!("{of}(0)");
            }
            let mut values: Vec<String> =
                node.children.iter().map(|child| self.exact(child, scalar)).collect();
            values.resize(lanes, "1".into());
            return format!("{of}({})", values.join(", "));
        }
        match &node.children[..] {
            [] => match ty.name() {
                Some(name) => format!("{}{{}}", self.type_name(name, at)),
                None => "{}".into(),
            },
            [one] => self.expr(one),
            _ => {
                self.refuse(node, format!("the constructor of `{}` has no definition in the source", node.ty))
            }
        }
    }

    /// A closure: a struct with what it holds.
    pub(super) fn closure(&mut self, node: &Node) -> String {
        let Some(record) = node.first() else { return String::new() };
        self.record(record.id, node.begin.unwrap_or(0));
        let values: Vec<&Node> =
            node.children.iter().skip(1).filter(|child| is_expression(&child.kind)).collect();
        let texts: Vec<String> = values.into_iter().map(|value| self.expr(value)).collect();
        let name =
            self.program.names.records.get(&record.id).map_or(String::new(), |record| record.msl.clone());
        format!("{name}{{{}}}", texts.join(", "))
    }

    /// The element type of a pointer argument, without qualifiers.
    pub(super) fn element(&self, node: &Node) -> Option<Ty> {
        match self.ty(node) {
            Ty::Pointer(to) | Ty::Array(to, _) => Some(*to),
            _ => None,
        }
    }
}
