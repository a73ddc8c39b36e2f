//! [`Primitives`]: the set of primitives that a device supports.

use super::{Extent, Float, Images, Primitive, PrimitiveKind};
use crate::{Error, Result};

/// The primitives that a device supports, by operation and element type, and the size limits of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Primitives {
    bits: u16,
    image_side: u32,
    image_channels: u32,
}

impl Primitives {
    /// The empty set, of a device without a vendor library.
    pub const NONE: Self = Self { bits: 0, image_side: 0, image_channels: 0 };

    /// Adds an operation for an element type.
    #[must_use]
    pub const fn with(self, kind: PrimitiveKind, float: Float) -> Self {
        Self { bits: self.bits | bit(kind, float), ..self }
    }

    /// Limits images, and the matrices of reductions, to `side` rows, `side` columns and `channels` channels.
    #[must_use]
    pub const fn with_images(self, side: u32, channels: u32) -> Self {
        Self { image_side: side, image_channels: channels, ..self }
    }

    /// Whether an operation is supported for an element type.
    pub const fn has(self, kind: PrimitiveKind, float: Float) -> bool {
        self.bits & bit(kind, float) != 0
    }

    /// Iterates over the supported pairs of operation and element type.
    pub fn iter(self) -> impl Iterator<Item = (PrimitiveKind, Float)> {
        let pairs = PrimitiveKind::ALL.into_iter().flat_map(|kind| Float::ALL.map(|float| (kind, float)));
        pairs.filter(move |(kind, float)| self.has(*kind, *float))
    }

    /// Checks that `primitive` is supported; `device` is the device's name for messages.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the operation is not supported for the element type, or an image exceeds the limits.
    pub fn expect(self, primitive: &Primitive, device: &str) -> Result<()> {
        let (kind, float) = (primitive.kind(), primitive.float());
        if !self.has(kind, float) {
            let name = kind.name();
            return Err(Error::unsupported(format!(
                "{name} of {float}: device `{device}` has no library for it"
            )));
        }
        for (name, Images { channels, height, width, .. }) in images(primitive) {
            let (side, most) = (self.image_side, self.image_channels);
            if height.max(width) > side || channels > most {
                return Err(Error::unsupported(format!(
                    "{}: `{name}` has {height} × {width} pixels of {channels} channels; device `{device}` supports up to \
                     {side} × {side} of {most}",
                    kind.name()
                )));
            }
        }
        Ok(())
    }
}

const fn bit(kind: PrimitiveKind, float: Float) -> u16 {
    1 << (kind as u16 * 2 + float as u16)
}

/// The operands that the library processes as images.
fn images(primitive: &Primitive) -> Vec<(&'static str, Images)> {
    match primitive {
        Primitive::Convolution(p) => vec![("source", p.source), ("result", p.result())],
        Primitive::Pooling(p) => vec![("source", p.source), ("result", p.result())],
        Primitive::Reduction(p) => {
            let (height, width) = (p.source.rows, p.source.columns);
            let whole = Images { count: 1, channels: 1, height, width };
            let result = match p.each {
                Extent::Row => Images { width: 1, ..whole },
                Extent::Column => Images { height: 1, ..whole },
            };
            vec![("source", whole), ("result", result)]
        }
        _ => Vec::new(),
    }
}
