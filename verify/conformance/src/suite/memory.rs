//! Memory: contents in every storage mode, zeroing on reuse, host memory in place, ordering of transfers.

use elinvar::{Device, Error, Grid, HostAccess};

use super::{CaseResult, expect_all, kernel, launch};

cases!("memory": every_use, mapped_in_turns, used_again_it_is_zero, of_the_host, flag_of_the_host, transfers_in_order, facts);

const TWICE: &str = "kernel void twice(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
        x[i] = x[i] * 2u + i;
    }";
const N: usize = 5000;

fn every_use(device: &Device) -> CaseResult {
    let twice = kernel(device, "twice", TWICE)?;
    let stream = device.stream()?;
    let uses = [
        HostAccess::ReadWrite,
        HostAccess::Read,
        HostAccess::Write,
        HostAccess::Never,
        HostAccess::Transient,
        HostAccess::Staging,
    ];
    for host in uses {
        let mut x = device.buffer_for::<u32>(N, host)?;
        assert_eq!(x.storage(), host.storage(device.caps()), "{host:?}");
        expect_all(&x.to_vec()?, |_| 0);
        x.write(&(0..N as u32).collect::<Vec<_>>())?;
        launch(&twice, &stream, Grid::threads(N), (&mut x,))?;
        expect_all(&x.to_vec()?, |i| 3 * i as u32);
    }
    Ok(())
}

fn mapped_in_turns(device: &Device) -> CaseResult {
    let twice = kernel(device, "twice", TWICE)?;
    let stream = device.stream()?;
    let mut x = device.buffer::<u32>(N)?;
    for round in 1..=5_u32 {
        x.map_mut()?.iter_mut().for_each(|word| *word += 7 * round);
        let before = x.to_vec()?;
        launch(&twice, &stream, Grid::threads(N), (&mut x,))?;
        expect_all(&x.map()?, |i| before[i] * 2 + i as u32);
    }
    Ok(())
}

/// A kernel writes a whole buffer; later buffers of the same size must not contain its data.
fn used_again_it_is_zero(device: &Device) -> CaseResult {
    let twice = kernel(device, "twice", TWICE)?;
    let stream = device.stream()?;
    for round in 0..10 {
        let host = if round % 2 == 0 { HostAccess::ReadWrite } else { HostAccess::Never };
        let mut x = device.buffer_for::<u32>(N, host)?;
        expect_all(&x.to_vec()?, |_| 0);
        stream.fill(&mut x, 0x1234_5678)?;
        launch(&twice, &stream, Grid::threads(N), (&mut x,))?;
        // The buffer is dropped with the launch in flight.
    }
    stream.synchronize()?;
    expect_all(&device.buffer::<u32>(N)?.to_vec()?, |_| 0);
    Ok(())
}

/// Numbers whose size is a multiple of their alignment.
#[repr(C, align(65536))]
struct Pages([u32; 16384]);

struct OnHeap(Box<Pages>);

impl AsMut<[u32]> for OnHeap {
    fn as_mut(&mut self) -> &mut [u32] {
        &mut self.0.0
    }
}

#[allow(unsafe_code)] // lends memory of the host
fn of_the_host(device: &Device) -> CaseResult {
    let pages = OnHeap(Box::new(Pages([5; 16384])));
    let address = pages.0.0.as_ptr();
    // SAFETY: the numbers are boxed, so they do not move, and no other code uses them.
    let wrapped = unsafe { device.buffer_no_copy::<u32>(pages) };
    let granule = device.caps().limits.wrap_granule;
    assert_eq!(granule.is_some(), wrapped.is_ok(), "{granule:?}, {wrapped:?}");
    let mut wrapped = wrapped?;
    assert!(granule.is_some_and(|granule| 65536 % granule == 0), "the case needs larger pages: {granule:?}");
    let twice = kernel(device, "twice", TWICE)?;
    let stream = device.stream()?;
    launch(&twice, &stream, Grid::threads(16384), (&mut wrapped,))?;
    expect_all(&wrapped.map()?, |i| 10 + i as u32);
    assert_eq!(wrapped.map()?.as_ptr(), address, "not in place");
    // The buffer is dropped with a launch in flight: the pages must outlive it.
    launch(&twice, &stream, Grid::threads(16384), (&mut wrapped,))?;
    drop(wrapped);
    stream.synchronize()?;
    // SAFETY: a vector of three numbers is not a whole page, so the call is refused.
    let odd = unsafe { device.buffer_no_copy(vec![0_u32; 3]) };
    assert!(matches!(odd, Err(Error::InvalidArgument(_))), "{odd:?}");
    Ok(())
}

