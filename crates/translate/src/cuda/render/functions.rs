//! Functions, kernels, records and variables outside functions.

use super::{Renderer, Row};
use crate::cuda::ast::Node;
use crate::cuda::program::{Need, POSITIONS, pointer_count, result_of};
use crate::cuda::types::{Scalar, Space, Ty};
use crate::opencl::report::Argument;

/// A variable outside functions, in the order of use.
pub(crate) struct Global {
    pub rows: Vec<Row>,
    pub errors: Vec<(usize, String)>,
}

impl<'a> Renderer<'_, 'a> {
    /// A function, with its errors.
    pub fn function(&mut self, index: usize) -> (Vec<Row>, Vec<(usize, String)>) {
        self.instance = index;
        self.variables.clear();
        self.rows.clear();
        self.indent = 0;
        let instance = &self.program.instances[index];
        let node = instance.node;
        self.program.enter(node);
        self.last = node.begin.unwrap_or(0);
        self.errors.extend(instance.errors.clone());
        self.leading_comments(node);
        match instance.is_kernel {
            true => self.kernel(node, index),
            false => self.device_function(node, index),
        }
        (std::mem::take(&mut self.rows), std::mem::take(&mut self.errors))
    }

    /// The comments on the lines above a function.
    fn leading_comments(&mut self, node: &'a Node) {
        let Some(begin) = node.begin.filter(|begin| !self.program.is_header_at(*begin)) else { return };
        let text = &self.program.text.text;
        let mut end = text[..begin].rfind('\n').map_or(0, |at| at + 1);
        let mut found = Vec::new();
        let mut in_block = false;
        while end > 0 {
            let start = text[..end - 1].rfind('\n').map_or(0, |at| at + 1);
            let line = text[start..end].trim();
            let is_template = found.is_empty() && line.starts_with("template");
            in_block |= line.ends_with("*/") && !is_template;
            if in_block || line.starts_with("//") {
                found.push((start, line.to_owned()));
                in_block &= !line.starts_with("/*");
            } else if !is_template {
                break;
            }
            end = start;
        }
        if in_block {
            return;
        }
        for (offset, line) in found.into_iter().rev() {
            self.row(Some(offset), line);
        }
    }

    fn device_function(&mut self, node: &'a Node, index: usize) {
        let at = node.begin.unwrap_or(0);
        let (name, record, needs) = {
            let instance = &self.program.instances[index];
            (instance.name.clone(), instance.record, instance.needs.iter().copied().collect::<Vec<Need>>())
        };
        let is_constructor = node.kind == "CXXConstructorDecl";
        if node.is_virtual {
            self.refuse(node, format!("`{}` is virtual, and Metal has no virtual functions", node.name));
        }
        let mut params = Vec::new();
        if let Some(id) = record {
            self.record(id, at);
            let of = self.program.names.records[&id].msl.clone();
            if !is_constructor {
                let spaces = &self.program.instances[index].spaces;
                let space = spaces.get(spaces.this).unwrap_or(Space::Thread);
                let is_const = node.ty.contains(") const");
                let of = match is_const && space != Space::Constant {
                    true => format!("const {of}"),
                    false => of,
                };
                params.push(format!("{} {of}& self", space.word()));
            }
        }
        for (position, param) in node.params().enumerate() {
            params.push(self.parameter(param, position, index));
        }
        for need in &needs {
            let text = self.need_parameter(*need);
            params.push(text);
        }
        let result = match (is_constructor, record) {
            (true, Some(id)) => self.program.names.records[&id].msl.clone(),
            _ => {
                let ty = result_of(node, self.program.names);
                let spaces = &self.program.instances[index].spaces;
                let levels: Vec<Space> = spaces.result.iter().map(|slot| spaces.of(*slot)).collect();
                self.declare(&ty, &levels, "", None, at)
            }
        };
        self.row(Some(at), format!("inline {result} {name}({}) {{", params.join(", ")));
        self.indent = 1;
        if is_constructor {
            self.row(None, format!("{result} self;"));
            self.initializers(node);
        }
        if let Some(body) = node.body() {
            self.last = body.begin.unwrap_or(self.last);
            self.statements(body);
        }
        if is_constructor {
            self.row(None, "return self;");
        }
        self.indent = 0;
        self.row(None, "}");
    }

    /// What a constructor sets before its body.
    fn initializers(&mut self, node: &'a Node) {
        for initializer in node.children.iter().filter(|child| child.kind == "CXXCtorInitializer") {
            let Some(value) = initializer.first() else { continue };
            if let (Some(field), "InitListExpr", Ty::Array(element, length)) =
                (&initializer.refers, value.kind.as_str(), self.ty(value))
                && !element.is_array()
            {
                let target = self.program.names.local(&field.name);
                self.elements(&target, value, &length);
                continue;
            }
            let text = match value.kind.as_str() {
                "CXXConstructExpr"
                    if value.children.is_empty() && self.program.constructor(value).is_none() =>
                {
                    continue;
                }
                _ => self.expr(value),
            };
            let target = match (&initializer.refers, &initializer.argument) {
                (Some(field), _) => self.program.names.local(&field.name),
                (None, Some(base)) => {
                    let base = self.parse(base);
                    let id = base.name().and_then(|name| self.program.names.record_of(name));
                    id.map_or(String::new(), |id| format!("base_{}", self.program.names.records[&id].msl))
                }
                _ => continue,
            };
            if self.ty(value).is_array() {
                self.refuse(value, "an array that a constructor initializes is not supported");
            }
            self.row(value.begin, format!("self.{target} = {text};"));
        }
    }

    /// Sets the elements of an array in braces; those that are not there are 0.
    fn elements(&mut self, target: &str, list: &'a Node, length: &str) {
        let given =
            list.children.iter().filter(|child| child.kind != "ImplicitValueInitExpr" && !child.is_null());
        let mut count = 0;
        for value in given {
            let text = self.expr(value);
            self.row(value.begin, format!("self.{target}[{count}] = {text};"));
            count += 1;
        }
        if length.parse() != Ok(count) {
            self.row(
                list.begin,
                format!("for (uint i = {count}; i < {length}; i++) self.{target}[i] = {{}};"),
            );
        }
    }

    fn parameter(&mut self, param: &'a Node, position: usize, index: usize) -> String {
        let mut ty = self.ty(param);
        let at = param.begin.unwrap_or(0);
        let spaces = &self.program.instances[index].spaces;
        let slots = spaces.variables.get(&param.id).cloned().unwrap_or_default();
        let levels: Vec<Space> = slots.iter().map(|slot| spaces.of(*slot)).collect();
        if pointer_count(&ty) == 0 {
            ty = ty.referred().clone();
        }
        let name = match param.name.is_empty() {
            true => format!("unused_{position}"),
            false => self.program.names.local(&param.name),
        };
        self.variables.insert(param.id, name.clone());
        self.declare(&ty, &levels, &name, None, at)
    }

    /// The parameter of a function for what comes from its kernel.
    fn need_parameter(&mut self, need: Need) -> String {
        let name = self.need_name(need);
        match need {
            Need::Position(index) => format!("{} {name}", POSITIONS[index].1),
            Need::Dynamic => format!("threadgroup uchar* {name}"),
            Need::Shared(id) | Need::Global(id) => {
                let node = self.program.names.nodes[&id];
                let at = node.begin.unwrap_or(0);
                let space = match need {
                    Need::Shared(_) => Space::Threadgroup,
                    _ => self.program.global(node).unwrap_or(Space::Device),
                };
                let ty = self.ty(node);
                let mut levels = vec![space];
                levels.extend((0..ty.levels()).map(|level| self.field_space(id, level)));
                self.declare(&Ty::Reference(Box::new(ty)), &levels, &name, None, at)
            }
        }
    }

    fn field_space(&self, id: u64, level: usize) -> Space {
        self.program.fields.borrow().get(&(id, level)).copied().unwrap_or(Space::Device)
    }

    fn kernel(&mut self, node: &'a Node, index: usize) {
        let at = node.begin.unwrap_or(0);
        let (name, needs) = {
            let instance = &self.program.instances[index];
            (instance.name.clone(), instance.needs.iter().copied().collect::<Vec<Need>>())
        };
        let mut params = Vec::new();
        let mut arguments = Vec::new();
        let mut first = Vec::new();
        for (position, param) in node.params().enumerate() {
            let (text, row) = self.kernel_parameter(param, position, index);
            let text = format!("{text} [[buffer({position})]]");
            arguments.push(Argument { source: format!("{} {}", param.ty, param.name), msl: text.clone() });
            params.push(text);
            first.extend(row.map(|row| (param.begin, row)));
        }
        let mut next = params.len();
        let mut shared = Vec::new();
        for need in &needs {
            match *need {
                Need::Position(index) => {
                    params.push(format!("{} [[{}]]", self.need_parameter(*need), POSITIONS[index].2))
                }
                Need::Dynamic => {
                    let text = format!("{} [[threadgroup(0)]]", self.need_parameter(*need));
                    arguments.push(Argument { source: "extern __shared__".into(), msl: text.clone() });
                    params.push(text);
                }
                Need::Shared(id) => shared.push(id),
                Need::Global(id) => {
                    let (text, row) = self.global_parameter(id);
                    let text = format!("{text} [[buffer({next})]]");
                    let declared = self.program.names.nodes[&id];
                    arguments.push(Argument {
                        source: format!("{} {}", declared.ty, declared.name),
                        msl: text.clone(),
                    });
                    params.push(text);
                    first.extend(row.map(|row| (declared.begin, row)));
                    next += 1;
                }
            }
        }
        if next > 31 {
            self.refuse(node, format!("the kernel has {next} arguments, and Metal allows 31 buffers"));
        }
        let bounds = node.children.iter().find(|child| child.kind == "CUDALaunchBoundsAttr");
        let bounds =
            bounds.and_then(Node::first).map(|value| value.value.clone()).filter(|value| !value.is_empty());
        let bounds =
            bounds.map_or(String::new(), |value| format!("[[max_total_threads_per_threadgroup({value})]] "));
        self.row(Some(at), format!("{bounds}kernel void {name}({}) {{", params.join(", ")));
        self.indent = 1;
        for (offset, text) in first {
            self.row(offset, text);
        }
        for id in shared {
            let declared = self.program.names.nodes[&id];
            let ty = self.ty(declared);
            let name = self.need_name(Need::Shared(id));
            let levels: Vec<Space> = (0..ty.levels()).map(|level| self.field_space(id, level)).collect();
            let text =
                self.declare(&ty, &levels, &name, Some(Space::Threadgroup), declared.begin.unwrap_or(0));
            self.row(declared.begin, format!("{text};"));
        }
        if let Some(body) = node.body() {
            self.last = body.begin.unwrap_or(self.last);
            self.statements(body);
        }
        self.indent = 0;
        self.row(None, "}");
        self.notes.kernel(&name, arguments);
        if name != node.name {
            let arguments = self.program.names.arguments.get(&node.id);
            let written =
                arguments.map_or(node.name.clone(), |list| format!("{}<{}>", node.name, list.join(", ")));
            self.notes.renamed(&written, &name);
        }
    }

    /// A kernel's parameter, and the variable that takes its place in the body.
    fn kernel_parameter(
        &mut self,
        param: &'a Node,
        position: usize,
        index: usize,
    ) -> (String, Option<String>) {
        let ty = self.ty(param);
        let at = param.begin.unwrap_or(0);
        let name = match param.name.is_empty() {
            true => format!("unused_{position}"),
            false => self.program.names.local(&param.name),
        };
        let spaces = &self.program.instances[index].spaces;
        let slots = spaces.variables.get(&param.id).cloned().unwrap_or_default();
        let levels: Vec<Space> = slots.iter().map(|slot| spaces.of(*slot)).collect();
        self.variables.insert(param.id, name.clone());
        match &ty {
            Ty::Pointer(to) if to.is_pointer() => {
                let local = format!("{name}_");
                self.variables.insert(param.id, local.clone());
                let declared = self.declare(&ty, &levels, &local, None, at);
                let pointer = self.declare(&ty, &levels, "", None, at);
                (format!("device ulong* {name}"), Some(format!("{declared} = ({pointer}){name};")))
            }
            Ty::Pointer(to) if to.name() == Some("void") => {
                let is_const = matches!(&**to, Ty::Named { is_const: true, .. });
                (format!("device {}uchar* {name}", if is_const { "const " } else { "" }), None)
            }
            Ty::Pointer(_) => (self.declare(&ty, &levels, &name, None, at), None),
            Ty::Named { name: of, .. } => {
                if of.contains("texture")
                    || of == "unsigned long long" && param.ty.starts_with("cudaTextureObject")
                {
                    self.refuse(
                        param,
                        "textures and surfaces are not supported: compute kernels take buffers",
                    );
                }
                let plain = Ty::Named { is_const: false, is_volatile: false, name: of.clone() };
                let declared = self.declare(
                    &Ty::Reference(Box::new(plain.clone())),
                    &[Space::Constant],
                    &name,
                    None,
                    at,
                );
                if self.program.is_constant_parameter(param.id) {
                    return (declared, None);
                }
                let local = format!("{name}_");
                self.variables.insert(param.id, local.clone());
                let copy = self.declare(&plain, &[], &local, None, at);
                (declared, Some(format!("{copy} = {name};")))
            }
            Ty::Reference(_) | Ty::Array(..) | Ty::Other(_) => (
                self.refuse(
                    param,
                    format!("a kernel's argument of the type `{}` is not supported", param.ty),
                ),
                None,
            ),
        }
    }

    /// A variable outside functions as a parameter of a kernel: a reference, or a pointer to the elements of an array.
    fn global_parameter(&mut self, id: u64) -> (String, Option<String>) {
        let declared = self.program.names.nodes[&id];
        let at = declared.begin.unwrap_or(0);
        let ty = self.ty(declared);
        let space = self.program.global(declared).unwrap_or(Space::Device);
        let name = self.need_name(Need::Global(id));
        let mut levels = vec![space];
        levels.extend((0..ty.levels()).map(|level| self.field_space(id, level)));
        if !ty.is_array() {
            return (self.declare(&Ty::Reference(Box::new(ty)), &levels, &name, None, at), None);
        }
        let mut of = ty.clone();
        while let Ty::Array(inner, _) = of {
            of = *inner;
        }
        let buffer = format!("{name}_buffer");
        let parameter = self.declare(&Ty::Pointer(Box::new(of)), &levels, &buffer, None, at);
        let reference = self.declare(&Ty::Reference(Box::new(ty.clone())), &levels, &name, None, at);
        let pointer = self.declare(&Ty::Pointer(Box::new(ty)), &levels, "", None, at);
        (parameter, Some(format!("{reference} = *({pointer}){buffer};")))
    }

    /// A struct.
    pub fn record_rows(&mut self, id: u64) -> (Vec<Row>, Vec<(usize, String)>) {
        self.rows.clear();
        self.indent = 0;
        let record = &self.program.names.records[&id];
        let (node, name) = (record.node, record.msl.clone());
        if node.children.iter().all(|child| child.is_implicit)
            && node.bases.is_empty()
            && node.begin.is_some()
        {
            // Without members.
        }
        self.members(node, &name);
        (std::mem::take(&mut self.rows), std::mem::take(&mut self.errors))
    }

    fn members(&mut self, node: &'a Node, name: &str) {
        let word = if node.tag == "union" { "union" } else { "struct" };
        let aligned = node.children.iter().find(|child| child.kind == "AlignedAttr");
        let aligned =
            aligned.and_then(Node::first).map(|value| value.value.clone()).filter(|value| !value.is_empty());
        let aligned = aligned.map_or(String::new(), |value| format!("alignas({value}) "));
        self.row(node.begin, format!("{word} {aligned}{name}{}{{", if name.is_empty() { "" } else { " " }));
        self.indent += 1;
        for base in &node.bases {
            let ty = self.parse(base);
            if let Some(id) = ty.name().and_then(|name| self.program.names.record_of(name)) {
                let of = self.program.names.records[&id].msl.clone();
                self.row(node.begin, format!("{of} base_{of};"));
            }
        }
        let mut anonymous = None;
        for child in &node.children {
            match child.kind.as_str() {
                "CXXRecordDecl" if child.name.is_empty() => anonymous = Some(child),
                "FieldDecl"
                    if child.name.is_empty() && !child.ty.starts_with("(lambda") && anonymous.is_some() =>
                {
                    if let Some(inner) = anonymous.take() {
                        self.members(inner, "");
                    }
                }
                "FieldDecl" => {
                    let ty = self.ty(child);
                    let levels: Vec<Space> =
                        (0..ty.levels()).map(|level| self.field_space(child.id, level)).collect();
                    let captured = self
                        .program
                        .captured(child.id)
                        .and_then(|id| self.program.names.nodes.get(&id).copied());
                    let name = match captured {
                        Some(variable) if child.name.is_empty() => variable.name.clone(),
                        _ => child.name.clone(),
                    };
                    let name = self.program.names.local(&name);
                    let text = self.declare(&ty, &levels, &name, None, child.begin.unwrap_or(0));
                    let bits = child.children.iter().find(|inner| {
                        inner.kind == "ConstantExpr" && !child.ty.is_empty() && self.is_bit_field(child)
                    });
                    let bits = bits.map_or(String::new(), |bits| format!(" : {}", bits.value));
                    self.row(child.begin, format!("{text}{bits};"));
                }
                _ => {}
            }
        }
        self.indent -= 1;
        self.row(None, "};");
    }

    fn is_bit_field(&self, field: &Node) -> bool {
        let text = field.begin.and_then(|begin| self.program.text.text.get(begin..field.end?));
        text.is_some_and(|text| text.contains(':') && !text.contains("::"))
    }

    /// A constant outside functions.
    pub fn global_rows(&mut self, id: u64) -> Global {
        self.rows.clear();
        self.indent = 0;
        let declared = self.program.names.nodes[&id];
        let at = declared.begin.unwrap_or(0);
        let ty = self.ty(declared);
        let name = self.program.global_name(declared);
        let levels = vec![Space::Constant; ty.levels()];
        let text = self.declare(&ty, &levels, &name, Some(Space::Constant), at);
        match declared.initializer() {
            Some(value) => {
                let value_text = match ty.name().and_then(Scalar::named) {
                    Some(scalar) => self.exact(value, scalar),
                    None => self.expr(value),
                };
                self.row(Some(at), format!("{text} = {value_text};"));
            }
            None => {
                self.refuse(declared, format!("`{}` has no value in the source", declared.name));
            }
        }
        Global { rows: std::mem::take(&mut self.rows), errors: std::mem::take(&mut self.errors) }
    }
}
