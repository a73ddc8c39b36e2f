//! [`PrometheusServer`]: serves the metrics of devices over HTTP, to be scraped by Prometheus.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use elinvar::{Device, Metrics, Status};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, oneshot};

/// Connections at a time. Further clients wait.
const CONNECTIONS: usize = 256;
/// Maximum time for the head of a request, also of a further one on the same connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time of a connection: a client may not read.
const LONGEST: Duration = Duration::from_secs(120);
const PLAIN: &str = "text/plain; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text";

/// Serves the metrics of devices over HTTP until it is dropped.
///
/// | path | response |
/// |---|---|
/// | `/metrics` | The devices' metrics: OpenMetrics 1.0.0 if the request accepts it, otherwise Prometheus' text format 0.0.4 |
/// | `/healthz` | [`Device::health`] of each device as text; status 200, or 503 if one is failing or terminal |
///
/// Everybody who can reach the address can read them: there is neither encryption nor authentication. For more, use
/// [`Metrics::all_to_openmetrics`] with the program's own server.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = elinvar::Device::system_default()?;
/// let server = elinvar_telemetry::PrometheusServer::start("127.0.0.1:9464", vec![device])?;
/// println!("http://{}/metrics", server.local_addr());
/// # Ok(())
/// # }
/// ```
#[must_use = "it ends when it is dropped"]
pub struct PrometheusServer {
    address: SocketAddr,
    /// Ends the thread when it is dropped.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PrometheusServer {
    /// Starts to serve at an address. Port 0 is any free port; [`PrometheusServer::local_addr`] tells which.
    ///
    /// # Errors
    /// If the address cannot be used, or a thread cannot be started.
    pub fn start(address: impl ToSocketAddrs, devices: Vec<Device>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _within = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (end, ended) = oneshot::channel::<()>();
        let serve = move || {
            runtime.spawn(accept(listener, devices.into()));
            let _ended = runtime.block_on(ended);
            // Connections end with it.
            drop(runtime);
        };
        let thread = std::thread::Builder::new().name("elinvar-metrics".into()).spawn(serve)?;
        Ok(Self { address, end: Some(end), thread: Some(thread) })
    }

    /// The address.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PrometheusServer {
    fn drop(&mut self) {
        self.end = None;
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

impl std::fmt::Debug for PrometheusServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrometheusServer({})", self.address)
    }
}

async fn accept(listener: tokio::net::TcpListener, devices: Arc<[Device]>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = free.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, for instance.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let devices = devices.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let devices = devices.clone();
                async move { Ok::<_, Infallible>(answer(&request, &devices)) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            // The client may have left.
            let _ignored =
                tokio::time::timeout(LONGEST, http.serve_connection(TokioIo::new(stream), answer)).await;
            drop(place);
        });
    }
}

fn answer(request: &Request<Incoming>, devices: &[Device]) -> Response<Full<Bytes>> {
    let response = |status: StatusCode, kind: &'static str, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "GET and HEAD only\n".into());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        "/metrics" => {
            let metrics: Vec<Metrics> = devices.iter().map(Device::metrics).collect();
            let mut accepted =
                request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
            if accepted.any(|kinds| kinds.contains(OPENMETRICS)) {
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                response(StatusCode::OK, kind, Metrics::all_to_openmetrics(&metrics))
            } else {
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                response(StatusCode::OK, kind, Metrics::all_to_prometheus(&metrics))
            }
        }
        "/healthz" => {
            let all: Vec<_> = devices.iter().map(|device| (device.name(), device.health())).collect();
            let fails = all.iter().any(|(_, health)| health.status >= Status::Failing);
            let status = if fails { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
            response(status, PLAIN, all.iter().map(|(name, health)| format!("{name}: {health}\n")).collect())
        }
        _ => response(StatusCode::NOT_FOUND, PLAIN, "no such page; there are /metrics and /healthz\n".into()),
    }
}
