//! Devices, and a launch.

use std::sync::LazyLock;

use elinvar::{Args, Buffer, Completion, Device, Graph, Grid, Kernel, Source, Stream};
use elinvar_cache::Cache;
use elinvar_driver::Driver as _;
use elinvar_driver_cpu::CpuDriver;

/// A device that no other test uses, with a cache that was empty when the program began.
pub fn device() -> Device {
    static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
    let cache = Cache::at(FOLDER.path(), 64 << 20, "1");
    Device::new(CpuDriver::with_cache(2, &cache).devices().unwrap().remove(0))
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

/// A TCP port that was free.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A program that is killed when it is dropped.
pub struct Program(pub std::process::Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// Calls `attempt` until it returns a value, for a minute at most: machines are busy.
#[track_caller]
pub fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(why) => assert!(std::time::Instant::now() < end, "{what}: {why}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The body of a response with status 200.
pub fn get(url: &str) -> Result<String, String> {
    let mut response = ureq::get(url).call().map_err(|error| error.to_string())?;
    response.body_mut().read_to_string().map_err(|error| error.to_string())
}

/// Launches, copies, a graph and a failure, and the device that did it: something in most metrics.
pub fn busy_device(kernel_name: &str) -> Device {
    let device = device();
    device.sample_launches(Some(std::time::Duration::ZERO));
    let (triple, stream) = (kernel(&device, kernel_name), device.stream().unwrap().named("busy"));
    let mut x = device.buffer_with_data(&[1_u32; 1000]).unwrap();
    let mut y = device.buffer::<u32>(1000).unwrap();
    (0..7).for_each(|_| drop(launch(&triple, &stream, &mut x)));
    stream.copy(&x, &mut y).unwrap().wait().unwrap();
    assert_eq!(y.to_vec().unwrap(), [3_u32.pow(7); 1000]);
    let graph = Graph::capture(&stream, |commands| commands.copy(&x, &mut y)).unwrap();
    let mut plan = graph.plan().unwrap();
    plan.set_name("copy");
    // SAFETY: a copy needs nothing.
    #[allow(unsafe_code)]
    unsafe { plan.run(&stream) }.unwrap().wait().unwrap();
    let text = "kernel void out(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = 1; }";
    let checked = device.compile(Source::msl(text)).unwrap().checked_kernel("out").unwrap();
    assert!(checked.launch(&stream, Grid::threads(1001), (&mut x,)).unwrap().wait().is_err());
    device
}
