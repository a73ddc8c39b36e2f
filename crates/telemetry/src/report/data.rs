//! The data of a report: tracks of slices, statistics of kernels, memory, failures, compilations.
//!
//! Times are nanoseconds since the first event of any device. Slices are columns, and their texts numbers in a table, since there are many.

use std::collections::{BTreeMap, HashMap};

use elinvar::{ProfileCommand, ProfileEvent, ProfileLine, ProfileMetric, ProfileRoofs, ProfileSubmission};
use serde::Serialize;
use serde_json::Value as Json;

use super::advice;

/// A device of a process, with what it did.
#[derive(Default)]
pub(super) struct Device<'l> {
    about: Option<&'l ProfileEvent>,
    pub(super) submissions: Vec<&'l ProfileSubmission>,
    memory: Vec<[u64; 3]>,
    pub(super) metrics: &'l [ProfileMetric],
    roofs: Option<ProfileRoofs>,
}

/// What is measured of the launches of a kernel, or of copies or fills.
#[derive(Debug, Serialize)]
pub(super) struct Kernel {
    pub(super) device: usize,
    pub(super) name: String,
    pub(super) is_launch: bool,
    pub(super) launches: usize,
    /// Number of those that the device has measured by themselves. The times are of these.
    pub(super) measured: usize,
    pub(super) total_ns: u64,
    /// Part of the time of all measured commands of the device.
    share: f64,
    mean_ns: u64,
    pub(super) median_ns: u64,
    p99_ns: u64,
    /// Bytes of the memory that measured launches bind, or that copies and fills move.
    bytes: u64,
    /// Floating-point operations, bytes touched and time of the measured launches whose work is known.
    flops: f64,
    touched: f64,
    work_ns: u64,
    failed: usize,
    /// Time of recording on the host.
    pub(super) host_ns: u64,
}

#[derive(Default, Serialize)]
struct Track {
    name: String,
    begin: Vec<u64>,
    duration: Vec<u64>,
    /// 1 if it is within the previous slice of depth 0.
    depth: Vec<u8>,
    /// Places in the table of texts.
    name_at: Vec<usize>,
    detail_at: Vec<usize>,
    submission: Vec<u64>,
    /// Number of the command, unique in the file, which host and device share; 0 for none.
    flow: Vec<usize>,
    failed: Vec<u8>,
}

#[derive(Serialize)]
struct DeviceData {
    name: String,
    kind: String,
    program: String,
    version: String,
    process: u32,
    compute_units: u32,
    clock_error_ns: u64,
    lost: u64,
    submissions: usize,
    tracks: Vec<Track>,
    /// Time, live bytes, idle bytes.
    memory: Vec<[u64; 3]>,
    metrics: Vec<ProfileMetric>,
    roofs: Option<ProfileRoofs>,
}

#[derive(Serialize)]
struct Failure {
    device: usize,
    at_ns: u64,
    submission: u64,
    name: String,
    text: String,
}

#[derive(Serialize)]
struct Data {
    texts: Vec<String>,
    devices: Vec<DeviceData>,
    kernels: Vec<Kernel>,
    failures: Vec<Failure>,
    advice: Vec<advice::Advice>,
    end_ns: u64,
    unix_ns: u64,
}

/// Texts, each once.
#[derive(Default)]
struct Texts {
    texts: Vec<String>,
    places: HashMap<String, usize>,
}

impl Texts {
    fn place(&mut self, text: String) -> usize {
        *self.places.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            self.texts.len() - 1
        })
    }
}

