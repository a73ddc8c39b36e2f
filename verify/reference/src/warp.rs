//! Modules lowered for NVPTX: special registers, and the synchronization of a warp's lanes.
//!
//! A lane that votes, shuffles or reduces waits for all lanes of its mask that have not exited, which must execute the same
//! operation with the same mask, at any position (PTX ISA, "vote.sync", "shfl.sync", "redux.sync"). Otherwise lanes run in
//! arbitrary order: diverged lanes are never reconverged.

use elinvar_ir::{BinaryOp, Type};

use crate::fault::{Problem, Result};
use crate::group_ops::LANES;
use crate::machine::Machine;
use crate::thread::{Function, State, Thread, Waiting};
use crate::value::{Value, truncated};
use crate::{float, integer};

/// What the names of NVPTX's intrinsics begin with.
pub(crate) const PREFIX: &str = "llvm.nvvm.";

/// The threadgroup barrier.
pub(crate) const BARRIER: &str = "llvm.nvvm.barrier0";

/// The products of matrices, which all lanes make together.
const PRODUCT: &str = "mma.m16n8k";

/// Whether the lanes of a mask execute the same operation.
pub(crate) fn is_shared(name: &str) -> bool {
    let shared = ["vote.ballot.sync", "shfl.sync.", "redux.sync.", "bar.warp.sync", PRODUCT];
    name.strip_prefix(PREFIX).is_some_and(|name| shared.iter().any(|start| name.starts_with(start)))
}

impl Machine<'_> {
    /// An intrinsic that a thread executes alone.
    pub(crate) fn warp_intrinsic(
        &self,
        thread: &Thread<'_>,
        name: &str,
        args: &[Value],
    ) -> Result<Option<Value>> {
        let unknown = || Problem::Unsupported(format!("the intrinsic `{name}`"));
        let name = name.strip_prefix(PREFIX).ok_or_else(unknown)?;
        if let Some(register) = name.strip_prefix("read.ptx.sreg.") {
            if register == "laneid" {
                return Ok(Some(Value::Bits((thread.nominal % LANES) as u128)));
            }
            let (of, dimension) = register.split_once('.').ok_or_else(unknown)?;
            let sizes = match of {
                "tid" => thread.position,
                "ntid" => self.sizes.full_group,
                "ctaid" => self.sizes.group,
                "nctaid" => self.sizes.groups,
                _ => return Err(unknown()),
            };
            let at = ["x", "y", "z"].iter().position(|d| *d == dimension).ok_or_else(unknown)?;
            return Ok(Some(Value::Bits(u128::from(sizes[at]))));
        }
        match (name, args) {
            ("membar.gl" | "membar.sys", []) => Ok(None),
            ("div.rn.f", [a, b]) => {
                a.zip(b, &mut |a, b| float::binary(BinaryOp::FDiv, &Type::Float, a, b)).map(Some)
            }
            _ => Err(unknown()),
        }
    }
}

/// The call's mask.
fn mask(name: &str, call: &Waiting<'_>) -> Result<u32> {
    if name.contains(PRODUCT) {
        return Ok(u32::MAX);
    }
    let last = name.contains("redux.sync.").then(|| call.args.last()).flatten();
    let mask =
        last.or(call.args.first()).ok_or_else(|| Problem::Malformed("a call without a mask".into()))?;
    Ok(mask.known("a mask")? as u32)
}

