//! Collectives on simulated networks: the data is that of the ring, and the times are those of the model.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use elinvar_collective::{Algorithm, LinkCost, Network, ring_on};
use elinvar_driver::{Collective, Member, Reduction, Scalar, Storage};

use crate::memory::{bytes, call, slice};

const REDUCTION: Reduction = Reduction::Sum;

fn value(rank: usize, i: usize) -> u32 {
    (rank as u32).wrapping_mul(2_654_435_761).wrapping_add((i as u32).wrapping_mul(40_503))
}

/// Runs a collective with `count` numbers in a part. Every element is compared. Returns the time of the last member.
fn run(network: &Arc<Network>, collective: Collective, size: usize, count: usize) -> f64 {
    let members = ring_on(size as u32, Some(network.clone())).unwrap();
    let clocks: Vec<_> = members.iter().map(|member| member.clock()).collect();
    std::thread::scope(|scope| {
        for (rank, mut member) in members.into_iter().enumerate() {
            scope.spawn(move || one(&mut member, collective, rank, size, count));
        }
    });
    clocks.iter().map(|clock| f64::from_bits(clock.load(Ordering::Relaxed))).fold(0.0, f64::max)
}

fn one(member: &mut dyn Member, collective: Collective, rank: usize, size: usize, count: usize) {
    let (of_source, of_target) = collective.parts(rank as u32, size as u32);
    let numbers: Vec<u32> = (0..count * of_source as usize).map(|i| value(rank, i)).collect();
    let side = |parts: u32, values: &[u32]| {
        (parts > 0).then(|| slice(bytemuck::cast_slice(values), Storage::Shared))
    };
    let source = side(of_source, &numbers);
    let target = side(of_target, &vec![0; count * of_target as usize]);
    let call = call(collective, Scalar::U32, count, source, target);
    member.run(&call).unwrap();
    let Some(target) = &call.target else { return };
    let got: Vec<u32> =
        bytes(target).chunks_exact(4).map(|x| u32::from_ne_bytes(x.try_into().unwrap())).collect();
    let sum = |i: usize| (0..size).fold(0_u32, |sum, rank| sum.wrapping_add(value(rank, i)));
    for (i, got) in got.into_iter().enumerate() {
        let expected = match collective {
            Collective::Broadcast { root } => value(root as usize, i),
            Collective::Reduce { .. } | Collective::AllReduce { .. } => sum(i),
            Collective::ReduceScatter { .. } => sum(rank * count + i),
            Collective::AllGather | Collective::Gather { .. } => value(i / count, i % count),
            Collective::AllToAll => value(i / count, rank * count + i % count),
            Collective::Scatter { root } => value(root as usize, rank * count + i),
            _ => unreachable!(),
        };
        assert_eq!(got, expected, "{collective:?} of {size}, rank {rank}, element {i} of {count}");
    }
}

fn all(root: u32) -> [Collective; 9] {
    let reduction = REDUCTION;
    [
        Collective::Broadcast { root },
        Collective::Reduce { root, reduction },
        Collective::AllReduce { reduction },
        Collective::AllGather,
        Collective::ReduceScatter { reduction },
        Collective::AllToAll,
        Collective::Gather { root },
        Collective::Scatter { root },
        Collective::Barrier,
    ]
}

fn seconds(collective: Collective, size: usize, count: usize, link: LinkCost, reduction: f64) -> f64 {
    let bytes = if collective == Collective::Barrier { 0 } else { 4 * count };
    let algorithm = Algorithm::of(collective, size as u32, bytes);
    algorithm.seconds(collective, size as u32, bytes, link, reduction).unwrap()
}

