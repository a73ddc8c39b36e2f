//! Calls of OpenCL C's builtin functions.

mod atomics;
mod conversions;
mod math;
mod memory;
mod relational;
mod synchronization;
mod values;

use super::ast::Node;
use super::render::Renderer;
use super::types::Shape;

pub(super) use relational::as_mask;

/// A call under translation.
pub(super) struct Call<'n> {
    pub node: &'n Node,
    pub name: &'n str,
    pub args: Vec<&'n Node>,
    pub result: Shape,
}

impl Call<'_> {
    /// The shape of an argument.
    pub fn shape(&self, index: usize) -> Shape {
        self.args.get(index).map_or(Shape::Other, |arg| Shape::of(&arg.plain))
    }
}

/// The text of a call of a builtin function.
pub(super) fn call(to: &mut Renderer, node: &Node, name: &str) -> String {
    let call =
        Call { node, name, args: node.children.iter().skip(1).collect(), result: Shape::of(&node.plain) };
    synchronization::call(to, &call)
        .or_else(|| atomics::call(to, &call))
        .or_else(|| memory::call(to, &call))
        .or_else(|| conversions::call(to, &call))
        .or_else(|| relational::call(to, &call))
        .or_else(|| math::call(to, &call))
        .or_else(|| values::call(to, &call))
        .unwrap_or_else(|| to.refuse(node, format!("`{name}` has no counterpart in Metal")))
}

/// A function of values by its parts: of vectors with 8 and 16 components the halves.
pub(super) fn apply(
    to: &mut Renderer,
    name: &str,
    result: Shape,
    args: &[Shape],
    texts: &[String],
    leaf: impl Fn(&[String]) -> String + Copy,
) -> String {
    if !result.is_wide() {
        return leaf(texts);
    }
    let name = format!("cl_{name}");
    to.halves(&name, result, args, leaf);
    format!("{name}({})", texts.join(", "))
}

/// Declares `name` for vectors, from its definition for scalars.
pub(super) fn by_components(to: &mut Renderer, name: &str, result: Shape, args: &[Shape]) {
    if !result.is_vector() || result.is_wide() {
        return;
    }
    let mut key = format!("{name} ->");
    args.iter().for_each(|arg| key.push_str(&format!(" {}", arg.name())));
    let params: Vec<String> =
        args.iter().enumerate().map(|(k, arg)| format!("{} x{k}", arg.name())).collect();
    let lanes: Vec<String> = (0..result.lanes())
        .map(|lane| {
            let letter = super::render::letter(lane);
            let args: Vec<String> = args
                .iter()
                .enumerate()
                .map(|(k, arg)| if arg.is_vector() { format!("x{k}.{letter}") } else { format!("x{k}") })
                .collect();
            format!("{name}({})", args.join(", "))
        })
        .collect();
    let of = result.name();
    to.helpers.add(&key, name, || {
        format!("inline {of} {name}({}) {{ return {of}({}); }}", params.join(", "), lanes.join(", "))
    });
}
