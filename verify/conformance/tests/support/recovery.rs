//! Common code of the recovery tests: policies, decisions, a kernel that fails a given number of times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use elinvar::driver::{Access, CodeFacts, Scalar};
use elinvar::{Action, Buffer, Device, Error, Kernel, RecoveryPolicy, Stream, TraceStep};
use elinvar_conformance::sim::Launch;

use super::{Bench, pointer, signature};

/// Three attempts without delays, and one reset.
pub fn policy(device: &Device) -> RecoveryPolicy {
    RecoveryPolicy { backoff: Duration::ZERO, attempts: 3, resets: 1, ..RecoveryPolicy::of(device) }
}

pub fn recovering(bench: &Bench) -> Stream {
    bench.device.trace().start(10_000);
    bench.device.stream_recovering(policy(&bench.device)).unwrap()
}

/// Actions and reasons in the trace.
pub fn decisions(device: &Device) -> Vec<(Action, String)> {
    let events = device.trace().events();
    let decision = |event: &elinvar::TraceEvent| match &event.step {
        TraceStep::Recovery(decision) => Some((decision.action, decision.reason.clone())),
        _ => None,
    };
    events.iter().filter_map(decision).collect()
}

pub fn actions(device: &Device) -> Vec<Action> {
    decisions(device).into_iter().map(|(action, _)| action).collect()
}

pub fn outside() -> Error {
    Error::Environment("a file was away".into())
}

pub fn full() -> Error {
    Error::OutOfMemory { requested: 1, available: 0 }
}

/// `double(device const uint* in, device uint* out)`, which only writes `out`. While `failures` is not zero, it decrements it, writes wrong
/// data and fails.
pub fn double(bench: &Bench, failures: &Arc<AtomicU32>, error: Error) -> Kernel {
    let failures = failures.clone();
    let args = vec![pointer("in", Scalar::U32, Access::Read), pointer("out", Scalar::U32, Access::ReadWrite)];
    let mut signature = signature("double", args);
    signature.code = Some(CodeFacts { only_written: 0b10, ..CodeFacts::default() });
    bench.declare(signature, move |launch: &Launch<'_>| {
        let input: Vec<u32> = words(&launch.bytes(0)?);
        let left = failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let output: Vec<u32> = input.iter().map(|x| if left.is_ok() { 77 } else { 2 * x }).collect();
        launch.write(1, bytemuck::cast_slice(&output))?;
        left.map_or(Ok(()), |_| Err(error.clone()))
    })
}

pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
}

pub fn failing(times: u32) -> Arc<AtomicU32> {
    Arc::new(AtomicU32::new(times))
}

pub fn in_and_out(device: &Device) -> (Buffer<u32>, Buffer<u32>) {
    (device.buffer_with_data(&[1, 2, 3]).unwrap(), device.buffer(3).unwrap())
}
