//! Models: parts of the runtime under a checker that runs every interleaving of their steps.
//!
//! The sources are those of the crate; only [`sync`] is another.
#![allow(dead_code, unreachable_pub)] // each model uses a part of its source

mod sync;

use sync as locks;

#[path = "../../../../crates/runtime/src/recovery/breaker.rs"]
mod breaker_source;
#[path = "../../../../crates/runtime/src/memory/pool/class.rs"]
mod class;
#[path = "../../../../crates/driver-isolated/src/head.rs"]
mod head_source;
#[path = "../../../../crates/runtime/src/memory/pool/shelf.rs"]
mod shelf;
#[path = "../../../../crates/runtime/src/memory/pool/stats.rs"]
mod stats;
#[path = "../../../../crates/runtime/src/memory/pool/stock.rs"]
mod stock;
#[path = "../../../../crates/driver/src/timeline.rs"]
mod timeline;

mod breaker;
mod event;
mod head;
mod pool;

use elinvar_driver::{Callback, Error, Event, Reached};

/// Every order with at most two switches that no thread asked for, which is where such faults lie, in seconds.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}