pub(super) fn of(lines: &[ProfileLine]) -> Json {
    let mut devices: BTreeMap<(u32, usize), Device<'_>> = BTreeMap::new();
    for line in lines {
        let device = devices.entry((line.process, line.device)).or_default();
        match &line.event {
            ProfileEvent::About { .. } => device.about = Some(&line.event),
            ProfileEvent::Submission(submission) => device.submissions.push(submission),
            ProfileEvent::Memory { at_ns, live_bytes, idle_bytes } => {
                device.memory.push([*at_ns, *live_bytes, *idle_bytes]);
            }
            ProfileEvent::Metrics(metrics) => device.metrics = metrics,
            ProfileEvent::Roofs(roofs) => device.roofs = Some(*roofs),
            _ => {}
        }
    }
    // Devices that did nothing are left out.
    devices.retain(|_, device| !device.submissions.is_empty() || !device.memory.is_empty());
    let base_ns = devices.values().map(|device| device.first_ns()).min().unwrap_or(0);
    let mut data = Data {
        texts: Vec::new(),
        devices: Vec::new(),
        kernels: Vec::new(),
        failures: Vec::new(),
        advice: Vec::new(),
        end_ns: 0,
        unix_ns: base_ns,
    };
    let (mut texts, mut flows) = (Texts::default(), 0);
    for (at, ((process, _), device)) in devices.iter().enumerate() {
        let shift = |ns: u64| (ns.saturating_add(device.unix_ns())).saturating_sub(base_ns);
        let kernels = kernels(at, device);
        data.advice.extend(advice::of(device, &kernels));
        data.failures.extend(device.submissions.iter().flat_map(|it| failures(at, it, &shift)));
        data.kernels.extend(kernels);
        data.devices.push(device.data(*process, &shift, &mut texts, &mut flows));
    }
    data.failures.sort_by_key(|failure| failure.at_ns);
    let tracks = data.devices.iter().flat_map(|device| &device.tracks);
    let ends = tracks.flat_map(|track| track.begin.iter().zip(&track.duration).map(|(b, d)| b + d));
    let memory = data.devices.iter().flat_map(|device| &device.memory).map(|sample| sample[0]);
    data.end_ns = ends.chain(memory).max().unwrap_or(0);
    data.texts = texts.texts;
    // Without maps whose keys are no strings, it cannot fail.
    serde_json::to_value(&data).unwrap_or_default()
}

impl Device<'_> {
    fn unix_ns(&self) -> u64 {
        match self.about {
            Some(ProfileEvent::About { unix_ns, .. }) => *unix_ns,
            _ => 0,
        }
    }

    /// Number of a metric.
    pub(super) fn count(&self, name: &str, attributes: &[&str]) -> f64 {
        let is_it = |metric: &&ProfileMetric| metric.name == name && metric.attributes == attributes;
        self.metrics.iter().find(is_it).map_or(0.0, |metric| metric.value)
    }

    /// The system's time of the first event.
    fn first_ns(&self) -> u64 {
        let begins = self.submissions.iter().map(|submission| {
            let executed = submission.executed.map_or(u64::MAX, |span| span.begin_ns);
            submission.recorded_ns[0].min(executed)
        });
        let first = begins.chain(self.memory.iter().map(|sample| sample[0])).min().unwrap_or(0);
        self.unix_ns().saturating_add(first)
    }

    fn data(
        &self,
        process: u32,
        shift: &impl Fn(u64) -> u64,
        texts: &mut Texts,
        flows: &mut usize,
    ) -> DeviceData {
        let mut streams: BTreeMap<u64, [Vec<Slice>; 2]> = BTreeMap::new();
        for submission in &self.submissions {
            let [host, device] = streams.entry(submission.stream).or_default();
            add(submission, shift, texts, flows, host, device);
        }
        let mut tracks = Vec::new();
        for (number, parts) in streams {
            for (part, slices) in ["host", "device"].into_iter().zip(parts) {
                for (lane, slices) in lanes(slices).into_iter().enumerate() {
                    let lane = if lane == 0 { String::new() } else { format!(" ({})", lane + 1) };
                    let mut track =
                        Track { name: format!("stream {number}: {part}{lane}"), ..Track::default() };
                    slices.into_iter().for_each(|slice| track.add(slice, 0));
                    tracks.push(track);
                }
            }
        }
        let mut memory: Vec<[u64; 3]> =
            self.memory.iter().map(|[at, live, idle]| [shift(*at), *live, *idle]).collect();
        memory.sort_unstable();
        let mut data = DeviceData {
            name: "a device".into(),
            kind: String::new(),
            program: String::new(),
            version: String::new(),
            process,
            compute_units: 0,
            clock_error_ns: 0,
            lost: 0,
            submissions: self.submissions.len(),
            tracks,
            memory,
            metrics: self.metrics.to_vec(),
            roofs: self.roofs,
        };
        if let Some(ProfileEvent::About {
            name,
            kind,
            program,
            version,
            compute_units,
            clock_error_ns,
            lost,
            ..
        }) = self.about
        {
            (data.name, data.kind) = (name.clone(), kind.clone());
            (data.program, data.version) = (program.clone(), version.clone());
            (data.compute_units, data.clock_error_ns, data.lost) = (*compute_units, *clock_error_ns, *lost);
        }
        data
    }
}

