//! The runtime on an NVIDIA GPU with hardware faults: a kernel that destroys the context, and one that exceeds its deadline. Each
//! test runs in its own process; without a GPU they are ignored.

use std::process::Command;
use std::time::Duration;

use elinvar::{Device, DeviceKind, Error, Grid, HostAccess, RecoveryPolicy, Source};
use libtest_mimic::{Arguments, Trial};

const KERNELS: &str = include_str!("runtime_cuda.metal");

type Child = fn(&Device) -> elinvar::Result<()>;

const CHILDREN: &[(&str, Child)] = &[
    ("work_goes_on_elsewhere_after_a_kernel_has_ended_the_device", goes_on_elsewhere),
    ("a_deadline_that_cannot_stop_what_runs_loses_the_device", deadline),
];

fn main() {
    let gpu = Device::all().unwrap_or_default().into_iter().find(|device| device.kind() == DeviceKind::Cuda);
    if let Some(name) = std::env::args().find_map(|arg| arg.strip_prefix("--child=").map(str::to_owned)) {
        let child = CHILDREN.iter().find(|(known, _)| *known == name);
        let (Some((_, child)), Some(gpu)) = (child, gpu) else { panic!("`{name}` and a GPU are needed") };
        return child(&gpu).unwrap_or_else(|error| panic!("{error}"));
    }
    let arguments = Arguments::from_args();
    if gpu.is_none() {
        eprintln!("skipped: no NVIDIA device");
    }
    let trial = |(name, _): &(&'static str, Child)| {
        let name = *name;
        let run = move || {
            let program = std::env::current_exe()?;
            let output = Command::new(program).arg(format!("--child={name}")).output()?;
            println!("{}", String::from_utf8_lossy(&output.stderr));
            if output.status.success() { Ok(()) } else { Err(format!("{}", output.status).into()) }
        };
        Trial::test(format!("cuda::{name}"), run).with_ignored_flag(gpu.is_none())
    };
    libtest_mimic::run(&arguments, CHILDREN.iter().map(trial).collect()).exit();
}

/// A recovering stream runs its work on the CPU, from memory that is still accessible to the host.
#[allow(unsafe_code)] // launches
fn goes_on_elsewhere(gpu: &Device) -> elinvar::Result<()> {
    const N: usize = 1000;
    let library = gpu.compile(Source::named("runtime_cuda.metal", KERNELS))?;
    let (triple, wild) = (library.kernel("triple")?, library.kernel("wild")?);
    let policy = RecoveryPolicy { rerun: Some(Device::cpu()?), ..RecoveryPolicy::of(gpu) };
    let (recovering, plain) = (gpu.stream_recovering(policy)?, gpu.stream()?);
    let mut a = gpu.buffer_for::<u32>(N, HostAccess::Staging)?;
    let mut b = gpu.buffer_for::<u32>(N, HostAccess::Staging)?;
    let mut x = gpu.buffer::<u32>(N)?;
    a.write(&(0..N as u32).collect::<Vec<_>>())?;
    // SAFETY: `triple` stays within its arguments. `wild` does not, which is under test: the GPU's page tables protect the memory of other
    // processes, and this process ends soon.
    let (done, ended) = unsafe {
        let done = triple.launch(&recovering, Grid::threads(N), (&a, &mut b, N as u32 - 1))?;
        done.wait()?;
        let ended = wild.launch(&plain, Grid::threads(32), (&mut x, 1_u64 << 46))?.wait();
        (triple.launch(&recovering, Grid::threads(N), (&a, &mut b, N as u32)), ended)
    };
    assert!(matches!(&ended, Err(Error::Fault(fault)) if fault.kernel == "wild"), "{ended:?}");
    done?.wait()?;
    assert_eq!(b.to_vec()?, (0..N as u32).map(|i| 3 * i).collect::<Vec<_>>());
    let lost = x.to_vec();
    assert!(lost.is_err(), "{lost:?}");
    let refused = gpu.buffer::<u32>(N).map(drop);
    assert!(matches!(refused, Err(Error::DeviceLost(_))), "{refused:?}");
    Ok(())
}

/// Work that exceeds its deadline ends as `Timeout`, and all other work on the device as lost; nothing hangs.
#[allow(unsafe_code)] // launches
fn deadline(gpu: &Device) -> elinvar::Result<()> {
    let slow = gpu.compile(Source::named("runtime_cuda.metal", KERNELS))?.kernel("slow")?;
    let (stream, other) = (gpu.stream()?, gpu.stream()?);
    let (mut out, mut x) = (gpu.buffer::<u32>(32)?, gpu.buffer::<u32>(32)?);
    let gate = gpu.event()?;
    other.wait_for(&gate, 1)?;
    let waiting = other.fill(&mut x, 1)?;
    let mut commands = stream.command_buffer();
    commands.deadline(Duration::from_millis(50))?;
    // SAFETY: the kernel writes 32 elements, which is the size of the buffer.
    unsafe { commands.launch(&slow, Grid::threads(32).group(32), (&mut out, 400_000_000_u32)) }?;
    let ended = commands.submit()?.wait();
    assert!(matches!(&ended, Err(Error::Timeout(text)) if text.starts_with("kernel `slow`")), "{ended:?}");
    let waited = waiting.wait();
    assert!(matches!(waited, Err(Error::DeviceLost(_))), "{waited:?}");
    assert!(matches!(gpu.buffer::<u32>(1).map(drop), Err(Error::DeviceLost(_))));
    Ok(())
}
