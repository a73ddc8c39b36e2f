//! [`Addresses`]: device addresses in captured contents, made those of the replay's memory.
//!
//! A kernel that reaches memory through argument buffers reads its addresses from other memory. A launch names all memory that it may reach,
//! as arguments or as resources that it uses (`useResource` in Metal), so an aligned word of 8 bytes is an address if it lies within one of these ranges.

/// Where the memory of a launch was, and is.
#[derive(Default)]
pub(crate) struct Addresses {
    ranges: Vec<Range>,
}

struct Range {
    was: u64,
    bytes: u64,
    is: u64,
}

impl Addresses {
    /// A range of `bytes` bytes at the address `was` is at the address `is` now.
    pub(crate) fn add(&mut self, was: u64, bytes: u64, is: u64) {
        self.ranges.push(Range { was, bytes, is });
    }

    /// Replaces the addresses in contents that begin at this offset of their memory.
    pub(crate) fn relocate(&self, offset: u64, contents: &mut [u8]) {
        if self.ranges.is_empty() {
            return;
        }
        let unaligned = (offset.next_multiple_of(8) - offset) as usize;
        let Some(aligned) = contents.get_mut(unaligned..) else { return };
        for bytes in aligned.as_chunks_mut::<8>().0 {
            if let Some(address) = self.now(u64::from_le_bytes(*bytes)) {
                *bytes = address.to_le_bytes();
            }
        }
    }

    /// An address in the replay. The end of a range is an address of it, unless another range begins there.
    fn now(&self, address: u64) -> Option<u64> {
        let within =
            |range: &&Range| address.checked_sub(range.was).is_some_and(|offset| offset < range.bytes);
        let at_end = |range: &&Range| address.checked_sub(range.was) == Some(range.bytes);
        let range = self.ranges.iter().find(within).or_else(|| self.ranges.iter().find(at_end))?;
        Some(range.is.wrapping_add(address - range.was))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_words_within_a_range_are_replaced() {
        let mut addresses = Addresses::default();
        addresses.add(0x1000, 16, 0x9000);
        addresses.add(0x1010, 16, 0x5000);
        let words = [0x1000_u64, 0x100f, 0x1010, 0x1020, 0x1021, 0xfff, 0];
        let expected = [0x9000_u64, 0x900f, 0x5000, 0x5010, 0x1021, 0xfff, 0];
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let mut contents = bytes(&words);
        addresses.relocate(64, &mut contents);
        assert_eq!(contents, bytes(&expected));
        // Contents at an offset of 4: words begin 4 bytes later, and the last is not whole.
        let shifted = |words: &[u64]| [&[7; 4], &*bytes(words), &[0, 0x10]].concat();
        let mut contents = shifted(&words);
        addresses.relocate(4, &mut contents);
        assert_eq!(contents, shifted(&expected));
        let mut unaligned = bytes(&words);
        addresses.relocate(4, &mut unaligned);
        assert_eq!(unaligned, bytes(&words));
        addresses.relocate(1, &mut [0, 16]);
    }
}
