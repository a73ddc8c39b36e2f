//! Shadow values of pointers: base, size and root, as operands.
//!
//! A pointer with one root has the root's values. For a phi or select of several roots, three more phis or selects are inserted.

use std::collections::HashMap;

use elinvar_ir::{Const, Function, Inst, Op, Operand, Type, Typed, ValueId};

use crate::analysis::alias_roots::{RootKind, Roots, Source};
use crate::support::builder::{i32_const, i64_const};

/// The bounds of a pointer.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    /// Start of the root, a pointer.
    pub base: Operand,
    /// Its size in bytes, an i64.
    pub size: Operand,
    /// Its index, an i32.
    pub root: Operand,
}

/// The bounds of a function's roots and of its pointers with several roots.
pub(super) struct Shadows {
    roots: Vec<Shadow>,
    mixed: HashMap<ValueId, Shadow>,
}

impl Shadows {
    /// Computes them, with new instructions in `function`. `sizes` are the values of the arguments'
    /// sizes.
    pub fn new(function: &mut Function, roots: &Roots, sizes: &HashMap<usize, ValueId>) -> Self {
        let mut bases: HashMap<usize, Operand> = HashMap::new();
        bases.extend(roots.of_value.iter().map(|(value, root)| (*root, Operand::Value(*value))));
        let globals = roots.of_global.iter();
        bases.extend(globals.map(|(name, root)| (*root, Operand::Const(Const::Global(name.clone())))));
        let list = roots.list.iter().enumerate().map(|(index, root)| Shadow {
            base: bases.get(&index).cloned().unwrap_or(Operand::Const(Const::Null)),
            size: match &root.kind {
                RootKind::Argument(argument) => sizes[argument].into(),
                _ => i64_const(root.bytes).into(),
            },
            root: i32_const(index as u32).into(),
        });
        let mut shadows = Self { roots: list.collect(), mixed: HashMap::new() };
        shadows.name_mixed(function, roots);
        shadows.define_mixed(function, roots);
        shadows
    }

    /// The bounds of a root.
    pub fn of_root(&self, root: usize) -> Option<Shadow> {
        self.roots.get(root).cloned()
    }

    /// The bounds of a pointer with several roots.
    pub fn of_value(&self, pointer: &Operand) -> Option<Shadow> {
        self.mixed.get(&pointer.value()?).cloned()
    }

    fn of(&self, roots: &Roots, pointer: &Operand) -> Shadow {
        let found = match roots.source(pointer) {
            Source::One(root) => self.of_root(root),
            Source::Mixed => self.of_value(pointer),
            Source::None | Source::Unknown(_) => self.of_root(roots.null),
        };
        found.unwrap_or_else(|| Shadow {
            base: Const::Null.into(),
            size: i64_const(0).into(),
            root: i32_const(0).into(),
        })
    }

    /// Assigns three values to every pointer with several roots; pointer arithmetic shares those of its base.
    fn name_mixed(&mut self, function: &mut Function, roots: &Roots) {
        let insts: Vec<(ValueId, Option<Operand>)> = function
            .blocks
            .iter()
            .flat_map(|b| &b.insts)
            .filter_map(|inst| {
                let result = inst.result?;
                let mixed = roots.source(&result.into()) == Source::Mixed;
                let from = match &inst.op {
                    Op::Gep { base, .. } => Some(base.op.clone()),
                    Op::Freeze(inner) => Some(inner.op.clone()),
                    Op::Call(call) => call.args.first().map(|arg| arg.op.clone()),
                    _ => None,
                };
                mixed.then_some((result, from))
            })
            .collect();
        for (value, from) in &insts {
            if from.is_none() {
                let [base, size, root] =
                    [Type::PTR, Type::I64, Type::I32].map(|ty| function.new_value(ty, None).into());
                self.mixed.insert(*value, Shadow { base, size, root });
            }
        }
        // Definitions may follow their uses in block order: iterate to a fixed point.
        let mut left = insts.len();
        while left > 0 {
            left -= 1;
            for (value, from) in &insts {
                if let Some(shadow) = from.as_ref().and_then(|f| self.of_value(f)) {
                    self.mixed.insert(*value, shadow);
                }
            }
            if insts.iter().all(|(value, _)| self.mixed.contains_key(value)) {
                return;
            }
        }
    }

    /// Inserts the phis and selects.
    fn define_mixed(&self, function: &mut Function, roots: &Roots) {
        for block in &mut function.blocks {
            let mut out = Vec::with_capacity(block.insts.len());
            for inst in std::mem::take(&mut block.insts) {
                let shadow = inst.result.and_then(|r| self.mixed.get(&r));
                let more = shadow.and_then(|shadow| self.beside(roots, &inst.op, shadow));
                out.push(inst);
                out.extend(more.into_iter().flatten());
            }
            block.insts = out;
        }
    }

    fn beside(&self, roots: &Roots, op: &Op, result: &Shadow) -> Option<[Inst; 3]> {
        let parts = |s: Shadow| [s.base, s.size, s.root];
        let results = parts(result.clone());
        let types = [Type::PTR, Type::I64, Type::I32];
        let inst = |index: usize, op| Inst { result: results[index].value(), op, metadata: Vec::new() };
        match op {
            Op::Phi { incoming, .. } => Some([0, 1, 2].map(|i| {
                let incoming = incoming.iter().map(|(o, from)| (parts(self.of(roots, o))[i].clone(), *from));
                inst(i, Op::Phi { flags: String::new(), ty: types[i].clone(), incoming: incoming.collect() })
            })),
            Op::Select { cond, a, b, .. } => Some([0, 1, 2].map(|i| {
                let [a, b] =
                    [a, b].map(|o| Typed::new(types[i].clone(), parts(self.of(roots, &o.op))[i].clone()));
                inst(i, Op::Select { flags: String::new(), cond: cond.clone(), a, b })
            })),
            _ => None,
        }
    }
}
