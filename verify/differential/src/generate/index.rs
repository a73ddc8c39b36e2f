//! Random indices: sums of large numbers from memory, with a small or arbitrary result.
//!
//! Each kernel has [`WIDE`], numbers slightly above one of [`BIASES`], in that order. An index subtracts the bias again, in a
//! random order, width and signedness, so that it is in bounds though its terms are not. Where an index may be out of bounds, the
//! access is written as `READ` or `WRITE`, which are guarded or, in checked code, plain.

use super::Statement;
use super::expression::{INTEGERS, Scope, condition, integer};
use crate::random::Random;

/// Multiples of 64, so that smaller values are preserved in the low bits of every type.
const BIASES: [u64; 12] = [
    0,
    64,
    0x7fff_ff80,
    0x8000_0000,
    0xffff_fe00,
    0xffff_ff00,
    0x1_0000_0000,
    0x1_ffff_ff00,
    0x3fff_ffff_ffff_ff80,
    0x7fff_ffff_ffff_ff00,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ff00,
];
/// Number of values per bias.
const EACH: usize = 32;
/// Values exceed their bias by less than this.
const ABOVE: usize = 64;
/// The numbers of `wide`.
pub(crate) const WIDE: usize = BIASES.len() * EACH;

/// The contents of `wide`, as 32-bit words.
pub(crate) fn wide(r: &mut Random) -> Vec<u32> {
    let number = |at: usize, r: &mut Random| BIASES[at / EACH] + r.below(ABOVE) as u64;
    (0..WIDE).map(|at| number(at, r)).flat_map(|n| [n as u32, (n >> 32) as u32]).collect()
}

/// Placeholders that [`plain`] and [`guarded`] replace.
const READ: &str = "READ(";
const WRITE: &str = "WRITE(";

/// The lines that all sources begin with. A read is of `p`, which is element `at` of memory with `n` elements.
pub(crate) const MACROS: &str = "#define READ_INSIDE(p, at, n, i) (((ulong(i) + at) << 2) < ulong(n) << 2 ? (p)[i] : 0u)\n\
    #define READ_PLAIN(p, at, n, i) ((p)[i])\n\
    #define WRITE_INSIDE(p, n, i, v) if ((ulong(i) << 2) < ulong(n) << 2) (p)[i] = (v)\n\
    #define WRITE_PLAIN(p, n, i, v) (p)[i] = (v)\n";

/// Source text with guarded accesses, in bounds for any index.
pub(crate) fn guarded(text: &str) -> String {
    text.replace(READ, "READ_INSIDE(").replace(WRITE, "WRITE_INSIDE(")
}

/// Source text with plain accesses.
pub(crate) fn plain(text: &str) -> String {
    text.replace(READ, "READ_PLAIN(").replace(WRITE, "WRITE_PLAIN(")
}

/// A statement with such an access.
pub(crate) fn statement(r: &mut Random, scope: Scope) -> Statement {
    let line = match r.below(12) {
        0 | 1 => format!("u += in[{}];", sum(r, scope, ABOVE)),
        2 => format!("u ^= {};", stepwise(r, scope)),
        3 => format!("out[me * 4u + {}] += u;", sum(r, scope, 4)),
        4 => format!("arr[{}] += int(u);", sum(r, scope, 8)),
        5 => {
            let (ty, size) = r.pick(&[("uchar", 1), ("ushort", 2), ("ulong", 8), ("uint4", 16)]);
            let element = if size == 16 { ".z" } else { "" };
            let most = (1024 / size).min(ABOVE);
            format!("u += uint(((device const {ty}*)in)[{}]{element});", sum(r, scope, most))
        }
        6 => {
            let (a, b) = (sum(r, scope, 8), r.pick(&["uint4", "uint2"]));
            format!("u -= ((device const {b}*)in)[{a}].y;")
        }
        7 => wrapping_lanes(r),
        8 | 9 => format!("u += READ(in, 0ul, 256, {});", any(r, scope)),
        10 => format!("l ^= long(int(READ((device const int*)in + 17, 17ul, 256, {})));", any(r, scope)),
        _ => {
            let far = r.pick(&[
                "0x100000000l",
                "-0x100000000l",
                "0x80000000l",
                "0x200000000l",
                "0x4000000000000000l",
            ]);
            let (at, condition) = (sum(r, scope, 4), condition(r, scope, 0));
            format!("WRITE(out, out_words, long(me * 4u + {at}) + (({condition}) ? {far} : 0l), u);")
        }
    };
    match r.below(4) {
        0 => Statement {
            parts: vec![(format!("if ({}) {{", condition(r, scope, 1)), vec![Statement::line(line)])],
            end: "}".into(),
        },
        _ => Statement::line(line),
    }
}

