//! Work of many kinds on a CPU and an isolated device, whose metrics Prometheus can scrape: `scripts/dashboard.sh picture` draws the dashboard of it.
//!
//! ```text
//! cargo run -p elinvar-telemetry --example monitored -- 127.0.0.1:9464 60
//! ```
//!
//! The arguments are the address of the HTTP server, and for how many seconds the work goes on. Load rises and falls; some work fails, as a monitored
//! program's does: indices that are out of range, a kernel that crashes its worker process, sources with a mistake.
#![allow(unsafe_code)] // launches

use std::collections::VecDeque;
use std::f64::consts::TAU;
use std::time::{Duration, Instant};

use elinvar::{Device, Graph, Grid, Library, RecoveryPolicy, Result, Source};
use elinvar_telemetry::PrometheusServer;

const KERNELS: &str = include_str!("monitored.metal");

/// Job, and the name of its thread.
type Job = fn(&Device, &Clock) -> Result<()>;
const JOBS: [(&str, Job); 6] = [
    ("frames", frames),
    ("training", training),
    ("ingest", ingest),
    ("queries", queries),
    ("lookups", lookups),
    ("sources", sources),
];

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    elinvar::serve_if_asked();
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:9464".to_owned());
    let seconds = arguments.next().map_or(Ok(60.0), |text| text.parse())?;
    let clock = Clock { begin: Instant::now(), seconds };
    let device = Device::cpu()?;
    let isolated = if cfg!(target_os = "linux") { Some(Device::isolated()?) } else { None };
    let devices = [&device].into_iter().chain(&isolated).cloned().collect();
    let server = PrometheusServer::start(&*address, devices)?;
    println!("http://{}/metrics", server.local_addr());
    std::thread::scope(|scope| {
        let (device, clock) = (&device, &clock);
        let jobs = JOBS.map(|(name, job)| (name, scope.spawn(move || job(device, clock))));
        let plugins =
            isolated.as_ref().map(|isolated| ("plugins", scope.spawn(move || plugins(isolated, clock))));
        for (name, job) in jobs.into_iter().chain(plugins) {
            let ended = job.join().map_err(|_| format!("{name} panicked"))?;
            ended.map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    })
}

struct Clock {
    begin: Instant,
    seconds: f64,
}

impl Clock {
    /// Calls `work` with the seconds since the begin until the end, and sleeps for the seconds that it returns in between.
    fn repeat(&self, mut work: impl FnMut(f64) -> Result<f64>) -> Result<()> {
        loop {
            let now = self.begin.elapsed().as_secs_f64();
            if now > self.seconds {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs_f64(work(now)?));
        }
    }
}

/// A value that swings between two others.
fn swing(now: f64, period: f64, low: f64, high: f64) -> f64 {
    low + (high - low) * (0.5 - 0.5 * (TAU * now / period).cos())
}

fn library(device: &Device) -> Result<Library> {
    device.compile(Source::named("monitored.metal", KERNELS))
}

/// Images that are written, blurred, mapped and read, 10 to 40 a second.
fn frames(device: &Device, clock: &Clock) -> Result<()> {
    const SIZE: (usize, usize) = (640, 360);
    let pixels = SIZE.0 * SIZE.1;
    let library = library(device)?;
    let (blur, tone_map) = (library.kernel("blur")?, library.kernel("tone_map")?);
    let stream = device.stream()?.named("frames");
    let mut host = vec![1.0_f32; pixels];
    let mut image = device.buffer::<f32>(pixels)?;
    let (mut blurred, mut mapped) = (device.buffer::<f32>(pixels)?, device.buffer::<f32>(pixels)?);
    clock.repeat(|now| {
        host.fill(1.0);
        image.write(&host)?;
        let mut commands = stream.command_buffer();
        // SAFETY: thread (x, y) reads neighbors within the image, and writes pixel (x, y); thread i accesses pixel i.
        unsafe {
            commands.launch(
                &blur,
                Grid::threads(SIZE),
                (&image, &mut blurred, SIZE.0 as u32, SIZE.1 as u32),
            )?;
            commands.launch(&tone_map, Grid::threads(pixels), (&blurred, &mut mapped))?;
        }
        commands.submit()?;
        mapped.read(&mut host)?;
        assert!(host.iter().all(|pixel| *pixel == 0.5));
        Ok(1.0 / swing(now, 70.0, 10.0, 40.0))
    })
}

/// Runs of a graph of three launches: busy for 40 s of each minute.
fn training(device: &Device, clock: &Clock) -> Result<()> {
    const N: usize = 320;
    let library = library(device)?;
    let (matmul, relu) = (library.kernel("matmul")?, library.kernel("relu")?);
    let (a, b) = (device.buffer_with_data(&[0.5_f32; N * N])?, device.buffer_with_data(&[-1.0_f32; N * N])?);
    let mut out = device.buffer::<f32>(N * N)?;
    let mut graph = Graph::new();
    let (mut product, mut active) =
        (graph.transient::<f32>(device, N * N)?, graph.transient::<f32>(device, N * N)?);
    // SAFETY: each thread writes one element, and reads within the matrices.
    unsafe {
        graph.launch(&matmul, Grid::threads((N, N)), (&a, &b, &mut product, N as u32))?;
        graph.launch(&relu, Grid::threads(N * N), (&product, &mut active))?;
        graph.launch(&matmul, Grid::threads((N, N)), (&active, &a, &mut out, N as u32))?;
    }
    let mut plan = graph.plan()?;
    plan.set_name("training step");
    let stream = device.stream()?.named("training");
    clock.repeat(|now| {
        // SAFETY: as above.
        unsafe { plan.run(&stream) }?.wait()?;
        Ok(if now % 60.0 < 40.0 { 0.02 } else { 0.2 })
    })
}

