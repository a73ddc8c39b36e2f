//! What the host does with memory, events and streams of a device of the CPU driver, without a kernel.

use std::time::Duration;

use elinvar_driver::Driver as _;

use crate::{Device, Graph};

fn device() -> Device {
    Device::new(elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0))
}

#[test]
fn slices_know_whether_they_are_empty() {
    let mut buffer = device().buffer::<u32>(4).unwrap();
    for (range, is_empty) in [(0..4, false), (3..4, false), (2..2, true), (4..4, true)] {
        assert_eq!(buffer.slice(range.clone()).unwrap().is_empty(), is_empty, "{range:?}");
        assert_eq!(buffer.slice_mut(range.clone()).unwrap().is_empty(), is_empty, "{range:?}");
    }
}

#[test]
fn a_fill_of_any_length_sets_all_and_no_more() {
    for len in [1, 3, 1000, 4096, 100_001] {
        let mut buffer = device().buffer::<[u8; 3]>(len + 2).unwrap();
        buffer.slice_mut(1..len + 1).unwrap().fill([1, 2, 3]).unwrap();
        let all = buffer.to_vec().unwrap();
        assert!(all[1..=len].iter().all(|x| *x == [1, 2, 3]), "{len}");
        assert_eq!([all[0], all[len + 1]], [[0; 3]; 2], "{len}");
    }
}

#[test]
fn a_map_that_is_dropped_keeps_nobody_out() {
    let mut buffer = device().buffer_with_data(&[1_u32, 2, 3]).unwrap();
    assert_eq!(buffer.map().unwrap()[..], [1, 2, 3]);
    buffer.write(&[4, 5, 6]).unwrap();
    buffer.map_mut().unwrap()[1] = 7;
    assert_eq!(buffer.to_vec().unwrap(), [4, 7, 6]);
    buffer.fill(8).unwrap();
    assert_eq!(buffer.map().unwrap()[..], [8; 3]);
}

#[test]
fn an_event_is_waited_for_a_while() {
    let event = device().event().unwrap();
    event.signal(3);
    assert!(event.wait_timeout(3, Duration::ZERO).unwrap());
    assert!(!event.wait_timeout(4, Duration::from_millis(1)).unwrap());
}

#[test]
fn a_group_of_streams_waits_for_all_of_them() {
    let device = device();
    let (group, event) = (device.stream_group(), device.event().unwrap());
    let stream = group.next().unwrap();
    stream.wait_for(&event, 1).unwrap();
    let mut buffer = device.buffer::<u32>(1).unwrap();
    let done = stream.fill(&mut buffer, 5).unwrap();
    std::thread::scope(|scope| {
        // It may come before or after the wait begins.
        scope.spawn(|| event.signal(1));
        group.synchronize().unwrap();
        assert!(done.is_done());
    });
}

#[test]
fn what_has_no_events_is_recorded() {
    let device = device();
    let (stream, event) = (device.stream().unwrap(), device.event().unwrap());
    let mut buffer = device.buffer::<u32>(3).unwrap();
    let mut command_buffer = stream.command_buffer();
    command_buffer.fill(&mut buffer, 7_u32).unwrap();
    let recording = command_buffer.record().unwrap();
    for _ in 0..2 {
        buffer.fill(0).unwrap();
        // SAFETY: a fill reads nothing.
        #[allow(unsafe_code)]
        unsafe { stream.replay(&recording) }.unwrap().wait().unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [7; 3]);
    }
    let mut command_buffer = stream.command_buffer();
    command_buffer.signal(&event, 1);
    assert!(command_buffer.record().is_err());
}

/// One comes after the other by its use of memory, which an order that was asked for cannot turn round.
#[test]
fn an_order_against_the_use_of_memory_is_refused() {
    let device = device();
    let [mut a, mut b, mut c] = [(); 3].map(|()| device.buffer::<u32>(3).unwrap());
    let mut graph = Graph::new();
    let writes = graph.fill(&mut a, 1_u32).unwrap();
    let reads = graph.copy(&a, &mut b).unwrap();
    let beside = graph.fill(&mut c, 2_u32).unwrap();
    assert!(graph.after(writes, &[reads]).is_err());
    graph.after(writes, &[beside]).unwrap();
    assert!(graph.after(beside, &[reads]).is_err(), "that comes after `writes`, which comes after it");
    graph.plan().unwrap();
}
