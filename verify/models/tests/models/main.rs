//! Model checking of concurrent code with loom, which runs every interleaving of its atomic steps.
//!
//! The sources are those of the crates, included by path; only [`sync`] is replaced.
#![allow(dead_code, unreachable_pub, unused_imports)] // each model uses a part of its source

mod sync;

use sync as locks;

#[path = "../../../../crates/runtime/src/recovery/breaker.rs"]
mod breaker_source;
#[path = "../../../../crates/runtime/src/memory/pool/class.rs"]
mod class;
#[path = "../../../../crates/driver/src/doorbell.rs"]
mod doorbell_source;
#[path = "../../../../crates/driver-isolated/src/head.rs"]
mod head_source;
#[path = "../../../../crates/runtime/src/memory/pool/shelf.rs"]
mod shelf;
#[path = "../../../../crates/runtime/src/memory/pool/stats.rs"]
mod stats;
#[path = "../../../../crates/runtime/src/memory/pool/stock.rs"]
mod stock;
#[path = "../../../../crates/driver/src/submission/mod.rs"]
mod submission_source;
#[path = "../../../../crates/driver/src/timeline.rs"]
mod timeline;

mod breaker;
mod doorbell;
mod event;
mod head;
mod pool;
mod submission;

use elinvar_driver::{
    Callback, Command, Done, Error, Event, Queue, Reached, Result, Submission, Timing, begin_log,
    end_submission, panic_text,
};

/// Checks every interleaving with at most two preemptions, which finds most concurrency bugs and takes seconds.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}
