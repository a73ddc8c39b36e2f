//! The functions of a program as they are translated: one for each combination of address spaces, with what each needs from its kernel.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ast::Node;
use super::names::{Names, is_function, word};
use super::spaces::{Spaces, Walk, is_value, result_type};
use super::types::{Space, Ty};
use crate::opencl::text::Text;

/// A function with the address spaces of its object and arguments, outermost pointer first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub function: u64,
    pub spaces: Vec<Option<Space>>,
}

/// What a function gets from its kernel as a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Need {
    /// `threadIdx`, by its index in [`POSITIONS`].
    Position(usize),
    /// A variable in shared memory.
    Shared(u64),
    /// Shared memory whose size the launch gives.
    Dynamic,
    /// A variable in device or constant memory.
    Global(u64),
}

/// CUDA's variable, the type and the attribute of the parameter.
pub(super) const POSITIONS: [(&str, &str, &str); 7] = [
    ("threadIdx", "uint3", "thread_position_in_threadgroup"),
    ("blockIdx", "uint3", "threadgroup_position_in_grid"),
    ("blockDim", "uint3", "threads_per_threadgroup"),
    ("gridDim", "uint3", "threadgroups_per_grid"),
    ("__elinvar_lane", "uint", "thread_index_in_simdgroup"),
    ("__elinvar_warp", "uint", "simdgroup_index_in_threadgroup"),
    ("__elinvar_thread", "uint", "thread_index_in_threadgroup"),
];

/// A position's parameter in MSL.
pub(super) fn position_name(index: usize) -> &'static str {
    match POSITIONS[index].0 {
        "__elinvar_lane" => "thread_index_in_simdgroup",
        "__elinvar_warp" => "simdgroup_index_in_threadgroup",
        "__elinvar_thread" => "thread_index_in_threadgroup",
        name => name,
    }
}

/// A function under translation.
#[derive(Debug)]
pub(super) struct Instance<'a> {
    pub node: &'a Node,
    pub record: Option<u64>,
    pub name: String,
    pub is_kernel: bool,
    pub spaces: Spaces,
    /// The function that each call goes to.
    pub calls: HashMap<usize, usize>,
    pub needs: BTreeSet<Need>,
    pub errors: Vec<(usize, String)>,
}

/// The address spaces of a call's arguments and of its result.
type Effects = (Vec<Option<Space>>, Vec<Option<Space>>);

/// The program.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub names: &'a Names<'a>,
    pub text: &'a Text,
    pub fields: RefCell<BTreeMap<(u64, usize), Space>>,
    captures: HashMap<u64, &'a Node>,
    symbols: &'a BTreeSet<String>,
    pub instances: Vec<Instance<'a>>,
    by_key: HashMap<Key, usize>,
    open: Vec<u64>,
    /// What calls make known, by the function and what is known of its arguments.
    known: HashMap<Key, Effects>,
    used: HashMap<String, usize>,
    /// Parameters of kernels that are only read.
    constant: BTreeSet<u64>,
    /// Names of variables in shared memory.
    shared: HashMap<u64, String>,
}

/// Name of the folder of our headers, in the places of the text.
pub(super) const HEADERS: &str = "elinvar-cuda";

impl<'a> Program<'a> {
    /// `symbols` are the names of the variables that host code sets.
    pub fn new(names: &'a Names<'a>, text: &'a Text, symbols: &'a BTreeSet<String>) -> Self {
        let mut program = Self {
            names,
            text,
            symbols,
            fields: RefCell::default(),
            captures: HashMap::new(),
            instances: Vec::new(),
            by_key: HashMap::new(),
            open: Vec::new(),
            known: HashMap::new(),
            used: HashMap::new(),
            constant: BTreeSet::new(),
            shared: HashMap::new(),
        };
        for function in &names.functions {
            function.walk(&mut |node| program.capture_all(node));
        }
        program
    }

    /// Fields of closures, by the variables that they hold.
    fn capture_all(&mut self, node: &'a Node) {
        if node.kind != "LambdaExpr" {
            return;
        }
        let Some(closure) = node.first() else { return };
        let fields = closure.children.iter().filter(|child| child.kind == "FieldDecl");
        let values = node.children.iter().skip(1).filter(|child| super::ast::is_expression(&child.kind));
        for (field, value) in fields.zip(values) {
            let mut inner = value.bare();
            while inner.kind == "CXXConstructExpr"
                && let Some(next) = inner.first()
            {
                inner = next.bare();
            }
            if let Some(to) = &inner.refers {
                self.captures.insert(to.id, field);
            }
        }
    }

