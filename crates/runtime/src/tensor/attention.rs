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

/// A simdgroup has some queries and goes over the keys, one for each thread.
const RUNNING: &str = "running softmax";
/// A threadgroup has a block of queries, which it multiplies by blocks of keys and values.
const BLOCKS: &str = "blocks";
/// Fewest queries that are worth a block.
const FEWEST: usize = 16;
/// Bytes of a word.
const WORD: usize = 16;

/// A kernel for blocks.
struct Blocks {
    name: &'static str,
    /// Most elements of a key and a value.
    width: usize,
    /// Queries and threads of a threadgroup.
    queries: usize,
    threads: usize,
}

const fn blocks(name: &'static str, width: usize, queries: usize, threads: usize) -> Blocks {
    Blocks { name, width, queries, threads }
}

/// The kernels for blocks, of each type by ascending width.
const F32: [Blocks; 2] = [blocks("attend_f32_64", 64, 64, 128), blocks("attend_f32_128", 128, 64, 128)];
const F16: [Blocks; 3] = [
    blocks("attend_f16_64", 64, 128, 128),
    blocks("attend_f16_96", 96, 96, 192),
    blocks("attend_f16_128", 128, 64, 128),
];
const BF16: [Blocks; 3] = [
    blocks("attend_bf16_64", 64, 128, 128),
    blocks("attend_bf16_96", 96, 96, 192),
    blocks("attend_bf16_128", 128, 64, 128),
];

/// The kernel for blocks of these operands: queries, keys and values of one type, in heads of at most 128 elements, with a key.
fn blocks_of([query, key, value]: [&TensorRef<'_>; 3]) -> Option<&'static Blocks> {
    let data_type = query.data_type;
    let kernels: &[Blocks] = match data_type {
        DataType::F16 => &F16,
        DataType::BF16 => &BF16,
        _ => &F32,
    };
    let width = key.shape()[3].max(value.shape()[3]);
    let fits = [key, value].iter().all(|view| view.data_type == data_type) && key.shape()[2] > 0;
    kernels.iter().find(|kernel| fits && width <= kernel.width)
}

/// Whether the rows of an operand are whole words.
fn is_in_words(view: &TensorRef<'_>) -> bool {
    let size = view.data_type.size() as usize;
    let (shape, strides) = (view.shape(), view.strides());
    let others = (0..3).filter(|axis| shape[*axis] > 1).map(|axis| strides[axis]);
    let mut bytes = others.chain([shape[3]]).map(|elements| elements.saturating_mul(size));
    strides[3] == 1
        && StepArg::tensor(view, false).offset().is_multiple_of(WORD as u64)
        && bytes.all(|bytes| bytes.is_multiple_of(WORD))
}

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

    fn algorithms(&self) -> &'static [&'static str] {
        &[RUNNING, BLOCKS]
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
        let args = [
            StepArg::tensor(query, false),
            StepArg::tensor(key, false),
            StepArg::tensor(value, false),
            mask.as_ref().map_or_else(StepArg::unbound, |mask| StepArg::tensor(mask, false)),
            StepArg::tensor(result, true),
            StepArg::bytes(bytes_of(&size)),
        ];
        let by_blocks = match steps.wanted {
            Some(wanted) => wanted == BLOCKS,
            None => queries >= FEWEST && steps.device().caps().limits.vector_bits.is_none(),
        };
        if let Some(blocks) = blocks_of([query, key, value]).filter(|_| by_blocks) {
            let words = [query, key, value].map(|view| is_in_words(view).into());
            let own =
                [9, 10, 11].into_iter().zip(words).chain([(12, step_class(result.strides()[3]).into())]);
            let constants: Vec<_> = constants.into_iter().chain(own).collect();
            let grid = Grid::groups((queries.div_ceil(blocks.queries), heads, batch)).group(blocks.threads);
            steps.algorithm = BLOCKS;
            return steps.launch(File::AttentionBlocks, blocks.name, &constants, grid, args);
        }
        let name = match (rows, columns) {
            (1, 1) => "attend_1_1",
            (1, 2) => "attend_1_2",
            (1, _) => "attend_1_4",
            (_, 1) => "attend_4_1",
            (_, 2) => "attend_4_2",
            _ => "attend_4_4",
        };
        let grid = Grid::groups((queries.div_ceil(SIMDGROUPS * rows), heads, batch * blocks));
        steps.algorithm = RUNNING;
        steps.launch(File::Attention, name, &constants, grid.group(SIMDGROUP * SIMDGROUPS), args)
    }
}
