//! Floating-point functions, as LLVM intrinsics and as C library functions.

use elinvar_ir::{Call, Type};

use crate::fault::{Problem, Result};
use crate::float::{apply, decode, encode};
use crate::intrinsic::lanes;
use crate::machine::Machine;
use crate::value::{Value, signed, truncated};

type Unary = (fn(f32) -> f32, fn(f64) -> f64);
type Binary = (fn(f32, f32) -> f32, fn(f64, f64) -> f64);

fn unary(name: &str) -> Option<Unary> {
    Some(match name {
        "fabs" => (f32::abs, f64::abs),
        "sqrt" => (f32::sqrt, f64::sqrt),
        "floor" => (f32::floor, f64::floor),
        "ceil" => (f32::ceil, f64::ceil),
        "trunc" => (f32::trunc, f64::trunc),
        "rint" | "nearbyint" | "roundeven" => (f32::round_ties_even, f64::round_ties_even),
        "round" => (f32::round, f64::round),
        "canonicalize" => (|a| a, |a| a),
        "sin" => (libm::sinf, libm::sin),
        "cos" => (libm::cosf, libm::cos),
        "tan" => (libm::tanf, libm::tan),
        "asin" => (libm::asinf, libm::asin),
        "acos" => (libm::acosf, libm::acos),
        "atan" => (libm::atanf, libm::atan),
        "sinh" => (libm::sinhf, libm::sinh),
        "cosh" => (libm::coshf, libm::cosh),
        "tanh" => (libm::tanhf, libm::tanh),
        "asinh" => (libm::asinhf, libm::asinh),
        "acosh" => (libm::acoshf, libm::acosh),
        "atanh" => (libm::atanhf, libm::atanh),
        "exp" => (libm::expf, libm::exp),
        "exp2" => (libm::exp2f, libm::exp2),
        "exp10" => (libm::exp10f, libm::exp10),
        "expm1" => (libm::expm1f, libm::expm1),
        "log" => (libm::logf, libm::log),
        "log2" => (libm::log2f, libm::log2),
        "log10" => (libm::log10f, libm::log10),
        "log1p" => (libm::log1pf, libm::log1p),
        "cbrt" => (libm::cbrtf, libm::cbrt),
        "erf" => (libm::erff, libm::erf),
        "erfc" => (libm::erfcf, libm::erfc),
        "lgamma" => (libm::lgammaf, libm::lgamma),
        "tgamma" => (libm::tgammaf, libm::tgamma),
        "logb" => (|a| f64::from(a).abs().log2().floor() as f32, |a| a.abs().log2().floor()),
        _ => return None,
    })
}

fn binary(name: &str) -> Option<Binary> {
    Some(match name {
        "minnum" | "fmin" => (f32::min, f64::min),
        "maxnum" | "fmax" => (f32::max, f64::max),
        "minimum" => (
            |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { a.min(b) },
            |a, b| {
                if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
            },
        ),
        "maximum" => (
            |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) },
            |a, b| {
                if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
            },
        ),
        "copysign" => (f32::copysign, f64::copysign),
        "pow" => (libm::powf, libm::pow),
        "atan2" => (libm::atan2f, libm::atan2),
        "fmod" => (|a, b| a % b, |a, b| a % b),
        "hypot" => (libm::hypotf, libm::hypot),
        "fdim" => (libm::fdimf, libm::fdim),
        "remainder" => (libm::remainderf, libm::remainder),
        "nextafter" => (libm::nextafterf, libm::nextafter),
        _ => return None,
    })
}

/// Calls a function by its C name without type suffix, lane by lane.
pub(crate) fn named(name: &str, ty: &Type, args: &[Value]) -> Result<Option<Value>> {
    let operands: Vec<&Value> = args.iter().collect();
    Ok(Some(match args {
        [_] => {
            let Some((single, double)) = unary(name) else { return Ok(None) };
            lanes(&operands, &mut |v| apply(ty, [v[0]], |[a]| single(a), |[a]| double(a)))?
        }
        [_, exponent] if matches!(name, "powi" | "ldexp" | "scalbn") => {
            let power = |v: &[u128]| {
                let n = signed(v[1], 32) as i32;
                match name {
                    "powi" => encode(ty, decode(ty, v[0])?.powi(n)),
                    _ => encode(ty, libm::ldexp(decode(ty, v[0])?, n)),
                }
            };
            lanes(&[&args[0], exponent], &mut |v| power(v))?
        }
        [_, _] => {
            let Some((single, double)) = binary(name) else { return Ok(None) };
            lanes(&operands, &mut |v| apply(ty, [v[0], v[1]], |[a, b]| single(a, b), |[a, b]| double(a, b)))?
        }
        [_, _, _] if matches!(name, "fma" | "fmuladd") => lanes(&operands, &mut |v| match ty {
            Type::Float | Type::Double => {
                apply(ty, [v[0], v[1], v[2]], |[a, b, c]| a.mul_add(b, c), |[a, b, c]| a.mul_add(b, c))
            }
            _ => encode(ty, decode(ty, v[0])?.mul_add(decode(ty, v[1])?, decode(ty, v[2])?)),
        })?,
        _ => return Ok(None),
    }))
}

