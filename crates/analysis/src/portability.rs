//! Limits and features of Apple's GPU families that a kernel's code needs.
//!
//! Facts are those of Apple's Metal Feature Set Tables of October 20, 2025, tables "Metal feature availability by GPU family" and "GPU
//! implementation limits by family", by hardware family; Apple10 has the limits of Apple9. The argument tables, which all families share
//! (indices 0 to 30), are the front end's, but for indices that it assigns itself; features that depend on the operating system alone are not checked, nor is 64-bit integer
//! arithmetic (Apple3), which addresses have too.

use std::fmt;
use std::str::FromStr;

use elinvar_driver::{Arg, ArgKind, Signature};
use elinvar_ir::{Callee, Inst, Location, Module, Op, RmwOp, Type, ValueId};
use elinvar_spmd::ENTRY;
use elinvar_spmd::intrinsic::{Group, GroupOp, Intrinsic};

use crate::forms::Kernel;
use crate::missing_barriers::missing_barriers;

/// An Apple GPU family, `MTLGPUFamilyApple2` to `MTLGPUFamilyApple10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppleFamily(u32);

impl AppleFamily {
    /// The family of the first Macs with Apple silicon, of M1.
    pub const M1: Self = Self(7);

    /// Number in the name, 2 to 10.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Largest static and dynamic threadgroup memory of a threadgroup in bytes.
    pub const fn threadgroup_bytes(self) -> u64 {
        match self.0 {
            ..3 => 16352,
            3 => 16384,
            _ => 32768,
        }
    }

    /// Largest number of threads of a threadgroup.
    pub const fn max_threads(self) -> u32 {
        if self.0 < 4 { 512 } else { 1024 }
    }
}

impl FromStr for AppleFamily {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("apple").and_then(|number| number.parse().ok());
        number
            .filter(|number| (2..=10).contains(number))
            .map(Self)
            .ok_or_else(|| format!("unknown GPU family `{text}`: expected apple2 to apple10"))
    }
}

impl fmt::Display for AppleFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "apple{}", self.0)
    }
}

/// Unit of the size of a threadgroup argument in bytes (`setThreadgroupMemoryLength`).
const ARGUMENT_UNIT: u64 = 16;

/// Why a family does not support a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The place; `None` for the kernel as a whole.
    pub location: Option<Location>,
    /// The limit or feature, and what the kernel needs.
    pub reason: String,
}

