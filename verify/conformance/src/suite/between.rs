//! Copies between two devices, of one driver or of two: the reported route, and every byte of the target.

use elinvar::{Buffer, Device, DeviceKind, Graph, Grid, HostAccess, Route};

use super::{CaseResult, PairCase, expect_all, kernel};

/// Cases for two devices.
pub(super) const CASES: &[PairCase] = &[
    PairCase { name: "between::there_and_back", run: there_and_back },
    PairCase { name: "between::slices_of_every_use", run: slices_of_every_use },
    PairCase { name: "between::one_after_the_other", run: one_after_the_other },
];

const STEP: &str = "kernel void step(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]],
        constant uint& k [[buffer(2)]], uint i [[thread_position_in_grid]]) { y[i] = x[i] * 3u + k + i; }";
const N: usize = 10_007;

fn stepped(x: &[u32], k: u32) -> Vec<u32> {
    x.iter().zip(0..).map(|(x, i): (&u32, u32)| x.wrapping_mul(3).wrapping_add(k + i)).collect()
}

/// Routes that may be reported: the driver's own between devices of a driver that has such routes.
fn routes(ours: &Device, theirs: &Device) -> [Route; 2] {
    match (ours.kind(), theirs.kind()) {
        (DeviceKind::Cuda, DeviceKind::Cuda) | (DeviceKind::Metal, DeviceKind::Metal) => {
            [Route::Peer, Route::Driver]
        }
        _ => [Route::Host, Route::HostInPlace],
    }
}

/// A kernel on each device, with intermediate results in memory that only the devices access.
#[allow(unsafe_code)] // launches and runs
fn there_and_back(ours: &Device, theirs: &Device) -> CaseResult {
    let [first, second] = [ours, theirs].map(|device| kernel(device, "step", STEP));
    let (first, second) = (first?, second?);
    let mut input = ours.buffer::<u32>(N)?;
    let (mut back, mut there) = (ours.buffer::<u32>(N)?, theirs.buffer_for::<u32>(N, HostAccess::Never)?);
    let mut graph = Graph::new();
    let mut a: Buffer<u32> = graph.transient(ours, N)?;
    let mut b: Buffer<u32> = graph.transient(theirs, N)?;
    // SAFETY: each thread has an element in both buffers.
    unsafe { graph.launch(&first, Grid::threads(N), (&input, &mut a, 7u32)) }?;
    graph.copy(&a, &mut b)?;
    // SAFETY: as above.
    unsafe { graph.launch(&second, Grid::threads(N), (&b, &mut there, 11u32)) }?;
    graph.copy(&there, &mut back)?;
    let mut plan = graph.plan()?;
    let transfers = &plan.stats().transfers;
    assert_eq!(transfers.len(), 2);
    for transfer in transfers {
        assert!(routes(ours, theirs).contains(&transfer.route), "{:?}", transfer.route);
        assert_eq!(transfer.bytes, 4 * N as u64);
    }
    let stream = ours.stream()?;
    for round in 0..4_u32 {
        let data: Vec<u32> = (0..N as u32).map(|i| i * 5 + round).collect();
        input.write(&data)?;
        // SAFETY: as above.
        unsafe { plan.run(&stream) }?.wait()?;
        let expected = stepped(&stepped(&data, 7), 11);
        expect_all(&back.to_vec()?, |i| expected[i]);
        expect_all(&there.to_vec()?, |i| expected[i]);
    }
    Ok(())
}

/// Odd offsets and sizes in memory of every kind; the bytes around the target are preserved.
#[allow(unsafe_code)] // runs
fn slices_of_every_use(ours: &Device, theirs: &Device) -> CaseResult {
    let stream = ours.stream()?;
    for host in [HostAccess::Never, HostAccess::ReadWrite, HostAccess::Staging] {
        for to_host in [HostAccess::Never, HostAccess::ReadWrite, HostAccess::Staging] {
            let (mut x, mut y) = (ours.buffer_for::<u8>(N, host)?, theirs.buffer_for::<u8>(N, to_host)?);
            let mut expected = vec![0xee; N];
            x.write(&(0..N).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<_>>())?;
            y.write(&expected)?;
            let source = x.to_vec()?;
            let mut graph = Graph::new();
            for (from, to, len) in [(0, 0, 4096), (3, 5001, 1002), (4, 7004, 1), (1001, 8000, 2007)] {
                graph.copy(x.slice(from..from + len)?, y.slice_mut(to..to + len)?)?;
                expected[to..to + len].copy_from_slice(&source[from..from + len]);
            }
            // SAFETY: the graph has no launches.
            unsafe { graph.plan()?.run(&stream) }?.wait()?;
            expect_all(&y.to_vec()?, |i| expected[i]);
        }
    }
    Ok(())
}

/// A copy reads the result of the work before it, and is not affected by the work behind it.
#[allow(unsafe_code)] // runs
fn one_after_the_other(ours: &Device, theirs: &Device) -> CaseResult {
    let mut x = ours.buffer_for::<u32>(N, HostAccess::Never)?;
    let outs = (0..8).map(|_| theirs.buffer::<u32>(N)).collect::<elinvar::Result<Vec<_>>>()?;
    let mut graph = Graph::new();
    for (out, k) in outs.iter().zip(0_u32..) {
        graph.fill(&mut x, k * 3)?;
        graph.copy(&x, &mut out.clone())?;
    }
    // SAFETY: the graph has no launches.
    unsafe { graph.plan()?.run(&ours.stream()?) }?.wait()?;
    for (out, k) in outs.iter().zip(0_u32..) {
        expect_all(&out.to_vec()?, |_| k * 3);
    }
    expect_all(&x.to_vec()?, |_| 21);
    Ok(())
}
