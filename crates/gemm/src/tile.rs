//! [`multiply`]: a block of a product, tile by tile.

use std::sync::OnceLock;

use crate::output::{Contiguous, Output};
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Portable, Simd, prefetch};

/// Instructions of micro-kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Tiles of 8 × 8, by vectors of 128 bits of any processor.
    Portable,
    /// Tiles of 4 × 24, by AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Tiles of 12 × 32, by AVX-512.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Elements of a cache line.
const LINE: usize = 16;
/// Elements of the largest tile.
const MOST: usize = 12 * 32;

impl Level {
    /// The widest that this processor has.
    pub fn of_processor() -> Self {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| *Self::all().last().expect("the portable level"))
    }

    /// All that this processor has, from narrow to wide.
    pub fn all() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                all.push(Self::Avx2);
            }
            if std::arch::is_x86_feature_detected!("avx512f") {
                all.push(Self::Avx512);
            }
        }
        all
    }

    /// Rows of a tile, a multiple of 4: lines of a panel of the left factor.
    pub const fn rows(self) -> usize {
        match self {
            Self::Portable => 8,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 4,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => 12,
        }
    }

    /// Columns of a tile, a multiple of 4: lines of a panel of the right factor.
    pub const fn columns(self) -> usize {
        match self {
            Self::Portable => 8,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 24,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => 32,
        }
    }
}

/// The right factor of a block.
#[derive(Clone, Copy, Debug)]
pub enum Right<'a> {
    /// Panels of [`Level::columns`] lines.
    Panels(*const f32),
    /// Elements of term `k` and column `j` at `first + offsets[k] + j`. A whole tile is read also where the block has fewer columns.
    Offsets {
        /// The address of column 0 for an offset of 0.
        first: *const f32,
        /// An offset for each term, in elements.
        offsets: &'a [usize],
    },
}

/// The left factor of a block.
#[derive(Clone, Copy, Debug)]
pub enum Left {
    /// Panels of [`Level::rows`] lines.
    Panels(*const f32),
    /// Rows whose terms are contiguous, a multiple of four, with a right factor in panels.
    Rows {
        /// The first element.
        first: *const f32,
        /// Distance between rows, in elements.
        row: isize,
    },
}

/// A block of a product: some rows and columns, for some terms.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The left factor.
    pub left: Left,
    /// The right factor.
    pub right: Right<'a>,
    /// The block's first row and column in the output.
    pub at: [usize; 2],
    /// Rows and columns of the block.
    pub size: [usize; 2],
    /// Number of terms.
    pub terms: usize,
    /// Sums of whole tiles, in order, between the blocks of a product that has more terms; null if it has not.
    pub sums: *mut f32,
    /// Whether the block has the first terms: otherwise sums are added to.
    pub is_first: bool,
    /// Whether the block has the last terms, and the output is written.
    pub is_last: bool,
}

