//! API misuse for which Metal's [API validation](https://developer.apple.com/documentation/xcode/validating-your-apps-metal-api-usage) would
//! end a program: prints a message with method and reason, and ends the process.
//!
//! A test of such an error lets its thread record it instead; the method then has no effect. The checks follow the documentation of
//! each method; the wording is ours.

pub mod fault_injection;
pub mod hold;
pub mod shader_validation;

use std::cell::RefCell;
use std::ffi::c_char;

thread_local! {
    /// Recorded messages, if this thread records.
    static RECORDED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Reports an invalid call.
pub fn failed(message: String) {
    let message = RECORDED.with_borrow_mut(|recorded| match recorded {
        Some(recorded) => {
            recorded.push(message);
            None
        }
        None => Some(message),
    });
    if let Some(message) = message {
        elinvar_objc::watch::fatal(format_args!("failed assertion: {message}"));
    }
}

/// Checks a condition; if it does not hold, reports the message and returns a default value from the method.
#[macro_export]
macro_rules! require {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            $crate::validation::failed(format!($($message)*));
            return Default::default();
        }
    };
}

/// Starts or stops recording invalid calls on this thread, instead of ending the process. Clears recorded messages.
#[unsafe(no_mangle)]
extern "C" fn elinvar_apple_record_mistakes(record: bool) {
    RECORDED.set(record.then(Vec::new));
}

/// Copies the messages recorded on this thread, one per line, as far as they fit, and clears them. Returns their total length in
/// bytes.
///
/// # Safety
/// `text` points to `length` writable bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn elinvar_apple_take_mistakes(text: *mut c_char, length: usize) -> usize {
    let all = RECORDED
        .with_borrow_mut(|recorded| recorded.as_mut().map(std::mem::take).unwrap_or_default())
        .join("\n");
    let fits = all.len().min(length);
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(all.as_ptr().cast(), text, fits) };
    all.len()
}
