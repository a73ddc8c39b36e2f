//! Vector shapes: relations between the values of a vector's lanes.
//!
//! A [`Pattern`] means that the values of all lanes follow from lane 0's: `v[l] = v[0] + offset(l)`, in arithmetic of the value's
//! width. Patterns include uniform values (all offsets 0), strided values, and other sums of lane 0's value and constants. A
//! value with a pattern is computed once, as a scalar.
//!
//! Extending such a value preserves the pattern only if no lane has wrapped around where lane 0 has not. Otherwise the extended
//! value has a *loose* pattern: correct up to a multiple of 2³² in some lanes. That suffices for addresses, if lanes that access
//! one object cannot differ by that much times the element's size; all other uses take each lane's own value. An address computed
//! from a loose value as a number has no pattern, since it may be in another object.

use std::rc::Rc;

use elinvar_ir::{BinaryOp, CastOp};

/// Relation between the values of the lanes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Not yet known (the lattice's top element).
    Unknown,
    Lanes(Pattern),
    Varying,
}

/// The values of all lanes as offsets from lane 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern {
    pub offsets: Offsets,
    /// Whether the pattern is loose: some lanes may be off by a multiple of 2³².
    pub loose: bool,
    /// Whether the relation holds for unsigned integers without wrapping.
    pub unwrapped: bool,
    /// Whether lane 0 is equal in all vectors of an iteration.
    pub same: bool,
    /// Lane 0's value is a multiple of 2 to this power.
    pub align: u32,
}

/// Offsets of the lanes from lane 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Offsets {
    /// The lane's index times this stride.
    Linear(i64),
    Table(Rc<[i64]>),
}

/// The alignment of 0.
pub(crate) const ZERO_ALIGN: u32 = 64;

impl Offsets {
    pub const NONE: Offsets = Offsets::Linear(0);

    /// The offsets of these lanes; the first is 0.
    pub fn of(table: Vec<i64>) -> Self {
        let step = table.get(1).copied().unwrap_or(0);
        let linear = table.iter().enumerate().all(|(lane, o)| *o == step.wrapping_mul(lane as i64));
        if linear { Offsets::Linear(step) } else { Offsets::Table(table.into()) }
    }

    pub fn at(&self, lane: u32) -> i64 {
        match self {
            Offsets::Linear(step) => step.wrapping_mul(i64::from(lane)),
            Offsets::Table(table) => table[lane as usize],
        }
    }

    /// Maximum absolute offset from lane 0.
    pub fn span(&self, lanes: u32) -> u64 {
        match self {
            Offsets::Linear(step) => step.unsigned_abs().saturating_mul(u64::from(lanes.saturating_sub(1))),
            Offsets::Table(table) => table.iter().map(|o| o.unsigned_abs()).max().unwrap_or(0),
        }
    }

    fn map(&self, lanes: u32, f: impl Fn(i64) -> i64) -> Offsets {
        Offsets::of((0..lanes).map(|lane| f(self.at(lane))).collect())
    }

    fn sum(&self, other: &Offsets, lanes: u32) -> Offsets {
        match (self, other) {
            (Offsets::Linear(a), Offsets::Linear(b)) => Offsets::Linear(a.wrapping_add(*b)),
            _ => Offsets::of((0..lanes).map(|l| self.at(l).wrapping_add(other.at(l))).collect()),
        }
    }

    fn times(&self, factor: i64) -> Offsets {
        match self {
            Offsets::Linear(step) => Offsets::Linear(step.wrapping_mul(factor)),
            Offsets::Table(table) => Offsets::of(table.iter().map(|o| o.wrapping_mul(factor)).collect()),
        }
    }
}

impl Pattern {
    /// The uniform pattern.
    pub fn uniform(same: bool, align: u32) -> Self {
        Self { offsets: Offsets::NONE, loose: false, unwrapped: true, same, align }
    }

    pub fn is_uniform(&self) -> bool {
        self.offsets == Offsets::NONE
    }
}

/// Shape of a value, and the range of its numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub shape: Shape,
    /// The largest value of any lane, as an unsigned integer.
    pub max: u64,
    /// The value, if it is a constant.
    pub constant: Option<u64>,
}

impl Known {
    pub const UNKNOWN: Known = Known { shape: Shape::Unknown, max: 0, constant: None };

