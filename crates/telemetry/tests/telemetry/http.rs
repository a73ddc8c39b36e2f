//! The HTTP server, without Prometheus.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use elinvar::{Device, Error, Status};
use elinvar_conformance::sim::{Op, Sim};
use elinvar_telemetry::PrometheusServer;

use crate::support::{busy_device, device, get};

/// A request as it is, and the whole response.
fn raw(server: &PrometheusServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    String::from_utf8(response).unwrap()
}

fn request(server: &PrometheusServer, first: &str, headers: &str) -> String {
    raw(server, &format!("{first} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"))
}

pub fn requests_are_answered_by_what_they_accept() {
    let device = busy_device("answered");
    let server = PrometheusServer::start("127.0.0.1:0", vec![device]).unwrap();
    let plain = request(&server, "GET /metrics?x=1", "");
    assert!(plain.starts_with("HTTP/1.1 200 ") && plain.contains("text/plain; version=0.0.4"), "{plain}");
    assert!(plain.contains("# TYPE elinvar_kernel_launches_total counter\n") && !plain.contains("# EOF"));
    assert!(plain.contains("kernel=\"answered\"} 7\n"), "{plain}");
    // Prometheus' own header.
    let accept = "Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1\r\n";
    let open = request(&server, "GET /metrics", accept);
    assert!(open.contains("application/openmetrics-text; version=1.0.0"), "{open}");
    assert!(open.contains("# TYPE elinvar_kernel_launches counter\n") && open.ends_with("# EOF\n"), "{open}");
    let head = request(&server, "HEAD /metrics", "");
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("elinvar_"), "{head}");
    assert!(request(&server, "GET /", "").starts_with("HTTP/1.1 404 "));
    let post = request(&server, "POST /metrics", "Content-Length: 0\r\n");
    assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("allow: GET, HEAD"), "{post}");
}

pub fn hostile_clients_do_not_stop_the_server() {
    let server = PrometheusServer::start("127.0.0.1:0", vec![device()]).unwrap();
    // Clients that never finish their request, and that send no HTTP.
    let idle: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(server.local_addr()).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
            stream
        })
        .collect();
    drop(raw(&server, "\0\u{1F980}\r\n\r\n"));
    drop(request(&server, &format!("GET /{}", "x".repeat(100_000)), ""));
    let url = format!("http://{}/metrics", server.local_addr());
    assert!(get(&url).unwrap().contains("elinvar_submissions_total"));
    let address = server.local_addr();
    drop(server);
    assert!(get(&url).is_err(), "{address} is still served");
    drop(idle);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = PrometheusServer::start(taken.local_addr().unwrap(), Vec::new()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
}

pub fn a_failing_device_is_not_healthy() {
    let sim = Sim::named("the failing one");
    let device = Device::new(sim.clone());
    let server = PrometheusServer::start("127.0.0.1:0", vec![device.clone()]).unwrap();
    let healthy = request(&server, "GET /healthz", "");
    assert!(healthy.starts_with("HTTP/1.1 200 ") && healthy.contains("the failing one: "), "{healthy}");
    let (stream, mut x) = (device.stream().unwrap(), device.buffer::<u32>(1).unwrap());
    for _ in 0..40 {
        sim.fail_next(Op::Execute, Error::Environment("injected".into()));
        assert!(stream.fill(&mut x, 1).unwrap().wait().is_err());
        stream.acknowledge();
    }
    assert_eq!(device.health().status, Status::Failing);
    let failing = request(&server, "GET /healthz", "");
    assert!(failing.starts_with("HTTP/1.1 503 ") && failing.contains("Queues: Failing"), "{failing}");
}
