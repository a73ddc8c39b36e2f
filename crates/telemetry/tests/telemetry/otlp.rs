//! Metrics, logs and spans by OTLP, to a receiver of the test, and to it through a real collector.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use elinvar::{Device, Grid, MetricValue, Source};
use elinvar_telemetry::Otlp;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{
    HistogramDataPoint, NumberDataPoint, metric, number_data_point,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::{Program, busy_device, device, free_port, kernel, launch, wait_for};

/// Path and body.
type Received = (String, Vec<u8>);

/// A collector that keeps requests.
#[derive(Clone)]
struct Receiver {
    server: Arc<tiny_http::Server>,
    bodies: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    fn start() -> Self {
        let receiver = Self {
            server: Arc::new(tiny_http::Server::http("127.0.0.1:0").unwrap()),
            bodies: Arc::default(),
        };
        let to = receiver.clone();
        std::thread::spawn(move || {
            while let Ok(mut request) = to.server.recv() {
                let mut body = Vec::new();
                request.as_reader().read_to_end(&mut body).unwrap();
                if request
                    .headers()
                    .iter()
                    .any(|header| header.value == "gzip" && header.field.equiv("Content-Encoding"))
                {
                    let compressed = std::mem::take(&mut body);
                    flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut body).unwrap();
                }
                to.bodies.lock().unwrap().push((request.url().to_owned(), body));
                let kind = tiny_http::Header::from_bytes("Content-Type", "application/x-protobuf").unwrap();
                request.respond(tiny_http::Response::empty(200).with_header(kind)).unwrap();
            }
        });
        receiver
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.server_addr().to_ip().unwrap())
    }

    fn messages<M: Message + Default>(&self, signal: &str) -> Vec<M> {
        let bodies = self.bodies.lock().unwrap();
        let of_signal = bodies.iter().filter(|(path, _)| path.ends_with(signal));
        of_signal.map(|(_, body)| M::decode(&body[..]).unwrap()).collect()
    }

    fn spans(&self) -> Vec<Span> {
        let all = self.messages::<ExportTraceServiceRequest>("/v1/traces").into_iter();
        let scopes = all.flat_map(|request| request.resource_spans).flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    fn logs(&self) -> Vec<LogRecord> {
        let all = self.messages::<ExportLogsServiceRequest>("/v1/logs").into_iter();
        let scopes = all.flat_map(|request| request.resource_logs).flat_map(|resource| resource.scope_logs);
        scopes.flat_map(|scope| scope.log_records).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.unblock();
    }
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| match pair.value.as_ref().and_then(|value| value.value.clone()) {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|pair| (pair.key.clone(), text(pair))).collect()
}

/// The values of the last message by metric and attributes other than `device`: numbers and histograms.
fn values(message: &ExportMetricsServiceRequest) -> BTreeMap<(String, Vec<String>), MetricValue> {
    let mut values = BTreeMap::new();
    // Readings of the hardware change: that they are there is compared.
    let number = |point: &NumberDataPoint, of: fn(u64) -> MetricValue| match point.value {
        Some(number_data_point::Value::AsInt(value)) => of(u64::try_from(value).unwrap()),
        Some(number_data_point::Value::AsDouble(value)) => MetricValue::Number(value.min(0.0)),
        other => panic!("{other:?}"),
    };
    let key = |name: &str, pairs: &[KeyValue]| {
        let all = attributes(pairs);
        assert_eq!(all["index"], "0");
        let of_point = all.into_iter().filter(|(key, _)| key != "device" && key != "index");
        (name.to_owned(), of_point.map(|(_, value)| value).collect())
    };
    let histogram = |point: &HistogramDataPoint| {
        assert_eq!(point.explicit_bounds.len() + 1, point.bucket_counts.len());
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
        assert!(point.start_time_unix_nano < point.time_unix_nano);
        let sum = (point.sum.unwrap() * 1e9).round() as u64;
        // Of the buckets only the number of values is compared.
        MetricValue::Histogram(elinvar::Histogram { buckets: vec![(0, point.count)], sum })
    };
    for metric in &message.resource_metrics[0].scope_metrics[0].metrics {
        match metric.data.as_ref().unwrap() {
            metric::Data::Gauge(gauge) => gauge.data_points.iter().for_each(|point| {
                values.insert(key(&metric.name, &point.attributes), number(point, MetricValue::Gauge));
            }),
            metric::Data::Sum(sum) => {
                assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "cumulative");
                sum.data_points.iter().for_each(|point| {
                    values.insert(key(&metric.name, &point.attributes), number(point, MetricValue::Count));
                });
            }
            metric::Data::Histogram(of) => of.data_points.iter().for_each(|point| {
                values.insert(key(&metric.name, &point.attributes), histogram(point));
            }),
            other => panic!("{other:?}"),
        }
    }
    values
}

