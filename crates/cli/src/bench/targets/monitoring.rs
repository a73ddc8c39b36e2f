//! Target of monitoring: what a launch costs more while it is watched.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elinvar::Grid;
use tracing::span;

use super::super::Context;
use super::super::carried::compile;
use super::super::checks::VECTOR_ADD;
use super::overhead;
use crate::failure::Result;
use crate::report::median;

const ROUNDS: usize = 40;
const LAUNCHES: usize = 100;
/// Time between two readings of the metrics.
const INTERVAL: Duration = Duration::from_millis(10);

/// A subscriber of events and spans up to level INFO.
#[derive(Default)]
struct Info {
    received: AtomicU64,
}

impl tracing::Subscriber for Info {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::INFO)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1 + self.received.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Time of a launch while metrics are read and events are received, against the same without, in percent.
#[allow(unsafe_code)] // launches
pub(super) fn overhead_of_monitoring(context: &Context) -> Result<f64> {
    const N: usize = 64 * 256;
    let device = &context.device;
    let kernel = compile(device, "vector_add.metal", VECTOR_ADD)?.kernel("vector_add")?;
    let stream = device.stream()?;
    let (a, mut out) = (device.buffer_with_data(&[1.0_f32; N])?, device.buffer::<f32>(N)?);
    let mut launches = || -> Result<u64> {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            // SAFETY: each buffer has `N` elements, the size passed to the kernel.
            unsafe { kernel.launch(&stream, Grid::threads(N).group(256), (&a, &a, &mut out, N as u32)) }?
                .wait()?;
        }
        Ok(start.elapsed().as_nanos() as u64)
    };
    launches()?;
    let (reads, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    let times = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                std::thread::sleep(INTERVAL);
                if reads.load(Ordering::Relaxed) {
                    std::hint::black_box(device.metrics().to_openmetrics());
                }
            }
        });
        let mut in_turns = || -> Result<[Vec<u64>; 2]> {
            let mut times = [Vec::new(), Vec::new()];
            for round in 0..ROUNDS {
                // Each comes first in turn.
                for watched in [round % 2 == 0, round % 2 == 1] {
                    reads.store(watched, Ordering::Relaxed);
                    let time = match watched {
                        true => tracing::subscriber::with_default(Info::default(), &mut launches)?,
                        false => launches()?,
                    };
                    times[usize::from(watched)].push(time);
                }
            }
            Ok(times)
        };
        let times = in_turns();
        ends.store(true, Ordering::Relaxed);
        let _ended = reader.join();
        times
    })?;
    super::super::compare("vector_add", &out.to_vec()?, &[2.0; N])?;
    let [plain, watched] = times.map(median);
    Ok(overhead(watched, plain))
}