    /// Whether a node is in one of our headers.
    pub fn is_header(&self, node: &Node) -> bool {
        let Some(at) = node.at.or(node.begin) else { return true };
        self.is_header_at(at)
    }

    pub fn is_header_at(&self, at: usize) -> bool {
        let origin = self.text.origin(self.text.line_of(at));
        let name = origin.and_then(|(file, _)| self.text.files.get(file));
        name.is_some_and(|name| name.contains(HEADERS))
    }

    /// The field that holds a captured variable.
    pub fn capture(&self, variable: u64) -> Option<&'a Node> {
        self.captures.get(&variable).copied()
    }

    /// The name of the variable that a closure's field holds.
    pub fn captured(&self, field: u64) -> Option<u64> {
        self.captures.iter().find(|(_, node)| node.id == field).map(|(variable, _)| *variable)
    }

    /// The address space of a variable outside functions, or a static one in a function.
    pub fn global(&self, node: &Node) -> Option<Space> {
        if !self.names.globals.contains_key(&node.id) && node.storage != "static" {
            return None;
        }
        if position(&node.name).is_some() && self.is_header(node) {
            return Some(Space::Thread);
        }
        let is_const = node.is_constexpr || node.ty.starts_with("const ") || node.ty.contains("const[");
        match node.has("CUDADeviceAttr") && !node.has("CUDAConstantAttr") && !is_const {
            true => Some(Space::Device),
            false => Some(Space::Constant),
        }
    }

    /// Whether a variable outside functions is an argument of the kernel: one that the host or the kernel may set. Constant memory that has a
    /// value, and is not set in the source, keeps the value.
    pub fn is_argument(&self, node: &Node) -> bool {
        let is_const = node.is_constexpr || node.ty.starts_with("const ");
        // A struct without a value is made by its constructor.
        let made = |value: &Node| value.kind == "CXXConstructExpr" && value.children.is_empty();
        match node.has("CUDAConstantAttr") {
            true => node.initializer().is_none_or(made) || !is_const && self.symbols.contains(&node.name),
            false => node.has("CUDADeviceAttr") && !is_const,
        }
    }

    pub fn is_constant_parameter(&self, id: u64) -> bool {
        self.constant.contains(&id)
    }

    /// The fields of a type, with those of its bases before them.
    pub fn fields_of(&self, name: &str) -> Vec<&'a Node> {
        let Some(record) = self.names.record_of(name).and_then(|id| self.names.records.get(&id)) else {
            return Vec::new();
        };
        if record.name.starts_with("(lambda") || super::types::vector(&record.name).is_some() {
            return Vec::new();
        }
        record.node.children.iter().filter(|child| child.kind == "FieldDecl").collect()
    }

    /// The constructor that an expression calls; `None` if it copies or does nothing.
    pub fn constructor(&self, node: &Node) -> Option<&'a Node> {
        let ty = Ty::parse(&node.plain).resolve(self.names);
        let name = ty.innermost().name()?;
        let record = self.names.records.get(&self.names.record_of(name)?)?;
        if super::types::vector(&record.name).is_some() {
            return None;
        }
        let count = node.children.len();
        if let Some(argument) = node.first()
            && count == 1
        {
            let from = Ty::parse(&argument.plain).resolve(self.names);
            let is_same = from.name().and_then(|name| self.names.record_of(name)) == Some(record.node.id);
            if is_same {
                return None;
            }
        }
        let constructors = self.constructors(record.node);
        let mut fitting = constructors.into_iter().filter(|one| one.params().count() == count);
        let wanted: Vec<String> = node.children.iter().map(|child| child.plain.clone()).collect();
        let all: Vec<&'a Node> = fitting.by_ref().collect();
        let same = |one: &&&'a Node| {
            one.params().zip(&wanted).all(|(param, ty)| {
                let (a, b) = (Ty::parse(&param.plain).resolve(self.names), Ty::parse(ty).resolve(self.names));
                same_value(a.referred(), &b)
            })
        };
        let found = all.iter().find(same).or(all.first())?;
        self.names.definition(found.id)
    }

    fn constructors(&self, record: &'a Node) -> Vec<&'a Node> {
        let mut found = Vec::new();
        for child in &record.children {
            match child.kind.as_str() {
                "CXXConstructorDecl"
                    if (!child.is_implicit || child.has("CXXCtorInitializer")) && !child.is_deleted =>
                {
                    found.push(child)
                }
                "FunctionTemplateDecl" => {
                    found.extend(
                        child.children.iter().filter(|inner| inner.kind == "CXXConstructorDecl").skip(1),
                    );
                }
                _ => {}
            }
        }
        found.retain(|one| self.names.definition(one.id).is_some());
        found
    }

    /// The function of the source that a call goes to, and whether it has an object.
    pub fn callee(&self, node: &Node) -> Option<(&'a Node, bool)> {
        let callee = node.callee()?;
        let id = callee.refers.as_ref()?.id;
        let found = self.names.definition(id)?;
        if self.is_header(found) && super::builtins::is_inline(node) {
            return None;
        }
        let is_member = self.names.members.contains_key(&id) && found.storage != "static";
        let declared = self.names.nodes.get(&id);
        let is_static = declared.is_some_and(|declared| declared.storage == "static");
        Some((found, is_member && !is_static))
    }

    /// The translation of a kernel.
    pub fn kernel(&mut self, node: &'a Node) -> usize {
        self.constant
            .extend(node.params().filter(|param| is_read_only(node, param.id)).map(|param| param.id));
        self.instance(Key { function: node.id, spaces: Vec::new() }, true)
    }

    /// The translation of a function for these address spaces, which may be new.
    fn instance(&mut self, wanted: Key, is_kernel: bool) -> usize {
        if let Some(index) = self.by_key.get(&wanted) {
            return *index;
        }
        let node = self.names.nodes[&wanted.function];
        let record = self.names.members.get(&node.id).copied().filter(|_| !self.is_static(node));
        self.open.push(node.id);
        let mut spaces = self.analyze(node, record, &wanted, is_kernel);
        let mut errors = std::mem::take(&mut spaces.errors);
        let mut calls = HashMap::new();
        let mut needs = BTreeSet::new();
        for called in &spaces.calls {
            if self.open.contains(&called.function) {
                let name = &self.names.nodes[&called.function].name;
                errors.push((
                    called.at,
                    format!("recursion: `{name}` calls itself, which Metal does not allow"),
                ));
                continue;
            }
            let key = Key {
                function: called.function,
                spaces: called.given.iter().map(|slot| Some(spaces.of(*slot))).collect(),
            };
            let index = self.instance(key, false);
            calls.insert(called.node, index);
            needs.extend(self.instances[index].needs.iter().copied());
        }
        self.own_needs(node, &mut needs);
        self.open.pop();
        let name = self.name(node, record);
        self.name_shared(node, &name, is_kernel);
        self.instances.push(Instance { node, record, name, is_kernel, spaces, calls, needs, errors });
        self.by_key.insert(wanted, self.instances.len() - 1);
        self.instances.len() - 1
    }

    pub fn is_static(&self, node: &Node) -> bool {
        let owner = self.names.members.get(&node.id).and_then(|record| self.names.records.get(record));
        node.storage == "static"
            || owner.is_some_and(|record| {
                record.node.children.iter().any(|child| {
                    child.mangled == node.mangled && child.storage == "static" && !node.mangled.is_empty()
                })
            })
    }

    /// The spaces of a function, with what the functions that it calls return.
    fn analyze(&mut self, node: &'a Node, record: Option<u64>, wanted: &Key, is_kernel: bool) -> Spaces {
        self.enter(node);
        let mut walk = Walk { names: self.names, program: self, spaces: Spaces::default(), is_kernel };
        walk.function(node, record, wanted);
        walk.publish_fields();
        let mut spaces = walk.spaces;
        for _ in 0..8 {
            let mut changed = false;
            for call in 0..spaces.calls.len() {
                let called = &spaces.calls[call];
                if self.open.contains(&called.function) {
                    continue;
                }
                let known: Vec<Option<Space>> = called.given.iter().map(|slot| spaces.get(*slot)).collect();
                let function = called.function;
                if !called.result.is_empty() || known.iter().any(Option::is_none) {
                    let (given, result) = self.effects(function, known);
                    changed |= Walk::learn(&mut spaces, call, &given, &result);
                }
            }
            if !changed {
                break;
            }
        }
        self.enter(node);
        let mut walk = Walk { names: self.names, program: self, spaces, is_kernel };
        walk.publish_fields();
        walk.spaces
    }

    /// What a call with these spaces makes known: of its arguments, and of its result.
    fn effects(&mut self, function: u64, known: Vec<Option<Space>>) -> Effects {
        let wanted = Key { function, spaces: known };
        if let Some(found) = self.known.get(&wanted) {
            return found.clone();
        }
        let node = self.names.nodes[&function];
        let record = self.names.members.get(&node.id).copied().filter(|_| !self.is_static(node));
        self.open.push(function);
        let spaces = self.analyze(node, record, &wanted, false);
        self.open.pop();
        let given = self.given(node, record, &spaces);
        let found: Effects = (given, spaces.result.iter().map(|slot| spaces.get(*slot)).collect());
        self.known.insert(wanted, found.clone());
        found
    }

    /// The spaces of a function's object and arguments.
    fn given(&self, node: &Node, record: Option<u64>, spaces: &Spaces) -> Vec<Option<Space>> {
        let mut given = Vec::new();
        if record.is_some() {
            given.push(spaces.get(spaces.this));
        }
        for param in node.params() {
            let levels = spaces.variables.get(&param.id).cloned().unwrap_or_default();
            given.extend(levels.iter().map(|slot| spaces.get(*slot)));
        }
        given
    }

    /// Closures of a function are looked up first while it is translated.
    pub fn enter(&self, node: &'a Node) {
        let mut near = HashMap::new();
        node.walk(&mut |inner| {
            if inner.kind == "LambdaExpr"
                && let Some(record) = inner.first().and_then(|closure| self.names.records.get(&closure.id))
            {
                near.insert(record.name.clone(), record.node.id);
            }
        });
        *self.names.near.borrow_mut() = near;
        self.names.enter(self.names.members.get(&node.id).copied());
    }

    /// The name of a function in MSL: with the class it is of and the arguments of its template.
    fn name(&mut self, node: &'a Node, record: Option<u64>) -> String {
        let mut name = match node.name.strip_prefix("operator").filter(|_| is_function(&node.kind)) {
            Some(sign) if !sign.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
                format!("operator_{}", operator_name(sign.trim()))
            }
            _ => word(&node.name),
        };
        if node.kind == "CXXConstructorDecl" {
            name = "make".into();
        }
        let owner = record.or_else(|| self.names.members.get(&node.id).copied());
        if let Some(record) = owner.and_then(|id| self.names.records.get(&id)) {
            name = format!("{}_{name}", record.msl);
        }
        if let Some(arguments) = self.names.arguments.get(&node.id) {
            let arguments: Vec<String> = arguments
                .iter()
                .map(
                    |argument| {
                        if argument.starts_with("(lambda") { "closure".to_owned() } else { word(argument) }
                    },
                )
                .collect();
            name = format!("{name}_{}", arguments.join("_"));
        }
        let name = self.names.allowed(&name);
        let count = self.used.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}_{count}") }
    }

    /// What the body itself needs.
    fn own_needs(&self, node: &'a Node, needs: &mut BTreeSet<Need>) {
        let mut visit = |inner: &'a Node| {
            if inner.kind == "VarDecl" && inner.has("CUDASharedAttr") {
                needs.insert(if inner.storage == "extern" { Need::Dynamic } else { Need::Shared(inner.id) });
            }
            let Some(to) =
                inner.refers.as_ref().filter(|_| matches!(inner.kind.as_str(), "DeclRefExpr" | "MemberExpr"))
            else {
                return;
            };
            let Some(declared) =
                self.names.nodes.get(&to.id).copied().filter(|declared| declared.kind == "VarDecl")
            else {
                return;
            };
            if let Some(index) = position(&declared.name).filter(|_| self.is_header(declared)) {
                needs.insert(Need::Position(index));
            } else if declared.has("CUDASharedAttr") && declared.storage == "extern" {
                needs.insert(Need::Dynamic);
            } else if self.names.globals.contains_key(&declared.id) && self.is_argument(declared) {
                needs.insert(Need::Global(declared.id));
            }
        };
        // Closures are functions of their own.
        walk_own(node, &mut visit);
    }

    /// Names the variables in shared memory: those of a kernel as in the source, others with the name of their function.
    fn name_shared(&mut self, node: &'a Node, function: &str, is_kernel: bool) {
        let mut found = Vec::new();
        walk_own(node, &mut |inner| {
            if inner.kind == "VarDecl" && inner.has("CUDASharedAttr") && inner.storage != "extern" {
                found.push(inner);
            }
        });
        let mut own: BTreeSet<String> = BTreeSet::new();
        for variable in found {
            if self.shared.contains_key(&variable.id) {
                continue;
            }
            let name = self.names.local(&variable.name);
            let mut name = if is_kernel { name } else { format!("{function}_{}", variable.name) };
            while !own.insert(name.clone()) {
                name.push('_');
            }
            self.shared.insert(variable.id, name);
        }
    }

    /// The name of a variable in shared memory.
    pub fn shared_name(&self, id: u64) -> String {
        self.shared.get(&id).cloned().unwrap_or_else(|| format!("shared_{id}"))
    }

    /// The name of a constant outside functions.
    pub fn global_name(&self, node: &Node) -> String {
        let prefix = self.names.globals.get(&node.id).map_or("", String::as_str);
        let name = self.names.allowed(&word(&format!("{prefix}{}", node.name)));
        // Static variables of functions have the names of several.
        if self.names.globals.contains_key(&node.id) {
            name
        } else {
            format!("{name}_{}", node.begin.unwrap_or(0))
        }
    }
}

