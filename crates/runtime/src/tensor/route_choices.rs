//! [`RouteChoices`]: which route is the faster, where both the device's library and kernels compute an operation.
//!
//! Both are measured once for a *shape class*: the operation and its operands, with the sizes of axes rounded up to powers of two. The
//! choice is kept with the device and in the user's cache, so that other processes do not measure again. Measurements run on memory
//! of their own, on a stream of their own. What would cost more to measure than it can save is left
//! to the library, unless this compiles for each shape, but for short products on NVIDIA GPUs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use elinvar_cache::{Cache, Key, decode, encode};
use elinvar_driver::sync::{Mutex, OnceLock};
use elinvar_driver::{DeviceKind, Result, Timing};

use crate::tensor::operation::{Operands, Operation};
use crate::tensor::plan::{Plan, Route};
use crate::tensor::view::TensorRef;
use crate::{Device, HostAccess, Stream};

/// Operations with fewer arithmetic operations and fewer bytes are not measured: compiling a kernel takes longer than a thousand of them.
const FLOPS: u64 = 1 << 24;
const BYTES: u64 = 1 << 22;
/// Terms of the sums of products that small ones may have to be a kernel's without a measurement. Calls of cuBLASLt take the host 7 µs, a launch 3 µs,
/// and the device is done before the next call.
const SHORT: usize = 128;
/// Operations with more bytes are not measured, because a measurement needs as much memory again.
const MOST_BYTES: u64 = 1 << 30;
/// Minimum and maximum number of runs of each route, and the time behind the first run after which no more than the minimum begin.
const FEWEST_RUNS: usize = 2;
const MOST_RUNS: usize = 100;
const TIME: Duration = Duration::from_millis(50);
/// Bytes that are written before each run on a CPU: operands are seldom in the nearest cache, where kernels that pack nothing seem faster.
const EVICTING: usize = 16 << 20;
/// Sizes of axes up to it are not rounded.
const EXACT: usize = 16;

/// The choices of a device. Does not keep the device alive.
#[derive(Default)]
pub(crate) struct RouteChoices {
    known: Mutex<HashMap<String, Route>>,
    cache: OnceLock<Cache>,
}

impl RouteChoices {
    /// The route for an operation that the device's library has for these operands. Measures if no process of this user has. `unmeasured` is
    /// the route of what is not measured.
    pub(crate) fn route(
        &self,
        device: &Device,
        operation: &Operation,
        operands: &Operands<'_>,
        unmeasured: Route,
    ) -> Route {
        let bytes = operands.bytes();
        let is_small = operation.flops(operands) < FLOPS && bytes < BYTES;
        if bytes > MOST_BYTES || (is_small && !is_short_product(device, operation, operands)) {
            return unmeasured;
        }
        let class = class(operation, operands);
        let known = self.known.lock().get(&class).copied();
        if let Some(route) = known {
            return route;
        }
        if is_small {
            // Without a compiler it is the library's.
            let planned = Plan::of(device, operation, operands, Route::Kernel, None);
            let route = planned.map_or(Route::Vendor, |plan| plan.route());
            self.known.lock().insert(class, route);
            return route;
        }
        let cache = self.cache.get_or_init(|| Cache::user(env!("CARGO_PKG_VERSION")));
        let key = key(cache, device, &class);
        let remembered: Option<bool> = cache.load(&key).and_then(|bytes| decode(&bytes));
        let is_kernel = match remembered {
            Some(is_kernel) => is_kernel,
            None => match measure(device, operation, operands) {
                Ok([library_ns, kernel_ns]) => {
                    let is_kernel = is_clearly_less(kernel_ns, library_ns);
                    tracing::debug!(
                        class,
                        library_ns,
                        kernel_ns,
                        "a tensor operation's routes were measured"
                    );
                    cache.store(&key, &encode(&is_kernel));
                    is_kernel
                }
                // Without memory or a compiler, or on a device with a fault: the next plan tries again.
                Err(error) => {
                    tracing::debug!(class, "a tensor operation's routes were not measured: {error}");
                    return unmeasured;
                }
            },
        };
        let route = if is_kernel { Route::Kernel } else { Route::Vendor };
        self.known.lock().insert(class, route);
        route
    }
}

