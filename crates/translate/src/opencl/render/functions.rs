//! Functions and kernels: their heads, and parameters for positions and sizes.

use crate::opencl::ast::Node;
use crate::opencl::program::Position;
use crate::opencl::report::Argument;
use crate::opencl::text::closing;
use crate::opencl::types::{self, Shape, Space, Type};

use super::Renderer;

/// Buffers of a kernel in Metal.
const MAX_BUFFERS: usize = 31;

impl Renderer<'_> {
    /// A function or kernel, or its declaration, without a semicolon.
    pub fn function(&mut self, node: &Node) -> String {
        let (Some(begin), Some(at), Some(end)) = (node.begin, node.at, node.end) else {
            return String::new();
        };
        let Some(index) = self.program.function(node.id) else { return String::new() };
        let function = &self.program.functions[index];
        let needs: Vec<Position> = function.needs.iter().copied().collect();
        let is_kernel = function.is_kernel;
        let name = self.program.names.of(&node.name);
        if is_kernel && name != node.name {
            self.notes.renamed(&node.name, &name);
        }
        let open = self.text[at..].find('(').map_or(end, |found| at + found);
        let close = closing(self.text, open).unwrap_or(end);
        let mut out = self.head(node, is_kernel);
        // A head on several lines has its line breaks before the name.
        out = self.fit(begin, open, out).replace(" \n", "\n");
        out.push_str(&name);
        out.push('(');
        let mut cursor = open + 1;
        let mut prologue = String::new();
        let mut bindings = Bindings::default();
        let mut count = 0;
        let params: Vec<&Node> = node.params().collect();
        for param in params {
            let (Some(from), Some(to)) = (param.begin, param.end) else { continue };
            out.push_str(&self.blanks_but_commas(cursor, from));
            let text = if is_kernel {
                self.kernel_parameter(node, param, &mut bindings, &mut prologue)
            } else {
                self.parameter(param)
            };
            // A parameter of type array ends behind its brackets.
            cursor = to.max(cursor);
            out.push_str(&self.fit(from, to, text));
            count += 1;
        }
        for need in needs {
            out.push_str(if count > 0 { ", " } else { "" });
            let word = self.program.names.added(need.word());
            out.push_str(&format!("uint3 {word}"));
            if is_kernel {
                out.push_str(&format!(" [[{}]]", need.attribute()));
            }
            count += 1;
        }
        // Comments behind the last parameter.
        out.push_str(&self.blanks_but_commas(cursor, close - 1));
        out.push(')');
        if bindings.buffers > MAX_BUFFERS {
            self.refuse(
                node,
                format!(
                    "kernel `{}` takes {} buffers and scalars; Metal has {MAX_BUFFERS}",
                    node.name, bindings.buffers
                ),
            );
        }
        if is_kernel {
            self.notes.kernel(&node.name, std::mem::take(&mut bindings.arguments));
        }
        let Some(body) = node.body() else { return out };
        let (Some(from), Some(_)) = (body.begin, body.end) else { return out };
        out.push_str(&self.blanks(close, from));
        self.structure_jumps(body);
        let text = self.node(body);
        match text.strip_prefix('{') {
            Some(rest) if !prologue.is_empty() => out.push_str(&format!("{{{prologue}{rest}")),
            _ => out.push_str(&text),
        }
        out
    }

    /// Comments and white space of a gap between parameters, with its comma.
    fn blanks_but_commas(&self, from: usize, to: usize) -> String {
        let gap = self.text.get(from..to).unwrap_or("");
        match crate::opencl::text::tokens(gap, 0).find(|(_, token)| *token == ",") {
            Some((at, _)) => {
                format!("{},{}", self.blanks(from, from + at), self.blanks(from + at + 1, to))
            }
            None => self.blanks(from, to),
        }
    }

    /// What stands before the name.
    fn head(&mut self, node: &Node, is_kernel: bool) -> String {
        if is_kernel {
            let group = node.children.iter().find(|child| child.kind == "ReqdWorkGroupSizeAttr");
            let sizes = group.map(|attribute| self.source(attribute)).and_then(group_size);
            if let Some(sizes) = sizes {
                let total: u64 = sizes.iter().product();
                self.notes.group_size(&node.name, sizes);
                return format!("[[max_total_threads_per_threadgroup({total})]] kernel void ");
            }
            return "kernel void ".into();
        }
        let mut words = String::new();
        if node.storage == "static" {
            words.push_str("static ");
        }
        if node.inline {
            words.push_str("inline ");
        }
        let plain = result_type(&node.plain);
        let written = result_type(&node.ty);
        match self.parse_types(written, plain) {
            Some(found) => {
                let declared = self.declare(&found, "\u{1}");
                words + &declared.replace('\u{1}', "")
            }
            None => self.refuse(node, format!("the type `{written}` has no counterpart in MSL")),
        }
    }

    fn parameter(&mut self, param: &Node) -> String {
        self.expect_type(param);
        let name = self.program.names.of(&param.name);
        match self.parse_type(param) {
            Some(found) => self.declare(&found, &name),
            None => self.refuse(param, format!("the type `{}` has no counterpart in MSL", param.ty)),
        }
    }

    fn kernel_parameter(
        &mut self,
        kernel: &Node,
        param: &Node,
        bindings: &mut Bindings,
        prologue: &mut String,
    ) -> String {
        self.expect_type(param);
        let written = if param.name.is_empty() {
            format!("arg{}", bindings.arguments.len())
        } else {
            param.name.clone()
        };
        let name = self.program.names.of(&written);
        if name != written {
            self.notes.renamed(&written, &name);
        }
        let Some(found) = self.parse_type(param) else {
            return self.refuse(param, format!("the type `{}` has no counterpart in MSL", param.ty));
        };
        let plain = types::parse(&param.plain).unwrap_or_else(|| found.clone());
        let declared = match plain.pointee() {
            Some(to) => {
                let space = to.qualifiers().space;
                if !matches!(space, Some(Space::Global | Space::Local | Space::Constant)) {
                    return self.refuse(
                        param,
                        format!("argument `{written}` of kernel `{}` points to private memory", kernel.name),
                    );
                }
                // A buffer has elements.
                let of = match &found {
                    Type::Pointer(own, to) if matches!(&**to, Type::Named(_, base) if base == "void") => {
                        let bytes = Type::Named(to.qualifiers().clone(), "uchar".into());
                        Type::Pointer(own.clone(), Box::new(bytes))
                    }
                    _ => found.clone(),
                };
                let declared = self.declare(&of, &name);
                if space == Some(Space::Local) {
                    bindings.groups += 1;
                    format!("{declared} [[threadgroup({})]]", bindings.groups - 1)
                } else {
                    bindings.buffers += 1;
                    format!("{declared} [[buffer({})]]", bindings.buffers - 1)
                }
            }
            None => {
                if Shape::of(&param.plain) == Shape::Pointer {
                    return self.refuse(
                        param,
                        format!("argument `{written}`: the type `{}` is not supported", param.ty),
                    );
                }
                let mut named = found;
                named.qualifiers_mut().is_const = false;
                let declared = self.declare(&named, &format!("\u{1}{name}")).replace(" \u{1}", "& ");
                if is_modified(kernel, param) {
                    let copy = self.program.names.free(&name);
                    let value = self.declare(&named, &copy);
                    prologue.push_str(&format!(" {value} = {name};"));
                    self.renamed.insert(param.id, copy);
                }
                bindings.buffers += 1;
                format!("constant {declared} [[buffer({})]]", bindings.buffers - 1)
            }
        };
        bindings.arguments.push(Argument {
            source: format!("{} {written}", param.ty.replace("__private", "").trim()),
            msl: declared.clone(),
        });
        declared
    }

    /// A call of a function of the source.
    pub fn call(&mut self, node: &Node, index: usize) -> String {
        let needs = self.program.functions[index].needs.clone();
        if self.program.functions[index].definition.is_none() {
            let name = node.first().map(|callee| callee.bare()).and_then(|callee| callee.refers.clone());
            let name = name.map(|found| found.name).unwrap_or_default();
            return self.refuse(node, format!("function `{name}` is declared and not defined"));
        }
        let names: Vec<String> = needs.iter().map(|need| self.program.names.added(need.word())).collect();
        let children: Vec<&Node> = node.children.iter().collect();
        let text = self.splice_with(node, &children, |this, child| {
            // An argument of an array's or struct's type is passed as it is.
            this.argument(child)
        });
        if names.is_empty() {
            return text;
        }
        let Some(body) = text.strip_suffix(')') else { return text };
        let comma = if children.len() > 1 { ", " } else { "" };
        format!("{body}{comma}{})", names.join(", "))
    }

    /// An argument of a function of the source. A vector made of a scalar is written.
    fn argument(&mut self, node: &Node) -> String {
        self.node(node)
    }
}