/// The same of the device.
fn expected(device: &Device) -> BTreeMap<(String, Vec<String>), MetricValue> {
    let families = device.metrics().families.into_iter();
    let points =
        families.flat_map(|family| family.points.into_iter().map(move |point| (family.metric.name, point)));
    let value = |value: MetricValue| match value {
        MetricValue::Histogram(histogram) => {
            let count = histogram.count();
            MetricValue::Histogram(elinvar::Histogram { buckets: vec![(0, count)], sum: histogram.sum })
        }
        MetricValue::Number(value) => MetricValue::Number(value.min(0.0)),
        number => number,
    };
    points.map(|(name, point)| ((name.to_owned(), point.attributes), value(point.value))).collect()
}

pub fn metrics_are_the_snapshot() {
    let (device, receiver) = (busy_device("exported"), Receiver::start());
    let otlp = Otlp::new(receiver.url()).service("the service").header("Authorization", "secret");
    let export = otlp.interval(Duration::from_secs(3600)).metrics(vec![device.clone()]).unwrap();
    export.flush().unwrap();
    let messages = receiver.messages::<ExportMetricsServiceRequest>("/v1/metrics");
    assert_eq!(values(&messages[0]), expected(&device));
    let resource = attributes(&messages[0].resource_metrics[0].resource.as_ref().unwrap().attributes);
    assert_eq!(resource["service.name"], "the service");
    // Once more at the end.
    let (more, stream) = (kernel(&device, "more"), device.stream().unwrap());
    launch(&more, &stream, &mut device.buffer(10).unwrap()).wait().unwrap();
    drop(stream);
    drop(export);
    let messages = receiver.messages::<ExportMetricsServiceRequest>("/v1/metrics");
    assert_eq!(messages.len(), 2);
    let launches = ("elinvar.kernel.launches".to_owned(), vec!["more".to_owned()]);
    assert_eq!(values(&messages[1])[&launches], MetricValue::Count(1));
}

pub fn an_absent_collector_is_no_failure() {
    let device = device();
    let nobody = Otlp::new(format!("http://127.0.0.1:{}", free_port())).interval(Duration::from_millis(10));
    let export = nobody.metrics(vec![device.clone()]).unwrap();
    let error = export.flush().unwrap_err().to_string();
    assert!(error.starts_with("http://127.0.0.1:") && error.contains("/v1/metrics: "), "{error}");
    // One that never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let silent_export =
        Otlp::new(url).timeout(Duration::from_millis(200)).metrics(vec![device.clone()]).unwrap();
    assert!(silent_export.flush().is_err());
    // Launches go on, and the ends of the exporters do not hang.
    let (triple, stream) = (kernel(&device, "unexported"), device.stream().unwrap());
    launch(&triple, &stream, &mut device.buffer(10).unwrap()).wait().unwrap();
    drop((export, silent_export));
}

