//! [`Compilations`]: how often the passes of the CPU's compiler run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use elinvar_msl::stage;
use tracing::field::{Field, Visit};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, span};

/// While there is one subscriber, `tracing` asks that of the thread that first reaches an event whether anybody is interested in it. With
/// this second one all are asked.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// Counts the runs of the passes on the threads that use it.
#[derive(Clone, Default)]
pub struct Compilations(Arc<AtomicUsize>);

impl Compilations {
    /// The number of runs during `run`, on this thread.
    pub fn during(run: impl FnOnce()) -> usize {
        LazyLock::force(&SECOND);
        let count = Self::default();
        tracing::subscriber::with_default(count.clone(), run);
        count.passes()
    }

    /// The number of runs up to now.
    pub fn passes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl tracing::Subscriber for Compilations {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == stage::TARGET
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for Compilations {
    fn record_str(&mut self, field: &Field, value: &str) {
        if (field.name(), value) == ("stage", "passes") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
