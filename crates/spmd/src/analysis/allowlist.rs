//! Allowlist of module contents: rejects everything that Metal Shading Language cannot express, however clang was made to emit
//! it.
//!
//! Each call must be of a function that the compilers know to be confined to the kernel: an intrinsic of the headers, a function
//! of the module, a C math function, or an LLVM intrinsic of the list below. Variables must be defined in the module, in default
//! sections. The list is the same for all targets and for kernels without bounds checks.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{Global, Location, Module, Op};

use crate::analysis::stack_usage;
use crate::intrinsic::{Intrinsic, PREFIX};
use crate::support::calls::{EXTERNAL, undefined_call};
use crate::support::demangle::source_name;
use crate::support::ir::callee_name;
use crate::{Error, THREADGROUP_SECTION};

/// LLVM intrinsics for computations and hints, by their names without types.
const INTRINSICS: &[&str] = &[
    "abs",
    "acos",
    "arithmetic.fence",
    "asin",
    "assume",
    "atan",
    "atan2",
    "bitreverse",
    "bswap",
    "canonicalize",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "ctlz",
    "ctpop",
    "cttz",
    "donothing",
    "exp",
    "exp10",
    "exp2",
    "expect",
    "experimental.noalias.scope.decl",
    "fabs",
    "floor",
    "fma",
    "fmuladd",
    "fptosi.sat",
    "fptoui.sat",
    "frexp",
    "fshl",
    "fshr",
    "invariant.end",
    "invariant.start",
    "is.constant",
    "is.fpclass",
    "launder.invariant.group",
    "ldexp",
    "lifetime.end",
    "lifetime.start",
    "llrint",
    "llround",
    "log",
    "log10",
    "log2",
    "lrint",
    "lround",
    "maximum",
    "maximumnum",
    "maxnum",
    "memcpy",
    "memmove",
    "memset",
    "minimum",
    "minimumnum",
    "minnum",
    "nearbyint",
    "objectsize",
    "pow",
    "powi",
    "rint",
    "round",
    "roundeven",
    "sadd.sat",
    "sadd.with.overflow",
    "scmp",
    "sideeffect",
    "sin",
    "sincos",
    "sinh",
    "smax",
    "smin",
    "smul.with.overflow",
    "sqrt",
    "sshl.sat",
    "ssub.sat",
    "ssub.with.overflow",
    "strip.invariant.group",
    "tan",
    "tanh",
    "trunc",
    "uadd.sat",
    "uadd.with.overflow",
    "ucmp",
    "umax",
    "umin",
    "umul.with.overflow",
    "ushl.sat",
    "usub.sat",
    "usub.with.overflow",
    "vector.reduce.add",
    "vector.reduce.and",
    "vector.reduce.fadd",
    "vector.reduce.fmax",
    "vector.reduce.fmaximum",
    "vector.reduce.fmin",
    "vector.reduce.fminimum",
    "vector.reduce.fmul",
    "vector.reduce.mul",
    "vector.reduce.or",
    "vector.reduce.smax",
    "vector.reduce.smin",
    "vector.reduce.umax",
    "vector.reduce.umin",
    "vector.reduce.xor",
];

/// Rejects a module with anything else.
///
/// # Errors
/// `Unsupported` that names it and, for a call, has its line.
pub(crate) fn check(module: &Module) -> Result<(), Error> {
    module.globals.iter().try_for_each(variable)?;
    let mut calls = HashMap::new();
    for function in module.functions.iter().filter(|f| !f.is_declaration()) {
        if let Some(word) = odd_word(&function.suffix) {
            let what = format!("the function `{}` with `{word}`", source_name(&function.name));
            return Err(Error::unsupported(what, None));
        }
        let mut called = Vec::new();
        for inst in function.blocks.iter().flat_map(|b| &b.insts) {
            let Op::Call(call) = &inst.op else { continue };
            let location = module.location(&inst.metadata);
            let Some(name) = callee_name(call) else {
                return Err(Error::unsupported("a call through a function pointer", location));
            };
            if !is_known(module, name) {
                return Err(refusal(name, location));
            }
            called.push((name, location));
        }
        calls.insert(function.name.as_str(), called);
    }
    recursion(&calls)?;
    stack_usage::check(module)
}

fn refusal(name: &str, location: Option<Location>) -> Error {
    let what = match name.strip_prefix("llvm.") {
        Some(intrinsic) => format!("the compiler's intrinsic `{intrinsic}`"),
        None => undefined_call(name),
    };
    Error::unsupported(what, location)
}

/// Whether a function of this name may be called.
fn is_known(module: &Module, name: &str) -> bool {
    if let Some(intrinsic) = name.strip_prefix("llvm.") {
        return is_intrinsic(intrinsic);
    }
    if module.function(name).is_some_and(|f| !f.is_declaration()) {
        return true;
    }
    match Intrinsic::parse(name) {
        // Only passes insert calls of these.
        Some(Intrinsic::Position(position)) => position.is_declared(),
        Some(_) => true,
        // A target rejects those that it lacks.
        None => name.starts_with(PREFIX) || EXTERNAL.binary_search(&name).is_ok(),
    }
}

/// Whether an intrinsic is in the list, followed by type suffixes only.
fn is_intrinsic(name: &str) -> bool {
    let mut end = name.len();
    loop {
        let (base, types) = name.split_at(end);
        if INTRINSICS.binary_search(&base).is_ok() {
            return types.split('.').skip(1).all(is_type);
        }
        match base.rfind('.') {
            Some(dot) => end = dot,
            None => return false,
        }
    }
}

