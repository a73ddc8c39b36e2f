//! Paths to variables, constants and variants.

use syn::spanned::Spanned;

use super::{Lower, Meaning};
use crate::error::{Result, fail};
use crate::hir::{Expr, Kind};
use crate::types::{Scalar, Ty};

impl Lower<'_> {
    pub(super) fn path(&mut self, path: &syn::Path) -> Result<Expr> {
        let span = path.span();
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let Some(last) = names.last() else { return fail(span, "a name is missing") };
        if names.len() == 1 {
            match self.find(last) {
                Some(Meaning::Local(index)) => {
                    let index = *index;
                    return Ok(Self::expr_of(self.locals[index].ty.clone(), span, Kind::Local(index)));
                }
                Some(Meaning::Constant(msl, ty)) => {
                    return Ok(Self::expr_of(ty.clone(), span, Kind::Constant(msl.clone())));
                }
                Some(Meaning::Closure(_)) => {
                    return fail(span, "a closure of a kernel is only called: it is inlined");
                }
                None => {}
            }
        }
        if names.len() > 1 {
            let of = &names[names.len() - 2];
            if let Some(found) = self.associated(of, last, path)? {
                return Ok(found);
            }
        }
        if let Some(constant) = self.items.constants.get(last) {
            let ty = self.ty(&constant.ty)?;
            return Ok(Self::expr_of(ty, span, Kind::Constant(last.clone())));
        }
        match last.as_str() {
            "None" => fail(
                span,
                "kernels have no `Option`: return the value and a `bool`, or a number that means none",
            ),
            _ if self.items.functions.contains_key(last) => {
                fail(span, "a function of a kernel is only called, not passed on")
            }
            _ if names.len() == 1 && self.statics(last) => fail(
                span,
                format!(
                    "`{last}` is not a constant of this kernel: declare it as `#[elinvar::device] const {last}: … = …;`"
                ),
            ),
            _ => fail(span, format!("`{last}` is not known in this kernel: pass it as an argument")),
        }
    }

    fn statics(&self, name: &str) -> bool {
        crate::names::is_constant(name)
    }

    /// `f32::MAX`, `Kind::Round`, `T::ZERO`.
    fn associated(&mut self, of: &str, name: &str, path: &syn::Path) -> Result<Option<Expr>> {
        let span = path.span();
        if of == "mem_flags" {
            return Ok(Some(Self::expr_of(
                Ty::Struct("mem_flags".into()),
                span,
                Kind::Raw(format!("mem_flags::{name}")),
            )));
        }
        if of == "consts" {
            return match constant_of_f32(name) {
                Some(value) => Ok(Some(Self::expr_of(Ty::F32, span, Kind::Float(format!("{value:?}"))))),
                None => {
                    fail(span, format!("`{name}` is not a constant of `std::f32::consts` that kernels know"))
                }
            };
        }
        if self.items.enums.contains_key(of) {
            if !self.items.variants(of, span)?.iter().any(|(variant, _)| variant == name) {
                return fail(span, format!("`{of}` has no variant `{name}`"));
            }
            return Ok(Some(Self::expr_of(
                Ty::Enum(of.to_owned()),
                span,
                Kind::Constant(format!("{of}::{name}")),
            )));
        }
        let ty = match self.generics.get(of) {
            Some(ty) => ty.clone(),
            None => match Scalar::named(of) {
                Some(scalar) => Ty::Scalar(scalar),
                None => return Ok(None),
            },
        };
        let text = match (&ty, name) {
            (_, "ZERO") => Some("$T(0)".to_owned()),
            (_, "ONE") => Some("$T(1)".to_owned()),
            (Ty::Scalar(scalar), _) => limit(*scalar, name),
            _ => None,
        };
        match text {
            Some(text) => Ok(Some(Self::expr_of(ty, span, Kind::Raw(text)))),
            None => fail(span, format!("`{of}::{name}` is not a constant that kernels know")),
        }
    }
}

fn limit(scalar: Scalar, name: &str) -> Option<String> {
    let bits = scalar.bits();
    let (low, high) = match scalar {
        Scalar::F32 => return float_limit(name, "FLT", ""),
        Scalar::F16 => return float_limit(name, "HALF", ""),
        Scalar::Bool => return None,
        _ if scalar.is_signed() => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        _ => (0, (1i128 << bits) - 1),
    };
    let value = match name {
        "MIN" => low,
        "MAX" => high,
        "BITS" => i128::from(bits),
        _ => return None,
    };
    Some(crate::emit::integer_text(scalar, value))
}

fn float_limit(name: &str, prefix: &str, _: &str) -> Option<String> {
    Some(match name {
        "MAX" => format!("{prefix}_MAX"),
        "MIN" => format!("(-{prefix}_MAX)"),
        "EPSILON" => format!("{prefix}_EPSILON"),
        "MIN_POSITIVE" => format!("{prefix}_MIN"),
        "INFINITY" => "$T(INFINITY)".into(),
        "NEG_INFINITY" => "$T(-INFINITY)".into(),
        "NAN" => "$T(NAN)".into(),
        _ => return None,
    })
}

fn constant_of_f32(name: &str) -> Option<f32> {
    use std::f32::consts;
    Some(match name {
        "PI" => consts::PI,
        "TAU" => consts::TAU,
        "E" => consts::E,
        "LN_2" => consts::LN_2,
        "LN_10" => consts::LN_10,
        "LOG2_E" => consts::LOG2_E,
        "LOG10_E" => consts::LOG10_E,
        "SQRT_2" => consts::SQRT_2,
        "FRAC_1_SQRT_2" => consts::FRAC_1_SQRT_2,
        "FRAC_PI_2" => consts::FRAC_PI_2,
        "FRAC_PI_3" => consts::FRAC_PI_3,
        "FRAC_PI_4" => consts::FRAC_PI_4,
        "FRAC_PI_6" => consts::FRAC_PI_6,
        "FRAC_PI_8" => consts::FRAC_PI_8,
        "FRAC_1_PI" => consts::FRAC_1_PI,
        "FRAC_2_PI" => consts::FRAC_2_PI,
        _ => return None,
    })
}
