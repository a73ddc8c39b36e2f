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

    /// The commands with timestamps in between. `last` is the index of the last one that is work or a wait.
    pub(crate) fn insert(
        commands: impl ExactSizeIterator<Item = Command>,
        last: Option<usize>,
    ) -> (Arc<[Command]>, Self) {
        let mut timed = Vec::with_capacity(2 * commands.len() + 1);
        let mut edges: Vec<[Edge; 2]> = Vec::with_capacity(commands.len());
        let stamp = |timed: &mut Vec<Command>| {
            let into = Arc::new(TimestampSlot::new());
            timed.push(Command::Timestamp { into: into.clone() });
            Some(into)
        };
        // Begin of the next command; `None` if it is behind a wait.
        let mut begin: Option<Edge> = Some(None);
        for (at, command) in commands.enumerate() {
            if is_wait(&command) {
                begin = None;
            }
            if !is_work(&command) {
                timed.push(command);
                continue;
            }
            let from = begin.unwrap_or_else(|| stamp(&mut timed));
            timed.push(command);
            let to = if last == Some(at) { None } else { stamp(&mut timed) };
            edges.push([from, to.clone()]);
            begin = Some(to);
        }
        (timed.into(), Self { edges })
    }

    /// Index of the last command that is work or a wait.
    pub(crate) fn last(commands: &[Command]) -> Option<usize> {
        commands.iter().rposition(|command| is_work(command) || is_wait(command))
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
        let last = LaunchTimes::last(&commands);
        LaunchTimes::are_needed(&commands).then(|| LaunchTimes::insert(commands.into_iter(), last))
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