/// The host and a running kernel exchange values through coherent memory: the kernel says that it runs, the host stores a value and then a
/// flag, for which the kernel waits.
#[allow(unsafe_code)] // lends memory of the host, and accesses it while a kernel runs
fn flag_of_the_host(device: &Device) -> CaseResult {
    use std::sync::atomic::{AtomicU32, Ordering};

    // The kernel gives up at some time, since not every device can be stopped.
    let kernel = kernel(
        device,
        "answer",
        "kernel void answer(coherent(system) device uint* shared [[buffer(0)]], device uint* out [[buffer(1)]],
            uint i [[thread_position_in_grid]]) {
            shared[0] = 1;
            for (uint k = 0; shared[1] == 0 && k < 300000000; ++k) {}
            atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_system);
            out[i] = shared[1] * 1000 + shared[2] + i;
        }",
    )?;
    let mut pages = OnHeap(Box::new(Pages([0; 16384])));
    let words = pages.0.0.as_mut_ptr().cast::<AtomicU32>();
    // SAFETY: the numbers are boxed, so they do not move, and are accessed atomically only while the buffer exists.
    let mut shared = unsafe { device.buffer_no_copy::<u32>(pages) }?;
    // SAFETY: as above; the buffer, which owns the numbers, is dropped last.
    let word = |index: usize| unsafe { &*words.add(index) };
    let mut out = device.buffer::<u32>(3)?;
    let stream = device.stream()?;
    let launched = launch(&kernel, &stream, Grid::threads(3).group(3), (&mut shared, &mut out))?;
    let begun = std::time::Instant::now();
    while word(0).load(Ordering::Acquire) == 0 {
        assert!(begun.elapsed().as_secs() < 60, "the kernel does not run, or its store is not seen");
        std::hint::spin_loop();
    }
    word(2).store(77, Ordering::Relaxed);
    word(1).store(5, Ordering::Release);
    launched.wait()?;
    expect_all(&out.to_vec()?, |i| 5077 + i as u32);
    Ok(())
}

fn transfers_in_order(device: &Device) -> CaseResult {
    let twice = kernel(device, "twice", TWICE)?;
    let stream = device.stream()?;
    let mut x = device.buffer_for::<u32>(N, HostAccess::Never)?;
    let mut downloads = Vec::new();
    for round in 0..8_u32 {
        stream.upload(&vec![round; N], &mut x)?;
        launch(&twice, &stream, Grid::threads(N), (&mut x,))?;
        downloads.push(stream.download(&x)?);
    }
    for (round, download) in downloads.iter().enumerate() {
        expect_all(&download.wait()?, |i| 2 * round as u32 + i as u32);
    }
    Ok(())
}

fn facts(device: &Device) -> CaseResult {
    let caps = device.caps();
    assert!(caps.limits.total_memory > 0 && caps.limits.working_set > 0, "{caps:?}");
    assert!(
        caps.limits.working_set <= caps.limits.total_memory
            && caps.limits.max_buffer_bytes <= caps.limits.total_memory,
        "{caps:?}"
    );
    assert!(caps.limits.memory_granule > 0 && caps.limits.wrap_granule != Some(0), "{caps:?}");
    let budget = device.pool().limits().budget;
    assert!(budget <= caps.limits.total_memory, "{budget}");
    let beyond = device.buffer::<u8>(usize::try_from(caps.limits.max_buffer_bytes)? + 1);
    assert!(matches!(beyond, Err(Error::InvalidArgument(_))), "{beyond:?}");
    Ok(())
}
