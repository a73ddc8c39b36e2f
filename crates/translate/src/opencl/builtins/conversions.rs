//! `convert_T`, with rounding and saturation (OpenCL C 1.2, 6.2.3).

use crate::opencl::render::Renderer;
use crate::opencl::types::{Scalar, Shape};

use super::{Call, apply, by_components};

/// Rounding mode of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To nearest even for floating-point results, toward zero for integers.
    Default,
    Nearest,
    Zero,
    Up,
    Down,
}

impl Rounding {
    /// The mode in the name of a function.
    pub fn of(name: &str) -> Self {
        match name.rsplit('_').next() {
            Some("rte") => Self::Nearest,
            Some("rtz") => Self::Zero,
            Some("rtp") => Self::Up,
            Some("rtn") => Self::Down,
            _ => Self::Default,
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::Nearest => "_rte",
            Self::Zero => "_rtz",
            Self::Up => "_rtp",
            Self::Down => "_rtn",
        }
    }
}

pub(super) fn call(to: &mut Renderer, call: &Call) -> Option<String> {
    let name = call.name.strip_prefix("convert_")?;
    let (from, into) = (call.shape(0), call.result);
    let (a, b) = (from.scalar()?, into.scalar()?);
    let is_saturated = name.contains("_sat");
    let rounding = Rounding::of(name);
    let value = to.exactly(call.args.first()?, from);
    if from == into {
        return Some(value);
    }
    if !from.is_vector() {
        return Some(text(to, a, b, is_saturated, rounding, &value));
    }
    if is_plain(a, b, is_saturated, rounding) {
        let lanes = into.lanes();
        let leaf = move |args: &[String]| format!("{}{}({})", b.name(), lanes.min(4), args[0]);
        return Some(apply(to, &format!("convert_{}{lanes}", b.name()), into, &[from], &[value], leaf));
    }
    let helper = declare(to, a, b, is_saturated, rounding);
    let lanes = from.lanes().min(4);
    by_components(to, &helper, Shape::Vector(b, lanes), &[Shape::Vector(a, lanes)]);
    let leaf_name = helper.clone();
    let leaf = move |args: &[String]| format!("{leaf_name}({})", args[0]);
    Some(apply(to, helper.trim_start_matches("cl_"), into, &[from], &[value], &leaf))
}

/// Whether it is a plain conversion of both languages.
fn is_plain(from: Scalar, into: Scalar, is_saturated: bool, rounding: Rounding) -> bool {
    if from == into {
        return true;
    }
    match (from.is_float(), into.is_float()) {
        (false, false) => !is_saturated || holds(from, into),
        (false, true) => {
            matches!(rounding, Rounding::Default | Rounding::Nearest)
                || (from.bits() < 24 && into == Scalar::Float)
                || (from.bits() <= 8 && into == Scalar::Half)
        }
        (true, true) => {
            into.bits() > from.bits() || matches!(rounding, Rounding::Default | Rounding::Nearest)
        }
        (true, false) => {
            !is_saturated && matches!(rounding, Rounding::Default | Rounding::Zero) && into.bits() >= 32
        }
    }
}

/// Whether every value of one integer type is one of another.
fn holds(from: Scalar, into: Scalar) -> bool {
    match (from.is_signed(), into.is_signed()) {
        (a, b) if a == b => into.bits() >= from.bits(),
        (false, true) => into.bits() > from.bits(),
        _ => false,
    }
}

/// The conversion of a scalar.
pub(super) fn text(
    to: &mut Renderer,
    from: Scalar,
    into: Scalar,
    is_saturated: bool,
    rounding: Rounding,
    value: &str,
) -> String {
    if is_plain(from, into, is_saturated, rounding) {
        return format!("{}({value})", into.name());
    }
    let helper = declare(to, from, into, is_saturated, rounding);
    format!("{helper}({value})")
}

/// Declares the conversion of a scalar; returns its name.
fn declare(to: &mut Renderer, from: Scalar, into: Scalar, is_saturated: bool, rounding: Rounding) -> String {
    let saturation = if is_saturated { "_sat" } else { "" };
    let name = format!("cl_convert_{}{saturation}{}", into.name(), rounding.suffix());
    let (a, b) = (from.name(), into.name());
    let body = match (from.is_float(), into.is_float()) {
        (false, false) => saturated_integer(from, into),
        (true, false) => {
            let rounded = match rounding {
                Rounding::Default | Rounding::Zero => "trunc(x)",
                Rounding::Nearest => "rint(x)",
                Rounding::Up => "ceil(x)",
                Rounding::Down => "floor(x)",
            };
            let (low, high) = limits(into);
            let above = power(into, from);
            let below = if into.is_signed() { format!("r < {}", lower(into, from)) } else { "r < 0".into() };
            if is_saturated {
                format!(
                    "{a} r = {rounded};\n    return isnan(r) ? {b}(0) : {below} ? {b}({low}) : {above} ? {b}({high}) : {b}(r);"
                )
            } else if into.bits() < 32 {
                // By way of `int`, as OpenCL devices convert values that do not fit.
                format!("return {b}(int({rounded}));")
            } else {
                format!("return {b}({rounded});")
            }
        }
        (false, true) => directed_from_integer(from, into, rounding),
        (true, true) => directed_to_half(rounding),
    };
    to.helpers.add(&format!("{name} {a}"), &name, || format!("inline {b} {name}({a} x) {{\n    {body}\n}}"));
    name
}

