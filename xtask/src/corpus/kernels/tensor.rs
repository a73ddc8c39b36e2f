//! Arrays in ggml's kernels: four sizes and four strides in bytes, innermost first.

use super::element::Member::{self, I32, I64, U64};

/// Layout of an array.
#[derive(Clone, Copy)]
pub struct Tensor {
    pub ne: [usize; 4],
    /// Strides in bytes.
    pub nb: [usize; 4],
    /// Size of an element in bytes.
    size: usize,
}

impl Tensor {
    /// A contiguous array.
    pub fn new(ne: [usize; 4], size: usize) -> Self {
        Self::with_gap(ne, size, 0)
    }

    /// An array with `gap` elements between rows.
    pub fn with_gap(ne: [usize; 4], size: usize, gap: usize) -> Self {
        let row = (ne[0] + gap) * size;
        Self { ne, nb: [size, row, row * ne[1], row * ne[1] * ne[2]], size }
    }

    /// Number of elements of the memory that the array spans.
    pub fn extent(&self) -> usize {
        self.place([0, 1, 2, 3].map(|k| self.ne[k] - 1)) + 1
    }

    /// Offset of an element, in elements.
    pub fn place(&self, index: [usize; 4]) -> usize {
        index.iter().zip(&self.nb).map(|(i, nb)| i * nb).sum::<usize>() / self.size
    }

    /// All indices; the innermost varies fastest.
    pub fn indices(&self) -> impl Iterator<Item = [usize; 4]> + use<> {
        let ne = self.ne;
        (0..ne.iter().product()).map(move |i| {
            [i % ne[0], i / ne[0] % ne[1], i / ne[0] / ne[1] % ne[2], i / ne[0] / ne[1] / ne[2]]
        })
    }

    /// 32-bit sizes and strides, with which most argument structs begin.
    pub fn members(&self) -> Vec<Member> {
        let sizes = self.ne.iter().map(|ne| I32(*ne as i32));
        sizes.chain(self.distances()).collect()
    }

    /// 64-bit sizes and strides.
    pub fn long_members(&self) -> Vec<Member> {
        let sizes = self.ne.iter().map(|ne| I64(*ne as i64));
        sizes.chain(self.distances()).collect()
    }

    fn distances(&self) -> impl Iterator<Item = Member> {
        self.nb.iter().map(|nb| U64(*nb as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let tensor = Tensor::with_gap([3, 2, 2, 1], 4, 1);
        assert_eq!(tensor.nb, [4, 16, 32, 64]);
        let places: Vec<usize> = tensor.indices().map(|index| tensor.place(index)).collect();
        assert_eq!(places, [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14]);
        assert_eq!(tensor.extent(), 15);
    }
}
