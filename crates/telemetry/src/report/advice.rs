//! What the figures of a device suggest. Each piece of advice states the figures that it follows from.

use serde::Serialize;

use super::data::{Device, Kernel};

/// Launches from which on advice is given: fewer are not worth it.
const LAUNCHES: usize = 32;
/// Part of the device's time that is idle while the host records.
const IDLE: f64 = 0.2;
/// Duration of a launch below which the costs of launching are a large part.
const TINY_NS: u64 = 20_000;

#[derive(Debug, Serialize)]
pub(super) struct Advice {
    title: String,
    text: String,
}

pub(super) fn of(device: &Device<'_>, kernels: &[Kernel]) -> Vec<Advice> {
    let mut all = Vec::new();
    all.extend(idle(device));
    all.extend(kernels.iter().filter_map(tiny));
    all.extend(misses(device));
    all
}

/// The device waited for the host between launches.
fn idle(device: &Device<'_>) -> Option<Advice> {
    let commands = device.submissions.iter().flat_map(|submission| &submission.commands);
    let launches = commands.filter(|command| command.is_work && command.executed.is_some()).count();
    let executed = device.submissions.iter().filter_map(|submission| submission.executed);
    let busy = union(executed.map(|span| [span.begin_ns, span.end_ns]).collect());
    let (first, last) = (busy.first()?[0], busy.last()?[1]);
    let gaps: Vec<[u64; 2]> = busy.windows(2).map(|pair| [pair[0][1], pair[1][0]]).collect();
    let recorded = union(device.submissions.iter().map(|submission| submission.recorded_ns).collect());
    let (whole, idle, waited) = (last - first, length(&gaps), common(&gaps, &recorded));
    if launches < LAUNCHES || (waited as f64) < IDLE * whole as f64 {
        return None;
    }
    let submissions = device.submissions.len();
    let each = launches as f64 / submissions.max(1) as f64;
    Some(Advice {
        title: "The device waits for the host: batch launches".into(),
        text: format!(
            "Between its first and last launch the device was idle for {} of {} ({:.0} %); during {} of that the host was recording. \
             {submissions} submissions have {each:.1} commands each. Record several launches into one command buffer, or submit a recording or \
             graph again, so that the device finds work when it has finished.",
            time(idle),
            time(whole),
            100.0 * idle as f64 / whole as f64,
            time(waited),
        ),
    })
}

/// Launches are so short that recording them takes longer.
fn tiny(kernel: &Kernel) -> Option<Advice> {
    let is_tiny = kernel.is_launch
        && kernel.measured >= LAUNCHES
        && kernel.median_ns < TINY_NS
        && kernel.host_ns > kernel.total_ns / 2;
    is_tiny.then(|| Advice {
        title: format!("`{}` has many small launches", kernel.name),
        text: format!(
            "{} launches have a median of {}, {} in total on the device; the host recorded them for {}. Fewer launches over larger grids, or a \
             recording that is submitted again, save the host's part.",
            kernel.launches,
            time(kernel.median_ns),
            time(kernel.total_ns),
            time(kernel.host_ns),
        ),
    })
}

/// Memory comes from the driver instead of the pool.
fn misses(device: &Device<'_>) -> Option<Advice> {
    let of = |result| device.count("elinvar.memory.allocations", &[result]);
    let (hits, misses) = (of("hit"), of("miss"));
    let is_much = misses >= LAUNCHES as f64 && misses > hits;
    is_much.then(|| Advice {
        title: "Memory is allocated anew".into(),
        text: format!(
            "{misses} of {} requests for memory were served by the driver, not by idle blocks of the pool. Keep buffers for repeated work instead of \
             creating them each time, or free them before the next ones of the same size are created.",
            hits + misses
        ),
    })
}

/// Disjoint spans, in order, that cover what the spans cover.
fn union(mut spans: Vec<[u64; 2]>) -> Vec<[u64; 2]> {
    spans.sort_unstable();
    let mut union: Vec<[u64; 2]> = Vec::new();
    for [begin, end] in spans {
        match union.last_mut() {
            Some(last) if last[1] >= begin => last[1] = last[1].max(end),
            _ => union.push([begin, end.max(begin)]),
        }
    }
    union
}

fn length(spans: &[[u64; 2]]) -> u64 {
    spans.iter().map(|[begin, end]| end - begin).sum()
}

/// Length of what two lists of disjoint spans, in order, have in common.
fn common(one: &[[u64; 2]], other: &[[u64; 2]]) -> u64 {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut length = 0;
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        length += a[1].min(b[1]).saturating_sub(a[0].max(b[0]));
        _ = if a[1] <= b[1] { one.next() } else { other.next() };
    }
    length
}

/// A time in a suitable unit.
fn time(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_united_and_intersected() {
        let union = union(vec![[5, 9], [0, 2], [8, 12], [2, 3], [20, 20]]);
        assert_eq!(union, [[0, 3], [5, 12], [20, 20]]);
        assert_eq!(length(&union), 10);
        assert_eq!(common(&union, &[[1, 6], [7, 8], [11, 30]]), 2 + 1 + 1 + 1);
        assert_eq!(common(&union, &[]), 0);
    }
}
