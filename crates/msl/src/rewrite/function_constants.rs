//! Function constants: declarations, and definitions for given values.
//!
//! The rewriter turns `constant T name [[function_constant(n)]];` into `const T ELINVAR_CONSTANT_k(name);`, where `k` numbers
//! the declarations. A macro before the text defines the constant when a value is given, so that clang specializes the code.
//! Without a value it declares an undefined symbol: if the optimized code still reads it, the kernel needs the value.

use std::fmt::Write as _;

use elinvar_driver::{Constant, ConstantKey, ElementType, FunctionConstant, Scalar};

use crate::rewrite::attributes::Attribute;
use crate::{Error, Result};

/// The function that tests whether a constant has a value.
pub(crate) const IS_DEFINED: &str = "is_function_constant_defined";

/// Prefix of the constants that its calls become.
pub(crate) const DEFINED: &str = "elinvar_defined_";

/// Prefix of the undefined symbols.
const SYMBOL: &str = "__elinvar_constant_";

/// A declaration.
#[derive(Clone, Debug)]
pub(crate) struct FunctionConstantDecl {
    /// Qualified name, `a::b::name`.
    pub path: String,
    pub attribute: Attribute,
    /// Offset of the name.
    pub offset: usize,
}

/// The replacement of declaration number `k`.
pub(crate) fn declaration(k: usize, name: &str) -> String {
    format!("ELINVAR_CONSTANT_{k}({name})")
}

/// The macros before the text; `values` has an entry for each declaration.
pub(crate) fn definitions(values: &[Option<String>]) -> String {
    let mut text = String::new();
    for (k, value) in values.iter().enumerate() {
        let _ = match value {
            Some(value) => writeln!(
                text,
                "#define ELINVAR_CONSTANT_{k}(x) x = {value}; constexpr bool {DEFINED}##x = true"
            ),
            None => writeln!(
                text,
                "#define ELINVAR_CONSTANT_{k}(x) extern x __asm__(\"{SYMBOL}{k}\"); constexpr bool {DEFINED}##x = false"
            ),
        };
    }
    text
}

/// [`definitions`] for checking all code, with every constant unknown.
pub(crate) fn unspecialized_definitions(count: usize) -> String {
    (0..count)
        .map(|k| format!("#define ELINVAR_CONSTANT_{k}(x) extern x; extern const bool {DEFINED}##x\n"))
        .collect()
}

/// The number of a constant that the code reads and that has no value.
pub(crate) fn undefined(ir: &str) -> Option<usize> {
    let mark = format!("@{SYMBOL}");
    ir.lines().find_map(|line| line.strip_prefix(&mark)?.split(' ').next()?.parse().ok())
}

/// The values as C++ expressions, in the order of the declarations.
pub(crate) fn values(known: &[FunctionConstant], given: &[Constant]) -> Result<Vec<Option<String>>> {
    let mut values = vec![None; known.len()];
    for constant in given {
        let position = known.iter().position(|k| match &constant.key {
            ConstantKey::Index(index) => k.index == *index,
            ConstantKey::Name(name) => k.name == *name,
        });
        let Some(position) = position else {
            let what = match &constant.key {
                ConstantKey::Index(index) => format!("with index {index}"),
                ConstantKey::Name(name) => format!("`{name}`"),
            };
            return Err(Error::Constant(format!("no function constant {what}; {}", list(known))));
        };
        let target = &known[position];
        let (scalar, lanes) = shape(&target.ty);
        let size = scalar.size() * u64::from(lanes);
        if constant.scalar != scalar || constant.bytes.len() as u64 != size {
            let count = constant.bytes.len() as u64 / constant.scalar.size();
            return Err(Error::Constant(format!(
                "function constant `{}` has type `{}`, not {}",
                target.name,
                target.ty,
                described(constant.scalar, count)
            )));
        }
        if values[position].is_some() {
            return Err(Error::Constant(format!("function constant `{}` is given twice", target.name)));
        }
        values[position] = Some(value(scalar, lanes, &constant.bytes));
    }
    Ok(values)
}

