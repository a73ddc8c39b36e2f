//! Points-to analysis: the memory object that each pointer of a function points into.
//!
//! A root is a memory object that the kernel can name: an argument's memory, a threadgroup variable, a private array, a constant
//! table. Pointer arithmetic preserves the root; a phi or select of different roots is [`Source::Mixed`]. A pointer from any
//! other source, such as memory, is unknown, and accesses through it cannot be checked.

use std::collections::HashMap;

use elinvar_ir::{Callee, Const, Function, Location, Module, Op, Operand, ValueId};

use crate::support::demangle::source_name;

/// A memory object.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Root {
    /// Its kind.
    pub kind: RootKind,
    /// Its size in bytes, if known; for an argument the minimum that launches guarantee.
    pub bytes: u64,
    /// The alignment of its first byte, a power of two.
    pub align: u64,
}

/// Properties that launches guarantee for an argument's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Given {
    /// Minimum size in bytes.
    pub bytes: u64,
    /// Alignment of the first byte, a power of two.
    pub align: u64,
}

impl Default for Given {
    fn default() -> Self {
        Self { bytes: 0, align: 1 }
    }
}

/// Kind of a root.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum RootKind {
    /// The memory of the argument with this index.
    Argument(usize),
    /// A threadgroup variable, by its name in the source.
    Threadgroup(String),
    /// A private array or variable.
    Private,
    /// A constant table, by its name in the module.
    Constant(String),
    /// No object: a null or uninitialized pointer.
    Null,
}

/// Source of a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Not yet known, or null. Its bounds are empty.
    None,
    /// The root with this index.
    One(usize),
    /// One of several roots, determined at run time.
    Mixed,
    /// Not derived from a root; has the location of its definition.
    Unknown(Option<Location>),
}

/// The roots of a function and the sources of its pointers.
pub(crate) struct Roots {
    pub list: Vec<Root>,
    sources: HashMap<ValueId, Source>,
    /// The root of each argument, alloca and global.
    pub of_value: HashMap<ValueId, usize>,
    pub of_global: HashMap<String, usize>,
    /// The root of pointers without an object.
    pub null: usize,
}

impl Roots {
    /// Runs the analysis. `given` has the guarantees for each argument, `threadgroup` the threadgroup variables.
    pub fn new(module: &Module, function: &Function, given: &[Given], threadgroup: &[String]) -> Self {
        let mut roots = Self {
            list: Vec::new(),
            sources: HashMap::new(),
            of_value: HashMap::new(),
            of_global: HashMap::new(),
            null: 0,
        };
        for (index, param) in function.params.iter().enumerate() {
            let Given { bytes, align } = given.get(index).copied().unwrap_or_default();
            roots.add_value(param.value, Root { kind: RootKind::Argument(index), bytes, align });
        }
        for inst in function.blocks.iter().flat_map(|b| &b.insts) {
            if let (Op::Alloca { ty, count, align, .. }, Some(value)) = (&inst.op, inst.result) {
                let count = count.as_ref().map_or(Some(1), |c| match &c.op {
                    Operand::Const(c) => c.as_unsigned(64).and_then(|count| u64::try_from(count).ok()),
                    Operand::Value(_) => None,
                });
                // An array of unknown length is rejected later.
                let (size, natural) = ty.size_align(module);
                let bytes = count.and_then(|count| size.checked_mul(count)).unwrap_or(0);
                let align = align.unwrap_or(natural);
                roots.add_value(value, Root { kind: RootKind::Private, bytes, align });
            }
        }
        for global in &module.globals {
            let kind = if threadgroup.contains(&global.name) {
                RootKind::Threadgroup(source_name(&global.name))
            } else {
                RootKind::Constant(global.name.clone())
            };
            roots.of_global.insert(global.name.clone(), roots.list.len());
            let (bytes, natural) = global.ty.size_align(module);
            roots.list.push(Root { kind, bytes, align: global.align.unwrap_or(natural) });
        }
        roots.null = roots.list.len();
        roots.list.push(Root { kind: RootKind::Null, bytes: 0, align: 1 });
        roots.propagate(module, function);
        roots
    }

    fn add_value(&mut self, value: ValueId, root: Root) {
        self.of_value.insert(value, self.list.len());
        self.sources.insert(value, Source::One(self.list.len()));
        self.list.push(root);
    }

    /// Source of an operand.
    pub fn source(&self, operand: &Operand) -> Source {
        match operand {
            Operand::Value(value) => self.sources.get(value).cloned().unwrap_or(Source::None),
            Operand::Const(constant) => self.constant(constant),
        }
    }

    fn constant(&self, constant: &Const) -> Source {
        match constant {
            Const::Global(name) => {
                self.of_global.get(name).map_or(Source::Unknown(None), |r| Source::One(*r))
            }
            Const::Gep { base, .. } => self.constant(&base.1),
            Const::Null | Const::Undef | Const::Poison | Const::Zero => Source::None,
            _ => Source::Unknown(None),
        }
    }

    /// Propagates sources through the function to a fixed point.
    fn propagate(&mut self, module: &Module, function: &Function) {
        loop {
            let mut changed = false;
            for inst in function.blocks.iter().flat_map(|b| &b.insts) {
                let Some(result) = inst.result.filter(|r| function.ty(*r).is_ptr()) else { continue };
                if self.of_value.contains_key(&result) {
                    continue;
                }
                let source = match &inst.op {
                    Op::Gep { base, .. } => self.source(&base.op),
                    Op::Freeze(inner) => self.source(&inner.op),
                    Op::Select { a, b, .. } => self.source(&a.op).join(self.source(&b.op)),
                    Op::Phi { incoming, .. } => {
                        incoming.iter().fold(Source::None, |all, (operand, _)| all.join(self.source(operand)))
                    }
                    Op::Call(call) if returns_first_argument(&call.callee) => self.source(&call.args[0].op),
                    _ => Source::Unknown(module.location(&inst.metadata)),
                };
                if self.sources.get(&result) != Some(&source) {
                    self.sources.insert(result, source);
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }
}

fn returns_first_argument(callee: &Callee) -> bool {
    matches!(callee, Callee::Function(name) if name.starts_with("llvm.launder.invariant.group"))
}

impl Source {
    fn join(self, other: Source) -> Source {
        match (self, other) {
            (Source::None, x) | (x, Source::None) => x,
            (unknown @ Source::Unknown(_), _) | (_, unknown @ Source::Unknown(_)) => unknown,
            (Source::One(a), Source::One(b)) if a == b => Source::One(a),
            _ => Source::Mixed,
        }
    }
}
