//! [`LaunchTimes`]: where the device writes begin and end of each command of a submission.
//!
//! Commands of a submission take effect in order, so the end of one is the begin of the next; a timestamp is inserted between them. The
//! submission's own begin and end are known without, so a submission with one command is unchanged.

use std::sync::Arc;

use elinvar_driver::{Command, TimestampSlot, Timing};

/// Begin or end of a command: a timestamp; `None` for that of the submission.
type Edge = Option<Arc<TimestampSlot>>;

/// Times of the commands of a submission, in the order of those that the device executes.
pub(crate) struct LaunchTimes {
    edges: Vec<[Edge; 2]>,
}

/// Whether the device executes it; as [`TracedCommand::is_work`](super::TracedCommand::is_work).
fn is_work(command: &Command) -> bool {
    !matches!(command, Command::Signal { .. } | Command::Wait { .. } | Command::Timestamp { .. })
}

fn is_wait(command: &Command) -> bool {
    matches!(command, Command::Wait { .. })
}

impl LaunchTimes {
    /// Whether the submission's times are not those of its only command.
    pub(crate) fn are_needed(commands: &[Command]) -> bool {
        let works = commands.iter().filter(|command| is_work(command)).take(2).count();
        works == 2 || works == 1 && commands.iter().any(is_wait)
    }

    /// The commands with timestamps in between.
    pub(crate) fn insert(commands: impl Iterator<Item = Command>, layout: Layout) -> (Arc<[Command]>, Self) {
        let Layout { total, last } = layout;
        let edges = Vec::with_capacity(total);
        let mut timed = Timed { commands, at: 0, last, begin: Some(None), held: None, after: None, edges };
        // Collected without a list in between.
        let command = |_| timed.next().unwrap_or_else(|| Command::Timestamp { into: Arc::default() });
        let commands = (0..total).map(command).collect();
        (commands, Self { edges: timed.edges })
    }

    /// Begin and end of each command on the device's clock. `timing` is that of the submission; `None` if it failed.
    pub(super) fn read(&self, timing: Option<Timing>) -> Vec<[Option<u64>; 2]> {
        let ns = |edge: &Edge, submission: Option<u64>| match edge {
            Some(slot) => slot.ns(),
            None => submission,
        };
        let (start, end) = (timing.map(|timing| timing.start_ns), timing.map(|timing| timing.end_ns));
        self.edges.iter().map(|[from, to]| [ns(from, start), ns(to, end)]).collect()
    }

    /// The commands that the device executes, of the list that [`LaunchTimes::insert`] returned, with their begin and end.
    pub(crate) fn of_work<'a>(
        &self,
        commands: &'a [Command],
        timing: Timing,
    ) -> impl Iterator<Item = (&'a Command, [Option<u64>; 2])> {
        commands.iter().filter(|command| is_work(command)).zip(self.read(Some(timing)))
    }
}

/// What is inserted into a list of commands.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Number of commands with timestamps.
    total: usize,
    /// Index of the last command that is work or a wait.
    last: Option<usize>,
}

impl Layout {
    pub(crate) fn of(commands: &[Command]) -> Self {
        let last = commands.iter().rposition(|command| is_work(command) || is_wait(command));
        let (mut total, mut is_behind_wait) = (commands.len(), false);
        for (at, command) in commands.iter().enumerate() {
            if is_work(command) {
                total += usize::from(is_behind_wait) + usize::from(last != Some(at));
                is_behind_wait = false;
            }
            is_behind_wait |= is_wait(command);
        }
        Self { total, last }
    }
}

/// Commands with timestamps in between.
struct Timed<I> {
    commands: I,
    /// Number of commands so far.
    at: usize,
    last: Option<usize>,
    /// Begin of the next command that is work; `None` if it is behind a wait.
    begin: Option<Edge>,
    /// A command whose timestamp before it was returned.
    held: Option<Command>,
    /// The timestamp behind the command that was returned.
    after: Option<Command>,
    edges: Vec<[Edge; 2]>,
}

