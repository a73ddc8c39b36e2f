//! A real Prometheus scrapes a program; promtool checks what it scrapes, and the rules.

use std::path::Path;
use std::process::{Command, Stdio};

use elinvar::{Device, MetricKind, MetricValue};
use elinvar_telemetry::PrometheusServer;
use serde_json::Value;

use crate::support::{Program, busy_device, free_port, get, kernel, launch, wait_for};

const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/monitoring");
const DASHBOARD: &str = include_str!("../../monitoring/grafana-dashboard.json");

/// A Prometheus that scrapes an address every 200 ms with the repository's rules.
struct Prometheus {
    _program: Program,
    url: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(collectors: &Path, target: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\nrule_files: [{MONITORING}/alerts.yml]\n\
             scrape_configs:\n- job_name: elinvar\n  static_configs: [{{targets: ['{target}']}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(collectors.join("prometheus"));
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let program = Program(command.stderr(Stdio::null()).spawn().unwrap());
        Self { _program: program, url: format!("http://{address}"), _folder: folder }
    }

    /// The results of a query, or the error.
    fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let request = ureq::get(format!("{}/api/v1/query", self.url)).query("query", query);
        let mut response = request.call().map_err(|error| format!("{query}: {error}"))?;
        let text = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
        let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok(value["data"]["result"].as_array().cloned().unwrap_or_default())
    }

    /// The value of a query with one result.
    fn one(&self, query: &str) -> Result<f64, String> {
        let results = self.query(query)?;
        match &*results {
            [one] => Ok(one["value"][1].as_str().unwrap_or_default().parse().unwrap_or(f64::NAN)),
            _ => Err(format!("{query}: {} results", results.len())),
        }
    }

    fn expect(&self, query: &str, expected: f64) {
        wait_for("Prometheus", || match self.one(query)? {
            value if value == expected => Ok(()),
            value => Err(format!("{query}: {value}, not {expected}")),
        });
    }
}

/// Each value of the device as a query, and its result. Readings of the hardware change all the time.
fn queries(device: &Device) -> Vec<(String, f64)> {
    let mut queries = Vec::new();
    for family in device.metrics().families {
        let metric = family.metric;
        if family.points.iter().any(|point| matches!(point.value, MetricValue::Number(_))) {
            continue;
        }
        let unit = match metric.unit {
            "s" => "_seconds",
            "By" => "_bytes",
            _ => "",
        };
        let base = metric.name.replace('.', "_");
        let base = if base.ends_with(unit) { base } else { format!("{base}{unit}") };
        for point in family.points {
            let labels = metric.attributes.iter().zip(&point.attributes);
            let labels: String = labels.map(|(name, value)| format!("{name}=\"{value}\",")).collect();
            match point.value {
                MetricValue::Histogram(histogram) => {
                    queries.push((format!("{base}_count{{{labels}}}"), histogram.count() as f64));
                    queries.push((format!("{base}_sum{{{labels}}}"), histogram.sum as f64 / 1e9));
                    queries.push((format!("{base}_bucket{{{labels}le=\"+Inf\"}}"), histogram.count() as f64));
                }
                MetricValue::Count(value) | MetricValue::Gauge(value) => {
                    let total = if metric.kind == MetricKind::Counter { "_total" } else { "" };
                    queries.push((format!("{base}{total}{{{labels}}}"), value as f64));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    queries
}

pub fn queries_return_what_the_program_did(collectors: &Path) {
    let device = busy_device("scraped");
    let server = PrometheusServer::start("127.0.0.1:0", vec![device.clone()]).unwrap();
    let prometheus = Prometheus::start(collectors, &server.local_addr().to_string());
    prometheus.expect("elinvar_kernel_launches_total{kernel=\"scraped\"}", 7.0);
    // More while it scrapes, then every value.
    let (more, stream) = (kernel(&device, "more"), device.stream().unwrap());
    let mut x = device.buffer_with_data(&[1_u32; 100]).unwrap();
    (0..100).for_each(|_| drop(launch(&more, &stream, &mut x)));
    stream.synchronize().unwrap();
    prometheus.expect("elinvar_kernel_launches_total{kernel=\"more\"}", 100.0);
    let queries = queries(&device);
    assert!(queries.len() > 40, "{queries:?}");
    for (query, expected) in &queries {
        prometheus.expect(query, *expected);
    }
    // A reading of the hardware.
    let memory = prometheus.one("process_memory_usage_bytes").unwrap();
    assert!((1e6..1e12).contains(&memory), "{memory}");
    dashboard(&prometheus);
    // The rules are loaded and evaluated. None fires within the first minutes, and each has been computed without an error.
    let rules = wait_for("rules", || {
        let text = get(&format!("{}/api/v1/rules", prometheus.url))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let rules = value["data"]["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
        let are_computed = !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok");
        if are_computed { Ok(rules) } else { Err(text) }
    });
    assert_eq!(rules.len(), 6);
    assert!(rules.iter().all(|rule| rule["state"] != "firing"), "{rules:#?}");
}

/// Every query of the dashboard is accepted, and has a result, apart from those about sensors that this machine may not have.
fn dashboard(prometheus: &Prometheus) {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let (rows, panels): (Vec<_>, Vec<_>) =
        dashboard["panels"].as_array().unwrap().iter().partition(|panel| panel["type"] == "row");
    let queries = |panel: &Value| -> Vec<String> {
        let targets = panel["targets"].as_array().unwrap().iter();
        let expressions = targets.map(|target| target["expr"].as_str().unwrap());
        expressions.map(|text| text.replace("$device", ".*").replace("$__rate_interval", "1m")).collect()
    };
    let mut count = 0;
    for panel in &panels {
        for query in queries(panel) {
            wait_for(panel["title"].as_str().unwrap(), || match prometheus.query(&query)? {
                results if results.is_empty() && !query.contains("hw_gpu") => {
                    Err(format!("{query}: no result"))
                }
                results => Ok(results),
            });
            count += 1;
        }
    }
    assert!(panels.len() >= 20 && count >= 28, "{count} queries in {} panels", panels.len());
    for panel in rows.iter().flat_map(|row| row["panels"].as_array().unwrap()) {
        queries(panel).iter().for_each(|query| drop(prometheus.query(query).unwrap()));
    }
}

/// The metrics of the dashboard are listed: those of sensors may be absent on this machine, and a wrong name would be an empty panel.
pub fn the_dashboard_queries_what_is_listed() {
    let listed =
        include_str!("../../../../docs/metrics.md").to_owned() + include_str!("../../../../docs/hardware.md");
    let listed: Vec<String> = listed
        .lines()
        .filter_map(|line| {
            let mut cells = line.split(" | ");
            let name = cells.next()?.strip_prefix("| `")?.strip_suffix('`')?.replace('.', "_");
            let (kind, unit) = (cells.next()?, cells.next()?.trim_matches('`'));
            let unit = match unit {
                "s" => "_seconds",
                "By" => "_bytes",
                "W" => "_watts",
                "J" => "_joules",
                "Cel" => "_celsius",
                "Hz" => "_hertz",
                _ => "",
            };
            let name = if name.ends_with(unit) { name } else { format!("{name}{unit}") };
            Some(if kind == "counter" { format!("{name}_total") } else { name })
        })
        .collect();
    let mut words = DASHBOARD.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metric = |word: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
        of_histogram.unwrap_or(word).to_owned()
    };
    let begins = ["elinvar_", "hw_", "process_", "system_"];
    let used: std::collections::BTreeSet<String> = words
        .by_ref()
        .filter(|word| begins.iter().any(|begin| word.starts_with(begin)))
        .map(metric)
        .collect();
    let labels = ["hw_name"];
    let unknown: Vec<_> =
        used.iter().filter(|name| !listed.contains(name) && !labels.contains(&name.as_str())).collect();
    assert!(unknown.is_empty() && used.len() > 20, "{unknown:?} of {used:?}");
}

fn promtool(collectors: &Path, arguments: &[&str], input: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input");
    std::fs::write(&file, input).unwrap();
    let mut command = Command::new(collectors.join("promtool"));
    let output = command.args(arguments).stdin(std::fs::File::open(file).unwrap()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

pub fn promtool_accepts_metrics_and_rules(collectors: &Path) {
    let devices = [busy_device("checked_by_promtool"), crate::support::device()];
    let metrics = devices.map(|device| device.metrics());
    let text = elinvar::Metrics::all_to_prometheus(&metrics);
    let (passed, said) = promtool(collectors, &["check", "metrics"], &text);
    assert!(passed && said.trim().is_empty(), "{said}");
    // That the check can fail.
    let (passed, said) =
        promtool(collectors, &["check", "metrics"], &text.replace("launches_total{", "launches_total{{"));
    assert!(!passed, "{said}");
    let rules = format!("{MONITORING}/alerts.yml");
    let (passed, said) = promtool(collectors, &["check", "rules", &rules], "");
    assert!(passed && said.contains("6 rules found"), "{said}");
    let (passed, said) =
        promtool(collectors, &["test", "rules", &format!("{MONITORING}/alerts_test.yml")], "");
    assert!(passed, "{said}");
}
