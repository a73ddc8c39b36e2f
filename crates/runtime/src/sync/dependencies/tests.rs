//! The table is compared with a search that plays all submissions through, again and again, whenever one enters.

use std::collections::HashMap;

use super::table::Table;
use super::*;
use elinvar_driver::Timeline;

#[derive(Clone)]
struct Recorded {
    submission: u64,
    stream: u64,
    ops: Vec<EventOp>,
}

/// The streams of the recorded signals, by event and value.
type Signals = HashMap<(u64, u64), u64>;

/// The cycle in which streams would wait for one another, in words.
fn cycle(table: &[Recorded]) -> Option<String> {
    let mut streams: HashMap<u64, Vec<&EventOp>> = HashMap::new();
    for recorded in table {
        streams.entry(recorded.stream).or_default().extend(&recorded.ops);
    }
    // The signal that a wait is for raises to just that value. A higher one would end the wait as well, but something
    // before that may be yet to come.
    let signals: Signals = table
        .iter()
        .flat_map(|r| r.ops.iter().filter(|op| op.signals).map(|op| (op.point(), r.stream)))
        .collect();
    let stuck = play(&streams, &signals);
    // From a stuck stream to one whose signal it waits for, which is stuck too, until one comes again.
    let mut at = *stuck.keys().min()?;
    let mut path = Vec::new();
    while !path.contains(&at) {
        path.push(at);
        let wait = stuck.get(&at)?;
        at = *signals.get(&wait.point())?;
    }
    let first = path.iter().position(|stream| *stream == at).unwrap_or(0);
    let links = path[first..].iter().filter_map(|stream| {
        let wait = stuck.get(stream)?;
        Some(format!("stream {stream} waits for event {} to reach {}", wait.id, wait.shown))
    });
    Some(format!(
        "streams would deadlock: {}, which is signaled after that wait",
        links.collect::<Vec<_>>().join(", which is signaled after ")
    ))
}

