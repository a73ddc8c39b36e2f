//! Prometheus' own parser, of the Python package `prometheus_client`, reads the values that a program has.

use std::collections::BTreeMap;
use std::process::Command;

use elinvar::{Device, Grid, MetricKind, MetricValue, Metrics, Source};

/// Whether Python has the parser.
pub fn is_available(python: &str) -> bool {
    let found = Command::new(python).args(["-c", "import prometheus_client"]).output();
    found.is_ok_and(|output| output.status.success())
}

pub fn read_by_prometheus(python: &str) {
    let device = Device::cpu().unwrap();
    let text = "kernel void twice(device uint* x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }";
    let twice = device.compile(Source::named("metrics.metal", text)).unwrap().kernel("twice").unwrap();
    let (stream, mut x) = (device.stream().unwrap(), device.buffer::<u32>(1000).unwrap());
    for _ in 0..5 {
        // SAFETY: each thread accesses its own element.
        #[allow(unsafe_code)]
        unsafe { twice.launch(&stream, Grid::threads(1000), (&mut x,)) }.unwrap().wait().unwrap();
    }
    let mut metrics = device.metrics();
    metrics.device = "a \"device\"\\\n".into();
    let second = Metrics { device: "second".into(), ..metrics.clone() };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("metrics.txt");
    std::fs::write(&file, Metrics::all_to_openmetrics(&[metrics.clone(), second])).unwrap();
    let script = "import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as families
for family in families(open(sys.argv[1], newline='').read()):
    for sample in family.samples:
        if sample.labels['device'] != 'second':
            assert sample.labels['device'] == 'a \"device\"\\\\\\n', sample
            labels = [value for name, value in sample.labels.items() if name not in ('device', 'index')]
            print(sample.name, *labels, repr(float(sample.value)), sep='\\t')";
    let output = Command::new(python).args(["-c", script]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let read: BTreeMap<Vec<&str>, f64> = text
        .lines()
        .map(|line| {
            let mut words: Vec<&str> = line.split('\t').collect();
            let value = words.pop().unwrap().parse().unwrap();
            (words, value)
        })
        .collect();
    for family in &metrics.families {
        let unit = match family.metric.unit {
            "s" => "_seconds",
            "By" if !family.metric.name.ends_with("bytes") => "_bytes",
            "J" => "_joules",
            "W" => "_watts",
            "Cel" => "_celsius",
            "Hz" => "_hertz",
            "By/s" => "_bytes_per_second",
            _ => "",
        };
        let name = format!("{}{unit}", family.metric.name.replace('.', "_"));
        for point in &family.points {
            let find = |suffix: &str, more: &[&str]| {
                let sample = format!("{name}{suffix}");
                let labels = point.attributes.iter().map(String::as_str).chain(more.iter().copied());
                let key: Vec<&str> = std::iter::once(sample.as_str()).chain(labels).collect();
                *read.get(&key).unwrap_or_else(|| panic!("no {key:?} in {text}"))
            };
            match &point.value {
                MetricValue::Count(count) => assert_eq!(find("_total", &[]), *count as f64),
                MetricValue::Gauge(value) => assert_eq!(find("", &[]), *value as f64),
                MetricValue::Number(value) => {
                    let suffix = if family.metric.kind == MetricKind::Counter { "_total" } else { "" };
                    assert_eq!(find(suffix, &[]), *value);
                }
                MetricValue::Histogram(histogram) => {
                    assert_eq!(find("_count", &[]), histogram.count() as f64);
                    assert_eq!(find("_sum", &[]), histogram.sum as f64 / 1e9);
                    assert_eq!(find("_bucket", &["+Inf"]), histogram.count() as f64);
                    // Below 2^20 ns, about a millisecond.
                    let below = histogram.buckets.iter().filter(|(end, _)| *end <= 1 << 20);
                    let below: u64 = below.map(|(_, count)| count).sum();
                    assert_eq!(find("_bucket", &["0.001048575"]), below as f64);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(read[&vec!["elinvar_kernel_launches_total", "twice"]], 5.0);
}
