//! Metrics as text in the OpenMetrics format, which Prometheus reads (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use std::fmt::Write as _;

use super::{Histogram, Metric, MetricKind, MetricValue, Metrics};

/// Bounds of the buckets in the text, in nanoseconds, as powers of two: 1 µs to 69 s.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=36;
/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

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
        let mut text = String::new();
        for metric in super::METRICS {
            let name = name(metric);
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
            };
            let _infallible = writeln!(text, "# TYPE {name} {kind}");
            if let Some(unit) = unit(metric) {
                let _infallible = writeln!(text, "# UNIT {name} {unit}");
            }
            let _infallible = writeln!(text, "# HELP {name} {}", escaped(metric.meaning));
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
        text.push_str("# EOF\n");
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
    for power in BOUNDS {
        // Whole nanoseconds below a power of two, at which a bucket of the histogram ends.
        let end = 1_u64 << power;
        let below: u64 =
            histogram.buckets.iter().filter(|(last, _)| *last <= end).map(|(_, count)| count).sum();
        let bound = (end - 1) as f64 / SECOND;
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
