//! Reductions and scans over a simdgroup or quadgroup, as LLVM IR text.
//!
//! Over all lanes they combine values in the CPU's order, so that floating-point sums are identical; over a subset of lanes they
//! are sequential. Sums, minima and maxima of 32-bit integers are one instruction over any lanes.

use super::library::{ACTIVE, Body, PREFIX, Scalar, scalar, within};
use crate::intrinsic::{Extent, GroupCall, Reduction};

/// A reduction's operation and its neutral element.
struct Fold {
    identity: String,
    /// The operation, or the intrinsic.
    op: String,
    is_call: bool,
    /// Its name in `redux.sync`.
    redux: Option<&'static str>,
}

fn how(reduction: Reduction, s: Scalar) -> Fold {
    let float = s.wide == "float";
    let bits = if s.wide == "i64" { 64 } else { 32 };
    let (least, most) = (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1);
    let op = |op: &str, identity: &str, redux| Fold {
        identity: identity.into(),
        op: op.into(),
        is_call: false,
        redux,
    };
    let min_max = |name: &str, identity: String, redux| {
        let op = format!("llvm.{name}.{}", if float { "f32" } else { s.wide });
        Fold { identity, op, is_call: true, redux }
    };
    match (reduction, float) {
        (Reduction::Sum, true) => op("fadd", "-0.000000e+00", None),
        (Reduction::Product, true) => op("fmul", "1.000000e+00", None),
        (Reduction::Min, true) => min_max("minnum", "0x7FF0000000000000".into(), None),
        (Reduction::Max, true) => min_max("maxnum", "0xFFF0000000000000".into(), None),
        (Reduction::Sum, false) => op("add", "0", Some("add")),
        (Reduction::Product, false) => op("mul", "1", None),
        // Only integers have these.
        (Reduction::And, _) => op("and", "-1", Some("and")),
        (Reduction::Or, _) => op("or", "0", Some("or")),
        (Reduction::Xor, _) => op("xor", "0", Some("xor")),
        (Reduction::Min, false) if s.element.is_unsigned() => min_max("umin", "-1".into(), Some("umin")),
        (Reduction::Max, false) if s.element.is_unsigned() => min_max("umax", "0".into(), Some("umax")),
        (Reduction::Min, false) => min_max("smin", most.to_string(), Some("min")),
        (Reduction::Max, false) => min_max("smax", least.to_string(), Some("max")),
    }
}

impl Fold {
    fn combine(&self, body: &mut Body, ty: &str, to: &str, a: &str, b: &str) {
        match self.is_call {
            true => body.line(format!("{to} = call {ty} @{}({ty} {a}, {ty} {b})", self.op)),
            false => body.line(format!("{to} = {} {ty} {a}, {b}", self.op)),
        }
    }
}

/// The scalar type of the reduction.
fn folded(s: Scalar) -> Scalar {
    Scalar { ty: s.wide, ..s }
}

/// The name of `%v` converted to the reduction's type.
fn widen(body: &mut Body, s: Scalar) -> &'static str {
    if s.ty == s.wide {
        return "%v";
    }
    let op = match s.ty {
        "half" | "bfloat" => "fpext",
        _ if s.element.is_unsigned() => "zext",
        _ => "sext",
    };
    body.line(format!("%x = {op} {} %v to {}", s.ty, s.wide));
    "%x"
}

/// Returns the result.
fn narrow(body: &mut Body, s: Scalar, value: &str) {
    if s.ty == s.wide {
        return body.close(s.ty, value);
    }
    let op = if s.wide == "float" { "fptrunc" } else { "trunc" };
    body.line(format!("%narrow = {op} {} {value} to {}", s.wide, s.ty));
    body.close(s.ty, "%narrow");
}

/// Reductions and prefix sums.
pub(super) fn reduce(name: &str, call: GroupCall, body: &mut Body) -> Option<()> {
    let ((reduction, extent), s) = (call.op.reduction()?, scalar(call.element?));
    let (how, width) = (how(reduction, s), call.group.width());
    body.open(s.ty, name, &format!("{} %v, i32 %mask", s.ty), true);
    let (x, ty) = (widen(body, s), s.wide);
    match (how.redux, extent) {
        (Some(redux), Extent::All) if ty == "i32" && width == 32 => {
            body.line(format!("%r = call i32 @llvm.nvvm.redux.sync.{redux}(i32 {x}, i32 %mask)"));
            narrow(body, s, "%r");
            return Some(());
        }
        _ => {}
    }
    body.line("%are.all = icmp eq i32 %mask, -1");
    body.line("%whole = call i1 @llvm.expect.i1(i1 %are.all, i1 true)");
    body.line("br i1 %whole, label %all, label %few");
    body.label("all");
    let full = match extent {
        Extent::Inclusive => scan(body, &how, folded(s), width, x, false),
        Extent::Exclusive => scan(body, &how, folded(s), width, x, true),
        Extent::All => butterfly(body, &how, folded(s), width, x),
    };
    body.line("br label %end");
    body.label("few");
    let some = format!("{PREFIX}{ACTIVE}{}", call.name());
    body.line(format!("%part = call {ty} @{some}({ty} {x}, i32 %mask)"));
    body.calls.push(some);
    body.line("br label %end");
    body.label("end");
    body.line(format!("%r = phi {ty} [ {full}, %all ], [ %part, %few ]"));
    narrow(body, s, "%r");
    Some(())
}

