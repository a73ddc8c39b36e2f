//! Library of simdgroup functions, as LLVM IR text: shuffles, votes and reductions of a warp's lanes, each with the mask of the
//! calling lanes.
//!
//! The value that a shuffle reads from a lane outside the mask is undefined, as in Metal. Reductions are in
//! [`reductions`], matrix products in [`matrix_product`].

use std::collections::BTreeSet;
use std::fmt::Write as _;

use elinvar_ir::Module;

use super::{matrix_loads, matrix_product, reductions, simdgroup};
use crate::Error;
use crate::intrinsic::{self, Element, GroupCall, GroupOp, Intrinsic};

/// Prefix of the library's names.
pub(super) const PREFIX: &str = "elinvar.";

/// Prefix of the names of sequential reductions over the active lanes.
pub(super) const ACTIVE: &str = "active.";

/// Suffix of the names of shuffles with a distance that is known to be in range.
const NEAR: &str = ".near";

/// The library's name of a group operation.
pub(super) fn name(call: GroupCall, near: bool) -> String {
    format!("{PREFIX}{}{}", call.name(), if near { NEAR } else { "" })
}

/// The operation with this name, and whether its distance is known to be in range.
fn operation(rest: &str) -> Option<(GroupCall, bool)> {
    let (name, near) = match rest.strip_suffix(NEAR) {
        Some(name) => (name, true),
        None => (rest, false),
    };
    match Intrinsic::parse(&format!("{}{name}", intrinsic::PREFIX))? {
        Intrinsic::Group(call) => Some((call, near)),
        Intrinsic::Position(_)
        | Intrinsic::ThreadgroupBarrier
        | Intrinsic::GridBarrier
        | Intrinsic::Yield
        | Intrinsic::SimdgroupBarrier
        | Intrinsic::Scale
        | Intrinsic::Log
        | Intrinsic::HasTensorProduct
        | Intrinsic::TensorProduct => None,
    }
}

/// The group width for which a shuffle is cheaper if its distance is known to be smaller.
pub(super) fn has_near(call: GroupCall) -> Option<u32> {
    matches!(call.op, GroupOp::ShuffleUp | GroupOp::ShuffleDown).then(|| call.group.width())
}

/// Adds the functions with these names, and their callees.
pub(super) fn add(module: &mut Module, names: BTreeSet<String>) -> Result<(), Error> {
    let mut text = String::new();
    let (mut todo, mut done): (Vec<String>, BTreeSet<String>) =
        (names.into_iter().collect(), BTreeSet::new());
    while let Some(name) = todo.pop() {
        if !done.insert(name.clone()) {
            continue;
        }
        let mut body = Body::default();
        let unknown = || Error::Malformed(format!("no function `{name}` across a simdgroup"));
        define(&name, &mut body).ok_or_else(unknown)?;
        text += &body.text;
        todo.extend(body.calls);
    }
    let parsed = Module::parse(&text).map_err(|error| Error::Malformed(format!("{error} in\n{text}")))?;
    module.functions.extend(parsed.functions);
    Ok(())
}

/// Element type of an operation.
#[derive(Clone, Copy)]
pub(super) struct Scalar {
    pub element: Element,
    /// The type in IR.
    pub ty: &'static str,
    /// The type in which it is reduced.
    pub wide: &'static str,
}

/// The types that are shuffled: a word and a float.
pub(super) const WORD: Scalar = scalar(Element::U32);
pub(super) const FLOAT: Scalar = scalar(Element::F32);

pub(super) const fn scalar(element: Element) -> Scalar {
    let (ty, wide) = match element {
        Element::Bool => ("i1", "i32"),
        Element::I8 | Element::U8 => ("i8", "i32"),
        Element::I16 | Element::U16 => ("i16", "i32"),
        Element::I32 | Element::U32 => ("i32", "i32"),
        Element::I64 | Element::U64 => ("i64", "i64"),
        Element::F16 => ("half", "float"),
        Element::BF16 => ("bfloat", "float"),
        Element::F32 => ("float", "float"),
    };
    Scalar { element, ty, wide }
}

