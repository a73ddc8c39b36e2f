//! Simdgroup and quadgroup operations, for the threads that execute them together.
//!
//! Other lanes are inactive: they do not participate in reductions, and the value that a shuffle reads from one is undefined in
//! Metal and zero here.

use elinvar_ir::{BinaryOp, Type};
use elinvar_spmd::intrinsic::{Element, Extent, GroupCall, GroupOp, Reduction};

use crate::fault::{Problem, Result};
use crate::float;
use crate::integer;
use crate::math;
use crate::value::{Value, truncated};

/// The lanes of a simdgroup.
pub(crate) const LANES: usize = 32;

/// Operands of an active lane.
pub(crate) type Call<'a> = Option<&'a [Value]>;

/// The results of the active lanes of one simdgroup, `None` for the others.
pub(crate) fn results(function: GroupCall, calls: &[Call<'_>; LANES]) -> Result<[Option<Value>; LANES]> {
    let width = function.group.width() as usize;
    let mut results = [const { None }; LANES];
    for base in (0..LANES).step_by(width) {
        let lanes = Lanes { calls: &calls[base..base + width] };
        for lane in lanes.active() {
            results[base + lane] = Some(lanes.result(function, lane)?);
        }
    }
    Ok(results)
}

/// The lanes of a group.
struct Lanes<'a> {
    calls: &'a [Call<'a>],
}

impl Lanes<'_> {
    fn width(&self) -> usize {
        self.calls.len()
    }

    fn active(&self) -> impl Iterator<Item = usize> {
        (0..self.width()).filter(|l| self.calls[*l].is_some())
    }

    /// A lane's operand; zero if the lane is inactive.
    fn passed(&self, lane: usize, index: usize) -> Value {
        self.calls.get(lane).copied().flatten().and_then(|a| a.get(index)).cloned().unwrap_or(Value::Bits(0))
    }

    fn number(&self, lane: usize, index: usize) -> Result<usize> {
        Ok((self.passed(lane, index).known("a lane or distance")? & 0xffff) as usize)
    }

    fn ballot(&self) -> Result<Value> {
        let mut mask = 0u128;
        for lane in self.active() {
            mask |= (self.passed(lane, 0).known("the condition of a ballot")? & 1) << lane;
        }
        Ok(Value::Bits(mask))
    }

    fn result(&self, function: GroupCall, lane: usize) -> Result<Value> {
        let width = self.width();
        let own = self.passed(lane, 0);
        Ok(match function.op {
            GroupOp::Ballot => self.ballot()?,
            GroupOp::IsFirst => Value::bool(self.active().next() == Some(lane)),
            GroupOp::Broadcast | GroupOp::Shuffle => self.passed(self.number(lane, 1)?, 0),
            GroupOp::BroadcastFirst => self.passed(self.active().next().unwrap_or(lane), 0),
            GroupOp::ShuffleXor => self.passed(lane ^ self.number(lane, 1)?, 0),
            GroupOp::ShuffleUp => {
                lane.checked_sub(self.number(lane, 1)?).map_or(own, |from| self.passed(from, 0))
            }
            GroupOp::ShuffleDown => match lane + self.number(lane, 1)? {
                from if from < width => self.passed(from, 0),
                _ => own,
            },
            GroupOp::ShuffleRotateUp => {
                let distance = self.number(lane, 1)? % width;
                self.passed((lane + width - distance) % width, 0)
            }
            GroupOp::ShuffleRotateDown => self.passed((lane + self.number(lane, 1)?) % width, 0),
            GroupOp::ShuffleAndFillUp => self.filled(true, lane)?,
            GroupOp::ShuffleAndFillDown => self.filled(false, lane)?,
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
            | GroupOp::PrefixExclusiveProduct => self.reduction(function, lane)?,
            GroupOp::MatrixMultiplyAccumulate => self.matrix_element(lane)?,
        })
    }

    /// A lane's two elements of `a * b + c`. Lane i holds row i / 16 * 4 + i / 2 % 4, and the two columns from
    /// i / 8 % 2 * 4 + i % 2 * 2 on. Products are fused and added in order, as on the CPU.
    fn matrix_element(&self, lane: usize) -> Result<Value> {
        let lane_of =
            |row: usize, column: usize| row / 4 * 16 + row % 4 * 2 + column / 4 * 8 + column % 4 / 2;
        let (row, column) = (lane / 16 * 4 + lane / 2 % 4, lane / 8 % 2 * 4 + lane % 2 * 2);
        let element = self.passed(lane, 6).known("which element of a matrix")? as usize & 1;
        let number = |lane: usize, index: usize| -> Result<f32> {
            Ok(f32::from_bits(self.passed(lane, index).known("an element of a matrix")? as u32))
        };
        let mut sum = number(lane, 4 + element)?;
        for k in 0..8 {
            let left = number(lane_of(row, k), k % 2)?;
            sum = left.mul_add(number(lane_of(k, column), 2 + element)?, sum);
        }
        Ok(Value::Bits(u128::from(sum.to_bits())))
    }

    /// A shift within segments of lanes, with the other value's lanes coming in.
    fn filled(&self, up: bool, lane: usize) -> Result<Value> {
        let (distance, segment) = (self.number(lane, 2)?, self.number(lane, 3)?.clamp(1, self.width()));
        let (base, at) = (lane - lane % segment, lane % segment);
        Ok(match (up, at.checked_sub(distance)) {
            (true, Some(from)) => self.passed(base + from, 0),
            (true, None) => self.passed((base + at + segment).wrapping_sub(distance), 1),
            (false, _) if at + distance < segment => self.passed(base + at + distance, 0),
            (false, _) => self.passed(base + at + distance - segment, 1),
        })
    }

    fn reduction(&self, function: GroupCall, lane: usize) -> Result<Value> {
        let (Some((reduction, extent)), Some(element)) = (function.op.reduction(), function.element) else {
            return Err(Problem::Unsupported(format!("the intrinsic `{}`", function.name())));
        };
        let until = match extent {
            Extent::All => self.width(),
            Extent::Inclusive => lane + 1,
            Extent::Exclusive => lane,
        };
        let mut total = None;
        for from in self.active().take_while(|l| *l < until) {
            let value = self.passed(from, 0);
            total = Some(match total {
                None => value,
                Some(total) => combine(reduction, element, &total, &value)?,
            });
        }
        let ty = element.ty();
        let identity = match reduction {
            Reduction::Product if ty.is_float() => float::encode(&ty, 1.0)?,
            Reduction::Product => 1,
            // Only sums and products are defined without active lanes.
            Reduction::Sum
            | Reduction::Min
            | Reduction::Max
            | Reduction::And
            | Reduction::Or
            | Reduction::Xor => 0,
        };
        Ok(total.unwrap_or(Value::Bits(identity)))
    }
}

