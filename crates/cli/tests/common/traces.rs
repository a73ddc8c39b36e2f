//! A program with several streams, batches, copies, a graph, a recording and faults is traced. Perfetto's own schema, of the Python
//! package `perfetto`, reads the file back, and the Chrome file is parsed here: every launch has one slice of the host, one of the
//! device, and one flow.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;

use elinvar::{Buffer, Device, Error, Graph, Grid, Kernel, Source, Timeline};
use elinvar_driver::Driver as _;
use elinvar_telemetry::{chrome, perfetto};
use serde_json::Value;

/// Quotes, control characters, a character of four bytes, and a text that closes a script element.
pub const HOSTILE: &str = "a \"label\"\\\n\r\t\u{1}\u{7f}\u{2028}</script>🦀";

const N: usize = 512;

/// Whether Python has the schema.
pub fn is_available(python: &str) -> bool {
    let script = "import perfetto.protos.perfetto.trace.perfetto_trace_pb2";
    Command::new(python).args(["-c", script]).output().is_ok_and(|output| output.status.success())
}

const TEXT: &str =
    "kernel void add(device uint* x, constant uint& k, uint i [[thread_position_in_grid]]) { x[i] += k; }
kernel void spin(device uint* x, uint i [[thread_position_in_grid]]) {
    uint v = x[i];
    for (uint n = 0; n < 2000; ++n) v = v * 1664525u + 1013904223u;
    x[i] = v;
}";

/// A device of its own, which no other test uses.
fn device() -> Device {
    Device::new(elinvar_driver_cpu::CpuDriver::with_threads(3).devices().unwrap().remove(0))
}

/// How often each launch is in the trace, by name.
type Counts = BTreeMap<String, usize>;

#[allow(unsafe_code)] // launches
fn launch(kernel: &Kernel, stream: &elinvar::Stream, x: &mut Buffer<u32>, k: u32) -> elinvar::Completion {
    // SAFETY: each thread accesses its own element.
    unsafe { kernel.launch(stream, Grid::threads(N), (x, k)) }.unwrap()
}

