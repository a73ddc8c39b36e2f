//! `Route::Auto` through the public API: the faster route is measured once, and remembered by other processes. On the default device:
//! an NVIDIA GPU where there is one. The test program is its own child process, with a cache of its own.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use elinvar::tensor::{MatMul, Plan, Route};
use elinvar::{Device, PrimitiveKind, driver::primitive};

const CHILD: &str = "ELINVAR_TEST_ROUTES";
const TEST: &str = "the_faster_route_is_measured_once_and_remembered";
const SHAPE: [usize; 3] = [300, 310, 320];

/// Counts the measurements.
#[derive(Clone, Default)]
struct Measurements(Arc<Mutex<usize>>);

impl tracing::Subscriber for Measurements {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().ends_with("route_choices")
    }

    fn event(&self, _: &tracing::Event<'_>) {
        *self.0.lock().unwrap() += 1;
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Plans and computes a product twice, compares every element, and prints what was chosen and how often routes were measured.
fn child() {
    let measurements = Measurements::default();
    let _scope = tracing::subscriber::set_default(measurements.clone());
    let device = Device::system_default().unwrap();
    let [m, k, n] = SHAPE;
    let numbers = |count: usize, factor: usize| -> Vec<f32> {
        (0..count).map(|i| ((i * factor) % 33) as f32 / 8.0 - 2.0).collect()
    };
    let (a, b) = (numbers(m * k, 7), numbers(k * n, 5));
    let (left, right) = (device.buffer_with_data(&a).unwrap(), device.buffer_with_data(&b).unwrap());
    let mut routes = Vec::new();
    for _ in 0..2 {
        let mut out = device.buffer_with_data(&vec![7.0f32; m * n]).unwrap();
        let inputs = [left.tensor(&[m, k]).unwrap(), right.tensor(&[k, n]).unwrap()];
        let inputs: Vec<_> = inputs.iter().collect();
        let plan =
            Plan::new(MatMul::default(), &inputs, &mut [&mut out.tensor_mut(&[m, n]).unwrap()], Route::Auto);
        let plan = plan.unwrap();
        device.stream().unwrap().tensor_plan(&plan).unwrap().wait().unwrap();
        for (at, got) in out.to_vec().unwrap().into_iter().enumerate() {
            let term = |i: usize| f64::from(a[at / n * k + i]) * f64::from(b[i * n + at % n]);
            // Multiples of 2⁻⁶ up to 4: their sums are exact in `f32`.
            assert_eq!(f64::from(got), (0..k).map(term).sum::<f64>(), "element {at}");
        }
        routes.push(plan.route());
    }
    assert_eq!(routes[0], routes[1]);
    let has_library = device.caps().features.primitives.has(PrimitiveKind::MatMul, primitive::DataType::F32);
    println!("\n{} {} {has_library}", routes[0], measurements.0.lock().unwrap());
}

/// Route, number of measurements, and whether the device has a library.
fn run(cache: &Path) -> (String, usize, bool) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1").env("ELINVAR_CACHE", cache);
    let output = child.env_remove("ELINVAR_CACHE_LIMIT").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let words = said.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [route @ ("vendor" | "kernel"), count, has] => {
            Some((route.to_owned(), count.parse().unwrap(), has == "true"))
        }
        _ => None,
    });
    words.unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn the_faster_route_is_measured_once_and_remembered() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let (cache, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = run(cache.path());
    let measured = usize::from(first.2);
    assert_eq!(first.1, measured, "both plans of the first process are of one class");
    assert_eq!(run(cache.path()), (first.0.clone(), 0, first.2), "another process remembers");
    assert_eq!(run(other.path()).1, measured, "another cache does not");
    if !first.2 {
        assert_eq!(first.0, "kernel");
    }
}
