//! Memory, copies and fills, on every device.
#![cfg(any(target_vendor = "apple", elinvar_apple))]

mod support;

use std::sync::Arc;

use elinvar_driver::{Command, Error, HostBlock, Init, Storage};
use support::{devices, memory, read, run, slice, whole, write};

const MODES: [Storage; 3] = [Storage::Shared, Storage::Private, Storage::Managed];

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}

#[test]
fn new_memory_is_zero_and_keeps_what_is_written() {
    for device in devices() {
        for storage in MODES {
            let memory = memory(&*device, 10_007, storage);
            assert_eq!((memory.len(), memory.storage()), (10_007, storage));
            assert_eq!(memory.host_ptr().is_some(), storage != Storage::Private);
            assert!(read(&memory).iter().all(|byte| *byte == 0), "{storage:?}");
            let (data, mut expected) = (bytes(4999), vec![0; 10_007]);
            write(&memory, 4001, &data);
            expected[4001..9000].copy_from_slice(&data);
            assert_eq!(read(&memory), expected, "{storage:?}");
        }
    }
}

#[test]
fn more_than_is_staged_at_a_time_arrives() {
    for device in devices() {
        let memory = memory(&*device, (9 << 20) + 3, Storage::Private);
        let data = bytes((9 << 20) + 2);
        write(&memory, 1, &data);
        assert_eq!(read(&memory)[1..], data);
    }
}

#[test]
#[allow(unsafe_code)] // calls unsafe methods
fn clearing_sets_the_first_bytes() {
    for device in devices() {
        for storage in MODES {
            let memory = memory(&*device, 6001, storage);
            write(&memory, 0, &[7; 6001]);
            // SAFETY: in range, and no other code uses it.
            unsafe { memory.clear(5003) }.unwrap();
            let expected: Vec<u8> = (0..6001).map(|i| if i < 5003 { 0 } else { 7 }).collect();
            assert_eq!(read(&memory), expected, "{storage:?}");
            // SAFETY: the call is refused and has no effect.
            assert!(unsafe { memory.clear(6002) }.is_err());
        }
    }
}

#[test]
fn no_bytes_are_memory_too_and_too_many_are_refused() {
    for device in devices() {
        assert!(memory(&*device, 0, Storage::Shared).is_empty());
        let limit = device.caps().limits.max_buffer_bytes;
        let error = device.allocate(limit + 1, Storage::Shared, Init::Zeroed).err().unwrap();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
}

#[test]
#[allow(unsafe_code)] // calls unsafe methods
fn copies_of_managed_memory_are_brought_in_step_by_range() {
    for device in devices() {
        let (managed, other) =
            (memory(&*device, 64, Storage::Managed), memory(&*device, 64, Storage::Shared));
        write(&other, 0, &[9; 64]);
        let queue = device.queue().unwrap();
        run(&*queue, vec![Command::Copy { source: whole(&other), target: whole(&managed) }]).unwrap();
        let host = managed.host_ptr().unwrap();
        // SAFETY: in range; nothing is in flight.
        unsafe {
            host.add(40).write(5);
            managed.pull(0, 33).unwrap();
            assert_eq!((host.read(), host.add(32).read(), host.add(40).read()), (9, 9, 5));
            managed.push(40, 1).unwrap();
        }
        run(&*queue, vec![Command::Copy { source: whole(&managed), target: whole(&other) }]).unwrap();
        let expected: Vec<u8> = (0..64).map(|i| if i == 40 { 5 } else { 9 }).collect();
        assert_eq!(read(&other), expected);
    }
}

#[repr(C, align(65536))]
struct Pages([u8; 65536]);

#[test]
#[allow(unsafe_code)] // lends memory of the host
fn memory_of_the_program_is_used_in_place_and_its_owner_dropped() {
    for device in devices() {
        let granule = device.caps().limits.wrap_granule.unwrap();
        let (mut pages, alive) = (Box::new(Pages([3; 65536])), Arc::new(()));
        let address = std::ptr::NonNull::from(&mut *pages).cast::<u8>();
        let block = |bytes, from| HostBlock { address: from, bytes, owner: Box::new(alive.clone()) };
        // SAFETY: the pages outlive the memory, and are only accessed through it.
        let wrapped = unsafe { device.wrap(block(65536, address)) }.unwrap();
        assert_eq!(wrapped.host_ptr(), Some(address));
        let fill = Command::Fill { target: slice(&wrapped, 8, 65520), pattern: vec![1, 2, 3] };
        run(&*device.queue().unwrap(), vec![fill]).unwrap();
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(wrapped);
        assert_eq!(Arc::strong_count(&alive), 1, "the owner is still there");
        assert_eq!((pages.0[7], pages.0[8], pages.0[9], pages.0[65527], pages.0[65528]), (3, 1, 2, 3, 3));
        for (bytes, from) in [(granule + 1, 0), (granule, 1)] {
            // SAFETY: the call is refused and has no effect.
            let odd = unsafe { device.wrap(block(bytes, address.add(from))) };
            assert!(matches!(odd, Err(Error::InvalidArgument(_))));
        }
        assert_eq!(Arc::strong_count(&alive), 1, "what is refused lets go of its owner");
    }
}

#[test]
fn copies_of_any_place_and_length_also_overlap() {
    for device in devices() {
        let queue = device.queue().unwrap();
        for storage in MODES {
            for (from, to, len) in
                [(0, 512, 512), (1, 600, 100), (4, 8, 400), (9, 2, 333), (16, 16, 64), (3, 700, 0)]
            {
                let memory = memory(&*device, 1024, storage);
                let mut expected = bytes(1024);
                write(&memory, 0, &expected);
                let copy =
                    Command::Copy { source: slice(&memory, from, len), target: slice(&memory, to, len) };
                run(&*queue, vec![copy]).unwrap();
                expected.copy_within(from as usize..(from + len) as usize, to as usize);
                assert_eq!(read(&memory), expected, "{storage:?}: {len} bytes from {from} to {to}");
            }
        }
    }
}

#[test]
fn patterns_of_every_length_fill_at_every_offset() {
    for device in devices() {
        let queue = device.queue().unwrap();
        for pattern in 1..=16_usize {
            for offset in [0, 1, 2, 4, 7, 16] {
                let memory = memory(&*device, 1000, Storage::Private);
                write(&memory, 0, &[255; 1000]);
                let (len, bytes) = (pattern * 40, bytes(pattern + 1)[1..].to_vec());
                let mut expected = vec![255; 1000];
                for (to, byte) in expected[offset..offset + len].iter_mut().zip(bytes.iter().cycle()) {
                    *to = *byte;
                }
                let target = slice(&memory, offset as u64, len as u64);
                run(&*queue, vec![Command::Fill { target, pattern: bytes }]).unwrap();
                assert_eq!(read(&memory), expected, "a pattern of {pattern} at {offset}");
            }
        }
        let memory = memory(&*device, 64, Storage::Shared);
        for (len, pattern) in [(64, 0), (64, 17), (63, 2)] {
            let fill = Command::Fill { target: slice(&memory, 0, len), pattern: vec![1; pattern] };
            assert!(matches!(run(&*queue, vec![fill]), Err(Error::InvalidArgument(_))));
            assert!(queue.acknowledge().is_some());
        }
    }
}
