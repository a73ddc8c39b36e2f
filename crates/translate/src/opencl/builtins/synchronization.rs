//! Barriers, fences, copies by a threadgroup, and what a thread may ask about the launch.

use crate::opencl::ast::Node;
use crate::opencl::program::Position;
use crate::opencl::render::Renderer;
use crate::opencl::types::{Shape, Space, parse};

use super::Call;

pub(super) fn call(to: &mut Renderer, call: &Call) -> Option<String> {
    match call.name {
        "barrier" | "work_group_barrier" => {
            let flags = flags(to, call)?;
            Some(format!("threadgroup_barrier({flags})"))
        }
        "mem_fence" | "read_mem_fence" | "write_mem_fence" => {
            let flags = flags(to, call)?;
            to.notes.difference("fences need Metal 3.2: `atomic_thread_fence`");
            Some(format!("atomic_thread_fence({flags}, memory_order_acq_rel, thread_scope_threadgroup)"))
        }
        "get_global_offset" => {
            to.notes.difference("`get_global_offset` is 0: Metal has no offset of the grid");
            Some("size_t(0)".into())
        }
        "get_work_dim" => Some(to.refuse(
            call.node,
            "`get_work_dim` has no counterpart in Metal, where every grid has three dimensions",
        )),
        "async_work_group_copy" | "async_work_group_strided_copy" => Some(copy(to, call)),
        "wait_group_events" => {
            Some("threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)".into())
        }
        "prefetch" => Some("(void)0".into()),
        "printf" => print(to, call),
        _ => None,
    }
}

/// `printf` is Metal's default log, which has the same formats, those of vectors included. It returns nothing.
fn print(to: &mut Renderer, call: &Call) -> Option<String> {
    let (format, values) = call.args.split_first()?;
    if format.bare().kind != "StringLiteral" {
        return Some(to.refuse(format, "the format of `printf` must be a string literal"));
    }
    // Each call is a line of the log.
    let text = to.source(format);
    let line = text.strip_suffix("\\n\"").filter(|rest| rest.len() > 1 && !rest.ends_with('\\'));
    let mut texts = vec![line.map_or_else(|| text.to_owned(), |line| format!("{line}\""))];
    for value in values {
        let shape = Shape::of(&value.plain);
        if shape.is_wide() {
            return Some(to.refuse(value, "`printf` of a vector of 8 or 16 components is not supported"));
        }
        texts.push(if shape == Shape::Other { to.node(value) } else { to.exactly(value, shape) });
    }
    to.notes.function("printf", "os_log_default.log");
    to.notes.difference("`printf`: each call is a line of Metal's log (Metal 3.2), and returns nothing");
    Some(format!("os_log_default.log({})", texts.join(", ")))
}

/// The flags of a barrier or fence, which must be constant.
fn flags(to: &mut Renderer, call: &Call) -> Option<String> {
    let argument = call.args.first()?;
    Some(match value(argument) {
        Some(0) => "mem_flags::mem_none".into(),
        Some(1) => "mem_flags::mem_threadgroup".into(),
        Some(2) => "mem_flags::mem_device".into(),
        Some(3) => "mem_flags::mem_device | mem_flags::mem_threadgroup".into(),
        _ => to.refuse(argument, "the flags of a barrier or fence must be constant"),
    })
}

fn value(node: &Node) -> Option<i64> {
    let bare = node.bare();
    match (bare.kind.as_str(), &bare.children[..]) {
        ("IntegerLiteral", _) => bare.value.parse().ok(),
        ("BinaryOperator", [left, right]) if bare.opcode == "|" => Some(value(left)? | value(right)?),
        ("BinaryOperator", [left, right]) if bare.opcode == "+" => Some(value(left)? + value(right)?),
        ("CStyleCastExpr", [inner]) => value(inner),
        _ => None,
    }
}

/// A copy by all threads of the threadgroup. It has ended behind the barrier that `wait_group_events` becomes.
fn copy(to: &mut Renderer, call: &Call) -> String {
    let space =
        |node: &Node| parse(&node.plain).and_then(|ty| ty.pointee().and_then(|to| to.qualifiers().space));
    let of = |node: &Node| {
        let pointee = parse(&node.plain).and_then(|ty| ty.pointee().cloned());
        pointee.map(|ty| Shape::of(&ty.declare("", &str::to_owned)))
    };
    let (Some(target), Some(shape)) = (call.args.first(), call.args.first().and_then(|node| of(node))) else {
        return String::new();
    };
    let is_load = space(target) == Some(Space::Local);
    let (into, from) =
        if is_load { ("threadgroup", "device const") } else { ("device", "threadgroup const") };
    to.wide(shape);
    let is_strided = call.name.contains("strided");
    let name = match (is_load, is_strided) {
        (true, false) => "cl_copy_to_threadgroup",
        (false, false) => "cl_copy_to_device",
        (true, true) => "cl_gather_to_threadgroup",
        (false, true) => "cl_scatter_to_device",
    };
    let element = shape.name();
    let (extra, left, right) = match (is_load, is_strided) {
        (_, false) => ("", "k", "k"),
        (true, true) => (", size_t stride", "k", "k * stride"),
        (false, true) => (", size_t stride", "k * stride", "k"),
    };
    to.helpers.add(&format!("{name} {element}"), name, || {
        format!(
            "// A copy by the threads of the threadgroup, which ends with the next barrier.\n\
             inline int {name}({into} {element}* to, {from} {element}* from, size_t count{extra}, uint3 id, uint3 size) {{\n    \
             uint first = id.x + size.x * (id.y + size.y * id.z);\n    \
             for (size_t k = first; k < count; k += size.x * size.y * size.z) to[{left}] = from[{right}];\n    \
             return 0;\n}}"
        )
    });
    let count = if is_strided { 4 } else { 3 };
    let mut args: Vec<String> = call.args.iter().take(count).map(|arg| to.node(arg)).collect();
    for position in [Position::LocalId, Position::LocalSize] {
        args.push(to.program.names.added(position.word()));
    }
    format!("{name}({})", args.join(", "))
}
