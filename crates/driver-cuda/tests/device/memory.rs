//! Memory in every storage mode, overlapping copies, fills with patterns, host pages used in place.
#![allow(unsafe_code)] // reads and writes memory that the test alone uses

use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::{Command, Error, HostBlock, Init, Memory, Storage};

use crate::bench::{Bench, Test, bytes, expect_all, slice, submit, whole};

pub const TESTS: &[Test] = &[
    ("every_storage_mode_is_zero_and_keeps_what_is_written", storage_modes),
    ("managed_memory_is_brought_in_step", managed),
    ("more_than_there_is_is_out_of_memory", too_much),
    ("copies_that_overlap_are_as_if_read_first", overlaps),
    ("large_copies_that_overlap_go_in_pieces", large_overlap),
    ("fills_of_every_pattern", fills),
    ("copies_between_storage_modes", between_modes),
    ("pages_of_the_host_in_place", pages),
    ("caps_are_those_of_the_hardware", caps),
];

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn storage_modes(bench: &Bench) {
    for storage in [Storage::Private, Storage::Shared, Storage::Managed] {
        for len in [0_u64, 1, 4097, 3 << 20] {
            let memory = bench.device.allocate(len, storage, Init::Zeroed).unwrap();
            assert_eq!((memory.len(), memory.storage()), (len, storage));
            assert!(memory.gpu_address().is_some_and(|address| address.is_multiple_of(256)));
            assert_eq!(memory.host_ptr().is_some(), storage != Storage::Private);
            expect_all(&bytes(&memory), |_| 0);
            let data = pattern(len as usize);
            // SAFETY: in range, and no other code uses it.
            unsafe { memory.write(0, &data) }.unwrap();
            expect_all(&bytes(&memory), |i| data[i]);
            // SAFETY: as above.
            unsafe { memory.clear(len / 2) }.unwrap();
            expect_all(&bytes(&memory), |i| if i < len as usize / 2 { 0 } else { data[i] });
            // SAFETY: the call is refused and has no effect.
            assert!(unsafe { memory.clear(len + 1) }.is_err());
        }
    }
}

fn managed(bench: &Bench) {
    const LEN: usize = 100_000;
    let memory = bench.device.allocate(LEN as u64, Storage::Managed, Init::Zeroed).unwrap();
    let data = pattern(LEN);
    // SAFETY: in range, and no other code uses it.
    unsafe { memory.write(0, &data) }.unwrap();
    let host = memory.host_ptr().unwrap();
    assert_eq!(memory.host_ptr(), Some(host), "it stays");
    // SAFETY: as above.
    unsafe { memory.pull(10, 500) }.unwrap();
    // SAFETY: as above.
    let seen = unsafe { std::slice::from_raw_parts(host.as_ptr().wrapping_add(10), 500) };
    expect_all(seen, |i| data[10 + i]);
    // SAFETY: as above.
    unsafe { host.as_ptr().add(20).write_bytes(0xab, 5) };
    expect_all(&bytes(&memory), |i| data[i]);
    // SAFETY: as above.
    unsafe { memory.push(20, 5) }.unwrap();
    expect_all(&bytes(&memory), |i| if (20..25).contains(&i) { 0xab } else { data[i] });
}

fn too_much(bench: &Bench) {
    let all = bench.device.caps().limits.total_memory;
    let refused = bench.device.allocate(all, Storage::Private, Init::Uninitialized).err();
    assert!(
        matches!(refused, Some(Error::OutOfMemory { requested, available }) if requested == all && available < all && available > 0),
        "{refused:?}"
    );
    let refused = bench.device.allocate(all + 1, Storage::Private, Init::Zeroed).err();
    assert!(matches!(refused, Some(Error::InvalidArgument(_))), "{refused:?}");
    // The device remains usable.
    expect_all(&bytes(&bench.memory(1000)), |_| 0);
}

fn overlaps(bench: &Bench) {
    const LEN: usize = 200_000;
    let queue = bench.queue();
    let data = pattern(LEN);
    for (from, to, len) in
        [(0, 1, 150_000), (1, 0, 150_000), (500, 3, 199_500), (7, 70_000, 100_000), (9, 9, 100)]
    {
        let memory = bench.memory(LEN as u64);
        // SAFETY: in range, and no other code uses it.
        unsafe { memory.write(0, &data) }.unwrap();
        let (source, target) =
            (slice(&memory, from as u64, len as u64), slice(&memory, to as u64, len as u64));
        submit(&queue, [Command::Copy { source, target }]).wait().unwrap();
        let mut expected = data.clone();
        expected.copy_within(from..from + len, to);
        expect_all(&bytes(&memory), |i| expected[i]);
    }
}

