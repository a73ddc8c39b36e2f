//! Writes functions in MSL from the tree.
//!
//! Each expression is written anew from its node: parentheses are nodes of the tree, so precedence is that of the source. Each row of the
//! output keeps the offset of the statement that it stands for.

mod calls;
mod casts;
mod doubles;
mod expressions;
mod functions;
mod statements;

use std::collections::{BTreeSet, HashMap};

use super::ast::Node;
use super::program::{Need, Program, position_name};
use super::spaces::key;
use super::types::{Scalar, Space, Ty, vector, vector_name};
use crate::opencl::report::Notes;

/// A line of the output, and the offset of what it stands for.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub offset: Option<usize>,
    pub text: String,
}

/// Writes functions.
pub(super) struct Renderer<'p, 'a> {
    pub program: &'p Program<'a>,
    pub notes: Notes,
    /// Definitions that are written above: their names in the order of use.
    pub helpers: Vec<&'static str>,
    /// Records and variables that are used, in the order of use.
    pub records: Vec<u64>,
    pub globals: Vec<u64>,
    pub includes: BTreeSet<&'static str>,
    /// Whether arithmetic in `double` is computed in `float`.
    pub loose: bool,
    instance: usize,
    errors: Vec<(usize, String)>,
    rows: Vec<Row>,
    indent: usize,
    /// Other names of variables.
    variables: HashMap<u64, String>,
    /// The expression whose value is not used.
    discarded: Option<usize>,
    /// The end of what has been written, for comments.
    last: usize,
}

impl<'p, 'a> Renderer<'p, 'a> {
    pub fn new(program: &'p Program<'a>, loose: bool) -> Self {
        Self {
            program,
            notes: Notes::default(),
            helpers: Vec::new(),
            records: Vec::new(),
            globals: Vec::new(),
            includes: BTreeSet::new(),
            loose,
            instance: 0,
            errors: Vec::new(),
            rows: Vec::new(),
            indent: 0,
            variables: HashMap::new(),
            discarded: None,
            last: 0,
        }
    }

    /// Notes why a node cannot be translated.
    fn refuse(&mut self, node: &Node, why: impl Into<String>) -> String {
        self.refuse_at(node.begin.or(node.at).unwrap_or(self.last), why)
    }

    fn refuse_at(&mut self, at: usize, why: impl Into<String>) -> String {
        self.errors.push((at, why.into()));
        "0".into()
    }

    /// Makes a definition that MSL lacks part of the output.
    fn helper(&mut self, name: &'static str) {
        if !self.helpers.contains(&name) {
            self.helpers.push(name);
        }
    }

    fn row(&mut self, offset: Option<usize>, text: impl AsRef<str>) {
        let text = format!("{}{}", "    ".repeat(self.indent), text.as_ref());
        self.rows.push(Row { offset, text });
    }

    /// A type without typedefs.
    fn ty(&self, node: &Node) -> Ty {
        Ty::parse(&node.ty_text()).resolve(self.program.names)
    }

    fn parse(&self, text: &str) -> Ty {
        Ty::parse(text).resolve(self.program.names)
    }

    /// The scalar that an expression has.
    fn scalar(&self, node: &Node) -> Option<Scalar> {
        match self.ty(node).referred() {
            Ty::Named { name, .. } => Scalar::named(name),
            _ => None,
        }
    }

    /// The address spaces of an expression's pointers.
    fn levels(&self, node: &Node) -> Vec<Space> {
        let spaces = &self.program.instances[self.instance].spaces;
        let place = spaces.expressions.get(&key(node));
        place.map_or(Vec::new(), |place| place.levels.iter().map(|slot| spaces.of(*slot)).collect())
    }

    /// The address space of an lvalue.
    fn space(&self, node: &Node) -> Space {
        let spaces = &self.program.instances[self.instance].spaces;
        let slot = spaces.expressions.get(&key(node)).and_then(|place| place.space);
        slot.map_or(Space::Thread, |slot| spaces.of(slot))
    }

    /// A type's name in MSL.
    fn type_name(&mut self, name: &str, at: usize) -> String {
        if let Some(scalar) = Scalar::named(name) {
            if scalar == Scalar::Double {
                if self.loose {
                    self.notes.difference("variables of `double` are `float`");
                    return "float".into();
                }
                return self.refuse_at(at, "`double` does not exist in Metal");
            }
            return scalar.word().into();
        }
        if let Some((scalar, lanes)) = vector(name) {
            if scalar == Scalar::Double {
                return self.refuse_at(at, "`double` does not exist in Metal");
            }
            if lanes == 1 {
                return scalar.word().into();
            }
            return vector_name(scalar, lanes);
        }
        match name {
            "void" => return "void".into(),
            "std::nullptr_t" | "nullptr_t" => return "void*".into(),
            _ => {}
        }
        match self.program.names.record_of(name) {
            Some(id) => {
                self.record(id, at);
                self.program.names.records[&id].msl.clone()
            }
            None => self.refuse_at(at, format!("the type `{name}` has no counterpart in Metal")),
        }
    }

    /// Makes a record, and those of its fields, part of the output.
    fn record(&mut self, id: u64, at: usize) {
        if self.records.contains(&id) {
            return;
        }
        let record = &self.program.names.records[&id];
        if record.node.is_virtual || record.node.children.iter().any(|child| child.is_virtual) {
            self.refuse_at(
                at,
                format!("`{}` has virtual functions or bases, which Metal does not have", record.node.name),
            );
            return;
        }
        for base in &record.node.bases {
            let ty = self.parse(base);
            if let Some(base) = ty.name().and_then(|name| self.program.names.record_of(name)) {
                self.record(base, at);
            }
        }
        for field in record.node.children.iter().filter(|child| child.kind == "FieldDecl") {
            if let Some(name) = self.ty(field).innermost().name().map(str::to_owned)
                && let Some(inner) = self.program.names.record_of(&name).filter(|_| vector(&name).is_none())
                && inner != id
            {
                self.record(inner, at);
            }
        }
        if !self.records.contains(&id) {
            self.records.push(id);
        }
    }

