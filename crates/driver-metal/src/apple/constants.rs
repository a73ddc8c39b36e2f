//! Conversion of function constant values for Metal.

use std::ffi::c_void;
use std::ptr::NonNull;

use elinvar_driver::{Constant, ConstantKey, ElementType, Error, FunctionConstant, Result};
use objc2::rc::Retained;
use objc2_metal::MTLFunctionConstantValues;

use super::types::data_type;

/// Size of the largest value in bytes: a vector of four 8-byte numbers.
const LARGEST: usize = 32;

/// The values, by the index of their constants.
///
/// # Errors
/// `InvalidArgument` for a constant that is not declared, or a value of another type.
#[allow(unsafe_code)] // hands addresses to Metal
pub(super) fn values(
    declared: &[FunctionConstant],
    constants: &[Constant],
) -> Result<Retained<MTLFunctionConstantValues>> {
    let values = MTLFunctionConstantValues::new();
    for constant in constants {
        let FunctionConstant { index, name, ty } = find(declared, &constant.key)?;
        let lanes = match ty {
            ElementType::Vector { lanes, .. } => *lanes,
            _ => 1,
        };
        let expected = u64::from(lanes) * constant.scalar.size();
        if ty.scalar() != Some(constant.scalar) || constant.bytes.len() as u64 != expected {
            let (given, bytes) = (constant.scalar.msl_name(), constant.bytes.len());
            return Err(Error::invalid(format!(
                "function constant `{name}` (index {index}) is `{ty}`; given {bytes} bytes of `{given}`"
            )));
        }
        // Padded, because Metal may read a vector of three as one of four.
        let mut value = [0_u8; LARGEST];
        value[..constant.bytes.len()].copy_from_slice(&constant.bytes);
        let address = NonNull::from(&mut value).cast::<c_void>();
        // SAFETY: a value of that type is at the address, and Metal copies it.
        unsafe {
            values.setConstantValue_type_atIndex(address, data_type(constant.scalar, lanes), *index as usize);
        }
    }
    Ok(values)
}

fn find<'a>(declared: &'a [FunctionConstant], key: &ConstantKey) -> Result<&'a FunctionConstant> {
    let found = declared.iter().find(|constant| match key {
        ConstantKey::Index(index) => constant.index == *index,
        ConstantKey::Name(name) => constant.name == *name,
    });
    found.ok_or_else(|| {
        let known: Vec<String> =
            declared.iter().map(|known| format!("`{}` (index {})", known.name, known.index)).collect();
        let list = if known.is_empty() { "none".into() } else { known.join(", ") };
        let key = match key {
            ConstantKey::Index(index) => format!("with index {index}"),
            ConstantKey::Name(name) => format!("`{name}`"),
        };
        Error::invalid(format!("there is no function constant {key}; the source has {list}"))
    })
}
