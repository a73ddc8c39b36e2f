//! Cooperative launches on the CPU: workers that other queues occupy, workers that are taken away, cancellation, and deadlines.

use std::time::Duration;

use elinvar::{Device, Error, Grid, Kernel, Source, Stream};
use elinvar_driver::Driver as _;
use elinvar_driver_cpu::CpuDriver;

const ROTATE: &str = "#include <elinvar/grid>
    kernel void rotate_by(device uint* x, constant uint& rounds, uint i [[thread_position_in_grid]],
        uint n [[threads_per_grid]]) {
        for (uint round = 0; round < rounds; ++round) {
            uint taken = x[(i + 1u) % n];
            elinvar::grid_barrier();
            x[i] = taken + round;
            elinvar::grid_barrier();
        }
    }";

const N: usize = 2000;

fn cpu(workers: usize) -> Device {
    Device::new(CpuDriver::with_threads(workers).devices().unwrap().remove(0))
}

fn rotate(device: &Device) -> Kernel {
    device.compile(Source::msl(ROTATE)).unwrap().kernel("rotate_by").unwrap()
}

fn launch(
    kernel: &Kernel,
    stream: &Stream,
    (x, rounds): (&mut elinvar::Buffer<u32>, u32),
) -> elinvar::Completion {
    // SAFETY: a thread accesses its element and the next one, around the end.
    #[allow(unsafe_code)]
    unsafe { kernel.launch_cooperative(stream, Grid::threads(N).group(8), (x, rounds)) }.unwrap()
}

fn rotated(rounds: u32) -> Vec<u32> {
    (0..N as u32).map(|i| (i + rounds) % N as u32 + (0..rounds).sum::<u32>()).collect()
}

/// 250 threadgroups with 200 barriers for each of more queues than workers, whose number changes meanwhile.
#[test]
fn more_queues_than_workers_end() {
    for workers in [1, 2, 4] {
        let driver = CpuDriver::with_threads(workers).devices().unwrap().remove(0);
        let device = Device::new(driver.clone());
        let kernel = rotate(&device);
        let first: Vec<u32> = (0..N as u32).collect();
        let mut all: Vec<_> =
            (0..5).map(|_| (device.stream().unwrap(), device.buffer_with_data(&first).unwrap())).collect();
        let done: Vec<_> =
            all.iter_mut().map(|(stream, buffer)| launch(&kernel, stream, (buffer, 100))).collect();
        for units in [1, workers as u32, 1, workers as u32] {
            driver.use_units(units).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        done.iter().for_each(|done| assert!(done.wait().is_ok()));
        for (_, buffer) in all {
            assert_eq!(buffer.to_vec().unwrap(), rotated(100), "{workers} workers");
        }
    }
}

/// A launch that its deadline stops between barriers leaves workers and memory for the next one.
#[test]
fn a_stopped_launch_leaves_nothing_behind() {
    let device = cpu(2);
    let (kernel, stream) = (rotate(&device), device.stream().unwrap());
    for _ in 0..3 {
        let mut x = device.buffer_with_data(&vec![0; N]).unwrap();
        let mut commands = stream.command_buffer();
        commands.deadline(Duration::from_millis(5)).unwrap();
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe { commands.launch(&kernel, Grid::threads(N).group(8).cooperative(), (&mut x, u32::MAX)) }
            .unwrap();
        let ended = commands.submit().unwrap().wait();
        assert!(matches!(ended, Err(Error::Timeout(_))), "{ended:?}");
        stream.acknowledge();
        x.write(&(0..N as u32).collect::<Vec<_>>()).unwrap();
        launch(&kernel, &stream, (&mut x, 3)).wait().unwrap();
        assert_eq!(x.to_vec().unwrap(), rotated(3));
    }
}

/// Dynamic threadgroup memory, here 1 MiB for each threadgroup, counts.
#[test]
fn memory_limits_the_grid() {
    let device = cpu(1);
    let kernel = rotate(&device);
    let most = kernel.resident_groups(8, 1 << 20).unwrap();
    assert_eq!(kernel.resident_groups(8, 0).unwrap(), 1 << 20);
    assert!((1..1 << 20).contains(&most), "{most}");
    assert!(most * (1 << 20) <= device.caps().limits.total_memory / 8);
    assert!(kernel.resident_groups(8, u64::MAX).unwrap() == 0);
    let wrong = kernel.resident_groups(4096, 0);
    assert!(matches!(wrong, Err(Error::InvalidArgument(_))), "{wrong:?}");
}
