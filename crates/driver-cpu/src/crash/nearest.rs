//! The argument that is nearest to the address of a wild access, for crash reports. Async-signal-safe: reads what it is given.

use std::ffi::c_void;

/// Largest distance in bytes at which an address is related to an argument.
const NEAR: usize = 1 << 30;
/// Addresses below this are offsets from a null pointer.
const NULL_END: usize = 64 << 10;

/// Relation of an address to an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// The address is within the argument's memory.
    Inside,
    /// It is this many bytes before the first byte.
    Before(usize),
    /// It is this many bytes after the last byte.
    After(usize),
    /// It is near a null pointer, and the argument is unbound.
    Unbound,
}

/// The index of the argument nearest to `address`, given the arguments' addresses and sizes in bytes.
pub(super) fn nearest(address: usize, args: &[*const c_void], sizes: &[u64]) -> Option<(usize, Relation)> {
    let arguments = args.iter().zip(sizes).enumerate();
    let related = arguments.filter_map(|(index, (start, size))| {
        let (start, size) = (start.addr(), *size as usize);
        if address < NULL_END {
            return (start == 0 && size == 0).then_some((0, index, Relation::Unbound));
        }
        // Arguments of threadgroup memory are offsets.
        if start < NULL_END {
            return None;
        }
        let end = start.saturating_add(size);
        let (distance, relation) = match address {
            before if before < start => (start - before, Relation::Before(start - before)),
            after if after >= end => (after - end + 1, Relation::After(after - end)),
            _ => (0, Relation::Inside),
        };
        (distance <= NEAR).then_some((distance, index, relation))
    });
    let found = related.min_by_key(|(distance, ..)| *distance)?;
    Some((found.1, found.2))
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance;

    use super::*;

    #[test]
    fn the_nearest_argument_is_found() {
        // Two buffers, threadgroup memory at offset 0, and an unbound buffer.
        let args = [0x10_0000, 0x20_0000, 0, 0].map(without_provenance);
        let sizes = [0x100, 0x40, 64, 0];
        let at = |address| nearest(address, &args, &sizes);
        assert_eq!(at(0x10_0100), Some((0, Relation::After(0))));
        assert_eq!(at(0x10_0180), Some((0, Relation::After(0x80))));
        assert_eq!(at(0x10_00ff), Some((0, Relation::Inside)));
        assert_eq!(at(0x1f_fff0), Some((1, Relation::Before(0x10))));
        assert_eq!(at(0x20), Some((3, Relation::Unbound)));
        assert_eq!(at(0x2_0000_0000), None);
        assert_eq!(nearest(0x20, &args[..3], &sizes), None);
    }
}