fn combine(reduction: Reduction, element: Element, a: &Value, b: &Value) -> Result<Value> {
    let ty = &element.ty();
    let is_float = ty.is_float();
    let op = match reduction {
        Reduction::Sum if is_float => BinaryOp::FAdd,
        Reduction::Sum => BinaryOp::Add,
        Reduction::Product if is_float => BinaryOp::FMul,
        Reduction::Product => BinaryOp::Mul,
        Reduction::And => BinaryOp::And,
        Reduction::Or => BinaryOp::Or,
        Reduction::Xor => BinaryOp::Xor,
        Reduction::Min => return bound("min", element, a, b),
        Reduction::Max => return bound("max", element, a, b),
    };
    a.zip(b, &mut |a, b| match ty {
        Type::Int(width) => integer::binary(op, *width, a, b),
        _ => float::binary(op, ty, a, b),
    })
}

/// The lesser or the greater.
fn bound(name: &str, element: Element, a: &Value, b: &Value) -> Result<Value> {
    let Type::Int(width) = element.ty() else {
        let both = [a.clone(), b.clone()];
        return math::named(&format!("f{name}"), &element.ty(), &both)?.ok_or(Problem::Unreachable);
    };
    let name = format!("{}{name}", if element.is_unsigned() { 'u' } else { 's' });
    let pair = |a, b| integer::pair(&name, width, a, b).map(|r| truncated(r, width));
    a.zip(b, &mut |a, b| pair(a, b).ok_or(Problem::Unreachable))
}

