//! Target of recovery: the share of work that survives injected faults.

use elinvar::Error;

use super::Context;
use crate::failure::Result;

/// Share of jobs with right results while the worker process of an isolated device is killed again and again, in percent.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // launches
pub(super) fn surviving(context: &Context) -> Result<f64> {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use elinvar::{Device, DeviceKind, Grid, IsolatedOptions, RecoveryPolicy};
    use rustix::process::{Pid, Signal, kill_process};

    const JOBS: usize = 300;
    const KILLS: usize = 30;
    const N: usize = 64 << 10;

    let kind = context.device.kind();
    let threads = (kind == DeviceKind::Cpu).then_some(context.threads);
    let isolated =
        elinvar_driver_isolated::device(&IsolatedOptions { kind, threads, ..IsolatedOptions::default() })?;
    let device = Device::new(isolated.clone());
    let policy = RecoveryPolicy { rerun: Some(Device::cpu()?), ..RecoveryPolicy::of(&device) };
    let stream = device.stream_recovering(policy)?;
    let library =
        super::super::carried::compile(&device, "vector_add.metal", super::super::checks::VECTOR_ADD)?;
    let kernel = library.kernel("vector_add")?;
    let ended = AtomicBool::new(false);
    let is_right = |job: usize| -> Result<bool> {
        let (mut a, mut b, mut out) =
            (device.buffer::<f32>(N)?, device.buffer::<f32>(N)?, device.buffer::<f32>(N)?);
        a.fill(job as f32)?;
        b.fill(1.0)?;
        // SAFETY: each buffer has `N` elements, the size passed to the kernel.
        let done =
            unsafe { kernel.launch(&stream, Grid::threads(N).group(256), (&a, &b, &mut out, N as u32)) }?;
        done.wait()?;
        Ok(out.to_vec()?.iter().all(|sum| *sum == job as f32 + 1.0))
    };
    let (survived, killed) = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let (mut killed, mut state) = (0, 1_u64);
            while killed < KILLS && !ended.load(Ordering::Relaxed) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                std::thread::sleep(Duration::from_micros(2_000 + (state >> 33) % 30_000));
                let worker = isolated.process().and_then(|worker| Pid::from_raw(worker as i32));
                killed += usize::from(worker.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok()));
            }
            killed
        });
        let mut survived = 0;
        // Jobs run until all workers have been killed, and at least this many.
        let mut jobs = 0;
        while jobs < JOBS || !killer.is_finished() {
            survived += usize::from(is_right(jobs % 1000).unwrap_or(false));
            stream.acknowledge();
            jobs += 1;
        }
        ended.store(true, Ordering::Relaxed);
        (100.0 * survived as f64 / jobs as f64, killer.join().unwrap_or(0))
    });
    match killed {
        KILLS => Ok(survived),
        _ => Err(Error::DeviceLost(format!("{killed} of {KILLS} faults were injected")).into()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn surviving(_: &Context) -> Result<f64> {
    Err(Error::unsupported("isolated devices are for Linux").into())
}
