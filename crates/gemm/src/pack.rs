//! Packing: lines of a factor, in panels.

use crate::simd::prefetch;

/// Elements of a cache line.
const LINE: usize = 16;
/// How many terms ahead are prefetched.
const AHEAD: isize = 8;

/// Lines of a factor: rows of the left one, columns of the right one. Strides are in elements.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// The first element.
    pub first: *const f32,
    /// Distance between lines.
    pub line: isize,
    /// Distance between the terms of a line.
    pub term: isize,
}

/// Number of elements of `lines` lines of `terms` terms in panels of `width` lines.
pub const fn packed_len(lines: usize, terms: usize, width: usize) -> usize {
    lines.next_multiple_of(width) * terms
}

/// Packs lines into panels of `width` lines, which is a multiple of 4: panel after panel, and in each `width` elements for each term. The
/// last panel has zeros for the lines that it lacks.
///
/// # Safety
/// The elements of `lines` lines of `terms` terms must be readable, and [`packed_len`] elements writable at `to`.
pub unsafe fn pack(of: Lines, lines: usize, terms: usize, width: usize, to: *mut f32) {
    for (panel, begin) in (0..lines).step_by(width).enumerate() {
        let first = of.first.wrapping_offset(begin.cast_signed() * of.line);
        let panel = to.wrapping_add(panel * terms * width);
        // SAFETY: the caller's promise.
        unsafe { pack_panel(Lines { first, ..of }, (lines - begin).min(width), terms, width, panel) };
    }
}

/// # Safety
/// As for [`pack`].
unsafe fn pack_panel(of: Lines, lines: usize, terms: usize, width: usize, to: *mut f32) {
    let Lines { first, line, term } = of;
    // SAFETY: the caller's promise; each index is below `lines` or `terms`.
    unsafe {
        if line == 1 {
            for k in 0..terms {
                let from = first.wrapping_offset(k.cast_signed() * term);
                let to = to.add(k * width);
                // Rows of a matrix are on different pages, which processors do not prefetch.
                for at in (0..lines).step_by(LINE) {
                    prefetch(from.wrapping_offset(AHEAD * term).wrapping_add(at));
                }
                if lines == width {
                    // Four at a time are a vector of any processor; a call of `memcpy` takes longer.
                    for quad in (0..width).step_by(4) {
                        to.add(quad)
                            .cast::<[f32; 4]>()
                            .write_unaligned(from.add(quad).cast::<[f32; 4]>().read_unaligned());
                    }
                } else {
                    std::ptr::copy_nonoverlapping(from, to, lines);
                    std::slice::from_raw_parts_mut(to.add(lines), width - lines).fill(0.0);
                }
            }
            return;
        }
        let at = |l: usize, k: usize| first.wrapping_offset(l.cast_signed() * line + k.cast_signed() * term);
        for quad in (0..width).step_by(4) {
            let mut k = 0;
            if term == 1 && quad + 4 <= lines {
                while k + 4 <= terms {
                    if k % LINE == 0 {
                        (0..4).for_each(|l| prefetch(at(quad + 4 + l, k)));
                    }
                    let rows: [[f32; 4]; 4] =
                        [0, 1, 2, 3].map(|l| at(quad + l, k).cast::<[f32; 4]>().read_unaligned());
                    for (n, column) in transposed(rows).into_iter().enumerate() {
                        to.add((k + n) * width + quad).cast::<[f32; 4]>().write_unaligned(column);
                    }
                    k += 4;
                }
            }
            for k in k..terms {
                for l in quad..quad + 4 {
                    to.add(k * width + l).write(if l < lines { at(l, k).read() } else { 0.0 });
                }
            }
        }
    }
}

fn transposed(rows: [[f32; 4]; 4]) -> [[f32; 4]; 4] {
    std::array::from_fn(|column| std::array::from_fn(|row| rows[row][column]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_have_the_lines_elements_and_zeros() {
        for (lines, terms, width) in
            [(1, 1, 4), (12, 9, 12), (13, 8, 12), (7, 5, 32), (64, 3, 32), (33, 30, 32)]
        {
            // By lines, by terms, and with gaps.
            for (line, term) in [(terms, 1), (1, lines), (2 * terms + 1, 2)] {
                let source: Vec<f32> = (0..lines * line + terms * term).map(|x| x as f32 + 1.0).collect();
                let mut packed = vec![f32::NAN; packed_len(lines, terms, width)];
                let of = Lines { first: source.as_ptr(), line: line as isize, term: term as isize };
                // SAFETY: the vectors have the elements.
                unsafe { pack(of, lines, terms, width, packed.as_mut_ptr()) };
                for l in 0..lines.next_multiple_of(width) {
                    for k in 0..terms {
                        let wanted = if l < lines { source[l * line + k * term] } else { 0.0 };
                        assert_eq!(
                            packed[(l / width * terms + k) * width + l % width],
                            wanted,
                            "{lines} {terms} {line} {l} {k}"
                        );
                    }
                }
            }
        }
    }
}
