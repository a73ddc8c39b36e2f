//! What the lanes of a simdgroup move together: transactions of memory, and bank conflicts of threadgroup memory.
//!
//! GPUs move memory in sectors of 32 bytes, and tag caches in lines of 128 bytes (NVIDIA, CUDA C++ Best Practices Guide, "Coalesced Access to
//! Global Memory"; Apple's caches have lines of 128 bytes, `sysctl hw.cachelinesize`). Threadgroup memory has 32 banks of 4 bytes, which
//! serve one word each at a time; lanes that read the same word share it (CUDA C++ Programming Guide, "Shared Memory").

use std::collections::BTreeSet;

/// Bytes of a sector, the smallest transaction.
pub const SECTOR: u64 = 32;
/// Bytes of a cache line.
pub const LINE: u64 = 128;
/// Banks of threadgroup memory.
const BANKS: i128 = 32;
/// Bytes of a bank's word.
const WORD: i128 = 4;

/// The number of segments of `segment` bytes in which accesses of `bytes` bytes at these offsets lie.
pub(crate) fn segments(offsets: &[i128], bytes: u64, segment: u64) -> u64 {
    let segment = i128::from(segment);
    let last = |offset: &i128| (offset + i128::from(bytes.max(1)) - 1).div_euclid(segment);
    let all = offsets.iter().flat_map(|offset| offset.div_euclid(segment)..=last(offset));
    all.collect::<BTreeSet<_>>().len() as u64
}

/// The bytes at these offsets, each counted once.
pub(crate) fn distinct_bytes(offsets: &[i128], bytes: u64) -> u64 {
    let sorted: BTreeSet<i128> = offsets.iter().copied().collect();
    let (mut total, mut end) = (0, i128::MIN);
    for offset in sorted {
        let last = offset + i128::from(bytes);
        total += last - end.max(offset).min(last);
        end = end.max(last);
    }
    u64::try_from(total).unwrap_or(u64::MAX)
}

/// How many times longer than without conflicts an access of threadgroup memory takes: rounds in which each bank serves one word, over the
/// rounds that as many bytes need. Lanes are served in parts that move at most 128 bytes.
pub(crate) fn bank_conflicts(offsets: &[i128], bytes: u64) -> f64 {
    let lanes = usize::try_from(BANKS * WORD / i128::from(bytes.clamp(4, 128))).unwrap_or(1).max(1);
    let (mut rounds, mut least) = (0_usize, 0_usize);
    for part in offsets.chunks(lanes) {
        let end = |offset: &i128| (offset + i128::from(bytes.max(1)) - 1).div_euclid(WORD);
        let words: BTreeSet<i128> =
            part.iter().flat_map(|offset| offset.div_euclid(WORD)..=end(offset)).collect();
        let of_bank = |bank: i128| words.iter().filter(|word| word.rem_euclid(BANKS) == bank).count();
        rounds += (0..BANKS).map(of_bank).max().unwrap_or(0);
        least += words.len().div_ceil(BANKS as usize).max(1);
    }
    if least == 0 { 1.0 } else { rounds as f64 / least as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strided(stride: i128) -> Vec<i128> {
        (0..32).map(|lane| lane * stride).collect()
    }

    #[test]
    fn transactions_of_a_simdgroup() {
        // CUDA C++ Best Practices Guide: 32 consecutive floats are four sectors; misaligned ones five; strided ones one each.
        for (offsets, bytes, sectors, lines) in [
            (strided(4), 4, 4, 1),
            (strided(4).iter().map(|o| o + 4).collect(), 4, 5, 2),
            (strided(8), 4, 8, 2),
            (strided(128), 4, 32, 32),
            (strided(0), 4, 1, 1),
            (strided(16), 16, 16, 4),
            (vec![30], 4, 2, 1),
            (vec![-4], 4, 1, 1),
        ] {
            assert_eq!(
                (segments(&offsets, bytes, SECTOR), segments(&offsets, bytes, LINE)),
                (sectors, lines)
            );
        }
        assert_eq!(distinct_bytes(&strided(0), 4), 4);
        assert_eq!(distinct_bytes(&strided(2), 4), 66);
        assert_eq!(distinct_bytes(&strided(8), 4), 128);
    }

    #[test]
    fn conflicts_of_banks() {
        // CUDA C++ Programming Guide, "Shared Memory": strides of 1, 2 and 3 words; a broadcast.
        for (offsets, bytes, factor) in [
            (strided(4), 4, 1.0),
            (strided(8), 4, 2.0),
            (strided(12), 4, 1.0),
            (strided(128), 4, 32.0),
            (strided(132), 4, 1.0),
            (strided(0), 4, 1.0),
            (strided(1), 1, 1.0),
            (strided(8), 8, 1.0),
            (strided(16), 16, 1.0),
            (strided(256), 8, 16.0),
        ] {
            assert_eq!(bank_conflicts(&offsets, bytes), factor, "{:?}", &offsets[..2]);
        }
    }
}
