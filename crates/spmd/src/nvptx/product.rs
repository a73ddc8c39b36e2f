//! Products of 8x8 matrices whose elements are spread over a simdgroup.
//!
//! Lane i holds row i / 16 * 4 + i / 2 % 4, and the two columns from i / 8 % 2 * 4 + i % 2 * 2 on. Products of
//! `float` are made of single products in the order in which the CPU makes them. Where the source's math mode allows sums in
//! another order, and both factors are `half` or `bfloat`, one `mma.m16n8k8` makes them (PTX ISA, "Matrix
//! Fragments for mma.m16n8k8"): its lane l holds row l / 4 and the columns from l % 4 * 2 on of the left factor and of
//! the sum, and of the right factor column l / 4 and the rows from l % 4 * 2 on. The lower eight rows of the
//! instruction's left factor are zero.

use super::library::{Body, FLOAT, PREFIX, WORD, within};

/// The product of floats.
pub(super) const FLOATS: &str = "elinvar.product";

/// A kind of product whose factors have another type.
pub(super) fn of(ty: &str) -> String {
    format!("{FLOATS}.{ty}")
}

/// Define the product of this name.
pub(super) fn define(name: &str, body: &mut Body) -> Option<()> {
    match name.strip_prefix(PREFIX)?.strip_prefix("product")? {
        "" => floats(body),
        ".half" => narrow("half", body),
        ".bfloat" => narrow("bfloat", body),
        _ => return None,
    }
    Some(())
}

fn floats(body: &mut Body) {
    let params = "float %a0, float %a1, float %b0, float %b1, float %c0, float %c1, i32 %mask";
    body.open("{ float, float }", FLOATS, params, true);
    body.lane();
    body.line("%row = and i32 %lane, 22");
    body.line("%column = and i32 %lane, 9");
    let (mut first, mut second) = ("%c0".to_owned(), "%c1".to_owned());
    let c = within(32, false);
    for k in 0..8 {
        let (left, right) = (k / 4 * 8 + k % 4 / 2, k / 4 * 16 + k % 4 * 2);
        body.line(format!("%left{k} = or i32 %row, {left}"));
        body.line(format!("%right{k} = or i32 %column, {right}"));
        body.shuffle(&format!("%x{k}"), "idx", FLOAT, &format!("%a{}", k % 2), &format!("%left{k}"), c);
        body.shuffle(&format!("%y{k}"), "idx", FLOAT, "%b0", &format!("%right{k}"), c);
        body.shuffle(&format!("%z{k}"), "idx", FLOAT, "%b1", &format!("%right{k}"), c);
        for (sum, other, to) in [(&mut first, "y", "p"), (&mut second, "z", "q")] {
            body.line(format!(
                "%{to}{k} = call float @llvm.fma.f32(float %x{k}, float %{other}{k}, float {sum})"
            ));
            *sum = format!("%{to}{k}");
        }
    }
    pair(body, &first, &second);
}

