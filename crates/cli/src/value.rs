//! The grammar of `--arg`'s VALUE and of sizes such as `--grid`'s.
//!
//! ```text
//! VALUE      = @FILE.npy | TYPE:COUNT:FILL | NUMBER[,NUMBER…]TYPE | true | false | threadgroup:BYTES | unbound | functions:NAME[,NAME…]
//! COUNT      = N | NxN | NxNxN
//! FILL       = zeros | ones | ramp | random[:SEED] | NUMBER
//! ```
//!
//! Nothing here knows the kernel; whether a value suits its argument is the binding's question.

use std::path::PathBuf;

use elinvar::{Dim3, Scalar};

use crate::array::{Fill, parse_number, split_suffix, type_list, type_name, type_named};
use crate::failure::{Failure, Result};

/// The value of an argument as the command line gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The array of a file.
    File(PathBuf),
    /// A new array.
    Filled { scalar: Scalar, shape: Vec<u64>, fill: Fill },
    /// A number, or the components of a vector.
    Number { scalar: Scalar, components: usize, bytes: Vec<u8> },
    /// Bytes of threadgroup memory.
    Threadgroup(usize),
    /// No memory.
    Unbound,
    /// Functions of a table.
    Functions(Vec<String>),
}

impl Value {
    /// # Errors
    /// Usage when the text is outside the grammar, input when it asks for f64.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix('@') {
            return match path {
                "" => Err(Failure::usage("a file name must follow `@`")),
                _ => Ok(Self::File(path.into())),
            };
        }
        if let Some(bytes) = text.strip_prefix("threadgroup:") {
            let bytes = bytes.parse();
            return bytes.map(Self::Threadgroup).map_err(|_| {
                Failure::usage("`threadgroup:` takes a number of bytes, as in `threadgroup:1024`")
            });
        }
        if let Some(names) = text.strip_prefix("functions:") {
            return Ok(Self::Functions(names.split(',').map(str::to_owned).collect()));
        }
        if text == "unbound" {
            return Ok(Self::Unbound);
        }
        match text.split_once(':') {
            Some((name, rest)) => filled(name, rest),
            None => number(text),
        }
    }
}

fn filled(name: &str, rest: &str) -> Result<Value> {
    let scalar = known_type(name)?;
    let Some((count, fill)) = rest.split_once(':') else {
        return Err(Failure::usage(format!("a fill is missing, as in `{name}:{rest}:zeros`")));
    };
    let shape: Option<Vec<u64>> = count.split('x').map(|n| n.parse().ok()).collect();
    let shape = shape.filter(|shape| (1..=3).contains(&shape.len())).ok_or_else(|| {
        Failure::usage(format!("`{count}` is not a count: write `1024`, `64x64` or `8x8x8`"))
    })?;
    let constant = |text| parse_number(scalar, text).map(Fill::Constant);
    let fill = match fill {
        "zeros" => constant("0"),
        "ones" => constant("1"),
        "ramp" => Some(Fill::Ramp),
        "random" => Some(Fill::Random(0)),
        _ => match fill.strip_prefix("random:") {
            Some(seed) => seed.parse().ok().map(Fill::Random),
            None => constant(fill),
        },
    };
    let fill = fill.ok_or_else(|| {
        let fill = rest.split_once(':').map_or("", |(_, fill)| fill);
        let name = type_name(scalar);
        Failure::usage(format!(
            "`{fill}` is not a fill: use zeros, ones, ramp, random[:SEED] or a number of {name}"
        ))
    })?;
    Ok(Value::Filled { scalar, shape, fill })
}

fn known_type(name: &str) -> Result<Scalar> {
    if name == "f64" {
        return Err(Failure::input("MSL has no double; use f32"));
    }
    type_named(name)
        .ok_or_else(|| Failure::usage(format!("`{name}` is not a type; the types are {}", type_list())))
}

fn number(text: &str) -> Result<Value> {
    if matches!(text, "true" | "false") {
        let bytes = vec![u8::from(text == "true")];
        return Ok(Value::Number { scalar: Scalar::Bool, components: 1, bytes });
    }
    if text.ends_with("f64") {
        return Err(Failure::input("MSL has no double; use f32"));
    }
    let Some((numbers, scalar)) = split_suffix(text) else {
        return Err(Failure::usage(format!(
            "`{text}` is not a value: write `@file.npy`, `f32:1024:ramp`, a number with its type such as \
             `3.5f32`, or `threadgroup:BYTES`"
        )));
    };
    let parts: Vec<&str> = numbers.split(',').map(str::trim).collect();
    let mut bytes = Vec::new();
    for part in &parts {
        let parsed = parse_number(scalar, part).ok_or_else(|| {
            Failure::usage(format!("`{part}` is not a value of type {}", type_name(scalar)))
        })?;
        bytes.extend(parsed);
    }
    Ok(Value::Number { scalar, components: parts.len(), bytes })
}

