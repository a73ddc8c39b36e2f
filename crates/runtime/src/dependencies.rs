//! What streams wait for one another for, so that a circle is refused before it stands still.
//!
//! The table has the waits and signals of all submissions in flight, by stream, in order. A submission that has any enters
//! when it is recorded; then the table is played through: every stream goes as far as the events allow. A wait for a value
//! to which no recorded signal raises the event may be for the host or for what is yet to be recorded, and passes. If a
//! stream gets stuck all the same, the submission is refused with the circle. The table knows no memory and runs
//! nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_driver::{Error, Event, Result};
use parking_lot::Mutex;

static TABLE: Mutex<Vec<Recorded>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A wait or signal of a submission.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) event: Arc<dyn Event>,
    /// The event as messages name it.
    pub(crate) id: u64,
    /// The event's own value, and what the program calls it.
    pub(crate) value: u64,
    pub(crate) shown: u64,
    pub(crate) signals: bool,
}

struct Recorded {
    submission: u64,
    stream: u64,
    steps: Vec<Step>,
}

/// A submission in the table; dropping it takes it out.
pub(crate) struct Entered(u64);

impl Drop for Entered {
    fn drop(&mut self) {
        let mut table = TABLE.lock();
        let at = table.iter().position(|recorded| recorded.submission == self.0);
        let recorded = at.map(|at| table.remove(at));
        drop(table); // events are dropped without the lock
        drop(recorded);
    }
}

/// Enter a submission behind those that its stream has.
///
/// # Errors
/// `InvalidArgument` with the circle that it would close.
pub(crate) fn enter(stream: u64, steps: Vec<Step>) -> Result<Entered> {
    let submission = NEXT.fetch_add(1, Ordering::Relaxed);
    let signals = steps.iter().any(|step| step.signals);
    let mut table = TABLE.lock();
    table.push(Recorded { submission, stream, steps });
    // Only a signal behind a wait of its stream can close a circle.
    let own =
        || table.iter().filter(|recorded| recorded.stream == stream).flat_map(|recorded| &recorded.steps);
    let may_close = signals && own().any(|step| !step.signals && step.event.value() < step.value);
    let Some(circle) = may_close.then(|| circle(&table)).flatten() else {
        return Ok(Entered(submission));
    };
    let refused = table.pop();
    drop(table);
    drop(refused);
    Err(Error::invalid(circle))
}

/// The streams of the recorded signals, by event and value.
type Signals = HashMap<(u64, u64), u64>;

/// The circle in which streams would wait for one another, in words.
fn circle(table: &[Recorded]) -> Option<String> {
    let mut streams: HashMap<u64, Vec<&Step>> = HashMap::new();
    for recorded in table {
        streams.entry(recorded.stream).or_default().extend(&recorded.steps);
    }
    // The signal that a wait is for raises to just that value. A higher one would end the wait as well, but something
    // before that may be yet to come.
    let signals: Signals = table
        .iter()
        .flat_map(|r| r.steps.iter().filter(|step| step.signals).map(|step| (step.point(), r.stream)))
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
        "streams would wait for one another: {}, which is raised behind that wait",
        links.collect::<Vec<_>>().join(", which is raised after ")
    ))
}