/// Runs the program. Returns its timeline, and how many commands of the device have each name.
#[allow(unsafe_code)] // launches
fn program(device: &Device) -> (Timeline, Counts) {
    let library = device.compile(Source::named("traced.metal", TEXT)).unwrap();
    let (add, spin) = (library.kernel("add").unwrap(), library.kernel("spin").unwrap());
    let checked = library.checked_kernel("spin").unwrap().labeled("out of bounds", 9);
    let (long, hostile) = ("long ".repeat(20_000), add.labeled(HOSTILE, 3));
    let long_name = add.labeled(&long, 4);
    let streams = [(); 3].map(|()| device.stream().unwrap());
    let mut buffers = [(); 3].map(|()| device.buffer::<u32>(N).unwrap());
    let mut short = device.buffer::<u32>(N - 1).unwrap();
    let mut counts = Counts::new();
    let mut count = |name: &str, times: usize| *counts.entry(name.into()).or_default() += times;

    let mut commands = streams[0].command_buffer();
    for k in 0..6_u32 {
        // SAFETY: each thread accesses its own element.
        unsafe { commands.launch(&add, Grid::threads(N), (&mut buffers[0], k)) }.unwrap();
    }
    let recording = commands.record().unwrap();
    let mut graph = Graph::new();
    for k in 0..4_u32 {
        // SAFETY: as above.
        let node = unsafe { graph.launch(&add, Grid::threads(N), (&mut buffers[1], k)) }.unwrap();
        graph.name(node, format!("step {k}")).unwrap();
    }
    let mut plan = graph.plan().unwrap();

    device.trace().start(1_000_000);
    for (stream, x) in streams.iter().zip(&mut buffers) {
        for k in 0..5 {
            launch(&add, stream, x, k);
        }
        let mut commands = stream.command_buffer();
        for _ in 0..10 {
            // SAFETY: as above.
            unsafe { commands.launch(&spin, Grid::threads(N), (&mut *x,)) }.unwrap();
        }
        commands.fill(&mut *x, 7).unwrap();
        commands.submit().unwrap();
        count("add", 5);
        count("spin", 10);
        count("fill", 1);
    }
    launch(&hostile, &streams[1], &mut buffers[1], 1).wait().unwrap();
    launch(&long_name, &streams[1], &mut buffers[1], 1).wait().unwrap();
    count(&format!("add: {HOSTILE}"), 1);
    count(&format!("add: {long}"), 1);
    let [first, second, third] = &mut buffers;
    let event = device.event().unwrap();
    streams[0].copy(&*second, &mut *first).unwrap();
    streams[0].signal(&event, 1).unwrap();
    let mut commands = streams[2].command_buffer();
    commands.wait_for(&event, 1);
    commands.copy(&*first, &mut *third).unwrap();
    commands.submit().unwrap();
    count("copy", 2);
    for _ in 0..3 {
        // SAFETY: as above.
        unsafe { streams[0].replay(&recording) }.unwrap();
        // SAFETY: as above.
        unsafe { plan.run(&streams[1]) }.unwrap();
    }
    count("add", 3 * (6 + 4));
    // The second launch of a batch faults; what is behind it does not run.
    let mut commands = streams[2].command_buffer();
    commands.launch_checked(&checked, Grid::threads(N - 1), (&mut short,)).unwrap();
    commands.launch_checked(&checked, Grid::threads(N), (&mut short,)).unwrap();
    commands.fill(third, 1).unwrap();
    let failed = commands.submit().unwrap();
    assert!(matches!(failed.wait(), Err(Error::Fault(_))));
    count("spin: out of bounds", 2);
    for stream in &streams[..2] {
        stream.synchronize().unwrap();
    }
    streams[2].acknowledge();
    device.trace().stop();
    (device.trace().timeline(), counts)
}

const SCRIPT: &str = r#"import json, sys
from collections import defaultdict
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

trace = schema.Trace()
read = trace.ParseFromString(open(sys.argv[1], 'rb').read())
size = trace.ByteSize()
trace.DiscardUnknownFields()
assert size == read == trace.ByteSize(), 'fields that the schema does not have'
counts, error, faults = json.load(open(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4])
E = schema.TrackEvent
tracks, stacks, slices, last = {}, defaultdict(list), [], {}
counters = defaultdict(list)
processes = []
snapshots = 0
about = None
for number, packet in enumerate(trace.packet):
    assert packet.trusted_packet_sequence_id == 1, packet
    if packet.HasField('clock_snapshot'):
        snapshots += 1
        clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
        assert set(clocks) == {1, 6, 128}, clocks
        assert clocks[6] == packet.timestamp, packet
        assert clocks[1] > 1_700_000_000 * 10**9, clocks
    elif packet.HasField('track_descriptor'):
        track = packet.track_descriptor
        assert track.uuid not in tracks
        tracks[track.uuid] = track
        if track.HasField('process'):
            processes.append(track.process)
        else:
            assert tracks[track.parent_uuid].HasField('process'), track
    elif packet.HasField('track_event'):
        event = packet.track_event
        assert event.track_uuid in tracks, event
        stack = stacks[event.track_uuid]
        if event.type == E.TYPE_SLICE_BEGIN:
            # Nested, or behind the last one of the track.
            assert packet.timestamp >= last.get(event.track_uuid, 0), event
            last[event.track_uuid] = packet.timestamp
            stack.append((packet.timestamp, event))
        elif event.type == E.TYPE_SLICE_END:
            begin, opened = stack.pop()
            assert packet.timestamp >= last[event.track_uuid], opened
            last[event.track_uuid] = packet.timestamp
            slices.append((tracks[event.track_uuid].name, begin, packet.timestamp, opened, len(stack)))
        elif event.type == E.TYPE_COUNTER:
            assert tracks[event.track_uuid].HasField('counter'), event
            counters[tracks[event.track_uuid].name].append((packet.timestamp, event.counter_value))
        else:
            assert event.type == E.TYPE_INSTANT, event
            if tracks[event.track_uuid].name == 'trace':
                about = {note.name: note for note in event.debug_annotations}
    else:
        raise AssertionError(packet)
