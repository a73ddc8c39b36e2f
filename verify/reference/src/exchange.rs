//! Functions across a simdgroup or quadgroup, for the threads that call them together.
//!
//! The other lanes are inactive: reductions leave them out, and what a shuffle reads from one is
//! undefined in Metal and zero here.

use elinvar_ir::{BinaryOp, Type};

use crate::fault::{Problem, Result};
use crate::float;
use crate::integer;
use crate::math;
use crate::value::{Value, truncated};

/// The lanes of a simdgroup.
pub(crate) const LANES: usize = 32;

/// What an active lane passes.
pub(crate) type Call<'a> = Option<&'a [Value]>;

/// The results of the active lanes of one simdgroup, `None` for the others.
pub(crate) fn exchange(name: &str, calls: &[Call<'_>; LANES]) -> Result<[Option<Value>; LANES]> {
    let unknown = || Problem::Unsupported(format!("the primitive `{name}`"));
    let (width, function) = match (name.strip_prefix("__elinvar_simd_"), name.strip_prefix("__elinvar_quad_"))
    {
        (Some(function), _) => (LANES, function),
        (_, Some(function)) => (4, function),
        _ => return Err(unknown()),
    };
    let mut results = [const { None }; LANES];
    for base in (0..LANES).step_by(width) {
        let group = Group { calls: &calls[base..base + width] };
        for lane in (0..width).filter(|l| group.calls[*l].is_some()) {
            let result = match function {
                "ballot" => Some(group.ballot()?),
                "is_first" => Some(Value::bool(group.active().next() == Some(lane))),
                _ => match function.rsplit_once('_') {
                    Some((function, ty)) => group.function(function, ty, lane)?,
                    None => None,
                },
            };
            results[base + lane] = Some(result.ok_or_else(unknown)?);
        }
    }
    Ok(results)
}

/// The lanes among which a function exchanges.
struct Group<'a> {
    calls: &'a [Call<'a>],
}

/// The scalar type of a suffix, and whether it is signed.
fn scalar(suffix: &str) -> Option<(Type, bool)> {
    Some(match suffix {
        "b8" => (Type::I1, false),
        "i8" => (Type::I8, true),
        "u8" => (Type::I8, false),
        "i16" => (Type::I16, true),
        "u16" => (Type::I16, false),
        "i32" => (Type::I32, true),
        "u32" => (Type::I32, false),
        "i64" => (Type::I64, true),
        "u64" => (Type::I64, false),
        "f16" => (Type::Half, true),
        "bf16" => (Type::BFloat, true),
        "f32" => (Type::Float, true),
        _ => return None,
    })
}

impl Group<'_> {
    fn width(&self) -> usize {
        self.calls.len()
    }

    fn active(&self) -> impl Iterator<Item = usize> {
        (0..self.width()).filter(|l| self.calls[*l].is_some())
    }

    /// What a lane passes; zero when it is inactive.
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

    fn function(&self, name: &str, suffix: &str, lane: usize) -> Result<Option<Value>> {
        let Some((ty, is_signed)) = scalar(suffix) else { return Ok(None) };
        let width = self.width();
        let own = self.passed(lane, 0);
        Ok(Some(match name {
            "broadcast" | "shuffle" => self.passed(self.number(lane, 1)?, 0),
            "broadcast_first" => self.passed(self.active().next().unwrap_or(lane), 0),
            "shuffle_xor" => self.passed(lane ^ self.number(lane, 1)?, 0),
            "shuffle_up" => lane.checked_sub(self.number(lane, 1)?).map_or(own, |from| self.passed(from, 0)),
            "shuffle_down" => match lane + self.number(lane, 1)? {
                from if from < width => self.passed(from, 0),
                _ => own,
            },
            "shuffle_rotate_up" => {
                let distance = self.number(lane, 1)? % width;
                self.passed((lane + width - distance) % width, 0)
            }
            "shuffle_rotate_down" => self.passed((lane + self.number(lane, 1)?) % width, 0),
            "shuffle_and_fill_up" | "shuffle_and_fill_down" => self.filled(name.ends_with("up"), lane)?,
            _ => return self.reduction(name, &ty, is_signed, lane),
        }))
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

    fn reduction(&self, name: &str, ty: &Type, is_signed: bool, lane: usize) -> Result<Option<Value>> {
        let (function, until) = match name {
            "prefix_inclusive_sum" => ("sum", lane + 1),
            "prefix_exclusive_sum" => ("sum", lane),
            "prefix_inclusive_product" => ("product", lane + 1),
            "prefix_exclusive_product" => ("product", lane),
            other => (other, self.width()),
        };
        let mut total = None;
        for from in self.active().take_while(|l| *l < until) {
            let value = self.passed(from, 0);
            total = Some(match total {
                None => value,
                Some(total) => match combine(function, ty, is_signed, &total, &value)? {
                    Some(total) => total,
                    None => return Ok(None),
                },
            });
        }
        let identity = match function {
            "product" if ty.is_float() => float::encode(ty, 1.0)?,
            "product" => 1,
            _ => 0,
        };
        Ok(Some(total.unwrap_or(Value::Bits(identity))))
    }
}

fn combine(function: &str, ty: &Type, is_signed: bool, a: &Value, b: &Value) -> Result<Option<Value>> {
    let op = match (function, ty) {
        ("sum", Type::Int(_)) => BinaryOp::Add,
        ("product", Type::Int(_)) => BinaryOp::Mul,
        ("and", Type::Int(_)) => BinaryOp::And,
        ("or", Type::Int(_)) => BinaryOp::Or,
        ("xor", Type::Int(_)) => BinaryOp::Xor,
        ("sum", _) => BinaryOp::FAdd,
        ("product", _) => BinaryOp::FMul,
        ("min" | "max", Type::Int(width)) => {
            let name = format!("{}{function}", if is_signed { 's' } else { 'u' });
            let pair = |a, b| integer::pair(&name, *width, a, b).map(|r| truncated(r, *width));
            return a.zip(b, &mut |a, b| pair(a, b).ok_or(Problem::Unreachable)).map(Some);
        }
        ("min" | "max", _) => return math::named(&format!("f{function}"), ty, &[a.clone(), b.clone()]),
        _ => return Ok(None),
    };
    a.zip(b, &mut |a, b| match ty {
        Type::Int(width) => integer::binary(op, *width, a, b),
        _ => float::binary(op, ty, a, b),
    })
    .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes `0..32` pass their own number and `more`; those of `inactive` do not call.
    fn call(name: &str, inactive: &[usize], more: &[u128]) -> Vec<Option<u128>> {
        let args: Vec<Vec<Value>> = (0..LANES as u128)
            .map(|l| std::iter::once(l).chain(more.iter().copied()).map(Value::Bits).collect())
            .collect();
        let mut calls: [Call<'_>; LANES] = [None; LANES];
        for lane in (0..LANES).filter(|l| !inactive.contains(l)) {
            calls[lane] = Some(&args[lane]);
        }
        let results = exchange(name, &calls).unwrap();
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
    fn unknown_functions_are_named() {
        let args = [Value::Bits(0)];
        let calls = [Some(&args[..]); LANES];
        let error = exchange("__elinvar_simd_frobnicate_u32", &calls).unwrap_err();
        assert!(error.to_string().contains("__elinvar_simd_frobnicate_u32"), "{error}");
    }
}