/// Reduction with all lanes active.
fn butterfly(body: &mut Body, how: &Fold, s: Scalar, width: u32, x: &str) -> String {
    // The CPU's order.
    let distances: &[u32] = if width == 32 { &[16, 8, 4, 2, 1] } else { &[1, 2] };
    let mut value = x.to_owned();
    for distance in distances {
        let (other, sum) = (format!("%o{distance}"), format!("%s{distance}"));
        body.shuffle(&other, "bfly", s, &value, &distance.to_string(), within(width, false));
        how.combine(body, s.ty, &sum, &value, &other);
        value = sum;
    }
    value
}

/// Scan with all lanes active.
fn scan(body: &mut Body, how: &Fold, s: Scalar, width: u32, x: &str, exclusive: bool) -> String {
    let ty = s.ty;
    let up = within(width, true);
    body.lane();
    body.line(format!("%own = and i32 %lane, {}", width - 1));
    let mut value = x.to_owned();
    let mut distance = 1;
    while distance < width {
        let d = distance;
        body.shuffle(&format!("%o{d}"), "up", s, &value, &d.to_string(), up);
        how.combine(body, ty, &format!("%t{d}"), &format!("%o{d}"), &value);
        body.line(format!("%in{d} = icmp uge i32 %own, {d}"));
        body.line(format!("%s{d} = select i1 %in{d}, {ty} %t{d}, {ty} {value}"));
        value = format!("%s{d}");
        distance *= 2;
    }
    if exclusive {
        body.shuffle("%before", "up", s, &value, "1", up);
        body.line("%is.first = icmp eq i32 %own, 0");
        let none = nothing(how, ty);
        body.line(format!("%full = select i1 %is.first, {ty} {none}, {ty} %before"));
        value = "%full".into();
    }
    value
}

/// Result of an empty reduction: the empty sum is 0, not -0, the neutral element.
fn nothing(how: &Fold, ty: &str) -> String {
    if how.op == "fadd" && ty == "float" { "0.000000e+00".into() } else { how.identity.clone() }
}

/// Sequential reduction or scan over the lanes of a mask.
pub(super) fn reduce_active(
    name: &str,
    reduction: Reduction,
    extent: Extent,
    width: u32,
    s: Scalar,
    body: &mut Body,
) {
    let (s, how) = (folded(s), how(reduction, s));
    let ty = s.ty;
    let start = if extent == Extent::Exclusive { nothing(&how, ty) } else { how.identity.clone() };
    body.open(ty, name, &format!("{ty} %v, i32 %mask"), false);
    body.lane();
    body.line(format!("%group = and i32 %lane, {}", 32 - width));
    body.line("br label %loop");
    body.label("loop");
    body.line("%rest = phi i32 [ %mask, %0 ], [ %next, %loop ]");
    body.line(format!("%sum = phi {ty} [ {start}, %0 ], [ %more, %loop ]"));
    body.line("%from = call i32 @llvm.cttz.i32(i32 %rest, i1 true)");
    body.shuffle("%other", "idx", s, "%v", "%from", within(32, false));
    how.combine(body, ty, "%with", "%sum", "%other");
    let until = match extent {
        Extent::Inclusive => "%before = icmp ule i32 %from, %lane",
        Extent::Exclusive => "%before = icmp ult i32 %from, %lane",
        Extent::All => "%before = icmp ule i32 %from, 31",
    };
    body.line(until);
    body.line(format!("%from.group = and i32 %from, {}", 32 - width));
    body.line("%same = icmp eq i32 %from.group, %group");
    body.line("%counts = and i1 %same, %before");
    body.line(format!("%more = select i1 %counts, {ty} %with, {ty} %sum"));
    body.line("%less = sub i32 %rest, 1");
    body.line("%next = and i32 %rest, %less");
    body.line("%done = icmp eq i32 %next, 0");
    body.line("br i1 %done, label %end, label %loop");
    body.label("end");
    body.close(ty, "%more");
}
