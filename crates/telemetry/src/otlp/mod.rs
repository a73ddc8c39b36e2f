//! [`Otlp`]: sends metrics, spans and events to a collector of OpenTelemetry, by OTLP over HTTP with protocol buffers
//! (<https://opentelemetry.io/docs/specs/otlp/>).

mod client;
mod layer;
mod metrics;

use std::collections::BTreeMap;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

pub use layer::OtlpGuard;
pub use metrics::MetricsExport;

/// The collector on this machine, by the specification.
const LOCAL: &str = "http://localhost:4318";

/// A collector, and how to send to it.
///
/// ```no_run
/// # use tracing_subscriber::layer::SubscriberExt as _;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = elinvar::Device::system_default()?;
/// let otlp = elinvar_telemetry::Otlp::from_env()?.service("simulation");
/// // Dropping these sends what is left.
/// let _metrics = otlp.metrics(vec![device.clone()])?;
/// let (layer, _guard) = otlp.layer()?;
/// tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Otlp {
    endpoint: String,
    /// By signal: `metrics`, `traces`, `logs`.
    endpoints: BTreeMap<&'static str, String>,
    headers: Vec<(String, String)>,
    timeout: Duration,
    interval: Duration,
    service: Option<String>,
}

/// A setting cannot be used, or a thread cannot be started.
#[derive(Debug)]
pub struct OtlpError(pub(crate) String);

impl std::fmt::Display for OtlpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OtlpError {}

impl Otlp {
    /// A collector by the URL to which `/v1/metrics`, `/v1/traces` and `/v1/logs` are appended, such as `http://localhost:4318`. `https` is not
    /// supported: send to a collector on this machine or in this network.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            endpoints: BTreeMap::new(),
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            interval: Duration::from_secs(60),
            service: None,
        }
    }

    /// The settings of the environment, by the names and with the defaults of OpenTelemetry's specification: `OTEL_EXPORTER_OTLP_ENDPOINT` (default
    /// `http://localhost:4318`), `OTEL_EXPORTER_OTLP_HEADERS` (`name=value,…`), `OTEL_EXPORTER_OTLP_TIMEOUT` (milliseconds, 10000) and those of one signal, as
    /// `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` (the whole URL); `OTEL_METRIC_EXPORT_INTERVAL` (milliseconds, 60000). `OTEL_SERVICE_NAME` and
    /// `OTEL_RESOURCE_ATTRIBUTES` are used in any case.
    ///
    /// # Errors
    /// If a number or a header cannot be read.
    pub fn from_env() -> Result<Self, OtlpError> {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    pub(crate) fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, OtlpError> {
        let milliseconds = |name: &str| -> Result<Option<Duration>, OtlpError> {
            let Some(value) = variable(name) else { return Ok(None) };
            let wrong = |_| OtlpError(format!("{name}={value}: not a number of milliseconds"));
            value.trim().parse().map(|ms| Some(Duration::from_millis(ms))).map_err(wrong)
        };
        let endpoint = variable("OTEL_EXPORTER_OTLP_ENDPOINT").unwrap_or_else(|| LOCAL.into());
        let mut otlp = Self::new(endpoint);
        for (signal, name) in SIGNALS {
            if let Some(url) = variable(&format!("OTEL_EXPORTER_OTLP_{name}_ENDPOINT")) {
                otlp.endpoints.insert(signal, url);
            }
        }
        for pair in variable("OTEL_EXPORTER_OTLP_HEADERS").iter().flat_map(|all| all.split(',')) {
            let name = "OTEL_EXPORTER_OTLP_HEADERS";
            let wrong = || OtlpError(format!("{name}: `{pair}` is not `name=value`"));
            let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
            otlp = otlp.header(key.trim(), value.trim());
        }
        if let Some(timeout) = milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT")? {
            otlp.timeout = timeout;
        }
        if let Some(interval) = milliseconds("OTEL_METRIC_EXPORT_INTERVAL")? {
            otlp.interval = interval;
        }
        Ok(otlp)
    }

    /// Adds a header to each request, for the collector's authentication for instance.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Name of the service, in place of `OTEL_SERVICE_NAME`.
    #[must_use]
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = Some(name.into());
        self
    }

    /// Time between two exports of metrics. Default: 60 s; at least 10 ms.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Maximum time of a request. Default: 10 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn url(&self, signal: &str) -> Result<String, OtlpError> {
        let of_signal = self.endpoints.get(signal).cloned();
        let url = of_signal.unwrap_or_else(|| format!("{}/v1/{signal}", self.endpoint.trim_end_matches('/')));
        match url.starts_with("http://") {
            true => Ok(url),
            false => Err(OtlpError(format!(
                "{url}: the collector's URL begins with `http://`; TLS is not supported"
            ))),
        }
    }

    fn resource(&self) -> Resource {
        let builder =
            Resource::builder().with_attribute(KeyValue::new("elinvar.version", env!("CARGO_PKG_VERSION")));
        match &self.service {
            Some(name) => builder.with_service_name(name.clone()).build(),
            None => builder.build(),
        }
    }
}

/// Signals, and their part of the names of variables.
const SIGNALS: [(&str, &str); 3] = [("metrics", "METRICS"), ("traces", "TRACES"), ("logs", "LOGS")];

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Otlp, OtlpError> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Otlp::from_variables(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_environment_has_the_names_of_the_specification() {
        let none = with(&[]).unwrap();
        assert_eq!(none.url("traces").unwrap(), "http://localhost:4318/v1/traces");
        assert_eq!((none.timeout, none.interval), (Duration::from_secs(10), Duration::from_secs(60)));
        let all = with(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:99/"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs/in"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b, key=x=y"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "20"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "500"),
        ])
        .unwrap();
        assert_eq!(all.url("metrics").unwrap(), "http://collector:99/v1/metrics");
        assert_eq!(all.url("logs").unwrap(), "http://logs/in");
        assert_eq!(all.headers, [("a".into(), "b".into()), ("key".into(), "x=y".into())]);
        assert_eq!((all.timeout, all.interval), (Duration::from_millis(20), Duration::from_millis(500)));
    }

    #[test]
    fn settings_that_cannot_be_used_are_named() {
        let text = |variables: &[(&str, &str)]| with(variables).unwrap_err().to_string();
        let wrong = "OTEL_EXPORTER_OTLP_TIMEOUT=soon: not a number of milliseconds";
        assert_eq!(text(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")]), wrong);
        let wrong = "OTEL_EXPORTER_OTLP_HEADERS: `b` is not `name=value`";
        assert_eq!(text(&[("OTEL_EXPORTER_OTLP_HEADERS", "a=1,b")]), wrong);
        let secret = with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://x")]).unwrap().url("logs").unwrap_err();
        assert!(secret.to_string().starts_with("https://x/v1/logs: "), "{secret}");
    }
}
