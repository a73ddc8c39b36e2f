//! Vectors of 8 and 16 components: structs of two halves, with the operators and functions that are used.

use crate::opencl::ast::Node;
use crate::opencl::types::{Scalar, Shape};

use super::Renderer;
use super::expressions::strip;
use super::operators::{direct_path, letters, nested, wrap};

impl Renderer<'_> {
    /// The shape of half a vector.
    pub fn half(&self, shape: Shape) -> Shape {
        Shape::Vector(shape.scalar().unwrap_or(Scalar::Float), shape.lanes() / 2)
    }

    /// Declares the struct of a vector of 8 or 16 components.
    pub fn wide(&mut self, shape: Shape) {
        if !shape.is_wide() || self.helpers.has(&shape.name()) {
            return;
        }
        let half = self.half(shape);
        self.wide(half);
        let name = shape.name();
        let bytes = shape.lanes() * shape.scalar().map_or(4, Scalar::bits) / 8;
        self.notes.wide(&name);
        self.helpers
            .add(&name, &name, || format!("struct alignas({bytes}) {name} {{ {} lo, hi; }};", half.name()));
    }

    /// A vector with all components equal.
    pub fn splat(&mut self, shape: Shape, text: &str) -> String {
        let text = strip(text);
        if !shape.is_wide() {
            return format!("{}({text})", shape.name());
        }
        self.wide(shape);
        let half = self.half(shape);
        let (name, scalar) = (shape.name(), shape.scalar().map_or("float", Scalar::name));
        let make = format!("make_{name}");
        let inner = self.splat(half, "x");
        self.helpers.add(&make, &make, || {
            format!("inline {name} {make}({scalar} x) {{ return {name}{{{inner}, {inner}}}; }}")
        });
        format!("{make}({text})")
    }

    /// A vector from values with these shapes, which have as many components together.
    pub fn construct(&mut self, shape: Shape, values: &[String], shapes: &[Shape]) -> String {
        let name = shape.name();
        let values: Vec<&str> = values.iter().map(|value| strip(value)).collect();
        if !shape.is_wide() {
            return format!("{name}({})", values.join(", "));
        }
        self.wide(shape);
        let half = self.half(shape);
        if shapes.len() == 2 && shapes.iter().all(|own| *own == half) {
            return format!("{name}{{{}}}", values.join(", "));
        }
        if shapes.iter().all(|own| !own.is_vector()) {
            let parts: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            return nested(shape, &parts);
        }
        let make = format!("make_{name}");
        let mut key = make.clone();
        let (mut params, mut parts) = (Vec::new(), Vec::new());
        for (k, own) in shapes.iter().enumerate() {
            self.wide(*own);
            let param = format!("x{k}");
            key.push_str(&format!(" {}", own.name()));
            params.push(format!("{} {param}", own.name()));
            parts.extend(components_of(*own, &param));
        }
        let value = nested(shape, &parts);
        self.helpers.add(&key, &make, || {
            format!("inline {name} {make}({}) {{ return {value}; }}", params.join(", "))
        });
        format!("{make}({})", values.join(", "))
    }

    /// Declares a function that applies `leaf` to the parts of its arguments that have at most four components. Scalars are passed to each.
    pub fn halves(
        &mut self,
        name: &str,
        result: Shape,
        args: &[Shape],
        leaf: impl Fn(&[String]) -> String + Copy,
    ) {
        let mut key = name.to_owned();
        args.iter().for_each(|arg| key.push_str(&format!(" {}", arg.name())));
        if !result.is_wide() || self.helpers.has(&key) {
            return;
        }
        self.wide(result);
        args.iter().for_each(|arg| self.wide(*arg));
        let half = self.half(result);
        let part = |arg: &Shape| {
            if arg.is_vector() {
                Shape::Vector(arg.scalar().unwrap_or(Scalar::Int), arg.lanes() / 2)
            } else {
                *arg
            }
        };
        let parts: Vec<Shape> = args.iter().map(part).collect();
        self.halves(name, half, &parts, leaf);
        let on = |side: &str| {
            let texts: Vec<String> = args
                .iter()
                .enumerate()
                .map(|(k, arg)| if arg.is_vector() { format!("x{k}.{side}") } else { format!("x{k}") })
                .collect();
            if half.is_wide() { format!("{name}({})", texts.join(", ")) } else { leaf(&texts) }
        };
        let params: Vec<String> =
            args.iter().enumerate().map(|(k, arg)| format!("{} x{k}", arg.name())).collect();
        let result = result.name();
        let (low, high) = (on("lo"), on("hi"));
        let word = name.split(' ').next().unwrap_or(name).to_owned();
        self.helpers.add(&key, &word, || {
            format!("inline {result} {name}({}) {{ return {result}{{{low}, {high}}}; }}", params.join(", "))
        });
    }

    /// Declares an operator for two wide vectors of a shape.
    pub fn operator(&mut self, op: &str, shape: Shape) {
        self.infix(op, shape, shape);
    }

    /// Declares a comparison of two wide vectors of a shape.
    pub fn compare(&mut self, op: &str, shape: Shape) {
        let result = shape.with(Scalar::Bool);
        self.infix(op, shape, result);
    }

    fn infix(&mut self, op: &str, shape: Shape, result: Shape) {
        if !shape.is_wide() {
            return;
        }
        self.wide(shape);
        self.wide(result);
        let half = self.half(shape);
        let half_result = self.half(result);
        self.infix(op, half, half_result);
        let bits = shape.scalar().map_or(32, Scalar::bits);
        let side = |side: &str| {
            // OpenCL C shifts by the amount modulo the width.
            if matches!(op, "<<" | ">>") && !half.is_wide() {
                let mask = shape.scalar().map_or("int", Scalar::name);
                format!("a.{side} {op} (b.{side} & {mask}({}))", bits - 1)
            } else {
                format!("a.{side} {op} b.{side}")
            }
        };
        let (low, high) = (side("lo"), side("hi"));
        let (name, result) = (shape.name(), result.name());
        self.helpers.add(&format!("{name} {op}"), &name, || {
            format!(
                "inline {result} operator{op}({name} a, {name} b) {{ return {result}{{{low}, {high}}}; }}"
            )
        });
    }

    /// An arithmetic operator on wide vectors; a compound assignment becomes an assignment.
    pub fn wide_binary(&mut self, node: &Node, left: &Node, right: &Node, shape: Shape) -> String {
        let (Some(from), Some(to)) = (left.end, right.begin) else { return self.splice(node) };
        let op = node.opcode.as_str();
        let is_assignment = node.kind == "CompoundAssignOperator";
        let plain = if is_assignment { op.trim_end_matches('=') } else { op };
        self.operator(plain, shape);
        let left_text = self.node(left);
        let right_text = self.exactly(right, shape);
        if is_assignment {
            if has_effects(left) {
                return self.refuse(node, "a compound assignment to a vector of 8 or 16 components must have no other effects on its left");
            }
            return self.fit(from, to, format!("{left_text} = {left_text} {plain} {}", wrap(&right_text)));
        }
        let gap = self.text.get(from..to).unwrap_or("");
        format!("{left_text}{gap}{right_text}")
    }

    /// The bits of a value as another type (`as_type`).
    pub fn reinterpret(&mut self, node: &Node, text: &str, from: Shape, to: Shape) -> String {
        let size = |shape: Shape| {
            let lanes = if shape.lanes() == 3 { 4 } else { shape.lanes() };
            shape.scalar().map(|scalar| scalar.bits() * lanes)
        };
        if size(from).is_none() || size(from) != size(to) {
            if from == Shape::Pointer && to == Shape::Pointer {
                return text.to_owned();
            }
            return self.refuse(node, format!("`as_{}` of this type is not supported", to.name()));
        }
        self.reinterpret_text(text, from, to)
    }

    pub fn reinterpret_text(&mut self, text: &str, from: Shape, to: Shape) -> String {
        if from == to {
            return wrap(text);
        }
        let has_three = |shape: Shape| shape.lanes() == 3;
        let same_lanes = from.lanes() == to.lanes();
        if !from.is_wide() && !to.is_wide() && has_three(from) == has_three(to) {
            return format!("as_type<{}>({text})", to.name());
        }
        let name = format!("cl_as_{}", to.name().trim_start_matches("cl_"));
        if same_lanes && from.is_wide() {
            let scalar = to.scalar().unwrap_or(Scalar::Float);
            self.halves(&name, to, &[from], move |args| {
                // The leaf has four components.
                format!("as_type<{}4>({})", scalar.name(), args[0])
            });
            return format!("{name}({text})");
        }
        self.wide(from);
        self.wide(to);
        let value = regroup(from, to, "v");
        let (source, target) = (from.name(), to.name());
        self.helpers.add(&format!("{name} {source}"), &name, || {
            format!("inline {target} {name}({source} v) {{ return {value}; }}")
        });
        format!("{name}({text})")
    }
}

