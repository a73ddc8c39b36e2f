//! Copies and fills with driver API calls.
//!
//! The driver's copies do not support overlap, and its fills only patterns of 1, 2 and 4 bytes. Overlapping ranges are copied in chunks through
//! a temporary allocation; longer patterns are written once, column by column, and then doubled.

use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use elinvar_driver::{Error, Result};

use crate::context::{Context, at};
use crate::failure::Failure;

/// Chunk size of an overlapping copy, in bytes.
const PIECE: u64 = 64 << 20;
/// Approximate number of bytes of a pattern that are set directly before doubling.
const FIRST: u64 = 64 << 10;

/// Direction of a copy within a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Apart,
    /// To lower addresses: chunks are copied in ascending order.
    Down,
    /// To higher addresses: in descending order.
    Up,
}

fn way(from: CUdeviceptr, to: CUdeviceptr, bytes: u64) -> Way {
    match from.abs_diff(to) {
        distance if distance >= bytes => Way::Apart,
        _ if to < from => Way::Down,
        _ => Way::Up,
    }
}

/// The chunks of an overlapping copy, in order: offset and length.
fn pieces(bytes: u64, piece: u64, way: Way) -> impl Iterator<Item = (u64, u64)> {
    let count = bytes.div_ceil(piece);
    (0..count).map(move |k| {
        let k = if way == Way::Up { count - 1 - k } else { k };
        (k * piece, piece.min(bytes - k * piece))
    })
}

/// Copies within the memory of one context, which must be current.
#[allow(unsafe_code)] // C functions
pub(crate) fn copy(
    context: &Context,
    stream: CUstream,
    from: CUdeviceptr,
    to: CUdeviceptr,
    bytes: u64,
) -> Result<()> {
    let api = context.api;
    let failed = |failure: Failure| context.error(failure, &format!("a copy of {bytes} bytes"));
    if bytes == 0 || from == to {
        return Ok(());
    }
    // SAFETY: the ranges are within memories that the submission keeps alive; races are the program's responsibility.
    let copied = |from, to, bytes: u64| unsafe { api.copy(to, from, bytes as usize, stream) }.map_err(failed);
    let way = way(from, to, bytes);
    if way == Way::Apart {
        return copied(from, to, bytes);
    }
    if !context.has_pools {
        return Err(Error::unsupported(format!(
            "device `{}`: an overlapping copy, which needs memory pools",
            context.name
        )));
    }
    let piece = bytes.min(PIECE);
    let mut between = 0;
    // SAFETY: it writes an address, which is valid for later work on the stream.
    unsafe { api.allocate_async(&mut between, piece as usize, stream) }.map_err(failed)?;
    let through = pieces(bytes, piece, way).try_for_each(|(offset, len)| {
        copied(at(from, offset), between, len)?;
        copied(between, at(to, offset), len)
    });
    // SAFETY: allocated above; its uses are earlier on the stream.
    let freed = unsafe { api.free_async(between, stream) }.map_err(failed);
    through.and(freed)
}

/// Copies between devices, on a stream of either of them, whose context must be current.
#[allow(unsafe_code)] // C functions
pub(crate) fn copy_between(
    stream: CUstream,
    (source, from): (&Arc<Context>, CUdeviceptr),
    (target, to): (&Arc<Context>, CUdeviceptr),
    bytes: u64,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the ranges are within memories that the submission keeps alive; races are the program's responsibility.
    let copied = unsafe { target.api.copy_peer(to, target.raw, from, source.raw, bytes as usize, stream) };
    copied.map_err(|failure| {
        target.error(failure, &format!("a copy of {bytes} bytes from device `{}`", source.name))
    })
}

/// The period of a pattern: its shortest prefix that gives the pattern when repeated.
fn shortest(pattern: &[u8]) -> &[u8] {
    let repeats = |n: &usize| {
        pattern.len().is_multiple_of(*n) && pattern.chunks(*n).all(|chunk| *chunk == pattern[..*n])
    };
    let n = (1..=pattern.len()).find(repeats).unwrap_or(pattern.len());
    &pattern[..n]
}