/// The lanes that can continue, with their results; none if all wait for others. `threads` are those of a warp.
pub(crate) fn meet(threads: &[Thread<'_>]) -> Result<Vec<(usize, Option<Value>)>> {
    for thread in threads {
        let State::AtGroupCall(call) = &thread.state else { continue };
        let name = match call.function {
            Function::Warp(name) => name,
            // Lowering for NVPTX leaves none.
            Function::SimdgroupBarrier | Function::Group(_) => {
                return Err(Problem::Unsupported(format!("{:?} in code for NVPTX", call.function)));
            }
        };
        let wanted = mask(name, call)?;
        let lane = |thread: &Thread<'_>| thread.nominal % LANES;
        if wanted >> lane(thread) & 1 == 0 {
            return Err(Problem::Malformed(format!("lane {} is not in its mask {wanted:#x}", lane(thread))));
        }
        let others = || threads.iter().enumerate().filter(|(_, t)| wanted >> lane(t) & 1 == 1);
        let mut calls: [Option<&[Value]>; LANES] = [None; LANES];
        let mut waits = true;
        for (_, other) in others() {
            match &other.state {
                State::Done => {}
                State::AtGroupCall(theirs)
                    if theirs.function == call.function && mask(name, theirs)? == wanted =>
                {
                    calls[lane(other)] = Some(&theirs.args);
                }
                _ => waits = false,
            }
        }
        if waits {
            let here = others().filter(|(_, t)| calls[lane(t)].is_some());
            return here.map(|(index, t)| Ok((index, result(name, lane(t), &calls)?))).collect();
        }
    }
    Ok(Vec::new())
}

/// The result of a lane.
fn result(name: &str, lane: usize, calls: &[Option<&[Value]>; LANES]) -> Result<Option<Value>> {
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    let number = |lane: usize, index: usize| -> Result<u128> {
        calls[lane].and_then(|args| args.get(index)).map_or(Ok(0), |value| value.known("what a lane passes"))
    };
    if name == "bar.warp.sync" {
        return Ok(None);
    }
    let lanes = || (0..LANES).filter(|lane| calls[*lane].is_some());
    if name == "vote.ballot.sync" {
        let mut votes = 0;
        for voter in lanes() {
            votes |= (number(voter, 1)? & 1) << voter;
        }
        return Ok(Some(Value::Bits(votes)));
    }
    if let Some(op) = name.strip_prefix("redux.sync.") {
        let mut total: Option<u128> = None;
        for from in lanes() {
            let value = number(from, 0)?;
            total = Some(match total {
                None => value,
                Some(total) => reduced(op, total, value)?,
            });
        }
        return Ok(Some(Value::Bits(total.unwrap_or(0))));
    }
    if let Some((depth, ty)) = name.strip_prefix(PRODUCT).and_then(|rest| rest.split_once(".row.col.")) {
        let halves = depth.parse::<usize>().ok().filter(|depth| [8, 16].contains(depth));
        let halves = halves.ok_or_else(|| Problem::Unsupported(format!("the product `{name}`")))? / 8;
        return product(ty, halves, lane, calls).map(Some);
    }
    let mode = name.strip_prefix("shfl.sync.").and_then(|name| name.strip_suffix(".i32"));
    let (b, c) = (number(lane, 2)? as usize & 31, number(lane, 3)? as usize);
    let (segment, clamp) = (c >> 8 & 31, c & 31);
    let most = lane & segment | clamp & !segment;
    let from = match mode {
        Some("up") => lane.checked_sub(b).filter(|from| *from >= most),
        Some("down") => Some(lane + b).filter(|from| *from <= most),
        Some("bfly") => Some(lane ^ b).filter(|from| *from <= most),
        Some("idx") => Some(lane & segment | b & !segment).filter(|from| *from <= most),
        _ => return Err(Problem::Unsupported(format!("the shuffle `{name}`"))),
    };
    // The value of a lane that does not exist is undefined.
    let from = from.unwrap_or(lane);
    Ok(Some(calls[from].and_then(|args| args.get(1)).cloned().unwrap_or(Value::Bits(0xdead_beef))))
}

fn reduced(op: &str, a: u128, b: u128) -> Result<u128> {
    let binary = match op {
        "add" => Some(BinaryOp::Add),
        "and" => Some(BinaryOp::And),
        "or" => Some(BinaryOp::Or),
        "xor" => Some(BinaryOp::Xor),
        _ => None,
    };
    if let Some(op) = binary {
        return integer::binary(op, 32, a, b);
    }
    let name = if op.starts_with('u') { op.to_owned() } else { format!("s{op}") };
    let unknown = || Problem::Unsupported(format!("the reduction `{op}`"));
    integer::pair(&name, 32, a, b).map(|result| truncated(result, 32)).ok_or_else(unknown)
}

/// A lane's elements of a matrix multiply-add (PTX ISA, "Matrix Fragments for mma.m16n8k8" and "for mma.m16n8k16", whose registers are
/// those of the former twice, for consecutive depths).
fn product(ty: &str, depth: usize, lane: usize, calls: &[Option<&[Value]>; LANES]) -> Result<Value> {
    let narrow = if ty == "bf16" { Type::BFloat } else { Type::Half };
    let argument = |lane: usize, index: usize| -> Result<&Value> {
        let value = calls[lane].and_then(|args| args.get(index));
        value.ok_or_else(|| Problem::Malformed("a product of matrices by a part of a warp".into()))
    };
    // Of a register with two elements.
    let element = |lane: usize, index: usize, at: usize| -> Result<f64> {
        let bits = match argument(lane, index)? {
            Value::List(pair) => pair[at].known("an element of a matrix")?,
            word => word.known("an element of a matrix")? >> (16 * at) & 0xffff,
        };
        float::decode(&narrow, bits)
    };
    let (group, pair) = (lane / 4, lane % 4);
    let mut results = Vec::new();
    for number in 0..4 {
        let (high, column) = (number / 2, pair * 2 + number % 2);
        let own = argument(lane, 3 * depth + number)?.known("an element of a matrix")?;
        let mut sum = float::decode(&Type::Float, own)?;
        for k in 0..8 * depth {
            let (left, right) = (2 * (k / 8) + high, 2 * depth + k / 8);
            let (from, at) = (k % 8 / 2, k % 2);
            sum += element(group * 4 + from, left, at)? * element(column * 4 + from, right, at)?;
        }
        results.push(Value::Bits(float::encode(&Type::Float, sum)?));
    }
    Ok(Value::List(results))
}