struct Slice {
    span: [u64; 2],
    name: usize,
    detail: usize,
    submission: u64,
    flow: usize,
    failed: bool,
    children: Vec<Slice>,
}

impl Track {
    fn add(&mut self, slice: Slice, depth: u8) {
        self.begin.push(slice.span[0]);
        self.duration.push(slice.span[1].saturating_sub(slice.span[0]));
        self.depth.push(depth);
        self.name_at.push(slice.name);
        self.detail_at.push(slice.detail);
        self.submission.push(slice.submission);
        self.flow.push(slice.flow);
        self.failed.push(slice.failed.into());
        slice.children.into_iter().for_each(|child| self.add(child, depth + 1));
    }
}

/// Adds the slices of a submission.
fn add(
    submission: &ProfileSubmission,
    shift: &impl Fn(u64) -> u64,
    texts: &mut Texts,
    flows: &mut usize,
    host: &mut Vec<Slice>,
    device: &mut Vec<Slice>,
) {
    let error = submission.error.as_deref();
    let number = submission.number;
    let shifted = |[begin, end]: [u64; 2]| [shift(begin), shift(end.max(begin))];
    let mut children = Vec::new();
    let mut own_flow = 0;
    for command in submission.commands.iter().filter(|command| command.is_work) {
        *flows += 1;
        let name = texts.place(name(command));
        let detail = texts.place(detail(command));
        let slice = |span, failed| Slice {
            span: shifted(span),
            name,
            detail,
            submission: number,
            flow: *flows,
            failed,
            children: Vec::new(),
        };
        match command.origin {
            // Recorded by one call.
            Some(_) => own_flow = *flows,
            None => children.push(slice(command.host_ns, false)),
        }
        if let Some(span) = command.executed {
            device.push(slice([span.begin_ns, span.end_ns], command.error.is_some()));
        }
    }
    let title = texts.place(title(submission));
    let text = match error {
        Some(error) => format!("commands: {}\nerror: {error}", submission.command_count),
        None => format!("commands: {}", submission.command_count),
    };
    let text = texts.place(text);
    let whole = |span, children| Slice {
        span: shifted(span),
        name: title,
        detail: text,
        submission: number,
        flow: own_flow,
        failed: error.is_some(),
        children,
    };
    if let Some(span) = submission.executed
        && !submission.commands.iter().any(|command| command.executed.is_some())
    {
        device.push(whole([span.begin_ns, span.end_ns], Vec::new()));
    }
    host.push(whole(submission.recorded_ns, children));
}

/// Name of the kernel or operation, and the label.
fn name(command: &ProfileCommand) -> String {
    match &command.label {
        Some(label) => format!("{}: {label}", command.name),
        None => command.name.clone(),
    }
}

/// Name of a submission: that of its only command, or the first and the number of others.
fn title(submission: &ProfileSubmission) -> String {
    let mut works = submission.commands.iter().filter(|command| command.is_work);
    let left_out = submission.command_count.saturating_sub(submission.commands.len());
    match (works.next(), works.count() + left_out) {
        (Some(only), 0) => name(only),
        (Some(first), others) => format!("{} and {others} more", name(first)),
        (None, _) => submission.commands.first().map_or_else(|| "empty".into(), name),
    }
}

