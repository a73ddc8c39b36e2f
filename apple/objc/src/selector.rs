//! [`Selector`]: interned message names, comparable by address.
//!
//! Texts are aligned to 16 bytes, and consecutive texts are adjacent, so that the middle bits of an address index a method cache
//! (`send`).

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::value::Encoded;

/// A registered selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Selector(*const c_char);

// SAFETY: the text is written once, before anybody has its address, and stays.
unsafe impl Send for Selector {}
// SAFETY: as above.
unsafe impl Sync for Selector {}

// SAFETY: a selector is passed as a pointer.
unsafe impl Encoded for Selector {
    const ENCODING: &'static str = ":";
}

const ALIGN: usize = 16;
const SLAB: usize = 1 << 16;

#[derive(Default)]
struct Table {
    known: HashMap<&'static CStr, Selector>,
    /// Free part of the current text chunk.
    free: &'static mut [u8],
}

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

impl Selector {
    /// Interns a name.
    pub fn of(name: &CStr) -> Self {
        let mut table = TABLE.lock();
        if let Some(known) = table.known.get(name) {
            return *known;
        }
        let bytes = name.to_bytes_with_nul();
        let size = bytes.len().next_multiple_of(ALIGN);
        if table.free.len() < size {
            let layout = std::alloc::Layout::from_size_align(SLAB.max(size), ALIGN).expect("a power of two");
            // SAFETY: the size is not zero; the memory is never freed.
            let slab = unsafe { std::alloc::alloc_zeroed(layout) };
            assert!(!slab.is_null(), "no memory for selectors");
            // SAFETY: the slab is that long, zeroed, and nobody else's.
            table.free = unsafe { std::slice::from_raw_parts_mut(slab, layout.size()) };
        }
        let (mine, free) = std::mem::take(&mut table.free).split_at_mut(size);
        table.free = free;
        mine[..bytes.len()].copy_from_slice(bytes);
        let text: &'static CStr = CStr::from_bytes_until_nul(mine).expect("it ends with a zero");
        let selector = Self(text.as_ptr());
        table.known.insert(text, selector);
        selector
    }

    /// Its name.
    pub fn name(self) -> &'static CStr {
        // SAFETY: only registered selectors are made, whose text stays.
        unsafe { CStr::from_ptr(self.0) }
    }

    /// Whether methods of this name return an owned reference rather than an autoreleased one, by the rules of
    /// [method families](https://clang.llvm.org/docs/AutomaticReferenceCounting.html#method-families).
    pub(crate) fn hands_over(self) -> bool {
        let name = self.name().to_bytes();
        let name = &name[name.iter().take_while(|byte| **byte == b'_').count()..];
        [&b"new"[..], b"copy", b"mutableCopy", b"alloc", b"init"].iter().any(|family| {
            name.strip_prefix(*family)
                .is_some_and(|rest| rest.first().is_none_or(|next| !next.is_ascii_lowercase()))
        })
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name().to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_selector() {
        let (a, b) = (Selector::of(c"a:b:"), Selector::of(c"b"));
        assert_eq!((a, Selector::of(c"a:b:")), (Selector::of(c"a:b:"), a));
        assert_ne!(a, b);
        assert_eq!((a.name(), a.0 as usize % ALIGN), (c"a:b:", 0));
        let long = std::ffi::CString::new(vec![b'x'; SLAB + 5]).unwrap();
        assert_eq!(Selector::of(&long).name(), &*long);
    }

    #[test]
    fn families_are_told_by_words() {
        for (name, expected) in [
            (c"newBufferWithLength:options:", true),
            (c"new", true),
            (c"newer", false),
            (c"copyWithZone:", true),
            (c"_init", true),
            (c"initialize", false),
            (c"commandBuffer", false),
        ] {
            assert_eq!(Selector::of(name).hands_over(), expected, "{name:?}");
        }
    }
}
