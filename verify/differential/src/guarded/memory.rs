//! Memory between guard pages.
#![allow(unsafe_code)] // maps pages, and gives compiled code their addresses

use std::ptr::NonNull;

use anyhow::{Result, bail};

/// At least the page size of any system.
const PAGE: usize = 1 << 14;

/// Pages between two guard pages, access to which ends the process. The content is at some position in them; the other bytes have a known
/// pattern, so that changes are detected.
pub(crate) struct Guarded {
    start: NonNull<u8>,
    bytes: usize,
    /// Position of the content.
    at: usize,
    len: usize,
}

impl Guarded {
    /// Room for at least so many bytes.
    pub(crate) fn new(least: usize) -> Result<Self> {
        let bytes = least.max(1).next_multiple_of(PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
        // SAFETY: a new private mapping at an address of the system's choice changes no other memory.
        let all =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes + 2 * PAGE, libc::PROT_NONE, flags, -1, 0) };
        if all == libc::MAP_FAILED {
            bail!("no {bytes} bytes of memory: {}", std::io::Error::last_os_error());
        }
        let Some(start) = NonNull::new(all.cast::<u8>().wrapping_add(PAGE)) else { bail!("a mapping at 0") };
        let guarded = Self { start, bytes, at: 0, len: 0 };
        guarded.protect(libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(guarded)
    }

    fn protect(&self, access: i32) -> Result<()> {
        // SAFETY: pages of this mapping; no slice of them is held while their access changes.
        if unsafe { libc::mprotect(self.start.as_ptr().cast(), self.bytes, access) } != 0 {
            bail!("cannot protect pages: {}", std::io::Error::last_os_error());
        }
        Ok(())
    }

    /// Makes the pages read-only, or writable.
    pub(crate) fn set_writable(&self, writable: bool) -> Result<()> {
        self.protect(libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 })
    }

    /// Places content next to the last guard page, as far as alignment permits, or next to the first.
    pub(crate) fn place(&mut self, content: &[u8], align: usize, last: bool) {
        let behind = self.bytes - content.len();
        (self.at, self.len) = (if last { behind / align * align } else { 0 }, content.len());
        let at = self.at;
        let all = self.all();
        for (place, byte) in all.iter_mut().enumerate() {
            *byte = known(place);
        }
        all[at..at + content.len()].copy_from_slice(content);
    }

    fn all(&mut self) -> &mut [u8] {
        // SAFETY: the pages can be read and written, are borrowed through `self` alone, and no compiled code runs meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// The content's address.
    pub(crate) fn address(&self) -> *mut u8 {
        self.start.as_ptr().wrapping_add(self.at)
    }

    /// The content.
    pub(crate) fn content(&mut self) -> &mut [u8] {
        let (at, len) = (self.at, self.len);
        &mut self.all()[at..at + len]
    }

    /// A changed byte outside of the content: its offset from the start of the content.
    pub(crate) fn changed(&mut self) -> Option<isize> {
        let (at, len) = (self.at, self.len);
        let mut all = self.all().iter().enumerate();
        let changed = all.find(|(place, byte)| !(at..at + len).contains(place) && **byte != known(*place));
        changed.map(|(place, _)| place as isize - at as isize)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: exactly the pages that `new` mapped.
        unsafe { libc::munmap(self.start.as_ptr().wrapping_sub(PAGE).cast(), self.bytes + 2 * PAGE) };
    }
}

/// Pattern of a byte outside of the content.
fn known(place: usize) -> u8 {
    (place as u8).wrapping_mul(167) ^ 0x5a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_beside_the_content_are_noticed() {
        let mut memory = Guarded::new(100).unwrap();
        for last in [false, true] {
            memory.place(&[7; 20], 16, last);
            assert_eq!((memory.content().to_vec(), memory.changed()), (vec![7; 20], None));
            memory.content()[19] = 1;
            assert_eq!(memory.changed(), None);
            let at = memory.at;
            memory.all()[at + 20] ^= 1;
            assert_eq!(memory.changed(), Some(20));
        }
        assert_eq!(memory.address() as usize % 16, 0);
        assert!((PAGE - memory.at - 20) < 16);
    }
}
