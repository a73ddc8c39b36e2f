//! Atomic functions: OpenCL C 1.2 has them on plain integers, MSL on atomic types. All are relaxed.

use crate::opencl::render::Renderer;
use crate::opencl::types::{Scalar, Shape, Space, parse};

use super::Call;

pub(super) fn call(to: &mut Renderer, call: &Call) -> Option<String> {
    let operation = call.name.strip_prefix("atomic_").or_else(|| call.name.strip_prefix("atom_"))?;
    let pointer = call.args.first()?;
    let space = parse(&pointer.plain)?.pointee()?.qualifiers().space?;
    let place = space.msl();
    if !matches!(space, Space::Global | Space::Local) {
        return Some(to.refuse(call.node, "atomic functions need `__global` or `__local` memory"));
    }
    let scalar = call.result.scalar()?;
    let atomic = match scalar {
        Scalar::Int => "atomic_int",
        Scalar::UInt | Scalar::Float => "atomic_uint",
        _ => return Some(to.refuse(call.node, "64-bit atomic functions have no counterpart in Metal")),
    };
    let bare = pointer.bare();
    // The user's cast to a volatile integer is not needed besides that to the atomic type.
    let object = match (bare.kind.as_str(), bare.children.last()) {
        ("CStyleCastExpr", Some(inner)) if Shape::of(&inner.plain) == Shape::Pointer => inner,
        _ => bare,
    };
    let is_volatile =
        parse(&object.plain).is_some_and(|ty| ty.pointee().is_some_and(|to| to.qualifiers().is_volatile));
    let volatile = if is_volatile { "volatile " } else { "" };
    let object = format!("({volatile}{place} {atomic}*){}", crate::opencl::render::wrap(&to.node(object)));
    let mut value = |index: usize| call.args.get(index).map(|arg| to.exactly(arg, Shape::Scalar(scalar)));
    let one = if scalar == Scalar::UInt { "1u" } else { "1" };
    let (function, operand) = match operation {
        "add" => ("atomic_fetch_add_explicit", value(1)?),
        "sub" => ("atomic_fetch_sub_explicit", value(1)?),
        "inc" => ("atomic_fetch_add_explicit", one.to_owned()),
        "dec" => ("atomic_fetch_sub_explicit", one.to_owned()),
        "min" => ("atomic_fetch_min_explicit", value(1)?),
        "max" => ("atomic_fetch_max_explicit", value(1)?),
        "and" => ("atomic_fetch_and_explicit", value(1)?),
        "or" => ("atomic_fetch_or_explicit", value(1)?),
        "xor" => ("atomic_fetch_xor_explicit", value(1)?),
        "xchg" if scalar == Scalar::Float => {
            let operand = value(1)?;
            return Some(format!(
                "as_type<float>(atomic_exchange_explicit({object}, as_type<uint>({operand}), memory_order_relaxed))"
            ));
        }
        "xchg" => ("atomic_exchange_explicit", value(1)?),
        "cmpxchg" => {
            let (expected, desired) = (value(1)?, value(2)?);
            let of = scalar.name();
            let name = "cl_atomic_cmpxchg";
            to.helpers.add(&format!("{name} {of} {place}"), name, || {
                format!(
                    "// Stores `value` if `*p` is `expected`; returns what was there.\n\
                     inline {of} {name}(volatile {place} {atomic}* p, {of} expected, {of} value) {{\n    \
                     {of} found = expected;\n    \
                     while (!atomic_compare_exchange_weak_explicit(p, &found, value, memory_order_relaxed, memory_order_relaxed)\n           \
                     && found == expected) {{}}\n    \
                     return found;\n}}"
                )
            });
            return Some(format!("{name}({object}, {expected}, {desired})"));
        }
        _ => return None,
    };
    to.notes.function(call.name, function);
    Some(format!("{function}({object}, {operand}, memory_order_relaxed)"))
}
