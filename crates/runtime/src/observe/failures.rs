//! [`FailurePattern`]: what the device's recent failures have in common.
//!
//! A failure is recorded when its submission has ended. Patterns are computed when they are asked for.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Command, Dispatch, Error};

use crate::Device;
use crate::recovery::FaultClass;

/// Number of failures that are kept.
const KEPT: usize = 1024;
/// Maximum length in characters of a message.
const LONGEST: usize = 300;
/// Failures within this time of each other happen together.
const TOGETHER: Duration = Duration::from_secs(1);

/// Failures of one class, kernel and message, among the last 1024 of the device. Cancelled work, wrong calls and work behind a failure are not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailurePattern {
    /// Class of the errors.
    pub class: FaultClass,
    /// The kernel that faulted, otherwise that of the submission's first launch; `None` if it has none.
    pub kernel: Option<String>,
    /// The message, with `#` for each number.
    pub message: String,
    /// Number of failures.
    pub count: usize,
    /// The first one.
    pub first: SystemTime,
    /// The last one.
    pub last: SystemTime,
    /// Smallest and largest number of threads of the kernel's launch; `None` if they are in memory, or there is no launch.
    pub threads: Option<[u128; 2]>,
    /// Positions in the list of other patterns that happen together: at least half of these failures have one of those within a second.
    pub together: Vec<usize>,
}

/// Recent failures of a device.
#[derive(Default)]
pub(crate) struct Failures(Mutex<VecDeque<Failure>>);

struct Failure {
    at: SystemTime,
    key: Key,
    threads: Option<u128>,
}

/// What failures have in common.
type Key = (FaultClass, Option<String>, String);

impl Failures {
    /// Records the error of a submission.
    pub(crate) fn add(&self, commands: &[Command], error: &Error) {
        let class = FaultClass::of(error);
        if matches!(class, FaultClass::Cancelled | FaultClass::EarlierWork | FaultClass::WrongCall) {
            return;
        }
        let launches = || commands.iter().filter_map(launch);
        let of = |name: &str| launches().find(|dispatch| dispatch.pipeline.signature().name == name);
        let (kernel, dispatch) = match error {
            Error::Fault(fault) => (Some(fault.kernel.clone()), of(&fault.kernel)),
            _ => {
                let first = launches().next();
                (first.map(|dispatch| dispatch.pipeline.signature().name.clone()), first)
            }
        };
        let threads = dispatch.and_then(|dispatch| dispatch.grid.threads()).map(|threads| threads.volume());
        let failure =
            Failure { at: SystemTime::now(), key: (class, kernel, pattern(&error.to_string())), threads };
        let mut failures = self.0.lock();
        if failures.len() >= KEPT {
            failures.pop_front();
        }
        failures.push_back(failure);
    }
}

fn launch(command: &Command) -> Option<&Dispatch> {
    match command {
        Command::Dispatch(dispatch) => Some(dispatch),
        Command::LaunchNested(nested) => Some(&nested.root),
        _ => None,
    }
}

/// A message with `#` for each number that is no part of a name.
fn pattern(message: &str) -> String {
    let mut pattern = String::new();
    let mut is_in_word = false;
    let mut characters = message.chars().take(LONGEST).peekable();
    while let Some(character) = characters.next() {
        if character.is_ascii_digit() && !is_in_word {
            // Also `0x1f`, and `1.5`.
            while characters.next_if(|next| next.is_ascii_alphanumeric() || *next == '.').is_some() {}
            pattern.push('#');
            continue;
        }
        is_in_word = character.is_alphanumeric() || character == '_';
        pattern.push(character);
    }
    pattern
}

impl Device {
    /// What the device's recent failures have in common, the most frequent first.
    pub fn failures(&self) -> Vec<FailurePattern> {
        let failures = self.recovery().vitals.failures.0.lock();
        let mut by_key: BTreeMap<&Key, Vec<&Failure>> = BTreeMap::new();
        failures.iter().for_each(|failure| by_key.entry(&failure.key).or_default().push(failure));
        let mut groups: Vec<(&Key, Vec<&Failure>)> = by_key.into_iter().collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.len()));
        let near = |at: SystemTime, others: &[&Failure]| {
            let apart =
                |other: &Failure| at.duration_since(other.at).or_else(|_| other.at.duration_since(at));
            others.iter().any(|other| apart(other).is_ok_and(|apart| apart <= TOGETHER))
        };
        let patterns = groups.iter().enumerate().map(|(number, ((class, kernel, message), group))| {
            let others = groups.iter().enumerate().filter(|(other, _)| *other != number);
            let happens_together = |others: &[&Failure]| {
                2 * group.iter().filter(|failure| near(failure.at, others)).count() >= group.len()
            };
            let together = others.filter(|(_, (_, others))| happens_together(others)).map(|(other, _)| other);
            let threads = || group.iter().filter_map(|failure| failure.threads);
            let times = || group.iter().map(|failure| failure.at);
            FailurePattern {
                class: *class,
                kernel: kernel.clone(),
                message: message.clone(),
                count: group.len(),
                first: times().min().unwrap_or(SystemTime::UNIX_EPOCH),
                last: times().max().unwrap_or(SystemTime::UNIX_EPOCH),
                threads: threads().min().zip(threads().max()).map(|(least, most)| [least, most]),
                together: together.collect(),
            }
        });
        patterns.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_replaced_and_names_are_not() {
        let text = "kernel `k2` at a.metal:10: read of element 8 of `x_3` (0x7f00, 1.5), by (8, 0, -1)";
        assert_eq!(
            pattern(text),
            "kernel `k2` at a.metal:#: read of element # of `x_3` (#, #), by (#, #, -#)"
        );
        assert_eq!(pattern(&"é1".repeat(LONGEST)).chars().count(), LONGEST);
    }
}
