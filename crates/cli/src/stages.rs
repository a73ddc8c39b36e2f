//! Times of compilation stages, from the compiler's events (`elinvar_msl::stage`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use elinvar_msl::stage;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span;

use crate::failure::Result;
use crate::report::{print_table, say, time_text};

/// Times of a compilation.
pub struct Times {
    /// The kernel; `None` for stages of the whole source.
    pub kernel: Option<String>,
    /// The target.
    pub target: Option<String>,
    total_ns: u64,
    stages: Vec<(String, u64)>,
}

impl Times {
    /// Measure what this thread compiles in `run`.
    pub fn of<T>(kernel: Option<&str>, run: impl FnOnce() -> T) -> (T, Self) {
        let stages = Stages::default();
        let start = Instant::now();
        let result = stages.collect(run);
        let total_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        (result, Self { kernel: kernel.map(str::to_owned), target: None, total_ns, stages: stages.take() })
    }

    pub fn to_json(&self) -> Value {
        let stages: BTreeMap<&str, u64> = self.stages.iter().map(|(name, ns)| (name.as_str(), *ns)).collect();
        json!({ "kernel": self.kernel, "target": self.target, "total_ns": self.total_ns, "stages_ns": stages })
    }

    /// Print a row per source and kernel, a column per stage.
    pub fn print(all: &[Self]) -> Result<()> {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in all.iter().flat_map(|times| &times.stages) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names.sort_by_key(|name| place(name));
        let several = all.iter().any(|times| times.target != all[0].target);
        let row = |times: &Self| {
            let what = times.kernel.as_deref().unwrap_or("(source)");
            let target = times.target.iter().filter(|_| several);
            let what = target.fold(what.to_owned(), |what, target| format!("{what} for {target}"));
            let time = |name: &&str| {
                let stage = times.stages.iter().find(|(known, _)| known == *name);
                stage.map_or_else(String::new, |(_, ns)| time_text(*ns))
            };
            let cells = std::iter::once(what).chain(names.iter().map(time));
            cells.chain([time_text(times.total_ns)]).collect()
        };
        let columns: Vec<&str> =
            std::iter::once("kernel").chain(names.iter().copied()).chain(["total"]).collect();
        print_table(&columns, &all.iter().map(row).collect::<Vec<_>>())?;
        say("")
    }
}

/// Collects stage times, summed by stage.
#[derive(Clone, Default)]
pub struct Stages(Arc<Mutex<Vec<(String, u64)>>>);

impl Stages {
    /// Collect the stages of what this thread compiles in `run`.
    pub fn collect<T>(&self, run: impl FnOnce() -> T) -> T {
        tracing::subscriber::with_default(self.clone(), run)
    }

    /// The stages since the last call, in nanoseconds.
    pub fn take(&self) -> Vec<(String, u64)> {
        let mut stages = std::mem::take(&mut *self.times());
        stages.sort_by_key(|(name, _)| place(name));
        stages
    }

    fn times(&self) -> MutexGuard<'_, Vec<(String, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(stage: &str) -> usize {
    stage::NAMES.iter().position(|name| *name == stage).unwrap_or(usize::MAX)
}

impl tracing::Subscriber for Stages {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == stage::TARGET
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut stage = Stage::default();
        event.record(&mut stage);
        let mut times = self.times();
        match times.iter_mut().find(|(name, _)| *name == stage.name) {
            Some((_, ns)) => *ns += stage.ns,
            None => times.push((stage.name, stage.ns)),
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Stage {
    name: String,
    ns: u64,
}

impl Visit for Stage {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "stage" {
            self.name = value.to_owned();
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "ns" {
            self.ns = value;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
