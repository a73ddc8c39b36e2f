//! Metrics of devices, sent in regular intervals.
//!
//! The messages are made from snapshots, and not by the instruments of OpenTelemetry's library: those count again what the runtime has counted, and have no
//! histogram whose values come from elsewhere.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use elinvar::{Device, Metric, MetricFamily, MetricKind, MetricPoint, MetricValue, Metrics};
use opentelemetry_http::Request;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric as ProtoMetric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::client::Client;
use super::{Otlp, OtlpError};

const SHORTEST: Duration = Duration::from_millis(10);
/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

/// Sends the metrics of devices in regular intervals until it is dropped, and once more then.
#[must_use = "it ends when it is dropped"]
pub struct MetricsExport {
    /// Disconnected to end the thread.
    requests: Option<Sender<Sender<Result<(), String>>>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread needs.
struct Exporter {
    client: Client,
    url: String,
    headers: Vec<(String, String)>,
    resource: Resource,
    devices: Vec<Device>,
    has_failed: bool,
}

impl Otlp {
    /// Sends the metrics of devices in regular intervals ([`Otlp::interval`]): those of [`elinvar::METRICS`], cumulative, with the attributes `device`, the name, and
    /// `index`, the position in `devices`. Histograms of durations are in seconds, with the bounds of [`elinvar::Histogram::cumulative`].
    ///
    /// If the collector cannot be reached, the next export has the same counts and more. The first failure of several is an event of `tracing`.
    ///
    /// # Errors
    /// If the collector's URL cannot be used, or the thread cannot be started.
    pub fn metrics(&self, devices: Vec<Device>) -> Result<MetricsExport, OtlpError> {
        let resource = self.resource();
        let attributes =
            resource.iter().map(|(key, value)| key_value(key.as_str(), text(&value.to_string())));
        let mut exporter = Exporter {
            client: Client::new(self.timeout),
            url: self.url("metrics")?,
            headers: self.headers.clone(),
            resource: Resource { attributes: attributes.collect(), ..Resource::default() },
            devices,
            has_failed: false,
        };
        let interval = self.interval.max(SHORTEST);
        let (requests, received) = channel::<Sender<Result<(), String>>>();
        let run = move || {
            loop {
                match received.recv_timeout(interval) {
                    // Whoever asked may have gone.
                    Ok(asked) => _ = asked.send(exporter.export()),
                    Err(RecvTimeoutError::Timeout) => _ = exporter.export(),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            let _unsent = exporter.export();
        };
        let thread = std::thread::Builder::new().name("elinvar-otlp".into()).spawn(run);
        let thread = thread.map_err(|error| OtlpError(format!("cannot start a thread: {error}")))?;
        Ok(MetricsExport { requests: Some(requests), thread: Some(thread) })
    }
}

impl MetricsExport {
    /// Sends the metrics now. Blocks until the collector has them.
    ///
    /// # Errors
    /// If the collector cannot be reached or does not accept them.
    pub fn flush(&self) -> Result<(), OtlpError> {
        let (answer, answered) = channel();
        let asked = self.requests.as_ref().and_then(|requests| requests.send(answer).ok());
        let result = asked.and_then(|()| answered.recv().ok());
        result.unwrap_or_else(|| Err("the exporter's thread has ended".into())).map_err(OtlpError)
    }
}

impl Drop for MetricsExport {
    fn drop(&mut self) {
        self.requests = None;
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

impl std::fmt::Debug for MetricsExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MetricsExport")
    }
}

impl Exporter {
    fn export(&mut self) -> Result<(), String> {
        let result = self.send();
        match &result {
            Err(error) if !self.has_failed => tracing::warn!("metrics are not exported: {error}"),
            Ok(()) if self.has_failed => tracing::info!("metrics are exported again"),
            _ => {}
        }
        self.has_failed = result.is_err();
        result
    }

    fn send(&self) -> Result<(), String> {
        let metrics: Vec<Metrics> = self.devices.iter().map(Device::metrics).collect();
        let body = message(&metrics, self.resource.clone(), SystemTime::now()).encode_to_vec();
        let request = self
            .headers
            .iter()
            .fold(Request::post(&self.url), |request, (name, value)| request.header(name, value));
        let request = request.header("Content-Type", "application/x-protobuf").body(body.into());
        let response = self.client.send(request.map_err(|error| error.to_string())?);
        let status = response.map_err(|error| format!("{}: {error}", self.url))?.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("{}: status {status}", self.url)),
        }
    }
}

/// The snapshots as a message.
fn message(devices: &[Metrics], resource: Resource, now: SystemTime) -> ExportMetricsServiceRequest {
    let of_metric = |(at, metric): (usize, &Metric)| {
        let points = devices.iter().enumerate().flat_map(|(index, device)| {
            let families = device.families.get(at).into_iter();
            families
                .flat_map(move |MetricFamily { points, .. }| points)
                .map(move |point| (index, device, point))
        });
        let data = match metric.kind {
            MetricKind::Histogram => metric::Data::Histogram(Histogram {
                data_points: points
                    .filter_map(|(index, device, point)| histogram(metric, index, device, point, now))
                    .collect(),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
            }),
            kind => {
                let data_points = points
                    .filter_map(|(index, device, point)| number(metric, index, device, point, now))
                    .collect();
                match kind {
                    MetricKind::Counter => metric::Data::Sum(Sum {
                        data_points,
                        aggregation_temporality: AggregationTemporality::Cumulative.into(),
                        is_monotonic: true,
                    }),
                    _ => metric::Data::Gauge(Gauge { data_points }),
                }
            }
        };
        let (name, unit, description) = (metric.name.into(), metric.unit.into(), metric.meaning.into());
        ProtoMetric { name, unit, description, data: Some(data), ..ProtoMetric::default() }
    };
    let metrics = elinvar::METRICS.iter().enumerate().map(of_metric).collect();
    let scope = InstrumentationScope {
        name: "elinvar".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, schema_url: String::new() }];
    let resource_metrics =
        vec![ResourceMetrics { resource: Some(resource), scope_metrics, schema_url: String::new() }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn number(
    metric: &Metric,
    index: usize,
    device: &Metrics,
    point: &MetricPoint,
    now: SystemTime,
) -> Option<NumberDataPoint> {
    let value = match point.value {
        MetricValue::Count(value) | MetricValue::Gauge(value) => {
            number_data_point::Value::AsInt(i64::try_from(value).unwrap_or(i64::MAX))
        }
        MetricValue::Number(value) => number_data_point::Value::AsDouble(value),
        _ => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(metric, index, device, point),
        start_time_unix_nano: nanoseconds(device.since),
        time_unix_nano: nanoseconds(now),
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn histogram(
    metric: &Metric,
    index: usize,
    device: &Metrics,
    point: &MetricPoint,
    now: SystemTime,
) -> Option<HistogramDataPoint> {
    let MetricValue::Histogram(histogram) = &point.value else { return None };
    // Each bucket has its own count here.
    let mut before = 0;
    let (bounds, mut counts): (Vec<f64>, Vec<u64>) = histogram
        .cumulative()
        .map(|(bound, below)| (bound as f64 / SECOND, below - std::mem::replace(&mut before, below)))
        .unzip();
    counts.push(histogram.count() - before);
    Some(HistogramDataPoint {
        attributes: attributes(metric, index, device, point),
        start_time_unix_nano: nanoseconds(device.since),
        time_unix_nano: nanoseconds(now),
        count: histogram.count(),
        sum: Some(histogram.sum as f64 / SECOND),
        bucket_counts: counts,
        explicit_bounds: bounds,
        ..HistogramDataPoint::default()
    })
}

fn attributes(metric: &Metric, index: usize, device: &Metrics, point: &MetricPoint) -> Vec<KeyValue> {
    let index = AnyValue { value: Some(any_value::Value::IntValue(index as i64)) };
    let of_device = [key_value("device", text(&device.device)), key_value("index", index)];
    let of_point = metric.attributes.iter().zip(&point.attributes);
    of_device.into_iter().chain(of_point.map(|(key, value)| key_value(key, text(value)))).collect()
}

fn key_value(key: &str, value: AnyValue) -> KeyValue {
    KeyValue { key: key.into(), value: Some(value), ..KeyValue::default() }
}

fn text(value: &str) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
