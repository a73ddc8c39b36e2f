//! [`Attention`]: scaled dot-product attention.

use elinvar_driver::Result;

use crate::Grid;
use crate::tensor::axes::bytes_of;
use crate::tensor::data_type::DataType;
use crate::tensor::kernel_cache::File;
use crate::tensor::operation::{Operands, Operate, Within, expect_float, expect_shape, fail};
use crate::tensor::plan::{StepArg, Steps};
use crate::tensor::rows::step_class;
use crate::tensor::view::TensorRef;

/// A mask of attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mask {
    /// None.
    #[default]
    None = 0,
    /// Floats that are added to the scaled scores.
    Additive = 1,
    /// `u8`: whether the key counts.
    Boolean = 2,
}

/// Scaled dot-product attention: `result = softmax(scale · query · keyᵀ + mask) · value`, for each head.
///
/// Inputs: `query` of shape `[batch, heads, queries, width]`; `key` of `[batch, key heads, keys, width]`; `value` of `[batch, key heads,
/// keys, value width]`; `mask` if there is one, which is broadcast to `[batch, heads, queries, keys]`. Output: `result` of `[batch, heads,
/// queries, value width]`. All but a boolean mask are floats. `heads` is a multiple of `key heads`: neighboring heads share keys and
/// values (grouped-query attention). The result of a query for which no key counts is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// Factor of the scores; `None` is `1 / √width`.
    pub scale: Option<f32>,
    /// Whether later keys do not count: key `j` counts for query `i` if `j ≤ i + before`, where `before` is the number of keys before that of
    /// the first query (0 for a whole sequence, the length of the cache for its continuation).
    pub causal: Option<usize>,
    /// The mask.
    pub mask: Mask,
}

