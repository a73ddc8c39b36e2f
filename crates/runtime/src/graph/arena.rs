//! Memory of transients, shared between those with disjoint live ranges.
//!
//! A transient's live range, by the schedule, is from its first command to its last: two may share bytes if all commands of one
//! have ended before any of the other begins. Offsets are assigned in descending order of size, each the lowest that is free.

use super::schedule::Place;

/// Alignment of transients in bytes, as of all allocations.
const ALIGN: u64 = 256;

/// Size and live range of a transient.
#[derive(Clone, Debug)]
pub(super) struct Lifetime {
    pub(super) bytes: u64,
    /// By branch: the number of its last command there.
    last: Vec<u32>,
    /// By branch: the number of the command that has ended there before any of its commands begins.
    first: Vec<u32>,
}

impl Lifetime {
    /// The live range of a transient with these users.
    pub(super) fn new<'a>(bytes: u64, branches: usize, users: impl Iterator<Item = &'a Place>) -> Self {
        let (mut last, mut first) = (vec![0; branches], vec![u32::MAX; branches]);
        for place in users {
            last[place.branch] = last[place.branch].max(place.number);
            for (branch, first) in first.iter_mut().enumerate() {
                *first = (*first).min(place.known.get(branch).copied().unwrap_or(0));
            }
        }
        Self { bytes, last, first }
    }

    /// Whether it ends before the other begins.
    fn is_before(&self, other: &Self) -> bool {
        self.last.iter().zip(&other.first).all(|(last, first)| last <= first)
    }
}

/// Assigns offsets. Returns them and the total size in bytes. Without `share`, all ranges are disjoint.
pub(super) fn arrange(lifetimes: &[Lifetime], share: bool) -> (Vec<u64>, u64) {
    let mut largest: Vec<usize> = (0..lifetimes.len()).collect();
    largest.sort_by_key(|at| std::cmp::Reverse(lifetimes[*at].bytes));
    let mut offsets = vec![0; lifetimes.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut end = 0;
    for at in largest {
        let own = &lifetimes[at];
        let apart = |other: &Lifetime| share && (own.is_before(other) || other.is_before(own));
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|other| !apart(&lifetimes[**other]))
            .map(|other| (offsets[*other], offsets[*other] + lifetimes[*other].bytes))
            .collect();
        taken.sort_unstable();
        let mut offset: u64 = 0;
        for (start, stop) in taken {
            if offset + own.bytes <= start {
                break;
            }
            offset = offset.max(stop.next_multiple_of(ALIGN));
        }
        offsets[at] = offset;
        end = end.max(offset + own.bytes);
        placed.push(at);
    }
    (offsets, end)
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use super::*;
    use crate::{Device, Graph, Grid, PlanOptions, Source};

    /// One stream, in use from a command to a command.
    fn lifetime(bytes: u64, first: u32, last: u32) -> Lifetime {
        Lifetime { bytes, last: vec![last], first: vec![first - 1] }
    }

    #[test]
    fn what_does_not_overlap_in_time_shares() {
        let chain = [lifetime(1000, 1, 2), lifetime(1000, 2, 3), lifetime(1000, 3, 4), lifetime(500, 4, 5)];
        assert_eq!(arrange(&chain, true), (vec![0, 1024, 0, 1024], 2024));
        assert_eq!(arrange(&chain, false).1, 3 * 1024 + 500);
    }

    #[test]
    fn a_hole_is_filled() {
        let all = [lifetime(4096, 1, 1), lifetime(1024, 1, 9), lifetime(2048, 2, 3), lifetime(2048, 3, 3)];
        let (offsets, end) = arrange(&all, true);
        assert_eq!((offsets, end), (vec![0, 4096, 0, 2048], 5120));
    }

    /// Random lifetimes: whoever is in use at the same time is apart, and everything begins where it should.
    #[test]
    fn no_two_in_use_overlap() {
        let mut x = 7u64;
        let mut next = |most: u64| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) % most
        };
        for _ in 0..200 {
            let all: Vec<(Lifetime, u32, u32)> = (0..20)
                .map(|_| {
                    let first = 1 + next(30) as u32;
                    let last = first + next(6) as u32;
                    (lifetime(1 + next(5000), first, last), first, last)
                })
                .collect();
            let lifetimes: Vec<_> = all.iter().map(|(lifetime, ..)| lifetime.clone()).collect();
            let (offsets, end) = arrange(&lifetimes, true);
            for (i, (a, a_first, a_last)) in all.iter().enumerate() {
                assert!(offsets[i].is_multiple_of(ALIGN) && offsets[i] + a.bytes <= end);
                for (j, (b, b_first, b_last)) in all.iter().enumerate().skip(i + 1) {
                    let in_time = a_first <= b_last && b_first <= a_last;
                    let in_space = offsets[i] < offsets[j] + b.bytes && offsets[j] < offsets[i] + a.bytes;
                    assert!(!(in_time && in_space), "{a:?} at {} and {b:?} at {}", offsets[i], offsets[j]);
                }
            }
        }
    }

    /// What a run takes of the processor's memory at its peak, by the device's own count: a chain of twenty transients.
    #[test]
    #[allow(unsafe_code)] // launches, and transients that are written before they are read
    fn the_processor_needs_memory_for_what_is_alive_at_once() {
        const N: usize = 1 << 16;
        let bytes = 4 * N as u64;
        let text = "kernel void next(device const uint* a, device uint* b, constant uint& k,
                                     uint i [[thread_position_in_grid]]) { b[i] = 3 * a[i] + k; }";
        for (optimize, alive) in [(false, 20), (true, 2)] {
            let device = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
            let device = Device::new(device);
            let next = device.compile(Source::msl(text)).unwrap().kernel("next").unwrap();
            let ramp: Vec<u32> = (0..N as u32).collect();
            let (input, out) = (device.buffer_with_data(&ramp).unwrap(), device.buffer::<u32>(N).unwrap());
            let before = device.pool().stats();
            assert_eq!((before.live_bytes, before.peak_bytes), (2 * bytes, 2 * bytes));
            let (mut graph, mut last) = (Graph::new(), input.clone());
            for k in 0..=20u32 {
                let mut to = match k {
                    20 => out.clone(),
                    // SAFETY: the launch writes all of it, and what reads it comes behind.
                    _ => unsafe { graph.transient_uninit(&device, N) }.unwrap(),
                };
                // SAFETY: thread i reads element i and writes element i, and there are as many.
                unsafe { graph.launch(&next, Grid::threads(N), (&last, &mut to, k)) }.unwrap();
                last = to;
            }
            let mut plan = graph.plan_with(PlanOptions { optimize, ..PlanOptions::default() }).unwrap();
            // SAFETY: as for the launches.
            unsafe { plan.run(&device.stream().unwrap()) }.unwrap().wait().unwrap();
            let expected = |i: u32| (0..=20u32).fold(i, |x, k| x.wrapping_mul(3).wrapping_add(k));
            let mut got = vec![0; N];
            out.read(&mut got).unwrap();
            assert!((0..).zip(&got).all(|(i, got)| *got == expected(i)));
            let stats = device.pool().stats();
            assert_eq!(stats.peak_bytes, (2 + alive) * bytes, "{stats:?}");
            assert_eq!(plan.stats().transient_bytes, 20 * bytes);
        }
    }
}