/// The first family with a feature, and the feature's name.
type Feature = (u32, &'static str);

/// What a family does not support of a kernel: limits first, then features in the order of the code, each once, then missing barriers.
pub fn violations(family: AppleFamily, module: &Module, signature: &Signature) -> Vec<Violation> {
    let mut found: Vec<Violation> = limits(family, module, signature)
        .into_iter()
        .map(|reason| Violation { location: None, reason: format!("{reason} (GPU family {family})") })
        .collect();
    for inst in module.functions.iter().flat_map(|f| &f.blocks).flat_map(|block| &block.insts) {
        let reason = match (extension(inst), feature(module, inst)) {
            (Some(reason), _) => reason.to_owned(),
            (None, Some((first, name))) if family.0 < first => {
                format!("{name}: from GPU family apple{first} on, not {family}")
            }
            (None, _) => continue,
        };
        if found.iter().all(|known| known.reason != reason) {
            found.push(Violation { location: module.location(&inst.metadata), reason });
        }
    }
    let entry = module.function(ENTRY).filter(|entry| entry.params.len() == signature.args.len());
    if let Some(entry) = entry.filter(|entry| !entry.is_declaration()) {
        found.extend(missing_barriers(&Kernel::new(module, entry, signature)));
    }
    found
}

fn limits(family: AppleFamily, module: &Module, signature: &Signature) -> Vec<String> {
    let mut found = Vec::new();
    let most = family.threadgroup_bytes();
    if let Some(code) = signature.code {
        let bytes = code.threadgroup_memory;
        let shared = arguments(module, signature).filter(|arg| arg.kind == ArgKind::Threadgroup);
        let (count, least) = shared.fold((0, 0), |(count, bytes), arg| {
            (count + 1, bytes + arg.element_size.next_multiple_of(ARGUMENT_UNIT))
        });
        if bytes > most {
            found.push(format!("{bytes} bytes of threadgroup memory, {most} at most"));
        } else if bytes + least > most {
            let arguments = if count == 1 { "its argument" } else { "its arguments" };
            found.push(format!(
                "{bytes} bytes of threadgroup memory and at least {least} of {arguments}, {most} at most"
            ));
        }
    }
    if let Some(threads) =
        signature.max_threads_per_threadgroup.filter(|threads| *threads > family.max_threads())
    {
        let most = family.max_threads();
        found.push(format!("`max_total_threads_per_threadgroup({threads})`, {most} threads at most"));
    }
    found
}

/// The arguments that the code uses.
fn arguments<'a>(module: &'a Module, signature: &'a Signature) -> impl Iterator<Item = &'a Arg> {
    let entry = module.function(ENTRY);
    let params = entry.map_or(&[][..], |entry| &entry.params);
    let is_used = move |value: ValueId| {
        let mut insts = entry.into_iter().flat_map(|entry| &entry.blocks).flat_map(|block| &block.insts);
        insts.any(|inst| inst.op.operands().into_iter().any(|operand| operand.value() == Some(value)))
    };
    signature.args.iter().zip(params).filter(move |(_, param)| is_used(param.value)).map(|(arg, _)| arg)
}

/// The feature that an instruction needs.
fn feature(module: &Module, inst: &Inst) -> Option<Feature> {
    const PERMUTE: Feature = (6, "SIMD-group permute operations");
    match &inst.op {
        Op::AtomicRmw { value, .. } if value.ty.is_float() => Some((7, "floating-point atomics")),
        // Some GPUs of Apple8, those of Macs, have them too.
        Op::AtomicRmw { value, .. } if value.ty == Type::I64 => Some((9, "64-bit atomics")),
        Op::CmpXchg { new, .. } if new.ty == Type::I64 => Some((9, "64-bit atomics")),
        Op::Call(call) => {
            let Callee::Function(name) = &call.callee else { return None };
            let Some(Intrinsic::Group(group)) = Intrinsic::parse(name) else { return None };
            Some(match (group.op, group.group) {
                (GroupOp::MatrixMultiplyAccumulate, _) => (7, "SIMD-group matrix operations"),
                (GroupOp::ShuffleAndFillUp | GroupOp::ShuffleAndFillDown, _) => {
                    (8, "SIMD-group shift and fill")
                }
                (op, Group::Simdgroup) if op.reduction().is_some() => (7, "SIMD-group reductions"),
                (op, Group::Quadgroup) if op.reduction().is_some() => (7, "quad-group reductions"),
                (_, Group::Quadgroup) => (4, "quad-group permute operations"),
                (_, Group::Simdgroup) => PERMUTE,
            })
        }
        op => {
            let is_bfloat = |ty: Type| *ty.scalar() == Type::BFloat;
            op.result_type(module).is_some_and(is_bfloat).then_some((6, "`bfloat`"))
        }
    }
}

/// What Metal has on no family.
fn extension(inst: &Inst) -> Option<&'static str> {
    // Metal Shading Language Specification, "Atomic Modify Functions (64 Bits)".
    const WIDE: &str = "64-bit atomics: Metal has minimum and maximum of `atomic_ulong`, and no others";
    let call = match &inst.op {
        Op::AtomicRmw { op, value, .. } if value.ty == Type::I64 => {
            return (!matches!(op, RmwOp::UMax | RmwOp::UMin)).then_some(WIDE);
        }
        Op::CmpXchg { new, .. } if new.ty == Type::I64 => return Some(WIDE),
        Op::Call(call) => call,
        _ => return None,
    };
    let Callee::Function(name) = &call.callee else { return None };
    match Intrinsic::parse(name)? {
        Intrinsic::GridBarrier => Some("`elinvar::grid_barrier`: Metal has no barrier of the grid"),
        Intrinsic::Yield => {
            Some("a resident kernel: Metal does not promise that threadgroups run at the same time")
        }
        _ => None,
    }
}