/// The text of a function.
#[derive(Default)]
pub(super) struct Body {
    text: String,
    /// Library functions that it calls.
    pub calls: Vec<String>,
}

impl Body {
    pub fn line(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.text, "  {}", line.as_ref());
    }

    pub fn label(&mut self, label: &str) {
        let _ = writeln!(self.text, "{label}:");
    }

    pub fn open(&mut self, ret: &str, name: &str, params: &str, inlined: bool) {
        let inlined = if inlined { "alwaysinline" } else { "noinline" };
        let _ =
            writeln!(self.text, "define internal {ret} @{name}({params}) {inlined} convergent nounwind {{");
    }

    pub fn close(&mut self, ret: &str, value: &str) {
        let _ = writeln!(self.text, "  ret {ret} {value}\n}}");
    }

    /// `%to` is lane `%lane` of this thread's warp.
    pub fn lane(&mut self) {
        self.line("%lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()");
    }

    /// `to` is `value` of another lane: by a mode of `shfl.sync`, its operands `b` and `c`.
    pub fn shuffle(&mut self, to: &str, mode: &str, s: Scalar, value: &str, b: &str, c: u32) {
        let name = format!("{PREFIX}shfl.{mode}.{c}.{}", s.ty);
        self.line(format!("{to} = call {} @{name}({} {value}, i32 {b}, i32 %mask)", s.ty, s.ty));
        self.calls.push(name);
    }
}

/// The `c` operand that keeps a shuffle within groups of `width` lanes (PTX ISA, "shfl.sync").
pub(super) fn within(width: u32, up: bool) -> u32 {
    (32 - width) << 8 | if up { 0 } else { 31 & (width - 1) }
}

fn define(name: &str, body: &mut Body) -> Option<()> {
    let rest = name.strip_prefix(PREFIX)?;
    if name == simdgroup::EXECUTION_BARRIER {
        body.open("void", name, "i32 %mask", true);
        body.line(format!("call void @{}(i32 %mask)", simdgroup::BARRIER));
        body.line("ret void\n}");
        return Some(());
    }
    if rest.starts_with("product") {
        return matrix_product::define(name, body);
    }
    if rest.starts_with("matrix_load") {
        return matrix_loads::define(name, body);
    }
    if let Some(rest) = rest.strip_prefix("shfl.") {
        return word_shuffle(name, rest, body);
    }
    if let Some(rest) = rest.strip_prefix(ACTIVE) {
        let (call, _) = operation(rest)?;
        let (reduction, extent) = call.op.reduction()?;
        reductions::reduce_active(name, reduction, extent, call.group.width(), scalar(call.element?), body);
        return Some(());
    }
    let (call, near) = operation(rest)?;
    let (width, s) = (call.group.width(), call.element.map(scalar));
    match call.op {
        GroupOp::Ballot => ballot(name, width, body),
        GroupOp::IsFirst => is_first(name, width, body),
        GroupOp::BroadcastFirst => broadcast_first(name, width, s?, body),
        GroupOp::Broadcast | GroupOp::Shuffle => shuffle(name, Shuffle::To, width, s?, body),
        GroupOp::ShuffleXor => shuffle(name, Shuffle::Xor, width, s?, body),
        GroupOp::ShuffleUp => shuffle(name, Shuffle::Up { near }, width, s?, body),
        GroupOp::ShuffleDown => shuffle(name, Shuffle::Down { near }, width, s?, body),
        GroupOp::ShuffleRotateUp => shuffle(name, Shuffle::RotateUp, width, s?, body),
        GroupOp::ShuffleRotateDown => shuffle(name, Shuffle::RotateDown, width, s?, body),
        GroupOp::ShuffleAndFillUp => fill(name, true, width, s?, body),
        GroupOp::ShuffleAndFillDown => fill(name, false, width, s?, body),
        GroupOp::Sum
        | GroupOp::Product
        | GroupOp::Min
        | GroupOp::Max
        | GroupOp::And
        | GroupOp::Or
        | GroupOp::Xor
        | GroupOp::PrefixInclusiveSum
        | GroupOp::PrefixExclusiveSum
        | GroupOp::PrefixInclusiveProduct
        | GroupOp::PrefixExclusiveProduct => reductions::reduce(name, call, body)?,
        // Its calls are replaced by those of its steps.
        GroupOp::MatrixMultiplyAccumulate => return None,
    }
    Some(())
}