/// Whether a component of an intrinsic's name is a type: `i32`, `v4f32`, `p0`, `bf16`, `sl_i32f32s`.
fn is_type(part: &str) -> bool {
    let numbered = |head: &str| {
        part.strip_prefix(head)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let vector = || {
        let rest = part.strip_prefix('v')?;
        let element = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        (element.len() < rest.len()).then(|| is_type(element))
    };
    ["i", "f", "bf", "p"].into_iter().any(numbered) || vector() == Some(true) || part.starts_with("sl_")
}

/// Function attributes that attach foreign code or a section.
fn odd_word(suffix: &str) -> Option<&str> {
    let words = suffix.split_whitespace();
    words
        .into_iter()
        .find(|word| matches!(*word, "section" | "partition" | "gc" | "prefix" | "prologue" | "personality"))
}

/// Rejects variables that are external, thread-local or in a custom section.
fn variable(global: &Global) -> Result<(), Error> {
    let name = source_name(&global.name);
    let refuse = |what: String| Err(Error::unsupported(what, None));
    // The compiler's own lists, which nothing references.
    if global.name.starts_with("llvm.") {
        return Ok(());
    }
    if global.init.is_none() {
        return refuse(format!("the variable `{name}`, which is declared but not defined"));
    }
    if global.linkage.contains("thread_local") {
        return refuse(format!("the thread-local variable `{name}`"));
    }
    if global.linkage.contains("addrspace") {
        return refuse(format!("the variable `{name}` in a processor-specific address space"));
    }
    match global.section.as_deref() {
        None | Some(THREADGROUP_SECTION) => Ok(()),
        Some(section) => refuse(format!("the variable `{name}` in the section `{section}`")),
    }
}

/// Rejects recursion, direct or indirect, since its stack usage is unbounded.
fn recursion(calls: &HashMap<&str, Vec<(&str, Option<Location>)>>) -> Result<(), Error> {
    let mut done: HashSet<&str> = HashSet::new();
    for root in calls.keys() {
        let mut way: Vec<(&str, usize)> = vec![(root, 0)];
        while let Some((name, next)) = way.last_mut() {
            let Some((callee, location)) = calls.get(name).and_then(|list| list.get(*next)) else {
                done.insert(*name);
                way.pop();
                continue;
            };
            *next += 1;
            if way.iter().any(|(name, _)| name == callee) {
                let what = format!("a recursive call of `{}`", source_name(callee));
                return Err(Error::unsupported(what, location.clone()));
            }
            if !done.contains(callee) && calls.contains_key(callee) {
                way.push((callee, 0));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        check(&Module::parse(text).unwrap()).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn intrinsics_by_name_and_type() {
        assert!(INTRINSICS.is_sorted());
        for known in [
            "fma.f32",
            "fptosi.sat.i32.f16",
            "memcpy.p0.p0.i64",
            "vector.reduce.fadd.v4f32",
            "assume",
            "abs.v2bf16",
            "lifetime.start.p0",
            "umul.with.overflow.i64",
            "sincos.f32",
        ] {
            assert!(is_intrinsic(known), "{known}");
        }
        for other in [
            "trap",
            "debugtrap",
            "ubsantrap",
            "x86.sse.ldmxcsr",
            "x86.sse2.maskmov.dqu",
            "x86.fxsave",
            "x86.sse2.clflush",
            "eh.sjlj.longjmp",
            "eh.sjlj.setjmp",
            "returnaddress.p0",
            "frameaddress.p0",
            "stacksave.p0",
            "va_start.p0",
            "masked.store.v4f32.p0",
            "masked.scatter.v4f32.v4p0",
            "write_register.i64",
            "read_volatile_register.i64",
            "memcpy.inline.p0.p0.i64",
            "memcpy.element.unordered.atomic.p0.p0.i64",
            "clear_cache",
            "set.rounding",
            "readcyclecounter",
            "prefetch.p0",
            "coro.resume",
            "set.fpenv.i64",
            "nvvm.membar.sys",
            "fma",
            "load.relative.i64",
            "thread.pointer",
            "localescape",
            "fmax.f32",
            "memset.pattern.p0.i64",
            "call.preallocated.setup",
            "longjmp",
        ] {
            let base = other.split('.').next().unwrap();
            assert_eq!(is_intrinsic(other), base == "fma", "{other}");
        }
    }

    #[test]
    fn calls_and_variables() {
        let with = |call: &str, more: &str| {
            refused(&format!("define void @__elinvar_entry(ptr %a) {{\n  {call}\n  ret void\n}}\n{more}"))
        };
        assert_eq!(
            with("%x = call i32 @bcmp(ptr %a, ptr %a, i64 4)", "declare i32 @bcmp(ptr, ptr, i64)"),
            ""
        );
        assert_eq!(with("%x = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)", ""), "");
        for (call, more, part) in [
            ("%x = call i32 @system(ptr %a)", "declare i32 @system(ptr)", "`system`"),
            ("call void @llvm.trap()", "declare void @llvm.trap()", "intrinsic `trap`"),
            ("%x = call ptr @__elinvar_fault_record()", "", "__elinvar_fault_record"),
            ("%x = call i64 @__elinvar_argument_bytes(i32 0)", "", "__elinvar_argument_bytes"),
            ("call void %a()", "", "function pointer"),
            ("%x = load i32, ptr @environ", "@environ = external global i32", "`environ`"),
            ("", "@t = internal thread_local global i32 0", "thread-local variable `t`"),
            ("", "@t = internal global i32 0, section \".init_array\"", "section `.init_array`"),
            (
                "call void @f()",
                "define void @f() {\n  call void @g()\n  ret void\n}\n\
              define void @g() {\n  call void @f()\n  ret void\n}",
                "recursive",
            ),
            ("", "define void @f() section \".init\" {\n  ret void\n}", "`f` with `section`"),
        ] {
            let message = with(call, more);
            assert!(message.contains(part), "{part} in {message}");
        }
    }
}
