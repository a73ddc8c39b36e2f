//! What the lines of a profile say so far, and how much of it is new since the last frame.

use std::collections::{BTreeMap, VecDeque};

use elinvar::{ProfileCommand, ProfileEvent, ProfileLine, ProfileSubmission};

/// Number of frames of which the busy share is kept.
const HISTORY: usize = 120;
/// Number of failures that are kept.
const FAILURES: usize = 20;

/// Figures of a kernel, or of copies or fills.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    count: u64,
    /// Number of those that the device has measured by themselves, and their time.
    measured: u64,
    device_ns: u64,
    failed: u64,
}

#[derive(Default)]
struct Device {
    name: String,
    kind: String,
    program: String,
    kernels: BTreeMap<String, Totals>,
    submissions: u64,
    failed: u64,
    /// Time in which at least one submission was executed.
    busy_ns: u64,
    /// End of the last execution that is part of it.
    busy_until: u64,
    live_bytes: u64,
    idle_bytes: u64,
    /// As of the last frame.
    before: Before,
    history: VecDeque<f64>,
}

#[derive(Default)]
struct Before {
    kernels: BTreeMap<String, Totals>,
    submissions: u64,
    busy_ns: u64,
}

/// Everything that was read.
#[derive(Default)]
pub struct State {
    devices: BTreeMap<(u32, usize), Device>,
    failures: VecDeque<String>,
    /// Number of lines that are not those of a profile.
    pub unknown: u64,
}

/// What is shown of a device.
pub struct DeviceFrame {
    pub title: String,
    /// From 0 to 1, of the time since the last frame.
    pub busy: f64,
    /// Of the last frames, the newest last.
    pub history: Vec<f64>,
    pub submissions_per_s: f64,
    pub submissions: u64,
    pub failed: u64,
    pub live_bytes: u64,
    pub idle_bytes: u64,
    /// In descending order of the device's time since the last frame, then of all.
    pub kernels: Vec<KernelFrame>,
}

/// What is shown of a kernel.
#[derive(Debug, PartialEq)]
pub struct KernelFrame {
    pub name: String,
    pub per_s: f64,
    /// Its time as a share of the measured commands' since the last frame, from 0 to 1.
    pub share: f64,
    /// Mean time of a launch since the last frame, or if there was none, of all.
    pub mean_ns: Option<u64>,
    pub count: u64,
    pub failed: u64,
}

/// What is shown.
pub struct Frame {
    pub devices: Vec<DeviceFrame>,
    /// The newest last.
    pub failures: Vec<String>,
}

impl State {
    /// Adds lines of a profile.
    pub fn add(&mut self, lines: &str) {
        let (mut submissions, mut unknown) = (Vec::new(), 0);
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let Ok(ProfileLine { process, device, event }) = serde_json::from_str(line) else {
                unknown += 1;
                continue;
            };
            let of = self.devices.entry((process, device)).or_default();
            match event {
                ProfileEvent::About { name, kind, program, .. } => {
                    (of.name, of.kind, of.program) = (name, kind, program);
                }
                ProfileEvent::Memory { live_bytes, idle_bytes, .. } => {
                    (of.live_bytes, of.idle_bytes) = (live_bytes, idle_bytes);
                }
                ProfileEvent::Submission(submission) => submissions.push(((process, device), submission)),
                _ => {}
            }
        }
        self.unknown += unknown;
        // Of several streams, so that executions overlap.
        submissions.sort_by_key(|(_, submission)| submission.executed.map(|span| span.begin_ns));
        for (key, submission) in submissions {
            self.submission(key, &submission);
        }
    }

    fn submission(&mut self, key: (u32, usize), submission: &ProfileSubmission) {
        let device = self.devices.entry(key).or_default();
        device.submissions += 1;
        if let Some(span) = submission.executed {
            device.busy_ns += span.end_ns.saturating_sub(span.begin_ns.max(device.busy_until));
            device.busy_until = device.busy_until.max(span.end_ns);
        }
        for command in submission.commands.iter().filter(|command| command.is_work) {
            device.command(command);
        }
        if let Some(error) = &submission.error {
            device.failed += 1;
            self.failures.push_back(format!("{} {}: {error}", device.program, key.0));
            if self.failures.len() > FAILURES {
                self.failures.pop_front();
            }
        }
    }

    /// What is new, `elapsed_s` after the last frame.
    pub fn frame(&mut self, elapsed_s: f64) -> Frame {
        let devices = self.devices.iter_mut().map(|((process, _), device)| device.frame(*process, elapsed_s));
        Frame { devices: devices.collect(), failures: self.failures.iter().cloned().collect() }
    }
}

impl Device {
    fn command(&mut self, command: &ProfileCommand) {
        let totals = self.kernels.entry(command.name.clone()).or_default();
        totals.count += 1;
        totals.failed += u64::from(command.error.is_some());
        if let Some(span) = command.executed.filter(|span| span.is_measured) {
            totals.measured += 1;
            totals.device_ns += span.end_ns.saturating_sub(span.begin_ns);
        }
    }