pub fn a_collector_gets_metrics_logs_and_spans(collectors: &Path) {
    let receiver = Receiver::start();
    let (http, grpc, folder) = (free_port(), free_port(), tempfile::tempdir().unwrap());
    let mut command = Command::new(collectors.join("rotel-agent"));
    command.arg("start").arg(format!("--otlp-http-endpoint=127.0.0.1:{http}"));
    command.arg(format!("--otlp-grpc-endpoint=127.0.0.1:{grpc}"));
    command.args(["--exporter=otlp", "--otlp-exporter-protocol=http", "--otlp-exporter-compression=none"]);
    command.arg(format!("--otlp-exporter-endpoint={}", receiver.url())).arg("--batch-timeout=100ms");
    command.arg("--pid-file").arg(folder.path().join("pid")).arg("--log-file").arg(folder.path().join("log"));
    let _program = Program(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for("rotel", || {
        std::net::TcpStream::connect(("127.0.0.1", http)).map_err(|error| error.to_string())
    });

    let otlp = Otlp::new(format!("http://127.0.0.1:{http}")).service("collected");
    let (layer, guard) = otlp.layer().unwrap();
    // Of this thread: the other cases have their own subscriber. The spans of submissions keep it.
    let subscriber = tracing_subscriber::registry().with(layer);
    let device = tracing::subscriber::with_default(subscriber, || {
        let device = device();
        let _request = tracing::info_span!("request").entered();
        let (triple, stream) = (kernel(&device, "collected"), device.stream().unwrap());
        let mut x = device.buffer::<u32>(10).unwrap();
        launch(&triple, &stream, &mut x).wait().unwrap();
        assert!(device.compile(Source::named("wrong.metal", "kernel void wrong( {}")).is_err());
        let checked = device.compile(Source::msl(
            "kernel void past(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = 1; }",
        ));
        let checked = checked.unwrap().checked_kernel("past").unwrap();
        assert!(checked.launch(&stream, Grid::threads(11), (&mut x,)).unwrap().wait().is_err());
        device
    });
    let export = otlp.metrics(vec![device.clone()]).unwrap();
    export.flush().unwrap();

    let launches = ("elinvar.kernel.launches".to_owned(), vec!["collected".to_owned()]);
    wait_for("metrics", || {
        let messages = receiver.messages::<ExportMetricsServiceRequest>("/v1/metrics");
        let found = messages.last().ok_or("nothing was received")?;
        assert_eq!(values(found)[&launches], MetricValue::Count(1));
        assert_eq!(values(found), expected(&device));
        Ok(())
    });
    let of =
        |name: &str| -> Vec<Span> { receiver.spans().into_iter().filter(|span| span.name == name).collect() };
    wait_for("spans", || {
        guard.flush().map_err(|error| error.to_string())?;
        let logs = receiver.logs();
        let has = |event: &str| logs.iter().any(|log| log.event_name == event);
        let both = has("elinvar.submission.failed") && has("elinvar.compile.failed");
        match (of("elinvar.submission").len(), of("elinvar.compile").len(), both) {
            (2, 3, true) => Ok(()),
            other => Err(format!("{other:?}: {logs:#?}")),
        }
    });
    let [request] = &of("request")[..] else { panic!("{:?}", receiver.spans()) };
    let submissions = of("elinvar.submission");
    for span in submissions.iter().chain(&of("elinvar.compile")).chain(&of("elinvar.kernel")) {
        assert_eq!(
            (&span.parent_span_id, &span.trace_id),
            (&request.span_id, &request.trace_id),
            "{}",
            span.name
        );
        assert!(span.start_time_unix_nano < span.end_time_unix_nano);
    }
    let by_kernel = |kernel: &str| {
        submissions.iter().find(|span| attributes(&span.attributes)["kernel"] == kernel).unwrap()
    };
    assert_eq!(attributes(&by_kernel("collected").attributes)["result"], "ok");
    assert_eq!(attributes(&by_kernel("past").attributes)["result"], "kernel_fault");
    let logs = receiver.logs();
    let log = |event: &str| {
        logs.iter().find(|log| log.event_name == event).unwrap_or_else(|| panic!("{event}: {logs:#?}"))
    };
    let failed = log("elinvar.submission.failed");
    assert_eq!((&failed.span_id, &failed.trace_id), (&by_kernel("past").span_id, &request.trace_id));
    assert_eq!((&*failed.severity_text, &*attributes(&failed.attributes)["class"]), ("WARN", "kernel_fault"));
    assert_eq!(log("elinvar.compile.failed").trace_id, request.trace_id);
    drop((export, guard));
}
