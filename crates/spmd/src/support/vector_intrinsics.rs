//! LLVM intrinsics that have an elementwise vector form.

use elinvar_ir::{Call, Type};

use crate::support::ir::callee_name;

/// Elementwise intrinsics. All parameters become vectors except those listed.
const ELEMENTWISE: &[&str] = &[
    "abs",
    "arithmetic.fence",
    "bitreverse",
    "bswap",
    "canonicalize",
    "ceil",
    "copysign",
    "cos",
    "ctlz",
    "ctpop",
    "cttz",
    "exp",
    "exp10",
    "exp2",
    "fabs",
    "floor",
    "fma",
    "fmuladd",
    "fptosi.sat",
    "fptoui.sat",
    "fshl",
    "fshr",
    "is.fpclass",
    "ldexp",
    "log",
    "log10",
    "log2",
    "maximum",
    "maxnum",
    "minimum",
    "minnum",
    "nearbyint",
    "pow",
    "powi",
    "rint",
    "round",
    "roundeven",
    "sadd.sat",
    "sin",
    "smax",
    "smin",
    "sqrt",
    "sshl.sat",
    "ssub.sat",
    "trunc",
    "uadd.sat",
    "umax",
    "umin",
    "ushl.sat",
    "usub.sat",
];

/// Whether a parameter of an intrinsic remains a scalar constant.
fn is_immediate(intrinsic: &str, parameter: usize) -> bool {
    match intrinsic {
        "abs" | "ctlz" | "cttz" | "is.fpclass" | "powi" => parameter == 1,
        _ => false,
    }
}

/// An intrinsic with a vector form.
pub(crate) struct Elementwise<'a> {
    name: &'a str,
}

impl<'a> Elementwise<'a> {
    /// The intrinsic of a call, if it is in the list and scalar.
    pub fn of(call: &'a Call) -> Option<Self> {
        let rest = callee_name(call)?.strip_prefix("llvm.")?;
        let name = ELEMENTWISE.iter().find(|n| rest.strip_prefix(**n).is_some_and(|r| r.starts_with('.')))?;
        // The type suffix must follow immediately: `llvm.fma` is a prefix of other names.
        let types = rest[name.len() + 1..].split('.').all(is_scalar_type);
        types.then_some(Self { name })
    }

    pub fn is_vector(&self, parameter: usize) -> bool {
        !is_immediate(self.name, parameter)
    }

    /// The name of the vector form.
    pub fn vector_name(&self, call: &Call, lanes: u32) -> String {
        let mut name = format!("llvm.{}.{}", self.name, mangled(&call.ret, lanes));
        // The names of these include their argument's type.
        if matches!(self.name, "fptosi.sat" | "fptoui.sat" | "ldexp") {
            let other = usize::from(self.name == "ldexp");
            name = format!("{name}.{}", mangled(&call.args[other].ty, lanes));
        }
        if self.name == "is.fpclass" {
            name = format!("llvm.is.fpclass.{}", mangled(&call.args[0].ty, lanes));
        }
        if self.name == "powi" {
            name = format!("{name}.i32");
        }
        name
    }
}

/// Whether a call is of an elementwise intrinsic, scalar or vector. These have no effect but their result.
pub(crate) fn is_elementwise(call: &Call) -> bool {
    let rest = callee_name(call).and_then(|name| name.strip_prefix("llvm."));
    let is =
        |rest: &str| ELEMENTWISE.iter().any(|n| rest.strip_prefix(n).is_some_and(|r| r.starts_with('.')));
    rest.is_some_and(is)
}

fn is_scalar_type(text: &str) -> bool {
    matches!(text, "f16" | "bf16" | "f32" | "f64")
        || text.strip_prefix('i').is_some_and(|w| w.parse::<u32>().is_ok())
}

/// `v16f32`.
pub(crate) fn mangled(ty: &Type, lanes: u32) -> String {
    let scalar = match ty {
        Type::Half => "f16".to_owned(),
        Type::BFloat => "bf16".to_owned(),
        Type::Float => "f32".to_owned(),
        Type::Double => "f64".to_owned(),
        Type::Int(width) => format!("i{width}"),
        _ => "p0".to_owned(),
    };
    format!("v{lanes}{scalar}")
}

#[cfg(test)]
mod tests {
    use elinvar_ir::{CallArg, Callee, Operand};

    use super::*;

    fn call(name: &str, ret: Type, args: &[Type]) -> Call {
        let arg = |ty: &Type| CallArg { ty: ty.clone(), attrs: String::new(), op: Operand::int(32, 0) };
        Call {
            tail: String::new(),
            flags: String::new(),
            ret_attrs: String::new(),
            ret,
            variadic: None,
            callee: Callee::Function(name.into()),
            args: args.iter().map(arg).collect(),
            attrs: String::new(),
            bundles: Vec::new(),
        }
    }

    #[test]
    fn names() {
        let fma = call("llvm.fma.f32", Type::Float, &[Type::Float, Type::Float, Type::Float]);
        assert_eq!(Elementwise::of(&fma).unwrap().vector_name(&fma, 16), "llvm.fma.v16f32");
        let sat = call("llvm.fptosi.sat.i32.f16", Type::I32, &[Type::Half]);
        assert_eq!(Elementwise::of(&sat).unwrap().vector_name(&sat, 8), "llvm.fptosi.sat.v8i32.v8f16");
        let count = call("llvm.ctlz.i16", Type::I16, &[Type::I16, Type::I1]);
        let known = Elementwise::of(&count).unwrap();
        assert!(known.is_vector(0) && !known.is_vector(1));
        for other in ["llvm.fma.v2f32", "llvm.memcpy.p0.p0.i64", "llvm.sqrtx.f32", "sqrtf"] {
            assert!(Elementwise::of(&call(other, Type::Float, &[Type::Float])).is_none(), "{other}");
        }
    }
}