/// A shuffle of any type, by words: `mode.c.type`.
fn word_shuffle(name: &str, rest: &str, body: &mut Body) -> Option<()> {
    let mut parts = rest.split('.');
    let (mode, c, ty) = (parts.next()?, parts.next()?, parts.next()?);
    body.open(ty, name, &format!("{ty} %v, i32 %b, i32 %mask"), true);
    let call = |to: &str, from: &str| {
        format!("{to} = call i32 @llvm.nvvm.shfl.sync.{mode}.i32(i32 %mask, i32 {from}, i32 %b, i32 {c})")
    };
    match ty {
        "i32" => {
            body.line(call("%r", "%v"));
        }
        "float" => {
            body.line("%w = bitcast float %v to i32");
            body.line(call("%x", "%w"));
            body.line("%r = bitcast i32 %x to float");
        }
        "i64" => {
            body.line("%low = trunc i64 %v to i32");
            body.line("%shifted = lshr i64 %v, 32");
            body.line("%high = trunc i64 %shifted to i32");
            body.line(call("%l", "%low"));
            body.line(call("%h", "%high"));
            body.line("%l.wide = zext i32 %l to i64");
            body.line("%h.wide = zext i32 %h to i64");
            body.line("%h.there = shl i64 %h.wide, 32");
            body.line("%r = or i64 %l.wide, %h.there");
        }
        "half" | "bfloat" => {
            body.line(format!("%s = bitcast {ty} %v to i16"));
            body.line("%w = zext i16 %s to i32");
            body.line(call("%x", "%w"));
            body.line("%t = trunc i32 %x to i16");
            body.line(format!("%r = bitcast i16 %t to {ty}"));
        }
        _ => {
            body.line(format!("%w = zext {ty} %v to i32"));
            body.line(call("%x", "%w"));
            body.line(format!("%r = trunc i32 %x to {ty}"));
        }
    }
    body.close(ty, "%r");
    Some(())
}

/// The name of the bits of the word `of` that belong to the own group.
fn group_bits<'a>(body: &mut Body, width: u32, of: &'a str) -> &'a str {
    if width == 32 {
        return of;
    }
    body.lane();
    body.line("%base = and i32 %lane, 28");
    body.line(format!("%moved = lshr i32 {of}, %base"));
    body.line("%bits = and i32 %moved, 15");
    "%bits"
}

fn ballot(name: &str, width: u32, body: &mut Body) {
    body.open("i64", name, "i1 %c, i32 %mask", true);
    body.line("%all = call i32 @llvm.nvvm.vote.ballot.sync(i32 %mask, i1 %c)");
    let bits = group_bits(body, width, "%all");
    body.line(format!("%r = zext i32 {bits} to i64"));
    body.close("i64", "%r");
}

/// `%first` is the index in the group of the first lane in the mask.
fn first(body: &mut Body, width: u32) {
    let bits = group_bits(body, width, "%mask");
    body.line(format!("%first = call i32 @llvm.cttz.i32(i32 {bits}, i1 false)"));
}

fn is_first(name: &str, width: u32, body: &mut Body) {
    body.open("i1", name, "i32 %mask", true);
    first(body, width);
    if width == 32 {
        body.lane();
    }
    body.line(format!("%own = and i32 %lane, {}", width - 1));
    body.line("%r = icmp eq i32 %own, %first");
    body.close("i1", "%r");
}

