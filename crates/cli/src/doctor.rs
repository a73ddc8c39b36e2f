//! `elinvar doctor`: proves for each device that it computes, and says what is missing and how to get it.

use std::time::Instant;

use clap::Args;
use elinvar::{Buffer, Device, Grid, Library, Source};
use elinvar_cache::Cache;
use elinvar_msl::Toolchain;
use serde_json::{Value, json};

use crate::devices::{absent_json, compiler_json, print_absent_and_compiler, print_caps};
use crate::failure::{Failure, Result};
use crate::report::{print_json, say, time_text};

const KERNELS: &str = include_str!("doctor/kernels.metal");
/// Elements of the one-dimensional kernels; not a multiple of a threadgroup.
const N: usize = 100_003;
/// Rows and columns of the matrices.
const SIDE: usize = 64;

/// Prove that each device computes, and say what is missing
///
/// On every device, six kernels are compiled and run, and every element is compared with the host's own result. Exits with 0 if every device that
/// is there computes; a machine without a GPU is no failure.
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar doctor\n  elinvar doctor --json")]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found about a device.
struct Examined {
    device: Device,
    /// Name of each kernel, and its number of elements, or why it does not compute.
    kernels: Vec<(&'static str, std::result::Result<usize, String>)>,
    took_ns: u64,
}

impl Doctor {
    pub fn run(self) -> Result<()> {
        let examined: Vec<Examined> = Device::all()?.into_iter().map(examine).collect();
        let (toolchain, cache) = (Toolchain::find(), Cache::examine());
        let failures =
            examined.iter().flat_map(|one| &one.kernels).filter(|(_, result)| result.is_err()).count();
        if self.json {
            let devices: Vec<Value> = examined.iter().map(Examined::json).collect();
            let (absent, compiler) = (absent_json(), compiler_json(&toolchain));
            let cache = match &cache {
                Ok(folder) => json!({ "folder": folder }),
                Err(why) => json!({ "error": why }),
            };
            print_json(&json!({
                "version": env!("CARGO_PKG_VERSION"), "devices": devices, "absent": absent, "compiler": compiler, "cache": cache,
                "failures": failures,
            }))?;
        } else {
            say(format_args!("elinvar {}", env!("CARGO_PKG_VERSION")))?;
            examined.iter().try_for_each(Examined::print)?;
            print_absent_and_compiler(&toolchain)?;
            match &cache {
                Ok(Some(folder)) => {
                    say(format_args!("cache  {}: entries are stored and found", folder.display()))
                }
                Ok(None) => say("cache  off, by ELINVAR_CACHE: every program compiles its kernels anew"),
                Err(why) => say(format_args!(
                    "cache  does not work: every program compiles its kernels anew\n  {}\n  ELINVAR_CACHE can name another folder",
                    indented(why)
                )),
            }?;
        }
        if failures == 0 {
            return Ok(());
        }
        if !self.json {
            say(format_args!("{failures} failed"))?;
        }
        Err(Failure::Reported(3))
    }
}

impl Examined {
    fn print(&self) -> Result<()> {
        print_caps(self.device.caps())?;
        for (name, value) in self.device.details() {
            say(format_args!("  {name} {value}"))?;
        }
        for (name, result) in &self.kernels {
            match result {
                Ok(elements) => say(format_args!("  ok      {name}: {elements} elements")),
                Err(why) => say(format_args!("  FAILED  {name}: {}", indented(why))),
            }?;
        }
        say(format_args!("  compiled, run and compared in {}", time_text(self.took_ns)))
    }

