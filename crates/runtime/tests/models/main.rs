//! Models: parts of the runtime under a checker that runs every interleaving of their steps.
//!
//! The sources are those of the crate; only [`sync`] is another.
#![allow(dead_code, unreachable_pub)] // each model uses a part of its source

mod sync;

#[path = "../../src/pool/class.rs"]
mod class;
#[path = "../../src/pool/shelf.rs"]
mod shelf;
#[path = "../../src/pool/stats.rs"]
mod stats;
#[path = "../../src/pool/stock.rs"]
mod stock;

mod pool;
