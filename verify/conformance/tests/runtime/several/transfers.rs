//! Copies between devices on streams: staged routes in chunks, statistics, and failures of either side, on simulated devices.

use elinvar::driver::Driver as _;
use elinvar::{Buffer, Device, Error, Route, Stream};
use elinvar_conformance::sim::{Op, Sim};

use crate::support::{assert_poisoned, fault, invalid};

const CHUNK: usize = 4 << 20;

/// Bytes that repeat with a prime period, so that no two chunks are equal.
fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..65_521).map(|i| (i * 7 + i / 251 + seed) as u8).collect();
    let mut all = period.repeat(bytes / period.len() + 1);
    all.truncate(bytes);
    all
}

/// Two devices that reach each other by a route.
struct Pair {
    sims: [std::sync::Arc<Sim>; 2],
    devices: [Device; 2],
    route: Route,
}

impl Pair {
    /// Simulated devices cannot use each other's memory in place.
    fn new() -> Self {
        let sims = [Sim::new(), Sim::discrete()];
        let devices = [Device::new(sims[0].clone()), Device::new(sims[1].clone())];
        Self { sims, devices, route: Route::Host }
    }

    fn source(&self, data: &[u8]) -> Buffer<u8> {
        self.devices[0].buffer_with_data(data).unwrap()
    }

    fn target(&self, bytes: usize) -> Buffer<u8> {
        self.devices[1].buffer(bytes).unwrap()
    }

    /// A stream of either device.
    fn streams(&self) -> [Stream; 2] {
        [self.devices[0].stream().unwrap(), self.devices[1].stream().unwrap()]
    }

    fn counts(&self) -> (u64, u64, u64) {
        let stats = self.devices[0].transfers_to(&self.devices[1]);
        let [row] = &stats[..] else { panic!("{stats:?}") };
        assert_eq!(row.route, self.route);
        (row.copies, row.failed, row.pending)
    }
}

#[test]
fn chunks_arrive_in_order_by_either_stream() {
    let pair = Pair::new();
    assert_eq!(pair.devices[0].route_to(&pair.devices[1]), Some(pair.route));
    let (mut bytes, mut copies) = (0, 0);
    for size in [0, 1, CHUNK, CHUNK + 1, 5 * CHUNK + 77] {
        for stream in pair.streams() {
            let data = pattern(size, copies);
            let (source, mut target) = (pair.source(&data), pair.target(size));
            stream.copy(&source, &mut target).unwrap().wait().unwrap();
            assert!(target.to_vec().unwrap() == data, "{size} bytes by {:?}", pair.route);
            (bytes, copies) = (bytes + size as u64, copies + usize::from(size > 0));
        }
    }
    let stats = pair.devices[0].transfers_to(&pair.devices[1]);
    let [row] = &stats[..] else { panic!("{stats:?}") };
    assert_eq!((row.route, row.copies as usize, row.bytes, row.failed), (pair.route, copies, bytes, 0));
    assert!(row.bandwidth().is_some_and(|rate| rate > 0.0));
    assert!(pair.devices[1].transfers_to(&pair.devices[0]).is_empty());
}

/// Nothing blocks while the devices are held, and all is in order when they go on.
#[test]
fn copies_wait_for_what_is_before_them() {
    let pair = Pair::new();
    for stream in pair.streams() {
        pair.sims.iter().for_each(|sim| sim.hold());
        let size = 2 * CHUNK + 5;
        let (mut source, mut target) = (pair.source(&pattern(size, 1)), pair.target(size));
        let ours = stream.device() == &pair.devices[0];
        if ours {
            stream.fill(&mut source, 3).unwrap();
        }
        let done = stream.copy(&source, &mut target).unwrap();
        if !ours {
            stream.fill(target.slice_mut(7..9).unwrap(), 4).unwrap();
        }
        assert!(!done.is_done());
        assert_eq!(pair.counts().2, 1);
        pair.sims.iter().for_each(|sim| sim.release());
        stream.synchronize().unwrap();
        let mut expected = if ours { vec![3; size] } else { pattern(size, 1) };
        if !ours {
            expected[7..9].fill(4);
        }
        assert!(target.to_vec().unwrap() == expected);
    }
}