/// The declared constants, for messages.
pub(crate) fn list(known: &[FunctionConstant]) -> String {
    if known.is_empty() {
        return "the source has none".to_owned();
    }
    let each = |k: &FunctionConstant| format!("`{}` (index {}, {})", k.name, k.index, k.ty);
    format!("the source has {}", known.iter().map(each).collect::<Vec<_>>().join(", "))
}

fn described(scalar: Scalar, count: u64) -> String {
    match count {
        1 => format!("`{}`", scalar.msl_name()),
        2..=4 => format!("`{}{count}`", scalar.msl_name()),
        _ => format!("{count} values of `{}`", scalar.msl_name()),
    }
}

fn shape(ty: &ElementType) -> (Scalar, u32) {
    match ty {
        ElementType::Vector { scalar, lanes, .. } => (*scalar, *lanes),
        other => (other.scalar().unwrap_or(Scalar::Bool), 1),
    }
}

/// A value's bytes as a C++ constant expression.
fn value(scalar: Scalar, lanes: u32, bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes
        .chunks(usize::try_from(scalar.size()).unwrap_or(1))
        .map(|part| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            let bits = u64::from_le_bytes(word);
            let name = scalar.msl_name();
            match scalar {
                Scalar::Bool => (bits != 0).to_string(),
                Scalar::F32 => format!("__builtin_bit_cast(float, {bits:#x}u)"),
                Scalar::F16 | Scalar::BF16 => format!("__builtin_bit_cast({name}, (ushort){bits:#x}u)"),
                _ => format!("({name}){bits:#x}ul"),
            }
        })
        .collect();
    match lanes {
        1 => parts.concat(),
        _ => format!("::metal::vec<{}, {lanes}>({})", scalar.msl_name(), parts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<FunctionConstant> {
        let constant = |name: &str, index, ty| FunctionConstant { name: name.into(), index, ty };
        vec![
            constant("flag", 0, ElementType::Scalar(Scalar::Bool)),
            constant("a::scale", 7, ElementType::Vector { scalar: Scalar::F32, lanes: 2, packed: false }),
        ]
    }

    fn given(key: ConstantKey, scalar: Scalar, bytes: &[u8]) -> Constant {
        Constant { key, scalar, bytes: bytes.to_vec() }
    }

    #[test]
    fn values_become_definitions() {
        let ones = [0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f];
        let all = [
            given(ConstantKey::Index(7), Scalar::F32, &ones),
            given(ConstantKey::Name("flag".into()), Scalar::Bool, &[1]),
        ];
        let text = definitions(&values(&known(), &all).unwrap());
        assert!(text.starts_with("#define ELINVAR_CONSTANT_0(x) x = true; "), "{text}");
        let one = "__builtin_bit_cast(float, 0x3f800000u)";
        assert!(text.contains(&format!("x = ::metal::vec<float, 2>({one}, {one});")), "{text}");
        let text = definitions(&values(&known(), &[]).unwrap());
        assert_eq!(text.matches("##x = false").count(), 2, "{text}");
        assert_eq!(undefined("@a = global\n@__elinvar_constant_1 = external constant i8\n"), Some(1));
    }

    #[test]
    fn refusals_name_the_constant() {
        let refused = |constant| values(&known(), &[constant]).unwrap_err().to_string();
        let list = "the source has `flag` (index 0, bool), `a::scale` (index 7, float2)";
        assert_eq!(
            refused(given(ConstantKey::Index(3), Scalar::Bool, &[1])),
            format!("no function constant with index 3; {list}")
        );
        assert_eq!(
            refused(given(ConstantKey::Name("scale".into()), Scalar::Bool, &[1])),
            format!("no function constant `scale`; {list}")
        );
        assert_eq!(
            refused(given(ConstantKey::Index(7), Scalar::F32, &[0; 4])),
            "function constant `a::scale` has type `float2`, not `float`"
        );
        let twice = [
            given(ConstantKey::Index(0), Scalar::Bool, &[1]),
            given(ConstantKey::Index(0), Scalar::Bool, &[1]),
        ];
        assert!(values(&known(), &twice).unwrap_err().to_string().contains("`flag` is given twice"));
    }
}
