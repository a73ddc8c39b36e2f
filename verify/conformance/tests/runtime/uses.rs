//! Memory that a kernel accesses through an address is tracked like an argument's.

use crate::support;

use std::thread;

use elinvar::driver::{Access, Command, Error, Scalar};
use elinvar::{Arg, Buffer, Device, Kernel, Storage};
use elinvar_conformance::sim::Sim;
use support::{Bench, assert_poisoned, constant, fault, invalid, signature};

/// `through(constant ulong& address)`: adds one to the first uint at the address.
fn through(bench: &Bench) -> Kernel {
    bench.declare(signature("through", vec![constant("address", Scalar::U64)]), |launch| {
        let address: u64 = bytemuck::pod_read_unaligned(&launch.bytes(0)?);
        let first: u32 = bytemuck::pod_read_unaligned(&launch.bytes_at(address, 4)?);
        launch.write_at(address, &(first + 1).to_ne_bytes())
    })
}

/// `peek(constant ulong& address)`: reads the first uint at the address.
fn peek(bench: &Bench) -> Kernel {
    bench.declare(signature("peek", vec![constant("address", Scalar::U64)]), |launch| {
        let address: u64 = bytemuck::pod_read_unaligned(&launch.bytes(0)?);
        launch.bytes_at(address, 4).map(drop)
    })
}

fn address(buffer: &Buffer<u32>) -> u64 {
    buffer.gpu_address().unwrap()
}

#[test]
fn the_command_names_what_is_used() {
    let bench = Bench::new();
    let (kernel, mut data) = (through(&bench), bench.device.buffer_with_data(&[1u32, 2, 3, 4]).unwrap());
    let other = bench.device.buffer::<u32>(8).unwrap();
    let at = data.slice(2..4).unwrap().gpu_address().unwrap();
    assert_eq!(at, address(&data) + 8);
    let part = Arg::use_resource(data.slice_mut(2..4).unwrap());
    bench.launch(&kernel, (Arg::use_resource(&other), at, part)).unwrap().wait().unwrap();
    assert_eq!(data.to_vec().unwrap(), [1, 2, 4, 4]);
    let Some(Command::Dispatch(dispatch)) = bench.sim.commands().pop() else { panic!("no dispatch") };
    assert_eq!(dispatch.bindings.len(), 1);
    let uses: Vec<_> = dispatch.uses.iter().map(|u| (u.slice.offset, u.slice.len, u.access)).collect();
    assert_eq!(uses, [(0, 32, Access::Read), (8, 8, Access::ReadWrite)]);
}

#[test]
fn only_what_is_named_is_reached() {
    let bench = Bench::new();
    let (kernel, mut data) = (through(&bench), bench.device.buffer::<u32>(4).unwrap());
    let at = address(&data);
    invalid(bench.launch(&kernel, (at,)).unwrap().wait());
    bench.stream.acknowledge();
    invalid(bench.launch(&kernel, (at, Arg::use_resource(&data))).unwrap().wait());
    bench.stream.acknowledge();
    bench.launch(&kernel, (at, Arg::use_resource(&mut data))).unwrap().wait().unwrap();
    assert_eq!(data.to_vec().unwrap(), [1, 0, 0, 0]);
}

#[test]
fn host_access_waits_and_the_memory_stays() {
    let bench = Bench::new();
    let (kernel, mut data) = (through(&bench), bench.device.buffer_with_data(&[7u32]).unwrap());
    bench.sim.hold();
    let at = address(&data);
    for _ in 0..3 {
        bench.launch(&kernel, (at, Arg::use_resource(&mut data))).unwrap();
    }
    let reader = thread::spawn(move || data.to_vec());
    let dropped = bench.device.buffer_with_data(&[9u32]).unwrap();
    let last = bench.launch(&peek(&bench), (address(&dropped), Arg::use_resource(&dropped))).unwrap();
    drop(dropped);
    bench.sim.release();
    assert_eq!(reader.join().unwrap().unwrap(), [10]);
    last.wait().unwrap();
}

#[test]
fn maps_keep_users_away() {
    let bench = Bench::new();
    let (through, peek) = (through(&bench), peek(&bench));
    let mut data = bench.device.buffer_with_data(&[7u32]).unwrap();
    let (mut same, at) = (data.clone(), address(&data));
    let map = data.map().unwrap();
    assert_eq!(
        invalid(bench.launch(&through, (at, Arg::use_resource(&mut same)))),
        "kernel `through`, resource 0 (used through its address): the buffer is mapped for reading and would be \
         written; drop the map first"
    );
    bench.launch(&peek, (at, Arg::use_resource(&same))).unwrap().wait().unwrap();
    drop(map);
    let map = data.map_mut().unwrap();
    assert_eq!(
        invalid(bench.launch(&peek, (at, Arg::use_resource(&same)))),
        "kernel `peek`, resource 0 (used through its address): the buffer is mapped for writing; drop the map first"
    );
    drop(map);
    bench.launch(&through, (at, Arg::use_resource(&mut same))).unwrap();
    assert_eq!(data.to_vec().unwrap(), [8]);
}

#[test]
fn failures_reach_what_is_used() {
    let bench = Bench::new();
    let fails = bench.declare(signature("fails", vec![]), |_| Err(fault()));
    let mut data = bench.device.buffer_with_data(&[7u32]).unwrap();
    bench.launch(&fails, (Arg::use_resource(&mut data),)).unwrap().wait().unwrap_err();
    bench.stream.acknowledge();
    assert_poisoned(data.to_vec());
    assert_poisoned(bench.launch(&peek(&bench), (address(&data), Arg::use_resource(&data))).unwrap().wait());
    data.write(&[1]).unwrap();
    bench.launch(&peek(&bench), (address(&data), Arg::use_resource(&data))).unwrap().wait().unwrap();
}

#[test]
fn what_cannot_be_used() {
    let bench = Bench::new();
    let kernel = peek(&bench);
    let place = "kernel `peek`, resource 0 (used through its address)";
    assert_eq!(
        invalid(bench.launch(&kernel, (1u64, Arg::use_resource(3u32)))),
        format!("{place}: not a buffer")
    );
    let foreign = Device::new(Sim::named("other")).buffer::<u32>(1).unwrap();
    assert_eq!(
        invalid(bench.launch(&kernel, (1u64, Arg::use_resource(&foreign)))),
        format!("{place}: the buffer is of device `other`, used with device `sim`")
    );
    // A use is not an argument of the kernel.
    let data = bench.device.buffer::<u64>(1).unwrap();
    assert_eq!(
        invalid(bench.launch(&kernel, (Arg::use_resource(&data),))),
        "kernel `peek` takes 1 argument (constant ulong& address), 0 given"
    );
    assert!(bench.sim.commands().is_empty());
}

#[test]
fn devices_without_addresses_say_so() {
    let bench = Bench::new();
    let kernel = peek(&bench);
    bench.sim.without_addresses();
    let data = bench.device.buffer_in::<u32>(1, Storage::Private).unwrap();
    let unsupported = |error: Error| match error {
        Error::Unsupported(why) => assert_eq!(why, "device `sim` has no device addresses for buffers"),
        other => panic!("{other}"),
    };
    unsupported(data.gpu_address().unwrap_err());
    unsupported(bench.launch(&kernel, (1u64, Arg::use_resource(&data))).unwrap_err());
}