/// The components of a parameter, in order.
fn components_of(shape: Shape, param: &str) -> Vec<String> {
    match shape {
        Shape::Vector(_, lanes) => (0..lanes)
            .map(|index| {
                format!("{param}.{}", direct_path(lanes, &[index]).unwrap_or_else(|| letters(&[index])))
            })
            .collect(),
        _ => vec![param.to_owned()],
    }
}

/// The value of type `to` whose bits are those of `v`, of type `from`: groups of components of 32 bits or more are reinterpreted.
fn regroup(from: Shape, to: Shape, v: &str) -> String {
    let (Some(a), Some(b)) = (from.scalar(), to.scalar()) else { return v.to_owned() };
    // `as_float4(int3)`: the fourth component is undefined.
    if from.lanes() == 3 {
        return format!("{}(as_type<{}>({v}), 0)", to.name(), to_lanes(b, 3));
    }
    if to.lanes() == 3 {
        return format!("as_type<{}>({v}).xyz", to_lanes(b, from.lanes()));
    }
    let parts = components_of(from, v);
    let texts: Vec<String> = if a.bits() >= b.bits() {
        let count = a.bits() / b.bits();
        let piece = to_lanes(b, count);
        let letter = |part: &String, k: u32| match count {
            1 => format!("as_type<{piece}>({part})"),
            8 => {
                // Eight bytes of 64 bits, by way of two words.
                format!(
                    "as_type<{}4>(as_type<uint2>({part}).{}).{}",
                    b.name(),
                    letters(&[k / 4]),
                    letters(&[k % 4])
                )
            }
            _ => format!("as_type<{piece}>({part}).{}", letters(&[k])),
        };
        parts.iter().flat_map(|part| (0..count).map(move |k| letter(part, k))).collect()
    } else {
        let count = (b.bits() / a.bits()) as usize;
        let join = |group: &[String]| match count {
            8 => {
                let word = |half: &[String]| format!("as_type<uint>({}4({}))", a.name(), half.join(", "));
                format!("as_type<{}>(uint2({}, {}))", b.name(), word(&group[..4]), word(&group[4..]))
            }
            _ => format!("as_type<{}>({}{count}({}))", b.name(), a.name(), group.join(", ")),
        };
        parts.chunks(count).map(join).collect()
    };
    if to.is_vector() { nested(to, &texts) } else { texts.concat() }
}

fn to_lanes(scalar: Scalar, lanes: u32) -> String {
    if lanes == 1 { scalar.name().to_owned() } else { format!("{}{lanes}", scalar.name()) }
}

/// Whether evaluating a node twice differs from evaluating it once.
fn has_effects(node: &Node) -> bool {
    let mut found = false;
    node.walk(&mut |node| {
        found |= node.kind == "CallExpr"
            || node.kind == "CompoundAssignOperator"
            || (node.kind == "BinaryOperator" && node.opcode == "=")
            || (node.kind == "UnaryOperator" && matches!(node.opcode.as_str(), "++" | "--"));
    });
    found
}
