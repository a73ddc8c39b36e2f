//! The declarations of a translation unit by identity and by name: functions, records, typedefs.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use super::ast::Node;
use super::types::{Scalar, Ty};

/// A struct, union, class or closure.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub node: &'a Node,
    /// Its name in MSL.
    pub msl: String,
    /// Its name as clang writes it.
    pub name: String,
}

/// The types of a class, as its member functions see them.
pub(super) struct Scope<'n, 'a> {
    names: &'n Names<'a>,
    is_inside: bool,
}

impl Drop for Scope<'_, '_> {
    fn drop(&mut self) {
        if self.is_inside {
            self.names.inside.borrow_mut().pop();
        }
    }
}

/// The declarations.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    pub nodes: HashMap<u64, &'a Node>,
    /// Variables outside functions, with the scope that they are in.
    pub globals: HashMap<u64, String>,
    bodies: HashMap<&'a str, &'a Node>,
    pub records: HashMap<u64, Record<'a>>,
    by_name: HashMap<String, Vec<u64>>,
    aliases: HashMap<String, String>,
    simple: HashMap<String, HashSet<String>>,
    /// The record that a method is of.
    pub members: HashMap<u64, u64>,
    /// Names of enumerations, which are integers.
    enums: HashMap<String, String>,
    /// The enumeration's name and the value of each constant.
    pub constants: HashMap<u64, (String, i128)>,
    /// All functions that can be called, in the order of the source.
    pub functions: Vec<&'a Node>,
    /// Template arguments of functions, as text.
    pub arguments: HashMap<u64, Vec<String>>,
    /// Records that are looked at first: those of the function under translation.
    pub near: RefCell<HashMap<String, u64>>,
    /// Records whose types are known without their scope, innermost last.
    inside: RefCell<Vec<u64>>,
    /// Kernels that are templates, with an instance as one writes it.
    templates: Vec<(&'a str, String)>,
    taken: HashSet<String>,
    words: Option<crate::opencl::names::Names>,
    /// Path of the text, of which clang names closures.
    path: String,
    text: &'a str,
}

impl<'a> Names<'a> {
    pub fn new(unit: &'a Node, path: &str, text: &'a str) -> Self {
        let mut names = Self { path: path.to_owned(), text, ..Self::default() };
        for child in &unit.children {
            names.declaration(child, "", None);
        }
        let used: HashSet<String> = crate::opencl::text::words(text).map(str::to_owned).collect();
        names.words = Some(crate::opencl::names::Names::new(used.clone(), used));
        names
    }

