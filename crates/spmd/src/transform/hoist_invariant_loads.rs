//! Hoists invariant loads (of `constant T&` arguments) out of the threads' code: they are executed once per call of the function
//! over threadgroups, and their results are uniform.

use std::collections::HashMap;

use elinvar_ir::{Module, Op, Operand, Type, ValueId};

use crate::kernel::Kernel;
use crate::support::gep::constant_bytes;
use crate::support::ir::{blocks_in_order, is_number};

/// A hoisted load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InvariantLoad {
    pub value: ValueId,
    /// Index of the parameter that it loads from.
    pub param: usize,
    /// Offset from the parameter's address in bytes.
    pub offset: u64,
    pub ty: Type,
    pub align: Option<u64>,
}

/// Moves the loads from the first `invariant_bytes` bytes of each parameter's memory to [`Kernel::invariant_loads`].
pub(crate) fn hoist(module: &Module, kernel: &mut Kernel, invariant_bytes: &[u64]) {
    let params = kernel.function.params.iter().enumerate();
    let mut places: HashMap<ValueId, (usize, i64)> = params.map(|(i, p)| (p.value, (i, 0))).collect();
    for block in blocks_in_order(&kernel.function) {
        let insts = &mut kernel.function.block_mut(block).insts;
        insts.retain(|inst| {
            let place = |operand: &Operand| operand.value().and_then(|v| places.get(&v).copied());
            match (&inst.op, inst.result) {
                (Op::Gep { source, base, indices, .. }, Some(result)) => {
                    if let (Some((param, offset)), Some(more)) =
                        (place(&base.op), constant_bytes(module, source, indices))
                        && let Some(offset) = offset.checked_add(more)
                    {
                        places.insert(result, (param, offset));
                    }
                    true
                }
                (Op::Load { ty, ptr, align, volatile: false, atomic: None }, Some(value))
                    if is_number(ty) =>
                {
                    let Some((param, offset)) = place(&ptr.op) else { return true };
                    let Ok(offset) = u64::try_from(offset) else { return true };
                    let end = offset + ty.size_align(module).0;
                    let inside =
                        invariant_bytes.get(param).is_some_and(|invariant_bytes| end <= *invariant_bytes);
                    if inside {
                        kernel.invariant_loads.push(InvariantLoad {
                            value,
                            param,
                            offset,
                            ty: ty.clone(),
                            align: *align,
                        });
                    }
                    !inside
                }
                _ => true,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_within_what_holds_still_are_taken_out() {
        let text = "define void @__elinvar_entry(ptr %out, ptr %still) {
              %next = getelementptr [2 x i32], ptr %still, i64 0, i64 1
              %a = load i32, ptr %still, align 4
              %b = load float, ptr %next, align 4
              %behind = getelementptr i8, ptr %next, i64 4
              %c = load i32, ptr %behind, align 4
              %d = load i64, ptr %next, align 4
              %e = load volatile i32, ptr %still, align 4
              %f = load i32, ptr %out, align 4
              store i32 %a, ptr %out
              ret void
            }";
        let module = Module::parse(text).unwrap();
        let mut kernel = crate::transform::lower_intrinsics::lower(&module).unwrap();
        hoist(&module, &mut kernel, &[0, 8]);
        let found: Vec<_> =
            kernel.invariant_loads.iter().map(|f| (f.param, f.offset, f.ty.clone(), f.align)).collect();
        assert_eq!(found, [(1, 0, Type::I32, Some(4)), (1, 4, Type::Float, Some(4))]);
        let left = kernel.function.blocks[0].insts.iter().filter(|i| matches!(i.op, Op::Load { .. }));
        assert_eq!(left.count(), 4);
    }
}