/// Multiplies a block.
///
/// # Safety
/// The processor must have the level. The factors' panels must have the block's lines and terms; elements of the output that
/// the block has must be valid, and of no other concurrent access; `sums`, unless null, must have the elements of whole tiles.
pub unsafe fn multiply(level: Level, block: &Block<'_>, output: &Output) {
    // SAFETY: the caller's promise.
    unsafe {
        match level {
            Level::Portable => tiles::<Portable, 8, 2>(block, output),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2(block, output),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512(block, output),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(block: &Block<'_>, output: &Output) {
    // SAFETY: the caller's promise.
    unsafe { tiles::<Avx2, 4, 3>(block, output) };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(block: &Block<'_>, output: &Output) {
    // SAFETY: the caller's promise.
    unsafe { tiles::<Avx512, 12, 2>(block, output) };
}

/// A block, by tiles of `R` rows and `V` vectors.
#[inline(always)]
unsafe fn tiles<S: Simd, const R: usize, const V: usize>(block: &Block<'_>, output: &Output) {
    let wide = V * S::LANES;
    let [rows, columns] = block.size;
    let mut finished = std::mem::MaybeUninit::<[f32; MOST]>::uninit();
    let mut number = 0;
    for column in (0..columns).step_by(wide) {
        let width = (columns - column).min(wide);
        for row in (0..rows).step_by(R) {
            let height = (rows - row).min(R);
            // SAFETY: the caller's promise.
            unsafe {
                let left = match block.left {
                    Left::Panels(first) => Left::Panels(first.add(row * block.terms)),
                    Left::Rows { first, row: stride } => {
                        Left::Rows { first: first.offset(row.cast_signed() * stride), row: stride }
                    }
                };
                let (first, offsets) = match block.right {
                    Right::Panels(first) => (first.add(column * block.terms), None),
                    Right::Offsets { first, offsets } => (first.add(column), Some(offsets)),
                };
                let sums = if block.sums.is_null() {
                    finished.as_mut_ptr().cast::<f32>()
                } else {
                    block.sums.add(number * R * wide)
                };
                // Two tiles prefetch the next panel of the right factor, a cache line for each term.
                let ahead = first.wrapping_add(wide * block.terms + (row / R).min(1) * LINE * block.terms);
                let factors = Factors { terms: block.terms, left, step: R, first, wide, offsets, ahead };
                let at = [block.at[0] + row, block.at[1] + column];
                // Whole vectors of a tile that is finished are written from registers.
                let lanes = if width <= S::LANES { S::LANES } else { wide };
                let is_whole = block.is_last && height.is_multiple_of(4) && width == lanes;
                let whole = if is_whole { output.contiguous(at, width) } else { None };
                let to = Sums { at: sums, adds: !block.is_first, whole };
                match (height.div_ceil(4), width <= S::LANES) {
                    (1, true) => tile::<S, 4, 1>(&factors, &to),
                    (1, false) => tile::<S, 4, V>(&factors, &to),
                    (2, true) => tile::<S, 8, 1>(&factors, &to),
                    (2, false) => tile::<S, 8, V>(&factors, &to),
                    (_, true) => tile::<S, R, 1>(&factors, &to),
                    (_, false) => tile::<S, R, V>(&factors, &to),
                }
                if block.is_last && to.whole.is_none() {
                    output.write(sums, wide, at, [height, width]);
                }
            }
            number += 1;
        }
    }
}

/// The factors of a tile: panels, or for each term an offset of the right elements.
struct Factors<'a> {
    terms: usize,
    left: Left,
    /// Lines of the left panel.
    step: usize,
    first: *const f32,
    /// Lines of the right panel, and the distance of rows of sums.
    wide: usize,
    offsets: Option<&'a [usize]>,
    /// What is prefetched, unless there are offsets.
    ahead: *const f32,
}

/// Where a tile's sums are.
struct Sums {
    at: *mut f32,
    /// Whether sums are added to.
    adds: bool,
    /// Where they are written instead, as the result's elements.
    whole: Option<Contiguous>,
}

/// Sums of a tile of `R` rows and `V` vectors.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize, const V: usize>(of: &Factors<'_>, to: &Sums) {
    let sums = to.at;
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = [[S::zero(); V]; R];
        if to.adds {
            for (r, row) in all.iter_mut().enumerate() {
                for (v, sum) in row.iter_mut().enumerate() {
                    *sum = S::load(sums.add(r * of.wide + v * S::LANES));
                }
            }
        }
        match (of.left, of.offsets) {
            (Left::Panels(mut left), Some(offsets)) => {
                for offset in offsets {
                    step::<S, R, V>(|r| left.add(r), of.first.add(*offset), &mut all);
                    left = left.add(of.step);
                }
            }
            (Left::Panels(mut left), None) => {
                let (mut right, mut ahead) = (of.first, of.ahead);
                for _ in 0..of.terms {
                    prefetch(ahead);
                    ahead = ahead.wrapping_add(LINE);
                    step::<S, R, V>(|r| left.add(r), right, &mut all);
                    left = left.add(of.step);
                    right = right.add(of.wide);
                }
            }
            (Left::Rows { first, row }, _) => {
                let mut right = of.first;
                let rows: [_; R] = std::array::from_fn(|r| first.offset(r.cast_signed() * row));
                for k in 0..of.terms {
                    step::<S, R, V>(|r| rows[r].add(k), right, &mut all);
                    right = right.add(of.wide);
                }
            }
        }
        if let Some(whole) = &to.whole {
            whole.write::<S, R, V>(all);
            return;
        }
        for (r, row) in all.iter().enumerate() {
            for (v, sum) in row.iter().enumerate() {
                S::store(sums.add(r * of.wide + v * S::LANES), *sum);
            }
        }
    }
}

/// Adds the products of one term.
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const V: usize>(
    left: impl Fn(usize) -> *const f32,
    right: *const f32,
    all: &mut [[S::Vector; V]; R],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut vectors = [S::zero(); V];
        for (v, vector) in vectors.iter_mut().enumerate() {
            *vector = S::load(right.add(v * S::LANES));
        }
        for (r, row) in all.iter_mut().enumerate() {
            let factor = S::splat(left(r));
            for (sum, vector) in row.iter_mut().zip(vectors) {
                *sum = S::fma(factor, vector, *sum);
            }
        }
    }
}