    /// An instance, as one writes it, of each kernel that is a template without one.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        let has_instance =
            |name: &str| self.functions.iter().any(|node| node.name == name && node.has("CUDAGlobalAttr"));
        let without = self.templates.iter().filter(move |(name, _)| !has_instance(name));
        without.map(|(_, example)| example.as_str())
    }

    /// The name in MSL of a variable in a function, a parameter or a field.
    pub fn local(&self, name: &str) -> String {
        let is_called = matches!(
            name,
            "min"
                | "max"
                | "abs"
                | "clz"
                | "ctz"
                | "popcount"
                | "rint"
                | "floor"
                | "ceil"
                | "fabs"
                | "fmin"
                | "fmax"
                | "uint"
                | "ulong"
                | "half"
                | "uchar"
                | "ushort"
                | "bfloat"
        );
        let is_keyword = self.words.as_ref().is_some_and(|words| words.of_local(name) != name);
        if is_called || is_keyword { format!("{name}_") } else { name.to_owned() }
    }

    /// The name in MSL of a function or a variable outside functions.
    pub fn allowed(&self, name: &str) -> String {
        let is_type = matches!(name, "uint" | "ulong" | "half" | "uchar" | "ushort" | "bfloat");
        let name = match name.starts_with("__") {
            true => name.trim_start_matches('_'),
            false => name,
        };
        let word = self.words.as_ref().map_or(name.to_owned(), |words| words.of_global(name));
        if is_type { format!("{word}_") } else { word }
    }

    fn scope(&mut self, children: &'a [Node], prefix: &str, record: Option<u64>) {
        for child in children {
            self.declaration(child, prefix, record);
        }
    }

    fn declaration(&mut self, node: &'a Node, prefix: &str, record: Option<u64>) {
        match node.kind.as_str() {
            "NamespaceDecl" => {
                let name = if node.name.is_empty() { "(anonymous namespace)" } else { node.name.as_str() };
                // Inline namespaces are not written.
                self.scope(&node.children, &format!("{prefix}{name}::"), None);
            }
            "LinkageSpecDecl" | "ExportDecl" => self.scope(&node.children, prefix, record),
            "ClassTemplateDecl" => {
                let specializations = |child: &&'a Node| child.kind == "ClassTemplateSpecializationDecl";
                for child in node.children.iter().filter(specializations) {
                    self.record(child, prefix);
                }
            }
            "CXXRecordDecl" | "ClassTemplateSpecializationDecl" if !node.is_implicit || record.is_none() => {
                self.record(node, prefix);
            }
            "FunctionTemplateDecl" => {
                // The first is the pattern.
                let is_function = |child: &&'a Node| is_function(&child.kind);
                let mut functions = node.children.iter().filter(is_function);
                let is_kernel = |node: &&Node| node.has("CUDAGlobalAttr") && node.body().is_some();
                if functions.next().filter(is_kernel).is_some() {
                    let arguments = node.children.iter().filter_map(|child| match child.kind.as_str() {
                        "TemplateTypeParmDecl" => Some("float"),
                        "NonTypeTemplateParmDecl" => Some("1"),
                        _ => None,
                    });
                    let arguments: Vec<&str> = arguments.collect();
                    let example = format!("{prefix}{}<{}>", node.name, arguments.join(", "));
                    self.templates.push((node.name.as_str(), example));
                }
                for child in functions {
                    self.function(child, record);
                }
            }
            kind if is_function(kind) => self.function(node, record),
            "TypedefDecl" | "TypeAliasDecl" => {
                let name = format!("{prefix}{}", node.name);
                if self.name_record(node, &name) {
                    return;
                }
                self.simple.entry(node.name.clone()).or_default().insert(node.plain.clone());
                let key = self.key(&name);
                self.aliases.insert(key, node.plain.clone());
            }
            "EnumDecl" => self.enumeration(node, prefix),
            "VarDecl" | "FieldDecl" => {
                self.insert(node);
                if node.kind == "VarDecl" {
                    self.globals.insert(node.id, prefix.to_owned());
                }
                self.body(node);
            }
            "VarTemplateDecl" => {
                for child in
                    node.children.iter().filter(|child| child.kind == "VarTemplateSpecializationDecl")
                {
                    self.insert(child);
                    self.globals.insert(child.id, prefix.to_owned());
                }
            }
            _ => {}
        }
    }

    fn insert(&mut self, node: &'a Node) {
        let old = self.nodes.entry(node.id).or_insert(node);
        if old.children.len() < node.children.len() {
            *old = node;
        }
    }

    fn function(&mut self, node: &'a Node, record: Option<u64>) {
        let is_new = !self.nodes.contains_key(&node.id);
        self.insert(node);
        let owner = record.or((node.parent != 0).then_some(node.parent));
        if let Some(owner) = owner.filter(|_| node.kind != "FunctionDecl") {
            self.members.insert(node.id, owner);
        }
        if node.body().is_some() && !node.mangled.is_empty() {
            self.bodies.insert(&node.mangled, node);
        }
        let arguments: Vec<String> = template_arguments(node);
        if !arguments.is_empty() {
            self.arguments.insert(node.id, arguments);
        }
        if is_new {
            self.functions.push(node);
        }
        for child in &node.children {
            if child.kind == "ParmVarDecl" {
                self.insert(child);
            }
        }
        if let Some(body) = node.body() {
            self.body(body);
        }
    }

    /// Declarations inside functions: variables, records, typedefs and closures.
    fn body(&mut self, node: &'a Node) {
        for child in &node.children {
            match child.kind.as_str() {
                "LambdaExpr" => {
                    if let Some(closure) = child.first() {
                        let (line, column) = self.place(child.begin.unwrap_or(0));
                        let name = format!("(lambda at {}:{line}:{column})", self.path);
                        self.add_record(closure, name, format!("closure_{line}"));
                    }
                    child.children.iter().skip(1).for_each(|inner| self.body(inner));
                }
                "CXXRecordDecl"
                | "ClassTemplateSpecializationDecl"
                | "TypedefDecl"
                | "TypeAliasDecl"
                | "EnumDecl" => {
                    self.declaration(child, "", None);
                }
                "VarDecl" => {
                    self.insert(child);
                    self.body(child);
                }
                _ => self.body(child),
            }
        }
    }

    /// Line and column of an offset of the text.
    fn place(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        (line, before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1)
    }

    fn record(&mut self, node: &'a Node, prefix: &str) {
        let mut name = format!("{prefix}{}", node.name);
        let arguments = template_arguments(node);
        let mut msl = word(&name);
        if node.kind == "ClassTemplateSpecializationDecl" {
            name.push_str(&format!("<{}>", arguments.join(", ")));
            msl = word(&name);
        }
        if node.name.is_empty() {
            let (line, column) = self.place(node.begin.unwrap_or(0));
            name = format!("({} at {}:{line}:{column})", node.tag, self.path);
            msl = format!("unnamed_{line}");
        }
        self.add_record(node, name, msl);
    }

    fn add_record(&mut self, node: &'a Node, name: String, msl: String) {
        let is_known =
            self.records.get(&node.id).is_some_and(|known| known.node.children.len() >= node.children.len());
        if is_known {
            return;
        }
        let has_definition = node.children.iter().any(|child| !child.is_implicit)
            || !node.bases.is_empty()
            || node.previous == 0;
        let msl = match self.records.remove(&node.id) {
            Some(known) => known.msl,
            None => self.unique(msl),
        };
        if has_definition {
            let key = self.key(&name);
            let ids = self.by_name.entry(key).or_default();
            if !ids.contains(&node.id) {
                ids.push(node.id);
            }
        }
        let prefix = format!("{name}::");
        self.records.insert(node.id, Record { node, msl, name });
        self.scope(&node.children, &prefix, Some(node.id));
    }

    /// A name that nothing else has.
    pub fn unique(&mut self, wanted: String) -> String {
        let mut name = wanted.clone();
        let mut number = 1;
        while !self.taken.insert(name.clone()) {
            number += 1;
            name = format!("{wanted}_{number}");
        }
        name
    }

    /// Gives a record without a name that of its typedef. Returns whether there is one.
    fn name_record(&mut self, node: &'a Node, name: &str) -> bool {
        let mut owned = 0;
        node.walk(&mut |inner| owned = owned.max(inner.owned));
        if !self.records.get(&owned).is_some_and(|record| record.node.name.is_empty()) {
            return false;
        }
        let msl = self.unique(word(name));
        if let Some(record) = self.records.get_mut(&owned) {
            (record.msl, record.name) = (msl, name.to_owned());
        }
        self.by_name.entry(name.to_owned()).or_default().push(owned);
        true
    }

    fn enumeration(&mut self, node: &'a Node, prefix: &str) {
        let name = format!("{prefix}{}", node.name);
        let under = if node.plain.is_empty() { "int".to_owned() } else { node.plain.clone() };
        let key = self.key(&name);
        self.enums.insert(key, under);
        let mut next = 0;
        for constant in node.children.iter().filter(|child| child.kind == "EnumConstantDecl") {
            let given = constant.first().and_then(|value| value.value.parse::<i128>().ok());
            let value = given.unwrap_or(next);
            self.constants.insert(constant.id, (constant.name.clone(), value));
            next = value + 1;
        }
    }

    /// The definition of a function, if the text has one.
    pub fn definition(&self, id: u64) -> Option<&'a Node> {
        let node = *self.nodes.get(&id)?;
        // What clang adds copies members; MSL does that too.
        if node.is_implicit && node.kind != "CXXConstructorDecl" {
            return None;
        }
        if node.body().is_some() {
            return Some(node);
        }
        self.bodies.get(node.mangled.as_str()).copied().filter(|_| !node.mangled.is_empty())
    }

    /// What a typedef's or an enumeration's name stands for.
    pub fn alias(&self, name: &str) -> Option<String> {
        if Scalar::named(name).is_some() || name.starts_with('(') {
            return None;
        }
        // The class's own name is not looked up in the class.
        let record = self.inside.borrow_mut().pop();
        let member = record.and_then(|id| {
            let path = format!("{}::{name}", self.records.get(&id)?.name);
            self.aliases.get(&self.key(&path))
        });
        self.inside.borrow_mut().extend(record);
        if let Some(found) = member.filter(|found| *found != name) {
            return Some(found.clone());
        }
        let key = self.key(name);
        if let Some(found) = self.aliases.get(&key).or_else(|| self.enums.get(&key)) {
            return Some(found.clone()).filter(|found| found != name);
        }
        if self.by_name.contains_key(&key) {
            return None;
        }
        let last = name.rsplit("::").next().unwrap_or(name);
        let known = self.simple.get(last).filter(|known| known.len() == 1)?;
        known.iter().next().cloned().filter(|found| found != name)
    }

    /// From here on, types are those that a member function of this class sees, or a function outside of classes.
    pub fn enter(&self, record: Option<u64>) {
        *self.inside.borrow_mut() = record.into_iter().collect();
    }

    /// While it lives, types are those that a member function of its class sees.
    pub fn scope_of(&self, function: u64) -> Scope<'_, 'a> {
        let record = self.members.get(&function).copied();
        if let Some(record) = record {
            self.inside.borrow_mut().push(record);
        }
        Scope { names: self, is_inside: record.is_some() }
    }

    /// The record that a type names.
    pub fn record_of(&self, name: &str) -> Option<u64> {
        if let Some(id) = self.near.borrow().get(name) {
            return Some(*id);
        }
        let found = self.by_name.get(&self.key(name)).or_else(|| {
            // A name that was written inside its namespace.
            let suffix = format!("::{}", self.key(name));
            let mut matching = self.by_name.iter().filter(|(known, _)| known.ends_with(&suffix));
            let first = matching.next().map(|(_, ids)| ids);
            first.filter(|_| matching.next().is_none())
        })?;
        let defined = |id: &&u64| self.records.get(id).is_some_and(|record| !record.node.children.is_empty());
        found.iter().find(defined).or(found.first()).copied()
    }

    /// A name of a type in one form: template arguments without typedefs, spaces and suffixes.
    fn key(&self, name: &str) -> String {
        let Some(open) = name.find('<').filter(|_| !name.starts_with('(')) else { return name.to_owned() };
        let mut out = name[..open].to_owned();
        let mut rest = &name[open..];
        while let Some(inside) = rest.strip_prefix('<') {
            let mut depth = 1_usize;
            let mut end = inside.len();
            let mut cuts = Vec::new();
            for (at, c) in inside.char_indices() {
                match c {
                    '<' | '(' | '[' => depth += 1,
                    '>' | ')' | ']' => depth -= 1,
                    ',' if depth == 1 => cuts.push(at),
                    _ => {}
                }
                if depth == 0 {
                    end = at;
                    break;
                }
            }
            cuts.push(end);
            let mut from = 0;
            let mut parts = Vec::new();
            for cut in cuts {
                parts.push(self.argument(inside.get(from..cut).unwrap_or("").trim()));
                from = cut + 1;
            }
            out.push_str(&format!("<{}>", parts.join(",")));
            rest = inside.get(end + 1..).unwrap_or("");
            let next = rest.find('<').unwrap_or(rest.len());
            out.push_str(&rest[..next]);
            rest = &rest[next..];
        }
        out
    }

    fn argument(&self, text: &str) -> String {
        match text {
            "true" => return "1".into(),
            "false" => return "0".into(),
            _ => {}
        }
        let number = text.rsplit(')').next().unwrap_or(text).trim_end_matches(['u', 'U', 'l', 'L']);
        if number.parse::<i128>().is_ok() {
            return number.to_owned();
        }
        let ty = Ty::parse(text).resolve(self);
        let record = ty
            .name()
            .filter(|_| text != self.path)
            .and_then(|name| self.record_of(name))
            .and_then(|id| self.records.get(&id));
        match record {
            Some(record) if !record.name.starts_with('(') => self.key(&record.name),
            _ => canonical(&ty),
        }
    }
}

