//! Copies, fills and allocation.

use std::any::Any;
use std::sync::Arc;

use elinvar_driver::{Command, Device, Driver, Error, Init, Memory, MemorySlice, Queue, Result, Storage};

use crate::testing::{self, memory, run, slice, write};

#[allow(unsafe_code)] // reads memory at rest
fn bytes(memory: &Arc<dyn Memory>) -> Vec<u8> {
    let mut bytes = vec![0; memory.len() as usize];
    // SAFETY: called between submissions.
    unsafe { memory.read(0, &mut bytes).unwrap() };
    bytes
}

fn part(memory: &Arc<dyn Memory>, offset: u64, len: u64) -> MemorySlice {
    MemorySlice { memory: memory.clone(), offset, len }
}

fn fails(queue: &dyn Queue, command: Command) -> String {
    let error = run(queue, vec![command]).unwrap_err();
    queue.acknowledge().unwrap();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    error.to_string()
}

#[test]
fn copies_may_overlap_both_ways() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let memory = memory(&device, 10_000);
    let start: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
    for (from, to) in [(0, 3), (3, 0), (100, 5000), (5, 5)] {
        write(&memory, &start);
        let copy = Command::Copy { source: part(&memory, from, 4900), target: part(&memory, to, 4900) };
        run(&*queue, vec![copy]).unwrap();
        let mut expected = start.clone();
        expected.copy_within(from as usize..from as usize + 4900, to as usize);
        assert!(bytes(&memory) == expected, "{from} to {to}");
    }
}

#[test]
fn fills_repeat_the_pattern() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    for pattern in [vec![9], vec![1, 2, 3], (1..=7).collect(), (1..=16).collect::<Vec<u8>>()] {
        let memory = memory(&device, 3 * 16 * 1001);
        let len = (2 * 16 * 1001 / pattern.len() * pattern.len()) as u64;
        let fill = Command::Fill { target: part(&memory, 5, len), pattern: pattern.clone() };
        run(&*queue, vec![fill]).unwrap();
        let mut expected = vec![0; memory.len() as usize];
        for (i, byte) in expected[5..5 + len as usize].iter_mut().enumerate() {
            *byte = pattern[i % pattern.len()];
        }
        assert!(bytes(&memory) == expected, "{} bytes", pattern.len());
    }
}

#[test]
fn private_memory_is_reached_by_copies() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let shared = memory(&device, 8);
    let private = device.allocate(8, Storage::Private, Init::Uninitialized).unwrap();
    assert!(private.host_ptr().is_none());
    run(
        &*queue,
        vec![
            Command::Fill { target: slice(&private), pattern: vec![1, 2] },
            Command::Copy { source: part(&private, 1, 4), target: part(&shared, 0, 4) },
        ],
    )
    .unwrap();
    assert_eq!(bytes(&shared), [2, 1, 2, 1, 0, 0, 0, 0]);
}

#[test]
fn nothing_can_be_copied_and_filled() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let empty = memory(&device, 0);
    let copy = Command::Copy { source: slice(&empty), target: slice(&empty) };
    run(&*queue, vec![copy, Command::Fill { target: slice(&empty), pattern: vec![1] }]).unwrap();
}

#[test]
fn wrong_ranges_and_patterns_are_refused() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let memory = memory(&device, 64);
    let fill = |target, pattern: &[u8]| Command::Fill { target, pattern: pattern.to_vec() };
    let message = fails(&*queue, fill(part(&memory, 60, 8), &[0]));
    assert_eq!(message, "bytes 60 to 68 are outside a memory of 64 bytes");
    let message = fails(&*queue, fill(slice(&memory), &[0; 3]));
    assert_eq!(message, "fill of 64 bytes with a pattern of 3 bytes");
    fails(&*queue, fill(slice(&memory), &[]));
    fails(&*queue, fill(part(&memory, 0, 17), &[0; 17]));
    let copy = Command::Copy { source: part(&memory, 0, 8), target: part(&memory, 0, 9) };
    assert_eq!(fails(&*queue, copy), "copy of 8 bytes to 9 bytes");
    let copy = Command::Copy { source: part(&memory, u64::MAX, 8), target: part(&memory, 0, 8) };
    fails(&*queue, copy);
    assert!(bytes(&memory).iter().all(|byte| *byte == 0));
}

#[test]
fn buffers_over_the_limits_are_refused() {
    let device = testing::device(1);
    let caps = device.caps();
    let allocate = |bytes| device.allocate(bytes, Storage::Shared, Init::Zeroed);
    let limit = caps.limits.max_buffer_bytes;
    let message = allocate(limit + 1).err().unwrap().to_string();
    assert_eq!(message, format!("a buffer of {} bytes: the limit is {limit} bytes", limit + 1));
    assert!(matches!(allocate(u64::MAX), Err(Error::InvalidArgument(_))));
    // Untouched pages cost nothing, so all of the machine's memory can be allocated.
    let mut held = Vec::new();
    let refused = loop {
        match allocate(limit) {
            Ok(memory) => held.push(memory),
            Err(error) => break error,
        }
        assert!(held.len() as u64 * limit <= caps.limits.total_memory);
    };
    assert!(matches!(refused, Error::OutOfMemory { requested, .. } if requested == limit), "{refused}");
    held.clear();
    allocate(limit).unwrap();
}

#[test]
fn a_driver_has_one_device_and_keeps_it() -> Result<()> {
    let driver = crate::CpuDriver::with_threads(0);
    let device = driver.devices()?.remove(0);
    assert_eq!(device.caps().limits.compute_units, 1);
    assert!(Arc::ptr_eq(&device, &driver.clone().devices()?[0]));
    let process = crate::driver().devices()?.remove(0);
    assert!(Arc::ptr_eq(&process, &crate::driver().devices()?[0]));
    assert!((&*process as &dyn Any).is::<crate::device::CpuDevice>());
    Ok(())
}
