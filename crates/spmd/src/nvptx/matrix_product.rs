//! Products of 8x8 matrices whose elements are distributed over a simdgroup.
//!
//! Lane i holds row i / 16 * 4 + i / 2 % 4, and two columns from i / 8 % 2 * 4 + i % 2 * 2 on. Products of `float` are computed
//! by scalar multiply-adds, in the CPU's order. If the source's math mode allows reassociation, and both factors are `half` or
//! `bfloat`, they are one `mma.m16n8k8` (PTX ISA, "Matrix Fragments for mma.m16n8k8"): its lane l holds row l / 4 and two columns
//! from l % 4 * 2 on of the left factor and of the sum, and of the right factor column l / 4 and two rows from l % 4 * 2 on. The
//! lower eight rows of the instruction's left factor are zero.
//!
//! A product has three steps, so that a factor of several products is shuffled once: the left factor in fragment layout, the
//! right factor, and the sum.
//!
//! With [permuted lanes](super::lane_permutation), sums and left factors are in fragment layout, and right factors are
//! transposed. Several products can then be one instruction: two left factors stacked, or two pairs of factors along the inner
//! dimension (`mma.m16n8k16`, which has the fragments of two `mma.m16n8k8`).

use elinvar_ir::Type;

use super::library::{Body, FLOAT, PREFIX, WORD, within};

/// A step of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Parameters: both elements of the left factor, and the mask.
    Left,
    /// Parameters: both elements of the right factor, and the mask.
    Right,
    /// Parameters: the results of the other steps, both elements of the addend, and the mask. Returns both elements.
    Sum,
    /// With permuted lanes: as [`Step::Left`].
    Word,
    /// With permuted lanes: as [`Step::Right`].
    Turned,
    /// With permuted lanes. Parameters: left factors, by depth and within it by row; a right factor for each depth; the
    /// addend's elements for each row; and the mask. Returns the elements of all rows.
    Tiles {
        /// 1 or 2.
        rows: usize,
        /// 1 or 2.
        depth: usize,
    },
}

const STEPS: [Step; 9] = [
    Step::Left,
    Step::Right,
    Step::Sum,
    Step::Word,
    Step::Turned,
    Step::Tiles { rows: 1, depth: 1 },
    Step::Tiles { rows: 1, depth: 2 },
    Step::Tiles { rows: 2, depth: 1 },
    Step::Tiles { rows: 2, depth: 2 },
];

impl Step {
    /// The library's function for factors of this type.
    pub fn name(self, factor: &Type) -> String {
        match self {
            Self::Tiles { rows, depth } => format!("{PREFIX}product.Tiles.{rows}.{depth}.{factor}"),
            step => format!("{PREFIX}product.{step:?}.{factor}"),
        }
    }

    /// The step with this name, and the factors' type.
    pub fn parse(name: &str) -> Option<(Self, Type)> {
        let factors = [Type::Float, Type::Half, Type::BFloat];
        let mut all = STEPS.iter().flat_map(|step| factors.iter().map(|factor| (*step, factor.clone())));
        all.find(|(step, factor)| step.name(factor) == name)
    }

    /// Its result type.
    pub fn result(self, factor: &Type) -> Type {
        let floats = |count| Type::Struct { packed: false, fields: vec![Type::Float; count] };
        match (self, factor) {
            (Self::Sum, _) => floats(2),
            (Self::Tiles { rows, .. }, _) => floats(2 * rows),
            (Self::Left, Type::Float) => floats(8),
            (Self::Right, Type::Float) => floats(16),
            _ => Type::I32,
        }
    }
}

/// Defines the step with this name.
pub(super) fn define(name: &str, body: &mut Body) -> Option<()> {
    let (step, factor) = Step::parse(name)?;
    let (ret, ty) = (step.result(&factor).to_string(), factor.to_string());
    let params = match step {
        Step::Left | Step::Right | Step::Word | Step::Turned => format!("{ty} %e0, {ty} %e1"),
        Step::Sum => {
            let (left, right) = (Step::Left.result(&factor), Step::Right.result(&factor));
            format!("{left} %left, {right} %right, float %c0, float %c1")
        }
        Step::Tiles { rows, depth } => {
            let words = |name, count| (0..count).map(move |at| format!("i32 %{name}{at}"));
            let sums = (0..2 * rows).map(|at| format!("float %c{at}"));
            words("a", rows * depth).chain(words("b", depth)).chain(sums).collect::<Vec<_>>().join(", ")
        }
    };
    body.open(&ret, name, &format!("{params}, i32 %mask"), true);
    match (step, &factor) {
        (Step::Word, _) => {
            pack(body, &ty);
            body.close("i32", "%word");
        }
        (Step::Turned, _) => turned(body, &ty),
        (Step::Tiles { rows, depth }, _) => tiles(body, &factor, [rows, depth]),
        (Step::Left, Type::Float) => left_floats(body, &ret),
        (Step::Right, Type::Float) => right_floats(body, &ret),
        (Step::Sum, Type::Float) => sum_of_floats(body),
        (Step::Left, _) => left_word(body, &ty),
        (Step::Right, _) => right_word(body, &ty),
        (Step::Sum, _) => sum_of_words(body, &factor),
    }
    Some(())
}

