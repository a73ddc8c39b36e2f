//! What Metal's [API validation](https://developer.apple.com/documentation/xcode/validating-your-apps-metal-api-usage) would
//! stop a program for: a message that names method and reason, and the end of the process.
//!
//! A test that is about such a mistake lets its thread record it instead: the method then does nothing. Which
//! mistakes are seen follows the documentation of each method; the wording is ours.

pub mod fault_injection;
pub mod hold;
pub mod shader_validation;

use std::cell::RefCell;
use std::ffi::c_char;

thread_local! {
    /// What was recorded, if this thread records.
    static RECORDED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// A method was called as it must not be.
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

/// Unless a condition holds, say what is wrong, and leave the method with nothing.
#[macro_export]
macro_rules! require {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            $crate::validation::failed(format!($($message)*));
            return Default::default();
        }
    };
}

/// Let this thread record mistakes instead of ending the process, or stop that. What was recorded is forgotten.
#[unsafe(no_mangle)]
extern "C" fn elinvar_apple_record_mistakes(record: bool) {
    RECORDED.set(record.then(Vec::new));
}

/// Write the mistakes that this thread recorded, one a line, as far as there is room, and forget them. The answer
/// is how many bytes they have.
///
/// # Safety
/// There is room for `length` bytes at `text`.
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
