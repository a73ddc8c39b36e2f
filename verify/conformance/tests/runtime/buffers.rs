//! Buffers: host access, slices, maps, and mutual exclusion of host access and pending work.

use crate::support;

use std::sync::mpsc::channel;
use std::thread;

use elinvar::{Buffer, Error, Storage};
use elinvar_conformance::sim::Op;
use support::{Bench, assert_poisoned, fault, invalid};

#[test]
fn host_access() {
    let Bench { device, .. } = Bench::new();
    let mut buffer = device.buffer::<u32>(4).unwrap();
    assert_eq!((buffer.len(), buffer.byte_len(), buffer.is_empty()), (4, 16, false));
    assert_eq!(buffer.to_vec().unwrap(), [0; 4]);
    buffer.write(&[1, 2, 3, 4]).unwrap();
    assert_eq!(buffer.clone().to_vec().unwrap(), [1, 2, 3, 4], "a clone is the same memory");
    buffer.fill(9).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [9; 4]);
    buffer.copy_from(&device.buffer_with_data(&[5, 6, 7, 8]).unwrap()).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [5, 6, 7, 8]);
    let mut target = [0; 2];
    assert_eq!(invalid(buffer.read(&mut target)), "read: the buffer has 16 bytes, the host side 8");
    assert_eq!(invalid(buffer.write(&[1])), "write: the buffer has 16 bytes, the host side 4");
    let empty = device.buffer::<u32>(0).unwrap();
    assert!(empty.is_empty() && empty.to_vec().unwrap().is_empty() && empty.map().unwrap().is_empty());
}

#[test]
fn a_fill_longer_than_its_chunk() {
    let Bench { device, .. } = Bench::new();
    let mut buffer = device.buffer::<[u8; 3]>(70_001).unwrap();
    buffer.fill([1, 2, 3]).unwrap();
    assert!(buffer.to_vec().unwrap().iter().all(|element| *element == [1, 2, 3]));
}

#[test]
fn allocation_errors() {
    let Bench { device, sim, .. } = Bench::new();
    assert_eq!(invalid(device.buffer::<()>(3)), "a buffer of `()`, which has no size");
    let beyond = format!("a buffer of {} elements of 4 bytes is beyond 64 bits", usize::MAX);
    assert_eq!(invalid(device.buffer::<u32>(usize::MAX)), beyond);
    sim.fail_next(Op::Allocate, Error::OutOfMemory { requested: 8, available: 4 });
    assert!(matches!(device.buffer::<u64>(1), Err(Error::OutOfMemory { requested: 8, available: 4 })));
    assert!(matches!(device.buffer_in::<u64>(1, Storage::Managed), Err(Error::Unsupported(_))));
    device.buffer::<u64>(1).unwrap();
}

#[test]
fn slices() {
    let Bench { device, .. } = Bench::new();
    let mut buffer = device.buffer_with_data(&[0u16, 1, 2, 3, 4, 5]).unwrap();
    assert_eq!(buffer.slice(2..4).unwrap().to_vec().unwrap(), [2, 3]);
    buffer.slice_mut(1..3).unwrap().write(&[10, 20]).unwrap();
    buffer.slice_mut(4..6).unwrap().fill(7).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [0, 10, 20, 3, 7, 7]);
    let source = buffer.clone();
    buffer.slice_mut(0..3).unwrap().copy_from(source.slice(1..4).unwrap()).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [10, 20, 3, 3, 7, 7], "an overlapping copy reads first");
    assert_eq!(invalid(buffer.slice(5..7)), "slice 5..7 of a buffer of 6 elements");
    #[allow(clippy::reversed_empty_ranges)] // the point
    let reversed = buffer.slice_mut(3..2).map(|slice| slice.len());
    assert_eq!(invalid(reversed), "slice 3..2 of a buffer of 6 elements");
    assert!(buffer.slice(6..6).unwrap().is_empty());
}

#[test]
fn memory_that_the_host_does_not_see() {
    let Bench { device, stream, .. } = Bench::new();
    let mut private = device.buffer_in::<u32>(2, Storage::Private).unwrap();
    private.write(&[3, 4]).unwrap();
    assert_eq!(private.to_vec().unwrap(), [3, 4]);
    let refused = private.map().map(drop);
    assert!(
        matches!(refused, Err(Error::Unsupported(text)) if text == "map: the host cannot access Private memory")
    );
    assert!(matches!(private.map_mut().map(drop), Err(Error::Unsupported(_))));
    stream.fill(&mut private, 8).unwrap();
    assert_eq!(private.to_vec().unwrap(), [8, 8]);
}

