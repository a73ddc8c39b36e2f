//! LLVM's intrinsics.

use elinvar_ir::{BinaryOp, Call, CallArg, Type};

use crate::fault::{Problem, Result};
use crate::machine::Machine;
use crate::value::{Value, truncated, width};
use crate::{float, integer, math};

impl Machine<'_> {
    /// Call `llvm.<name>`.
    pub(crate) fn intrinsic(&mut self, name: &str, call: &Call, args: &[Value]) -> Result<Option<Value>> {
        let base = base(name);
        if let Some(done) = self.memory_intrinsic(base, call, args)? {
            return Ok(done);
        }
        let ty = call.args.first().map_or(&call.ret, |a| &a.ty);
        let value = match (base, args) {
            ("trap" | "debugtrap" | "ubsantrap", _) => return Err(Problem::Unreachable),
            ("expect" | "expect.with.probability" | "launder.invariant.group" | "ssa.copy", [a, ..]) => {
                Some(a.clone())
            }
            ("is.constant", _) => Some(Value::bool(false)),
            ("objectsize", _) => Some(Value::Bits(truncated(u128::MAX, width(&call.ret)?))),
            ("fptosi.sat" | "fptoui.sat", [a]) => {
                let to = width(call.ret.scalar())?;
                let signed = base == "fptosi.sat";
                Some(a.map(&mut |a| Ok(float::to_int(float::decode(ty.scalar(), a)?, to, signed)))?)
            }
            ("is.fpclass", [a, classes]) => {
                let classes = classes.known("the classes of llvm.is.fpclass")?;
                Some(a.map(&mut |a| Ok(u128::from(classes & math::class(ty.scalar(), a)? != 0)))?)
            }
            ("fshl" | "fshr", [high, low, amount]) => {
                let width = width(ty.scalar())?;
                Some(lanes(&[high, low, amount], &mut |v| {
                    Ok(integer::funnel(base == "fshl", width, v[0], v[1], v[2]))
                })?)
            }
            _ => computed(base, ty, args)?,
        };
        let unknown = || Problem::Unsupported(format!("the intrinsic `llvm.{name}`"));
        value.map(Some).ok_or_else(unknown)
    }

    /// A memory intrinsic: `None` if it is another intrinsic, otherwise its result.
    fn memory_intrinsic(&mut self, base: &str, call: &Call, args: &[Value]) -> Result<Option<Option<Value>>> {
        let align = |at: usize| call.args.get(at).map_or(1, CallArg::align);
        let address = |v: &Value| Ok(v.known("an address")? as u64);
        match (base, args) {
            ("memcpy" | "memmove" | "memcpy.inline", [to, from, len, ..]) => {
                let len = len.known("the length of a copy")? as u64;
                if len > 0 {
                    self.memory.read(address(from)?, len, align(1))?;
                    self.memory.write(address(to)?, len, align(0))?;
                }
                self.memory.copy(address(to)?, address(from)?, len)?;
            }
            ("memset" | "memset.inline", [to, byte, len, ..]) => {
                let len = len.known("the length of a fill")? as u64;
                if len > 0 {
                    self.memory.write(address(to)?, len, align(0))?;
                }
                self.fill(address(to)?, byte, len)?;
            }
            ("lifetime.start" | "lifetime.end", [.., variable]) => self.memory.forget(address(variable)?),
            ("invariant.end", _) => {}
            _ => return Ok(None),
        }
        Ok(Some(None))
    }

    /// As `memset` does.
    pub(crate) fn fill(&mut self, to: u64, byte: &Value, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let byte = byte.bits()?;
        let (bytes, written) = self.memory.write(to, len, 1)?;
        bytes.fill(byte.unwrap_or(0) as u8);
        written.fill(byte.is_some());
        Ok(())
    }
}

/// Pure intrinsics, on operands of type `ty`.
fn computed(base: &str, ty: &Type, args: &[Value]) -> Result<Option<Value>> {
    let scalar = ty.scalar();
    if let Some(op) = base.strip_prefix("vector.reduce.") {
        return reduce(op, scalar, args);
    }
    if let (Type::Int(width), [a, ..]) = (scalar, args) {
        let known = |r: Option<u128>| r.ok_or_else(unreachable_name);
        if integer::unary(base, *width, 0).is_some() {
            return a.map(&mut |a| known(integer::unary(base, *width, a))).map(Some);
        }
        let [a, b] = args else { return Ok(None) };
        if integer::pair(base, *width, 0, 0).is_some() {
            let pair = &mut |a, b| Ok(truncated(known(integer::pair(base, *width, a, b))?, *width));
            return a.zip(b, pair).map(Some);
        }
        if integer::overflowing(base, *width, 0, 0).is_some() {
            let part = |a, b| integer::overflowing(base, *width, a, b).ok_or_else(unreachable_name);
            let result = a.zip(b, &mut |a, b| Ok(part(a, b)?.0))?;
            let overflows = a.zip(b, &mut |a, b| Ok(u128::from(part(a, b)?.1)))?;
            return Ok(Some(Value::List(vec![result, overflows])));
        }
        return Ok(None);
    }
    if !scalar.is_float() {
        return Ok(None);
    }
    math::named(base, scalar, args)
}