/// With the same links everywhere, and parts of equal length, the simulated time is the predicted one.
#[test]
fn simulated_times_are_the_models() {
    for (bandwidth, latency, reduction) in [(25e9, 5e-6, f64::INFINITY), (1e9, 1e-6, 4e9), (8e9, 2e-5, 2e9)] {
        let link = LinkCost { latency, bandwidth };
        let text = format!("link * * {bandwidth} {latency}\nreduce {reduction}");
        let network = Arc::new(Network::parse(&text).unwrap());
        for size in [2, 4, 8] {
            for count in [16, 65_536] {
                for collective in all(size as u32 / 2) {
                    let simulated = run(&network, collective, size, count);
                    let expected = seconds(collective, size, count, link, reduction);
                    assert!(
                        (simulated - expected).abs() <= 1e-9 * expected,
                        "{collective:?} of {size}, {count} numbers: {simulated}, predicted {expected}"
                    );
                }
            }
        }
    }
}

/// For other numbers of members and odd lengths, the prediction is not far off.
#[test]
fn predictions_hold_for_odd_sizes() {
    let (bandwidth, latency, reduction) = (10e9, 3e-6, 50e9);
    let link = LinkCost { latency, bandwidth };
    let text = format!("link * * {bandwidth} {latency}\nreduce {reduction}");
    let network = Arc::new(Network::parse(&text).unwrap());
    for size in [3, 5, 7] {
        for count in [1, 333, 40_009] {
            for collective in all(0) {
                let simulated = run(&network, collective, size, count);
                let ratio = simulated / seconds(collective, size, count, link, reduction);
                assert!((0.7..1.1).contains(&ratio), "{collective:?} of {size}, {count} numbers: {ratio}");
            }
        }
    }
}

/// 64 members, in eight groups with fast links: the result is that of the ring, and lies between the times on only fast and only slow links.
#[test]
fn sixty_four_members_on_two_levels() {
    let (fast, slow) =
        (LinkCost { latency: 1e-6, bandwidth: 400e9 }, LinkCost { latency: 5e-6, bandwidth: 25e9 });
    let network = Arc::new(Network::parse("link * * 25e9 5e-6\ngroup 8 400e9 1e-6").unwrap());
    for count in [7, 5003] {
        for collective in all(37) {
            let simulated = run(&network, collective, 64, count);
            let [least, most] = [fast, slow].map(|link| seconds(collective, 64, count, link, f64::INFINITY));
            assert!(
                (0.999 * least..1.01 * most).contains(&simulated),
                "{collective:?}, {count} numbers: {simulated} of {least} to {most}"
            );
        }
    }
}

/// The prediction of each link's cost is the simulated time also where links differ: groups, single links, and odd numbers of members.
#[test]
fn predictions_follow_each_link() {
    let grouped = "link * * 25e9 5e-6\ngroup 8 400e9 1e-6\nreduce 90e9";
    let odd = "link * * 10e9 3e-6\ngroup 3 80e9 5e-7\nlink 0 1 1e9 9e-6\nlink 4 2 2e9 1e-5\nreduce 6e9";
    for (text, size) in [(grouped, 64), (grouped, 12), (odd, 5), (odd, 7), (odd, 8)] {
        let network = Arc::new(Network::parse(text).unwrap());
        // Parts of an all-reduce have equal lengths. Large data takes long with many members.
        for count in [size, if size < 16 { 2000 * size } else { 20 * size }] {
            for root in if size < 16 { vec![0, size as u32 / 2 + 1] } else { vec![37] } {
                for collective in all(root) {
                    let bytes = if collective == Collective::Barrier { 0 } else { 4 * count };
                    let algorithm = Algorithm::of(collective, size as u32, bytes);
                    let expected = algorithm.seconds_on(collective, size as u32, bytes, &network).unwrap();
                    let simulated = run(&network, collective, size, count);
                    assert!(
                        (simulated - expected).abs() <= 1e-9 * expected,
                        "{collective:?} of {size} by {algorithm:?}, {count} numbers: {simulated}, predicted {expected}"
                    );
                }
            }
        }
    }
}

/// Simulated times do not depend on how the threads are scheduled.
#[test]
fn simulations_are_reproducible() {
    let network = Arc::new(Network::parse("link * * 3e9 2e-6\ngroup 3 9e9 1e-6\nreduce 5e9").unwrap());
    for collective in all(1) {
        let times: Vec<f64> = (0..5).map(|_| run(&network, collective, 6, 5003)).collect();
        assert!(times.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits()), "{times:?}");
    }
}