fn large_overlap(bench: &Bench) {
    const LEN: u64 = 200 << 20;
    let queue = bench.queue();
    let data = pattern(LEN as usize);
    for (from, to) in [(0, 12_345), (12_345, 0)] {
        let memory = bench.memory(LEN);
        // SAFETY: in range, and no other code uses it.
        unsafe { memory.write(0, &data) }.unwrap();
        let len = LEN - 12_345;
        let copy = Command::Copy { source: slice(&memory, from, len), target: slice(&memory, to, len) };
        submit(&queue, [copy]).wait().unwrap();
        let mut expected = data.clone();
        expected.copy_within(from as usize..(from + len) as usize, to as usize);
        assert!(bytes(&memory) == expected, "{from} to {to}");
    }
}

fn fills(bench: &Bench) {
    let queue = bench.queue();
    for storage in [Storage::Private, Storage::Shared, Storage::Managed] {
        for period in 1..=16_usize {
            for (offset, repeats) in [(0_u64, 1_usize), (4, 3), (3, 1000), (16, 50_000)] {
                let len = (period * repeats) as u64;
                let memory = bench.device.allocate(offset + len + 9, storage, Init::Zeroed).unwrap();
                let pattern: Vec<u8> = (0..period).map(|i| 13 * i as u8 + 3).collect();
                let target = slice(&memory, offset, len);
                submit(&queue, [Command::Fill { target, pattern: pattern.clone() }]).wait().unwrap();
                expect_all(&bytes(&memory), |i| match i.checked_sub(offset as usize) {
                    Some(k) if k < len as usize => pattern[k % period],
                    _ => 0,
                });
            }
        }
    }
    let memory = bench.memory(64);
    let odd = Command::Fill { target: whole(&memory), pattern: vec![1; 17] };
    assert!(matches!(submit(&queue, [odd]).wait(), Err(Error::InvalidArgument(_))));
    assert!(queue.acknowledge().is_some());
}

fn between_modes(bench: &Bench) {
    const LEN: usize = 1 << 20;
    let queue = bench.queue();
    let data = pattern(LEN);
    let modes = [Storage::Private, Storage::Shared, Storage::Managed];
    for (from, to) in modes.iter().flat_map(|from| modes.map(|to| (*from, to))) {
        let [source, target]: [Arc<dyn Memory>; 2] =
            [from, to].map(|mode| bench.device.allocate(LEN as u64, mode, Init::Zeroed).unwrap());
        // SAFETY: in range, and no other code uses it.
        unsafe { source.write(0, &data) }.unwrap();
        submit(&queue, [Command::Copy { source: whole(&source), target: whole(&target) }]).wait().unwrap();
        assert!(bytes(&target) == data, "{from:?} to {to:?}");
    }
}

#[repr(C, align(65536))]
struct Pages([u8; 65536]);

fn pages(bench: &Bench) {
    if bench.device.caps().limits.wrap_granule.is_none() {
        return;
    }
    let mut own = Box::new(Pages([7; 65536]));
    let first = NonNull::from(&mut own.0).cast::<u8>();
    let alive = Arc::new(());
    let block = |address, bytes| HostBlock { address, bytes, owner: Box::new(alive.clone()) };
    // SAFETY: `own` outlives the memory, and is only accessed through it.
    let memory = unsafe { bench.device.wrap(block(first, 65536)) }.unwrap();
    assert_eq!((memory.host_ptr(), memory.len()), (Some(first), 65536));
    let fill = Command::Fill { target: slice(&memory, 100, 50), pattern: vec![9] };
    submit(&bench.queue(), [fill]).wait().unwrap();
    expect_all(&bytes(&memory), |i| if (100..150).contains(&i) { 9 } else { 7 });
    // SAFETY: as above.
    let again = unsafe { bench.device.wrap(block(first, 65536)) }.err();
    assert!(matches!(again, Some(Error::InvalidArgument(_))), "{again:?}");
    // SAFETY: the call is refused and has no effect.
    let odd = unsafe { bench.device.wrap(block(first, 65535)) };
    assert!(odd.is_err());
    drop((memory, again));
    assert_eq!(Arc::strong_count(&alive), 1, "the owners are dropped");
    // SAFETY: as above.
    let after = unsafe { bench.device.wrap(block(first, 65536)) };
    after.unwrap();
}

fn caps(bench: &Bench) {
    let caps = bench.device.caps();
    println!("{caps:#?}");
    assert_eq!(caps.limits.simdgroup_width, 32);
    assert!(caps.limits.max_threads_per_threadgroup >= 1024 && caps.limits.compute_units > 1, "{caps:?}");
    let free = bench.device.available_memory();
    assert!(free > 0 && free < caps.limits.total_memory, "{free}");
}
