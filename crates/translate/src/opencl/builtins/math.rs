//! Mathematical functions that MSL does not have, and those with results through pointers.

use crate::opencl::render::Renderer;
use crate::opencl::types::{Scalar, Shape, Space, parse};

use super::{Call, apply, by_components};

/// Functions of floats, defined in MSL: name, the definitions that it uses, its own.
const DEFINITIONS: &[(&str, &[&str], &str)] = &[
    ("cbrt", &[], include_str!("msl/cbrt.metal")),
    ("hypot", &[], include_str!("msl/hypot.metal")),
    ("expm1", &[], include_str!("msl/expm1.metal")),
    ("log1p", &[], include_str!("msl/log1p.metal")),
    ("erf", &["erfc"], include_str!("msl/erf.metal")),
    ("erfc", &[], include_str!("msl/erfc.metal")),
    ("logb", &[], include_str!("msl/logb.metal")),
    ("pown", &[], include_str!("msl/pown.metal")),
    ("rootn", &["pown"], include_str!("msl/rootn.metal")),
    ("maxmag", &[], include_str!("msl/maxmag.metal")),
    ("minmag", &[], include_str!("msl/minmag.metal")),
    ("asinpi", &[], "inline float cl_asinpi(float x) { return precise::asin(x) * 0.31830988618f; }"),
    ("acospi", &[], "inline float cl_acospi(float x) { return precise::acos(x) * 0.31830988618f; }"),
    ("atanpi", &[], "inline float cl_atanpi(float x) { return precise::atan(x) * 0.31830988618f; }"),
    (
        "atan2pi",
        &[],
        "inline float cl_atan2pi(float y, float x) { return precise::atan2(y, x) * 0.31830988618f; }",
    ),
    ("nan", &[], "inline float cl_nan(uint code) { return as_type<float>(code | 0x7fc00000u); }"),
    (
        "remainder",
        &["remquo_bits"],
        "inline float cl_remainder(float x, float y) { return cl_remquo_bits(x, y).x; }",
    ),
    ("remquo_bits", &[], include_str!("msl/remquo.metal")),
];

pub(super) fn call(to: &mut Renderer, call: &Call) -> Option<String> {
    match call.name {
        "sincos" | "fract" | "modf" | "frexp" | "remquo" => return Some(through_pointer(to, call)),
        "length" | "fast_length" | "distance" | "fast_distance" | "dot" | "normalize" | "fast_normalize"
        | "cross" => {
            return Some(geometric(to, call));
        }
        "upsample" => return upsample(to, call),
        "shuffle" | "shuffle2" => return Some(shuffle(to, call)),
        _ => {}
    }
    let name = call.name;
    if !DEFINITIONS.iter().any(|(known, ..)| *known == name) {
        return None;
    }
    if call.result.scalar() != Some(Scalar::Float) {
        return Some(to.refuse(call.node, format!("`{name}` of `{}` is not supported", call.result.name())));
    }
    define(to, name);
    to.notes.function(name, &format!("cl_{name}"));
    let shapes: Vec<Shape> = (0..call.args.len())
        .map(|index| match (call.shape(index), call.result) {
            (Shape::Scalar(scalar), Shape::Vector(_, lanes)) => Shape::Vector(scalar, lanes),
            (own, _) => own,
        })
        .collect();
    let texts: Vec<String> =
        call.args.iter().zip(&shapes).map(|(arg, shape)| to.exactly(arg, *shape)).collect();
    let helper = format!("cl_{name}");
    narrow(to, &helper, call.result, &shapes);
    let leaf = |args: &[String]| format!("{helper}({})", args.join(", "));
    Some(apply(to, name, call.result, &shapes, &texts, leaf))
}

/// Declares a function of scalars for vectors of up to four components that these shapes consist of.
fn narrow(to: &mut Renderer, name: &str, result: Shape, args: &[Shape]) {
    let cut = |shape: &Shape| match *shape {
        Shape::Vector(scalar, lanes) => Shape::Vector(scalar, lanes.min(4)),
        other => other,
    };
    let args: Vec<Shape> = args.iter().map(cut).collect();
    by_components(to, name, cut(&result), &args);
}

fn define(to: &mut Renderer, name: &str) {
    let Some((_, needs, text)) = DEFINITIONS.iter().find(|(known, ..)| *known == name) else { return };
    needs.iter().for_each(|need| define(to, need));
    let word = format!("cl_{name}");
    to.helpers.add(&word, &word, || text.trim_end().to_owned());
}

