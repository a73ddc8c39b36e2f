//! Values that NVML has by number, several in one call (`nvmlDeviceGetFieldValues`), with a scope such as the link.
//!
//! The crate `nvml-wrapper` has the call without scopes.

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;

/// A field and its scope.
pub(super) type Field = (u32, u32);

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) number: f64,
    /// Whether it is a count of 32 bits, which starts again at 2³².
    pub(super) wraps: bool,
}

/// The numbers of these fields, each with the reason why it is absent.
pub(super) fn numbers(device: &Device<'_>, fields: &[Field]) -> Vec<Result<f64, NvmlError>> {
    values(device, fields).into_iter().map(|value| value.map(|value| value.number)).collect()
}

/// The values of these fields, each with the reason why it is absent.
#[allow(unsafe_code)] // a C function
pub(super) fn values(device: &Device<'_>, fields: &[Field]) -> Vec<Result<Value, NvmlError>> {
    let absent =
        |text: &str| fields.iter().map(|_| Err(NvmlError::FailedToLoadSymbol(text.into()))).collect();
    let call = match &device.nvml().lib().nvmlDeviceGetFieldValues {
        Ok(call) => *call,
        Err(error) => return absent(&error.to_string()),
    };
    let Ok(count) = i32::try_from(fields.len()) else { return absent("too many fields") };
    let empty = |(field, scope): &Field| sys::nvmlFieldValue_t {
        fieldId: *field,
        scopeId: *scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: sys::nvmlReturn_enum_NVML_ERROR_UNKNOWN,
        value: sys::nvmlValue_t { ullVal: 0 },
    };
    let mut values: Vec<sys::nvmlFieldValue_t> = fields.iter().map(empty).collect();
    // SAFETY: the handle is valid while NVML is, and the call fills in as many values as `count` says.
    let result = unsafe { call(device.handle(), count, values.as_mut_ptr()) };
    if result != sys::nvmlReturn_enum_NVML_SUCCESS {
        return fields.iter().map(|_| Err(result.into())).collect();
    }
    let with_type = |value: &sys::nvmlFieldValue_t| {
        let wraps = value.valueType == sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT;
        number(value).map(|number| Value { number, wraps })
    };
    values.iter().map(with_type).collect()
}

/// The number in a value, by its type.
#[allow(unsafe_code)] // a union
fn number(value: &sys::nvmlFieldValue_t) -> Result<f64, NvmlError> {
    if value.nvmlReturn != sys::nvmlReturn_enum_NVML_SUCCESS {
        return Err(value.nvmlReturn.into());
    }
    // SAFETY: all bits of the union are initialized, and every field takes any bits.
    unsafe {
        Ok(match value.valueType {
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_DOUBLE => value.value.dVal,
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => f64::from(value.value.uiVal),
            #[allow(clippy::unnecessary_cast)] // `c_ulong` has 32 bits on Windows
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG => value.value.ulVal as f64,
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => value.value.ullVal as f64,
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => value.value.sllVal as f64,
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => f64::from(value.value.siVal),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT => f64::from(value.value.usVal),
            unknown => return Err(NvmlError::UnexpectedVariant(unknown)),
        })
    }
}
