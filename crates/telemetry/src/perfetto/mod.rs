//! Traces in [Perfetto's](https://perfetto.dev) protobuf format, for <https://ui.perfetto.dev> and its trace processor.
//!
//! Times are on the host's clock, whose zero is in the process (the file calls it the boot-time clock). Clock snapshots relate it to the
//! system's time and to the clock of each device.

mod schema;

use elinvar::Timeline;
use prost::Message as _;

use crate::trace::{Args, Counter, Process, Slice, Step, Track, Unit, Value};
use schema::{
    AnnotationValue, Clock, ClockSnapshot, CounterDescriptor, CounterUnit, Data, DebugAnnotation,
    ProcessDescriptor, TracePacket, TrackDescriptor, TrackEvent, TrackEventType,
};

/// `BUILTIN_CLOCK_REALTIME` of `builtin_clock.proto`.
const REALTIME: u32 = 1;
/// `BUILTIN_CLOCK_BOOTTIME`, the default of timestamps.
const BOOTTIME: u32 = 6;
/// The first number of clocks that a program defines for a whole trace (`clock_snapshot.proto`).
const FIRST_OWN_CLOCK: u32 = 128;
/// All packets are of one sequence.
const SEQUENCE: u32 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED` of `trace_packet.proto`.
const CLEARED: u32 = 1;

/// Encodes timelines of devices of this process as a Perfetto trace.
///
/// ```no_run
/// # fn main() -> elinvar::Result<()> {
/// let device = elinvar::Device::system_default()?;
/// device.trace().start(100_000);
/// // … launches …
/// device.trace().stop();
/// let file = elinvar_telemetry::perfetto::encode(&[device.trace().timeline()]);
/// std::fs::write("launches.pftrace", file).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn encode(timelines: &[Timeline]) -> Vec<u8> {
    let mut trace = Encoder::default();
    for (number, process) in Process::all(timelines).iter().enumerate() {
        trace.process(number as u32, process);
    }
    trace.trace.encode_to_vec()
}

#[derive(Default)]
struct Encoder {
    trace: schema::Trace,
    /// Number of tracks so far.
    tracks: u64,
}

impl Encoder {
    fn push(&mut self, timestamp: Option<u64>, data: Data) {
        let sequence_flags = self.trace.packet.is_empty().then_some(CLEARED);
        let trusted_packet_sequence_id = Some(SEQUENCE);
        self.trace.packet.push(TracePacket {
            timestamp,
            trusted_packet_sequence_id,
            sequence_flags,
            data: Some(data),
        });
    }

    /// Adds a track; returns its number.
    fn track(&mut self, descriptor: TrackDescriptor) -> u64 {
        self.tracks += 1;
        let uuid = Some(self.tracks);
        self.push(None, Data::TrackDescriptor(TrackDescriptor { uuid, ..descriptor }));
        self.tracks
    }

    fn process(&mut self, number: u32, process: &Process<'_>) {
        let timeline = process.timeline;
        for sample in &timeline.clock_samples {
            let clock = |clock_id, timestamp| Clock { clock_id: Some(clock_id), timestamp: Some(timestamp) };
            let clocks = vec![
                clock(BOOTTIME, sample.host_ns),
                clock(REALTIME, timeline.unix_ns + sample.host_ns),
                clock(FIRST_OWN_CLOCK + number, sample.device_ns),
            ];
            self.push(Some(sample.host_ns), Data::ClockSnapshot(ClockSnapshot { clocks }));
        }
        let descriptor = ProcessDescriptor {
            pid: Some(i32::try_from(number).unwrap_or(i32::MAX - 1) + 1),
            process_name: Some(process.name.clone()),
        };
        let device = self.track(TrackDescriptor { process: Some(descriptor), ..TrackDescriptor::default() });
        for track in &process.tracks {
            self.events(device, track);
        }
        for counter in &process.counters {
            self.counter(device, counter);
        }
    }

    fn events(&mut self, device: u64, track: &Track) {
        let name = Some(track.name.clone());
        let uuid =
            self.track(TrackDescriptor { name, parent_uuid: Some(device), ..TrackDescriptor::default() });
        for slice in &track.slices {
            self.slice(uuid, slice);
        }
        for instant in &track.instants {
            let event =
                TrackEvent { name: Some(instant.name.clone()), ..event(uuid, TrackEventType::Instant) };
            let event = TrackEvent { debug_annotations: annotations(&instant.args), ..event };
            self.push(Some(instant.at_ns), Data::TrackEvent(event));
        }
    }

    fn slice(&mut self, uuid: u64, slice: &Slice) {
        let mut categories = vec![slice.category.to_owned()];
        categories.extend(slice.has_failed.then(|| "failed".to_owned()));
        let flows = slice.flows.clone();
        let (flow_ids, terminating_flow_ids) = match slice.step {
            Step::Begin | Step::Middle => (flows, Vec::new()),
            Step::End => (Vec::new(), flows),
        };
        let begin = TrackEvent {
            name: Some(slice.name.clone()),
            categories,
            debug_annotations: annotations(&slice.args),
            flow_ids,
            terminating_flow_ids,
            ..event(uuid, TrackEventType::SliceBegin)
        };
        self.push(Some(slice.begin_ns), Data::TrackEvent(begin));
        for child in &slice.children {
            self.slice(uuid, child);
        }
        self.push(Some(slice.end_ns), Data::TrackEvent(event(uuid, TrackEventType::SliceEnd)));
    }

    fn counter(&mut self, device: u64, counter: &Counter) {
        let unit = match counter.unit {
            Unit::Bytes => CounterUnit::SizeBytes,
            Unit::Count => CounterUnit::Count,
        };
        let uuid = self.track(TrackDescriptor {
            name: Some(counter.name.to_owned()),
            parent_uuid: Some(device),
            counter: Some(CounterDescriptor { unit: Some(unit.into()) }),
            ..TrackDescriptor::default()
        });
        for (at_ns, value) in &counter.points {
            let counter_value = Some(i64::try_from(*value).unwrap_or(i64::MAX));
            let event = TrackEvent { counter_value, ..event(uuid, TrackEventType::Counter) };
            self.push(Some(*at_ns), Data::TrackEvent(event));
        }
    }
}

fn event(uuid: u64, kind: TrackEventType) -> TrackEvent {
    TrackEvent { r#type: Some(kind.into()), track_uuid: Some(uuid), ..TrackEvent::default() }
}

fn annotations(args: &Args) -> Vec<DebugAnnotation> {
    let annotation = |(name, value): &(&str, Value)| {
        let value = match value {
            Value::Text(text) => AnnotationValue::Text(text.clone()),
            Value::Count(count) => AnnotationValue::Uint(*count),
            Value::Flag(flag) => AnnotationValue::Bool(*flag),
        };
        DebugAnnotation { name: Some((*name).to_owned()), value: Some(value) }
    };
    args.iter().map(annotation).collect()
}
