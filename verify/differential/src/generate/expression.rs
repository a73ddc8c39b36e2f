//! Random expressions, defined for all values of their variables, by MSL or by Elinvar's rules for division and shifts.

use crate::random::Random;

/// The integer types, with their widths and whether they are signed.
pub(crate) const INTEGERS: [(&str, u32, bool); 8] = [
    ("char", 8, true),
    ("uchar", 8, false),
    ("short", 16, true),
    ("ushort", 16, false),
    ("int", 32, true),
    ("uint", 32, false),
    ("long", 64, true),
    ("ulong", 64, false),
];

/// Names that an expression may use.
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    /// Whether the kernel's arguments and positions are in scope; otherwise it is in a helper.
    pub kernel: bool,
    /// The kernel's seed, which its helpers' names end with.
    pub seed: u64,
}

/// Integer variables that are in every scope.
const VARIABLES: [&str; 8] = ["c", "uc", "s", "us", "i", "u", "l", "ul"];

/// An expression that differs between threads, of any integer type.
pub(crate) fn integer(r: &mut Random, scope: Scope, depth: usize) -> String {
    if depth == 0 {
        return leaf(r, scope);
    }
    let (ty, width, signed) = r.pick(&INTEGERS);
    let a = format!("{ty}({})", integer(r, scope, depth - 1));
    let b = format!("{ty}({})", integer(r, scope, depth - 1));
    match r.below(20) {
        0..=2 => format!("{ty}({a} + {b})"),
        3 | 4 => format!("{ty}({a} - {b})"),
        5 => format!("{ty}({a} * {b})"),
        6 => format!("{ty}({a} {} {})", r.pick(&["/", "%"]), divisor(r, (ty, width, signed), &b)),
        7 => format!("{ty}({a} << {})", amount(r, ty, width, &b)),
        8 => format!("{ty}({a} >> {})", amount(r, ty, width, &b)),
        9 => format!("{ty}({a} {} {b})", r.pick(&["&", "|", "^"])),
        10 => format!("{ty}(~{a})"),
        11 => format!("{ty}({} ? {a} : {b})", condition(r, scope, depth - 1)),
        12 => format!("{}({a}, {b})", r.pick(&["min", "max"])),
        13 => format!("clamp({a}, {ty}(2), {ty}(100))"),
        14 => format!("{ty}({}({a}))", r.pick(&["popcount", "clz", "ctz", "reverse_bits", "abs"])),
        15 if width >= 32 => format!("rotate({a}, {ty}({b} & {}))", width - 1),
        15 => format!("{}({a}, {b})", r.pick(&["addsat", "subsat", "absdiff", "hadd", "rhadd"])),
        16 => format!("{ty}(int({}))", float(r, scope, 2)),
        17 => format!("{ty}(({}).{})", vector(r, scope, depth - 1), r.pick(&["x", "y", "z"])),
        _ => a,
    }
}

/// Mostly odd and, if signed, positive; otherwise any number, because division by 0 and -1 is defined.
fn divisor(r: &mut Random, (ty, width, signed): (&str, u32, bool), b: &str) -> String {
    match (r.percent(25), signed) {
        (true, _) => unknown(r, ty, b),
        (false, true) => format!("(({b} & {ty}({})) | {ty}(1))", (1u64 << (width - 1)) - 1),
        (false, false) => format!("({b} | {ty}(1))"),
    }
}

/// Mostly less than the width; otherwise any number, taken modulo the width.
fn amount(r: &mut Random, ty: &str, width: u32, b: &str) -> String {
    if r.percent(25) { unknown(r, ty, b) } else { format!("({b} & {})", width - 1) }
}

/// Any non-constant number: clang folds operations on two constants to undefined values.
fn unknown(r: &mut Random, ty: &str, b: &str) -> String {
    format!("{ty}({b} ^ {ty}({}))", r.pick(&VARIABLES))
}

