//! Scaled dot-product attention, in `f32`: one operation of MPSGraph where it has it, otherwise products, exponents and sums.
//!
//! Heads that share keys and values are queries of one head: `[batch, key heads, heads of a key head · queries, width]`.
#![allow(unsafe_code)] // calls the framework

use elinvar_driver::primitive::{Attention, DataType, GraphLibrary};

use super::build::{Builder, Value};

pub(super) fn build(builder: &mut Builder, p: &Attention, library: GraphLibrary) {
    let [batch, heads, key_heads] = [p.batch, p.heads, p.key_heads].map(|size| size as usize);
    let [queries, keys, width, value_width] =
        [p.queries, p.keys, p.width, p.value_width].map(|size| size as usize);
    let shared = heads / key_heads;
    let rows = shared * queries;
    let mut operand = |index, shape: [usize; 4]| builder.wide(index, &shape, p.data_type);
    let query = operand(0, [batch, heads, queries, width]);
    let key = operand(1, [batch, key_heads, keys, width]);
    let value = operand(2, [batch, key_heads, keys, value_width]);
    let query = builder.reshape(&query, &[batch, key_heads, rows, width]);
    let causal = p.causal.map(|before| causal(builder, before, [shared, queries, keys]));
    let result = if library.attends(p) {
        // SAFETY: the values are of this graph. A causal mask lets each query see the first key.
        unsafe {
            builder
                .graph
                .scaledDotProductAttentionWithQueryTensor_keyTensor_valueTensor_maskTensor_scale_name(
                    &query,
                    &key,
                    &value,
                    causal.as_deref(),
                    p.scale,
                    None,
                )
        }
    } else {
        let scores = builder.product(&query, &builder.exchange(&key, 2, 3));
        let mut scores = builder.multiply(&scores, &builder.number(p.scale.into()));
        if let Some(causal) = &causal {
            scores = builder.add(&scores, causal);
        }
        if let Some(mask) = p.mask {
            let shape = mask.shape.map(|size| size as usize);
            let mask = builder.wide(3, &shape, mask.data_type);
            let all = builder.broadcast(&mask, &[batch, heads, queries, keys]);
            scores = builder.add(&scores, &builder.reshape(&all, &[batch, key_heads, rows, keys]));
        }
        weighted(builder, &scores, &value)
    };
    let shape = [batch, heads, queries, value_width];
    let result = builder.cast(result, DataType::F32, p.data_type);
    builder.result(3 + usize::from(p.mask.is_some()), result, &shape, p.data_type);
}

/// 0 where a key counts for a query, and -∞ where not, of shape `[1, 1, shared · queries, keys]`.
fn causal(builder: &Builder, before: u32, [shared, queries, keys]: [usize; 3]) -> Value {
    let ones = builder.numbers(1.0, &[1, queries, keys]);
    // A band that includes the last key includes all.
    let upper =
        isize::try_from(before).unwrap_or(isize::MAX).min(isize::try_from(keys).unwrap_or(isize::MAX));
    // SAFETY: the value is of this graph.
    let band = unsafe { builder.graph.bandPartWithTensor_numLower_numUpper_name(&ones, -1, upper, None) };
    let counts = builder.equal(&band, &builder.number(1.0));
    let mask = builder.select(&counts, &builder.number(0.0), &builder.number(f64::NEG_INFINITY));
    let all = builder.broadcast(&mask, &[shared, queries, keys]);
    builder.reshape(&all, &[1, 1, shared * queries, keys])
}

/// Softmax of the scores, times the values; 0 for a query all of whose scores are -∞.
fn weighted(builder: &Builder, scores: &Value, value: &Value) -> Value {
    let (zero, none) = (builder.number(0.0), builder.number(f64::NEG_INFINITY));
    // SAFETY: the values are of this graph.
    let most = unsafe { builder.graph.reductionMaximumWithTensor_axis_name(scores, 3, None) };
    let most = builder.select(&builder.equal(&most, &none), &zero, &most);
    // SAFETY: as above.
    let (weights, sums) = unsafe {
        let below = builder.graph.subtractionWithPrimaryTensor_secondaryTensor_name(scores, &most, None);
        let weights = builder.graph.exponentWithTensor_name(&below, None);
        let sums = builder.graph.reductionSumWithTensor_axis_name(&weights, 3, None);
        (weights, sums)
    };
    let sums = builder.select(&builder.equal(&sums, &zero), &builder.number(1.0), &sums);
    let product = builder.product(&weights, value);
    // SAFETY: as above.
    unsafe { builder.graph.divisionWithPrimaryTensor_secondaryTensor_name(&product, &sums, None) }
}
