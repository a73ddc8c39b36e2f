//! Conversion between values and their bytes in memory.
//!
//! Invariant: both directions access the same bytes, in the layout computed by `elinvar-ir`. A scalar is uninitialized if none of
//! its bytes has been written: structs are passed in registers with their padding, which is never written.

use elinvar_ir::{Module, Type};

use crate::fault::{Problem, Result};
use crate::value::{Value, length, resolve, truncated, width};

/// Treatment of uninitialized memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uninitialized {
    /// Reads as zero.
    #[default]
    Zero,
    /// Reads as a value that can be copied and computed with; a branch, an address or a count that depends on it is a fault.
    Tracked,
}

/// Number of bytes that a load or store of the type accesses.
pub(crate) fn store_size(ty: &Type, module: &Module) -> Result<u64> {
    Ok(match resolve(ty, module)? {
        Type::Int(bits) => u64::from(*bits).div_ceil(8),
        Type::Vector(lanes, element) => (u64::from(*lanes) * u64::from(width(element)?)).div_ceil(8),
        other => other.size_align(module).0,
    })
}

/// The value of type `ty` at the beginning of `bytes`.
pub(crate) fn load(
    ty: &Type,
    module: &Module,
    bytes: &[u8],
    written: &[bool],
    mode: Uninitialized,
) -> Result<Value> {
    let ty = resolve(ty, module)?;
    match ty {
        Type::Vector(lanes, element) => {
            let lanes = *lanes as usize;
            let bits = width(element)? as usize;
            if !bits.is_multiple_of(8) {
                let lane = |i: usize| Value::Bits(bit_field(bytes, i * bits, bits));
                return Ok(Value::List((0..lanes).map(lane).collect()));
            }
            let size = bits / 8;
            let lane = |i: usize| scalar(bits as u32, &bytes[i * size..], &written[i * size..], mode);
            Ok(Value::List((0..lanes).map(lane).collect()))
        }
        Type::Array(count, element) => {
            let size = element.size_align(module).0 as usize;
            let item = |i: usize| load(element, module, &bytes[i * size..], &written[i * size..], mode);
            Ok(Value::List((0..length(*count)?).map(item).collect::<Result<_>>()?))
        }
        Type::Struct { fields, .. } => {
            let field = |(i, f): (usize, &Type)| {
                let at = offset(ty, i, module)?;
                load(f, module, &bytes[at..], &written[at..], mode)
            };
            Ok(Value::List(fields.iter().enumerate().map(field).collect::<Result<_>>()?))
        }
        other => Ok(scalar(width(other)?, bytes, written, mode)),
    }
}

/// Put a value of type `ty` at the beginning of `bytes`.
pub(crate) fn store(
    ty: &Type,
    module: &Module,
    value: &Value,
    bytes: &mut [u8],
    written: &mut [bool],
) -> Result<()> {
    let ty = resolve(ty, module)?;
    match ty {
        Type::Vector(_, element) => {
            let bits = width(element)?;
            if !bits.is_multiple_of(8) {
                let mut all = 0u128;
                for (i, lane) in value.list()?.iter().enumerate() {
                    all |= lane.bits()?.unwrap_or(0) << (i as u32 * bits);
                }
                let len = bytes.len().min((value.list()?.len() * bits as usize).div_ceil(8));
                put((len * 8) as u32, &Value::Bits(all), bytes, written)?;
                return Ok(());
            }
            let size = bits as usize / 8;
            for (i, lane) in value.list()?.iter().enumerate() {
                put(bits, lane, &mut bytes[i * size..], &mut written[i * size..])?;
            }
            Ok(())
        }
        Type::Array(_, element) => {
            let size = element.size_align(module).0 as usize;
            for (i, item) in value.list()?.iter().enumerate() {
                store(element, module, item, &mut bytes[i * size..], &mut written[i * size..])?;
            }
            Ok(())
        }
        Type::Struct { fields, .. } => {
            for (i, (field, item)) in fields.iter().zip(value.list()?).enumerate() {
                let at = offset(ty, i, module)?;
                store(field, module, item, &mut bytes[at..], &mut written[at..])?;
            }
            Ok(())
        }
        other => put(width(other)?, value, bytes, written),
    }
}

fn offset(ty: &Type, field: usize, module: &Module) -> Result<usize> {
    let offset = ty.field_offset(field, module);
    Ok(offset.ok_or_else(|| Problem::Malformed(format!("no field {field} in {ty:?}")))? as usize)
}

fn scalar(width: u32, bytes: &[u8], written: &[bool], mode: Uninitialized) -> Value {
    let size = width.div_ceil(8) as usize;
    if mode == Uninitialized::Tracked && !written[..size].contains(&true) {
        return Value::Poison;
    }
    let mut whole = [0u8; 16];
    whole[..size].copy_from_slice(&bytes[..size]);
    Value::Bits(truncated(u128::from_le_bytes(whole), width))
}

fn put(width: u32, value: &Value, bytes: &mut [u8], written: &mut [bool]) -> Result<()> {
    let size = width.div_ceil(8) as usize;
    let bits = value.bits()?;
    bytes[..size].copy_from_slice(&bits.unwrap_or(0).to_le_bytes()[..size]);
    written[..size].fill(bits.is_some());
    Ok(())
}

fn bit_field(bytes: &[u8], from: usize, len: usize) -> u128 {
    (0..len).fold(0, |all, i| {
        let at = from + i;
        all | u128::from(bytes[at / 8] >> (at % 8) & 1) << i
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(ty: &Type, value: Value) -> (Value, Vec<u8>) {
        let module = Module::default();
        let size = ty.size_align(&module).0 as usize;
        let (mut bytes, mut written) = (vec![0; size], vec![false; size]);
        store(ty, &module, &value, &mut bytes, &mut written).unwrap();
        (load(ty, &module, &bytes, &written, Uninitialized::Tracked).unwrap(), bytes)
    }

    #[test]
    fn layouts() {
        let list = |items: &[u128]| Value::List(items.iter().map(|b| Value::Bits(*b)).collect());
        let mixed = Type::Struct { packed: false, fields: vec![Type::I8, Type::I32, Type::Int(24)] };
        let (value, bytes) = there_and_back(&mixed, list(&[1, 0x01020304, 0xaabbcc]));
        assert_eq!(value, list(&[1, 0x01020304, 0xaabbcc]));
        assert_eq!(bytes, [1, 0, 0, 0, 4, 3, 2, 1, 0xcc, 0xbb, 0xaa, 0]);
        let (value, bytes) = there_and_back(&Type::vector(8, Type::I1), list(&[1, 0, 0, 1, 0, 0, 0, 1]));
        assert_eq!((value, bytes), (list(&[1, 0, 0, 1, 0, 0, 0, 1]), vec![0x89]));
        let (value, _) = there_and_back(&Type::vector(3, Type::Half), list(&[1, 2, 3]));
        assert_eq!(value, list(&[1, 2, 3]));
    }

    #[test]
    fn poison_is_memory_never_written() {
        let (value, _) =
            there_and_back(&Type::vector(2, Type::I16), Value::List(vec![Value::Poison, Value::Bits(5)]));
        assert_eq!(value, Value::List(vec![Value::Poison, Value::Bits(5)]));
    }

    #[test]
    fn sizes() {
        let module = Module::default();
        assert_eq!(store_size(&Type::vector(3, Type::Float), &module), Ok(12));
        assert_eq!(store_size(&Type::Int(24), &module), Ok(3));
        assert_eq!(store_size(&Type::vector(3, Type::I1), &module), Ok(1));
    }
}
