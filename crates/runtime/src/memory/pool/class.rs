//! Size classes: the size of the block for a request.
//!
//! There are eight classes per power of two, so rounding wastes at most an eighth of a block, in addition to rounding up to the
//! device's allocation granularity.

/// Size in bytes of the block for a request of `bytes`: at least `bytes`, a multiple of `granule`, at most `most` if `bytes` is.
pub(crate) fn block_size(bytes: u64, granule: u64, most: u64) -> u64 {
    let granule = granule.max(1);
    let bytes = bytes.max(1);
    let step = (bytes.checked_next_power_of_two().unwrap_or(1 << 63) / 16).max(granule);
    let rounded =
        bytes.checked_next_multiple_of(step).and_then(|size| size.checked_next_multiple_of(granule));
    match rounded {
        Some(size) if size <= most => size,
        // Requests close to the maximum are not rounded.
        _ => bytes,
    }
}

/// The largest idle block that may serve a request with a block size of `block`: a quarter more.
pub(crate) fn largest_fit(block: u64) -> u64 {
    block.saturating_add(block / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_the_request_and_waste_little() {
        for granule in [1, 256, 4096, 16384] {
            let mut last = 0;
            for bytes in (0..200).map(|i| 1.17_f64.powi(i) as u64).chain([1 << 20, (1 << 20) + 1, 3 << 28]) {
                let size = block_size(bytes, granule, 1 << 50);
                assert!(size >= bytes.max(1) && size.is_multiple_of(granule), "{bytes} by {granule}: {size}");
                assert!(size - bytes <= granule.max(bytes / 8 + 1), "{bytes} by {granule}: {size}");
                assert!(size >= last || bytes < (1 << 29), "{size} after {last}");
                last = size;
            }
        }
        assert_eq!(block_size(1 << 20, 4096, u64::MAX), 1 << 20);
    }

    #[test]
    fn there_are_few_classes() {
        let sizes: std::collections::BTreeSet<u64> =
            ((1 << 20)..(2 << 20)).step_by(4096).map(|bytes| block_size(bytes + 1, 4096, u64::MAX)).collect();
        assert_eq!(sizes.len(), 8);
    }

    #[test]
    fn the_largest_requests_are_not_rounded_beyond_the_limit() {
        assert_eq!(block_size(999, 256, 1000), 999);
        assert_eq!(block_size(1001, 256, 1000), 1001, "the driver refuses it");
        assert_eq!(block_size(u64::MAX, 4096, u64::MAX), u64::MAX);
    }
}