/// A fault of either device fails the copy and the stream; all other streams go on, and after `acknowledge` so does this one.
#[test]
fn a_failure_of_one_side_leaves_the_other_usable() {
    let pair = Pair::new();
    for (at, failing) in pair.sims.iter().enumerate() {
        for stream in pair.streams() {
            let size = 5 * CHUNK + 1;
            let data = pattern(size, at);
            let (source, mut target) = (pair.source(&data), pair.target(size));
            let before = pair.devices[0].transfers_to(&pair.devices[1]).first().map_or(0, |row| row.failed);
            failing.fail_next(Op::Execute, fault());
            let error = stream.copy(&source, &mut target).unwrap().wait().unwrap_err();
            let cause = match &error {
                Error::Poisoned(cause) => (**cause).clone(),
                error => error.clone(),
            };
            assert!(cause.to_string().contains("index 7"), "{error}");
            assert_eq!(pair.counts().1, before + 1);
            // The target was to be written.
            assert_poisoned(target.to_vec());
            // Both devices work, on other streams and, once acknowledged, on this one.
            for stream in pair.streams().iter().chain([&stream]) {
                stream.acknowledge();
                stream.copy(&source, &mut target).unwrap().wait().unwrap();
                assert!(target.to_vec().unwrap() == data);
            }
        }
    }
}

/// The companion of a copy cannot be submitted: the copy fails, and nothing waits for it forever.
#[test]
fn a_refused_companion_fails_the_copy() {
    let pair = Pair::new();
    for (stream, other) in pair.streams().iter().zip([&pair.sims[1], &pair.sims[0]]) {
        let data = pattern(4 * CHUNK, 2);
        let (source, mut target) = (pair.source(&data), pair.target(data.len()));
        other.fail_next(Op::Submit, Error::Environment("refused by the test".into()));
        let done = stream.copy(&source, &mut target).unwrap();
        assert!(
            matches!(done.wait(), Err(Error::Poisoned(cause)) if cause.to_string().contains("refused by the test"))
        );
        stream.acknowledge();
        stream.copy(&source, &mut target).unwrap().wait().unwrap();
        assert!(target.to_vec().unwrap() == data);
    }
}

/// A lost device ends its copies; the other one works.
#[test]
fn a_lost_device_ends_its_copies() {
    let pair = Pair::new();
    let data = pattern(3 * CHUNK, 0);
    let (source, mut target) = (pair.source(&data), pair.target(data.len()));
    let [ours, _] = pair.streams();
    pair.sims[1].hold();
    let done = ours.copy(&source, &mut target).unwrap();
    pair.sims[1].lose("pulled out");
    pair.sims[1].release();
    let error = done.wait().unwrap_err();
    assert!(error.to_string().contains("pulled out"), "{error}");
    ours.acknowledge();
    let mut own = pair.devices[0].buffer::<u8>(data.len()).unwrap();
    ours.copy(&source, &mut own).unwrap().wait().unwrap();
    assert!(own.to_vec().unwrap() == data);
}

#[test]
fn copies_that_no_device_of_the_stream_has_are_refused() {
    let [pair, other] = [Pair::new(), Pair::new()];
    let source = pair.source(&[1, 2]);
    let [stream, _] = other.streams();
    assert!(invalid(stream.copy(&source, &mut pair.target(2))).contains("used with device"));
    let error = stream.copy(&source, &mut pair.target(3)).unwrap_err();
    assert!(error.to_string().contains("2 elements, the target 3"), "{error}");
}

/// Simulated devices have no peer access: a launch with a buffer of the other one is refused.
#[test]
fn peer_access_is_unsupported_where_it_does_not_exist() {
    let pair = Pair::new();
    let error = pair.devices[0].peer_access(&pair.devices[1]).unwrap_err();
    assert!(
        matches!(&error, Error::Unsupported(text) if text.contains("cannot access memory of device")),
        "{error}"
    );
    pair.devices[0].peer_access(&pair.devices[0]).unwrap();
}

/// Devices of two CPU drivers use staging memory of each other in place.
#[test]
fn chunks_pass_through_memory_that_both_devices_use() {
    let [ours, theirs] = [1, 2].map(|threads| {
        Device::new(elinvar_driver_cpu::CpuDriver::with_threads(threads).devices().unwrap().remove(0))
    });
    assert_eq!(ours.route_to(&theirs), Some(Route::HostInPlace));
    for (seed, stream) in [ours.stream().unwrap(), theirs.stream().unwrap()].iter().enumerate() {
        let data = pattern(6 * CHUNK + 3, seed);
        let source = ours.buffer_with_data(&data).unwrap();
        let mut target = theirs.buffer(data.len()).unwrap();
        stream.copy(&source, &mut target).unwrap();
        assert!(target.to_vec().unwrap() == data);
    }
    let stats = ours.transfers_to(&theirs);
    assert_eq!((stats[0].route, stats[0].copies, stats.len()), (Route::HostInPlace, 2, 1));
}
