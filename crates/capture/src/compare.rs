//! [`Difference`]: contents after a replay that differ from those that were captured.

use elinvar_driver::{ElementType, Scalar};
use half::{bf16, f16};

/// The first element of an argument that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Name of the argument, and its position. Memory that is used through addresses follows the arguments.
    pub argument: (usize, String),
    /// Number of the element.
    pub element: usize,
    /// Number of elements that differ, of how many.
    pub count: (usize, usize),
    /// The element as captured.
    pub captured: String,
    /// The element after the replay.
    pub replayed: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { argument: (index, name), element, count: (differ, all), captured, replayed } = self;
        write!(
            f,
            "element {element} of argument {index} `{name}` is {replayed}, captured was {captured}; {differ} of {all} elements differ"
        )
    }
}

/// Element, and number of elements that differ, of how many, with the texts of the first.
pub(crate) type Found = (usize, (usize, usize), String, String);

/// Compares contents of an argument by its elements: bytes, and floating-point scalars within a relative tolerance where that is above 0.
pub(crate) fn compare(
    element: &ElementType,
    size: usize,
    tolerance: f64,
    captured: &[u8],
    replayed: &[u8],
) -> Option<Found> {
    if captured == replayed {
        return None;
    }
    let scalar = match element {
        ElementType::Scalar(scalar) | ElementType::Atomic(scalar) => Some(*scalar),
        ElementType::Vector { scalar, .. } => Some(*scalar),
        _ => None,
    };
    // Vectors are compared by their components.
    let size = scalar.map_or(size.max(1), |scalar| scalar.size() as usize);
    let pairs = captured.chunks(size).zip(replayed.chunks(size));
    let differs = |(a, b): &(&[u8], &[u8])| a != b && !is_close(scalar, a, b, tolerance);
    let differing: Vec<usize> =
        pairs.clone().enumerate().filter(|(_, pair)| differs(pair)).map(|(at, _)| at).collect();
    let first = *differing.first()?;
    let text = |bytes: &[u8]| display(scalar, bytes.chunks(size).nth(first).unwrap_or_default());
    Some((first, (differing.len(), pairs.count()), text(captured), text(replayed)))
}

fn number(scalar: Option<Scalar>, bytes: &[u8]) -> Option<f64> {
    match (scalar?, bytes) {
        (Scalar::F32, &[a, b, c, d]) => Some(f32::from_le_bytes([a, b, c, d]).into()),
        (Scalar::F16, &[a, b]) => Some(f16::from_le_bytes([a, b]).into()),
        (Scalar::BF16, &[a, b]) => Some(bf16::from_le_bytes([a, b]).into()),
        _ => None,
    }
}

fn is_close(scalar: Option<Scalar>, a: &[u8], b: &[u8], tolerance: f64) -> bool {
    let (Some(a), Some(b)) = (number(scalar, a), number(scalar, b)) else { return false };
    // NaNs have no order of bits.
    (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * a.abs().max(b.abs())
}

fn display(scalar: Option<Scalar>, bytes: &[u8]) -> String {
    if let Some(number) = number(scalar, bytes) {
        return number.to_string();
    }
    let mut word = [0; 8];
    if bytes.len() > 8 {
        return bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    }
    word[..bytes.len()].copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(word);
    let bits = 64 - 8 * bytes.len() as u32;
    match scalar {
        Some(Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64) if bits < 64 => {
            (((unsigned << bits) as i64) >> bits).to_string()
        }
        Some(_) => unsigned.to_string(),
        None => format!("{unsigned:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scalar: Scalar, tolerance: f64, captured: &[u8], replayed: &[u8]) -> Option<Found> {
        compare(&ElementType::Scalar(scalar), 4, tolerance, captured, replayed)
    }

    #[test]
    fn elements_are_compared_and_counted() {
        let bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let (a, b) = (bytes(&[1, 2, 3, 4]), bytes(&[1, -2, 3, 5]));
        assert_eq!(of(Scalar::I32, 0.0, &a, &a), None);
        assert_eq!(of(Scalar::I32, 1.0, &a, &b), Some((1, (2, 4), "2".into(), "-2".into())));
        assert_eq!(compare(&ElementType::Other("S".into()), 8, 0.0, &a, &b).unwrap().1, (2, 2));
    }

    #[test]
    fn a_tolerance_is_relative_and_nans_are_equal() {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let (a, b) = (bytes(&[1.0, 1000.0, f32::NAN]), bytes(&[1.0001, 1000.1, -f32::NAN]));
        assert_eq!(of(Scalar::F32, 1e-3, &a, &b), None);
        assert_eq!(of(Scalar::F32, 1e-5, &a, &b).unwrap().1, (2, 3));
        assert_eq!(of(Scalar::F32, 0.0, &bytes(&[0.0]), &bytes(&[-0.0])), None, "equal numbers");
        assert!(of(Scalar::F32, 0.0, &bytes(&[1.0]), &bytes(&[1.5])).is_some());
    }
}