    fn json(&self) -> Value {
        let kernels = self.kernels.iter().map(|(name, result)| match result {
            Ok(elements) => json!({ "name": name, "elements": elements }),
            Err(why) => json!({ "name": name, "error": why }),
        });
        json!({
            "kind": self.device.kind().name(),
            "name": self.device.name(),
            "kernels": kernels.collect::<Vec<_>>(),
            "ns": self.took_ns,
        })
    }
}

fn indented(text: &str) -> String {
    text.replace('\n', "\n  ")
}

fn examine(device: Device) -> Examined {
    type Check = fn(&Device, &Library) -> elinvar::Result<(usize, Option<usize>)>;
    let checks: [(&str, Check); 6] = [
        ("positions", positions),
        ("vector_add", vector_add),
        ("scale", scale),
        ("double_in_place", double_in_place),
        ("matmul", matmul),
        ("reduce", reduce),
    ];
    let begun = Instant::now();
    let kernels = match device.compile(Source::named("doctor.metal", KERNELS)) {
        Err(error) => vec![("compilation", Err(error.to_string()))],
        Ok(library) => {
            let examine = |(name, check): (&'static str, Check)| {
                let result = match check(&device, &library) {
                    Ok((elements, None)) => Ok(elements),
                    Ok((elements, Some(wrong))) => Err(format!("element {wrong} of {elements} is wrong")),
                    Err(error) => Err(error.to_string()),
                };
                (name, result)
            };
            checks.into_iter().map(examine).collect()
        }
    };
    let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Examined { device, kernels, took_ns }
}

/// Launches a kernel of this file, all of which stay within their arguments, and waits.
fn launch(
    device: &Device,
    library: &Library,
    name: &str,
    grid: Grid,
    args: impl elinvar::Args,
) -> elinvar::Result<()> {
    let stream = device.stream()?;
    // SAFETY: each kernel accesses the elements of its own thread, of buffers as large as the grid.
    #[allow(unsafe_code)]
    let launched = unsafe { library.kernel(name)?.launch(&stream, grid, args) }?;
    launched.wait().map(drop)
}

/// The number of elements, and the first that is not as expected.
fn compare<T: elinvar::Pod + PartialEq>(
    out: &Buffer<T>,
    expected: impl Fn(usize) -> T,
) -> elinvar::Result<(usize, Option<usize>)> {
    let out = out.to_vec()?;
    Ok((out.len(), out.iter().enumerate().position(|(i, value)| *value != expected(i))))
}

fn ramp(i: usize) -> f32 {
    (i % 1000) as f32 * 0.5 - 100.0
}

fn positions(device: &Device, library: &Library) -> elinvar::Result<(usize, Option<usize>)> {
    let mut out = device.buffer_with_data(&[7_u32; N])?;
    launch(device, library, "positions", Grid::threads(N), (&mut out,))?;
    compare(&out, |i| i as u32)
}

fn vector_add(device: &Device, library: &Library) -> elinvar::Result<(usize, Option<usize>)> {
    let a = device.buffer_with_data(&(0..N).map(ramp).collect::<Vec<_>>())?;
    let b = device.buffer_with_data(&(0..N).map(|i| ramp(3 * i)).collect::<Vec<_>>())?;
    let mut out = device.buffer::<f32>(N)?;
    launch(device, library, "vector_add", Grid::threads(N), (&a, &b, &mut out))?;
    compare(&out, |i| ramp(i) + ramp(3 * i))
}

fn scale(device: &Device, library: &Library) -> elinvar::Result<(usize, Option<usize>)> {
    let input = device.buffer_with_data(&(0..N).map(ramp).collect::<Vec<_>>())?;
    let mut out = device.buffer::<f32>(N)?;
    launch(device, library, "scale", Grid::threads(N), (&input, &mut out, 2.7_f32))?;
    compare(&out, |i| ramp(i) * 2.7)
}

fn double_in_place(device: &Device, library: &Library) -> elinvar::Result<(usize, Option<usize>)> {
    let mut data = device.buffer_with_data(&(0..N as u32).collect::<Vec<_>>())?;
    launch(device, library, "double_in_place", Grid::threads(N), (&mut data,))?;
    compare(&data, |i| 2 * i as u32)
}

/// Of small integers, so that the sums are exact in any order.
fn matmul(device: &Device, library: &Library) -> elinvar::Result<(usize, Option<usize>)> {
    let of = |row: usize, column: usize, by: usize| ((row * by + column) % 13) as f32 - 6.0;
    let values = |by| (0..SIDE * SIDE).map(|i| of(i / SIDE, i % SIDE, by)).collect::<Vec<_>>();
    let (a, b) = (device.buffer_with_data(&values(5))?, device.buffer_with_data(&values(7))?);
    let mut out = device.buffer::<f32>(SIDE * SIDE)?;
    let grid = Grid::threads((SIDE, SIDE)).group((16, 16));
    launch(device, library, "matmul", grid, (&a, &b, &mut out, SIDE as u32))?;
    compare(&out, |i| (0..SIDE).map(|k| of(i / SIDE, k, 5) * of(k, i % SIDE, 7)).sum())
}

fn reduce(device: &Device, library: &Library) -> elinvar::Result<(usize, Option<usize>)> {
    let values: Vec<u32> = (0..N as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 16).collect();
    let (input, mut sum) = (device.buffer_with_data(&values)?, device.buffer::<u32>(1)?);
    launch(device, library, "reduce", Grid::threads(N), (&input, &mut sum))?;
    compare(&sum, |_| values.iter().fold(0, |sum: u32, value| sum.wrapping_add(*value)))
}