/// Gathers the eight elements of the own row.
fn left_floats(body: &mut Body, ret: &str) {
    body.lane();
    body.line("%row = and i32 %lane, 22");
    let c = within(32, false);
    for k in 0..8 {
        body.line(format!("%from{k} = or i32 %row, {}", k / 4 * 8 + k % 4 / 2));
        body.shuffle(&format!("%x{k}"), "idx", FLOAT, &format!("%e{}", k % 2), &format!("%from{k}"), c);
    }
    give(body, ret, 8);
}

/// Gathers the eight elements of each of the two own columns, the first column first.
fn right_floats(body: &mut Body, ret: &str) {
    body.lane();
    body.line("%column = and i32 %lane, 9");
    let c = within(32, false);
    for k in 0..8 {
        body.line(format!("%from{k} = or i32 %column, {}", k / 4 * 16 + k % 4 * 2));
        body.shuffle(&format!("%x{k}"), "idx", FLOAT, "%e0", &format!("%from{k}"), c);
        body.shuffle(&format!("%x{}", k + 8), "idx", FLOAT, "%e1", &format!("%from{k}"), c);
    }
    give(body, ret, 16);
}

/// Returns `%x0`, `%x1` and so on.
pub(super) fn give(body: &mut Body, ret: &str, count: usize) {
    let mut all = "poison".to_owned();
    for at in 0..count {
        body.line(format!("%r{at} = insertvalue {ret} {all}, float %x{at}, {at}"));
        all = format!("%r{at}");
    }
    body.close(ret, &all);
}

fn sum_of_floats(body: &mut Body) {
    let (left, right) = (Step::Left.result(&Type::Float), Step::Right.result(&Type::Float));
    let mut sums = ["%c0".to_owned(), "%c1".to_owned()];
    for k in 0..8 {
        body.line(format!("%a{k} = extractvalue {left} %left, {k}"));
        for (column, sum) in sums.iter_mut().enumerate() {
            body.line(format!("%b{column}.{k} = extractvalue {right} %right, {}", column * 8 + k));
            let factors = format!("float %a{k}, float %b{column}.{k}");
            body.line(format!("%s{column}.{k} = call float @llvm.fma.f32({factors}, float {sum})"));
            *sum = format!("%s{column}.{k}");
        }
    }
    pair(body, &sums[0], &sums[1]);
}

/// `%from`: where what the instruction's lane has is in our layout. Row r and pair p of columns, in its lane r * 4 + p, are
/// in our lane r / 4 * 16 + p / 2 * 8 + r % 4 * 2 + p % 2.
fn from_ours(body: &mut Body) {
    body.line("%high.row = and i32 %lane, 16");
    body.line("%low.row = lshr i32 %lane, 1");
    body.line("%low.row.there = and i32 %low.row, 6");
    body.line("%pair.high = and i32 %lane, 2");
    body.line("%pair.high.there = shl i32 %pair.high, 2");
    body.line("%pair.low = and i32 %lane, 1");
    body.line("%from.row = or i32 %high.row, %low.row.there");
    body.line("%from.pair = or i32 %pair.high.there, %pair.low");
    body.line("%from = or i32 %from.row, %from.pair");
}

/// `%word` is both elements of a factor.
fn pack(body: &mut Body, ty: &str) {
    for element in 0..2 {
        body.line(format!("%e{element}.bits = bitcast {ty} %e{element} to i16"));
        body.line(format!("%e{element}.word = zext i16 %e{element}.bits to i32"));
    }
    body.line("%e1.high = shl i32 %e1.word, 16");
    body.line("%word = or i32 %e0.word, %e1.high");
}

fn left_word(body: &mut Body, ty: &str) {
    body.lane();
    from_ours(body);
    pack(body, ty);
    body.shuffle("%r", "idx", WORD, "%word", "%from", within(32, false));
    body.close("i32", "%r");
}

/// Column n = l / 4 of rows k = l % 4 * 2 and k + 1: in our lanes k / 4 * 16 + n / 4 * 8 + k % 4 * 2 + n % 4 / 2, as element
/// n % 2.
fn right_word(body: &mut Body, ty: &str) {
    body.lane();
    pack(body, ty);
    body.line("%k.high = and i32 %lane, 2");
    body.line("%k.high.there = shl i32 %k.high, 3");
    body.line("%k.low = and i32 %lane, 1");
    body.line("%k.low.there = shl i32 %k.low, 2");
    body.line("%n.high = and i32 %lane, 16");
    body.line("%n.high.there = lshr i32 %n.high, 1");
    body.line("%n.low = lshr i32 %lane, 3");
    body.line("%n.low.there = and i32 %n.low, 1");
    body.line("%k.there = or i32 %k.high.there, %k.low.there");
    body.line("%n.there = or i32 %n.high.there, %n.low.there");
    body.line("%upper = or i32 %k.there, %n.there");
    body.line("%lower = or i32 %upper, 2");
    column_of_two(body);
}

