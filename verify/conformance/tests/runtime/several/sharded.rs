//! Arrays over several devices, on simulated ones: shares by measured speed, and each kind of failure names its shard.

use elinvar::driver::{Access, Error, Scalar};
use elinvar::{Device, DeviceGroup, Grid, Kernel, Layout, Sharded};
use elinvar_conformance::sim::Sim;

use crate::support::{Bench, fault, invalid, pointer, signature};

/// Devices whose kernel takes these times for a thread, and adds one to each element.
struct Unlike {
    benches: Vec<Bench>,
    kernels: Vec<Kernel>,
    group: DeviceGroup,
}

impl Unlike {
    fn new(times: &[u64]) -> Self {
        let benches: Vec<Bench> = times.iter().map(|_| Bench::on(Sim::new())).collect();
        let kernel = |(bench, time): (&Bench, &u64)| {
            let (data, time) = (pointer("data", Scalar::U32, Access::ReadWrite), *time);
            bench.declare(signature("add", vec![data]), move |launch| {
                launch.take_ns(time * u64::from(launch.threads().x));
                let mut numbers = launch.bytes(0)?;
                for number in numbers.chunks_exact_mut(4) {
                    let next =
                        u32::from_ne_bytes([number[0], number[1], number[2], number[3]]).wrapping_add(1);
                    number.copy_from_slice(&next.to_ne_bytes());
                }
                launch.write(0, &numbers)
            })
        };
        let kernels = benches.iter().zip(times).map(kernel).collect();
        let devices: Vec<Device> = benches.iter().map(|bench| bench.device.clone()).collect();
        Self { benches, kernels, group: DeviceGroup::new(&devices).unwrap() }
    }

    fn add(&self, array: &mut Sharded<u32>) -> Result<(), Error> {
        self.group.run(|member, commands| {
            let grid = Grid::threads(array.rows(member));
            #[allow(unsafe_code)] // a launch
            // SAFETY: the kernel accesses its buffer only.
            unsafe {
                commands.launch(&self.kernels[member], grid, (array.shard_mut(member),))
            }
        })
    }
}

#[test]
fn shares_follow_the_measured_speed() {
    const N: usize = 6000;
    let unlike = Unlike::new(&[1000, 3000, 1500]);
    let data: Vec<u32> = (0..N as u32).collect();
    let mut array = unlike.group.sharded_with_data(&data, Layout::block()).unwrap();
    assert_eq!([0, 1, 2].map(|member| array.rows(member)), [2000; 3]);
    for _ in 0..2 {
        unlike.add(&mut array).unwrap();
    }
    // Speeds of 3, 1 and 2.
    let shares = unlike.group.rebalance().unwrap();
    for (share, expected) in shares.iter().zip([0.5, 1.0 / 6.0, 1.0 / 3.0]) {
        assert!((share - expected).abs() < 0.01, "{shares:?}");
    }
    array.redistribute().unwrap();
    let rows = [0, 1, 2].map(|member| array.rows(member));
    for (rows, expected) in rows.into_iter().zip([3000_usize, 1000, 2000]) {
        assert!(rows.abs_diff(expected) < 60, "{rows}, expected {expected}");
    }
    // Balanced now: the shares stay.
    unlike.add(&mut array).unwrap();
    let again = unlike.group.rebalance().unwrap();
    assert!(
        shares.iter().zip(&again).all(|(one, other)| (one - other).abs() < 0.01),
        "{shares:?}, {again:?}"
    );
    assert_eq!(array.to_vec().unwrap(), (3..N as u32 + 3).collect::<Vec<_>>());
    // One that has not computed keeps its share.
    unlike.group.set_shares(&[1.0, 0.0, 1.0]).unwrap();
    array.redistribute().unwrap();
    assert_eq!(array.rows(1), 0);
    unlike.add(&mut array).unwrap();
    let shares = unlike.group.rebalance().unwrap();
    assert!(shares[1].abs() < 1e-12 && (shares[0] - 0.6).abs() < 0.01, "{shares:?}");
    assert_eq!(array.to_vec().unwrap(), (4..N as u32 + 4).collect::<Vec<_>>());
}

fn expect_shard<T: std::fmt::Debug>(result: Result<T, Error>, expected: usize, text: &str) {
    let Err(Error::ShardFailed { shard, cause, .. }) = result else { panic!("{result:?}") };
    assert_eq!(shard, expected, "{cause}");
    assert!(cause.to_string().contains(text), "{cause}");
}

#[test]
fn launches_copies_and_allocations_that_fail_name_their_shard() {
    const N: usize = 3000;
    for failing in 0..3 {
        let unlike = Unlike::new(&[1; 3]);
        let data: Vec<u32> = (0..N as u32).collect();
        let mut array = unlike.group.sharded_with_data(&data, Layout::block()).unwrap();
        let mut all = unlike.group.sharded::<u32>(N, Layout::replicated()).unwrap();
        // A launch. The copies that follow fail in consequence.
        unlike.benches[failing].sim.fail_launch("add", fault());
        unlike.add(&mut array).unwrap();
        all.copy_from(&array).unwrap();
        expect_shard(unlike.group.synchronize(), failing, &fault().to_string());
        expect_shard(all.to_vec(), failing, &fault().to_string());
        unlike.group.acknowledge().unwrap().unwrap();
        array.write(&data).unwrap();
        all.write(&vec![0; N]).unwrap();
        // It goes on.
        unlike.add(&mut array).unwrap();
        all.copy_from(&array).unwrap();
        assert_eq!(all.to_vec().unwrap(), (1..=N as u32).collect::<Vec<_>>());
        // A device that is lost.
        unlike.benches[failing].sim.lose("it fell off the bus");
        let lost = unlike.add(&mut array).and_then(|()| unlike.group.synchronize());
        expect_shard(lost, failing, "it fell off the bus");
        // An allocation.
        let unlike = Unlike::new(&[1; 3]);
        unlike.benches[failing].sim.limit_memory(1000);
        expect_shard(unlike.group.sharded::<u32>(N, Layout::block()).map(drop), failing, "out of memory");
    }
    let unlike = Unlike::new(&[1; 2]);
    assert!(invalid(unlike.group.set_shares(&[1.0, f64::NAN])).contains("NaN"));
}
