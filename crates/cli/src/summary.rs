//! Summary of an array: first values, minimum, maximum, mean.

use elinvar::{Scalar, bf16, f16};
use serde::Serialize;

use crate::array::{Array, Element, shape_text, type_name};
use crate::npy;

/// Number of values shown.
const FIRST: usize = 8;

/// An element. Infinities and NaN are null in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Number {
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f32),
}

impl Number {
    fn as_f64(self) -> f64 {
        match self {
            Self::Bool(value) => f64::from(u8::from(value)),
            Self::Int(value) => value as f64,
            Self::UInt(value) => value as f64,
            Self::Float(value) => f64::from(value),
        }
    }

    fn is_nan(self) -> bool {
        matches!(self, Self::Float(value) if value.is_nan())
    }

    fn below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a < b,
            (Self::UInt(a), Self::UInt(b)) => a < b,
            _ => self.as_f64() < other.as_f64(),
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::UInt(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
        }
    }
}

/// Summary of an output. `min`, `max` and `mean` ignore NaN, and are `None` if no value is left or the type is not numeric;
/// `first` has bytes for such types.
#[derive(Debug, PartialEq, Serialize)]
pub struct Summary {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    pub first: Vec<Number>,
    pub min: Option<Number>,
    pub max: Option<Number>,
    pub mean: Option<f64>,
    pub nan: u64,
}

impl Summary {
    pub fn of(name: &str, array: &Array) -> Self {
        let mut summary = Self {
            name: name.into(),
            dtype: element_name(&array.element),
            shape: array.shape.clone(),
            first: Vec::new(),
            min: None,
            max: None,
            mean: None,
            nan: 0,
        };
        match array.element {
            Element::Scalar(scalar) => summary.take(scalar, &array.bytes),
            Element::Other(_) => {
                summary.first = array.bytes.iter().take(FIRST).map(|b| Number::UInt(u64::from(*b))).collect();
            }
        }
        summary
    }

    fn take(&mut self, scalar: Scalar, bytes: &[u8]) {
        let (mut sum, mut count) = (0.0, 0u64);
        for element in bytes.chunks_exact(scalar.size() as usize) {
            let value = decode(scalar, element);
            if self.first.len() < FIRST {
                self.first.push(value);
            }
            if value.is_nan() {
                self.nan += 1;
                continue;
            }
            sum += value.as_f64();
            count += 1;
            if self.min.is_none_or(|min| value.below(min)) {
                self.min = Some(value);
            }
            if self.max.is_none_or(|max| max.below(value)) {
                self.max = Some(value);
            }
        }
        self.mean = (count > 0).then(|| sum / count as f64);
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first: Vec<String> = self.first.iter().map(Number::to_string).collect();
        let more = if self.shape.iter().product::<u64>() > first.len() as u64 { " …" } else { "" };
        write!(f, "{}: {}:{} = {}{more}", self.name, self.dtype, shape_text(&self.shape), first.join(" "))?;
        if let (Some(min), Some(max), Some(mean)) = (self.min, self.max, self.mean) {
            write!(f, "\n  min {min}  max {max}  mean {mean}")?;
        }
        if self.nan > 0 {
            write!(f, "\n  NaN: {}", self.nan)?;
        }
        Ok(())
    }
}

/// The command line's name of a type, NumPy's for those that MSL has not.
pub fn element_name(element: &Element) -> String {
    match element {
        Element::Scalar(scalar) => type_name(*scalar).into(),
        Element::Other(_) => npy::numpy_name(element),
    }
}

/// The number of `bytes`, which are as many as the type has.
fn decode(scalar: Scalar, bytes: &[u8]) -> Number {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    match scalar {
        Scalar::Bool => Number::Bool(bits != 0),
        Scalar::I8 => Number::Int(i64::from(bits as i8)),
        Scalar::I16 => Number::Int(i64::from(bits as i16)),
        Scalar::I32 => Number::Int(i64::from(bits as i32)),
        Scalar::I64 => Number::Int(bits as i64),
        Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => Number::UInt(bits),
        Scalar::F16 => Number::Float(f16::from_bits(bits as u16).to_f32()),
        Scalar::BF16 => Number::Float(bf16::from_bits(bits as u16).to_f32()),
        Scalar::F32 => Number::Float(f32::from_bits(bits as u32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Array {
        Array {
            element: Element::Scalar(Scalar::F32),
            shape: vec![values.len() as u64],
            bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }

    #[test]
    fn nan_is_counted_and_left_out() {
        let summary = Summary::of("x", &floats(&[f32::NAN, 2.0, -1.0, f32::NAN]));
        assert_eq!(summary.nan, 2);
        assert_eq!((summary.min, summary.max), (Some(Number::Float(-1.0)), Some(Number::Float(2.0))));
        assert_eq!(summary.mean, Some(0.5));
        let nothing = Summary::of("x", &floats(&[f32::NAN]));
        assert_eq!((nothing.min, nothing.mean, nothing.nan), (None, None, 1));
    }

    #[test]
    fn wide_integers_are_exact() {
        let values = [i64::MIN, i64::MAX, i64::MAX - 1];
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let array = Array { element: Element::Scalar(Scalar::I64), shape: vec![3], bytes };
        let summary = Summary::of("x", &array);
        assert_eq!((summary.min, summary.max), (Some(Number::Int(i64::MIN)), Some(Number::Int(i64::MAX))));
        let json = serde_json::to_string(&summary).expect("JSON");
        assert!(json.contains("\"max\":9223372036854775807"), "{json}");
    }

    #[test]
    fn narrow_types_are_decoded() {
        assert_eq!(decode(Scalar::I8, &[0xff]), Number::Int(-1));
        assert_eq!(decode(Scalar::U16, &[0xff, 0xff]), Number::UInt(65535));
        assert_eq!(decode(Scalar::F16, &[0x00, 0x3e]), Number::Float(1.5));
        assert_eq!(decode(Scalar::BF16, &[0x80, 0x3f]), Number::Float(1.0));
        assert_eq!(decode(Scalar::Bool, &[1]), Number::Bool(true));
    }

    #[test]
    fn the_text_shows_the_first_values() {
        let text = Summary::of("out", &floats(&[0.1; 20])).to_string();
        assert!(text.starts_with("out: f32:20 = 0.1 0.1 0.1 0.1 0.1 0.1 0.1 0.1 …\n  min 0.1"), "{text}");
    }
}
