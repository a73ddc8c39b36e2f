//! A kernel's [`Signature`] as text and JSON.

use std::fmt::Write;

use elinvar::{Access, ArgKind, Signature};
use elinvar_driver::{Arg, LogSite};
use serde_json::{Value, json};

/// An argument's declaration in MSL: `device const float* a`.
pub fn declaration(arg: &Arg) -> String {
    let space = match arg.kind {
        ArgKind::Threadgroup => "threadgroup",
        _ if arg.constant => "constant",
        _ if arg.access == Access::Read => "device const",
        _ => "device",
    };
    let mark = if arg.kind == ArgKind::Reference { '&' } else { '*' };
    format!("{space} {}{mark} {}", arg.element, arg.name).trim_end().into()
}

/// All arguments of a kernel, for messages.
pub fn argument_list(signature: &Signature) -> String {
    match signature.args.is_empty() {
        true => "no arguments".into(),
        false => signature.args.iter().map(declaration).collect::<Vec<_>>().join(", "),
    }
}

/// The block that `check` prints.
pub fn text(signature: &Signature) -> String {
    let Signature { name, file, line, .. } = signature;
    let mut out = format!("kernel {name}  ({file}:{line}, {}-D)", signature.dimensions());
    for (position, arg) in signature.args.iter().enumerate() {
        let index = match arg.kind {
            ArgKind::Threadgroup => format!("threadgroup({})", arg.index),
            _ => format!("buffer({})", arg.index),
        };
        let (size, align) = (arg.element_size, arg.element_align);
        let access = match arg.access {
            Access::Read => "read",
            Access::ReadWrite => "read, write",
        };
        let _ = write!(
            out,
            "\n  {position:>2}  {:<36} {index:<16} {size} bytes, align {align}; {access}",
            declaration(arg)
        );
    }
    for builtin in &signature.builtins {
        let _ = write!(out, "\n      {} ({}-D)", builtin.attribute, builtin.dimensions);
    }
    if let Some(max) = signature.max_threads_per_threadgroup {
        let _ = write!(out, "\n      at most {max} threads per threadgroup");
    }
    if let Some(code) = signature.code {
        let _ = write!(
            out,
            "\n      threadgroup memory {} bytes; barriers {}; atomics {}; simdgroup functions {}",
            code.threadgroup_memory,
            code.barriers,
            code.atomics,
            if code.simdgroup { "yes" } else { "no" }
        );
        if code.grid_barriers > 0 {
            let _ = write!(out, "; grid barriers {}", code.grid_barriers);
        }
    }
    for log in &signature.logs {
        let _ = write!(out, "\n      log {} {:?} at {}:{}", log.level, log.format, log.file, log.line);
    }
    out
}

/// The signature as JSON; `code` is null, and `logs` is empty, until the code has been built.
pub fn to_json(signature: &Signature) -> Value {
    let args: Vec<Value> = signature.args.iter().map(arg_json).collect();
    let builtins: Vec<Value> = signature
        .builtins
        .iter()
        .map(|b| json!({ "attribute": b.attribute, "dimensions": b.dimensions }))
        .collect();
    let code = signature.code.map(|code| {
        json!({
            "threadgroup_memory": code.threadgroup_memory,
            "barriers": code.barriers,
            "grid_barriers": code.grid_barriers,
            "divergent_barrier": code.divergent_barrier,
            "spin_wait": code.spin_wait,
            "atomics": code.atomics,
            "simdgroup": code.simdgroup,
        })
    });
    json!({
        "name": signature.name,
        "file": signature.file,
        "line": signature.line,
        "dimensions": signature.dimensions(),
        "args": args,
        "builtins": builtins,
        "max_threads_per_threadgroup": signature.max_threads_per_threadgroup,
        "code": code,
        "logs": signature.logs.iter().map(log_json).collect::<Vec<_>>(),
    })
}

fn log_json(log: &LogSite) -> Value {
    json!({
        "level": log.level.to_string(),
        "subsystem": log.subsystem,
        "category": log.category,
        "format": log.format,
        "file": log.file,
        "line": log.line,
    })
}

fn arg_json(arg: &Arg) -> Value {
    json!({
        "name": arg.name,
        "kind": match arg.kind {
            ArgKind::Pointer => "pointer",
            ArgKind::Reference => "reference",
            ArgKind::Threadgroup => "threadgroup",
        },
        "index": arg.index,
        "type": arg.element.to_string(),
        "size": arg.element_size,
        "align": arg.element_align,
        "access": match arg.access {
            Access::Read => "read",
            Access::ReadWrite => "read_write",
        },
        "constant": arg.constant,
    })
}
