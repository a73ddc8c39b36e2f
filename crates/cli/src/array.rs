//! [`Array`]: typed, shaped host data, from a `.npy` file or a fill.
//!
//! Bytes are little-endian and in C order. Scalar types have the names of the command line.

use elinvar::{Scalar, bf16, f16};

use crate::failure::{Failure, Result};

/// Element type.
#[derive(Clone, Debug, PartialEq)]
pub enum Element {
    /// A scalar type of MSL.
    Scalar(Scalar),
    /// Any other NumPy type, such as a structured one, as raw bytes for kernels' structs.
    Other(npyz::DType),
}

/// Host data with type and shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub element: Element,
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
}

/// How a new array is filled.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// All elements are this one, given as bytes of the array's type.
    Constant(Vec<u8>),
    /// Element i is i converted to the type; integers wrap around.
    Ramp,
    /// Floats uniform in [0, 1), integers uniform over the type's range; deterministic for a seed.
    Random(u64),
}

const NAMES: [(&str, Scalar); 12] = [
    ("bool", Scalar::Bool),
    ("i8", Scalar::I8),
    ("u8", Scalar::U8),
    ("i16", Scalar::I16),
    ("u16", Scalar::U16),
    ("i32", Scalar::I32),
    ("u32", Scalar::U32),
    ("i64", Scalar::I64),
    ("u64", Scalar::U64),
    ("bf16", Scalar::BF16), // before f16, which is its end
    ("f16", Scalar::F16),
    ("f32", Scalar::F32),
];

/// The name of a scalar type on the command line.
pub fn type_name(scalar: Scalar) -> &'static str {
    NAMES.iter().find(|(_, known)| *known == scalar).map_or("?", |(name, _)| name)
}

/// Parse a scalar type's name.
pub fn type_named(name: &str) -> Option<Scalar> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, scalar)| *scalar)
}

/// Split a number with a type suffix, such as `3.5f32`, into number and type.
pub fn split_suffix(text: &str) -> Option<(&str, Scalar)> {
    NAMES.iter().find_map(|(name, scalar)| Some((text.strip_suffix(name)?, *scalar)))
}

/// All type names, for messages.
pub fn type_list() -> String {
    NAMES.map(|(name, _)| name).join(", ")
}

/// Parse a number of a type into bytes; `None` if it is not one.
pub fn parse_number(scalar: Scalar, text: &str) -> Option<Vec<u8>> {
    let bytes = match scalar {
        Scalar::Bool => vec![u8::from(match text {
            "true" | "1" => true,
            "false" | "0" => false,
            _ => return None,
        })],
        Scalar::I8 => text.parse::<i8>().ok()?.to_le_bytes().to_vec(),
        Scalar::U8 => text.parse::<u8>().ok()?.to_le_bytes().to_vec(),
        Scalar::I16 => text.parse::<i16>().ok()?.to_le_bytes().to_vec(),
        Scalar::U16 => text.parse::<u16>().ok()?.to_le_bytes().to_vec(),
        Scalar::I32 => text.parse::<i32>().ok()?.to_le_bytes().to_vec(),
        Scalar::U32 => text.parse::<u32>().ok()?.to_le_bytes().to_vec(),
        Scalar::I64 => text.parse::<i64>().ok()?.to_le_bytes().to_vec(),
        Scalar::U64 => text.parse::<u64>().ok()?.to_le_bytes().to_vec(),
        Scalar::F16 => f16::from_f64(text.parse().ok()?).to_le_bytes().to_vec(),
        Scalar::BF16 => bf16::from_f64(text.parse().ok()?).to_le_bytes().to_vec(),
        Scalar::F32 => text.parse::<f32>().ok()?.to_le_bytes().to_vec(),
    };
    Some(bytes)
}

impl Array {
    /// Create an array of at most `max_bytes` bytes.
    pub fn filled(scalar: Scalar, shape: &[u64], fill: &Fill, max_bytes: u64) -> Result<Self> {
        let bytes = shape.iter().try_fold(scalar.size(), |all, count| all.checked_mul(*count));
        let Some(bytes) = bytes.filter(|bytes| *bytes <= max_bytes) else {
            let what = format!("{}:{}", type_name(scalar), shape_text(shape));
            return Err(Failure::input(format!(
                "{what} is beyond the device's {max_bytes} bytes per buffer"
            )));
        };
        let mut data = Vec::new();
        let reserved = usize::try_from(bytes).is_ok_and(|len| data.try_reserve_exact(len).is_ok());
        if !reserved {
            return Err(Failure::Machine(format!("out of memory: {bytes} bytes")));
        }
        let count = bytes / scalar.size();
        match fill {
            Fill::Constant(element) => (0..count).for_each(|_| data.extend_from_slice(element)),
            Fill::Ramp => ramp(scalar, count, &mut data),
            Fill::Random(seed) => random(scalar, count, *seed, &mut data),
        }
        Ok(Self { element: Element::Scalar(scalar), shape: shape.to_vec(), bytes: data })
    }
}