/// All nodes of a function but those of the closures in it.
pub(super) fn walk_own<'a>(node: &'a Node, visit: &mut dyn FnMut(&'a Node)) {
    visit(node);
    let is_lambda = node.kind == "LambdaExpr";
    for child in &node.children {
        if !is_lambda || (child.kind != "CXXRecordDecl" && child.kind != "CompoundStmt") {
            walk_own(child, visit);
        }
    }
}

pub(super) fn position(name: &str) -> Option<usize> {
    POSITIONS.iter().position(|(known, ..)| *known == name)
}

fn same_value(a: &Ty, b: &Ty) -> bool {
    match (a, b) {
        (Ty::Named { name: a, .. }, Ty::Named { name: b, .. }) => a == b,
        (Ty::Pointer(a), Ty::Pointer(b) | Ty::Array(b, _)) => same_value(a, b),
        _ => false,
    }
}

/// Whether a parameter is only read: each use is the read of its value, or of a member.
fn is_read_only(function: &Node, id: u64) -> bool {
    fn base(mut node: &Node) -> Option<u64> {
        loop {
            match node.kind.as_str() {
                "DeclRefExpr" => return node.refers.as_ref().map(|to| to.id),
                "MemberExpr" if node.is_arrow => return None,
                "MemberExpr" | "ParenExpr" => node = node.first()?,
                "ArraySubscriptExpr" => node = node.first()?,
                "ImplicitCastExpr" if matches!(node.cast.as_str(), "NoOp" | "ArrayToPointerDecay") => {
                    node = node.first()?
                }
                _ => return None,
            }
        }
    }
    fn holds(node: &Node, id: u64) -> bool {
        let is_read = node.kind == "ImplicitCastExpr" && node.cast == "LValueToRValue";
        let is_copy = node.kind == "CXXConstructExpr" && node.children.len() == 1;
        if (is_read || is_copy) && node.first().and_then(base) == Some(id) {
            // Indices are expressions of their own.
            let mut fine = true;
            node.walk(&mut |inner| {
                if inner.kind == "ArraySubscriptExpr" {
                    fine &= inner.children.get(1).is_none_or(|index| holds(index, id));
                }
            });
            return fine;
        }
        if node.kind == "DeclRefExpr" && node.refers.as_ref().is_some_and(|to| to.id == id) {
            return false;
        }
        node.children.iter().all(|child| holds(child, id))
    }
    function.children.iter().filter(|child| child.kind == "CompoundStmt").all(|body| holds(body, id))
}

fn operator_name(sign: &str) -> &'static str {
    match sign {
        "+" => "plus",
        "-" => "minus",
        "*" => "times",
        "/" => "over",
        "%" => "modulo",
        "+=" => "add",
        "-=" => "subtract",
        "*=" => "multiply",
        "/=" => "divide",
        "=" => "assign",
        "==" => "equal",
        "!=" => "unequal",
        "<" => "less",
        ">" => "greater",
        "<=" => "less_equal",
        ">=" => "greater_equal",
        "()" => "call",
        "[]" => "index",
        "++" => "increment",
        "--" => "decrement",
        "!" => "not_",
        "&" => "bit_and",
        "|" => "bit_or",
        "^" => "bit_xor",
        "~" => "complement",
        "<<" => "left",
        ">>" => "right",
        "->" => "arrow",
        _ => "other",
    }
}

/// The pointers that a parameter has, for a call's key.
pub(super) fn pointer_count(ty: &Ty) -> usize {
    if is_value(ty) { 0 } else { ty.levels() }
}

/// Of a function's result.
pub(super) fn result_of(node: &Node, names: &Names<'_>) -> Ty {
    result_type(node, names)
}