/// A number from `wide` and its bias, both as a random type; the first is below `most` more than the second, without
/// wrapping around.
fn pair(r: &mut Random, scope: Scope, most: usize) -> (String, String) {
    let bias = r.below(BIASES.len());
    let at = match r.below(4) {
        0 => "(me & 31u)".to_owned(),
        1 => "((me * 3u + n) & 31u)".to_owned(),
        2 => format!("{}u", r.below(EACH)),
        _ => format!("(uint({}) & 31u)", integer(r, scope, 1)),
    };
    let (ty, _, _) = r.pick(&INTEGERS);
    let cut = if most < ABOVE { format!(" & {}ul", !((ABOVE - most) as u64)) } else { String::new() };
    let number = format!("{ty}(wide[{}u + {at}]{cut})", bias * EACH);
    (number, format!("{ty}({}ul)", BIASES[bias]))
}

/// An index below `most`, which is a power of two.
fn sum(r: &mut Random, scope: Scope, most: usize) -> String {
    let (number, bias) = pair(r, scope, most);
    let wide = r.pick(&["ulong", "long", "uint", "int"]);
    let (a, b) = (format!("{wide}({number})"), format!("{wide}({bias})"));
    match r.below(5) {
        0 => format!("(-{b} + {a})"),
        1 => format!("({wide}(7) - {b} + {a} - {wide}(7))"),
        2 => format!("({a} + ~{b} + {wide}(1))"),
        3 if wide.ends_with("long") => format!("(({a} - {b}) * {wide}(0x100000001) & {wide}({}))", most - 1),
        _ => format!("({a} - {b})"),
    }
}

/// An element of `in`, its address found in steps.
fn stepwise(r: &mut Random, scope: Scope) -> String {
    let (number, bias) = pair(r, scope, ABOVE);
    let wide = r.pick(&["ulong", "long"]);
    let (a, b) = (format!("{wide}({number})"), format!("{wide}({bias})"));
    match r.below(4) {
        0 => format!("*(in - {b} + {a})"),
        1 => format!("(in + {a})[0 - {b}]"),
        2 => format!("(&(in + 5)[{a}])[{wide}(100) - {b}]"),
        _ => format!("*(device const uint*)((device const uchar*)in + {a} * {wide}(4) - {b} * {wide}(4))"),
    }
}

/// An access by consecutive threads, whose indices wrap around in 32 bits for some of them.
fn wrapping_lanes(r: &mut Random) -> String {
    let by = 1 + r.below(40);
    let (sign, wide) = r.pick(&[("uint", "ulong"), ("int", "long")]);
    let (word, times) = r.pick(&[("(me & 63u)", 1), ("((me * 2u) & 63u)", 2), ("(63u - (me & 63u))", 1)]);
    match sign {
        "uint" => format!(
            "u += in[{wide}(uint({word} - {by}u)) + {by}ul - ({word} < {by}u ? 0x100000000ul : 0ul)] * {times}u;"
        ),
        _ => {
            let from = 0x8000_0000_u32 - by as u32;
            format!(
                "u += in[{wide}(int({word} + {from}u)) - {from}l + ({word} >= {by}u ? 0x100000000l : 0l)] * {times}u;"
            )
        }
    }
}

/// Any number as an index.
fn any(r: &mut Random, scope: Scope) -> String {
    let (number, bias) = pair(r, scope, ABOVE);
    let (wide, _, _) = r.pick(&INTEGERS);
    let e = integer(r, scope, 1);
    match r.below(5) {
        0 => format!("{wide}({number})"),
        1 => format!("({}ul + {wide}({number}))", r.pick(&[500, 256, 96, 0x7fff_ffff])),
        2 => format!("{wide}({number} - {bias} + ({e}))"),
        3 => {
            format!("({wide}({number}) - {wide}({}))", r.pick(&["4294967000ul", "0x80000000ul", "1", "255"]))
        }
        _ => format!("{wide}({e})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_wrap_around_above_their_bias() {
        for bias in BIASES {
            assert!(bias % ABOVE as u64 == 0);
            for (_, width, signed) in INTEGERS {
                let cut = |n: u64| {
                    let up = 64 - width;
                    if signed { i128::from((n << up) as i64 >> up) } else { i128::from(n << up >> up) }
                };
                let last = bias + (ABOVE as u64 - 1);
                assert_eq!(cut(last) - cut(bias), ABOVE as i128 - 1, "{bias:#x} in {width} bits");
            }
        }
    }
}