    fn frame(&mut self, process: u32, elapsed_s: f64) -> DeviceFrame {
        let elapsed_s = elapsed_s.max(1e-3);
        let busy = (self.busy_ns - self.before.busy_ns) as f64 / 1e9 / elapsed_s;
        // What ends in this interval may have begun before it.
        let busy = busy.min(1.0);
        self.history.push_back(busy);
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        let mut kernels: Vec<(u64, u64, KernelFrame)> = Vec::new();
        for (name, now) in &self.kernels {
            let before = self.before.kernels.get(name).copied().unwrap_or_default();
            let (new_ns, new) = (now.device_ns - before.device_ns, now.measured - before.measured);
            let mean_ns = new_ns.checked_div(new).or(now.device_ns.checked_div(now.measured));
            let frame = KernelFrame {
                name: name.clone(),
                per_s: (now.count - before.count) as f64 / elapsed_s,
                share: 0.0,
                mean_ns,
                count: now.count,
                failed: now.failed,
            };
            kernels.push((new_ns, now.device_ns, frame));
        }
        let all: u64 = kernels.iter().map(|(new_ns, ..)| new_ns).sum();
        kernels.sort_by_key(|(new_ns, all_ns, _)| std::cmp::Reverse((*new_ns, *all_ns)));
        let shared = |(new_ns, _, frame): (u64, u64, KernelFrame)| KernelFrame {
            share: new_ns as f64 / all.max(1) as f64,
            ..frame
        };
        let frame = DeviceFrame {
            title: format!("{} {}, {} {process}", self.kind, self.name, self.program),
            busy,
            history: self.history.iter().copied().collect(),
            submissions_per_s: (self.submissions - self.before.submissions) as f64 / elapsed_s,
            submissions: self.submissions,
            failed: self.failed,
            live_bytes: self.live_bytes,
            idle_bytes: self.idle_bytes,
            kernels: kernels.into_iter().map(shared).collect(),
        };
        self.before =
            Before { kernels: self.kernels.clone(), submissions: self.submissions, busy_ns: self.busy_ns };
        frame
    }
}

#[cfg(test)]
mod tests {
    use elinvar::ProfileSpan;

    use super::*;

    fn span(begin_ns: u64, end_ns: u64) -> Option<ProfileSpan> {
        Some(ProfileSpan { begin_ns, end_ns, is_measured: true })
    }

    fn command(name: &str, executed: Option<ProfileSpan>) -> ProfileCommand {
        ProfileCommand {
            name: name.into(),
            is_launch: true,
            is_work: true,
            label: None,
            threads: None,
            group: None,
            work: None,
            bytes: None,
            origin: None,
            host_ns: [0, 1],
            executed,
            error: None,
        }
    }

    fn line(commands: Vec<ProfileCommand>, executed: Option<ProfileSpan>, error: Option<&str>) -> String {
        let submission = ProfileSubmission {
            number: 1,
            stream: 1,
            recorded_ns: [0, 1],
            completed_ns: None,
            executed,
            command_count: commands.len(),
            commands,
            error: error.map(str::to_owned),
            notes: Vec::new(),
        };
        let line = ProfileLine { process: 7, device: 0, event: ProfileEvent::Submission(submission) };
        serde_json::to_string(&line).expect("a line") + "\n"
    }

    /// Half a second of work in a second, on two streams at once, and then nothing.
    #[test]
    fn a_frame_has_what_is_new() {
        let mut state = State::default();
        let half = 500_000_000;
        let add = |begin| command("add", span(begin, begin + 100));
        // The later execution first: lines are in order of ends.
        let later = line(vec![add(100), add(200)], span(half / 2, half), None);
        state.add(&(later + &line(vec![command("scale", span(0, 600))], span(0, half / 2), None)));
        let frame = state.frame(1.0);
        let [device] = &frame.devices[..] else { panic!("{} devices", frame.devices.len()) };
        assert_eq!(device.busy, 0.5);
        let names: Vec<_> = device.kernels.iter().map(|kernel| (&kernel.name[..], kernel.count)).collect();
        assert_eq!(names, [("scale", 1), ("add", 2)]);
        assert_eq!((device.kernels[0].share, device.kernels[1].mean_ns), (0.75, Some(100)));
        assert_eq!((device.submissions, device.submissions_per_s), (2, 2.0));

        state.add(&line(vec![add(300)], span(2 * half, 2 * half + half / 2), Some("gone")));
        let frame = state.frame(0.5);
        let device = &frame.devices[0];
        assert_eq!((device.busy, device.submissions_per_s, device.failed), (0.5, 2.0, 1));
        assert_eq!((&device.kernels[0].name[..], device.kernels[0].share), ("add", 1.0));
        assert_eq!((device.kernels[1].per_s, device.kernels[1].mean_ns), (0.0, Some(600)));
        assert_eq!(frame.failures, [" 7: gone"]);

        let idle = state.frame(1.0);
        assert_eq!((idle.devices[0].busy, idle.devices[0].submissions), (0.0, 3));
        assert_eq!(idle.devices[0].history.len(), 3);
    }

    #[test]
    fn executions_at_the_same_time_are_counted_once() {
        let mut state = State::default();
        let all =
            [span(0, 400), span(100, 300), span(200, 600)].map(|at| line(Vec::new(), at, None)).concat();
        state.add(&all);
        assert!((state.frame(1e-3).devices[0].busy - 600e-9 / 1e-3).abs() < 1e-12);
    }

    #[test]
    fn other_lines_are_counted() {
        let mut state = State::default();
        state.add("{}\nnot json\n\n");
        assert_eq!((state.unknown, state.frame(1.0).devices.len()), (2, 0));
    }
}
