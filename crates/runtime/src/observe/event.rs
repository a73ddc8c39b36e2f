//! Spans and events of the runtime, for the subscribers of `tracing`; `docs/tracing.md` lists them, and a test compares.
//!
//! Names are stable. Fields have no source text and no data of buffers. Where no subscriber is interested, each costs the load of an atomic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use elinvar_driver::{Command, Diagnostic, Dispatch, Error, Result, Severity, Timing};
use tracing::{Level, Span, dispatcher, field};

use crate::recovery::{BreakerState, Decision, FaultClass};
use crate::{AlertChange, AlertKind, Device};

const TARGET: &str = "elinvar";

/// A submission of `count` commands, from the call that submits it to its completion. Its parent is the caller's span. `commands` may have
/// timestamps besides, of a trace.
pub(crate) fn submission(device: &Device, stream: u64, commands: &[Command], count: usize) -> Span {
    tracing::debug_span!(
        target: TARGET,
        "elinvar.submission",
        device = device.name(),
        stream,
        kernel = first_launch(commands).map(|dispatch| &*dispatch.pipeline.signature().name),
        label = first_launch(commands).and_then(|dispatch| dispatch.label.as_deref()).map(field::display),
        commands = count,
        device.duration_ns = field::Empty,
        result = field::Empty,
    )
}

/// Ends the span of a submission. A subscriber is the program's code: a panic of it ends here.
pub(crate) fn ended(span: Span, device: &Device, commands: &[Command], result: &Result<Timing>) {
    if span.is_disabled() && result.is_ok() {
        return;
    }
    // This thread's subscriber can be another than that of the thread that submitted. Spans close their parents in the current one.
    let submitted = span.with_subscriber(|(_, dispatch)| dispatch.clone());
    let within = |f: &mut dyn FnMut()| {
        let _panicked = catch_unwind(AssertUnwindSafe(|| match &submitted {
            Some(dispatch) => dispatcher::with_default(dispatch, f),
            None => f(),
        }));
    };
    within(&mut || report(&span, device, commands, result));
    let mut span = Some(span);
    within(&mut || drop(span.take()));
}

fn report(span: &Span, device: &Device, commands: &[Command], result: &Result<Timing>) {
    let error = match result {
        Ok(timing) => {
            span.record("device.duration_ns", timing.end_ns.saturating_sub(timing.start_ns));
            span.record("result", "ok");
            return;
        }
        Err(error) => error,
    };
    let class = FaultClass::of(error);
    span.record("result", class.name());
    macro_rules! failed {
        ($level:expr) => {
            tracing::event!(
                name: "elinvar.submission.failed",
                target: TARGET,
                $level,
                device = device.name(),
                kernel = first_launch(commands).map(|dispatch| &*dispatch.pipeline.signature().name),
                class = class.name(),
                "{error}"
            )
        };
    }
    // Entered, and not only its parent: some subscribers attach the current span.
    span.in_scope(|| match class {
        // Consequences of a call, or of a failure that has its own event.
        FaultClass::Cancelled | FaultClass::EarlierWork => failed!(Level::DEBUG),
        _ => failed!(Level::WARN),
    });
}

/// A compilation of a source.
pub(crate) fn compile(device: &Device, source: &str) -> Span {
    tracing::info_span!(target: TARGET, "elinvar.compile", device = device.name(), source, result = field::Empty)
}

/// The creation of a kernel.
pub(crate) fn kernel(device: &Device, name: &str) -> Span {
    tracing::info_span!(target: TARGET, "elinvar.kernel", device = device.name(), kernel = name, result = field::Empty)
}

/// Ends the span of a compilation or of the creation of a kernel.
pub(crate) fn compiled(span: &Span, device: &Device, error: Option<&Error>) {
    span.record("result", error.map_or("ok", |error| FaultClass::of(error).name()));
    let Some(error) = error else { return };
    span.in_scope(|| {
        tracing::event!(
            name: "elinvar.compile.failed",
            target: TARGET,
            Level::WARN,
            device = device.name(),
            class = FaultClass::of(error).name(),
            "{}",
            without_source(error)
        );
    });
}

/// An execution of a graph's plan: its submissions are children.
pub(crate) fn graph(device: &Device, submissions: usize) -> Span {
    tracing::debug_span!(target: TARGET, "elinvar.graph", device = device.name(), submissions)
}

/// A decision of recovery about a failure.
pub(crate) fn decision(device: &Device, decision: &Decision) {
    tracing::event!(
        name: "elinvar.recovery.decision",
        target: TARGET,
        Level::WARN,
        device = device.name(),
        action = decision.action.name(),
        after_ms = u64::try_from(decision.after.as_millis()).unwrap_or(u64::MAX),
        "{decision}"
    );
}

/// The breaker is in another state.
pub(crate) fn breaker(device: &Device, state: &BreakerState) {
    let name = state.name();
    macro_rules! changed {
        ($level:expr) => {
            tracing::event!(
                name: "elinvar.breaker.changed",
                target: TARGET,
                $level,
                device = device.name(),
                state = name,
                "the circuit breaker is {name}"
            )
        };
    }
    match state {
        BreakerState::Closed | BreakerState::HalfOpen => changed!(Level::INFO),
        BreakerState::Open { .. } => changed!(Level::WARN),
        BreakerState::Terminal(_) => changed!(Level::ERROR),
    }
}

/// The device is lost.
pub(crate) fn device_lost(device: &Device, cause: &Error) {
    tracing::event!(
        name: "elinvar.device.lost", target: TARGET, Level::ERROR, device = device.name(), "{cause}"
    );
}

/// The device was reset, or could not be.
pub(crate) fn reset(device: &Device, error: Option<&Error>) {
    match error {
        None => tracing::event!(
            name: "elinvar.device.reset",
            target: TARGET,
            Level::WARN,
            device = device.name(),
            result = "ok",
            "the device was reset"
        ),
        Some(error) => tracing::event!(
            name: "elinvar.device.reset",
            target: TARGET,
            Level::ERROR,
            device = device.name(),
            result = FaultClass::of(error).name(),
            "the device could not be reset: {error}"
        ),
    }
}

/// An alert was raised or cleared.
pub(crate) fn alert(device: &Device, change: &AlertChange) {
    let kernel = match &change.alert().kind {
        AlertKind::KernelSlower { kernel } => Some(&**kernel),
        _ => None,
    };
    macro_rules! changed {
        ($level:expr, $state:literal) => {
            tracing::event!(
                name: "elinvar.alert",
                target: TARGET,
                $level,
                device = device.name(),
                alert = change.alert().kind.name(),
                kernel,
                state = $state,
                "{}",
                change.alert().reason
            )
        };
    }
    match change {
        AlertChange::Raised(_) => changed!(Level::WARN, "raised"),
        AlertChange::Cleared(_) => changed!(Level::INFO, "cleared"),
    }
}

fn first_launch(commands: &[Command]) -> Option<&Dispatch> {
    commands.iter().find_map(|command| match command {
        Command::Dispatch(dispatch) => Some(dispatch),
        Command::LaunchNested(nested) => Some(&nested.root),
        _ => None,
    })
}

/// An error's text without lines of the source.
fn without_source(error: &Error) -> String {
    let Error::Compile(diagnostics) = error else { return error.to_string() };
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    let line = |Diagnostic { file, line, column, message, .. }: &Diagnostic| {
        format!("{file}:{line}:{column}: {message}")
    };
    errors.map(line).collect::<Vec<_>>().join("\n")
}