assert not any(stacks.values())
assert len(processes) == 1 and processes[0].process_name.endswith('(cpu)'), processes
assert snapshots >= 2
assert about['error of device times, ns'].uint_value == error, about
assert about['lost events'].uint_value == 0

def of(part):
    return [s for s in slices if s[0].split(': ')[-1].split(' (')[0] == part and s[0].startswith('stream ')]

host, device, completion = of('host'), of('device'), of('completion')
assert len(host) + len(device) + len(completion) == len(slices)
# One lane each: work of a stream is in order.
assert not any('(' in name for name, *_ in device), {name for name, *_ in device}
assert all(depth == 0 for *_, depth in device)

by_flow = defaultdict(lambda: defaultdict(list))
for part, found in (('host', host), ('device', device)):
    for slice in found:
        assert not slice[3].terminating_flow_ids
        for flow in slice[3].flow_ids:
            by_flow[flow][part].append(slice)
for slice in completion:
    assert not slice[3].flow_ids
    for flow in slice[3].terminating_flow_ids:
        by_flow[flow]['completion'].append(slice)

def notes(slice):
    values = {}
    for note in slice[3].debug_annotations:
        values[note.name] = getattr(note, note.WhichOneof('value'))
    return values

seen, not_run = defaultdict(int), 0
for flow, parts in by_flow.items():
    # Exactly one slice of the host, and one completion.
    assert len(parts['host']) == 1 and len(parts['completion']) == 1, (flow, parts)
    [submitted], [completed] = parts['host'], parts['completion']
    if not parts['device']:
        assert 'error' in notes(completed)
        not_run += 1
        continue
    [ran] = parts['device']
    name = ran[3].name
    seen[name] += 1
    if 'recording' in notes(ran) or 'graph' in notes(ran):
        assert 'position' in notes(ran)
        if 'graph' in notes(ran):
            assert notes(ran)['node name'] == 'step %d' % notes(ran)['position'], notes(ran)
    else:
        assert submitted[3].name == name, (submitted[3].name, name)
    if name.startswith('add') or name.startswith('spin'):
        assert notes(ran)['threads'].endswith('×1×1'), notes(ran)
    assert submitted[1] <= ran[1] + error and ran[1] <= ran[2] <= completed[1] + error, (submitted, ran, completed)
    assert notes(ran)['submission'] == notes(completed)['submission']
assert dict(seen) == counts, [(k[:99], seen.get(k), counts.get(k)) for k in {*seen, *counts}]
assert not_run == 1, not_run
assert len(device) == sum(counts.values())
failed = [s for s in device if 'failed' in s[3].categories]
assert len(failed) == faults and all('out of bounds' in s[3].name and 'error' in notes(s) for s in failed), failed
assert all(notes(s)['measured'] is False for s in failed)
# The host's slice of the submission begins before the device runs it; those of one track do not overlap.
for track in {name for name, *_ in device}:
    spans = sorted((begin, end) for name, begin, end, *_ in device if name == track)
    assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:])), track
assert {'memory: live', 'memory: idle', 'submissions in flight', 'commands running'} <= set(counters), set(counters)
assert max(value for _, value in counters['memory: live']) >= 3 * 4 * 512
for name in ('submissions in flight', 'commands running'):
    assert counters[name][-1][1] == 0 and max(value for _, value in counters[name]) >= 1, (name, counters[name])
assert all(one[0] < other[0] for points in counters.values() for one, other in zip(points, points[1:]))
print(len(slices), 'slices,', len(by_flow), 'flows')
"#;

