//! Error numbers, which differ from 35 on.

use std::cell::Cell;
use std::ffi::{c_char, c_int};

super::table! { "__error" => error, "strerror_r" => text }

/// Error numbers of this system and of macOS.
const NUMBERS: [(c_int, c_int); 34] = [
    (libc::EAGAIN, 35),
    (libc::EINPROGRESS, 36),
    (libc::EALREADY, 37),
    (libc::ENOTSOCK, 38),
    (libc::EDESTADDRREQ, 39),
    (libc::EMSGSIZE, 40),
    (libc::EPROTOTYPE, 41),
    (libc::ENOPROTOOPT, 42),
    (libc::EPROTONOSUPPORT, 43),
    (libc::ENOTSUP, 45),
    (libc::EAFNOSUPPORT, 47),
    (libc::EADDRINUSE, 48),
    (libc::EADDRNOTAVAIL, 49),
    (libc::ENETDOWN, 50),
    (libc::ENETUNREACH, 51),
    (libc::ENETRESET, 52),
    (libc::ECONNABORTED, 53),
    (libc::ECONNRESET, 54),
    (libc::ENOBUFS, 55),
    (libc::EISCONN, 56),
    (libc::ENOTCONN, 57),
    (libc::ESHUTDOWN, 58),
    (libc::ETIMEDOUT, 60),
    (libc::ECONNREFUSED, 61),
    (libc::ELOOP, 62),
    (libc::ENAMETOOLONG, 63),
    (libc::EHOSTUNREACH, 65),
    (libc::ENOTEMPTY, 66),
    (libc::EDQUOT, 69),
    (libc::ESTALE, 70),
    (libc::ENOLCK, 77),
    (libc::ENOSYS, 78),
    (libc::EOVERFLOW, 84),
    (libc::EDEADLK, 11),
];

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// Converts an error number of this system to macOS.
pub(super) fn translated(number: c_int) -> c_int {
    NUMBERS.iter().find(|(ours, _)| *ours == number).map_or(number, |(_, theirs)| *theirs)
}

/// Location of `errno`, which the program reads immediately after a function has failed.
extern "C" fn error() -> *mut c_int {
    let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    LAST.with(|last| {
        last.set(translated(number));
        last.as_ptr()
    })
}

/// # Safety
/// `buffer` has room for `len` bytes.
#[allow(unsafe_code)] // writes a text for the program
unsafe extern "C" fn text(number: c_int, buffer: *mut c_char, len: usize) -> c_int {
    let ours = NUMBERS.iter().find(|(_, theirs)| *theirs == number).map_or(number, |(ours, _)| *ours);
    let text = std::io::Error::from_raw_os_error(ours).to_string();
    let text = &text.as_bytes()[..text.len().min(len.saturating_sub(1))];
    // SAFETY: the text and the zero behind it fit.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        if len > 0 {
            buffer.add(text.len()).write(0);
        }
    }
    0
}
