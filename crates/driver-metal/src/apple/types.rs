//! MSL's scalar and vector types, and Metal's constants for them.

use elinvar_driver::{ElementType, Scalar};
use objc2_metal::MTLDataType;

/// Constant of each scalar type; those of the vectors of 2, 3 and 4 follow.
const SCALARS: [(Scalar, MTLDataType); 12] = [
    (Scalar::Bool, MTLDataType::Bool),
    (Scalar::I8, MTLDataType::Char),
    (Scalar::U8, MTLDataType::UChar),
    (Scalar::I16, MTLDataType::Short),
    (Scalar::U16, MTLDataType::UShort),
    (Scalar::I32, MTLDataType::Int),
    (Scalar::U32, MTLDataType::UInt),
    (Scalar::I64, MTLDataType::Long),
    (Scalar::U64, MTLDataType::ULong),
    (Scalar::F16, MTLDataType::Half),
    (Scalar::BF16, MTLDataType::BFloat),
    (Scalar::F32, MTLDataType::Float),
];

/// Metal's constant for a scalar (`lanes` 1) or a vector.
pub(super) fn data_type(scalar: Scalar, lanes: u32) -> MTLDataType {
    let first =
        SCALARS.iter().find(|(other, _)| *other == scalar).map_or(MTLDataType::None, |(_, first)| *first);
    MTLDataType(first.0 + lanes.clamp(1, 4) as usize - 1)
}

/// The type for a constant: a scalar, a vector, or another type, with its `name`.
pub(super) fn element(ty: MTLDataType, name: &str) -> ElementType {
    for (scalar, first) in SCALARS {
        match ty.0.checked_sub(first.0) {
            Some(0) => return ElementType::Scalar(scalar),
            Some(more @ 1..=3) => {
                return ElementType::Vector { scalar, lanes: more as u32 + 1, packed: false };
            }
            _ => {}
        }
    }
    ElementType::Other(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_stands_for_one_type() {
        for (scalar, _) in SCALARS {
            assert_eq!(element(data_type(scalar, 1), ""), ElementType::Scalar(scalar));
            for lanes in 2..=4 {
                let vector = ElementType::Vector { scalar, lanes, packed: false };
                assert_eq!(element(data_type(scalar, lanes), ""), vector);
            }
        }
        assert_eq!(data_type(Scalar::F32, 3), MTLDataType::Float3);
        assert_eq!(data_type(Scalar::BF16, 4), MTLDataType::BFloat4);
        assert_eq!(element(MTLDataType::Struct, "Params"), ElementType::Other("Params".into()));
        assert_eq!(element(MTLDataType::Float4x4, "m"), ElementType::Other("m".into()));
    }
}
