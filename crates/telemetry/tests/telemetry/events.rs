//! Spans and events of the runtime are those that `docs/tracing.md` lists: name, level and fields.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use elinvar::{BreakerLimits, Device, Error, Graph, Grid, RecoveryPolicy, Source};
use elinvar_conformance::sim::{Op, Sim};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::support::{device, kernel, launch};

/// A span that has closed, or an event.
#[derive(Clone, Debug)]
struct Seen {
    name: &'static str,
    level: Level,
    /// Names of all fields but the message.
    fields: Vec<&'static str>,
    values: BTreeMap<&'static str, String>,
    parents: Vec<&'static str>,
}

#[derive(Default)]
struct Values(BTreeMap<&'static str, String>);

impl Visit for Values {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

/// Keeps everything of the target `elinvar`.
struct Collector(Arc<Mutex<Vec<Seen>>>);

fn seen(metadata: &'static Metadata<'static>, values: Values, parents: Vec<&'static str>) -> Seen {
    let fields = metadata.fields().iter().map(|field| field.name()).filter(|name| *name != "message");
    Seen {
        name: metadata.name(),
        level: *metadata.level(),
        fields: fields.collect(),
        values: values.0,
        parents,
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        matches!(metadata.target(), "elinvar" | "user")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut values = Values::default();
        attributes.record(&mut values);
        context.span(id).unwrap().extensions_mut().insert(values);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        record.record(span.extensions_mut().get_mut::<Values>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut values = Values::default();
        event.record(&mut values);
        let parents = context.event_scope(event).into_iter().flatten().map(|span| span.name()).collect();
        self.0.lock().unwrap().push(seen(event.metadata(), values, parents));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let values = span.extensions_mut().remove::<Values>().unwrap();
        let parents = span.scope().skip(1).map(|span| span.name()).collect();
        self.0.lock().unwrap().push(seen(span.metadata(), values, parents));
    }
}

/// What this process has reported.
fn all() -> MutexGuard<'static, Vec<Seen>> {
    static ALL: OnceLock<Arc<Mutex<Vec<Seen>>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let all = Arc::default();
        let subscriber = tracing_subscriber::registry().with(Collector(Arc::clone(&all)));
        tracing::subscriber::set_global_default(subscriber).unwrap();
        all
    });
    all.lock().unwrap()
}