/// A type as text in one form.
fn canonical(ty: &Ty) -> String {
    match ty {
        Ty::Named { is_const, is_volatile, name } => {
            let name = match Scalar::named(name) {
                Some(scalar) => scalar.word(),
                None => name.as_str(),
            };
            format!(
                "{}{}{name}",
                if *is_const { "const " } else { "" },
                if *is_volatile { "volatile " } else { "" }
            )
        }
        Ty::Pointer(to) => format!("{}*", canonical(to)),
        Ty::Reference(to) => format!("{}&", canonical(to)),
        Ty::Array(of, length) => format!("{}[{length}]", canonical(of)),
        Ty::Other(text) => text.clone(),
    }
}

pub(super) fn is_function(kind: &str) -> bool {
    matches!(
        kind,
        "FunctionDecl" | "CXXMethodDecl" | "CXXConstructorDecl" | "CXXConversionDecl" | "CXXDestructorDecl"
    )
}

/// The template arguments of a specialization.
fn template_arguments(node: &Node) -> Vec<String> {
    let mut found = Vec::new();
    for child in node.children.iter().filter(|child| child.kind == "TemplateArgument") {
        let packed = child.children.iter().filter(|inner| inner.kind == "TemplateArgument");
        let one = |argument: &Node| {
            if argument.plain.is_empty() { argument.value.clone() } else { argument.plain.clone() }
        };
        let pack: Vec<String> = packed.map(one).collect();
        if child.plain.is_empty() && child.value.is_empty() {
            found.extend(pack);
        } else {
            found.push(one(child));
        }
    }
    found
}

/// A text as a word.
pub(super) fn word(text: &str) -> String {
    let mut out = String::new();
    // Without the namespaces.
    let mut rest = text.trim_end_matches('>');
    let mut short = String::new();
    while let Some(at) = rest.find("::") {
        let begin = rest[..at].rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |found| found + 1);
        short.push_str(&rest[..begin]);
        rest = &rest[at + 2..];
    }
    short.push_str(rest);
    for c in short
        .replace("unsigned ", "u")
        .replace("__nv_bfloat16", "bfloat")
        .replace("__bf16", "bfloat")
        .replace("_Float16", "half")
        .replace("__half", "half")
        .chars()
    {
        match c {
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            '*' => out.push('p'),
            '-' => out.push('m'),
            _ if !out.ends_with('_') => out.push('_'),
            _ => {}
        }
    }
    out.trim_matches('_').to_owned()
}