/// Lets every stream go as far as it gets; the waits at which some are stuck.
fn play<'t>(streams: &HashMap<u64, Vec<&'t EventOp>>, signals: &Signals) -> HashMap<u64, &'t EventOp> {
    let mut values: HashMap<u64, u64> = HashMap::new();
    let mut next: HashMap<u64, usize> = streams.keys().map(|stream| (*stream, 0)).collect();
    loop {
        let mut moved = false;
        for (stream, ops) in streams {
            let at = next.entry(*stream).or_default();
            while let Some(op) = ops.get(*at) {
                let value = values.entry(op.id).or_insert_with(|| op.event.value());
                if op.signals {
                    *value = op.value.max(*value);
                } else if *value < op.value
                    && signals.contains_key(&op.point())
                    && op.event.failure().is_none()
                {
                    break;
                }
                *at += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    streams.iter().filter_map(|(stream, ops)| Some((*stream, *ops.get(*next.get(stream)?)?))).collect()
}

fn events(count: usize) -> Vec<Arc<dyn Event>> {
    (0..count).map(|_| Arc::new(Timeline::new()) as Arc<dyn Event>).collect()
}

/// `+e`: signal event `e`, `-e`: wait for it; both to the value that follows.
fn recorded(stream: u64, events: &[Arc<dyn Event>], ops: &[(char, usize, u64)]) -> Recorded {
    let op = |&(sign, id, value): &(char, usize, u64)| EventOp {
        event: events[id].clone(),
        id: id as u64,
        value,
        shown: value,
        signals: sign == '+',
    };
    Recorded { submission: 0, stream, ops: ops.iter().map(op).collect() }
}

/// The table and what it is compared with.
struct Both {
    table: Table,
    list: Vec<Recorded>,
    next: u64,
}

impl Both {
    fn new() -> Self {
        Self { table: Table::new(), list: Vec::new(), next: 0 }
    }

    /// Enters a submission in both; the words of the table if it refuses, which both do or none.
    #[track_caller]
    fn enter(&mut self, recorded: Recorded) -> Option<String> {
        self.next += 1;
        let new = Recorded { submission: self.next, ..recorded };
        let (stream, ops) = (new.stream, new.ops.clone());
        self.list.push(new);
        let signals = ops.iter().any(|op| op.signals);
        let mut own = self.list.iter().filter(|r| r.stream == stream).flat_map(|r| &r.ops);
        let may_close = signals && own.any(|op| !op.signals && op.event.value() < op.value);
        let expected = may_close.then(|| cycle(&self.list)).flatten();
        if expected.is_some() {
            self.list.pop();
        }
        let found = self.table.enter(self.next, stream, ops).err().map(|(words, _)| words);
        assert_eq!(found.is_some(), expected.is_some(), "{found:?}\n{expected:?}");
        found
    }

    fn remove(&mut self, at: usize) -> Recorded {
        let removed = self.list.remove(at);
        self.table.remove(removed.submission);
        removed
    }
}

/// What the last of some submissions is refused with.
#[track_caller]
fn last(all: impl IntoIterator<Item = Recorded>) -> Option<String> {
    let mut both = Both::new();
    let words: Vec<_> = all.into_iter().map(|recorded| both.enter(recorded)).collect();
    let (last, others) = words.split_last().expect("a submission");
    assert!(others.iter().all(Option::is_none), "{others:?}");
    last.clone()
}

#[test]
fn a_chain_and_a_diamond_are_no_cycle() {
    let e = events(4);
    let all = [
        recorded(0, &e, &[('+', 0, 1)]),
        recorded(1, &e, &[('-', 0, 1), ('+', 1, 1)]),
        recorded(2, &e, &[('-', 0, 1), ('+', 2, 1)]),
        recorded(3, &e, &[('-', 1, 1), ('-', 2, 1), ('+', 3, 1)]),
        recorded(0, &e, &[('-', 3, 1)]),
    ];
    assert_eq!(last(all.clone()), None);
    let [a, b, c, d, _] = all;
    assert_eq!(last([d, c, b, a]), None);
}

#[test]
fn two_that_wait_for_each_other_are() {
    let e = events(2);
    let all = [recorded(7, &e, &[('-', 0, 2), ('+', 1, 3)]), recorded(8, &e, &[('-', 1, 3), ('+', 0, 2)])];
    assert_eq!(
        last(all.clone()).unwrap(),
        "streams would deadlock: stream 7 waits for event 0 to reach 2, which is signaled after \
         stream 8 waits for event 1 to reach 3, which is signaled after that wait"
    );
    e[1].signal(3, 0);
    assert_eq!(last(all), None, "the host has broken it");
}

#[test]
fn one_that_waits_for_itself_is_unless_another_helps() {
    let e = events(1);
    let own = || recorded(0, &e, &[('-', 0, 1), ('+', 0, 1)]);
    assert!(last([own()]).unwrap().contains("stream 0 waits for event 0 to reach 1"));
    assert_eq!(last([recorded(1, &e, &[('+', 0, 2)]), own()]), None);
    assert_eq!(last([recorded(0, &e, &[('+', 0, 1), ('-', 0, 1)])]), None);
}

#[test]
fn a_wait_for_the_host_or_for_what_is_to_come_is_not() {
    let e = events(2);
    let turns = [recorded(0, &e, &[('-', 0, 1), ('+', 0, 2), ('-', 0, 3), ('+', 0, 4)])];
    assert_eq!(last(turns), None, "another stream may raise it to 1 and 3");
    let waits = recorded(0, &e, &[('-', 0, 1), ('+', 1, 1)]);
    assert_eq!(last([waits, recorded(1, &e, &[('-', 1, 1)])]), None);
}

#[test]
fn a_failed_event_holds_nobody() {
    let e = events(1);
    e[0].fail(&Error::Cancelled);
    assert_eq!(last([recorded(0, &e, &[('-', 0, 1), ('+', 0, 1)])]), None);
}

#[test]
fn three_in_a_cycle_behind_one_that_is_not() {
    let e = events(4);
    let text = last([
        recorded(0, &e, &[('-', 3, 1)]),
        recorded(1, &e, &[('-', 0, 1), ('+', 1, 1)]),
        recorded(2, &e, &[('-', 1, 1), ('+', 2, 1)]),
        recorded(3, &e, &[('-', 2, 1), ('+', 0, 1), ('+', 3, 1)]),
    ]);
    let text = text.unwrap();
    assert!(!text.contains("stream 0 waits"), "{text}");
    assert_eq!(text.matches("waits for event").count(), 3, "{text}");
}

/// Numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Submissions of few streams and events; some end, with or without raising what they signal, some fail, and the host
/// raises and fails events as well.
#[test]
fn random_programs_have_the_same_verdicts() {
    let (mut refused, mut entered) = (0, 0);
    for seed in 0..1000 {
        let mut r = Random(seed);
        let (streams, count, most) = (1 + r.below(6), 1 + r.below(8), 1 + r.below(4));
        let e = events(count as usize);
        let mut both = Both::new();
        for _ in 0..4 + r.below(40) {
            match r.below(12) {
                0 | 1 if !both.list.is_empty() => {
                    let at = r.below(both.list.len() as u64) as usize;
                    let how = r.below(4);
                    // The device raises events before a submission has ended, or they fail; a refused one does nothing.
                    for op in both.list[at].ops.clone().iter().filter(|op| op.signals) {
                        match how {
                            0 | 1 => op.event.signal(op.value, 0),
                            2 => op.event.fail(&Error::Cancelled),
                            _ => {}
                        }
                    }
                    both.remove(at);
                }
                2 => e[r.below(count) as usize].signal(r.below(most + 1), 0),
                3 if r.below(20) == 0 => e[r.below(count) as usize].fail(&Error::Cancelled),
                _ => {
                    let ops: Vec<_> = (0..1 + r.below(4))
                        .map(|_| {
                            (['+', '-'][r.below(2) as usize], r.below(count) as usize, 1 + r.below(most))
                        })
                        .collect();
                    let words = both.enter(recorded(r.below(streams), &e, &ops));
                    entered += 1;
                    refused += usize::from(words.is_some());
                }
            }
        }
        while !both.list.is_empty() {
            both.remove(0);
        }
        assert!(both.table.is_empty(), "something is left of seed {seed}");
    }
    assert!(refused > entered / 50 && refused < entered / 2, "{refused} of {entered} refused");
}

/// The stages that are looked at for each stream of a ring, entered in this order; the last closes it.
fn ring(order: &[u64]) -> Vec<u64> {
    let count = order.len() as u64;
    let e = events(order.len());
    let mut table = Table::new();
    let mut visits = Vec::new();
    for (number, stream) in order.iter().enumerate() {
        let waits = ((stream + count - 1) % count) as usize;
        let ops = recorded(*stream, &e, &[('-', waits, 1), ('+', *stream as usize, 1)]).ops;
        let before = table.visits;
        let result = table.enter(number as u64, *stream, ops);
        visits.push(table.visits - before);
        assert_eq!(result.is_err(), number + 1 == order.len(), "stream {stream}");
        if let Err((words, _)) = result {
            assert!(words.contains("9992 more waits"), "{words}");
        }
    }
    visits
}

#[test]
fn a_ring_of_ten_thousand_streams_is_searched_once() {
    const STREAMS: u64 = 10_000;
    let ascending: Vec<u64> = (0..STREAMS).collect();
    let descending: Vec<u64> = (0..STREAMS).rev().collect();
    let mut random = ascending.clone();
    let mut r = Random(1);
    for at in (1..random.len()).rev() {
        random.swap(at, r.below(at as u64 + 1) as usize);
    }
    for (order, each) in [(ascending, 0), (descending, 0), (random, 20)] {
        let visits = ring(&order);
        let (closing, others) = visits.split_last().unwrap();
        assert!(*closing <= STREAMS + 2, "{closing} stages for the stream that closes the ring");
        let (sum, most) = (others.iter().sum::<u64>(), others.iter().max().unwrap());
        assert!(sum <= each * STREAMS && *most <= STREAMS, "{sum} stages in all, {most} at most");
    }
}

/// How long streams of a ring take to enter: `cargo test --release -p elinvar -- --ignored --nocapture ring_timed`.
#[test]
#[ignore = "a measurement"]
fn ring_timed() {
    for (name, count) in [("10,000", 10_000_u64), ("100,000", 100_000)] {
        let e = events(count as usize);
        let mut table = Table::new();
        let mut times: Vec<_> = (0..count)
            .map(|stream| {
                let waits = ((stream + count - 1) % count) as usize;
                let ops = recorded(stream, &e, &[('-', waits, 1), ('+', stream as usize, 1)]).ops;
                let start = std::time::Instant::now();
                let _closed = table.enter(stream, stream, ops);
                start.elapsed()
            })
            .collect();
        let closing = times.pop().unwrap();
        times.sort_unstable();
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!("ring of {name}: median {median:?}, most {most:?}, the closing one {closing:?}");
    }
}
