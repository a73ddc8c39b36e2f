//! [`Axes`]: axes that several operands are indexed by, and their form for the kernels.

use bytemuck::{Pod, Zeroable};

use crate::tensor::view::{Dims, MAX_RANK};

/// Axes of an index space, the outermost first, with the strides of each operand, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axes {
    pub(crate) sizes: Dims,
    pub(crate) strides: Vec<Dims>,
}

impl Axes {
    /// The axes of `shape`.
    pub(crate) fn new(shape: &[usize], strides: &[&[usize]]) -> Self {
        Self {
            sizes: shape.into(),
            strides: strides.iter().map(|strides| Dims::from_slice(strides)).collect(),
        }
    }

    /// Those of these axes that `keep` names.
    pub(crate) fn select(&self, mut keep: impl FnMut(usize) -> bool) -> Self {
        let chosen: Dims = (0..self.sizes.len()).filter(|axis| keep(*axis)).collect();
        self.order(&chosen)
    }

    fn order(&self, order: &[usize]) -> Self {
        let pick = |of: &Dims| order.iter().map(|axis| of[*axis]).collect();
        Self { sizes: pick(&self.sizes), strides: self.strides.iter().map(pick).collect() }
    }

    /// Number of indices.
    pub(crate) fn count(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Sorts the axes by the strides of operand `by`, the longest first. Changes the order of indices.
    pub(crate) fn sorted(&self, by: usize) -> Self {
        let mut order: Dims = (0..self.sizes.len()).collect();
        order.sort_by_key(|axis| std::cmp::Reverse(self.strides[by][*axis]));
        self.order(&order)
    }

    /// Removes axes of size 1, and merges neighbors that every operand steps through as one axis. Keeps the order of indices.
    pub(crate) fn collapsed(&self) -> Self {
        let mut merged = Self { sizes: Dims::new(), strides: vec![Dims::new(); self.strides.len()] };
        for axis in (0..self.sizes.len()).filter(|axis| self.sizes[*axis] != 1) {
            let size = self.sizes[axis];
            let joins = !merged.sizes.is_empty()
                && merged
                    .strides
                    .iter()
                    .zip(&self.strides)
                    .all(|(outer, inner)| outer.last().copied() == inner[axis].checked_mul(size));
            if joins {
                if let Some(last) = merged.sizes.last_mut() {
                    *last *= size;
                }
            } else {
                merged.sizes.push(size);
            }
            for (merged, strides) in merged.strides.iter_mut().zip(&self.strides) {
                if joins {
                    merged.pop();
                }
                merged.push(strides[axis]);
            }
        }
        merged
    }

    /// The innermost axis, as size and strides, and the others.
    pub(crate) fn split_inner(&self) -> (usize, Dims, Self) {
        let mut outer = self.clone();
        let size = outer.sizes.pop().unwrap_or(1);
        let strides = outer.strides.iter_mut().map(|strides| strides.pop().unwrap_or(0)).collect();
        (size, strides, outer)
    }

    /// Number of axes that kernels are compiled for: a few of them, so that there are few pipelines.
    pub(crate) fn rank_class(&self) -> usize {
        match self.sizes.len() {
            few @ 0..=4 => few,
            _ => MAX_RANK,
        }
    }

    /// Bytes of the kernels' `Axes<N>`, with axes of size 1 at the front up to [`Axes::rank_class`].
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let first = self.rank_class() - self.sizes.len();
        let mut words: Vec<u64> = vec![self.count() as u64];
        let mut row = |values: &[usize], rest: u64| {
            let mut padded = [rest; MAX_RANK];
            for (padded, value) in padded[first..].iter_mut().zip(values) {
                *padded = *value as u64;
            }
            words.extend(padded);
        };
        row(&self.sizes, 1);
        for strides in &self.strides {
            row(strides, 0);
        }
        bytemuck::cast_slice(&words).to_vec()
    }
}

/// Whether the offsets of operands that extend over `extents` elements fit the 32-bit variants of the kernels.
pub(crate) fn fits_32_bits(extents: impl IntoIterator<Item = usize>) -> bool {
    extents.into_iter().all(|extent| extent < 1 << 31)
}

/// Bytes of a struct of a kernel.
pub(crate) fn bytes_of<T: Pod + Zeroable>(value: &T) -> Vec<u8> {
    bytemuck::bytes_of(value).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_axes_collapse_to_one() {
        let axes = Axes::new(&[2, 1, 3, 4], &[&[12, 99, 4, 1], &[24, 7, 8, 2]]).collapsed();
        assert_eq!(axes, Axes::new(&[24], &[&[1], &[2]]));
    }

    #[test]
    fn a_broadcast_operand_keeps_its_axis() {
        let axes = Axes::new(&[2, 3, 4], &[&[12, 4, 1], &[0, 4, 1]]).collapsed();
        assert_eq!(axes, Axes::new(&[2, 12], &[&[12, 1], &[0, 1]]));
    }

    #[test]
    fn axes_are_sorted_by_one_operand() {
        let axes = Axes::new(&[2, 3], &[&[1, 2], &[3, 1]]).sorted(0);
        assert_eq!(axes, Axes::new(&[3, 2], &[&[2, 1], &[1, 3]]));
        let (size, strides, outer) = axes.split_inner();
        assert_eq!((size, &strides[..], outer), (2, &[1, 3][..], Axes::new(&[3], &[&[2], &[1]])));
    }
}