/// The arguments of a kernel so far.
#[derive(Default)]
struct Bindings {
    buffers: usize,
    groups: usize,
    arguments: Vec<Argument>,
}

/// The result's type in the type of a function.
fn result_type(function: &str) -> &str {
    let mut depth = 0_i32;
    let mut is_attribute = false;
    for (at, token) in crate::opencl::text::tokens(function, 0) {
        match token {
            "__attribute__" => is_attribute = true,
            "(" if depth == 0 && !is_attribute => return function[..at].trim_end(),
            "(" => depth += 1,
            ")" => {
                depth -= 1;
                is_attribute &= depth > 0;
            }
            _ => {}
        }
    }
    function
}

/// The numbers of `reqd_work_group_size(X, Y, Z)`.
fn group_size(text: &str) -> Option<[u64; 3]> {
    let open = text.find('(')?;
    let inside = text.get(open + 1..)?.trim_end_matches(')');
    let mut sizes =
        inside.split(',').map(|word| word.trim().trim_end_matches(['u', 'U', 'l', 'L']).parse::<u64>().ok());
    Some([sizes.next()??, sizes.next()??, sizes.next()??])
}

/// Whether a function changes a parameter or takes its address: it is used other than as a value.
fn is_modified(function: &Node, param: &Node) -> bool {
    fn visit(node: &Node, id: u64, is_value: bool) -> bool {
        if node.kind == "DeclRefExpr" && node.refers.as_ref().is_some_and(|found| found.id == id) {
            return !is_value;
        }
        let reads = node.kind == "ImplicitCastExpr" && node.cast == "LValueToRValue";
        let passes = matches!(
            node.kind.as_str(),
            "ParenExpr" | "MemberExpr" | "ExtVectorElementExpr" | "ArraySubscriptExpr"
        );
        node.children.iter().any(|child| visit(child, id, reads || (passes && is_value)))
    }
    function.body().is_some_and(|body| visit(body, param.id, false))
}