    pub fn varying(width: u32) -> Self {
        Self { shape: Shape::Varying, max: largest(width), constant: None }
    }

    pub fn uniform(same: bool, width: u32) -> Self {
        Self { shape: Shape::Lanes(Pattern::uniform(same, 0)), max: largest(width), constant: None }
    }

    pub fn constant(value: u64) -> Self {
        let align = if value == 0 { ZERO_ALIGN } else { value.trailing_zeros() };
        Self { shape: Shape::Lanes(Pattern::uniform(true, align)), max: value, constant: Some(value) }
    }

    pub fn pattern(&self) -> Option<&Pattern> {
        match &self.shape {
            Shape::Lanes(pattern) => Some(pattern),
            _ => None,
        }
    }

    pub fn is_unknown(&self) -> bool {
        self.shape == Shape::Unknown
    }

    pub fn is_uniform(&self) -> bool {
        self.pattern().is_some_and(Pattern::is_uniform)
    }

    /// Whether all lanes of all vectors side by side have one value.
    pub fn is_same(&self) -> bool {
        self.pattern().is_some_and(|p| p.is_uniform() && p.same)
    }

    fn with(self, f: impl FnOnce(Pattern) -> Option<Pattern>) -> Self {
        let shape = match self.shape {
            Shape::Lanes(pattern) => f(pattern).map_or(Shape::Varying, Shape::Lanes),
            other => other,
        };
        Self { shape, ..self }
    }

    /// What is known of a value that is one of the two, the same one for all lanes.
    pub fn either(&self, other: &Known) -> Known {
        let max = self.max.max(other.max);
        let shape = match (&self.shape, &other.shape) {
            (Shape::Unknown, shape) | (shape, Shape::Unknown) => shape.clone(),
            (Shape::Lanes(a), Shape::Lanes(b)) if a.offsets == b.offsets => Shape::Lanes(Pattern {
                offsets: a.offsets.clone(),
                loose: a.loose || b.loose,
                unwrapped: a.unwrapped && b.unwrapped,
                same: a.same && b.same,
                align: a.align.min(b.align),
            }),
            _ => Shape::Varying,
        };
        Known { shape, max, constant: self.constant.filter(|c| other.constant == Some(*c)) }
    }
}

/// The largest number of a width.
pub(crate) fn largest(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Shapes of results, for vectors of a number of lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub lanes: u32,
}

impl Rules {
    /// `a op b` of integers of this width.
    pub fn binary(self, op: BinaryOp, width: u32, a: &Known, b: &Known) -> Known {
        let max = self.binary_max(op, width, a, b);
        let (Some(p), Some(q)) = (a.pattern(), b.pattern()) else {
            let unknown = a.is_unknown() || b.is_unknown();
            return Known {
                shape: if unknown { Shape::Unknown } else { Shape::Varying },
                max,
                constant: None,
            };
        };
        let same = p.same && q.same;
        let pattern = match op {
            BinaryOp::Add | BinaryOp::Or if op == BinaryOp::Add || self.is_disjoint(a, b) => Some(Pattern {
                offsets: p.offsets.sum(&q.offsets, self.lanes),
                loose: p.loose || q.loose,
                unwrapped: false,
                same,
                align: p.align.min(q.align),
            }),
            BinaryOp::Sub => Some(Pattern {
                offsets: p.offsets.sum(&q.offsets.times(-1), self.lanes),
                loose: p.loose || q.loose,
                unwrapped: false,
                same,
                align: p.align.min(q.align),
            }),
            BinaryOp::Mul => match (a.constant, b.constant) {
                (_, Some(k)) => Some(scaled(p, k, same)),
                (Some(k), _) => Some(scaled(q, k, same)),
                _ if p.is_uniform() && q.is_uniform() => {
                    Some(Pattern::uniform(same, p.align.saturating_add(q.align).min(ZERO_ALIGN)))
                }
                _ => None,
            },
            BinaryOp::Shl => match b.constant {
                Some(k) if k < 63 => Some(scaled(p, 1 << k, same)),
                _ => both_uniform(p, q),
            },
            BinaryOp::LShr | BinaryOp::UDiv => {
                let shift = b.constant.and_then(|k| if op == BinaryOp::LShr { Some(k) } else { log2(k) });
                shift.and_then(|k| self.shifted(width, a, k)).or_else(|| both_uniform(p, q))
            }
            BinaryOp::URem => {
                let low = b.constant.and_then(log2);
                low.and_then(|k| self.low_bits(a, k)).or_else(|| both_uniform(p, q))
            }
            // Of numbers that are not negative, as the unsigned operations.
            BinaryOp::SDiv => {
                let shift = non_negative(width, a, b).and_then(log2);
                shift.and_then(|k| self.shifted(width, a, k)).or_else(|| both_uniform(p, q))
            }
            BinaryOp::SRem => {
                let low = non_negative(width, a, b).and_then(log2);
                low.and_then(|k| self.low_bits(a, k)).or_else(|| both_uniform(p, q))
            }
            BinaryOp::And => {
                let mask = b.constant.map(|mask| (a, mask)).or_else(|| a.constant.map(|mask| (b, mask)));
                mask.and_then(|(v, mask)| self.masked(v, mask)).or_else(|| both_uniform(p, q))
            }
            _ => both_uniform(p, q),
        };
        self.finish(width, pattern, max)
    }