/// The bit of `llvm.is.fpclass` for a number.
pub(crate) fn class(ty: &Type, bits: u128) -> Result<u128> {
    use std::num::FpCategory;
    let value = decode(ty, bits)?;
    let (exponent_bits, mantissa) = match ty {
        Type::Half => (5, 10),
        Type::BFloat => (8, 7),
        Type::Float => (8, 23),
        _ => (11, 52),
    };
    let subnormal = value != 0.0 && bits >> mantissa & ((1 << exponent_bits) - 1) == 0;
    let positive = !value.is_sign_negative();
    Ok(match value.classify() {
        FpCategory::Nan if bits >> (mantissa - 1) & 1 == 0 => 1,
        FpCategory::Nan => 2,
        FpCategory::Infinite => {
            if positive {
                1 << 9
            } else {
                1 << 2
            }
        }
        FpCategory::Zero => {
            if positive {
                1 << 6
            } else {
                1 << 5
            }
        }
        _ if subnormal => {
            if positive {
                1 << 7
            } else {
                1 << 4
            }
        }
        _ => {
            if positive {
                1 << 8
            } else {
                1 << 3
            }
        }
    })
}

impl Machine<'_> {
    /// Call a function of C's library.
    pub(crate) fn library(&mut self, name: &str, call: &Call, args: &[Value]) -> Result<Option<Value>> {
        let known = |v: &Value| v.known("an argument of a library function");
        let address = |v: &Value| Ok(known(v)? as u64);
        match (name, args) {
            ("memcpy" | "memmove", [to, from, len]) => {
                self.memory.copy(address(to)?, address(from)?, address(len)?)?;
                return Ok(Some(to.clone()));
            }
            ("memset", [to, byte, len]) => {
                let byte = byte.map(&mut |b| Ok(b & 0xff))?;
                self.fill(address(to)?, &byte, address(len)?)?;
                return Ok(Some(to.clone()));
            }
            ("memcmp" | "bcmp", [a, b, len]) => {
                let len = address(len)?;
                let (a, _) = self.memory.read(address(a)?, len, 1)?;
                let (b, _) = self.memory.read(address(b)?, len, 1)?;
                return Ok(Some(Value::Bits(truncated(a.cmp(b) as i8 as u128, 32))));
            }
            _ => {}
        }
        let ty = call.args.first().map_or(&Type::Void, |a| &a.ty);
        let base = match ty {
            Type::Float => name.strip_suffix('f').unwrap_or(name),
            _ => name,
        };
        if let Some(value) = self.several_results(base, ty, args)? {
            return Ok(value);
        }
        let value = if ty.is_float() { named(base, ty, args)? } else { None };
        let unknown = || Problem::Unsupported(format!("the function `{name}`, which has no body,"));
        value.map(Some).ok_or_else(unknown)
    }

    /// Functions with a result in memory, or an integer result: `None` if it is another function.
    fn several_results(&mut self, base: &str, ty: &Type, args: &[Value]) -> Result<Option<Option<Value>>> {
        let float = |v: &Value| decode(ty, v.known("an argument of a library function")?);
        let address = |v: &Value| Ok(v.known("an address")? as u64);
        let encoded = |v: f64| encode(ty, v).map(Value::Bits);
        let result = match (base, args) {
            ("frexp", [a, to]) => {
                let (fraction, exponent) = libm::frexp(float(a)?);
                let exponent = Value::Bits(truncated(exponent as u128, 32));
                self.store(&Type::I32, &exponent, address(to)?, 4)?;
                Some(encoded(fraction)?)
            }
            ("modf", [a, to]) => {
                let (fraction, whole) = libm::modf(float(a)?);
                let align = ty.size_align(self.module).1;
                self.store(ty, &encoded(whole)?, address(to)?, align)?;
                Some(encoded(fraction)?)
            }
            ("sincos", [a, sin, cos]) => {
                let align = ty.size_align(self.module).1;
                for (name, to) in [("sin", sin), ("cos", cos)] {
                    if let Some(value) = named(name, ty, std::slice::from_ref(a))? {
                        self.store(ty, &value, address(to)?, align)?;
                    }
                }
                None
            }
            ("ilogb", [a]) => Some(Value::Bits(truncated(libm::ilogb(float(a)?) as u128, 32))),
            _ => return Ok(None),
        };
        Ok(Some(result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(value: f32) -> Value {
        Value::Bits(u128::from(value.to_bits()))
    }

    #[test]
    fn functions_by_name() {
        let call = |name: &str, args: &[f32]| {
            let args: Vec<Value> = args.iter().copied().map(float).collect();
            named(name, &Type::Float, &args).unwrap()
        };
        assert_eq!(call("floor", &[-1.5]), Some(float(-2.0)));
        assert_eq!(call("rint", &[2.5]), Some(float(2.0)));
        assert_eq!(call("maxnum", &[f32::NAN, 2.0]), Some(float(2.0)));
        assert_eq!(call("fma", &[2.0, 3.0, 4.0]), Some(float(10.0)));
        assert_eq!(call("frobnicate", &[1.0]), None);
    }

    #[test]
    fn classes() {
        let class = |v: f32| class(&Type::Float, u128::from(v.to_bits())).unwrap();
        assert_eq!(class(f32::NEG_INFINITY), 1 << 2);
        assert_eq!(class(-0.0), 1 << 5);
        assert_eq!(class(1e-40), 1 << 7);
        assert_eq!(class(f32::NAN), 2);
        assert_eq!(class(1.0), 1 << 8);
    }
}
