//! [`Element`]: element types of matrices in memory, and their conversion to `f32`.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Element type of a matrix in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// 32-bit floating-point numbers.
    F32,
    /// 16-bit floating-point numbers of IEEE 754.
    F16,
    /// The upper 16 bits of `f32`.
    BF16,
}

impl Element {
    /// Size in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// Reads the element at an index.
    ///
    /// # Safety
    /// The element must be readable.
    #[inline]
    pub unsafe fn read(self, first: *const u8, index: isize) -> f32 {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::F32 => first.cast::<f32>().wrapping_offset(index).read(),
                Self::F16 => first.cast::<f16>().wrapping_offset(index).read().to_f32(),
                Self::BF16 => first.cast::<bf16>().wrapping_offset(index).read().to_f32(),
            }
        }
    }

    /// Writes the element at an index, rounded to the nearest.
    ///
    /// # Safety
    /// The element must be writable.
    #[inline]
    pub unsafe fn write(self, first: *mut u8, index: isize, value: f32) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::F32 => first.cast::<f32>().wrapping_offset(index).write(value),
                Self::F16 => first.cast::<f16>().wrapping_offset(index).write(f16::from_f32(value)),
                Self::BF16 => first.cast::<bf16>().wrapping_offset(index).write(bf16::from_f32(value)),
            }
        }
    }

    /// The address of the element at an index.
    pub fn at(self, first: *const u8, index: isize) -> *const u8 {
        first.wrapping_offset(index.wrapping_mul(self.size().cast_signed()))
    }
}

/// Converts `to.len()` elements, `step` elements apart, to `f32`.
///
/// # Safety
/// The elements must be readable, and not overlap `to`.
pub unsafe fn widen(element: Element, first: *const u8, step: isize, to: &mut [f32]) {
    // SAFETY: the caller's promise.
    unsafe {
        match element {
            Element::F32 if step == 1 => {
                to.copy_from_slice(std::slice::from_raw_parts(first.cast(), to.len()));
            }
            Element::F16 if step == 1 => {
                std::slice::from_raw_parts(first.cast::<f16>(), to.len()).convert_to_f32_slice(to);
            }
            Element::BF16 if step == 1 => {
                std::slice::from_raw_parts(first.cast::<bf16>(), to.len()).convert_to_f32_slice(to);
            }
            _ => {
                for (index, value) in to.iter_mut().enumerate() {
                    *value = element.read(first, index.cast_signed() * step);
                }
            }
        }
    }
}

/// Writes `of`, at most 32 numbers, rounded to the nearest, to elements that are `step` elements apart.
///
/// # Safety
/// The elements must be writable.
#[inline(always)]
pub(crate) unsafe fn narrow(element: Element, of: &[f32], first: *mut u8, step: isize) {
    // SAFETY: the caller's promise.
    unsafe {
        match element {
            Element::F32 if step == 1 => {
                // A row of a whole tile is copied without a call.
                if let Some(row) = of.first_chunk::<32>() {
                    first.cast::<[f32; 32]>().write_unaligned(*row);
                } else {
                    std::slice::from_raw_parts_mut(first.cast(), of.len()).copy_from_slice(of);
                }
            }
            Element::F16 if step == 1 => {
                std::slice::from_raw_parts_mut(first.cast::<f16>(), of.len()).convert_from_f32_slice(of);
            }
            Element::BF16 if step == 1 => {
                std::slice::from_raw_parts_mut(first.cast::<bf16>(), of.len()).convert_from_f32_slice(of);
            }
            _ => {
                for (index, value) in of.iter().enumerate() {
                    element.write(first, index.cast_signed() * step, *value);
                }
            }
        }
    }
}