/// The least and the greatest value of an integer type.
fn limits(of: Scalar) -> (String, String) {
    let bits = of.bits();
    let suffix = match of {
        Scalar::UInt => "u",
        Scalar::Long => "l",
        Scalar::ULong => "ul",
        _ => "",
    };
    if of.is_signed() {
        let high = (1_u64 << (bits - 1)) - 1;
        (format!("(-{high}{suffix} - 1)"), format!("{high}{suffix}"))
    } else {
        let high = u64::MAX >> (64 - bits);
        ("0".into(), format!("{high}{suffix}"))
    }
}

/// Whether a float is beyond an integer type.
fn power(into: Scalar, from: Scalar) -> String {
    let exponent = into.bits() - u32::from(into.is_signed());
    if from == Scalar::Half && exponent > 15 {
        return "isinf(r)".into();
    }
    format!("r >= {}(0x1p{exponent}f)", from.name())
}

fn lower(into: Scalar, from: Scalar) -> String {
    let exponent = into.bits() - 1;
    if from == Scalar::Half && exponent > 15 {
        return "-HUGE_VALH".replace("HUGE_VALH", "half(65504.0f)");
    }
    format!("{}(-0x1p{exponent}f)", from.name())
}

fn saturated_integer(from: Scalar, into: Scalar) -> String {
    let (low, high) = limits(into);
    let b = into.name();
    let a = from.name();
    let needs_low = from.is_signed() && (!into.is_signed() || into.bits() < from.bits());
    let needs_high =
        into.bits() < from.bits() || (into.bits() == from.bits() && into.is_signed() && !from.is_signed());
    let mut text = String::from("return ");
    if needs_low {
        text.push_str(&format!("x < {a}({low}) ? {b}({low}) : "));
    }
    if needs_high {
        text.push_str(&format!("x > {a}({high}) ? {b}({high}) : "));
    }
    text + &format!("{b}(x);")
}

/// An integer as a float, rounded in a direction: the result of rounding to nearest is corrected.
fn directed_from_integer(from: Scalar, into: Scalar, rounding: Rounding) -> String {
    let f = into.name();
    let (bits, digits) = (from.bits(), if into == Scalar::Half { 11 } else { 24 });
    let u = from.unsigned().name();
    let magnitude = if from.is_signed() {
        format!("{u} m = x < 0 ? {u}(0) - {u}(x) : {u}(x);")
    } else {
        format!("{u} m = x;")
    };
    let negative = if from.is_signed() { "x < 0" } else { "false" };
    let one = if bits == 64 { "1ul" } else { "1u" };
    let away = match rounding {
        Rounding::Up => format!("!({negative})"),
        Rounding::Down => negative.to_owned(),
        _ => "false".to_owned(),
    };
    let word = if bits == 64 { "ulong" } else { "uint" };
    let width = if bits == 64 { 64 } else { 32 };
    // Exact bits are kept, the others cut off, and one unit added if the direction is away from zero.
    let overflow = if into == Scalar::Half {
        format!(
            " if (r > {word}(65504)) {{ half big = ({away}) ? half(INFINITY) : half(65504.0f); return ({negative}) ? -big : big; }}"
        )
    } else {
        String::new()
    };
    format!(
        "{magnitude}\n    {word} w = m;\n    uint top = {width} - uint(clz(w));\n    uint cut = top > {digits} ? top - {digits} : 0;\n    \
         {word} r = cut == 0 ? w : (w >> cut) << cut;\n    bool more = r != w && ({away});\n    \
         {word} unit = {one} << cut;\n    \
         if (more && r + unit < r) return ({negative}) ? {f}(-0x1p{width}f) : {f}(0x1p{width}f);\n    \
         if (more) r += unit;{overflow}\n    \
         return ({negative}) ? -{f}(r) : {f}(r);"
    )
}

/// A float as `half`, rounded in a direction.
fn directed_to_half(rounding: Rounding) -> String {
    let wrong = match rounding {
        Rounding::Up => "float(h) < x",
        Rounding::Down => "float(h) > x",
        _ => "fabs(float(h)) > fabs(x)",
    };
    let step = match rounding {
        Rounding::Up => "ushort(b == 0x8000 ? 0x0001 : b < 0x8000 ? b + 1 : b - 1)",
        Rounding::Down => "ushort(b == 0x0000 ? 0x8001 : b < 0x8000 ? b - 1 : b + 1)",
        _ => "ushort(b - 1)",
    };
    format!(
        "half h = half(x);\n    ushort b = as_type<ushort>(h);\n    return ({wrong}) ? as_type<half>({step}) : h;"
    )
}
