//! Relational functions: 1 for scalars and -1 for components of vectors, where MSL has booleans.

use crate::opencl::ast::Node;
use crate::opencl::render::{Renderer, strip, wrap};
use crate::opencl::types::{Scalar, Shape};

use super::{Call, apply};

pub(super) fn call(to: &mut Renderer, call: &Call) -> Option<String> {
    match call.name {
        "any" | "all" => {
            let shape = call.shape(0);
            let argument = *call.args.first()?;
            if !shape.is_vector() {
                let text = to.exactly(argument, shape);
                let text = to.sign_bits(shape, &text);
                return Some(format!("int({})", strip(&text)));
            }
            let mask = to.mask(argument);
            let folded = fold(to, call.name, shape, &mask);
            Some(format!("int({folded})"))
        }
        "select" => Some(select(to, call)),
        "bitselect" => bitselect(to, call),
        _ => {
            let mask = booleans(to, call.name, &call.args)?;
            if call.result.is_vector() {
                let shape = call.shape(0);
                let signed = shape.with(shape.scalar()?.signed());
                return Some(to.truth(signed, &mask));
            }
            Some(format!("int({})", strip(&mask)))
        }
    }
}

/// `any` or `all` of a vector of booleans.
fn fold(to: &mut Renderer, name: &str, shape: Shape, mask: &str) -> String {
    if !shape.is_wide() {
        return format!("{name}({})", strip(mask));
    }
    let booleans = shape.with(Scalar::Bool);
    to.wide(booleans);
    let half = to.half(shape);
    let helper = format!("cl_{name}");
    let (low, high) = (fold(to, name, half, "a.lo"), fold(to, name, half, "a.hi"));
    let op = if name == "any" { "||" } else { "&&" };
    let of = booleans.name();
    to.helpers.add(&format!("{helper} {of}"), &helper, || {
        format!("inline bool {helper}({of} a) {{ return {low} {op} {high}; }}")
    });
    format!("{helper}({})", strip(mask))
}

/// The booleans of a relational function of vectors, in a place that needs booleans.
pub(in crate::opencl) fn as_mask(to: &mut Renderer, node: &Node) -> Option<String> {
    let callee = node.first()?.bare().refers.clone()?;
    if to.program.function(callee.id).is_some() {
        return None;
    }
    let args: Vec<&Node> = node.children.iter().skip(1).collect();
    booleans(to, &callee.name, &args)
}

fn booleans(to: &mut Renderer, name: &str, args: &[&Node]) -> Option<String> {
    let shape = Shape::of(&args.first()?.plain);
    let op = match name {
        "isequal" => "==",
        "isnotequal" => "!=",
        "isgreater" => ">",
        "isgreaterequal" => ">=",
        "isless" => "<",
        "islessequal" => "<=",
        "islessgreater" | "isordered" | "isunordered" | "isfinite" | "isinf" | "isnan" | "isnormal"
        | "signbit" => "",
        _ => return None,
    };
    let texts: Vec<String> = args.iter().map(|arg| to.exactly(arg, shape)).collect();
    let booleans = shape.with(Scalar::Bool);
    let shapes = vec![shape; texts.len()];
    let owned = name.to_owned();
    let leaf = |args: &[String]| match (owned.as_str(), args) {
        ("islessgreater", [a, b]) => {
            let or = if shape.is_vector() { "|" } else { "||" };
            format!("(({a} < {b}) {or} ({a} > {b}))")
        }
        (_, [a, b]) if !op.is_empty() => format!("({} {op} {})", wrap(a), wrap(b)),
        _ => format!("{owned}({})", args.join(", ")),
    };
    if name == "islessgreater" && !shape.is_wide() {
        // Each operand is written twice.
        let (of, result) = (shape.name(), booleans.name());
        let body = leaf(&["a".into(), "b".into()]);
        to.helpers.add(&format!("cl_islessgreater {of}"), "cl_islessgreater", || {
            format!("inline {result} cl_islessgreater({of} a, {of} b) {{ return {}; }}", strip(&body))
        });
        return Some(format!("cl_islessgreater({})", texts.join(", ")));
    }
    Some(apply(to, name, booleans, &shapes, &texts, leaf))
}

/// `select(a, b, c)`: a scalar's condition is whether it is not zero, a vector's its sign bits.
fn select(to: &mut Renderer, call: &Call) -> String {
    let [no, yes, condition] = call.args[..] else { return String::new() };
    let shape = call.result;
    let (no, yes) = (to.exactly(no, shape), to.exactly(yes, shape));
    let mask = if shape.is_vector() {
        to.mask(condition)
    } else {
        let text = to.node(condition);
        let is_truth = crate::opencl::render::is_truth(condition.bare());
        if is_truth { text } else { format!("{} != 0", wrap(&text)) }
    };
    to.pick(shape, &no, &yes, strip(&mask))
}

fn bitselect(to: &mut Renderer, call: &Call) -> Option<String> {
    let shape = call.result;
    let scalar = shape.scalar()?;
    let texts: Vec<String> = call.args.iter().map(|arg| to.exactly(arg, shape)).collect();
    if shape.is_wide() {
        let half = to.half(shape);
        let narrow = if half.is_wide() { to.half(half) } else { half };
        declare_bitselect(to, narrow, scalar);
        let leaf = |args: &[String]| format!("cl_bitselect({})", args.join(", "));
        return Some(apply(to, "bitselect", shape, &[shape; 3], &texts, leaf));
    }
    declare_bitselect(to, shape, scalar);
    Some(format!("cl_bitselect({})", texts.join(", ")))
}

fn declare_bitselect(to: &mut Renderer, shape: Shape, scalar: Scalar) {
    let of = shape.name();
    let key = format!("cl_bitselect narrow {of}");
    let bits = shape.with(scalar.unsigned()).name();
    to.helpers.add(&key, "cl_bitselect", || {
        if scalar.is_float() {
            let cast = |x: &str| format!("as_type<{bits}>({x})");
            let (a, b, c) = (cast("a"), cast("b"), cast("c"));
            format!("inline {of} cl_bitselect({of} a, {of} b, {of} c) {{\n    return as_type<{of}>(({a} & ~{c}) | ({b} & {c}));\n}}")
        } else {
            format!("inline {of} cl_bitselect({of} a, {of} b, {of} c) {{ return (a & ~c) | (b & c); }}")
        }
    });
}