fn detail(command: &ProfileCommand) -> String {
    let size = |[x, y, z]: [u32; 3]| format!("{x}×{y}×{z}");
    let mut parts = Vec::new();
    parts.extend(command.threads.map(|threads| format!("grid {} threads", size(threads))));
    parts.extend(command.group.map(|group| format!("threadgroups of {}", size(group))));
    parts.extend(command.bytes.map(|bytes| {
        let what = if command.is_launch { "bound" } else { "moved" };
        format!("{bytes} bytes {what}")
    }));
    parts.extend(command.origin.clone());
    if command.executed.is_some_and(|span| !span.is_measured) {
        parts.push("device time not measured: within this span".into());
    }
    parts.extend(command.error.iter().map(|error| format!("error: {error}")));
    parts.join("\n")
}

fn kernels(device: usize, of: &Device<'_>) -> Vec<Kernel> {
    #[derive(Default)]
    struct Sums {
        times: Vec<u64>,
        launches: usize,
        bytes: u64,
        flops: f64,
        touched: f64,
        work_ns: u64,
        failed: usize,
        host_ns: u64,
    }
    let mut by_name: BTreeMap<(bool, &str), Sums> = BTreeMap::new();
    let commands = of.submissions.iter().flat_map(|submission| &submission.commands);
    for command in commands.filter(|command| command.is_work) {
        let sums = by_name.entry((command.is_launch, &command.name)).or_default();
        sums.launches += 1;
        sums.failed += usize::from(command.error.is_some());
        if command.origin.is_none() {
            sums.host_ns += command.host_ns[1].saturating_sub(command.host_ns[0]);
        }
        if let Some(span) = command.executed.filter(|span| span.is_measured) {
            sums.times.push(span.end_ns.saturating_sub(span.begin_ns));
            sums.bytes = sums.bytes.saturating_add(command.bytes.unwrap_or(0));
            if let Some(work) = command.work {
                sums.flops += work.flops;
                sums.touched += work.bytes;
                sums.work_ns += span.end_ns.saturating_sub(span.begin_ns);
            }
        }
    }
    let all: u64 = by_name.values().flat_map(|sums| &sums.times).sum();
    let kernel = |((is_launch, name), mut sums): ((bool, &str), Sums)| {
        sums.times.sort_unstable();
        let count = sums.times.len();
        // The smallest value that at least this part of the values does not exceed.
        let quantile = |percent: usize| {
            let rank = (count * percent).div_ceil(100).max(1);
            sums.times.get(rank - 1).copied().unwrap_or(0)
        };
        let total_ns: u64 = sums.times.iter().sum();
        Kernel {
            device,
            name: name.to_owned(),
            is_launch,
            launches: sums.launches,
            measured: count,
            total_ns,
            share: if all == 0 { 0.0 } else { total_ns as f64 / all as f64 },
            mean_ns: total_ns.checked_div(count as u64).unwrap_or(0),
            median_ns: quantile(50),
            p99_ns: quantile(99),
            bytes: sums.bytes,
            flops: sums.flops,
            touched: sums.touched,
            work_ns: sums.work_ns,
            failed: sums.failed,
            host_ns: sums.host_ns,
        }
    };
    let mut kernels: Vec<Kernel> = by_name.into_iter().map(kernel).collect();
    kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.total_ns));
    kernels
}

fn failures(device: usize, of: &ProfileSubmission, shift: &impl Fn(u64) -> u64) -> Vec<Failure> {
    let failure = |at: u64, text: &str| Failure {
        device,
        at_ns: shift(at),
        submission: of.number,
        name: title(of),
        text: text.to_owned(),
    };
    let end = of.completed_ns.map_or(of.recorded_ns[1], |span| span[0]);
    let notes = of.notes.iter().map(|(at, text)| failure(*at, text));
    notes.chain(of.error.iter().map(|error| failure(end, error))).collect()
}

/// Distributes slices to as few lanes as possible, on each of which none begins before the previous one has ended. At least one.
fn lanes(mut slices: Vec<Slice>) -> Vec<Vec<Slice>> {
    slices.sort_by_key(|slice| slice.span);
    let mut lanes: Vec<Vec<Slice>> = vec![Vec::new()];
    for slice in slices {
        let is_free = |lane: &&mut Vec<Slice>| lane.last().is_none_or(|last| last.span[1] <= slice.span[0]);
        match lanes.iter_mut().find(is_free) {
            Some(lane) => lane.push(slice),
            None => lanes.push(vec![slice]),
        }
    }
    lanes
}