/// Whether it is a product of floats on an NVIDIA GPU whose sums have few terms.
fn is_short_product(device: &Device, operation: &Operation, operands: &Operands<'_>) -> bool {
    let left = operands.inputs.first().filter(|left| left.data_type().is_float());
    let terms = left.and_then(|left| left.shape().last());
    device.kind() == DeviceKind::Cuda
        && matches!(operation, Operation::MatMul(_))
        && terms.is_some_and(|terms| *terms <= SHORT)
}

fn key(cache: &Cache, device: &Device, class: &str) -> Key {
    let primitives = format!("{:?}", device.caps().features.primitives);
    let key = cache.key("tensor route, 7").text(&device.identity()).text(&primitives).text(class);
    // Their versions.
    let libraries = device.details().into_iter().filter(|(name, _)| matches!(*name, "cuBLASLt" | "cuDNN"));
    libraries.fold(key, |key, (_, path)| key.program(Path::new(&path))).finish()
}

/// The shape class, as text.
fn class(operation: &Operation, operands: &Operands<'_>) -> String {
    let mut text = match operation {
        // The factors themselves do not matter.
        Operation::MatMul(product) => {
            let beta = f32::from(u8::from(product.beta != 0.0));
            format!("{:?}", crate::tensor::MatMul { alpha: 1.0, beta, ..*product })
        }
        other => format!("{other:?}"),
    };
    for view in operands.inputs.iter().chain(operands.outputs) {
        let _written = write!(text, " {}[", view.data_type());
        for (size, stride) in view.shape().iter().zip(view.strides()) {
            let size = if *size <= EXACT { *size } else { size.next_power_of_two() };
            let stride = match *stride {
                0 => 'r',
                1 => 'c',
                stride if (stride as u64 * view.data_type().size()).is_multiple_of(16) => 'a',
                _ => 'u',
            };
            let _written = write!(text, "{size}{stride},");
        }
        text.push(if view.used_span().offset.is_multiple_of(16) { ']' } else { '>' });
    }
    text
}

/// The shortest times of the library and of kernels, in nanoseconds on the device's clock.
fn measure(device: &Device, operation: &Operation, operands: &Operands<'_>) -> Result<[u64; 2]> {
    let stream = device.stream()?;
    let in_scratch = |views: &[&TensorRef<'_>]| {
        let views = views.iter().map(|view| in_scratch(&stream, view));
        views.collect::<Result<Vec<_>>>()
    };
    let (inputs, outputs) = (in_scratch(operands.inputs)?, in_scratch(operands.outputs)?);
    let (inputs, outputs) = (inputs.iter().collect::<Vec<_>>(), outputs.iter().collect::<Vec<_>>());
    let operands = Operands { inputs: &inputs, outputs: &outputs };
    let [library, kernel] =
        [Route::Vendor, Route::Kernel].map(|route| Plan::of(device, operation, &operands, route, None));
    let plans = [library?, kernel?];
    let evicting = || device.buffer_for::<u8>(EVICTING, HostAccess::Transient);
    let mut evicting = (device.kind() == DeviceKind::Cpu).then(evicting).transpose()?;
    let (mut best, mut start) = ([u64::MAX; 2], Instant::now());
    for run in 1..=MOST_RUNS {
        for (best, plan) in best.iter_mut().zip(&plans) {
            if let Some(evicting) = &mut evicting {
                stream.fill(evicting, run as u8)?;
            }
            *best = time(&stream, plan)?.min(*best);
        }
        if run >= FEWEST_RUNS && start.elapsed() > TIME {
            break;
        }
        if run == 1 {
            // The first run may load a library.
            start = Instant::now();
        }
    }
    Ok(best)
}

/// Whether a kernel's time is less than the library's by more than a tenth, which is the noise of such a measurement on a busy machine.
fn is_clearly_less(kernel_ns: u64, library_ns: u64) -> bool {
    kernel_ns < library_ns / 10 * 9
}

fn time(stream: &Stream, plan: &Plan) -> Result<u64> {
    let mut command_buffer = stream.command_buffer();
    command_buffer.tensor_plan(plan)?;
    let Timing { start_ns, end_ns, .. } = command_buffer.submit()?.wait()?;
    Ok(end_ns.saturating_sub(start_ns))
}