/// One instruction, between shuffles from our layout to its and back.
fn narrow(ty: &str, body: &mut Body) {
    let params = format!("{ty} %a0, {ty} %a1, {ty} %b0, {ty} %b1, float %c0, float %c1, i32 %mask");
    body.open("{ float, float }", &of(ty), &params, true);
    body.lane();
    let c = within(32, false);
    body.line("%high.row = and i32 %lane, 16");
    body.line("%low.row = lshr i32 %lane, 1");
    // Row r and pair p of columns, in its lane r * 4 + p, are in our lane r / 4 * 16 + p / 2 * 8 + r % 4 * 2 + p % 2.
    body.line("%low.row.there = and i32 %low.row, 6");
    body.line("%pair.high = and i32 %lane, 2");
    body.line("%pair.high.there = shl i32 %pair.high, 2");
    body.line("%pair.low = and i32 %lane, 1");
    body.line("%from.row = or i32 %high.row, %low.row.there");
    body.line("%from.pair = or i32 %pair.high.there, %pair.low");
    body.line("%from = or i32 %from.row, %from.pair");
    pack(body, ty, "a");
    pack(body, ty, "b");
    body.shuffle("%a", "idx", WORD, "%a.word", "%from", c);
    // Its column n = l / 4 of rows k = l % 4 * 2 and k + 1 is in our lanes k / 4 * 16 + n / 4 * 8 + k % 4 * 2 + n % 4 / 2.
    body.line("%k.high.there = shl i32 %pair.high, 3");
    body.line("%k.low.there = shl i32 %pair.low, 2");
    body.line("%n.high.there = lshr i32 %high.row, 1");
    body.line("%n.low = lshr i32 %lane, 3");
    body.line("%n.low.there = and i32 %n.low, 1");
    body.line("%k.there = or i32 %k.high.there, %k.low.there");
    body.line("%n.there = or i32 %n.high.there, %n.low.there");
    body.line("%upper = or i32 %k.there, %n.there");
    body.line("%lower = or i32 %upper, 2");
    body.shuffle("%b.upper", "idx", WORD, "%b.word", "%upper", c);
    body.shuffle("%b.lower", "idx", WORD, "%b.word", "%lower", c);
    body.line("%n.odd = and i32 %lane, 4");
    body.line("%shift = shl i32 %n.odd, 2");
    body.line("%upper.moved = lshr i32 %b.upper, %shift");
    body.line("%lower.moved = lshr i32 %b.lower, %shift");
    body.line("%upper.half = and i32 %upper.moved, 65535");
    body.line("%lower.half = shl i32 %lower.moved, 16");
    body.line("%b = or i32 %upper.half, %lower.half");
    body.shuffle("%s0", "idx", FLOAT, "%c0", "%from", c);
    body.shuffle("%s1", "idx", FLOAT, "%c1", "%from", c);
    let sums = "float %s0, float %s1, float 0.000000e+00, float 0.000000e+00";
    let four = "{ float, float, float, float }";
    if ty == "half" {
        body.line("%a.pair = bitcast i32 %a to <2 x half>");
        body.line("%b.pair = bitcast i32 %b to <2 x half>");
        body.line(format!(
            "%d = call {four} @llvm.nvvm.mma.m16n8k8.row.col.f32.f32(<2 x half> %a.pair, <2 x half> zeroinitializer, \
             <2 x half> %b.pair, {sums})"
        ));
    } else {
        body.line(format!(
            "%d = call {four} @llvm.nvvm.mma.m16n8k8.row.col.bf16(i32 %a, i32 0, i32 %b, {sums})"
        ));
    }
    body.line(format!("%d0 = extractvalue {four} %d, 0"));
    body.line(format!("%d1 = extractvalue {four} %d, 1"));
    // Back: our lane's row is l / 16 * 4 + l / 2 % 4, its pair l / 8 % 2 * 2 + l % 2.
    body.line("%row.low = shl i32 %lane, 1");
    body.line("%row.low.there = and i32 %row.low, 12");
    body.line("%column.high = lshr i32 %lane, 2");
    body.line("%column.high.there = and i32 %column.high, 2");
    body.line("%to.row = or i32 %high.row, %row.low.there");
    body.line("%to.pair = or i32 %column.high.there, %pair.low");
    body.line("%to = or i32 %to.row, %to.pair");
    body.shuffle("%r0", "idx", FLOAT, "%d0", "%to", c);
    body.shuffle("%r1", "idx", FLOAT, "%d1", "%to", c);
    pair(body, "%r0", "%r1");
}

/// Both elements of a factor as a word.
fn pack(body: &mut Body, ty: &str, factor: &str) {
    for element in 0..2 {
        body.line(format!("%{factor}{element}.bits = bitcast {ty} %{factor}{element} to i16"));
        body.line(format!("%{factor}{element}.word = zext i16 %{factor}{element}.bits to i32"));
    }
    body.line(format!("%{factor}1.high = shl i32 %{factor}1.word, 16"));
    body.line(format!("%{factor}.word = or i32 %{factor}0.word, %{factor}1.high"));
}

fn pair(body: &mut Body, first: &str, second: &str) {
    body.line(format!("%one = insertvalue {{ float, float }} poison, float {first}, 0"));
    body.line(format!("%both = insertvalue {{ float, float }} %one, float {second}, 1"));
    body.close("{ float, float }", "%both");
}
