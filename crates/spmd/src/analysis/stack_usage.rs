//! How much private memory a thread of a kernel needs, and the most that it may.
//!
//! Small private arrays are on the stack of the thread that runs a threadgroup, larger ones of the entry in scratch memory, and those
//! of functions that are not inlined in their frames. Calls do not recurse ([`admit`](crate::analysis::allowlist)), so the sum over the deepest
//! chain of calls is known, and a kernel that needs more than [`MOST`] is refused. That leaves most of a worker's stack to what
//! a code generator keeps there. Should that be too little all the same, every page of a frame is touched in order ([`PROBES`]),
//! so that no access gets past the page below the stack that nobody may touch.

use std::collections::HashMap;

use elinvar_ir::{Function, Location, Module, Op, Operand};

use crate::support::ir::callee_name;
use crate::{ENTRY, Error};

/// Bytes of private memory that a thread may have: as on NVIDIA GPUs, which have 512 KiB of local memory for each (CUDA C++
/// Programming Guide, "Technical Specifications per Compute Capability").
const MOST: u64 = 512 << 10;

/// Has LLVM touch every page of a frame as it is made, on processors for which it can (x86-64; AArch64 from LLVM 18 on): the
/// attribute `probe-stack` of functions, LLVM Language Reference.
pub(crate) const PROBES: &str = "\"probe-stack\"=\"inline-asm\"";

/// Refuse a kernel whose threads need more private memory than they may have.
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

/// What a chain of calls needs.
#[derive(Clone, Default)]
struct Depth {
    bytes: u64,
    location: Option<Location>,
}

struct Depths<'a> {
    module: &'a Module,
    /// Of functions that were looked at, or are being: a recursive call counts as none, and is refused elsewhere.
    known: HashMap<&'a str, Depth>,
}

impl<'a> Depths<'a> {
    /// What a function's frame needs, and below it the deepest of its calls.
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

/// How many an allocation is of; one where that is no constant, which is refused elsewhere.
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
