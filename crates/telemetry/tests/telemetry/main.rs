//! Tests of telemetry: what reaches subscribers, scrapers and collectors is what the program did.

mod events;
mod support;
