//! `vloadN`, `vstoreN` and their forms for `half`: memory is aligned to scalars only.

use crate::opencl::ast::Node;
use crate::opencl::render::Renderer;
use crate::opencl::types::{Scalar, Shape, Space, parse};

use super::conversions::Rounding;
use super::{Call, conversions};

pub(super) fn call(to: &mut Renderer, call: &Call) -> Option<String> {
    if let Some(rest) = call.name.strip_prefix("vload") {
        return load(to, call, rest);
    }
    store(to, call, call.name.strip_prefix("vstore")?)
}

/// Address space and element type of a pointer.
fn pointer(node: &Node) -> Option<(Space, Scalar)> {
    let ty = parse(&node.plain)?;
    let to = ty.pointee()?;
    let scalar = Shape::of(&to.declare("", &str::to_owned)).scalar()?;
    Some((to.qualifiers().space.unwrap_or(Space::Private), scalar))
}

/// Suffix of names for an address space: functions with the same parameters but for their address spaces have different names.
fn suffix(space: Space) -> &'static str {
    match space {
        Space::Global => "",
        Space::Local => "_threadgroup",
        Space::Constant => "_constant",
        Space::Private => "_thread",
    }
}

fn load(to: &mut Renderer, call: &Call, rest: &str) -> Option<String> {
    let [offset, source] = call.args[..] else { return None };
    let (space, scalar) = pointer(source)?;
    let is_half = rest.starts_with("_half") || rest.starts_with("a_half");
    let shape = call.result;
    let lanes = shape.lanes();
    // `vloada_half3` reads as if there were four.
    let stride = if rest.starts_with("a_half") && lanes == 3 { 4 } else { lanes };
    let element = if is_half { Scalar::Half } else { scalar };
    let pointer_text = to.node(source);
    let offset = to.exactly(offset, Shape::Scalar(Scalar::ULong));
    if !shape.is_vector() {
        return Some(format!("float({}[{offset}])", crate::opencl::render::wrap(&pointer_text)));
    }
    to.wide(shape);
    let name = format!("cl_v{}{}", call.name.trim_start_matches('v'), suffix(space));
    let parts: Vec<String> = (0..lanes).map(|k| format!("p[{k}]")).collect();
    let value = crate::opencl::render::nested(shape, &parts);
    let (of, space, result) = (element.name(), space.msl(), shape.name());
    to.helpers.add(&format!("{name} {of}"), &name, || {
        format!(
            "inline {result} {name}(size_t i, {space} const {of}* p) {{ p += i * {stride}; return {value}; }}"
        )
        .replace("constant const", "constant")
    });
    Some(format!("{name}({offset}, {pointer_text})"))
}

fn store(to: &mut Renderer, call: &Call, rest: &str) -> Option<String> {
    let [data, offset, target] = call.args[..] else { return None };
    let (space, scalar) = pointer(target)?;
    let shape = Shape::of(&data.plain);
    let lanes = shape.lanes();
    let is_half = rest.starts_with("_half") || rest.starts_with("a_half");
    let stride = if rest.starts_with("a_half") && lanes == 3 { 4 } else { lanes };
    let element = if is_half { Scalar::Half } else { scalar };
    let rounding = Rounding::of(call.name);
    let data_text = to.exactly(data, shape);
    let pointer_text = to.node(target);
    let offset = to.exactly(offset, Shape::Scalar(Scalar::ULong));
    to.wide(shape);
    let name = format!("cl_v{}{}", call.name.trim_start_matches('v'), suffix(space));
    let component = |k: u32| match shape {
        Shape::Vector(..) => {
            let path = crate::opencl::render::direct_path(lanes, &[k]);
            format!("v.{}", path.unwrap_or_else(|| crate::opencl::render::letter(k).to_string()))
        }
        _ => "v".to_owned(),
    };
    let mut body = String::new();
    for k in 0..lanes {
        let value = if is_half {
            conversions::text(to, Scalar::Float, Scalar::Half, false, rounding, &component(k))
        } else {
            component(k)
        };
        body.push_str(&format!(" p[{k}] = {value};"));
    }
    let (of, space, from) = (element.name(), space.msl(), shape.name());
    to.helpers.add(&format!("{name} {of}"), &name, || {
        format!("inline void {name}({from} v, size_t i, {space} {of}* p) {{ p += i * {stride};{body} }}")
    });
    Some(format!("{name}({data_text}, {offset}, {pointer_text})"))
}