/// Those with this value of a field. A submission's waiter may return before its span has closed.
#[track_caller]
fn wait_for(name: &str, field: &str, value: &str, count: usize) -> Vec<Seen> {
    let is_it =
        |seen: &&Seen| seen.name == name && seen.values.get(field).is_some_and(|found| found == value);
    for _ in 0..2000 {
        let found: Vec<Seen> = all().iter().filter(is_it).cloned().collect();
        if found.len() >= count {
            assert_eq!(found.len(), count, "{found:?}");
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not {count} of {name} with {field} = {value}: {:?}", *all());
}

fn submissions_have_the_spans_of_their_callers_as_parents() {
    let device = device();
    let (triple, stream) = (kernel(&device, "triple_traced"), device.stream().unwrap());
    let mut x = device.buffer_with_data(&[1_u32; 100]).unwrap();
    let timing = {
        let _request = tracing::info_span!(target: "user", "request").entered();
        launch(&triple, &stream, &mut x).wait().unwrap()
    };
    let alone = launch(&triple, &stream, &mut x);
    alone.wait().unwrap();
    let spans = wait_for("elinvar.submission", "kernel", "triple_traced", 2);
    assert_eq!((&*spans[0].parents, &*spans[1].parents), (&["request"][..], &[][..]));
    assert_eq!(spans[0].values["device.duration_ns"], (timing.end_ns - timing.start_ns).to_string());
    assert_eq!((&*spans[0].values["commands"], &*spans[0].values["result"]), ("1", "ok"));
    assert_eq!(wait_for("elinvar.kernel", "kernel", "triple_traced", 1)[0].values["result"], "ok");
    // The submissions of a graph are its children.
    let mut graph = Graph::new();
    // SAFETY: each thread accesses its own element.
    #[allow(unsafe_code)]
    unsafe { graph.launch(&triple, Grid::threads(100), (&mut x,)) }.unwrap();
    let mut plan = graph.plan().unwrap();
    // SAFETY: as above.
    #[allow(unsafe_code)]
    unsafe { plan.run(&stream) }.unwrap().wait().unwrap();
    let spans = wait_for("elinvar.submission", "kernel", "triple_traced", 3);
    assert_eq!(spans[2].parents, ["elinvar.graph"]);
}

fn failures_are_events_within_their_submission_and_have_no_source() {
    let device = device();
    let text = "kernel void out_of_bounds(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = 1; }";
    let checked = device.compile(Source::msl(text)).unwrap().checked_kernel("out_of_bounds").unwrap();
    let (stream, mut x) = (device.stream().unwrap(), device.buffer::<u32>(10).unwrap());
    let faulty = checked.launch(&stream, Grid::threads(11), (&mut x,)).unwrap();
    let behind = checked.launch(&stream, Grid::threads(10), (&mut x,)).unwrap();
    assert!(faulty.wait().is_err() && behind.wait().is_err());
    let spans = wait_for("elinvar.submission", "kernel", "out_of_bounds", 2);
    assert_eq!((&*spans[0].values["result"], &*spans[1].values["result"]), ("kernel_fault", "earlier_work"));
    let failed = wait_for("elinvar.submission.failed", "kernel", "out_of_bounds", 2);
    assert_eq!(failed[0].parents, ["elinvar.submission"]);
    assert_eq!((failed[0].level, failed[1].level), (Level::WARN, Level::DEBUG));
    assert!(failed[0].values["message"].contains("out_of_bounds"), "{failed:?}");

    assert!(device.compile(Source::named("wrong.metal", "kernel void wrong() { sekret = 1; }")).is_err());
    let wrong = wait_for("elinvar.compile", "source", "wrong.metal", 1);
    assert_eq!(wrong[0].values["result"], "wrong_call");
    let all = all();
    let failed = all.iter().find(|seen| {
        seen.name == "elinvar.compile.failed" && seen.values["message"].starts_with("wrong.metal:1:23: ")
    });
    let failed = failed.unwrap_or_else(|| panic!("{all:?}"));
    assert_eq!(failed.parents, ["elinvar.compile"]);
    // The message names the identifier; the line of the source is not in it.
    assert!(!failed.values["message"].contains("sekret = 1"), "{failed:?}");
}

fn recovery_reports_its_decisions_and_the_breaker() {
    let sim = Sim::named("the traced one");
    let device = Device::new(sim.clone());
    let limits =
        BreakerLimits { failures: 2, cooldown: Duration::from_millis(1), longest: Duration::from_millis(1) };
    device.breaker().set_limits(limits);
    let once = RecoveryPolicy { attempts: 1, ..RecoveryPolicy::of(&device) };
    let fail = || {
        sim.fail_next(Op::Queue, Error::Environment("injected".into()));
        assert!(device.recover(&once, || device.stream()).is_err());
    };
    fail();
    fail();
    std::thread::sleep(Duration::from_millis(5));
    device.recover(&once, || device.stream()).unwrap();
    device.reset().unwrap();
    sim.fail_next(Op::Queue, Error::DeviceLost("unplugged".into()));
    sim.fail_next(Op::Reset, Error::DeviceLost("unplugged".into()));
    assert!(device.recover(&once, || device.stream()).is_err());
    drop(device.reset());
    let all = all();
    let of = |name: &str, field: &str| -> Vec<String> {
        let of = all.iter().filter(|seen| seen.name == name && seen.values["device"] == "the traced one");
        of.map(|seen| format!("{} {}", seen.level, seen.values[field])).collect()
    };
    let states = ["WARN open", "INFO half_open", "INFO closed", "ERROR terminal"];
    assert_eq!(of("elinvar.breaker.changed", "state")[..4], states);
    assert_eq!(of("elinvar.recovery.decision", "action"), ["WARN give up"; 3]);
    assert_eq!(of("elinvar.device.lost", "message"), ["ERROR device lost: unplugged"]);
    assert_eq!(of("elinvar.device.reset", "result"), ["WARN ok", "ERROR device_lost"]);
}

/// A subscriber that panics when a submission ends.
struct Panicking;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Panicking {
    fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {
        panic!("the subscriber's own");
    }

    fn on_close(&self, _: Id, _: Context<'_, S>) {
        panic!("the subscriber's own");
    }
}

fn a_subscriber_that_panics_does_not_end_the_device() {
    let device = device();
    let (triple, stream) = (kernel(&device, "panicked"), device.stream().unwrap());
    let mut x = device.buffer_with_data(&[1_u32; 10]).unwrap();
    let subscriber = tracing_subscriber::registry().with(Panicking);
    tracing::subscriber::with_default(subscriber, || launch(&triple, &stream, &mut x).wait().unwrap());
    launch(&triple, &stream, &mut x).wait().unwrap();
    assert_eq!(x.to_vec().unwrap(), [9; 10]);
}

/// A row of the page: name, level and fields.
fn rows(page: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let rows = page.lines().filter(|line| line.starts_with("| `elinvar."));
    let unquoted = |text: &str| text.trim().trim_matches('`').to_owned();
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        (unquoted(cells[0]), (unquoted(cells[1]), cells[2].split(',').map(unquoted).collect()))
    };
    rows.map(row).collect()
}

pub fn what_is_reported_is_what_the_page_lists() {
    drop(all());
    submissions_have_the_spans_of_their_callers_as_parents();
    failures_are_events_within_their_submission_and_have_no_source();
    recovery_reports_its_decisions_and_the_breaker();
    a_subscriber_that_panics_does_not_end_the_device();
    let rows = rows(include_str!("../../../../docs/tracing.md"));
    let all = all();
    let mut reported: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
    all.iter()
        .filter(|seen| seen.name != "request")
        .for_each(|seen| reported.entry(seen.name).or_default().push(seen));
    assert_eq!(reported.keys().collect::<Vec<_>>(), rows.keys().collect::<Vec<_>>());
    for (name, seen) in reported {
        let (level, fields) = &rows[name];
        assert!(seen.iter().any(|seen| seen.level.as_str() == level), "{name}: {level}");
        assert!(
            seen.iter().all(|seen| seen.fields == *fields),
            "{name}: {fields:?}, not {:?}",
            seen[0].fields
        );
    }
}