fn leaf(r: &mut Random, scope: Scope) -> String {
    match r.below(if scope.kernel { 16 } else { 10 }) {
        0..=4 => r.pick(&VARIABLES).into(),
        5 => format!("{}", r.below(300) as i64 - 100),
        6 => format!("arr[{} & 7]", r.pick(&VARIABLES)),
        7 => r.pick(&["st.a", "st.b", "st.c.y", "st.d", "st.f", "st.g.x"]).into(),
        8 => r.pick(&["v.x", "v.z", "w.y", "w.w"]).into(),
        9 => format!("{}u", r.next() as u32),
        10 => "me".into(),
        11 => "lid".into(),
        12 => format!("in[({}) & 255]", r.pick(&VARIABLES)),
        13 => r.pick(&["gid.x", "gid.y", "tgid.x", "size.x", "count"]).into(),
        14 => "n".into(),
        _ => "in[me & 255u]".into(),
    }
}

/// A condition that differs between threads.
pub(crate) fn condition(r: &mut Random, scope: Scope, depth: usize) -> String {
    let (a, b) = (integer(r, scope, depth.min(1)), integer(r, scope, depth.min(1)));
    let ty = r.pick(&INTEGERS).0;
    match r.below(7) {
        6 => r.pick(&["b", "!b"]).into(),
        0 => format!("(({a}) & {}) != 0", 1 << r.below(4)),
        1 if depth > 0 => {
            let join = r.pick(&["&&", "||"]);
            format!("(({}) {join} ({}))", condition(r, scope, depth - 1), condition(r, scope, depth - 1))
        }
        2 => format!("({}) < ({})", float(r, scope, 1), float(r, scope, 1)),
        _ => format!("{ty}({a}) {} {ty}({b})", r.pick(&["<", "<=", ">", ">=", "==", "!="])),
    }
}

/// A condition that is uniform in a threadgroup, also in smaller threadgroups.
pub(crate) fn uniform_condition(r: &mut Random) -> String {
    match r.below(4) {
        0 => format!("(n & {}u) != 0u", 1 << r.below(8)),
        1 => format!("((tgid.x + n) & 1u) == {}u", r.below(2)),
        2 => format!("in[(n + {}u) & 255u] > 0x80000000u", r.below(256)),
        _ => "tgid.y + tgid.z < n % 3u".into(),
    }
}

/// A float expression of small integers: below 2^16 in magnitude up to a depth of 2.
pub(crate) fn float(r: &mut Random, scope: Scope, depth: usize) -> String {
    if depth == 0 {
        return match r.below(4) {
            0 => format!("{}.0f", r.below(16)),
            1 => r.pick(&["f", "float(h)"]).into(),
            _ => format!("float(({}) & 15)", leaf(r, scope)),
        };
    }
    let (a, b) = (float(r, scope, depth - 1), float(r, scope, depth - 1));
    match r.below(8) {
        0..=2 => format!("({a} {} {b})", r.pick(&["+", "-", "*"])),
        3 => format!("({}({a}, {b}))", r.pick(&["min", "max"])),
        4 => format!("floor({a} * 0.5f)"),
        5 => format!("fabs({a} - {b})"),
        6 => format!("float(half({}))", leaf_half(r, scope)),
        _ => format!("({} ? {a} : {b})", condition(r, scope, 0)),
    }
}

fn leaf_half(r: &mut Random, scope: Scope) -> String {
    let (a, b) = (leaf(r, scope), leaf(r, scope));
    format!("half(({a}) & 3) {} half(({b}) & 3)", r.pick(&["+", "*", "-"]))
}

/// An `int4` expression.
pub(crate) fn vector(r: &mut Random, scope: Scope, depth: usize) -> String {
    if depth == 0 {
        return r.pick(&["v", "v.wzyx", "v.xxyy", "int4(w)", "int4(w.yxwz)"]).into();
    }
    let (a, b) = (vector(r, scope, depth - 1), vector(r, scope, depth - 1));
    match r.below(6) {
        0 => format!("({a} + {b})"),
        1 => format!("({a} * {b})"),
        2 => format!("({a} ^ {b})"),
        3 => format!("select({a}, {b}, {a} < {b})"),
        4 => format!("int4({}, {a}.yz, {})", leaf(r, scope), leaf(r, scope)),
        _ => format!("max({a}, {b})"),
    }
}