fn unreachable_name() -> Problem {
    Problem::Malformed("an intrinsic of another type".into())
}

/// `llvm.vector.reduce.*`, from the first lane to the last.
fn reduce(op: &str, scalar: &Type, args: &[Value]) -> Result<Option<Value>> {
    let (start, vector) = match args {
        [vector] => (None, vector),
        [start, vector] => (Some(start.clone()), vector),
        _ => return Ok(None),
    };
    let lanes = vector.list()?;
    let mut values = start.into_iter().chain(lanes.iter().cloned());
    let Some(first) = values.next() else { return Ok(None) };
    let binary = match op {
        "add" => BinaryOp::Add,
        "mul" => BinaryOp::Mul,
        "and" => BinaryOp::And,
        "or" => BinaryOp::Or,
        "xor" => BinaryOp::Xor,
        "fadd" => BinaryOp::FAdd,
        "fmul" => BinaryOp::FMul,
        _ => {
            let name = match op {
                "fmax" => "maxnum",
                "fmin" => "minnum",
                other => other,
            };
            let mut total = first;
            for value in values {
                let Some(next) = computed(name, scalar, &[total, value])? else { return Ok(None) };
                total = next;
            }
            return Ok(Some(total));
        }
    };
    let combine = |total: Value, value: Value| {
        total.zip(&value, &mut |a, b| match scalar {
            Type::Int(width) => integer::binary(binary, *width, a, b),
            _ => float::binary(binary, scalar, a, b),
        })
    };
    values.try_fold(first, combine).map(Some)
}

/// Apply `f` to scalars, or lane by lane to vectors; poison where any operand is.
pub(crate) fn lanes(args: &[&Value], f: &mut dyn FnMut(&[u128]) -> Result<u128>) -> Result<Value> {
    let count = args.iter().filter_map(|a| a.list().ok()).map(<[Value]>::len).next();
    let Some(count) = count else {
        let bits = args.iter().map(|a| a.bits()).collect::<Result<Option<Vec<u128>>>>()?;
        return bits.map_or(Ok(Value::Poison), |bits| f(&bits).map(Value::Bits));
    };
    let lane = |i: usize| {
        let items: Vec<&Value> = args.iter().map(|a| a.list().map_or(*a, |l| &l[i])).collect();
        lanes(&items, f)
    };
    Ok(Value::List((0..count).map(lane).collect::<Result<_>>()?))
}

/// The name without type suffixes: `uadd.with.overflow` for `uadd.with.overflow.i32`.
fn base(name: &str) -> &str {
    let mut base = name;
    while let Some((front, last)) = base.rsplit_once('.') {
        let digits = last.trim_start_matches(|c: char| c.is_ascii_lowercase());
        let is_type = digits.starts_with(|c: char| c.is_ascii_digit())
            && ["i", "f", "bf", "v", "p"].contains(&&last[..last.len() - digits.len()]);
        if !is_type {
            break;
        }
        base = front;
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_types() {
        assert_eq!(base("memcpy.p0.p0.i64"), "memcpy");
        assert_eq!(base("uadd.with.overflow.v4i32"), "uadd.with.overflow");
        assert_eq!(base("fptosi.sat.i32.bf16"), "fptosi.sat");
        assert_eq!(base("lifetime.start.p0"), "lifetime.start");
        assert_eq!(base("exp2.f32"), "exp2");
    }

    #[test]
    fn reductions_and_lanes() {
        let vector = Value::List([1u128, 5, 0xff].map(Value::Bits).to_vec());
        let smax = computed("vector.reduce.smax", &Type::vector(3, Type::I8), std::slice::from_ref(&vector));
        assert_eq!(smax, Ok(Some(Value::Bits(5))));
        let sum = computed("vector.reduce.add", &Type::vector(3, Type::I8), std::slice::from_ref(&vector));
        assert_eq!(sum, Ok(Some(Value::Bits(5))));
        assert_eq!(computed("ctpop", &Type::I8, &[Value::Bits(0xff)]), Ok(Some(Value::Bits(8))));
        assert_eq!(computed("nothing", &Type::I8, &[Value::Bits(0xff)]), Ok(None));
    }
}
