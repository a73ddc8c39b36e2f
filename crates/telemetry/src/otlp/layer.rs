//! Spans and events of `tracing`, sent as traces and logs.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use super::client::Client;
use super::{Otlp, OtlpError};

/// Sends what is left when it is dropped.
#[must_use = "dropping it ends the export"]
pub struct OtlpGuard {
    traces: SdkTracerProvider,
    logs: SdkLoggerProvider,
}

impl OtlpGuard {
    /// Sends all spans that have ended and all events. Blocks until the collector has them.
    ///
    /// # Errors
    /// If the collector cannot be reached or does not accept them.
    pub fn flush(&self) -> Result<(), OtlpError> {
        let failed = |error: opentelemetry_sdk::error::OTelSdkError| OtlpError(error.to_string());
        self.traces.force_flush().and(self.logs.force_flush()).map_err(failed)
    }
}

impl Drop for OtlpGuard {
    fn drop(&mut self) {
        // The collector may be gone.
        let _unsent = (self.traces.shutdown(), self.logs.shutdown());
    }
}

impl std::fmt::Debug for OtlpGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OtlpGuard")
    }
}

impl Otlp {
    /// A layer for a subscriber of `tracing`, which sends spans as traces and events as logs, within the trace of their span. It receives those of the whole
    /// program; give it a filter for less.
    ///
    /// Threads of their own send every few seconds. What cannot be sent is lost: the program is not slowed down.
    ///
    /// # Errors
    /// If the collector's URL cannot be used.
    pub fn layer<S>(&self) -> Result<(Box<dyn Layer<S> + Send + Sync>, OtlpGuard), OtlpError>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let failed = |error: opentelemetry_otlp::ExporterBuildError| OtlpError(error.to_string());
        let headers = || self.headers.iter().cloned().collect();
        let client = Client::new(self.timeout);
        let exporter = SpanExporter::builder().with_http().with_http_client(client.clone());
        let exporter = exporter.with_endpoint(self.url("traces")?).with_headers(headers());
        let exporter = exporter.with_timeout(self.timeout).build().map_err(failed)?;
        let traces =
            SdkTracerProvider::builder().with_resource(self.resource()).with_batch_exporter(exporter).build();
        let exporter = LogExporter::builder().with_http().with_http_client(client);
        let exporter = exporter.with_endpoint(self.url("logs")?).with_headers(headers());
        let exporter = exporter.with_timeout(self.timeout).build().map_err(failed)?;
        let logs =
            SdkLoggerProvider::builder().with_resource(self.resource()).with_batch_exporter(exporter).build();
        let spans = tracing_opentelemetry::layer().with_tracer(traces.tracer("elinvar"));
        let events = OpenTelemetryTracingBridge::new(&logs);
        Ok((spans.and_then(events).boxed(), OtlpGuard { traces, logs }))
    }
}