    /// A pattern as a value's shape; wrapping is judged by the largest value.
    fn finish(self, width: u32, pattern: Option<Pattern>, max: u64) -> Known {
        let shape = match pattern {
            None => Shape::Varying,
            Some(p) if p.loose && p.is_uniform() => Shape::Varying,
            Some(p) => {
                let unwrapped = p.unwrapped || self.fits(&p, max, width);
                Shape::Lanes(Pattern { unwrapped, ..p })
            }
        };
        Known { shape, max, constant: None }
    }

    /// Whether lanes of values up to `max` cannot have wrapped around in this width.
    fn fits(self, p: &Pattern, max: u64, width: u32) -> bool {
        p.is_uniform()
            || !p.loose && max.checked_add(p.offsets.span(self.lanes)).is_some_and(|m| m <= largest(width))
    }

    /// `v >> bits` where lane 0 is a multiple of 2^bits.
    fn shifted(self, width: u32, v: &Known, bits: u64) -> Option<Pattern> {
        let p = v.pattern()?;
        if p.is_uniform() {
            return None;
        }
        let whole = u64::from(p.align) >= bits && bits < u64::from(width) && p.unwrapped && !p.loose;
        whole.then(|| Pattern {
            offsets: p.offsets.map(self.lanes, |o| o >> bits),
            align: p.align - bits as u32,
            ..p.clone()
        })
    }

    /// `v & (2^bits - 1)` where lane 0 is a multiple of 2^bits.
    fn low_bits(self, v: &Known, bits: u32) -> Option<Pattern> {
        let p = v.pattern()?;
        if p.is_uniform() || p.align < bits || bits > 32 {
            return None;
        }
        let mask = (1_i64 << bits) - 1;
        let offsets = p.offsets.map(self.lanes, |o| o & mask);
        Some(Pattern { offsets, loose: false, unwrapped: true, same: true, align: ZERO_ALIGN })
    }

    /// `v & mask`.
    fn masked(self, v: &Known, mask: u64) -> Option<Pattern> {
        let p = v.pattern()?;
        if p.is_uniform() {
            return Some(Pattern::uniform(p.same, p.align.max(mask.trailing_zeros())));
        }
        if let Some(low) = log2(mask.wrapping_add(1)).and_then(|bits| self.low_bits(v, bits)) {
            return Some(low);
        }
        // The bits of the offsets are below those of lane 0.
        let below = 1_i64.checked_shl(p.align).filter(|below| *below > 0).unwrap_or(i64::MAX);
        if p.loose || !(0..self.lanes).all(|lane| (0..below).contains(&p.offsets.at(lane))) {
            return None;
        }
        let low = mask & (below - 1) as u64;
        let high = mask & !low;
        let offsets = p.offsets.map(self.lanes, |offset| offset & low as i64);
        let align = if high == 0 { ZERO_ALIGN } else { high.trailing_zeros() };
        Some(Pattern { offsets, loose: false, unwrapped: true, same: p.same || high == 0, align })
    }