/// Lets every stream go as far as it gets; the waits at which some are stuck.
fn play<'t>(streams: &HashMap<u64, Vec<&'t Step>>, signals: &Signals) -> HashMap<u64, &'t Step> {
    let mut values: HashMap<u64, u64> = HashMap::new();
    let mut next: HashMap<u64, usize> = streams.keys().map(|stream| (*stream, 0)).collect();
    loop {
        let mut moved = false;
        for (stream, steps) in streams {
            let at = next.entry(*stream).or_default();
            while let Some(step) = steps.get(*at) {
                let value = values.entry(step.id).or_insert_with(|| step.event.value());
                if step.signals {
                    *value = step.value.max(*value);
                } else if *value < step.value
                    && signals.contains_key(&step.point())
                    && step.event.failure().is_none()
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
    streams.iter().filter_map(|(stream, steps)| Some((*stream, *steps.get(*next.get(stream)?)?))).collect()
}

impl Step {
    /// The event and the value.
    fn point(&self) -> (u64, u64) {
        (self.id, self.value)
    }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Timeline;

    use super::*;

    fn events(count: usize) -> Vec<Arc<dyn Event>> {
        (0..count).map(|_| Arc::new(Timeline::new()) as Arc<dyn Event>).collect()
    }

    /// `+e`: signal event `e`, `-e`: wait for it; both 1, or the value that follows.
    fn recorded(stream: u64, events: &[Arc<dyn Event>], steps: &[(char, usize, u64)]) -> Recorded {
        let step = |&(sign, id, value): &(char, usize, u64)| Step {
            event: events[id].clone(),
            id: id as u64,
            value,
            shown: value,
            signals: sign == '+',
        };
        Recorded { submission: 0, stream, steps: steps.iter().map(step).collect() }
    }

    #[test]
    fn a_chain_and_a_diamond_are_no_circle() {
        let e = events(4);
        let table = [
            recorded(0, &e, &[('+', 0, 1)]),
            recorded(1, &e, &[('-', 0, 1), ('+', 1, 1)]),
            recorded(2, &e, &[('-', 0, 1), ('+', 2, 1)]),
            recorded(3, &e, &[('-', 1, 1), ('-', 2, 1), ('+', 3, 1)]),
            recorded(0, &e, &[('-', 3, 1)]),
        ];
        assert_eq!(circle(&table), None);
    }

    #[test]
    fn two_that_wait_for_each_other_are() {
        let e = events(2);
        let table =
            [recorded(7, &e, &[('-', 0, 2), ('+', 1, 3)]), recorded(8, &e, &[('-', 1, 3), ('+', 0, 2)])];
        let text = circle(&table).unwrap();
        assert_eq!(
            text,
            "streams would wait for one another: stream 7 waits for event 0 to reach 2, which is raised after \
             stream 8 waits for event 1 to reach 3, which is raised behind that wait"
        );
        e[1].signal(3, 0);
        assert_eq!(circle(&table), None, "the host has broken it");
    }

    #[test]
    fn one_that_waits_for_itself_is_unless_another_helps() {
        let e = events(1);
        let own = || recorded(0, &e, &[('-', 0, 1), ('+', 0, 1)]);
        assert!(circle(&[own()]).unwrap().contains("stream 0 waits for event 0 to reach 1"));
        assert_eq!(circle(&[own(), recorded(1, &e, &[('+', 0, 2)])]), None);
        assert_eq!(circle(&[recorded(0, &e, &[('+', 0, 1), ('-', 0, 1)])]), None);
    }

    #[test]
    fn a_wait_for_the_host_or_for_what_is_to_come_is_not() {
        let e = events(2);
        let turns = [recorded(0, &e, &[('-', 0, 1), ('+', 0, 2), ('-', 0, 3), ('+', 0, 4)])];
        assert_eq!(circle(&turns), None, "another stream may raise it to 1 and 3");
        let waits = recorded(0, &e, &[('-', 0, 1), ('+', 1, 1)]);
        let behind = recorded(1, &e, &[('-', 1, 1)]);
        assert_eq!(circle(&[waits, behind]), None);
    }

    #[test]
    fn a_failed_event_holds_nobody() {
        let e = events(1);
        e[0].fail(&Error::Cancelled);
        assert_eq!(circle(&[recorded(0, &e, &[('-', 0, 1), ('+', 0, 1)])]), None);
    }

    #[test]
    fn three_in_a_circle_behind_one_that_is_not() {
        let e = events(4);
        let table = [
            recorded(0, &e, &[('-', 3, 1)]),
            recorded(1, &e, &[('-', 0, 1), ('+', 1, 1)]),
            recorded(2, &e, &[('-', 1, 1), ('+', 2, 1)]),
            recorded(3, &e, &[('-', 2, 1), ('+', 0, 1), ('+', 3, 1)]),
        ];
        let text = circle(&table).unwrap();
        assert!(!text.contains("stream 0 waits"), "{text}");
        assert_eq!(text.matches("waits for event").count(), 3, "{text}");
    }
}
