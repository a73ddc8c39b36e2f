//! Elementwise reductions of arrays in host memory.

use elinvar_driver::{Reduction, Scalar};
use half::{bf16, f16};

/// Reduces `incoming` into `own`, element by element. Both have whole elements and the same length; only `own` need be aligned.
pub(crate) fn reduce(element: Scalar, reduction: Reduction, own: &mut [u8], incoming: &[u8]) {
    match element {
        Scalar::I8 => integers::<i8>(reduction, own, incoming),
        Scalar::Bool | Scalar::U8 => integers::<u8>(reduction, own, incoming),
        Scalar::I16 => integers::<i16>(reduction, own, incoming),
        Scalar::U16 => integers::<u16>(reduction, own, incoming),
        Scalar::I32 => integers::<i32>(reduction, own, incoming),
        Scalar::U32 => integers::<u32>(reduction, own, incoming),
        Scalar::I64 => integers::<i64>(reduction, own, incoming),
        Scalar::U64 => integers::<u64>(reduction, own, incoming),
        Scalar::F16 => floats::<f16>(reduction, own, incoming),
        Scalar::BF16 => floats::<bf16>(reduction, own, incoming),
        Scalar::F32 => floats::<f32>(reduction, own, incoming),
    }
}

trait Integer: bytemuck::Pod + Ord {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
}

macro_rules! integer {
    ($($type:ty)*) => {
        $(impl Integer for $type {
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        })*
    };
}

integer!(i8 u8 i16 u16 i32 u32 i64 u64);

trait Float: bytemuck::Pod {
    fn wide(self) -> f32;
    fn narrow(wide: f32) -> Self;
}

impl Float for f32 {
    fn wide(self) -> f32 {
        self
    }

    fn narrow(wide: f32) -> Self {
        wide
    }
}

impl Float for f16 {
    fn wide(self) -> f32 {
        self.to_f32()
    }

    fn narrow(wide: f32) -> Self {
        Self::from_f32(wide)
    }
}

impl Float for bf16 {
    fn wide(self) -> f32 {
        self.to_f32()
    }

    fn narrow(wide: f32) -> Self {
        Self::from_f32(wide)
    }
}

fn integers<T: Integer>(reduction: Reduction, own: &mut [u8], incoming: &[u8]) {
    match reduction {
        Reduction::Sum => each(own, incoming, T::sum),
        Reduction::Product => each(own, incoming, T::product),
        Reduction::Min => each(own, incoming, T::min),
        Reduction::Max => each(own, incoming, T::max),
    }
}

fn floats<T: Float>(reduction: Reduction, own: &mut [u8], incoming: &[u8]) {
    match reduction {
        Reduction::Sum => each(own, incoming, |a: T, b: T| T::narrow(a.wide() + b.wide())),
        Reduction::Product => each(own, incoming, |a: T, b: T| T::narrow(a.wide() * b.wide())),
        Reduction::Min => each(own, incoming, |a: T, b: T| T::narrow(a.wide().min(b.wide()))),
        Reduction::Max => each(own, incoming, |a: T, b: T| T::narrow(a.wide().max(b.wide()))),
    }
}

#[inline]
fn each<T: bytemuck::Pod>(own: &mut [u8], incoming: &[u8], of: impl Fn(T, T) -> T) {
    let size = size_of::<T>();
    // The usual case, in which the loop is vectorized.
    if let (Ok(own), Ok(incoming)) =
        (bytemuck::try_cast_slice_mut::<u8, T>(own), bytemuck::try_cast_slice::<u8, T>(incoming))
    {
        own.iter_mut().zip(incoming).for_each(|(a, b)| *a = of(*a, *b));
        return;
    }
    for (a, b) in own.chunks_exact_mut(size).zip(incoming.chunks_exact(size)) {
        let result = of(bytemuck::pod_read_unaligned(a), bytemuck::pod_read_unaligned(b));
        a.copy_from_slice(bytemuck::bytes_of(&result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_elements_are_reduced_as_well() {
        let values: Vec<u32> = (0..9).map(|i| u32::MAX - i).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        let mut shifted = vec![0; bytes.len() + 1];
        shifted[1..].copy_from_slice(bytes);
        reduce(Scalar::U32, Reduction::Sum, &mut shifted[1..], bytes);
        for (i, sum) in shifted[1..].chunks_exact(4).enumerate() {
            assert_eq!(u32::from_ne_bytes(sum.try_into().unwrap()), values[i].wrapping_mul(2));
        }
    }
}