/// Runs `access` on a thread while a launch of `increment` is held; returns its result, and the value after the launch.
fn while_held<T: Send + 'static>(access: impl FnOnce(Buffer<u32>) -> T + Send + 'static) -> (T, u32) {
    let bench = Bench::new();
    let mut buffer = bench.device.buffer_with_data(&[41u32]).unwrap();
    let kernel = bench.increment();
    bench.sim.hold();
    bench.launch(&kernel, (&mut buffer,)).unwrap();
    let (started, has_started) = channel();
    let (ended, has_ended) = channel();
    let other = buffer.clone();
    let thread = thread::spawn(move || {
        started.send(()).unwrap();
        ended.send(access(other)).unwrap();
    });
    has_started.recv().unwrap();
    thread::yield_now();
    assert!(has_ended.try_recv().is_err(), "host access went ahead of work in flight");
    bench.sim.release();
    let seen = has_ended.recv().unwrap();
    thread.join().unwrap();
    (seen, buffer.to_vec().unwrap()[0])
}

#[test]
fn host_access_waits_for_the_writer() {
    assert_eq!(while_held(|buffer| buffer.to_vec().unwrap()), (vec![42], 42));
    assert_eq!(while_held(|buffer| buffer.map().unwrap().to_vec()), (vec![42], 42));
    assert_eq!(while_held(|mut buffer| buffer.map_mut().map(|mut map| map[0] += 1).unwrap()), ((), 43));
    assert_eq!(while_held(|mut buffer| buffer.write(&[7]).unwrap()), ((), 7));
    assert_eq!(while_held(|mut buffer| buffer.fill(8).unwrap()), ((), 8));
    assert_eq!(while_held(|buffer| buffer.slice(0..1).unwrap().to_vec().unwrap()), (vec![42], 42));
}

#[test]
fn reading_does_not_wait_for_readers() {
    let bench = Bench::new();
    let buffer = bench.device.buffer_with_data(&[5u32]).unwrap();
    let kernel = bench.look();
    bench.sim.hold();
    let done = bench.launch(&kernel, (&buffer,)).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [5]);
    assert_eq!(*buffer.map().unwrap(), [5]);
    assert!(!done.is_done());
    bench.sim.release();
    done.wait().unwrap();
}

#[test]
fn writers_of_several_streams_are_waited_for() {
    let bench = Bench::new();
    let mut buffer = bench.device.buffer::<u32>(2).unwrap();
    let other = bench.device.stream().unwrap();
    bench.sim.hold();
    let all = [
        bench.stream.fill(buffer.slice_mut(0..1).unwrap(), 3).unwrap(),
        other.fill(buffer.slice_mut(1..2).unwrap(), 4).unwrap(),
    ];
    // The second stream's last submission is cancelled; the access must still wait for the work before it.
    assert!(other.fill(&mut buffer, 9).unwrap().cancel());
    let reader = thread::spawn({
        let buffer = buffer.clone();
        move || buffer.to_vec()
    });
    bench.sim.release();
    assert_eq!(reader.join().unwrap().unwrap(), [3, 4]);
    assert!(all.iter().all(|done| done.is_done()));
}

#[test]
fn a_map_keeps_writers_away() {
    let bench = Bench::new();
    let mut buffer = bench.device.buffer_with_data(&[1u32, 2]).unwrap();
    let mut clone = buffer.clone();
    let (increment, look) = (bench.increment(), bench.look());
    let map = buffer.map().unwrap();
    assert_eq!(
        invalid(bench.launch(&increment, (&mut clone,))),
        "kernel `increment`, argument 0 `data` (device uint*): the buffer is mapped for reading and would be written; \
         drop the map first"
    );
    let end = "the buffer is mapped for reading and would be written; drop the map first";
    assert_eq!(invalid(clone.write(&[0, 0])), format!("write: {end}"));
    assert_eq!(invalid(clone.fill(0)), format!("fill: {end}"));
    assert_eq!(invalid(clone.map_mut().map(drop)), format!("map_mut: {end}"));
    assert_eq!(invalid(bench.stream.fill(&mut clone, 0)), format!("fill: the buffer: {end}"));
    let source = bench.device.buffer::<u32>(2).unwrap();
    assert_eq!(invalid(bench.stream.copy(&source, &mut clone)), format!("copy: the target: {end}"));
    // Reads are allowed.
    let second = clone.map().unwrap();
    bench.launch(&look, (&clone,)).unwrap().wait().unwrap();
    assert_eq!(clone.to_vec().unwrap(), [1, 2]);
    assert_eq!((&*map, &*second), (&[1, 2][..], &[1, 2][..]));
    drop(map);
    invalid(bench.launch(&increment, (&mut clone.clone(),)));
    drop(second);
    bench.launch(&increment, (&mut clone,)).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [2, 2]);
    buffer.write(&[0, 0]).unwrap();
}