    /// A declaration of a name with a type. `own` is the address space of the object itself.
    fn declare(&mut self, ty: &Ty, levels: &[Space], name: &str, own: Option<Space>, at: usize) -> String {
        match ty {
            Ty::Named { is_const, is_volatile, name: of } => {
                let mut words = Vec::new();
                if let Some(space) = own {
                    words.push(space.word().to_owned());
                }
                if *is_volatile {
                    words.push("volatile".into());
                }
                if *is_const && own != Some(Space::Constant) {
                    words.push("const".into());
                }
                words.push(self.type_name(of, at));
                let head = words.join(" ");
                match name {
                    "" => head,
                    _ if name.starts_with(['*', '&']) => format!("{head}{name}"),
                    _ => format!("{head} {name}"),
                }
            }
            Ty::Pointer(to) | Ty::Reference(to) => {
                let sign = if ty.is_reference() { "&" } else { "*" };
                let space = levels.first().copied().unwrap_or(Space::Device);
                if **to == Ty::parse("double") || matches!(&**to, Ty::Named { name, .. } if name == "double")
                {
                    return self.refuse_at(at, "`double` does not exist in Metal");
                }
                let inner = match own {
                    Some(own) if name.is_empty() => format!("{sign} {}", own.word()),
                    Some(own) => format!("{sign} {} {name}", own.word()),
                    None if name.is_empty() => sign.to_owned(),
                    None if name.starts_with(['*', '&', '[']) => format!("{sign}{name}"),
                    None => format!("{sign} {name}"),
                };
                let inner = if to.is_array() { format!("({})", inner.trim()) } else { inner };
                self.declare(to, levels.get(1..).unwrap_or(&[]), &inner, Some(space), at)
            }
            Ty::Array(of, length) => {
                let name = if name.starts_with(['*', '&']) { format!("({name})") } else { name.to_owned() };
                self.declare(of, levels, &format!("{name}[{length}]"), own, at)
            }
            Ty::Other(text) => {
                let why = match text.contains('(') {
                    true => format!("pointers to functions are not supported (`{text}`)"),
                    false => format!("the type `{text}` has no counterpart in Metal"),
                };
                self.refuse_at(at, why)
            }
        }
    }

    /// The name of a variable.
    fn variable(&mut self, id: u64, name: &str) -> String {
        self.variables.get(&id).cloned().unwrap_or_else(|| self.program.names.local(name))
    }

    /// The parameter for what a function gets from its kernel.
    fn need_name(&mut self, need: Need) -> String {
        match need {
            Need::Position(index) => position_name(index).to_owned(),
            Need::Dynamic => "shared_memory".into(),
            Need::Shared(id) => self.program.shared_name(id),
            Need::Global(id) => {
                let name = self.program.names.nodes[&id].name.clone();
                self.program.names.allowed(&name)
            }
        }
    }

    /// Encloses a text in parentheses unless it is a name, a call or in parentheses.
    fn wrap(text: &str) -> String {
        if is_primary(text) { text.to_owned() } else { format!("({text})") }
    }

    pub fn enclosed(text: &str) -> String {
        Self::wrap(text)
    }

    pub fn scalar_of(&self, node: &Node) -> Option<Scalar> {
        self.scalar(node)
    }

    /// Whether the value of an expression is not used.
    pub fn is_discarded(&self, node: &Node) -> bool {
        self.discarded == Some(key(node))
    }

    pub fn no(&mut self, node: &Node, why: &str) -> String {
        self.refuse(node, why)
    }

    pub fn need(&mut self, name: &'static str) {
        self.helper(name);
    }

    /// An argument, in the type of its parameter.
    pub fn argument(&mut self, node: &Node) -> String {
        match self.scalar(node) {
            Some(scalar) if scalar != Scalar::Double => self.exact(node, scalar),
            _ => self.expr(node),
        }
    }

    /// A number as a condition.
    pub fn truth(&mut self, node: &Node) -> String {
        let mut inner = node;
        while inner.kind == "ImplicitCastExpr"
            && inner.cast == "IntegralCast"
            && let Some(next) = inner.first()
        {
            inner = next;
        }
        let text = self.expr(inner);
        if self.scalar(inner) == Some(Scalar::Bool) { text } else { format!("{} != 0", Self::wrap(&text)) }
    }

    /// The address space that a pointer points into.
    pub fn space_behind(&self, node: &Node) -> Space {
        self.levels(node).first().copied().unwrap_or(Space::Device)
    }

    pub fn element_of(&self, node: &Node) -> Option<Ty> {
        self.element(node)
    }
}

/// Whether an expression needs no parentheses as an operand: a name with calls, indices and members.
fn is_primary(text: &str) -> bool {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => {
                depth = depth.saturating_sub(1);
                // A cast, or two groups.
                if depth == 0 && c == ')' && text.starts_with('(') {
                    let rest = &text[at + 1..];
                    if !rest.is_empty() && !rest.starts_with(['.', '[']) && !rest.starts_with("->") {
                        return false;
                    }
                }
            }
            _ if depth > 0 => {}
            c if c.is_alphanumeric() || matches!(c, '_' | '.' | ':') => {}
            '-' if text[at..].starts_with("->") => {}
            '>' if text[..at].ends_with('-') => {}
            '<' | '>' | ' ' if text.starts_with("as_type<") || text.starts_with("reinterpret_cast<") => {}
            _ => return false,
        }
    }
    true
}