/// Histograms of blocks that the host writes, one submission after the other.
fn ingest(device: &Device, clock: &Clock) -> Result<()> {
    const N: usize = 1 << 16;
    let histogram = library(device)?.kernel("histogram")?;
    let stream = device.stream()?.named("ingest");
    let values: Vec<u32> = (0..N as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 8).collect();
    let (mut block, mut kept) = (device.buffer::<u32>(N)?, device.buffer::<u32>(N)?);
    let mut counts = device.buffer::<u32>(256)?;
    clock.repeat(|now| {
        block.write(&values)?;
        for _ in 0..swing(now, 90.0, 1.0, 12.0) as usize {
            stream.fill(&mut counts, 0)?;
            // SAFETY: each thread reads its element, and adds atomically to one of 256 counts.
            unsafe { histogram.launch(&stream, Grid::threads(N), (&block, &mut counts)) }?;
        }
        stream.copy(&block, &mut kept)?.wait()?;
        assert!(counts.to_vec()?.iter().sum::<u32>() == N as u32);
        Ok(0.05)
    })
}

/// Results of different sizes, of which more or fewer are kept.
fn queries(device: &Device, clock: &Clock) -> Result<()> {
    let relu = library(device)?.kernel("relu")?;
    let stream = device.stream()?.named("queries");
    let mut kept = VecDeque::new();
    let mut count = 0_usize;
    clock.repeat(|now| {
        count += 1;
        let size = 100_000 + 40_000 * (count * count % 17);
        let x = device.buffer_with_data(&vec![-1.0_f32; size])?;
        let mut y = device.buffer::<f32>(size)?;
        // SAFETY: thread i accesses element i, and there are `size` of each.
        unsafe { relu.launch(&stream, Grid::threads(size), (&x, &mut y)) }?.wait()?;
        kept.push_back(y);
        while kept.len() as f64 > swing(now, 110.0, 5.0, 60.0) {
            kept.pop_front();
        }
        Ok(0.08)
    })
}

/// Lookups in a table with checks, which are tried again if they fail: some indices are out of range.
fn lookups(device: &Device, clock: &Clock) -> Result<()> {
    const N: usize = 4096;
    let gather = library(device)?.checked_kernel("gather")?;
    let policy =
        RecoveryPolicy { faults: true, backoff: Duration::from_millis(2), ..RecoveryPolicy::of(device) };
    let stream = device.stream_recovering(policy)?.named("lookups");
    let table = device.buffer_with_data(&[1.0_f32; N])?;
    let mut index = device.buffer_with_data(&[7_u32; N])?;
    let mut found = device.buffer::<f32>(N)?;
    let mut count = 0_usize;
    clock.repeat(|now| {
        count += 1;
        let is_wrong = count.is_multiple_of(if now % 100.0 < 60.0 { 40 } else { 9 });
        index.write(&[if is_wrong { N as u32 } else { 7 }; N])?;
        if gather.launch(&stream, Grid::threads(N), (&table, &index, &mut found))?.wait().is_err() {
            assert!(is_wrong && stream.acknowledge().is_some());
        }
        Ok(0.06)
    })
}

/// Sources that are compiled, some of them once more, some with a mistake.
fn sources(device: &Device, clock: &Clock) -> Result<()> {
    let mut count = 0_u32;
    clock.repeat(|now| {
        count += 1;
        let version = if count.is_multiple_of(4) { count } else { count % 4 };
        let body = if count.is_multiple_of(7) { "x[i] = " } else { "x[i] = k;" };
        let text = format!("constant uint k = {version}; kernel void constant_k(device uint* x, uint i [[thread_position_in_grid]]) {{ {body} }}");
        let compiled = device.compile(Source::msl(text)).and_then(|library| library.kernel("constant_k"));
        assert!(compiled.is_ok() == body.ends_with(';'));
        Ok(swing(now, 80.0, 0.7, 3.0))
    })
}

/// Kernels of others in a process of their own, which one of them crashes from time to time; the work is done again in a new process.
fn plugins(device: &Device, clock: &Clock) -> Result<()> {
    const N: usize = 200_000;
    let library = library(device)?;
    let (iterate, wild) = (library.kernel("iterate")?, library.kernel("wild")?);
    let stream = device.stream_recovering(RecoveryPolicy::of(device))?.named("plugins");
    let x = device.buffer_with_data(&[0.5_f32; N])?;
    let (mut y, mut z) = (device.buffer::<f32>(N)?, device.buffer::<u32>(1)?);
    let mut next_crash = 20.0;
    clock.repeat(|now| {
        if now > next_crash {
            next_crash += 45.0;
            // SAFETY: not at all; the device's own buffers are all that it can harm.
            let ended = unsafe { wild.launch(&stream, Grid::threads(1), (&mut z,)) }?.wait();
            assert!(ended.is_err() && stream.acknowledge().is_some());
            z.write(&[0])?;
        }
        // SAFETY: thread i accesses element i of each.
        unsafe { iterate.launch(&stream, Grid::threads(N), (&x, &mut y)) }?.wait()?;
        Ok(swing(now, 50.0, 0.05, 0.25))
    })
}