    /// Whether an `or` of the two is their sum, in all lanes.
    fn is_disjoint(self, a: &Known, b: &Known) -> bool {
        let below = |v: &Known, other: &Pattern| {
            let lowest = (0..self.lanes).map(|l| other.offsets.at(l).trailing_zeros().min(ZERO_ALIGN));
            let align = lowest.min().unwrap_or(0).min(other.align);
            other.unwrapped && !other.loose && align < 64 && v.max < 1 << align
        };
        match (a.pattern(), b.pattern()) {
            (Some(p), Some(q)) if !p.is_uniform() || !q.is_uniform() => below(a, q) || below(b, p),
            _ => false,
        }
    }

    fn binary_max(self, op: BinaryOp, width: u32, a: &Known, b: &Known) -> u64 {
        let all = largest(width);
        let fitting = |m: Option<u64>| m.filter(|m| *m <= all).unwrap_or(all);
        match op {
            BinaryOp::Add => fitting(a.max.checked_add(b.max)),
            BinaryOp::Mul => fitting(a.max.checked_mul(b.max)),
            BinaryOp::And => a.max.min(b.max),
            BinaryOp::Or | BinaryOp::Xor => {
                let power = a.max.max(b.max).checked_add(1).and_then(u64::checked_next_power_of_two);
                all.min(power.map_or(all, |m| m - 1))
            }
            BinaryOp::UDiv => a.max,
            BinaryOp::URem => a.max.min(b.max.saturating_sub(1).max(1)),
            BinaryOp::SDiv if a.max.max(b.max) <= all / 2 => a.max,
            BinaryOp::SRem if a.max.max(b.max) <= all / 2 => a.max.min(b.max.saturating_sub(1).max(1)),
            BinaryOp::LShr => match b.constant {
                Some(k) if k < 64 => a.max >> k,
                _ => a.max,
            },
            BinaryOp::Shl => match b.constant {
                Some(k) if k < 64 => fitting(a.max.checked_mul(1 << k)),
                _ => all,
            },
            _ => all,
        }
    }

    /// A conversion between integers, or between those and pointers.
    pub fn cast(self, op: CastOp, from: u32, to: u32, v: &Known) -> Known {
        let max = match op {
            CastOp::ZExt | CastOp::PtrToInt | CastOp::IntToPtr | CastOp::BitCast => v.max,
            CastOp::SExt if v.max <= largest(from) / 2 => v.max,
            CastOp::Trunc if v.max <= largest(to) => v.max,
            _ => largest(to),
        };
        let known = Known { shape: v.shape.clone(), max, constant: None };
        known.with(|p| {
            if p.is_uniform() {
                return Some(Pattern { align: p.align.min(if op == CastOp::SExt { from } else { to }), ..p });
            }
            match op {
                CastOp::ZExt if p.unwrapped => Some(p),
                CastOp::ZExt if from == 32 => Some(Pattern { loose: true, unwrapped: false, ..p }),
                CastOp::SExt if self.fits(&p, v.max, from - 1) => Some(p),
                CastOp::SExt if from == 32 => Some(Pattern { loose: true, unwrapped: false, ..p }),
                CastOp::Trunc if to <= 32 => {
                    let short = Pattern { loose: false, unwrapped: false, ..p };
                    let unwrapped = self.fits(&short, max, to);
                    Some(Pattern { unwrapped, ..short })
                }
                CastOp::IntToPtr if p.loose => None,
                CastOp::Trunc | CastOp::PtrToInt | CastOp::IntToPtr | CastOp::BitCast if from == to => {
                    Some(p)
                }
                _ => None,
            }
        })
    }

    /// `base + index * size` as an address, the index of 64 bits, in an object of up to `bound` bytes.
    pub fn address(self, base: &Known, index: &Known, size: u64, bound: u64) -> Known {
        // A loose index may be off by a multiple of 2³², hence the address by a multiple of this power of two, also modulo 2⁶⁴. If
        // that is above the bound, it is so by a sixteenth or more: by more than a vector's length.
        let off = 1_u128 << (32 + size.trailing_zeros());
        if index.pattern().is_some_and(|p| p.loose) && off <= bound.into() {
            return Known { shape: Shape::Varying, max: u64::MAX, constant: None };
        }
        let step = self.binary(BinaryOp::Mul, 64, index, &Known::constant(size));
        let sum = self.binary(BinaryOp::Add, 64, base, &step);
        Known { max: u64::MAX, ..sum }
    }
}

