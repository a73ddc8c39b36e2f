//! Observability: metrics, alerts, readings of the hardware, energy, spans, traces, profiles, health, log lines of kernels, and notices of the system.

pub(crate) mod alerts;
pub(crate) mod capture;
pub(crate) mod event;
pub(crate) mod failures;
pub(crate) mod hardware;
pub(crate) mod health;
pub(crate) mod log;
pub(crate) mod meter;
pub(crate) mod metrics;
pub(crate) mod notice;
pub(crate) mod profiling;
pub(crate) mod thermal;
pub(crate) mod trace;
pub(crate) mod watch;
