//! Every collective, type, reduction and size against references that are computed from all sources.

use elinvar_collective::{Ring, ring};
use elinvar_driver::{Collective, Member, Reduction, Scalar, Storage};
use half::{bf16, f16};

use crate::memory::{bytes, call, slice};

pub const TYPES: [Scalar; 11] = [
    Scalar::I8,
    Scalar::U8,
    Scalar::I16,
    Scalar::U16,
    Scalar::I32,
    Scalar::U32,
    Scalar::I64,
    Scalar::U64,
    Scalar::F16,
    Scalar::BF16,
    Scalar::F32,
];

/// Element `i` of the source of a rank. Small integers, so that floating-point results are exact in every order: products are of powers of two.
fn value(reduction: Option<Reduction>, rank: u32, i: usize) -> i64 {
    let mixed = (rank as usize * 7 + i * 13 + i / 11) % 17;
    match reduction {
        Some(Reduction::Product) => [1, 2, 4][mixed % 3],
        _ => mixed as i64 - 3,
    }
}

fn encode(element: Scalar, values: impl Iterator<Item = i64>) -> Vec<u8> {
    let one = |value: i64| match element {
        Scalar::Bool | Scalar::I8 | Scalar::U8 => vec![value as u8],
        Scalar::I16 | Scalar::U16 => (value as u16).to_ne_bytes().to_vec(),
        Scalar::I32 | Scalar::U32 => (value as u32).to_ne_bytes().to_vec(),
        Scalar::I64 | Scalar::U64 => value.to_ne_bytes().to_vec(),
        Scalar::F16 => f16::from_f32(value as f32).to_ne_bytes().to_vec(),
        Scalar::BF16 => bf16::from_f32(value as f32).to_ne_bytes().to_vec(),
        Scalar::F32 => (value as f32).to_ne_bytes().to_vec(),
    };
    values.flat_map(one).collect()
}

/// The number that an element has, which for unsigned types is not negative.
fn seen(element: Scalar, value: i64) -> i128 {
    match element {
        Scalar::Bool | Scalar::U8 => (value as u8).into(),
        Scalar::U16 => (value as u16).into(),
        Scalar::U32 => (value as u32).into(),
        Scalar::U64 => (value as u64).into(),
        _ => value.into(),
    }
}

/// The reduction of element `i` of all ranks, in arithmetic that does not round or overflow, and then that of the type.
fn reduced(element: Scalar, reduction: Reduction, size: u32, i: usize) -> i64 {
    let values = (0..size).map(|rank| seen(element, value(Some(reduction), rank, i)));
    let result = match reduction {
        Reduction::Sum => values.sum::<i128>(),
        Reduction::Product => values.product(),
        Reduction::Min => values.min().unwrap(),
        Reduction::Max => values.max().unwrap(),
    };
    result as i64
}

/// What the target of a rank must be.
fn expected(collective: Collective, element: Scalar, size: u32, rank: u32, count: usize) -> Vec<u8> {
    let reduction = collective.reduction();
    let part = |from: u32, part: u32| {
        encode(element, (0..count).map(move |i| value(reduction, from, part as usize * count + i)))
    };
    let sums = |begin: usize| {
        let reduction = reduction.unwrap();
        encode(element, (begin..begin + count).map(move |i| reduced(element, reduction, size, i)))
    };
    match collective {
        Collective::Broadcast { root } => part(root, 0),
        Collective::Reduce { .. } | Collective::AllReduce { .. } => sums(0),
        Collective::ReduceScatter { .. } => sums(rank as usize * count),
        Collective::AllGather | Collective::Gather { .. } => {
            (0..size).flat_map(|from| part(from, 0)).collect()
        }
        Collective::AllToAll => (0..size).flat_map(|from| part(from, rank)).collect(),
        Collective::Scatter { root } => part(root, rank),
        Collective::Receive { from } => part(from, 0),
        Collective::Send { .. } | Collective::Barrier => Vec::new(),
    }
}

/// Runs one collective on all members and compares all targets.
fn run(
    members: &mut [Ring],
    of: impl Fn(u32) -> Collective + Sync,
    element: Scalar,
    count: usize,
    storage: Storage,
) {
    std::thread::scope(|scope| {
        for member in members {
            let collective = of(member.rank());
            scope.spawn(move || one(member, collective, element, count, storage));
        }
    });
}

/// Runs one collective on one of the members and compares its target.
pub fn one(member: &mut dyn Member, collective: Collective, element: Scalar, count: usize, storage: Storage) {
    let (rank, size) = (member.rank(), member.size());
    let parts = collective.parts(rank, size);
    let source = (parts.0 > 0).then(|| {
        let values = (0..parts.0 as usize * count).map(|i| value(collective.reduction(), rank, i));
        slice(&encode(element, values), storage)
    });
    let blank = vec![0xa5; parts.1 as usize * count * element.size() as usize];
    let target = (parts.1 > 0).then(|| slice(&blank, storage));
    let call = call(collective, element, count, source, target);
    member.run(&call).unwrap_or_else(|error| panic!("rank {rank} of {size}: {call}: {error}"));
    if let Some(target) = &call.target {
        let (got, want) = (bytes(target), expected(collective, element, size, rank, count));
        let first = got.iter().zip(&want).position(|(got, want)| got != want);
        let differs = first.map(|at| (at, got[at], want[at]));
        assert!(
            got == want,
            "rank {rank} of {size}: {call}, {collective:?}: byte, got, expected: {differs:?}"
        );
    }
}