/// Functions with a second result in memory.
fn through_pointer(to: &mut Renderer, call: &Call) -> String {
    let Some(pointer) = call.args.last() else { return String::new() };
    let shape = call.result;
    if shape.scalar() != Some(Scalar::Float) {
        return to.refuse(call.node, format!("`{}` of `{}` is not supported", call.name, shape.name()));
    }
    let space = parse(&pointer.plain).and_then(|ty| ty.pointee().and_then(|to| to.qualifiers().space));
    let space = space.unwrap_or(Space::Private);
    let helper = declare_through_pointer(to, call.name, shape, space);
    let args: Vec<String> =
        call.args.iter().enumerate().map(|(k, arg)| to.exactly(arg, call.shape(k))).collect();
    format!("{helper}({})", args.join(", "))
}

/// Declares such a function, and returns its name.
fn declare_through_pointer(to: &mut Renderer, name: &str, shape: Shape, space: Space) -> String {
    let (place, of) = (space.msl(), shape.name());
    let suffix = if space == Space::Private { String::new() } else { format!("_{place}") };
    let helper = format!("cl_{name}{suffix}");
    if shape.is_wide() {
        let half = to.half(shape);
        declare_through_pointer(to, name, half, space);
        let second = if matches!(name, "frexp" | "remquo") { shape.with(Scalar::Int) } else { shape };
        to.wide(shape);
        to.wide(second);
        let (param, low, high) = if name == "remquo" {
            (format!(", {of} y"), ", y.lo", ", y.hi")
        } else {
            (String::new(), "", "")
        };
        let second = second.name();
        to.helpers.add(&format!("{helper} {of}"), &helper, || {
            format!(
                "inline {of} {helper}({of} x{param}, {place} {second}* p) {{\n    \
                 {} lo = {helper}(x.lo{low}, &p->lo), hi = {helper}(x.hi{high}, &p->hi);\n    return {of}{{lo, hi}};\n}}",
                half.name()
            )
        });
        return helper;
    }
    let int = shape.with(Scalar::Int).name();
    let text = match name {
        "sincos" => format!("inline {of} {helper}({of} x, {place} {of}* c) {{ *c = precise::cos(x); return precise::sin(x); }}"),
        "fract" => format!(
            "inline {of} {helper}({of} x, {place} {of}* whole) {{\n    *whole = floor(x);\n    \
             {of} rest = fmin(x - floor(x), {of}(0x1.fffffep-1f));\n    \
             return select(select(rest, copysign({of}(0.0f), x), isinf(x)), x, isnan(x));\n}}"
        ),
        "modf" => format!(
            "inline {of} {helper}({of} x, {place} {of}* whole) {{\n    *whole = trunc(x);\n    \
             return copysign(select(x - trunc(x), {of}(0.0f), isinf(x)), x);\n}}"
        ),
        "frexp" => format!(
            "inline {of} {helper}({of} x, {place} {int}* exponent) {{\n    {int} e = {int}(0);\n    {of} m = frexp(x, e);\n    \
             *exponent = select(e, {int}(0), isnan(x) || isinf(x));\n    return select(m, x, isnan(x) || isinf(x));\n}}"
        )
        .replace("isnan(x) || isinf(x)", if shape.is_vector() { "isnan(x) | isinf(x)" } else { "isnan(x) || isinf(x)" }),
        _ => {
            define(to, "remquo_bits");
            let lanes: Vec<String> = (0..shape.lanes()).map(crate::opencl::render::letter).collect();
            if shape.is_vector() {
                let one = |lane: &String| format!("float2 r{lane} = cl_remquo_bits(x.{lane}, y.{lane});");
                let all: Vec<String> = lanes.iter().map(one).collect();
                let part = |index: &str| lanes.iter().map(|lane| format!("r{lane}.{index}")).collect::<Vec<_>>().join(", ");
                format!(
                    "inline {of} {helper}({of} x, {of} y, {place} {int}* quotient) {{\n    {}\n    *quotient = {int}({});\n    return {of}({});\n}}",
                    all.join("\n    "), part("y"), part("x")
                )
            } else {
                format!(
                    "inline float {helper}(float x, float y, {place} int* quotient) {{\n    float2 r = cl_remquo_bits(x, y);\n    *quotient = int(r.y);\n    return r.x;\n}}"
                )
            }
        }
    };
    to.helpers.add(&format!("{helper} {of}"), &helper, || text);
    helper
}