#[cfg(test)]
mod tests {
    use elinvar_spmd::intrinsic::Intrinsic;

    use super::*;

    /// Lanes `0..32` pass their index and `more`; those of `inactive` do not participate.
    fn call(name: &str, inactive: &[usize], more: &[u128]) -> Vec<Option<u128>> {
        let args: Vec<Vec<Value>> = (0..LANES as u128)
            .map(|l| std::iter::once(l).chain(more.iter().copied()).map(Value::Bits).collect())
            .collect();
        let mut calls: [Call<'_>; LANES] = [None; LANES];
        for lane in (0..LANES).filter(|l| !inactive.contains(l)) {
            calls[lane] = Some(&args[lane]);
        }
        let Some(Intrinsic::Group(function)) = Intrinsic::parse(name) else { panic!("{name}") };
        let results = results(function, &calls).unwrap();
        results.into_iter().map(|r| r.map(|v| v.known("a result").unwrap())).collect()
    }

    #[test]
    fn reductions_leave_out_inactive_lanes() {
        let sum = call("__elinvar_simd_sum_u32", &[0, 31], &[]);
        assert_eq!((sum[0], sum[1]), (None, Some(465)));
        let prefix = call("__elinvar_simd_prefix_exclusive_sum_i32", &[1], &[]);
        assert_eq!((prefix[0], prefix[3], prefix[4]), (Some(0), Some(2), Some(5)));
        let quad = call("__elinvar_quad_max_u8", &[7], &[]);
        assert_eq!((quad[0], quad[4]), (Some(3), Some(6)));
        assert_eq!(call("__elinvar_simd_is_first", &[0], &[])[1], Some(1));
    }

    #[test]
    fn shuffles() {
        let up = call("__elinvar_simd_shuffle_up_u32", &[], &[2]);
        assert_eq!((up[1], up[5]), (Some(1), Some(3)));
        let down = call("__elinvar_simd_shuffle_down_u32", &[9], &[2]);
        assert_eq!((down[31], down[5], down[7]), (Some(31), Some(7), Some(0)));
        let rotate = call("__elinvar_quad_shuffle_rotate_up_u32", &[], &[1]);
        assert_eq!((rotate[0], rotate[5]), (Some(3), Some(4)));
        let fill = call("__elinvar_simd_shuffle_and_fill_up_u32", &[], &[100, 1, 8]);
        assert_eq!((fill[0], fill[9]), (Some(100), Some(8)));
    }

    #[test]
    fn matrices_are_multiplied() {
        let function = Intrinsic::parse("__elinvar_simd_matrix_multiply_accumulate_f32");
        let Some(Intrinsic::Group(function)) = function else { panic!("{function:?}") };
        let (a, b) =
            (|r: usize, c: usize| (r * 8 + c) as f32, |r: usize, c: usize| (r as f32) - 2.0 * c as f32);
        let place = |lane: usize| (lane / 16 * 4 + lane / 2 % 4, lane / 8 % 2 * 4 + lane % 2 * 2);
        let mut seen = std::collections::HashSet::new();
        for element in 0..2 {
            let args: Vec<Vec<Value>> = (0..LANES)
                .map(|lane| {
                    let (row, column) = place(lane);
                    let floats =
                        [a(row, column), a(row, column + 1), b(row, column), b(row, column + 1), 1.0, 2.0];
                    let floats = floats.map(|float| Value::Bits(u128::from(float.to_bits())));
                    floats.into_iter().chain([Value::Bits(element as u128)]).collect()
                })
                .collect();
            let calls: [Call<'_>; LANES] = std::array::from_fn(|lane| Some(&args[lane][..]));
            for (lane, result) in results(function, &calls).unwrap().into_iter().enumerate() {
                let (row, column) = (place(lane).0, place(lane).1 + element);
                let sum: f32 = (0..8).map(|k| a(row, k) * b(k, column)).sum();
                let bits = result.unwrap().known("a result").unwrap() as u32;
                assert_eq!(f32::from_bits(bits), sum + 1.0 + element as f32, "at {row}, {column}");
                seen.insert((row, column));
            }
        }
        assert_eq!(seen.len(), 64);
    }
}
