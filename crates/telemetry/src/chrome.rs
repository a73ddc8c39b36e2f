//! Traces in the JSON format of Chrome's trace viewer
//! ([Trace Event Format](https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU)), which many tools read.
//!
//! Times are in microseconds, with three decimals, on the host's clock.

use elinvar::Timeline;
use serde_json::{Map, Value as Json, json};

use crate::trace::{Args, Process, Slice, Step, Value};

/// Formats timelines of devices of this process as JSON, one event a line.
pub fn to_json(timelines: &[Timeline]) -> String {
    let mut events = Vec::new();
    let mut about = Vec::new();
    for (process, pid) in Process::all(timelines).iter().zip(1_u64..) {
        add(process, pid, &mut events);
        let timeline = process.timeline;
        about.push(json!({
            "pid": pid,
            "device": timeline.device,
            "error_of_device_times_ns": timeline.clock_error_ns,
            "lost_events": timeline.lost,
        }));
    }
    let lines: Vec<String> = events.iter().map(Json::to_string).collect();
    let about = Json::from(about);
    format!(
        "{{\"traceEvents\":[\n{}\n],\"displayTimeUnit\":\"ns\",\"otherData\":{{\"devices\":{about}}}}}\n",
        lines.join(",\n")
    )
}

fn add(process: &Process<'_>, pid: u64, events: &mut Vec<Json>) {
    events.push(json!({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process.name}}));
    for (track, tid) in process.tracks.iter().zip(1_u64..) {
        events.push(
            json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": track.name}}),
        );
        events.push(json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}));
        for slice in &track.slices {
            add_slice(slice, (pid, tid), events);
        }
        for instant in &track.instants {
            let (ts, args) = (micros(instant.at_ns), args(&instant.args));
            let name = &instant.name;
            events.push(
                json!({"ph": "i", "s": "t", "pid": pid, "tid": tid, "ts": ts, "name": name, "args": args}),
            );
        }
    }
    for counter in &process.counters {
        for (at_ns, value) in &counter.points {
            let (name, ts) = (counter.name, micros(*at_ns));
            events.push(json!({"ph": "C", "pid": pid, "ts": ts, "name": name, "args": {"value": value}}));
        }
    }
}

fn add_slice(slice: &Slice, (pid, tid): (u64, u64), events: &mut Vec<Json>) {
    let (ts, dur) = (micros(slice.begin_ns), micros(slice.end_ns - slice.begin_ns));
    let mut event = json!({
        "ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur,
        "name": slice.name, "cat": slice.category, "args": args(&slice.args),
    });
    if slice.has_failed {
        event["cname"] = "terrible".into();
    }
    events.push(event);
    let ph = match slice.step {
        Step::Begin => "s",
        Step::Middle => "t",
        Step::End => "f",
    };
    for id in &slice.flows {
        // `bp`: bound to the slice around it, not to the next one.
        events.push(json!({
            "ph": ph, "bp": "e", "id": id, "pid": pid, "tid": tid, "ts": ts, "name": "command", "cat": "flow",
        }));
    }
    for child in &slice.children {
        add_slice(child, (pid, tid), events);
    }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn args(args: &Args) -> Json {
    let value = |(name, value): &(&str, Value)| {
        let value = match value {
            Value::Text(text) => text.as_str().into(),
            Value::Count(count) => (*count).into(),
            Value::Flag(flag) => (*flag).into(),
        };
        ((*name).to_owned(), value)
    };
    Json::Object(args.iter().map(value).collect::<Map<String, Json>>())
}