pub fn read_by_perfetto(python: &str) {
    let (timeline, counts) = program(&device());
    let folder = tempfile::tempdir().unwrap();
    let (file, expected) = (folder.path().join("trace.pftrace"), folder.path().join("counts.json"));
    std::fs::write(&file, perfetto::encode(std::slice::from_ref(&timeline))).unwrap();
    std::fs::write(&expected, serde_json::to_string(&counts).unwrap()).unwrap();
    let output = Command::new(python)
        .args(["-c", SCRIPT])
        .args([&file, &expected])
        .args([timeline.clock_error_ns.to_string(), "1".into()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", String::from_utf8_lossy(&output.stdout).trim());
}

pub fn read_as_json() {
    let (timeline, counts) = program(&device());
    let error_us = timeline.clock_error_ns as f64 / 1000.0 + 0.001;
    let text = chrome::to_json(&[timeline.clone(), timeline]);
    let file: Value = serde_json::from_str(&text).unwrap();
    for pid in [1, 2] {
        let events: Vec<&Value> =
            file["traceEvents"].as_array().unwrap().iter().filter(|event| event["pid"] == pid).collect();
        let of = |ph: &str| events.iter().copied().filter(|event| event["ph"] == ph).collect::<Vec<&Value>>();
        let slices = of("X");
        let mut seen = Counts::new();
        let mut device: HashMap<u64, Vec<(f64, f64)>> = HashMap::new();
        for slice in slices.iter().filter(|slice| slice["cat"] == "device") {
            *seen.entry(slice["name"].as_str().unwrap().into()).or_default() += 1;
            let (begin, took) = (slice["ts"].as_f64().unwrap(), slice["dur"].as_f64().unwrap());
            device.entry(slice["tid"].as_u64().unwrap()).or_default().push((begin, begin + took));
        }
        assert!(
            seen == counts,
            "{:?}",
            seen.iter().map(|(name, count)| (name.len(), count)).collect::<Vec<_>>()
        );
        for spans in device.values_mut() {
            spans.sort_by(|a, b| a.partial_cmp(b).unwrap());
            // Less than a nanosecond of rounding.
            assert!(spans.windows(2).all(|pair| pair[0].1 < pair[1].0 + 0.0005), "{spans:?}");
        }
        // A flow begins at the host's slice, and passes the device's on the way to the completion.
        let times = |ph: &str| -> BTreeMap<u64, f64> {
            let of = of(ph);
            let times: BTreeMap<u64, f64> = of
                .iter()
                .map(|event| (event["id"].as_u64().unwrap(), event["ts"].as_f64().unwrap()))
                .collect();
            assert_eq!(times.len(), of.len(), "each flow is at one slice");
            times
        };
        let (begins, steps, ends) = (times("s"), times("t"), times("f"));
        assert_eq!(steps.len(), counts.values().sum::<usize>());
        assert_eq!(begins.len(), steps.len() + 1, "one command did not run");
        assert!(begins.keys().eq(ends.keys()));
        for (id, at) in &steps {
            assert!(begins[id] <= at + error_us && *at <= ends[id] + error_us);
        }
        let failed: Vec<&&Value> = slices.iter().filter(|slice| slice["cname"] == "terrible").collect();
        assert!(
            failed.iter().all(|slice| slice["args"]["error"].as_str().unwrap().contains("out of bounds"))
        );
        // The submission, its launch, and its completion.
        assert_eq!(failed.len(), 3);
        let names: Vec<&str> = of("M").iter().filter_map(|event| event["args"]["name"].as_str()).collect();
        assert_eq!(names.iter().filter(|name| name.ends_with(": device")).count(), 3, "{names:?}");
        assert!(of("C").iter().any(|event| event["name"] == "memory: live"));
    }
    assert_eq!(file["otherData"]["devices"].as_array().unwrap().len(), 2);
}