/// Return the elements l / 4 % 2 of what the lanes `%upper` and `%lower` have in `%word`.
fn column_of_two(body: &mut Body) {
    let c = within(32, false);
    body.shuffle("%of.upper", "idx", WORD, "%word", "%upper", c);
    body.shuffle("%of.lower", "idx", WORD, "%word", "%lower", c);
    body.line("%n.odd = and i32 %lane, 4");
    body.line("%shift = shl i32 %n.odd, 2");
    body.line("%upper.moved = lshr i32 %of.upper, %shift");
    body.line("%lower.moved = lshr i32 %of.lower, %shift");
    body.line("%upper.half = and i32 %upper.moved, 65535");
    body.line("%lower.half = shl i32 %lower.moved, 16");
    body.line("%r = or i32 %upper.half, %lower.half");
    body.close("i32", "%r");
}

/// The instruction, between shuffles of the sum from our layout to its and back.
fn sum_of_words(body: &mut Body, factor: &Type) {
    body.lane();
    from_ours(body);
    let c = within(32, false);
    body.shuffle("%s0", "idx", FLOAT, "%c0", "%from", c);
    body.shuffle("%s1", "idx", FLOAT, "%c1", "%from", c);
    mma(body, factor, [&["%left".into()], &["%right".into()]], &["%s0".into(), "%s1".into()]);
    body.line(format!("%d0 = extractvalue {FOUR} %d, 0"));
    body.line(format!("%d1 = extractvalue {FOUR} %d, 1"));
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

/// With permuted lanes: column n = l / 4 of rows k = l % 4 * 2 and k + 1 is in lanes k * 4 + n / 2 and four behind it, as
/// element n % 2.
fn turned(body: &mut Body, ty: &str) {
    body.lane();
    pack(body, ty);
    body.line("%k = and i32 %lane, 3");
    body.line("%k.there = shl i32 %k, 3");
    body.line("%n.there = lshr i32 %lane, 3");
    body.line("%upper = or i32 %k.there, %n.there");
    body.line("%lower = or i32 %upper, 4");
    column_of_two(body);
}

/// Result of the instruction.
const FOUR: &str = "{ float, float, float, float }";

/// `%d` is a sum and the product of these words, of the left factor by depth and in it by row; rows that the instruction has
/// more are zero.
fn mma(body: &mut Body, factor: &Type, [left, right]: [&[String]; 2], sums: &[String]) {
    let is_half = *factor == Type::Half;
    let (ty, zero) = if is_half { ("<2 x half>", "zeroinitializer") } else { ("i32", "0") };
    for word in left.iter().chain(right).filter(|_| is_half) {
        body.line(format!("{word}.pair = bitcast i32 {word} to <2 x half>"));
    }
    let end = if is_half { ".pair" } else { "" };
    let word = |word: Option<&String>| {
        word.map_or_else(|| format!("{ty} {zero}"), |word| format!("{ty} {word}{end}"))
    };
    let sum = |at: usize| format!("float {}", sums.get(at).map_or("0.000000e+00", String::as_str));
    let (depth, rows) = (right.len(), sums.len() / 2);
    let left = left.chunks(rows).flat_map(|rows| [word(rows.first()), word(rows.get(1))]);
    let args = left.chain(right.iter().map(|own| word(Some(own)))).chain((0..4).map(sum));
    let args = args.collect::<Vec<_>>().join(", ");
    let types = if is_half { "f32.f32" } else { "bf16" };
    body.line(format!("%d = call {FOUR} @llvm.nvvm.mma.m16n8k{}.row.col.{types}({args})", 8 * depth));
}

/// With permuted lanes: one instruction.
fn tiles(body: &mut Body, factor: &Type, [rows, depth]: [usize; 2]) {
    let names = |name, count| (0..count).map(|at| format!("%{name}{at}")).collect::<Vec<String>>();
    mma(body, factor, [&names("a", rows * depth), &names("b", depth)], &names("c", 2 * rows));
    if rows == 2 {
        return body.close(FOUR, "%d");
    }
    body.line(format!("%d0 = extractvalue {FOUR} %d, 0"));
    body.line(format!("%d1 = extractvalue {FOUR} %d, 1"));
    pair(body, "%d0", "%d1");
}

fn pair(body: &mut Body, first: &str, second: &str) {
    body.line(format!("%one = insertvalue {{ float, float }} poison, float {first}, 0"));
    body.line(format!("%both = insertvalue {{ float, float }} %one, float {second}, 1"));
    body.close("{ float, float }", "%both");
}
