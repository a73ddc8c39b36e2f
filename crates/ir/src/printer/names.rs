//! Names and numbers of a function's values and blocks, as LLVM assigns them.
//!
//! Unnamed parameters, blocks and results share one count, in the order of the text. If two values or
//! blocks of a function have the same name, the later one gets a suffix, as in LLVM.

use std::collections::HashSet;
use std::fmt;

use crate::model::{BlockId, Function, Type, ValueId};
use crate::parser::is_number;

/// A printable name: unescaped text or a number.
#[derive(Clone)]
enum Label {
    Text(String),
    Number(u32),
}

pub(super) struct Names {
    values: Vec<Option<Label>>,
    blocks: Vec<Label>,
}

impl Names {
    pub fn of(function: &Function) -> Names {
        let mut naming = Naming { taken: HashSet::new(), next: 0 };
        let mut values = vec![None; function.values.len()];
        let mut name_value = |naming: &mut Naming, value: ValueId| {
            if let Some(info) = function.values.get(value.0 as usize) {
                values[value.0 as usize] = Some(naming.label(info.name.as_deref()));
            }
        };
        for param in &function.params {
            name_value(&mut naming, param.value);
        }
        let mut blocks = Vec::with_capacity(function.blocks.len());
        for block in &function.blocks {
            blocks.push(naming.label(block.name.as_deref()));
            for value in block.insts.iter().filter_map(|inst| inst.result) {
                name_value(&mut naming, value);
            }
        }
        Names { values, blocks }
    }

    /// `%name` of a value. An undefined value is printed as `%undefined.N`, which clang rejects.
    pub fn value(&self, value: ValueId) -> impl fmt::Display {
        match self.values.get(value.0 as usize).cloned().flatten() {
            Some(label) => Local(label),
            None => Local(Label::Text(format!("undefined.{}", value.0))),
        }
    }

    /// `%name` of a block.
    pub fn block(&self, block: BlockId) -> impl fmt::Display {
        match self.blocks.get(block.0 as usize).cloned() {
            Some(label) => Local(label),
            None => Local(Label::Text(format!("undefined.block.{}", block.0))),
        }
    }

    /// The line that begins a block: none for an entry block without a name.
    pub fn header(&self, block: BlockId) -> Option<String> {
        match self.blocks.get(block.0 as usize)? {
            Label::Number(_) if block.0 == 0 => None,
            Label::Number(number) => Some(format!("{number}:")),
            Label::Text(text) => Some(format!("{}:", Quoted(text))),
        }
    }
}

struct Naming {
    taken: HashSet<String>,
    next: u32,
}

impl Naming {
    fn label(&mut self, name: Option<&str>) -> Label {
        let Some(name) = name.filter(|n| !n.is_empty()) else {
            self.next += 1;
            return Label::Number(self.next - 1);
        };
        let mut free = name.to_owned();
        let mut suffix = 0;
        while is_number(&free) || !self.taken.insert(free.clone()) {
            suffix += 1;
            free = format!("{name}.{suffix}");
        }
        Label::Text(free)
    }
}

struct Local(Label);

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Label::Text(text) => write!(f, "%{}", Quoted(text)),
            Label::Number(number) => write!(f, "%{number}"),
        }
    }
}

/// A name after its sigil, quoted if LLVM would quote it. Names of digits only are numbers.
pub(super) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        let bytes = self.0.as_bytes();
        let bare = bytes.first().is_some_and(|b| !b.is_ascii_digit()) && bytes.iter().all(|b| plain(*b));
        match bare || is_number(self.0) {
            true => f.write_str(self.0),
            false => write!(f, "\"{}\"", Escaped(bytes)),
        }
    }
}

/// The inside of a quoted string.
pub(super) struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            match byte {
                b'\\' => f.write_str("\\\\")?,
                b' '..=b'~' if *byte != b'"' => write!(f, "{}", *byte as char)?,
                _ => write!(f, "\\{byte:02X}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Void => f.write_str("void"),
            Type::Int(bits) => write!(f, "i{bits}"),
            Type::Half => f.write_str("half"),
            Type::BFloat => f.write_str("bfloat"),
            Type::Float => f.write_str("float"),
            Type::Double => f.write_str("double"),
            Type::Ptr(0) => f.write_str("ptr"),
            Type::Ptr(space) => write!(f, "ptr addrspace({space})"),
            Type::Vector(lanes, element) => write!(f, "<{lanes} x {element}>"),
            Type::Array(count, element) => write!(f, "[{count} x {element}]"),
            Type::Struct { packed, fields } => {
                let (open, close) = if *packed { ("<{", "}>") } else { ("{", "}") };
                f.write_str(open)?;
                for (at, field) in fields.iter().enumerate() {
                    write!(f, "{}{field}", if at == 0 { " " } else { ", " })?;
                }
                write!(f, "{}{close}", if fields.is_empty() { "" } else { " " })
            }
            Type::Named(name) => write!(f, "%{}", Quoted(name)),
            Type::Metadata => f.write_str("metadata"),
        }
    }
}
