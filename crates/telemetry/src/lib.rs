//! Metrics, traces and logs of Elinvar's devices, in the formats of other tools: Prometheus, OpenTelemetry, Perfetto.
//!
//! The runtime records ([`elinvar::Device::metrics`], [`elinvar::Trace`]); this crate formats and sends. It is a crate of its own, so that
//! programs without exporters do not depend on an HTTP server and protocol buffers.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod chrome;
#[cfg(feature = "otlp")]
mod otlp;
pub mod perfetto;
#[cfg(feature = "prometheus")]
mod prometheus;
mod report;
mod trace;

#[cfg(feature = "otlp")]
pub use otlp::{MetricsExport, Otlp, OtlpError, OtlpGuard};
#[cfg(feature = "prometheus")]
pub use prometheus::PrometheusServer;
pub use report::{NotAProfile, profile_lines, report, report_of, report_of_lines};

/// The pages whose examples are run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/telemetry.md")]
    mod telemetry {}
    #[doc = include_str!("../../../docs/report.md")]
    mod report {}
    #[doc = include_str!("../../../docs/traces.md")]
    mod traces {}
}