impl<I: Iterator<Item = Command>> Timed<I> {
    fn next(&mut self) -> Option<Command> {
        if let Some(after) = self.after.take() {
            return Some(after);
        }
        let command = match self.held.take() {
            Some(command) => command,
            None => {
                self.at += 1;
                self.commands.next()?
            }
        };
        if is_wait(&command) {
            self.begin = None;
        }
        if !is_work(&command) {
            return Some(command);
        }
        let stamp = || {
            let into = Arc::new(TimestampSlot::new());
            (Some(into.clone()), Command::Timestamp { into })
        };
        let Some(from) = self.begin.take() else {
            let (begin, before) = stamp();
            (self.begin, self.held) = (Some(begin), Some(command));
            return Some(before);
        };
        let to = if self.last == Some(self.at - 1) {
            None
        } else {
            let (to, after) = stamp();
            self.after = Some(after);
            to
        };
        self.edges.push([from, to.clone()]);
        self.begin = Some(to);
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::{MemorySlice, Timeline};

    use super::*;

    fn commands(text: &str) -> Vec<Command> {
        let driver = elinvar_driver_cpu::CpuDriver::with_threads(1);
        let device = elinvar_driver::Driver::devices(&driver).unwrap().remove(0);
        let memory =
            device.allocate(4, elinvar_driver::Storage::Shared, elinvar_driver::Init::Zeroed).unwrap();
        let event: Arc<Timeline> = Arc::default();
        let command = |letter: char| match letter {
            'f' => {
                let target = MemorySlice { memory: memory.clone(), offset: 0, len: 4 };
                Command::Fill { target, pattern: vec![1] }
            }
            'w' => Command::Wait { event: event.clone(), value: 0 },
            's' => Command::Signal { event: event.clone(), value: 1 },
            _ => Command::Timestamp { into: Arc::default() },
        };
        text.chars().map(command).collect()
    }

    fn timed(text: &str) -> Option<(Arc<[Command]>, LaunchTimes)> {
        let commands = commands(text);
        let layout = Layout::of(&commands);
        LaunchTimes::are_needed(&commands).then(|| LaunchTimes::insert(commands.into_iter(), layout))
    }

    fn letters(commands: &[Command]) -> String {
        let letter = |command: &Command| match command {
            Command::Fill { .. } => 'f',
            Command::Wait { .. } => 'w',
            Command::Signal { .. } => 's',
            _ => 't',
        };
        commands.iter().map(letter).collect()
    }

    #[test]
    fn timestamps_are_between_commands_and_behind_waits() {
        for (text, expected) in [
            ("ff", "ftf"),
            ("fff", "ftftf"),
            ("wf", "wtf"),
            ("wwfs", "wwtfs"),
            ("fwf", "ftwtf"),
            ("fsf", "ftsf"),
            ("fw", "ftw"),
            ("tfftf", "tftfttf"),
        ] {
            let (timed, times) = timed(text).unwrap();
            assert_eq!(letters(&timed), expected, "{text}");
            assert_eq!(times.edges.len(), text.matches('f').count(), "{text}");
        }
        for text in ["", "f", "fs", "ws", "tft"] {
            assert!(timed(text).is_none(), "{text}");
        }
    }

    #[test]
    fn each_command_has_its_begin_and_end() {
        let (timed, times) = timed("ffwf").unwrap();
        assert_eq!(letters(&timed), "ftftwtf");
        let mut now = 100;
        for command in timed.iter() {
            if let Command::Timestamp { into } = command {
                now += 10;
                into.set(now);
            }
        }
        let whole = Timing { start_ns: 7, end_ns: 500 };
        let both = |a, b| [Some(a), Some(b)];
        assert_eq!(times.read(Some(whole)), [both(7, 110), both(110, 120), both(130, 500)]);
        assert_eq!(times.read(None), [[None, Some(110)], both(110, 120), [Some(130), None]]);
    }
}
