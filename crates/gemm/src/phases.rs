//! Images in which the pixels of a tile are contiguous, for each weight of a window.
//!
//! A window moves by `stride` pixels. The rows and columns of a padded image are dealt out to `stride` *phases* (a polyphase decomposition),
//! in each of which neighboring windows have neighboring pixels. All phases have the same pitch, so that the pixels of consecutive windows,
//! also beyond the end of a row, are at consecutive addresses plus an [offset](Phases::offset) that depends on the weight alone.

use crate::element::{Element, widen};

/// A window that moves over images, with its phases. Pairs are `[vertical, horizontal]`.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    /// Height and width of the images.
    pub image: [usize; 2],
    /// Height and width of the window.
    pub window: [usize; 2],
    /// Distance of windows.
    pub stride: [usize; 2],
    /// Distance of a window's pixels.
    pub dilation: [usize; 2],
    /// Rows above and columns before an image.
    pub padding: [usize; 2],
    /// Number of windows.
    pub positions: [usize; 2],
}

/// Elements that are read behind the last position: those of the widest tile.
pub const SLACK: usize = 64;

impl Phases {
    /// Height and pitch of a phase.
    pub const fn size(&self) -> [usize; 2] {
        let [height, width] = self.positions;
        [
            height + (self.window[0] - 1) * self.dilation[0] / self.stride[0],
            width + (self.window[1] - 1) * self.dilation[1] / self.stride[1],
        ]
    }

    /// Elements of one channel: all its phases.
    pub const fn channel_len(&self) -> usize {
        let [height, pitch] = self.size();
        self.stride[0] * self.stride[1] * height * pitch
    }

    /// Columns of the product: positions of windows, in lines of the phases' pitch.
    pub const fn columns(&self) -> usize {
        (self.positions[0] - 1) * self.size()[1] + self.positions[1]
    }

    /// Where, for a weight of a channel, the pixel of the first window is.
    pub const fn offset(&self, channel: usize, row: usize, column: usize) -> usize {
        let ([height, pitch], [down, across]) = (self.size(), self.stride);
        let (row, column) = (row * self.dilation[0], column * self.dilation[1]);
        let phase = (row % down) * across + column % across;
        channel * self.channel_len() + phase * height * pitch + row / down * pitch + column / across
    }

    /// Writes the phases of one channel of an image.
    ///
    /// # Safety
    /// The image's pixels must be readable: rows and columns are `strides` elements apart. [`Phases::channel_len`] elements must be
    /// writable at `to`.
    pub unsafe fn arrange(&self, element: Element, first: *const u8, strides: [isize; 2], to: *mut f32) {
        let ([height, pitch], [down, across]) = (self.size(), self.stride);
        // SAFETY: the caller's promise.
        let all = unsafe { std::slice::from_raw_parts_mut(to, self.channel_len()) };
        for (number, line) in all.chunks_exact_mut(pitch).enumerate() {
            let (phase, row) = (number / height, number % height);
            let y = (row * down + phase / across).checked_sub(self.padding[0]);
            let Some(y) = y.filter(|y| *y < self.image[0]) else {
                line.fill(0.0);
                continue;
            };
            // Pixel `x` of the phase is column `x · across + shift` of the padded image.
            let shift = phase % across;
            let begin = self.padding[1].saturating_sub(shift).div_ceil(across).min(pitch);
            let end =
                (self.image[1] + self.padding[1]).saturating_sub(shift).div_ceil(across).clamp(begin, pitch);
            let x = begin * across + shift - self.padding[1].min(begin * across + shift);
            line[..begin].fill(0.0);
            line[end..].fill(0.0);
            let index = y.cast_signed() * strides[0] + x.cast_signed() * strides[1];
            // SAFETY: these pixels are within the image.
            unsafe {
                widen(
                    element,
                    element.at(first, index),
                    across.cast_signed() * strides[1],
                    &mut line[begin..end],
                );
            }
        }
    }
}