fn broadcast_first(name: &str, width: u32, s: Scalar, body: &mut Body) {
    body.open(s.ty, name, &format!("{} %v, i32 %mask", s.ty), true);
    first(body, width);
    body.shuffle("%r", "idx", s, "%v", "%first", within(width, false));
    body.close(s.ty, "%r");
}

/// Source lanes of a shuffle.
enum Shuffle {
    To,
    Xor,
    /// `near`: the distance is smaller than the group.
    Up {
        near: bool,
    },
    Down {
        near: bool,
    },
    RotateUp,
    RotateDown,
}

fn shuffle(name: &str, how: Shuffle, width: u32, s: Scalar, body: &mut Body) {
    body.open(s.ty, name, &format!("{} %v, i16 %by, i32 %mask", s.ty), true);
    body.line("%n = zext i16 %by to i32");
    let low = width - 1;
    let (whole, clamped) = (within(width, false), within(width, true));
    let mut masked = |mode| {
        body.line(format!("%m = and i32 %n, {low}"));
        body.shuffle("%r", mode, s, "%v", "%m", whole);
    };
    match how {
        Shuffle::Up { near: true } => body.shuffle("%r", "up", s, "%v", "%n", clamped),
        Shuffle::Down { near: true } => body.shuffle("%r", "down", s, "%v", "%n", whole),
        Shuffle::Xor => masked("bfly"),
        Shuffle::To => masked("idx"),
        Shuffle::Up { near: false } => shift(body, "sub", false, width, s),
        Shuffle::Down { near: false } => shift(body, "add", false, width, s),
        Shuffle::RotateUp => shift(body, "sub", true, width, s),
        Shuffle::RotateDown => shift(body, "add", true, width, s),
    }
    body.close(s.ty, "%r");
}

/// `%r` is `%v` of the lane at distance `%n`; beyond the group, from its other end if it `rotates`, the own one otherwise.
fn shift(body: &mut Body, op: &str, rotates: bool, width: u32, s: Scalar) {
    let low = width - 1;
    body.lane();
    body.line(format!("%own = and i32 %lane, {low}"));
    body.line(format!("%to = {op} i32 %own, %n"));
    if rotates {
        body.line(format!("%from = and i32 %to, {low}"));
    } else {
        body.line(format!("%inside = icmp ule i32 %to, {low}"));
        body.line("%from = select i1 %inside, i32 %to, i32 %own");
    }
    body.shuffle("%r", "idx", s, "%v", "%from", within(width, false));
}

/// A shift within segments of lanes, filled from another value's lanes.
fn fill(name: &str, up: bool, width: u32, s: Scalar, body: &mut Body) {
    let ty = s.ty;
    let params = format!("{ty} %v, {ty} %other, i16 %by, i16 %modulo, i32 %mask");
    body.open(ty, name, &params, true);
    body.lane();
    body.line("%n = zext i16 %by to i32");
    body.line("%m = zext i16 %modulo to i32");
    body.line(format!("%most = call i32 @llvm.umin.i32(i32 %m, i32 {width})"));
    body.line("%segment = call i32 @llvm.umax.i32(i32 %most, i32 1)");
    body.line(format!("%own = and i32 %lane, {}", width - 1));
    body.line("%at = urem i32 %own, %segment");
    let (op, back) = if up { ("sub", "add") } else { ("add", "sub") };
    body.line(format!("%moved = {op} i32 %at, %n"));
    body.line("%inside = icmp ult i32 %moved, %segment");
    body.line(format!("%near.any = {op} i32 %lane, %n"));
    body.line(format!("%far.any = {back} i32 %near.any, %segment"));
    body.line("%near = and i32 %near.any, 31");
    body.line("%far = and i32 %far.any, 31");
    body.shuffle("%a", "idx", s, "%v", "%near", within(32, false));
    body.shuffle("%b", "idx", s, "%other", "%far", within(32, false));
    body.line(format!("%r = select i1 %inside, {ty} %a, {ty} %b"));
    body.close(ty, "%r");
}
