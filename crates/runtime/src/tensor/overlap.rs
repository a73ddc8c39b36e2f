//! Whether views name the same elements.
//!
//! The answers are conservative: `true` if it cannot be excluded cheaply. Slices of one tensor along any axes are told apart.

use crate::identity::identity;
use crate::tensor::view::{Dims, TensorRef};

/// Axes of more than one element, as stride and size, the longest stride first.
fn axes(view: &TensorRef<'_>) -> Vec<(usize, usize)> {
    let both = view.strides.iter().zip(&view.shape).filter(|(_, size)| **size > 1);
    let mut axes: Vec<(usize, usize)> = both.map(|(stride, size)| (*stride, *size)).collect();
    axes.sort_unstable_by(|a, b| b.cmp(a));
    axes
}

/// An axis whose elements may be those of other axes, or of itself; `None` if every index names another element.
pub(crate) fn repeated_axis(view: &TensorRef<'_>) -> Option<usize> {
    if view.is_empty() {
        return None;
    }
    let mut order: Dims = (0..view.rank()).filter(|axis| view.shape[*axis] > 1).collect();
    order.sort_unstable_by_key(|axis| view.strides[*axis]);
    let mut last = 0;
    for axis in order {
        if view.strides[axis] <= last {
            return Some(axis);
        }
        last += (view.shape[axis] - 1) * view.strides[axis];
    }
    None
}

/// Whether both are the same elements at the same indices.
pub(crate) fn is_identical(a: &TensorRef<'_>, b: &TensorRef<'_>) -> bool {
    let begin = |view: &TensorRef<'_>| view.span.offset + view.offset as u64 * view.data_type.size();
    let strides = |view: &TensorRef<'_>| -> Dims {
        view.shape
            .iter()
            .zip(&view.strides)
            .map(|(size, stride)| if *size > 1 { *stride } else { 0 })
            .collect()
    };
    identity(&a.span.storage) == identity(&b.span.storage)
        && a.data_type == b.data_type
        && begin(a) == begin(b)
        && a.shape == b.shape
        && strides(a) == strides(b)
}

/// Whether the views may have an element in common.
pub(crate) fn may_overlap(a: &TensorRef<'_>, b: &TensorRef<'_>) -> bool {
    if identity(&a.span.storage) != identity(&b.span.storage) || a.is_empty() || b.is_empty() {
        return false;
    }
    let (first, second) = (a.used_span(), b.used_span());
    let in_range = first.offset < second.offset + second.len && second.offset < first.offset + first.len;
    in_range && !are_parts_of_one(a, b)
}

/// Whether both are disjoint slices of one tensor: with its strides, their indices differ along an axis.
fn are_parts_of_one(a: &TensorRef<'_>, b: &TensorRef<'_>) -> bool {
    if a.data_type != b.data_type {
        return false;
    }
    let size = a.data_type.size();
    let begin = |view: &TensorRef<'_>| view.span.offset / size + view.offset as u64;
    // Strides of the tensor: those of both. An axis of one element is lost in one view, but may be an axis of the other.
    let mut strides: Vec<usize> = axes(a).into_iter().chain(axes(b)).map(|(stride, _)| stride).collect();
    strides.sort_unstable_by(|a, b| b.cmp(a));
    strides.dedup();
    if strides.last() == Some(&0) || strides.windows(2).any(|pair| !pair[0].is_multiple_of(pair[1])) {
        return false;
    }
    // Indices of a view along each axis, as first and last; `None` if it is not a slice of such a tensor.
    let ranges = |view: &TensorRef<'_>, base: u64| -> Option<Vec<(u64, u64)>> {
        let mut rest = begin(view) - base;
        let sizes = axes(view);
        if sizes.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        let mut outer = u64::MAX;
        let ranges = strides.iter().map(|stride| {
            let stride = *stride as u64;
            let first = rest / stride;
            rest %= stride;
            let count = sizes.iter().find(|(of, _)| *of as u64 == stride).map_or(1, |(_, size)| *size as u64);
            let last = first + count - 1;
            let fits = last < outer / stride;
            outer = stride;
            fits.then_some((first, last))
        });
        let ranges: Option<Vec<_>> = ranges.collect();
        // A remainder is a position within the innermost stride.
        Some([ranges?, vec![(rest, rest)]].concat())
    };
    let first = begin(a).min(begin(b));
    let longest = strides.first().map_or(1, |stride| *stride as u64);
    [first, first - first % longest].into_iter().any(|base| {
        let (Some(a), Some(b)) = (ranges(a, base), ranges(b, base)) else { return false };
        a.iter().zip(&b).any(|(a, b)| a.1 < b.0 || b.1 < a.0)
    })
}
