//! Metrics as text: in the OpenMetrics format (<https://prometheus.io/docs/specs/om/open_metrics_spec/>), and in Prometheus' older one
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write as _;

use super::{Histogram, Metric, MetricKind, MetricValue, Metrics};

/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    OpenMetrics,
    /// Version 0.0.4.
    Prometheus,
}

impl Metrics {
    /// The metrics of this device in the OpenMetrics text format; see [`Metrics::all_to_openmetrics`].
    pub fn to_openmetrics(&self) -> String {
        Self::all_to_openmetrics(std::slice::from_ref(self))
    }

    /// The metrics of several devices in the OpenMetrics text format, with `# EOF` at the end. Dots in names are underscores; counters end in
    /// `_total`; a unit other than a count is part of the name, as in `elinvar_kernel_duration_seconds`. Each value has
    /// the labels `device` and `index`, its position in `devices`, which tells devices of one name apart.
    /// The content type is `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    pub fn all_to_openmetrics(devices: &[Self]) -> String {
        let mut text = Self::format(devices, Format::OpenMetrics);
        text.push_str("# EOF\n");
        text
    }

    /// As [`Metrics::all_to_openmetrics`], in Prometheus' text format 0.0.4, for scrapers that do not know OpenMetrics, and for `promtool check
    /// metrics`. The content type is `text/plain; version=0.0.4; charset=utf-8`.
    pub fn all_to_prometheus(devices: &[Self]) -> String {
        Self::format(devices, Format::Prometheus)
    }

    fn format(devices: &[Self], format: Format) -> String {
        let mut text = String::new();
        for metric in super::METRICS {
            let name = name(metric);
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
            };
            match format {
                Format::OpenMetrics => {
                    let _infallible = writeln!(text, "# TYPE {name} {kind}");
                    if let Some(unit) = unit(metric) {
                        let _infallible = writeln!(text, "# UNIT {name} {unit}");
                    }
                    let _infallible = writeln!(text, "# HELP {name} {}", escaped(metric.meaning));
                }
                // The name of the series. Quotes are not escaped in a help text.
                Format::Prometheus => {
                    let total = if metric.kind == MetricKind::Counter { "_total" } else { "" };
                    let meaning = metric.meaning.replace('\\', "\\\\").replace('\n', "\\n");
                    let _infallible = writeln!(text, "# HELP {name}{total} {meaning}");
                    let _infallible = writeln!(text, "# TYPE {name}{total} {kind}");
                }
            }
            for (index, metrics) in devices.iter().enumerate() {
                let families = metrics.families.iter().filter(|family| family.metric == *metric);
                for point in families.flat_map(|family| &family.points) {
                    let mut labels = format!("device=\"{}\",index=\"{index}\"", escaped(&metrics.device));
                    for (attribute, value) in metric.attributes.iter().zip(&point.attributes) {
                        let attribute = attribute.replace('.', "_");
                        let _infallible = write!(labels, ",{attribute}=\"{}\"", escaped(value));
                    }
                    put(&mut text, (&name, metric.kind), &labels, &point.value);
                }
            }
        }
        text
    }
}

/// A metric's name in this format.
fn name(metric: &Metric) -> String {
    let name = metric.name.replace('.', "_");
    match unit(metric) {
        Some(unit) if !name.ends_with(unit) => format!("{name}_{unit}"),
        _ => name,
    }
}

fn unit(metric: &Metric) -> Option<&'static str> {
    match metric.unit {
        "s" => Some("seconds"),
        "By" => Some("bytes"),
        "By/s" => Some("bytes_per_second"),
        "J" => Some("joules"),
        "W" => Some("watts"),
        "Cel" => Some("celsius"),
        "Hz" => Some("hertz"),
        _ => None,
    }
}

fn put(text: &mut String, (name, kind): (&str, MetricKind), labels: &str, value: &MetricValue) {
    let end = if kind == MetricKind::Counter { "_total" } else { "" };
    let _infallible = match value {
        MetricValue::Number(value) => writeln!(text, "{name}{end}{{{labels}}} {value}"),
        MetricValue::Count(count) => writeln!(text, "{name}_total{{{labels}}} {count}"),
        MetricValue::Gauge(value) => writeln!(text, "{name}{{{labels}}} {value}"),
        MetricValue::Histogram(histogram) => return put_histogram(text, name, labels, histogram),
    };
}

/// Buckets of durations, cumulative, by their upper bounds in seconds. All series have the same bounds, so that they can be added up.
fn put_histogram(text: &mut String, name: &str, labels: &str, histogram: &Histogram) {
    for (bound, below) in histogram.cumulative() {
        let bound = bound as f64 / SECOND;
        let _infallible = writeln!(text, "{name}_bucket{{{labels},le=\"{bound:?}\"}} {below}");
    }
    let (count, sum) = (histogram.count(), histogram.sum as f64 / SECOND);
    let _infallible = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _infallible = writeln!(text, "{name}_count{{{labels}}} {count}");
    let _infallible = writeln!(text, "{name}_sum{{{labels}}} {sum:?}");
}

/// A label's value or a help text.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
