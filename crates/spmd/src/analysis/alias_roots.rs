//! Which memory each pointer of a function points into.
//!
//! A root is a piece of memory that the kernel may name: an argument's, a threadgroup variable, a
//! private array, a constant table. Pointer arithmetic keeps the root; a phi or select of different
//! roots is [`Source::Mixed`]. A pointer that comes from anywhere else, above all from memory, is
//! unknown, and no access through it can be checked.

use std::collections::HashMap;

use elinvar_ir::{Callee, Const, Function, Location, Module, Op, Operand, ValueId};

use crate::support::demangle::source_name;

/// A piece of memory.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Root {
    /// What it is.
    pub kind: RootKind,
    /// Its size in bytes where that is known now; for an argument the least that a launch gives.
    pub bytes: u64,
    /// The alignment of its first byte, a power of two.
    pub align: u64,
}

/// What a launch gives at least for an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Given {
    /// Bytes.
    pub bytes: u64,
    /// The alignment of the first, a power of two.
    pub align: u64,
}

impl Default for Given {
    fn default() -> Self {
        Self { bytes: 0, align: 1 }
    }
}

/// What a root is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum RootKind {
    /// The memory of the kernel's argument with this position.
    Argument(usize),
    /// A threadgroup variable, by its name in the source.
    Threadgroup(String),
    /// A private array or variable.
    Private,
    /// A constant table, by its name in the module.
    Constant(String),
    /// None: a null pointer, or one that was never written.
    Null,
}

/// Where a pointer comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nothing known yet, or nothing that could be dereferenced: null. Its bounds are those of no memory.
    None,
    /// The root with this index.
    One(usize),
    /// One of several roots; which one is known when the code runs.
    Mixed,
    /// Not from a root, with the place where it was made.
    Unknown(Option<Location>),
}

/// The roots of a function and the sources of its pointers.
pub(crate) struct Roots {
    pub list: Vec<Root>,
    sources: HashMap<ValueId, Source>,
    /// The root of each argument, alloca and global.
    pub of_value: HashMap<ValueId, usize>,
    pub of_global: HashMap<String, usize>,
    /// The root of pointers without one.
    pub null: usize,
}

impl Roots {
    /// Find them. `given` is what a launch gives for each argument, `threadgroup` are the threadgroup variables.
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
                // One of unknown length is refused later.
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

    /// Where an operand comes from.
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

    /// Carry sources through the function until nothing changes.
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
