//! Functions of values that MSL has, under the same or another name.

use crate::opencl::render::{Renderer, wrap};
use crate::opencl::types::{Scalar, Shape};

use super::{Call, apply};

/// Functions with the same name and meaning.
const SAME: &[&str] = &[
    "ceil",
    "clamp",
    "clz",
    "copysign",
    "fabs",
    "fdim",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "hadd",
    "ilogb",
    "ldexp",
    "mad24",
    "max",
    "min",
    "mix",
    "mul24",
    "nextafter",
    "popcount",
    "rhadd",
    "rint",
    "rotate",
    "round",
    "sign",
    "smoothstep",
    "step",
    "trunc",
];

/// Functions with another name.
const RENAMED: &[(&str, &str)] = &[
    ("add_sat", "addsat"),
    ("mad_hi", "madhi"),
    ("mad_sat", "madsat"),
    ("mul_hi", "mulhi"),
    ("sub_sat", "subsat"),
    ("ctz", "ctz"),
];

/// Functions whose scalar arguments are those of all components.
const MIXED: &[&str] = &["clamp", "fmax", "fmin", "max", "min", "mix", "smoothstep", "step"];

/// Functions whose precise form has OpenCL's accuracy, with the largest error of the full profile in ulp (OpenCL 1.2, 7.4).
const PRECISE: &[(&str, u32)] = &[
    ("acos", 4),
    ("acosh", 4),
    ("asin", 4),
    ("asinh", 4),
    ("atan", 5),
    ("atan2", 6),
    ("atanh", 5),
    ("cos", 4),
    ("cosh", 4),
    ("cospi", 4),
    ("exp", 3),
    ("exp10", 3),
    ("exp2", 3),
    ("log", 3),
    ("log10", 3),
    ("log2", 3),
    ("pow", 16),
    ("powr", 16),
    ("rsqrt", 2),
    ("sin", 4),
    ("sinh", 4),
    ("sinpi", 4),
    ("sqrt", 3),
    ("tan", 5),
    ("tanh", 5),
    ("tanpi", 6),
];

pub(super) fn call(to: &mut Renderer, call: &Call) -> Option<String> {
    let name = call.name;
    let (result, scalar) = (call.result, call.result.scalar());
    let plain = name.strip_prefix("half_").unwrap_or(name);
    if let Some((_, ulp)) = PRECISE.iter().find(|(known, _)| *known == plain) {
        let prefix = if scalar == Some(Scalar::Float) { "precise::" } else { "" };
        to.notes.function(name, &format!("{prefix}{plain}"));
        to.notes.difference(format!(
            "`{plain}`: OpenCL C allows {ulp} ulp; `precise::{plain}` has the error of the Metal device"
        ));
        let text = move |args: &[String]| format!("{prefix}{plain}({})", args.join(", "));
        return Some(mapped(to, call, text));
    }
    if let Some(native) = name.strip_prefix("native_") {
        to.notes.function(name, &format!("fast::{native}"));
        return match native {
            "divide" => Some(mapped(to, call, |args| format!("fast::divide({}, {})", args[0], args[1]))),
            "recip" => {
                let one = if result.is_vector() {
                    format!("{}(1.0f)", Shape::Vector(Scalar::Float, result.lanes().min(4)).name())
                } else {
                    "1.0f".into()
                };
                Some(mapped(to, call, |args| format!("fast::divide({one}, {})", args[0])))
            }
            _ if PRECISE.iter().any(|(known, _)| *known == native) => {
                Some(mapped(to, call, move |args| format!("fast::{native}({})", args.join(", "))))
            }
            _ => None,
        };
    }
    match name {
        "half_divide" => {
            return Some(mapped(to, call, |args| format!("({} / {})", wrap(&args[0]), wrap(&args[1]))));
        }
        "half_recip" => return Some(mapped(to, call, |args| format!("(1.0f / {})", wrap(&args[0])))),
        "abs" => {
            let unsigned = scalar?.unsigned();
            if !call.shape(0).scalar()?.is_signed() {
                return Some(to.exactly(call.args.first()?, call.shape(0)));
            }
            let of = Shape::Vector(unsigned, result.lanes().min(4));
            let of = if result.is_vector() { of.name() } else { unsigned.name().to_owned() };
            return Some(mapped(to, call, |args| format!("{of}(abs({}))", args[0])));
        }
        "abs_diff" => {
            let unsigned = scalar?.unsigned();
            let of = Shape::Vector(unsigned, result.lanes().min(4));
            let of = if result.is_vector() { of.name() } else { unsigned.name().to_owned() };
            return Some(mapped(to, call, |args| format!("{of}(absdiff({}))", args.join(", "))));
        }
        "mad" => {
            to.notes.function("mad", "fma");
            return Some(mapped(to, call, |args| format!("fma({})", args.join(", "))));
        }
        "degrees" => return Some(mapped(to, call, |args| format!("({} * 57.295779513f)", wrap(&args[0])))),
        "radians" => return Some(mapped(to, call, |args| format!("({} * 0.017453292520f)", wrap(&args[0])))),
        _ => {}
    }
    let target = RENAMED.iter().find(|(known, _)| *known == name).map(|(_, target)| *target);
    let target = target.or_else(|| SAME.iter().find(|known| **known == name).copied())?;
    to.notes.function(name, target);
    Some(mapped(to, call, move |args| format!("{target}({})", args.join(", "))))
}

/// A call with the arguments of the same shapes as the result, where OpenCL C takes scalars besides vectors.
fn mapped(to: &mut Renderer, call: &Call, text: impl Fn(&[String]) -> String + Copy) -> String {
    let is_mixed = MIXED.contains(&call.name);
    let shapes: Vec<Shape> = (0..call.args.len())
        .map(|index| {
            let own = call.shape(index);
            match own.scalar() {
                Some(_) if is_mixed => call.result,
                // `ldexp(float4, int)`
                Some(scalar) if call.name == "ldexp" => call.result.with(scalar),
                _ => own,
            }
        })
        .collect();
    let texts: Vec<String> =
        call.args.iter().zip(&shapes).map(|(arg, shape)| to.exactly(arg, *shape)).collect();
    let texts: Vec<String> = texts.iter().map(|text| crate::opencl::render::strip(text).to_owned()).collect();
    apply(to, call.name, call.result, &shapes, &texts, text)
}
