//! [`label`]: labels of Metal objects in captures and tools, created without a Rust allocation.

use std::fmt::{self, Write};

use objc2::rc::Retained;
use objc2_foundation::NSString;

struct Text {
    bytes: [u8; 64],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.len + part.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(part.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// A label of up to 64 bytes; parts that exceed it are omitted.
pub(super) fn label(text: fmt::Arguments<'_>) -> Retained<NSString> {
    let mut label = Text { bytes: [0; 64], len: 0 };
    // A truncated label is still useful.
    let _all = label.write_fmt(text);
    NSString::from_str(str::from_utf8(&label.bytes[..label.len]).unwrap_or_default())
}