fn geometric(to: &mut Renderer, call: &Call) -> String {
    let name = call.name.strip_prefix("fast_").unwrap_or(call.name);
    let shape = call.shape(0);
    let args: Vec<String> =
        call.args.iter().enumerate().map(|(k, arg)| to.exactly(arg, call.shape(k))).collect();
    let text = args.join(", ");
    match (name, shape) {
        (_, _) if shape.is_wide() => to.refuse(call.node, format!("`{name}` of this type is not supported")),
        ("cross", Shape::Vector(scalar, 4)) => {
            let of = scalar.name();
            to.helpers.add(&format!("cl_cross {of}"), "cl_cross", || {
                format!("inline {of}4 cl_cross({of}4 a, {of}4 b) {{ return {of}4(cross(a.xyz, b.xyz), 0); }}")
            });
            format!("cl_cross({text})")
        }
        ("normalize", Shape::Vector(..)) => {
            let of = shape.name();
            to.helpers.add(&format!("cl_normalize {of}"), "cl_normalize", || {
                format!("inline {of} cl_normalize({of} v) {{ return all(v == {of}(0)) ? v : normalize(v); }}")
            });
            format!("cl_normalize({text})")
        }
        ("length", Shape::Scalar(_)) => format!("fabs({text})"),
        ("distance", Shape::Scalar(_)) => format!(
            "fabs({} - {})",
            super::super::render::wrap(&args[0]),
            super::super::render::wrap(&args[1])
        ),
        ("dot", Shape::Scalar(_)) => {
            format!("({} * {})", super::super::render::wrap(&args[0]), super::super::render::wrap(&args[1]))
        }
        ("normalize", Shape::Scalar(_)) => format!("sign({text})"),
        _ => format!("{name}({text})"),
    }
}

/// `upsample(high, low)`: twice the width.
fn upsample(to: &mut Renderer, call: &Call) -> Option<String> {
    let of = call.result.scalar()?;
    let (high, low) = (call.shape(0), call.shape(1));
    let bits = of.bits() / 2;
    let texts = vec![to.exactly(call.args.first()?, high), to.exactly(call.args.get(1)?, low)];
    let lanes = call.result.lanes().min(4);
    let name = if call.result.is_vector() { format!("{}{lanes}", of.name()) } else { of.name().to_owned() };
    let leaf = |args: &[String]| {
        format!("({name}({}) << {bits} | {name}({}))", args[0], args[1]).replace(
            &format!("<< {bits}"),
            &if of.bits() == 32 || !call.result.is_vector() {
                format!("<< {bits}")
            } else {
                format!("<< {}({bits})", of.name())
            },
        )
    };
    if call.result.is_vector() || of.bits() >= 32 {
        return Some(apply(to, "upsample", call.result, &[high, low], &texts, leaf));
    }
    // The shift of a smaller integer has type `int`.
    Some(format!("{name}{}", leaf(&texts)))
}

/// Components chosen at run time.
fn shuffle(to: &mut Renderer, call: &Call) -> String {
    let source = call.shape(0);
    let mask_index = call.args.len() - 1;
    let (mask, result) = (call.shape(mask_index), call.result);
    let texts: Vec<String> =
        call.args.iter().enumerate().map(|(k, arg)| to.exactly(arg, call.shape(k))).collect();
    [source, mask, result].into_iter().for_each(|shape| to.wide(shape));
    let name = format!("cl_{}", call.name);
    let of = source.scalar().unwrap_or(Scalar::Float).name();
    let component = |shape: Shape, param: &str, k: u32| {
        let path = crate::opencl::render::direct_path(shape.lanes(), &[k]);
        format!("{param}.{}", path.unwrap_or_else(|| crate::opencl::render::letter(k)))
    };
    let params = ["a", "b"];
    let sources = &params[..mask_index];
    let all: Vec<String> = sources
        .iter()
        .flat_map(|param| (0..source.lanes()).map(move |k| component(source, param, k)))
        .collect();
    // A vector of three has the indices of one of four.
    let lanes = if source.lanes() == 3 { 4 } else { source.lanes() };
    let limit = lanes * u32::try_from(mask_index).unwrap_or(1) - 1;
    let picked: Vec<String> =
        (0..result.lanes()).map(|k| format!("all[{} & {limit}]", component(mask, "m", k))).collect();
    let value = crate::opencl::render::nested(result, &picked);
    let declared: Vec<String> = sources.iter().map(|param| format!("{} {param}", source.name())).collect();
    let key = format!("{name} {} {}", source.name(), mask.name());
    to.helpers.add(&key, &name, || {
        format!(
            "inline {} {name}({}, {} m) {{\n    {of} all[] = {{{}}};\n    return {value};\n}}",
            result.name(),
            declared.join(", "),
            mask.name(),
            all.join(", ")
        )
    });
    format!("{name}({})", texts.join(", "))
}
