//! A copy between GPUs, by the path that the driver supports, compared with the driver's copy without peer access, which is
//! staged through the host.
#![allow(unsafe_code)] // a graph's run and C functions

use cudarc::driver::{CudaContext, result, sys};
use elinvar::{Device, DeviceKind, Error, Graph, HostAccess};

use super::nvrtc::failed;
use super::{Context, Measured, gpu};
use crate::bench::cpu::problem::scattered;
use crate::failure::Result;
use crate::report::median;

const WORDS: usize = 1 << 28;
const BYTES: usize = 4 * WORDS;
const ROUNDS: usize = 10;

pub(in super::super) fn peer(context: &Context) -> Result<Measured> {
    let one = gpu(context)?;
    let other = Device::all()?.into_iter().find(|device| device.kind() == DeviceKind::Cuda && device != one);
    let other =
        other.ok_or_else(|| Error::unsupported("a copy between GPUs: there is one NVIDIA GPU only"))?;
    // Before Elinvar enables peer access.
    let staged = staged()?;
    let data: Vec<u32> = scattered(WORDS, u32::MAX).collect();
    let mut source = one.buffer_for::<u32>(WORDS, HostAccess::Never)?;
    let mut target = other.buffer_for::<u32>(WORDS, HostAccess::Never)?;
    source.write(&data)?;
    let mut graph = Graph::new();
    graph.copy(&source, &mut target)?;
    let mut plan = graph.plan()?;
    let route = plan.stats().transfers.first().map(|transfer| transfer.route);
    let stream = one.stream()?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        // SAFETY: the graph has no launches.
        let timing = unsafe { plan.run(&stream) }?.wait()?;
        times.push(timing.end_ns - timing.start_ns);
    }
    if target.to_vec()? != data {
        return Err(Error::DeviceLost("the copy between GPUs is wrong".into()).into());
    }
    Ok(Measured {
        size: format!("1 GiB to {}, route {route:?}", other.name()),
        median_ns: median(times),
        bytes: Some(BYTES as u64),
        baselines: vec![("staged", staged)],
        ..Measured::default()
    })
}

/// The driver's copy between devices without peer access.
fn staged() -> Result<u64> {
    let run = || {
        let contexts = [CudaContext::new(1)?, CudaContext::new(0)?];
        let allocate = |context: &CudaContext| {
            context.bind_to_thread()?;
            // SAFETY: the context is current.
            let memory = unsafe { result::malloc_sync(BYTES) }?;
            Ok((memory, result::ctx::get_current()?.unwrap_or(std::ptr::null_mut())))
        };
        let (to, there) = allocate(&contexts[0])?;
        let (from, here) = allocate(&contexts[1])?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
            let (begin, end) = (event()?, event()?);
            // SAFETY: two allocations of this size, and events of the stream's context.
            unsafe {
                result::event::record(begin, stream)?;
                sys::cuMemcpyPeerAsync(to, there, from, here, BYTES, stream).result()?;
                result::event::record(end, stream)?;
                result::event::synchronize(end)?;
                times.push((f64::from(result::event::elapsed(begin, end)?) * 1e6) as u64);
            }
        }
        // SAFETY: allocated above, and their work has completed.
        unsafe { result::free_sync(from).and(result::free_sync(to)).and(result::stream::destroy(stream)) }?;
        Ok(median(times))
    };
    run().map_err(failed)
}
