//! Primitives of models: normalization of rows, and attention, of row-major operands.

use elinvar_driver::Primitive;
use elinvar_driver::primitive as driver;

use super::{data_type, length};
use crate::tensor::operation::Operands;
use crate::tensor::view::TensorRef;
use crate::tensor::{Attention, DataType, Mask, Normalize, Statistics};

/// The sizes of four axes.
fn four(shape: &[usize]) -> Option<[u32; 4]> {
    let sizes = shape.iter().map(|size| length(*size)).collect::<Option<Vec<_>>>()?;
    sizes.try_into().ok()
}

pub(super) fn attention(attention: &Attention, operands: &Operands<'_>) -> Option<Primitive> {
    let ([query, key, value], result) = (operands.inputs.get(..3)?, operands.outputs[0]) else { return None };
    let of = query.data_type();
    let is_plain = |view: &TensorRef<'_>| view.data_type() == of && view.is_contiguous();
    if ![query, key, value, &result].into_iter().all(|view| is_plain(view)) {
        return None;
    }
    let mask = match (attention.mask, operands.inputs.get(3)) {
        (Mask::None, _) => None,
        (Mask::Additive, Some(mask)) if mask.is_contiguous() => {
            let mut shape = [1; 4];
            // A mask of more axes than the scores has been refused.
            shape[4_usize.checked_sub(mask.rank())?..].copy_from_slice(mask.shape());
            let data_type = data_type(mask.data_type())?;
            Some(driver::AttentionMask { data_type, shape: four(&shape)? })
        }
        _ => return None,
    };
    let ([batch, heads, queries, width], [_, key_heads, keys, _]) =
        (four(query.shape())?, four(key.shape())?);
    Some(Primitive::Attention(driver::Attention {
        data_type: data_type(of)?,
        batch,
        heads,
        key_heads,
        queries,
        keys,
        width,
        value_width: length(value.shape()[3])?,
        scale: attention.scale.unwrap_or_else(|| 1.0 / (width.max(1) as f32).sqrt()),
        causal: attention.causal.map(|before| u32::try_from(before).unwrap_or(u32::MAX)),
        mask,
    }))
}

/// A normalization over the last axes, with parameters for each index of neighboring axes, which begin at or before them.
pub(super) fn normalization(normalize: &Normalize, operands: &Operands<'_>) -> Option<Primitive> {
    let saved = match normalize.statistics {
        Statistics::Computed => false,
        Statistics::Saved => true,
        _ => return None,
    };
    let (x, result) = (operands.inputs[0], operands.outputs[0]);
    let shape = x.shape();
    let is_plain = |view: &TensorRef<'_>| view.is_contiguous();
    let is_last = |axis: usize| shape[axis] == 1 || normalize.axes.contains(&axis);
    let first = (0..shape.len()).rev().take_while(|axis| is_last(*axis)).last()?;
    let others = normalize.axes.iter().all(|axis| *axis >= first || shape[*axis] == 1);
    let parameters = &operands.inputs[1..];
    let all = [&x, &result].into_iter().chain(parameters).chain(&operands.outputs[1..]);
    if x.data_type() != result.data_type() || !others || !all.into_iter().all(|view| is_plain(view)) {
        return None;
    }
    let parameter_type = parameters.first().map_or(DataType::F32, |view| view.data_type());
    let mut range = None;
    for view in parameters {
        let own = varies(view, shape)?;
        if view.data_type() != parameter_type || range.is_some_and(|range| range != own) {
            return None;
        }
        range = Some(own);
    }
    // Without parameters, all elements of a row are points of one channel.
    let (begin, end) = range.filter(|(begin, end)| begin < end).unwrap_or((first, first));
    if begin > first {
        return None;
    }
    let size = |axes: std::ops::Range<usize>| shape[axes].iter().product::<usize>();
    let (in_front, end) = (size(begin..first), end.max(first));
    let sizes = [size(0..begin), in_front, size(first..end), size(end..shape.len())];
    // Parameters that end before the axes do have one element for several groups, which are not neighbors.
    let elements = parameters.first().map_or(in_front * sizes[2], |view| view.len());
    if elements != in_front * sizes[2] {
        return None;
    }
    Some(Primitive::Normalization(driver::Normalization {
        data_type: data_type(x.data_type())?,
        parameter_type: data_type(parameter_type)?,
        shape: four(&sizes)?,
        epsilon: normalize.epsilon,
        center: normalize.center,
        scale: normalize.scale,
        bias: normalize.bias,
        saved,
    }))
}

/// The axes along which a parameter varies, from the first to behind the last, if it is repeated along all others: `(begin, end)`.
fn varies(parameter: &TensorRef<'_>, shape: &[usize]) -> Option<(usize, usize)> {
    let own = |axis: usize| {
        (axis + parameter.rank()).checked_sub(shape.len()).map_or(1, |at| parameter.shape()[at])
    };
    let varying: Vec<usize> = (0..shape.len()).filter(|axis| own(*axis) > 1).collect();
    let (Some(begin), Some(last)) = (varying.first(), varying.last()) else { return Some((0, 0)) };
    let has_all = (*begin..=*last).all(|axis| own(axis) == shape[axis]);
    has_all.then_some((*begin, last + 1))
}
