//! Offsets of address computations (`getelementptr`).

use elinvar_ir::{Const, Module, Operand, Type, Typed};

/// Distance in bytes between consecutive elements of a type.
pub(crate) fn stride(module: &Module, ty: &Type) -> u64 {
    let (size, align) = ty.size_align(module);
    size.next_multiple_of(align)
}

/// Contribution of an index to an address.
pub(crate) enum Step {
    /// A constant offset in bytes: a struct's field.
    Field(u64),
    /// The index times this size in bytes.
    Elements(u64),
}

/// The contribution of each index; `None` if one is unknown.
pub(crate) fn steps(module: &Module, source: &Type, indices: &[Typed]) -> Vec<Option<Step>> {
    let elements = |ty: &Type| Some(Step::Elements(stride(module, ty)));
    let mut at = source.clone();
    let mut all = Vec::new();
    for (level, index) in indices.iter().enumerate() {
        if level == 0 {
            all.push(elements(source));
            continue;
        }
        let resolved = at.resolve(module).cloned();
        let (step, next) = match resolved {
            Some(Type::Array(_, element)) | Some(Type::Vector(_, element)) => (elements(&element), *element),
            Some(ty @ Type::Struct { .. }) => {
                let field = match &index.op {
                    Operand::Const(c) => c.as_unsigned(32).map(|f| f as usize),
                    Operand::Value(_) => None,
                };
                let offset = field.and_then(|f| ty.field_offset(f, module)).map(Step::Field);
                let inner = field.and_then(|f| ty.element(f as u64, module).cloned());
                (offset, inner.unwrap_or(Type::I8))
            }
            _ => (None, Type::I8),
        };
        all.push(step);
        at = next;
    }
    all
}

/// The constant offset in bytes, if all indices are constants.
pub(crate) fn constant_bytes(module: &Module, source: &Type, indices: &[Typed]) -> Option<i64> {
    let steps = steps(module, source, indices).into_iter().zip(indices);
    let mut bytes = steps.map(|(step, index)| match (step?, &index.op) {
        (Step::Field(offset), _) => i64::try_from(offset).ok(),
        (Step::Elements(_), Operand::Const(Const::Zero)) => Some(0),
        (Step::Elements(size), Operand::Const(Const::Int(count))) => {
            i64::try_from(*count).ok()?.checked_mul(i64::try_from(size).ok()?)
        }
        (Step::Elements(_), _) => None,
    });
    bytes.try_fold(0_i64, |sum, bytes| sum.checked_add(bytes?))
}