#[test]
fn a_mutable_map_keeps_everybody_away() {
    let bench = Bench::new();
    let mut buffer = bench.device.buffer_with_data(&[1u32, 2]).unwrap();
    let mut clone = buffer.clone();
    let look = bench.look();
    let mut map = buffer.map_mut().unwrap();
    map[1] = 5;
    let end = "the buffer is mapped for writing; drop the map first";
    assert_eq!(
        invalid(bench.launch(&look, (&clone,))),
        format!("kernel `look`, argument 0 `data` (device const uint*): {end}")
    );
    assert_eq!(invalid(clone.to_vec()), format!("read: {end}"));
    assert_eq!(invalid(clone.map().map(drop)), format!("map: {end}"));
    assert_eq!(invalid(clone.map_mut().map(drop)), format!("map_mut: {end}"));
    assert_eq!(invalid(clone.write(&[0, 0])), format!("write: {end}"));
    let mut target = bench.device.buffer::<u32>(2).unwrap();
    assert_eq!(invalid(bench.stream.copy(&clone, &mut target)), format!("copy: the source: {end}"));
    assert!(bench.sim.commands().is_empty());
    drop(map);
    bench.launch(&look, (&clone,)).unwrap();
    assert_eq!(clone.to_vec().unwrap(), [1, 5]);
}

#[test]
fn failed_writers_leave_nothing_to_read() {
    let bench = Bench::new();
    let mut buffer = bench.device.buffer_with_data(&[1u32, 2]).unwrap();
    let (fail, look, increment) = (bench.fail(), bench.look(), bench.increment());
    bench.launch(&fail, (&mut buffer,)).unwrap();
    assert_poisoned(buffer.to_vec());
    assert_poisoned(buffer.map().map(drop));
    assert_poisoned(buffer.map_mut().map(drop));
    // A launch that reads the buffer does not run, on any stream, and its output cannot be read either.
    let other = bench.device.stream().unwrap();
    let mut copy = bench.device.buffer::<u32>(2).unwrap();
    let commands = bench.sim.commands().len();
    assert_poisoned(support::launch(&look, &other, elinvar::Grid::threads(1), (&buffer,)).unwrap().wait());
    assert_poisoned(other.copy(&buffer, &mut copy).unwrap().wait());
    assert_poisoned(copy.to_vec());
    assert_eq!(bench.sim.commands().len(), commands);
    other.synchronize().unwrap();
    // Writing a part does not clear the poisoning; writing the whole buffer does.
    buffer.slice_mut(0..1).unwrap().write(&[0]).unwrap();
    assert_poisoned(buffer.to_vec());
    buffer.write(&[7, 8]).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [7, 8]);
    // So does work that may write the whole buffer and succeeds.
    assert_eq!(bench.stream.acknowledge().map(|e| e.to_string()), Some(fault().to_string()));
    bench.launch(&fail, (&mut buffer,)).unwrap();
    assert_poisoned(buffer.to_vec());
    assert!(bench.stream.acknowledge().is_some());
    bench.launch(&increment, (&mut buffer,)).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [8, 8]);
}

#[test]
fn a_batch_that_writes_before_it_reads_runs() {
    let bench = Bench::new();
    let mut buffer = bench.device.buffer::<u32>(1).unwrap();
    let mut copy = bench.device.buffer::<u32>(1).unwrap();
    let fail = bench.fail();
    bench.launch(&fail, (&mut buffer,)).unwrap();
    assert_poisoned(buffer.to_vec());
    bench.stream.acknowledge();
    let mut command_buffer = bench.stream.command_buffer();
    command_buffer.fill(&mut buffer, 6).unwrap();
    command_buffer.copy(&buffer, &mut copy).unwrap();
    command_buffer.submit().unwrap();
    assert_eq!(copy.to_vec().unwrap(), [6]);
}

#[test]
fn a_cancelled_writer_changes_nothing() {
    let bench = Bench::new();
    let mut buffer = bench.device.buffer_with_data(&[1u32]).unwrap();
    let increment = bench.increment();
    bench.sim.hold();
    let done = bench.launch(&increment, (&mut buffer,)).unwrap();
    assert!(done.cancel());
    assert!(matches!(done.wait(), Err(Error::Cancelled)));
    assert_eq!(buffer.to_vec().unwrap(), [1], "reading does not wait for cancelled work");
    bench.sim.release();
}
