//! Errors of the driver API, and their conversion to [`Error`].

use std::ffi::{CStr, c_char};

use elinvar_driver::Error;

use crate::api::Api;

/// A failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Name of the call.
    pub(crate) call: &'static str,
    /// Its result, a `CUresult`.
    pub(crate) code: i32,
}

/// Codes of `CUresult` that are distinguished.
pub(crate) mod code {
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const DEINITIALIZED: i32 = 4;
    pub(crate) const NO_DEVICE: i32 = 100;
    pub(crate) const ECC_UNCORRECTABLE: i32 = 214;
    pub(crate) const PEER_ACCESS_UNSUPPORTED: i32 = 217;
    pub(crate) const NVLINK_UNCORRECTABLE: i32 = 220;
    pub(crate) const INVALID_IMAGE: i32 = 200;
    pub(crate) const NO_BINARY_FOR_GPU: i32 = 209;
    pub(crate) const INVALID_PTX: i32 = 218;
    pub(crate) const UNSUPPORTED_PTX_VERSION: i32 = 222;
    pub(crate) const NOT_READY: i32 = 600;
    pub(crate) const ILLEGAL_ADDRESS: i32 = 700;
    pub(crate) const LAUNCH_OUT_OF_RESOURCES: i32 = 701;
    pub(crate) const LAUNCH_TIMEOUT: i32 = 702;
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
    pub(crate) const CONTEXT_IS_DESTROYED: i32 = 709;
    pub(crate) const ASSERT: i32 = 710;
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: i32 = 712;
    pub(crate) const HARDWARE_STACK_ERROR: i32 = 714;
    pub(crate) const ILLEGAL_INSTRUCTION: i32 = 715;
    pub(crate) const MISALIGNED_ADDRESS: i32 = 716;
    pub(crate) const INVALID_ADDRESS_SPACE: i32 = 717;
    pub(crate) const INVALID_PC: i32 = 718;
    pub(crate) const LAUNCH_FAILED: i32 = 719;
    pub(crate) const CONTAINED: i32 = 721;
    pub(crate) const NOT_SUPPORTED: i32 = 801;
    pub(crate) const UNKNOWN: i32 = 999;
}

/// The extent of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Only the call failed.
    Call,
    /// A kernel has corrupted the context: all work of the process on the device is lost, and every later call returns the same error.
    Kernel,
    /// As `Kernel`, but not necessarily caused by a kernel.
    Device,
}

impl Failure {
    /// `Ok` for success.
    pub(crate) fn check(call: &'static str, code: i32) -> Result<(), Self> {
        if code == 0 { Ok(()) } else { Err(Self { call, code }) }
    }

    /// A failure for a call that cannot succeed.
    pub(crate) fn malformed(call: &'static str) -> Self {
        Self { call, code: code::INVALID_VALUE }
    }

    pub(crate) fn extent(self) -> Extent {
        match self.code {
            code::ILLEGAL_ADDRESS
            | code::LAUNCH_TIMEOUT
            | code::ASSERT
            | code::HARDWARE_STACK_ERROR..=code::LAUNCH_FAILED => Extent::Kernel,
            code::DEINITIALIZED
            | code::ECC_UNCORRECTABLE
            | code::NVLINK_UNCORRECTABLE
            | code::CONTEXT_IS_DESTROYED
            | code::CONTAINED
            | code::UNKNOWN => Extent::Device,
            _ => Extent::Call,
        }
    }

    /// Description of the kernel's error, for codes of [`Extent::Kernel`].
    pub(crate) fn deed(self) -> &'static str {
        match self.code {
            code::ILLEGAL_ADDRESS => "illegal memory address",
            code::MISALIGNED_ADDRESS => "misaligned memory address",
            code::INVALID_ADDRESS_SPACE => "an address was used in the wrong address space",
            code::ILLEGAL_INSTRUCTION => "illegal instruction",
            code::INVALID_PC => "jump to an invalid address",
            code::HARDWARE_STACK_ERROR => "stack overflow",
            code::LAUNCH_TIMEOUT => "run time beyond the system's limit",
            code::ASSERT => "assertion failure",
            _ => "unspecified failure",
        }
    }

    /// `cuCall: CUDA_ERROR_NAME (700): description`.
    #[allow(unsafe_code)] // C functions that give C strings
    pub(crate) fn text(self, api: &Api) -> String {
        let Self { call, code } = self;
        let (mut name, mut text): (*const c_char, *const c_char) = (std::ptr::null(), std::ptr::null());
        // SAFETY: both write a pointer to a string that is never freed, or null.
        let known = unsafe { api.error_name(code, &mut name).and_then(|()| api.error_text(code, &mut text)) };
        if known.is_err() || name.is_null() || text.is_null() {
            return format!("{call}: error {code}");
        }
        // SAFETY: not null, so C strings with static lifetime.
        let (name, text) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(text)) };
        format!("{call}: {} ({code}): {}", name.to_string_lossy(), text.to_string_lossy())
    }

    /// Converts a failure of [`Extent::Call`]; `what` describes the operation.
    pub(crate) fn error(self, api: &Api, what: &str) -> Error {
        let message = format!("{what}: {}", self.text(api));
        match self.code {
            code::INVALID_VALUE | code::LAUNCH_OUT_OF_RESOURCES | code::HOST_MEMORY_ALREADY_REGISTERED => {
                Error::InvalidArgument(message)
            }
            // The sizes are unknown here; the code that allocates adds them.
            code::OUT_OF_MEMORY => Error::OutOfMemory { requested: 0, available: 0 },
            code::NOT_SUPPORTED => Error::Unsupported(message),
            code::NO_DEVICE => Error::DeviceLost(message),
            _ if self.extent() != Extent::Call => Error::DeviceLost(message),
            _ => Error::Environment(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(code: i32) -> Extent {
        Failure { call: "cuCall", code }.extent()
    }

    #[test]
    fn success_is_no_failure() {
        assert_eq!(Failure::check("cuInit", 0), Ok(()));
        assert_eq!(Failure::check("cuInit", 3), Err(Failure { call: "cuInit", code: 3 }));
    }

    #[test]
    fn what_a_kernel_did_is_told_from_what_a_call_did() {
        for code in [700, 702, 710, 714, 715, 716, 717, 718, 719] {
            assert_eq!(extent(code), Extent::Kernel, "{code}");
        }
        for code in [4, 214, 220, 709, 721, 999] {
            assert_eq!(extent(code), Extent::Device, "{code}");
        }
        for code in [1, 2, 100, 218, 600, 701, 712, 801, 12345] {
            assert_eq!(extent(code), Extent::Call, "{code}");
        }
    }
}