/// A view of the same shape, strides and alignment, of memory of its own, which is written: until then a host's pages are all the same
/// one, which is always in the cache.
fn in_scratch(stream: &Stream, view: &TensorRef<'_>) -> Result<TensorRef<'static>> {
    let used = view.used_span();
    let skipped = used.offset % 256;
    let bytes = (skipped + used.len) as usize;
    let mut memory = stream.device().buffer_for::<u8>(bytes, HostAccess::Transient)?;
    // 0.75 as a float of 32 or 16 bits.
    stream.fill(&mut memory, 0x3f)?;
    Ok(view.in_place_of(memory, skipped))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use elinvar_driver::Driver as _;
    use elinvar_driver_cpu::CpuDriver;

    use super::*;
    use crate::tensor::MatMul;

    const SIZE: usize = 300;

    fn choices(cache: &Cache) -> RouteChoices {
        let choices = RouteChoices::default();
        choices.cache.get_or_init(|| cache.clone());
        choices
    }

    fn route(choices: &RouteChoices, device: &Device, sizes: [usize; 3], offset: usize) -> Route {
        let [m, k, n] = sizes;
        let [left, right] = [m * k + offset, k * n].map(|len| device.buffer::<f32>(len).unwrap());
        let mut out = device.buffer_with_data(&vec![7.0f32; m * n]).unwrap();
        let left = TensorRef::strided(&left, &[m, k], &[k, 1], offset).unwrap();
        let chosen = choices.route(
            device,
            &MatMul::default().into(),
            &Operands {
                inputs: &[&left, &right.tensor(&[k, n]).unwrap()],
                outputs: &[&out.tensor_mut(&[m, n]).unwrap()],
            },
            Route::Vendor,
        );
        assert!(out.to_vec().unwrap().iter().all(|value| *value == 7.0), "a measurement wrote an operand");
        chosen
    }

    /// Counts measurements, and has the times of the last one.
    #[derive(Clone, Default)]
    struct Measured(Arc<Mutex<Vec<[u64; 2]>>>);

    impl tracing::field::Visit for Measured {
        fn record_u64(&mut self, field: &tracing::field::Field, value: u64) {
            let mut all = self.0.lock();
            match field.name() {
                "library_ns" => all.push([value, 0]),
                "kernel_ns" => all.last_mut().unwrap()[1] = value,
                _ => {}
            }
        }

        fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
    }

    impl tracing::Subscriber for Measured {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target().ends_with("route_choices")
        }

        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut self.clone());
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn the_faster_route_is_chosen_once_for_a_shape_class_and_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path(), 1 << 20, "0");
        let device = Device::new(CpuDriver::with_threads(1).devices().unwrap().remove(0));
        let measured = Measured::default();
        // While there is one subscriber, `tracing` asks that of the thread that first reaches an event whether anybody is interested in it.
        let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
        let _scope = tracing::subscriber::set_default(measured.clone());
        let count = || measured.0.lock().len();

        let first = choices(&cache);
        let chosen = route(&first, &device, [SIZE; 3], 0);
        let [library, kernel] = measured.0.lock()[0];
        assert_eq!(chosen, if is_clearly_less(kernel, library) { Route::Kernel } else { Route::Vendor });
        assert!(library > 0 && kernel > 0);
        // The class has sizes up to 512.
        assert_eq!((route(&first, &device, [257, 500, 512], 0), count()), (chosen, 1));
        // Another process.
        assert_eq!((route(&choices(&cache), &device, [SIZE; 3], 0), count()), (chosen, 1));
        // Other classes: another size, another alignment.
        route(&first, &device, [SIZE, SIZE, 513], 0);
        assert_eq!(count(), 2);
        route(&first, &device, [SIZE; 3], 1);
        assert_eq!(count(), 3);
        // Too small to be measured.
        assert_eq!((route(&first, &device, [100; 3], 0), count()), (Route::Vendor, 3));
    }

    #[test]
    fn what_was_remembered_is_taken_without_a_measurement() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path(), 1 << 20, "0");
        let device = Device::new(CpuDriver::with_threads(1).devices().unwrap().remove(0));
        let [left, mut out] = [(); 2].map(|()| device.buffer::<f32>(SIZE * SIZE).unwrap());
        let operation = MatMul::default().into();
        let (left, out) = (left.tensor(&[SIZE, SIZE]).unwrap(), out.tensor_mut(&[SIZE, SIZE]).unwrap());
        let operands = Operands { inputs: &[&left, &left], outputs: &[&out] };
        for is_kernel in [true, false] {
            cache.store(&key(&cache, &device, &class(&operation, &operands)), &encode(&is_kernel));
            let expected = if is_kernel { Route::Kernel } else { Route::Vendor };
            assert_eq!(choices(&cache).route(&device, &operation, &operands, Route::Vendor), expected);
        }
    }
}
