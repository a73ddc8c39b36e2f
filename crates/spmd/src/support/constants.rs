//! Constants that reference globals. Those that reference threadgroup variables are replaced by values, since such a variable is
//! memory of one threadgroup and not a constant.

use std::collections::HashMap;

use elinvar_ir::{Const, Op, Operand, Type, Typed};

use crate::Error;
use crate::support::builder::Builder;

/// Whether a constant references a global for which `wanted` holds.
pub(crate) fn mentions(constant: &Const, wanted: &dyn Fn(&str) -> bool) -> bool {
    let any = |parts: &[(Type, Const)]| parts.iter().any(|(_, c)| mentions(c, wanted));
    match constant {
        Const::Global(name) => wanted(name),
        Const::Array(parts) | Const::Vector(parts) | Const::Struct { fields: parts, .. } => any(parts),
        Const::Splat(part) => mentions(&part.1, wanted),
        Const::Gep { base, indices, .. } => mentions(&base.1, wanted) || any(indices),
        Const::Cast { from, .. } => mentions(&from.1, wanted),
        Const::Int(_)
        | Const::Float(_)
        | Const::Null
        | Const::Undef
        | Const::Poison
        | Const::Zero
        | Const::String(_) => false,
    }
}

/// Threadgroup variables by name, with the values that replace them and constants derived from them.
#[derive(Default)]
pub(crate) struct Threadgroup {
    variables: HashMap<String, Operand>,
    made: HashMap<Const, Operand>,
}

impl Threadgroup {
    /// Sets the value of a variable's address.
    pub fn insert(&mut self, name: String, pointer: Operand) {
        self.variables.insert(name, pointer);
    }

    /// Creates a value, in `b`'s block, for a constant that references threadgroup variables.
    pub fn materialize(&mut self, constant: &Const, b: &mut Builder<'_>) -> Result<(), Error> {
        if mentions(constant, &|n| self.variables.contains_key(n)) && !self.made.contains_key(constant) {
            let value = self.build(constant, b)?;
            self.made.insert(constant.clone(), value);
        }
        Ok(())
    }

    /// The replacement of a constant: itself, or the value created for it.
    pub fn resolve(&self, constant: &Const) -> Operand {
        self.made.get(constant).cloned().unwrap_or_else(|| Operand::Const(constant.clone()))
    }

    fn build(&self, constant: &Const, b: &mut Builder<'_>) -> Result<Operand, Error> {
        match constant {
            Const::Global(name) => match self.variables.get(name) {
                Some(pointer) => Ok(pointer.clone()),
                None => Ok(Operand::Const(constant.clone())),
            },
            Const::Gep { flags, source, base, indices } => {
                let start = self.build(&base.1, b)?;
                let indices = indices.iter().map(|(t, c)| Typed::new(t.clone(), c.clone())).collect();
                let base = Typed::new(base.0.clone(), start);
                let op = Op::Gep { flags: flags.clone(), source: (**source).clone(), base, indices };
                Ok(b.value(Type::PTR, None, op).into())
            }
            Const::Cast { op, from, to } => {
                let inner = self.build(&from.1, b)?;
                Ok(b.cast(*op, from.0.clone(), inner, (**to).clone()).into())
            }
            _ => Err(Error::unsupported("a constant vector or struct of threadgroup pointers", None)),
        }
    }
}
