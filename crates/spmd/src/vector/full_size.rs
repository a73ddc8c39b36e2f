//! The size of a full threadgroup, as operands of the whole function: constants, or values that the launch passes.

use elinvar_ir::{BinaryOp, Const, IntPredicate, Operand, Type, ValueId};

use super::prologue::{LAUNCH_GROUP, load_dims};
use crate::analysis::lane_layout::Layout;
use crate::support::builder::{Builder, i32_const};

/// The size.
pub(crate) struct FullSize {
    /// Number of threads along each dimension.
    pub threads: [Operand; 3],
    /// Values that follow from a dynamic size.
    pub dynamic: Option<DynamicRows>,
}

/// The row layout of a dynamic size.
pub(crate) struct DynamicRows {
    /// Number of rows.
    pub rows: Operand,
    /// Number of vectors of a row.
    pub per_row: Operand,
    /// Whether every lane of a full threadgroup's vectors has a thread; `None` if it always has.
    pub is_exact: Option<Operand>,
    /// Whether there is only one row.
    pub is_single: Operand,
}

impl FullSize {
    /// Emits the values of a dynamic size.
    pub fn write(b: &mut Builder<'_>, layout: &Layout, launch: ValueId) -> Self {
        if !layout.is_dynamic {
            let threads = layout.group.map(|size| i32_const(size).into());
            return Self { threads, dynamic: None };
        }
        let threads = load_dims(b, launch, LAUNCH_GROUP, "size");
        let [x, y, z] = threads.clone();
        let lanes = layout.lanes;
        let rows = b.binary(BinaryOp::Mul, "nuw nsw", &Type::I32, y, z);
        let padded = b.binary(BinaryOp::Add, "nuw nsw", &Type::I32, x.clone(), i32_const(lanes - 1));
        let shift = i32_const(lanes.trailing_zeros());
        let per_row = b.binary(BinaryOp::LShr, "", &Type::I32, padded, shift).into();
        let is_exact = layout.is_exact().is_none().then(|| {
            let rest = b.binary(BinaryOp::And, "", &Type::I32, x, i32_const(lanes - 1));
            b.icmp(IntPredicate::Eq, &Type::I32, rest, i32_const(0)).into()
        });
        let is_single = b.icmp(IntPredicate::Eq, &Type::I32, rows, i32_const(1)).into();
        Self { threads, dynamic: Some(DynamicRows { rows: rows.into(), per_row, is_exact, is_single }) }
    }

    /// Whether a dimension is known to have one thread.
    pub fn is_one(&self, dim: usize) -> bool {
        self.threads[dim] == Operand::from(i32_const(1))
    }

    /// Whether the threads of later iterations have larger positions along x: always for a static size, for which the analysis of
    /// early exits has decided it.
    pub fn x_ascends(&self) -> Operand {
        self.dynamic.as_ref().map_or_else(|| Const::int(1, -1).into(), |dynamic| dynamic.is_single.clone())
    }
}