/// `NAME=VALUE`, the value still as text.
pub fn split_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected NAME=VALUE".into()),
    }
}

/// `X[,Y[,Z]]`.
pub fn parse_size(text: &str) -> Result<Dim3, String> {
    let sizes: Result<Vec<u32>, _> = text.split(',').map(|n| n.trim().parse()).collect();
    match sizes.as_deref() {
        Ok([x]) => Ok(Dim3::new(*x, 1, 1)),
        Ok([x, y]) => Ok(Dim3::new(*x, *y, 1)),
        Ok([x, y, z]) => Ok(Dim3::new(*x, *y, *z)),
        Ok(_) => Err("expected at most three sizes, X,Y,Z".into()),
        Err(error) => Err(format!("expected X[,Y[,Z]] in whole numbers: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> (u8, String) {
        match Value::parse(text) {
            Ok(value) => panic!("`{text}` was taken as {value:?}"),
            Err(failure) => (failure.exit_code(), failure.to_string()),
        }
    }

    fn one(text: &str) -> Option<(Scalar, usize, Vec<u8>)> {
        match Value::parse(text) {
            Ok(Value::Number { scalar, components, bytes }) => Some((scalar, components, bytes)),
            _ => None,
        }
    }

    #[test]
    fn numbers_have_a_type() {
        assert_eq!(one("2.75f32"), Some((Scalar::F32, 1, 2.75f32.to_le_bytes().to_vec())));
        assert_eq!(one("64u32"), Some((Scalar::U32, 1, vec![64, 0, 0, 0])));
        assert_eq!(one("-1i32"), Some((Scalar::I32, 1, vec![255; 4])));
        assert_eq!(one("true"), Some((Scalar::Bool, 1, vec![1])));
        assert_eq!(one("1.5f16"), Some((Scalar::F16, 1, vec![0, 0x3e])));
        assert_eq!(one("1bf16"), Some((Scalar::BF16, 1, vec![0x80, 0x3f])));
        assert_eq!(one("1e3f32"), Some((Scalar::F32, 1, 1000f32.to_le_bytes().to_vec())));
        assert_eq!(one("1,2,3u8"), Some((Scalar::U8, 3, vec![1, 2, 3])));
        assert_eq!(refusal("300u8"), (2, "`300` is not a value of type u8".into()));
        assert_eq!(refusal("3.14").0, 2);
        assert_eq!(refusal("f32").0, 2);
    }

    #[test]
    fn arrays_have_type_count_and_fill() {
        let filled = |text: &str| match Value::parse(text) {
            Ok(Value::Filled { scalar, shape, fill }) => Some((scalar, shape, fill)),
            _ => None,
        };
        assert_eq!(filled("f32:64x32:ramp"), Some((Scalar::F32, vec![64, 32], Fill::Ramp)));
        assert_eq!(filled("u8:4:random:9"), Some((Scalar::U8, vec![4], Fill::Random(9))));
        assert_eq!(filled("i16:2x3x4:-7"), {
            Some((Scalar::I16, vec![2, 3, 4], Fill::Constant(vec![0xf9, 0xff])))
        });
        assert_eq!(filled("u32:0:ones"), Some((Scalar::U32, vec![0], Fill::Constant(vec![1, 0, 0, 0]))));
        assert!(refusal("f32:4").1.contains("`f32:4:zeros`"));
        assert!(refusal("f32:4,4:zeros").1.contains("`4,4` is not a count"));
        assert!(refusal("f32:1x1x1x1:zeros").1.contains("not a count"));
        assert!(refusal("u8:4:300").1.contains("`300` is not a fill"));
        assert!(refusal("double:4:zeros").1.contains("`double` is not a type"));
    }

    #[test]
    fn doubles_are_refused_as_wrong_arguments() {
        assert_eq!(refusal("f64:4:zeros"), (1, "MSL has no double; use f32".into()));
        assert_eq!(refusal("3.14f64").0, 1);
    }

    #[test]
    fn files_and_threadgroup_memory() {
        assert!(matches!(Value::parse("@a:b.npy"), Ok(Value::File(path)) if path == *"a:b.npy"));
        assert!(matches!(Value::parse("threadgroup:1024"), Ok(Value::Threadgroup(1024))));
        assert_eq!(refusal("@").0, 2);
        assert_eq!(refusal("threadgroup:-1").0, 2);
    }

    #[test]
    fn sizes_have_one_to_three_dimensions() {
        assert_eq!(parse_size("7"), Ok(Dim3::new(7, 1, 1)));
        assert_eq!(parse_size("7,8,0"), Ok(Dim3::new(7, 8, 0)));
        assert!(parse_size("1,2,3,4").is_err());
        assert!(parse_size("-1").is_err());
        assert!(parse_size("").is_err());
    }
}