/// Fills `bytes` bytes with `pattern`. The context must be current.
#[allow(unsafe_code)] // C functions
pub(crate) fn fill(
    context: &Context,
    stream: CUstream,
    to: CUdeviceptr,
    bytes: u64,
    pattern: &[u8],
) -> Result<()> {
    if !(1..=16).contains(&pattern.len()) || !bytes.is_multiple_of(pattern.len() as u64) {
        let pattern = pattern.len();
        return Err(Error::invalid(format!("fill of {bytes} bytes with a pattern of {pattern} bytes")));
    }
    if bytes == 0 {
        return Ok(());
    }
    let (api, count) = (context.api, bytes as usize);
    let filled = match *shortest(pattern) {
        // SAFETY: the range is within a memory that the submission keeps alive; races are the program's responsibility.
        [byte] => unsafe { api.set_u8(to, byte, count, stream) },
        [a, b] if to.is_multiple_of(2) => {
            let value = u16::from_ne_bytes([a, b]);
            // SAFETY: as above.
            unsafe { api.set_u16(to, value, count / 2, stream) }
        }
        [a, b, c, d] if to.is_multiple_of(4) => {
            let value = u32::from_ne_bytes([a, b, c, d]);
            // SAFETY: as above.
            unsafe { api.set_u32(to, value, count / 4, stream) }
        }
        ref other => doubled(context, stream, to, bytes, other),
    };
    filled.map_err(|failure| context.error(failure, &format!("a fill of {bytes} bytes")))
}

/// Writes the pattern once, column by column, then doubles it with copies.
#[allow(unsafe_code)] // C functions
fn doubled(
    context: &Context,
    stream: CUstream,
    to: CUdeviceptr,
    bytes: u64,
    pattern: &[u8],
) -> Result<(), Failure> {
    let period = pattern.len();
    let rows = (FIRST as usize / period).min(bytes as usize / period);
    let api = context.api;
    if period.is_multiple_of(4) && to.is_multiple_of(4) {
        for (k, word) in pattern.chunks_exact(4).enumerate() {
            let [a, b, c, d] = *word else { continue };
            let (word, first) = (u32::from_ne_bytes([a, b, c, d]), at(to, 4 * k as u64));
            // SAFETY: `rows` rows of `period` bytes are within the range.
            unsafe { api.set_rows_u32(first, period, word, 1, rows, stream) }?;
        }
    } else {
        for (k, byte) in pattern.iter().enumerate() {
            // SAFETY: as above.
            unsafe { api.set_rows_u8(at(to, k as u64), period, *byte, 1, rows, stream) }?;
        }
    }
    let mut done = (rows * period) as u64;
    while done < bytes {
        let more = done.min(bytes - done);
        // SAFETY: the source is before the target, and both are within the range.
        unsafe { api.copy(at(to, done), to, more as usize, stream) }?;
        done += more;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Emulates a chunked copy, each chunk through temporary memory.
    fn by_pieces(memory: &mut [u8], from: usize, to: usize, bytes: usize, piece: u64) {
        let way = way(from as u64, to as u64, bytes as u64);
        for (offset, len) in pieces(bytes as u64, piece, way) {
            let (offset, len) = (offset as usize, len as usize);
            let between = memory[from + offset..][..len].to_vec();
            memory[to + offset..][..len].copy_from_slice(&between);
        }
    }

    #[test]
    fn overlapping_pieces_are_as_if_the_source_had_been_read_first() {
        for (from, to) in [(0, 1), (1, 0), (5, 20), (20, 5), (0, 63), (7, 7)] {
            for piece in [1, 3, 16, 64, 1000] {
                let mut memory: Vec<u8> = (0..128).collect();
                let mut expected = memory.clone();
                expected.copy_within(from..from + 64, to);
                by_pieces(&mut memory, from, to, 64, piece);
                assert_eq!(memory, expected, "{from} to {to}, pieces of {piece}");
            }
        }
    }

    #[test]
    fn ranges_that_touch_are_apart() {
        assert_eq!((way(0, 64, 64), way(64, 0, 64)), (Way::Apart, Way::Apart));
        assert_eq!((way(0, 63, 64), way(63, 0, 64)), (Way::Up, Way::Down));
    }

    #[test]
    fn patterns_are_taken_for_what_they_repeat() {
        assert_eq!(shortest(&[0; 16]), [0]);
        assert_eq!(shortest(&[1, 2, 1, 2]), [1, 2]);
        assert_eq!(shortest(&[1, 2, 3, 4, 1, 2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(shortest(&[1, 2, 3]), [1, 2, 3]);
        assert_eq!(shortest(&[1, 1, 2, 1, 1, 3]).len(), 6);
    }
}