/// A pattern times a constant.
fn scaled(p: &Pattern, factor: u64, same: bool) -> Pattern {
    let more = if factor == 0 { ZERO_ALIGN } else { factor.trailing_zeros() };
    Pattern {
        offsets: p.offsets.times(factor as i64),
        loose: p.loose && factor != 0,
        unwrapped: false,
        same,
        align: (p.align + more).min(ZERO_ALIGN),
    }
}

fn both_uniform(p: &Pattern, q: &Pattern) -> Option<Pattern> {
    (p.is_uniform() && q.is_uniform()).then(|| Pattern::uniform(p.same && q.same, 0))
}

/// The divisor of a signed division, if it is constant and neither operand is negative.
fn non_negative(width: u32, a: &Known, b: &Known) -> Option<u64> {
    b.constant.filter(|b| a.max.max(*b) <= largest(width) / 2)
}

/// The logarithm of a power of two.
fn log2<T: TryFrom<u32>>(n: u64) -> Option<T> {
    n.is_power_of_two().then(|| T::try_from(n.trailing_zeros()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { lanes: 16 };

    /// The thread's x: 0 to 255, its vector begins at a multiple of 16.
    fn thread() -> Known {
        let pattern =
            Pattern { offsets: Offsets::Linear(1), loose: false, unwrapped: true, same: false, align: 4 };
        Known { shape: Shape::Lanes(pattern), max: 255, constant: None }
    }

    fn pattern(known: &Known) -> &Pattern {
        known.pattern().unwrap_or_else(|| panic!("{known:?}"))
    }

    #[test]
    fn sums_and_multiples() {
        let sum = RULES.binary(BinaryOp::Add, 32, &thread(), &Known::constant(3));
        assert_eq!((pattern(&sum).offsets.at(5), pattern(&sum).align, sum.max), (5, 0, 258));
        assert!(pattern(&sum).unwrapped, "it cannot wrap");
        let four = RULES.binary(BinaryOp::Shl, 32, &sum, &Known::constant(2));
        assert_eq!((pattern(&four).offsets.at(5), pattern(&four).align), (20, 2));
        let none = RULES.binary(BinaryOp::Sub, 32, &four, &four);
        assert!(none.is_uniform() && !none.is_same());
        let square = RULES.binary(BinaryOp::Mul, 32, &thread(), &thread());
        assert_eq!(square.shape, Shape::Varying);
    }

    #[test]
    fn what_may_wrap_is_loose_when_widened() {
        let wide = RULES.cast(CastOp::ZExt, 32, 64, &thread());
        assert!(!pattern(&wide).loose);
        let before = RULES.binary(BinaryOp::Sub, 32, &thread(), &Known::constant(1));
        let wide = RULES.cast(CastOp::ZExt, 32, 64, &before);
        assert!(pattern(&wide).loose && pattern(&wide).offsets.at(1) == 1);
        let sum = RULES.binary(BinaryOp::Add, 64, &wide, &Known::uniform(true, 64));
        assert!(pattern(&sum).loose);
        let narrow = RULES.cast(CastOp::Trunc, 64, 32, &sum);
        assert!(!pattern(&narrow).loose);
        assert_eq!(RULES.cast(CastOp::IntToPtr, 64, 64, &sum).shape, Shape::Varying);
        let difference = RULES.binary(BinaryOp::Sub, 64, &wide, &wide);
        assert_eq!(difference.shape, Shape::Varying, "lanes may be 2^32 apart");
        let short = RULES.binary(BinaryOp::Sub, 16, &thread(), &Known::constant(1));
        assert_eq!(RULES.cast(CastOp::ZExt, 16, 64, &short).shape, Shape::Varying);
    }

    #[test]
    fn loose_addresses_have_a_pattern_in_small_objects() {
        let before = RULES.binary(BinaryOp::Sub, 32, &thread(), &Known::constant(1));
        let (exact, loose) =
            (RULES.cast(CastOp::ZExt, 32, 64, &thread()), RULES.cast(CastOp::ZExt, 32, 64, &before));
        let of = |index: &Known, size: u64, gib: u64| {
            RULES.address(&Known::uniform(true, 64), index, size, gib << 30).pattern().is_some()
        };
        assert_eq!([2, 4, 8].map(|gib| of(&loose, 1, gib)), [true, false, false]);
        assert_eq!([2, 8, 15, 16].map(|gib| of(&loose, 4, gib)), [true, true, true, false]);
        assert_eq!([15, 16].map(|gib| of(&loose, 12, gib)), [true, false], "multiples of 4 · 2^32");
        assert_eq!([60, 64].map(|gib| of(&loose, 16, gib)), [true, false]);
        assert!(of(&loose, 0, 1 << 33) && of(&exact, 1, 1 << 33));
    }

    #[test]
    fn bits_of_the_lane() {
        let low = RULES.binary(BinaryOp::And, 32, &thread(), &Known::constant(7));
        let offsets: Vec<i64> = (0..16).map(|l| pattern(&low).offsets.at(l)).collect();
        assert_eq!(offsets, [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(pattern(&low).same && low.max == 7);
        let row = RULES.binary(BinaryOp::LShr, 32, &thread(), &Known::constant(4));
        assert!(row.is_uniform() && row.max == 15);
        let half = RULES.binary(BinaryOp::UDiv, 32, &thread(), &Known::constant(8));
        assert_eq!((pattern(&half).offsets.at(7), pattern(&half).offsets.at(8)), (0, 1));
        let odd = RULES.binary(BinaryOp::Add, 32, &thread(), &Known::constant(1));
        assert_eq!(RULES.binary(BinaryOp::And, 32, &odd, &Known::constant(7)).shape, Shape::Varying);
        assert_eq!(RULES.binary(BinaryOp::And, 32, &odd, &Known::constant(12)).shape, Shape::Varying);
    }

    #[test]
    fn any_bits_of_the_lane() {
        let some = RULES.binary(BinaryOp::And, 32, &thread(), &Known::constant(0b10_0110));
        let offsets: Vec<i64> = (0..16).map(|l| pattern(&some).offsets.at(l)).collect();
        assert_eq!(offsets, [0, 0, 2, 2, 4, 4, 6, 6, 0, 0, 2, 2, 4, 4, 6, 6]);
        // Lane 0 may have bit 5 set.
        assert!(!pattern(&some).same && pattern(&some).align == 5 && pattern(&some).unwrapped);
        let high = RULES.binary(BinaryOp::And, 32, &Known::uniform(true, 32), &Known::constant(0xffff_fff8));
        assert_eq!((high.is_uniform(), pattern(&high).align), (true, 3));
        let sum = RULES.binary(BinaryOp::Or, 32, &high, &some);
        assert_eq!(sum.shape, Shape::Varying, "both have bit 5");
        let sum = RULES.binary(BinaryOp::And, 32, &thread(), &Known::constant(6));
        let sum = RULES.binary(BinaryOp::Or, 32, &high, &sum);
        assert_eq!((pattern(&sum).offsets.at(7), pattern(&sum).offsets.at(8)), (6, 0));
    }

    #[test]
    fn signed_division_of_numbers_that_are_not_negative() {
        let quarter = RULES.binary(BinaryOp::SDiv, 32, &thread(), &Known::constant(4));
        assert_eq!((pattern(&quarter).offsets.at(7), quarter.max), (1, 255));
        let rest = RULES.binary(BinaryOp::SRem, 32, &thread(), &Known::constant(4));
        assert_eq!((pattern(&rest).offsets.at(7), rest.max), (3, 3));
        let any = Known { max: u64::from(u32::MAX), ..thread() };
        assert_eq!(RULES.binary(BinaryOp::SDiv, 32, &any, &Known::constant(4)).shape, Shape::Varying);
        let negative = Known::constant(0x8000_0000);
        assert_eq!(RULES.binary(BinaryOp::SRem, 32, &thread(), &negative).shape, Shape::Varying);
    }

    #[test]
    fn merging() {
        let next = RULES.binary(BinaryOp::Add, 32, &thread(), &Known::uniform(true, 32));
        let either = thread().either(&next);
        assert_eq!(pattern(&either).offsets, Offsets::Linear(1));
        assert!(!pattern(&either).unwrapped && pattern(&either).align == 0);
        assert_eq!(thread().either(&Known::constant(1)).shape, Shape::Varying);
        assert_eq!(thread().either(&Known::UNKNOWN).shape, thread().shape);
    }
}
