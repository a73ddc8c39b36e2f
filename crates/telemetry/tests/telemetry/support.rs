//! Devices, and a launch.

use elinvar::{Args, Buffer, Completion, Device, Grid, Kernel, Source, Stream};
use elinvar_cache::Cache;
use elinvar_driver::Driver as _;
use elinvar_driver_cpu::CpuDriver;

/// A device that no other test uses.
pub fn device() -> Device {
    Device::new(CpuDriver::with_cache(2, &Cache::off()).devices().unwrap().remove(0))
}

/// A kernel that multiplies each element by 3.
pub fn kernel(device: &Device, name: &str) -> Kernel {
    let text =
        format!("kernel void {name}(device uint* x, uint i [[thread_position_in_grid]]) {{ x[i] *= 3; }}");
    device.compile(Source::named("triple.metal", text)).unwrap().kernel(name).unwrap()
}

pub fn launch(kernel: &Kernel, stream: &Stream, x: &mut Buffer<u32>) -> Completion {
    let threads = x.len();
    launch_with(kernel, stream, threads, (x,))
}

pub fn launch_with(kernel: &Kernel, stream: &Stream, threads: usize, args: impl Args) -> Completion {
    // SAFETY: each thread accesses its own element.
    #[allow(unsafe_code)]
    unsafe { kernel.launch(stream, Grid::threads(threads).group(64), args) }.unwrap()
}