/// `64x64`.
pub fn shape_text(shape: &[u64]) -> String {
    let counts: Vec<String> = shape.iter().map(u64::to_string).collect();
    counts.join("x")
}

fn ramp(scalar: Scalar, count: u64, out: &mut Vec<u8>) {
    macro_rules! by {
        ($make:expr) => {
            (0..count).for_each(|i| out.extend_from_slice(&$make(i).to_le_bytes()))
        };
    }
    match scalar {
        Scalar::Bool => by!(|i| (i & 1) as u8),
        Scalar::I8 | Scalar::U8 => by!(|i| i as u8),
        Scalar::I16 | Scalar::U16 => by!(|i| i as u16),
        Scalar::I32 | Scalar::U32 => by!(|i| i as u32),
        Scalar::I64 | Scalar::U64 => by!(|i: u64| i),
        Scalar::F16 => by!(|i| f16::from_f64(i as f64)),
        Scalar::BF16 => by!(|i| bf16::from_f64(i as f64)),
        Scalar::F32 => by!(|i| i as f32),
    }
}

fn random(scalar: Scalar, count: u64, seed: u64, out: &mut Vec<u8>) {
    let mut state = seed;
    // A multiple of 2^-bits below 1, which the type holds exactly.
    let unit = |word: u64, bits: u32| (word >> (64 - bits)) as f64 / f64::from(1u32 << bits);
    for _ in 0..count {
        let word = split_mix(&mut state);
        match scalar {
            Scalar::Bool => out.push((word >> 63) as u8),
            Scalar::F16 => out.extend_from_slice(&f16::from_f64(unit(word, 11)).to_le_bytes()),
            Scalar::BF16 => out.extend_from_slice(&bf16::from_f64(unit(word, 8)).to_le_bytes()),
            Scalar::F32 => out.extend_from_slice(&(unit(word, 24) as f32).to_le_bytes()),
            integer => out.extend_from_slice(&word.to_be_bytes()[..integer.size() as usize]),
        }
    }
}

/// SplitMix64; the same sequence on every machine and in every version.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(array: &Array) -> Vec<f32> {
        array.bytes.as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c)).collect()
    }

    #[test]
    fn names_and_suffixes_are_unambiguous() {
        for (name, scalar) in NAMES {
            assert_eq!(type_named(name), Some(scalar));
            assert_eq!(split_suffix(&format!("1{name}")), Some(("1", scalar)), "{name}");
        }
        assert_eq!(type_named("f64"), None);
        assert_eq!(split_suffix("1f64"), None);
    }

    #[test]
    fn numbers_must_fit_their_type() {
        assert_eq!(parse_number(Scalar::I8, "-128"), Some(vec![0x80]));
        assert_eq!(parse_number(Scalar::I8, "128"), None);
        assert_eq!(parse_number(Scalar::U32, "-1"), None);
        assert_eq!(parse_number(Scalar::F32, "2.75"), Some(2.75f32.to_le_bytes().to_vec()));
        assert_eq!(parse_number(Scalar::F16, "1.5"), Some(vec![0x00, 0x3e]));
        assert_eq!(parse_number(Scalar::BF16, "1"), Some(vec![0x80, 0x3f]));
        assert_eq!(parse_number(Scalar::Bool, "true"), Some(vec![1]));
        assert_eq!(parse_number(Scalar::Bool, "2"), None);
    }

    #[test]
    fn ramps_count_and_wrap() -> Result<()> {
        let ramp = Array::filled(Scalar::F32, &[2, 2], &Fill::Ramp, 1 << 20)?;
        assert_eq!(f32s(&ramp), [0.0, 1.0, 2.0, 3.0]);
        let bytes = Array::filled(Scalar::U8, &[258], &Fill::Ramp, 1 << 20)?.bytes;
        assert_eq!(bytes[254..], [254, 255, 0, 1]);
        Ok(())
    }

    #[test]
    fn the_seed_fixes_random_values() -> Result<()> {
        let make = |seed| Array::filled(Scalar::F32, &[1000], &Fill::Random(seed), 1 << 20);
        let values = f32s(&make(7)?);
        assert_eq!(values, f32s(&make(7)?));
        assert_ne!(values, f32s(&make(8)?));
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
        let mean: f32 = values.iter().sum::<f32>() / 1000.0;
        assert!((mean - 0.5).abs() < 0.05, "{mean}");
        Ok(())
    }

    #[test]
    fn what_no_buffer_holds_is_refused() {
        let refused = |shape: &[u64]| Array::filled(Scalar::F32, shape, &Fill::Ramp, 4096).map(|_| ());
        assert!(refused(&[1024]).is_ok());
        let text = refused(&[1025]).map_err(|e| e.to_string());
        assert_eq!(text, Err("f32:1025 is beyond the device's 4096 bytes per buffer".into()));
        assert!(refused(&[u64::MAX, 16]).is_err());
    }
}
