//! Private memory of a thread: its size, and the limit.
//!
//! Small private arrays are on the stack of the worker; larger ones of the entry are in scratch memory; those of functions that
//! are not inlined are in their frames. Calls do not recurse ([`allowlist`](crate::analysis::allowlist)), so the sum over the deepest
//! call chain is known, and a kernel above [`MOST`] is rejected. That leaves most of a worker's stack to the code generator. If
//! that should not suffice, every page of a frame is probed in order ([`PROBES`]), so that no access bypasses the guard page
//! below the stack.

use std::collections::HashMap;

use elinvar_ir::{Function, Location, Module, Op, Operand};

use crate::support::ir::callee_name;
use crate::{ENTRY, Error};

/// Maximum private memory of a thread in bytes: that of NVIDIA GPUs, 512 KiB of local memory (CUDA C++
/// Programming Guide, "Technical Specifications per Compute Capability").
const MOST: u64 = 512 << 10;

/// Makes LLVM probe every page of a frame at allocation, on targets that support it (x86-64; AArch64 from LLVM 18 on): the
/// attribute `probe-stack` of functions, LLVM Language Reference.
pub(crate) const PROBES: &str = "\"probe-stack\"=\"inline-asm\"";

/// Rejects a kernel whose threads need more than [`MOST`] bytes of private memory.
///
/// # Errors
/// `Unsupported` with the bytes, and the line of the largest array or of its frame's.
pub(crate) fn check(module: &Module) -> Result<(), Error> {
    let Some(entry) = module.function(ENTRY) else { return Ok(()) };
    let deepest = Depths { module, known: HashMap::new() }.of(entry);
    if deepest.bytes <= MOST {
        return Ok(());
    }
    let what = format!(
        "private arrays of {} bytes for each thread, with those of the functions that it is in: at most {MOST} bytes are allowed",
        deepest.bytes
    );
    Err(Error::unsupported(what, deepest.location))
}

/// Stack usage of a call chain.
#[derive(Clone, Default)]
struct Depth {
    bytes: u64,
    location: Option<Location>,
}

struct Depths<'a> {
    module: &'a Module,
    /// Results for functions, including those in progress: a recursive call counts as 0, and is rejected elsewhere.
    known: HashMap<&'a str, Depth>,
}

impl<'a> Depths<'a> {
    /// Size of a function's frame and of the deepest call chain below it.
    fn of(&mut self, function: &'a Function) -> Depth {
        if let Some(depth) = self.known.get(function.name.as_str()) {
            return depth.clone();
        }
        self.known.insert(&function.name, Depth::default());
        let (mut own, mut below, mut largest) = (Depth::default(), Depth::default(), 0);
        for inst in function.blocks.iter().flat_map(|block| &block.insts) {
            match &inst.op {
                Op::Alloca { ty, count, align, .. } => {
                    let (size, natural) = ty.size_align(self.module);
                    let align = align.unwrap_or(natural).max(1);
                    let bytes = size.saturating_mul(elements(count.as_ref().map(|count| &count.op)));
                    let bytes = bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX);
                    own.bytes = own.bytes.saturating_add(bytes);
                    if bytes > largest {
                        (largest, own.location) = (bytes, self.module.location(&inst.metadata));
                    }
                }
                Op::Call(call) => {
                    let callee = callee_name(call).and_then(|name| self.module.function(name));
                    let Some(callee) = callee.filter(|callee| !callee.is_declaration()) else { continue };
                    let Depth { bytes, location } = self.of(callee);
                    if bytes > below.bytes {
                        let call = || self.module.location(&inst.metadata);
                        below = Depth { bytes, location: location.or_else(call) };
                    }
                }
                _ => {}
            }
        }
        let location = if largest >= below.bytes { own.location } else { below.location };
        let depth = Depth { bytes: own.bytes.saturating_add(below.bytes), location };
        self.known.insert(&function.name, depth.clone());
        depth
    }
}

/// Number of elements of an alloca; 1 if it is not constant, which is rejected elsewhere.
fn elements(count: Option<&Operand>) -> u64 {
    match count {
        Some(Operand::Const(count)) => count.as_unsigned(64).map_or(1, |count| count as u64),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Option<String> {
        let result = check(&Module::parse(text).unwrap());
        result.err().map(|error| error.to_string())
    }

    fn entry(body: &str) -> String {
        format!("define void @{ENTRY}(ptr %p) {{\n{body}\n  ret void\n}}\n")
    }

    #[test]
    fn the_sum_of_a_chain_of_calls_counts() {
        let alloca = |bytes: u64| format!("  %a = alloca [{bytes} x i8], align 16");
        let function =
            |name: &str, body: &str| format!("define internal void @{name}() {{\n{body}\n  ret void\n}}\n");
        assert_eq!(refused(&entry(&alloca(MOST))), None);
        let text = refused(&entry(&alloca(MOST + 1))).unwrap();
        assert!(text.contains("524304 bytes for each thread") && text.contains("at most 524288"), "{text}");
        // Two that are called one after the other do not add up; two within each other do.
        let half = MOST / 2;
        let two = function("f", &alloca(half)) + &function("g", &alloca(half));
        let calls = "  call void @f()\n  call void @g()\n  call void @f()";
        assert_eq!(refused(&(entry(&format!("{}\n{calls}", alloca(half))) + &two)), None);
        let chain = function("f", &(alloca(half) + "\n  call void @g()")) + &function("g", &alloca(half));
        assert_eq!(refused(&(entry("  call void @f()") + &chain)), None);
        let text = refused(&(entry(&format!("{}\n  call void @f()", alloca(16))) + &chain)).unwrap();
        assert!(text.contains("524304 bytes"), "{text}");
    }

    #[test]
    fn sizes_beyond_64_bits_and_recursion_end() {
        let huge = "  %a = alloca [4611686018427387904 x i64], align 16\n  %b = alloca i64, i64 -1, align 8";
        assert!(refused(&entry(huge)).is_some());
        let round = "define internal void @f() {\n  %a = alloca i64\n  call void @f()\n  ret void\n}\n";
        assert_eq!(refused(&(entry("  call void @f()") + round)), None);
    }
}