impl Attention {
    /// Attention to this key and the earlier ones.
    pub fn causal() -> Self {
        Self { causal: Some(0), ..Self::default() }
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Size {
    q: [u64; 4],
    k: [u64; 4],
    v: [u64; 4],
    out: [u64; 4],
    mask: [u64; 4],
    queries: u32,
    keys: u32,
    width: u32,
    value_width: u32,
    heads: u32,
    shared: u32,
    blocks: u32,
    before: u32,
    scale: f32,
    unused: u32,
}

/// Threads of a simdgroup, and simdgroups of a threadgroup.
const SIMDGROUP: usize = 32;
const SIMDGROUPS: usize = 4;

impl Operate for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn operands(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let mask = (self.mask != Mask::None).then_some("mask");
        (["query", "key", "value"].into_iter().chain(mask).collect(), vec!["result"])
    }

    fn check(&self, operands: &Operands<'_>) -> Result<()> {
        let (name, [query, key, value]) = (self.name(), [0, 1, 2].map(|at| operands.inputs[at]));
        let result = operands.outputs[0];
        let all = [("query", query), ("key", key), ("value", value), ("result", result)];
        for (operand, view) in all {
            expect_float(name, operand, view)?;
            if view.rank() != 4 {
                return Err(fail(name, format_args!("`{operand}` {view}: expected four axes")));
            }
            if view.shape().iter().any(|size| i32::try_from(*size).is_err()) {
                return Err(fail(name, format_args!("`{operand}` {view}: an axis of 2³¹ elements or more")));
            }
        }
        let ([batch, heads, queries, width], [_, key_heads, keys, _]) = (query.shape(), key.shape()) else {
            return Ok(());
        };
        if *key_heads == 0 || !heads.is_multiple_of(*key_heads) {
            return Err(fail(
                name,
                format_args!("`query` {query}, `key` {key}: {heads} heads cannot share {key_heads}"),
            ));
        }
        let reason = format!("expected for `query` {query}");
        expect_shape(name, ("key", key), (&reason, &[*batch, *key_heads, *keys, *width]))?;
        let reason = format!("expected for `key` {key}");
        expect_shape(name, ("value", value), (&reason, &[*batch, *key_heads, *keys, value.shape()[3]]))?;
        let reason = "expected for `query` and `value`";
        expect_shape(name, ("result", result), (reason, &[*batch, *heads, *queries, value.shape()[3]]))?;
        if let Some(mask) = operands.inputs.get(3) {
            mask.broadcast(&[*batch, *heads, *queries, *keys]).map_err(|error| error.within(name, "mask"))?;
            let fits = if self.mask == Mask::Boolean {
                mask.data_type == DataType::U8
            } else {
                mask.data_type.is_float()
            };
            if !fits {
                let wanted = if self.mask == Mask::Boolean { "u8" } else { "f32, f16 or bf16" };
                return Err(fail(name, format_args!("`mask` {mask}: its elements must be {wanted}")));
            }
        }
        Ok(())
    }

    fn flops(&self, operands: &Operands<'_>) -> u64 {
        let (query, value) = (operands.inputs[0], operands.inputs[2]);
        let scores =
            (query.shape()[..3].iter().product::<usize>() as u64).saturating_mul(value.shape()[2] as u64);
        scores.saturating_mul(2 * (query.shape()[3] + value.shape()[3]) as u64)
    }

    fn add_steps(&self, operands: &Operands<'_>, steps: &mut Steps) -> Result<()> {
        let [query, key, value] = [0, 1, 2].map(|at| operands.inputs[at]);
        let result = operands.outputs[0];
        let (batch, heads, queries, keys) =
            (query.shape()[0], query.shape()[1], query.shape()[2], key.shape()[2]);
        let (width, value_width) = (query.shape()[3], value.shape()[3]);
        let mask =
            operands.inputs.get(3).map(|mask| mask.broadcast(&[batch, heads, queries, keys])).transpose()?;
        let rows = if queries <= SIMDGROUPS { 1 } else { 4 };
        let columns = match value_width.div_ceil(SIMDGROUP) {
            1 => 1,
            2 => 2,
            _ => 4,
        };
        let blocks = value_width.div_ceil(SIMDGROUP * columns);
        let strides =
            |view: &TensorRef<'_>| -> [u64; 4] { std::array::from_fn(|axis| view.strides()[axis] as u64) };
        let size = Size {
            q: strides(query),
            k: strides(key),
            v: strides(value),
            out: strides(result),
            mask: mask.as_ref().map_or([0; 4], strides),
            queries: queries as u32,
            keys: keys as u32,
            width: width as u32,
            value_width: value_width as u32,
            heads: heads as u32,
            shared: (heads / key.shape()[1]) as u32,
            blocks: blocks as u32,
            before: self.causal.map_or(0, |before| u32::try_from(before).unwrap_or(u32::MAX)),
            scale: self.scale.unwrap_or_else(|| 1.0 / (width.max(1) as f32).sqrt()),
            unused: 0,
        };
        let code = |view: &TensorRef<'_>| view.data_type.code().into();
        let constants = [
            (0, code(query)),
            (1, code(key)),
            (2, code(value)),
            (3, code(result)),
            (4, mask.as_ref().map_or(0.into(), code)),
            (5, (self.mask as u32).into()),
            (6, self.causal.is_some().into()),
            (7, step_class(key.strides()[3]).into()),
            (8, step_class(value.strides()[3]).into()),
        ];
        let name = match (rows, columns) {
            (1, 1) => "attend_1_1",
            (1, 2) => "attend_1_2",
            (1, _) => "attend_1_4",
            (_, 1) => "attend_4_1",
            (_, 2) => "attend_4_2",
            _ => "attend_4_4",
        };
        let grid = Grid::groups((queries.div_ceil(SIMDGROUPS * rows), heads, batch * blocks));
        let args = [
            StepArg::tensor(query, false),
            StepArg::tensor(key, false),
            StepArg::tensor(value, false),
            mask.as_ref().map_or_else(StepArg::unbound, |mask| StepArg::tensor(mask, false)),
            StepArg::tensor(result, true),
            StepArg::bytes(bytes_of(&size)),
        ];
        steps.algorithm = "running softmax";
        steps.launch(File::Attention, name, &constants, grid.group(SIMDGROUP * SIMDGROUPS), args)
    }
}
