//! The stages of forge-sort's radix sort: histogram, offsets, scatter, sorting within buckets, and maps of keys.

use elinvar::Constants;

use super::case::{Case, guarded};
use super::element::Member::I32;
use super::element::{Sequence, packed};

const CORPUS: &str = "forge-sort";
const FILE: &str = "sort.metal";
const COUNT: usize = 1300;
const BUCKETS: usize = 256;

pub fn cases() -> Vec<Case> {
    vec![histogram(), offsets(), scatter(), within_buckets(), indices(), gather(), short_keys(), long_keys()]
}

fn case(kernel: &str) -> Case {
    Case::new(CORPUS, FILE, kernel)
}

fn some<T: Copy>(words: &[T]) -> Vec<Option<T>> {
    words.iter().copied().map(Some).collect()
}

/// Keys whose highest bytes are few.
fn keys() -> Vec<u32> {
    Sequence(3).any::<u32>(COUNT).into_iter().map(|key| key & 0x1fff_ffff).collect()
}

fn counts(keys: &[u32]) -> Vec<u32> {
    let mut counts = vec![0; BUCKETS];
    keys.iter().for_each(|key| counts[(key >> 24) as usize] += 1);
    counts
}

fn starts(counts: &[u32]) -> Vec<u32> {
    counts.iter().scan(0, |sum, count| Some(std::mem::replace(sum, *sum + count))).collect()
}

fn params(count: usize) -> Vec<u8> {
    packed(&[I32(count as i32), I32(1), I32(24), I32(0)])
}

fn histogram() -> Case {
    let keys = keys();
    case("sort_msd_histogram")
        .input(&keys)
        .updated(
            &guarded(&[5_u32; BUCKETS]),
            &some(&counts(&keys).iter().map(|n| n + 5).collect::<Vec<u32>>()),
        )
        .bytes(params(COUNT))
        .groups(1, 256)
}

/// For each bucket offset, count, number of tiles, and zero.
fn descriptors(counts: &[u32], tile: u32) -> Vec<u32> {
    let starts = starts(counts);
    counts.iter().zip(starts).flat_map(|(count, start)| [start, *count, count.div_ceil(tile), 0]).collect()
}

fn offsets() -> Case {
    let counts = counts(&keys());
    let tile = 16;
    case("sort_msd_prep")
        .input(&counts)
        .full_output(starts(&counts))
        .full_output(descriptors(&counts, tile))
        .value([tile])
        .groups(1, 256)
}

/// Keys of a bucket are equal, because their order depends on that of atomic operations.
fn scatter() -> Case {
    let keys: Vec<u32> = keys().into_iter().map(|key| key >> 24 << 24 | 0x77).collect();
    let counts = counts(&keys);
    let starts = starts(&counts);
    let ends: Vec<u32> = starts.iter().zip(&counts).map(|(start, count)| start + count).collect();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    let constants = Constants::new().set(0, false).set(1, false).set(2, 0_u32);
    case("sort_msd_atomic_scatter")
        .input(&keys)
        .full_output(sorted)
        .updated(&guarded(&starts), &some(&ends))
        .bytes(params(COUNT))
        .input(&[0_u32; 8])
        .output::<u32>(&[None; 8])
        .constants(constants)
        .groups(1, 256)
}

/// Each bucket is sorted by the lower 24 bits.
fn within_buckets() -> Case {
    let mut bucketed = keys();
    bucketed.sort_by_key(|key| key >> 24);
    let counts = counts(&bucketed);
    let mut sorted = bucketed.clone();
    sorted.sort_unstable();
    let constants = Constants::new().set(0, false).set(1, false).set(2, 0_u32);
    case("sort_inner_fused")
        .full_output(sorted)
        .input(&bucketed)
        .input(&descriptors(&counts, 4096))
        .bytes(packed(&[I32(0), I32(3), I32(0)]))
        .output::<u32>(&[None; 8])
        .output::<u32>(&[None; 8])
        .constants(constants)
        .groups(BUCKETS, 256)
}

fn indices() -> Case {
    let want: Vec<u32> = (0..COUNT as u32).collect();
    case("sort_init_indices").full_output(want).value([COUNT as u32]).threads(1536, 256)
}

fn gather() -> Case {
    let mut sequence = Sequence(5);
    let order: Vec<u32> = sequence.shuffled(COUNT).into_iter().map(|i| i as u32).collect();
    let values: Vec<u32> = sequence.any(COUNT);
    case("sort_gather_values")
        .input(&order)
        .input(&values)
        .full_output(order.iter().map(|i| values[*i as usize]).collect::<Vec<u32>>())
        .value([COUNT as u32])
        .threads(1536, 256)
}

/// The order of floats becomes that of unsigned integers.
fn short_keys() -> Case {
    let before: Vec<u32> = Sequence(7).any(COUNT);
    let want = before.iter().map(|bits| if bits >> 31 == 1 { !bits } else { bits | 1 << 31 });
    let want: Vec<u32> = want.collect();
    case("sort_transform_32")
        .updated(&guarded(&before), &some(&want))
        .value([COUNT as u32])
        .constants(Constants::new().set(0, false).set(1, false).set(2, 1_u32))
        .threads(1536, 256)
}

/// And back, of 64 bits.
fn long_keys() -> Case {
    let before: Vec<u64> = Sequence(11).any(COUNT);
    let want = before.iter().map(|bits| if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits });
    let want: Vec<u64> = want.collect();
    case("sort_transform_64")
        .updated(&guarded(&before), &some(&want))
        .value([COUNT as u32])
        .constants(Constants::new().set(0, false).set(1, true).set(2, 2_u32))
        .threads(1536, 256)
}
