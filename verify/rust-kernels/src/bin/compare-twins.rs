//! Compares the kernels of `twins.rs` with their twins in MSL on a device: results, then device times in alternation.
//!
//! `cargo run -p elinvar-rust-kernels --bin compare-twins [ROUNDS]` prints the ratio of the twin's time to the Rust kernel's (above 1 the Rust
//! kernel is faster), both without checks; the median of the rounds' ratios.
#![allow(unsafe_code)] // launches without checks, of kernels that stay in bounds for these sizes

use elinvar::kernel::{BoundKernel, Vec4};
use elinvar::{Arg, Buffer, Device, Grid, Kernel, KernelOptions, Pod, Result, Source, Stream, Tier};
use elinvar_rust_kernels::twins;

/// A kernel and its twin over the same arguments.
struct Pair {
    name: &'static str,
    rust: BoundKernel,
    twin: (&'static str, Vec<Arg>),
    grid: Grid,
    /// Elements by which results of both may differ, relative to 1.
    tolerance: f32,
}

macro_rules! metal {
    ($file:literal) => {
        include_str!(concat!("../../../../crates/cli/src/bench/kernels/", $file))
    };
}

const DISPATCHES: usize = 8;

fn time(stream: &Stream, kernel: &Kernel, grid: &Grid, arguments: &[Arg]) -> Result<f64> {
    let mut commands = stream.command_buffer();
    for _ in 0..DISPATCHES {
        // SAFETY: the kernels stay in bounds for the sizes below.
        unsafe { commands.launch(kernel, grid.clone(), arguments) }?;
    }
    let timing = commands.submit()?.wait()?;
    Ok((timing.end_ns - timing.start_ns) as f64)
}

fn compare(device: &Device, stream: &Stream, pair: &Pair, rounds: usize) -> Result<()> {
    let optimized = || KernelOptions::new().tier(Tier::Optimized);
    let rust = device.compile(pair.rust.source())?.kernel_with(pair.name, optimized())?;
    let twin = device.compile(Source::msl(pair.twin.0))?.kernel_with(pair.name, optimized())?;
    let (rust_arguments, twin_arguments) = (pair.rust.arguments(), &pair.twin.1);
    let mut ratios = Vec::new();
    let mut least = (f64::MAX, f64::MAX);
    for round in 0..=rounds {
        let ours = time(stream, &rust, &pair.grid, &rust_arguments)?;
        let theirs = time(stream, &twin, &pair.grid, twin_arguments)?;
        if round > 0 {
            ratios.push(theirs / ours);
            least = (least.0.min(ours), least.1.min(theirs));
        }
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!(
        "{:24} median {median:.3}, of the least times {:.3} ({:.0} µs)",
        pair.name,
        least.1 / least.0,
        least.0 / 1000.0 / DISPATCHES as f64
    );
    Ok(())
}

/// Launches both once, each with an output of its own, and compares these.
fn same<T: Pod + Into<f64>>(name: &str, ours: &Buffer<T>, theirs: &Buffer<T>, tolerance: f32) -> Result<()> {
    for (at, (x, y)) in ours.to_vec()?.into_iter().zip(theirs.to_vec()?).enumerate() {
        let (x, y): (f64, f64) = (x.into(), y.into());
        let allowed = f64::from(tolerance) * y.abs().max(1.0);
        assert!((x - y).abs() <= allowed, "{name}: element {at} is {x}, by the twin {y}");
    }
    Ok(())
}

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(15);
    let device = Device::system_default()?;
    let stream = device.stream()?;
    println!("{}: time of the twin in MSL / time of the kernel in Rust, without checks", device.name());
    let floats = |count: usize| -> Vec<f32> { (0..count).map(|i| (i % 1021) as f32 / 512.0 - 1.0).collect() };
    let n = 1 << 20;
    let (a, b) = (device.buffer_with_data(&floats(n))?, device.buffer_with_data(&floats(n))?);
    // A macro, since each kernel has types of its own.
    macro_rules! pair {
        ($name:ident, $text:expr, $grid:expr, $tolerance:expr, $ours:ident, $theirs:ident: $out:expr, ($($ours_arg:expr),*), ($($twin_arg:expr),*)) => {{
            let mut $ours = $out;
            let mut $theirs = $out;
            let rust = twins::$name.bind(($($ours_arg,)*))?;
            let twin = ($text, vec![$(Arg::from($twin_arg)),*]);
            let pair = Pair { name: stringify!($name), rust, twin, grid: $grid, tolerance: $tolerance };
            let (kernel, other) =
                (pair.rust.kernel(&device)?, device.compile(Source::msl(pair.twin.0))?.kernel(pair.name)?);
            // SAFETY: as in `time`.
            unsafe {
                kernel.launch(&stream, pair.grid.clone(), pair.rust.arguments())?.wait()?;
                other.launch(&stream, pair.grid.clone(), &pair.twin.1)?.wait()?;
            }
            same(pair.name, &$ours, &$theirs, pair.tolerance)?;
            compare(&device, &stream, &pair, rounds)?;
        }};
    }
    let out = || device.buffer::<f32>(n);
    let line = || Grid::threads(n).group(256);
    pair!(vector_add, metal!("vector_add.metal"), line(), 0.0, x, y: out()?, (&a, &b, &mut x, n as u32), (&a, &b, &mut y, n as u32));
    pair!(saxpy, metal!("saxpy.metal"), line(), 1e-6, x, y: out()?, (&a, &mut x, 0.5, n as u32), (&a, &mut y, 0.5f32, n as u32));
    let index: Vec<u32> = (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761) % n as u32).collect();
    let index = device.buffer_with_data(&index)?;
    pair!(gather, metal!("gather.metal"), line(), 0.0, x, y: out()?, (&index, &a, &mut x), (&index, &a, &mut y));
    let side = 256usize;
    let square = || Grid::threads((side, side)).group((32, 8));
    let out = || device.buffer::<f32>(side * side);
    pair!(matmul_naive, metal!("matmul.metal"), square(), 1e-4, x, y: out()?, (&a, &b, &mut x, side as u32), (&a, &b, &mut y, side as u32));
    let tiles = Grid::threads((side, side)).group((16, 16));
    pair!(matmul_tiled, metal!("matmul.metal"), tiles.clone(), 1e-4, x, y: out()?, (&a, &b, &mut x, side as u32), (&a, &b, &mut y, side as u32));
    let side = 1024usize;
    let out = || device.buffer::<f32>(side * side);
    let rows = Grid::groups((32, 32)).group((32, 8));
    pair!(transpose, metal!("transpose.metal"), rows.clone(), 0.0, x, y: out()?, (&a, &mut x, side as u32), (&a, &mut y, side as u32));
    pair!(reduce_tree, metal!("reduce.metal"), line(), 1e-3, x, y: device.buffer::<f32>(n / 256)?, (&a, &mut x), (&a, &mut y));
    pair!(reduce_simd, metal!("reduce.metal"), line(), 1e-3, x, y: device.buffer::<f32>(n / 256)?, (&a, &mut x), (&a, &mut y));
    let rows = Grid::groups(1024).group(256);
    pair!(softmax, metal!("softmax.metal"), rows.clone(), 1e-5, x, y: out()?, (&a, &mut x, side as u32), (&a, &mut y, side as u32));
    let bytes: Vec<u8> = (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bytes = device.buffer_with_data(&bytes)?;
    let bins = || device.buffer::<u32>(256);
    pair!(histogram_device, metal!("histogram.metal"), line(), 0.0, x, y: bins()?, (&bytes, &mut x), (&bytes, &mut y));
    let groups = Grid::groups(n / 256 / 16).group(256);
    pair!(histogram_threadgroup, metal!("histogram.metal"), groups.clone(), 0.0, x, y: bins()?, (&bytes, &mut x), (&bytes, &mut y));
    let side = 512usize;
    let picture = Grid::threads((side, side)).group((16, 16));
    pair!(mandelbrot, metal!("mandelbrot.metal"), picture.clone(), f32::MAX, x, y: device.buffer::<u32>(side * side)?, (&mut x, side as u32, 200), (&mut y, side as u32, 200u32));
    let side = 96usize;
    let cube = Grid::threads((side, side, side)).group((32, 4, 2));
    pair!(stencil3d, metal!("stencil3d.metal"), cube.clone(), 1e-5, x, y: device.buffer::<f32>(side * side * side)?, (&a, &mut x, side as u32), (&a, &mut y, side as u32));
    let count = 2048usize;
    let bodies: Vec<Vec4<f32>> =
        floats(count * 4).chunks(4).map(|v| Vec4::new(v[0], v[1], v[2], 1.0)).collect();
    let bodies = device.buffer_with_data(&bodies)?;
    let mut ours = device.buffer::<Vec4<f32>>(count)?;
    let mut theirs = device.buffer::<Vec4<f32>>(count)?;
    let pair = Pair {
        name: "nbody",
        rust: twins::nbody.bind((&bodies, &mut ours, count as u32, 0.01))?,
        twin: (
            metal!("nbody.metal"),
            vec![Arg::from(&bodies), Arg::from(&mut theirs), Arg::from(count as u32), Arg::from(0.01f32)],
        ),
        grid: Grid::threads(count).group(256),
        tolerance: 1e-3,
    };
    compare(&device, &stream, &pair, rounds)?;
    for (at, (x, y)) in ours.to_vec()?.into_iter().zip(theirs.to_vec()?).enumerate() {
        assert!(
            (x - y).length() <= pair.tolerance * y.length().max(1.0),
            "nbody: element {at} is {x:?}, by the twin {y:?}"
        );
    }
    Ok(())
}
