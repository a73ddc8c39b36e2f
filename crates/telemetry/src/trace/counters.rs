//! Counters over the time of a trace: memory of the pool, submissions in flight, and what runs on the device.

use elinvar::{Timeline, TimelineCommand, TracedWork};

use super::{Counter, Unit};

pub(super) fn of(timeline: &Timeline) -> Vec<Counter> {
    let memory = |name, value: fn(&elinvar::MemorySample) -> u64| {
        let points = timeline.memory.iter().map(|sample| (sample.at_ns, value(sample))).collect();
        Counter { name, unit: Unit::Bytes, points: without_repeats(points) }
    };
    let submissions = timeline.submissions.iter().filter(|submission| submission.is_submitted);
    let in_flight = submissions.map(|submission| {
        let end = submission.completed.map(|span| span.begin_ns);
        (submission.recorded.end_ns, end, 1)
    });
    let commands = || timeline.submissions.iter().flat_map(|submission| &submission.commands);
    let running = |weight: fn(&TimelineCommand) -> u64| {
        let spans = commands().filter_map(move |command| Some((command.device?, weight(command))));
        sum(spans.map(|(span, weight)| (span.begin_ns, Some(span.end_ns), weight)))
    };
    let units = u64::from(timeline.compute_units);
    let mut occupied = running(threadgroups);
    occupied.iter_mut().for_each(|(_, groups)| *groups = (*groups).min(units));
    vec![
        memory("memory: live", |sample| sample.live_bytes),
        memory("memory: idle", |sample| sample.idle_bytes),
        Counter { name: "submissions in flight", unit: Unit::Count, points: sum(in_flight) },
        Counter { name: "commands running", unit: Unit::Count, points: running(|_| 1) },
        Counter {
            name: "compute units in use, at most",
            unit: Unit::Count,
            points: without_repeats(occupied),
        },
    ]
}

/// Number of threadgroups of a launch, an upper bound of the compute units that it can use; unlimited for other work.
fn threadgroups(command: &TimelineCommand) -> u64 {
    match &command.command.work {
        TracedWork::Launch { threads: Some(threads), group, .. } => {
            u64::try_from(threads.div_ceil(*group).volume()).unwrap_or(u64::MAX)
        }
        _ => u64::MAX,
    }
}

/// The sum of weights over time, of spans with begin, end, and weight. A span that has no end goes on.
fn sum(spans: impl Iterator<Item = (u64, Option<u64>, u64)>) -> Vec<(u64, u64)> {
    let mut changes: Vec<(u64, bool, u64)> = Vec::new();
    for (begin, end, weight) in spans {
        changes.push((begin, true, weight));
        changes.extend(end.map(|end| (end.max(begin), false, weight)));
    }
    changes.sort_unstable();
    let (mut points, mut total): (Vec<(u64, u64)>, u128) = (Vec::new(), 0);
    let mut changes = changes.into_iter().peekable();
    while let Some((at, _, _)) = changes.peek().copied() {
        let (mut more, mut less) = (0_u128, 0_u128);
        while let Some((_, begins, weight)) = changes.next_if(|(next, _, _)| *next == at) {
            *(if begins { &mut more } else { &mut less }) += u128::from(weight);
        }
        total = total + more - less;
        points.push((at, u64::try_from(total).unwrap_or(u64::MAX)));
    }
    without_repeats(points)
}

fn without_repeats(mut points: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    points.dedup_by_key(|(_, value)| *value);
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_summed() {
        let spans = [
            (10, Some(20), 1),
            (15, Some(30), 2),
            (20, Some(25), 1),
            (25, Some(25), 9),
            (40, None, u64::MAX),
        ];
        let all = sum(spans.into_iter());
        assert_eq!(all, [(10, 1), (15, 3), (25, 2), (30, 0), (40, u64::MAX)]);
        let both = sum([(0, None, u64::MAX), (1, Some(2), u64::MAX)].into_iter());
        assert_eq!(both, [(0, u64::MAX)]);
    }
}