#[test]
fn every_reduction_of_every_type() {
    for size in [1, 2, 3, 4, 5] {
        let mut members = ring(size).unwrap();
        for element in TYPES {
            for reduction in Reduction::ALL {
                for count in [1, 2, 7, 1009] {
                    let root = (count as u32 * 3 + 1) % size;
                    run(
                        &mut members,
                        |_| Collective::AllReduce { reduction },
                        element,
                        count,
                        Storage::Shared,
                    );
                    run(
                        &mut members,
                        |_| Collective::Reduce { root, reduction },
                        element,
                        count,
                        Storage::Shared,
                    );
                    run(
                        &mut members,
                        |_| Collective::ReduceScatter { reduction },
                        element,
                        count,
                        Storage::Private,
                    );
                }
            }
        }
    }
}

#[test]
fn every_movement_of_every_type() {
    for size in [1, 2, 3, 4, 7] {
        let mut members = ring(size).unwrap();
        for element in TYPES {
            for count in [0, 1, 3, 1021] {
                let root = (count as u32 + 2) % size;
                for storage in [Storage::Shared, Storage::Private] {
                    run(&mut members, |_| Collective::Broadcast { root }, element, count, storage);
                    run(&mut members, |_| Collective::AllGather, element, count, storage);
                    run(&mut members, |_| Collective::AllToAll, element, count, storage);
                    run(&mut members, |_| Collective::Gather { root }, element, count, storage);
                    run(&mut members, |_| Collective::Scatter { root }, element, count, storage);
                }
                run(&mut members, |_| Collective::Barrier, element, 0, Storage::Shared);
            }
        }
    }
}

/// Data that does not fit in the channels.
#[test]
fn large_data_is_streamed() {
    let mut members = ring(3).unwrap();
    let count = (2 << 20) + 3;
    run(
        &mut members,
        |_| Collective::AllReduce { reduction: Reduction::Sum },
        Scalar::U8,
        count,
        Storage::Shared,
    );
    run(
        &mut members,
        |_| Collective::Reduce { root: 1, reduction: Reduction::Max },
        Scalar::I16,
        count / 2,
        Storage::Shared,
    );
    run(&mut members, |_| Collective::Broadcast { root: 2 }, Scalar::U8, count, Storage::Private);
    run(&mut members, |_| Collective::AllToAll, Scalar::U8, count, Storage::Shared);
    run(&mut members, |_| Collective::Gather { root: 0 }, Scalar::U8, count, Storage::Shared);
}

/// Pairs of members exchange data while the third one is in no call.
#[test]
fn transfers_between_two_members() {
    let mut members = ring(3).unwrap();
    for round in 0..20_usize {
        let (from, to) = (round as u32 % 3, (round as u32 + 1 + round as u32 / 3 % 2) % 3);
        let pair: Vec<u32> = vec![from, to];
        let of =
            |rank: u32| if rank == from { Collective::Send { to } } else { Collective::Receive { from } };
        let mut both: Vec<&mut Ring> =
            members.iter_mut().filter(|member| pair.contains(&member.rank())).collect();
        std::thread::scope(|scope| {
            for member in &mut both {
                scope.spawn(move || {
                    let (rank, count) = (member.rank(), round * 331);
                    let data = encode(Scalar::I32, (0..count).map(|i| value(None, from, i)));
                    let blank = slice(&vec![0xa5; data.len()], Storage::Shared);
                    let (source, target) = match rank == from {
                        true => (Some(slice(&data, Storage::Shared)), None),
                        false => (None, Some(blank)),
                    };
                    let call = call(of(rank), Scalar::I32, count, source, target);
                    member.run(&call).unwrap();
                    assert!(call.target.is_none_or(|target| bytes(&target) == data));
                });
            }
        });
    }
    run(&mut members, |_| Collective::Barrier, Scalar::U8, 0, Storage::Shared);
}

/// Source and target may be the same memory.
#[test]
fn in_place() {
    let (size, count) = (4, 1001);
    let members = ring(size).unwrap();
    std::thread::scope(|scope| {
        for mut member in members {
            scope.spawn(move || {
                let rank = member.rank();
                for (collective, storage) in [
                    (Collective::AllReduce { reduction: Reduction::Sum }, Storage::Shared),
                    (Collective::AllReduce { reduction: Reduction::Min }, Storage::Private),
                    (Collective::Broadcast { root: 3 }, Storage::Shared),
                ] {
                    let data =
                        encode(Scalar::I32, (0..count).map(|i| value(collective.reduction(), rank, i)));
                    let both = slice(&data, storage);
                    let source = (collective.parts(rank, size).0 > 0).then(|| both.clone());
                    member.run(&call(collective, Scalar::I32, count, source, Some(both.clone()))).unwrap();
                    assert!(
                        bytes(&both) == expected(collective, Scalar::I32, size, rank, count),
                        "{collective:?}"
                    );
                }
            });
        }
    });
}
