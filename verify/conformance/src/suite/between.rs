//! Copies between two devices, of one driver or of two: the reported route, and every byte of the target.

use elinvar::{Buffer, Device, DeviceKind, Error, Graph, Grid, HostAccess, Route};

use super::{CaseResult, PairCase, expect_all, kernel, launch, refused};

/// Cases for two devices.
pub(super) const CASES: &[PairCase] = &[
    PairCase { name: "between::there_and_back", run: there_and_back },
    PairCase { name: "between::slices_of_every_use", run: slices_of_every_use },
    PairCase { name: "between::one_after_the_other", run: one_after_the_other },
    PairCase { name: "between::on_streams", run: on_streams },
    PairCase { name: "between::in_chunks", run: in_chunks },
    PairCase { name: "between::in_batches", run: in_batches },
    PairCase { name: "between::kernels_access_peers", run: kernels_access_peers },
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
        (DeviceKind::Cpu, DeviceKind::Cpu) => [Route::Peer; 2],
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

/// Copies on streams of either device, between the launches before and behind them, and the statistics of the pair.
fn on_streams(ours: &Device, theirs: &Device) -> CaseResult {
    let [first, second] = [ours, theirs].map(|device| kernel(device, "step", STEP));
    let (first, second) = (first?, second?);
    let (stream, other) = (ours.stream()?, theirs.stream()?);
    let copies = |from: &Device, to: &Device| {
        let stats = from.transfers_to(to);
        stats.iter().map(|row| row.copies).sum::<u64>()
    };
    let (before, back_before) = (copies(ours, theirs), copies(theirs, ours));
    for host in [HostAccess::Never, HostAccess::ReadWrite] {
        let mut input = ours.buffer_for::<u32>(N, host)?;
        let (mut a, mut back) = (ours.buffer_for::<u32>(N, host)?, ours.buffer_for::<u32>(N, host)?);
        let (mut b, mut there) = (theirs.buffer_for::<u32>(N, host)?, theirs.buffer_for::<u32>(N, host)?);
        for round in 0..3_u32 {
            let data: Vec<u32> = (0..N as u32).map(|i| i * 7 + round).collect();
            input.write(&data)?;
            // There on the stream of the source, back on the stream of the target.
            launch(&first, &stream, Grid::threads(N), (&input, &mut a, 7_u32))?;
            let there_done = stream.copy(&a, &mut b)?;
            let event = ours.event()?;
            stream.signal(&event, 1)?;
            other.wait_for(&event, 1)?;
            launch(&second, &other, Grid::threads(N), (&b, &mut there, 11_u32))?;
            let event = theirs.event()?;
            other.signal(&event, 1)?;
            stream.wait_for(&event, 1)?;
            stream.copy(&there, &mut back)?;
            // Behind the copy, which it must not affect.
            stream.fill(&mut a, 0)?;
            launch(&first, &stream, Grid::threads(N), (&back, &mut a, 13_u32))?.wait()?;
            let expected = stepped(&stepped(&data, 7), 11);
            expect_all(&b.to_vec()?, |i| data[i].wrapping_mul(3).wrapping_add(7 + i as u32));
            expect_all(&there.to_vec()?, |i| expected[i]);
            expect_all(&back.to_vec()?, |i| expected[i]);
            let last = stepped(&expected, 13);
            expect_all(&a.to_vec()?, |i| last[i]);
            there_done.wait()?;
        }
    }
    assert!(copies(ours, theirs) >= before + 6 && copies(theirs, ours) >= back_before + 6);
    let (stats, allowed) = (ours.transfers_to(theirs), routes(ours, theirs));
    assert!(stats.iter().all(|row| allowed.contains(&row.route) && row.bytes >= 4 * N as u64), "{stats:?}");
    assert!(ours.route_to(theirs).is_some_and(|route| allowed.contains(&route)));
    assert_eq!(ours.route_to(ours), None);
    Ok(())
}

/// Sizes around those of chunks, of which more than the staging buffers are needed.
fn in_chunks(ours: &Device, theirs: &Device) -> CaseResult {
    const CHUNK: usize = 4 << 20;
    let (from, to) = (ours.stream()?, theirs.stream()?);
    for bytes in [CHUNK - 1, CHUNK, CHUNK + 1, 7 * CHUNK + 12_345] {
        let data: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251 + i / 65_521) as u8).collect();
        let mut source = ours.buffer_for::<u8>(bytes, HostAccess::Never)?;
        source.write(&data)?;
        for stream in [&from, &to] {
            let mut target = theirs.buffer_for::<u8>(bytes + 2, HostAccess::Never)?;
            target.write(&vec![0xee; bytes + 2])?;
            stream.copy(&source, target.slice_mut(1..bytes + 1)?)?.wait()?;
            let got = target.to_vec()?;
            assert_eq!((got[0], got[bytes + 1]), (0xee, 0xee), "{bytes} bytes");
            expect_all(&got[1..bytes + 1], |i| data[i]);
        }
    }
    Ok(())
}

/// Several copies in both directions, and local ones, in one command buffer, in their order.
fn in_batches(ours: &Device, theirs: &Device) -> CaseResult {
    let stream = ours.stream()?;
    let (mut a, mut b) = (ours.buffer::<u32>(N)?, ours.buffer::<u32>(N)?);
    let (mut x, mut y) = (theirs.buffer::<u32>(N)?, theirs.buffer::<u32>(N)?);
    for round in 1..4_u32 {
        let mut commands = stream.command_buffer();
        commands.fill(&mut a, round)?;
        commands.copy(&a, &mut x)?;
        commands.fill(&mut a, 100 * round)?;
        commands.copy(a.slice(0..500)?, x.slice_mut(700..1200)?)?;
        commands.copy(&x, &mut b)?;
        commands.copy(&b, &mut y)?;
        commands.fill(&mut b, 5)?;
        commands.copy(y.slice(600..N)?, b.slice_mut(0..N - 600)?)?;
        commands.submit()?.wait()?;
        let of_x = |i: usize| if (700..1200).contains(&i) { 100 * round } else { round };
        expect_all(&x.to_vec()?, of_x);
        expect_all(&y.to_vec()?, of_x);
        expect_all(&b.to_vec()?, |i| if i < N - 600 { of_x(i + 600) } else { 5 });
    }
    // Part of no graph and of no recording.
    let copying = || -> elinvar::Result<_> {
        let mut commands = stream.command_buffer();
        commands.copy(&a, &mut x.clone())?;
        Ok(commands)
    };
    refused(Graph::new().append(copying()?), "work of several devices");
    refused(copying()?.record(), "work of several devices");
    refused(stream.copy(&x, &mut y).map(drop), "used with device");
    Ok(())
}

/// A kernel that reads and writes buffers of the other device: after `peer_access` where that exists, and never without it.
fn kernels_access_peers(ours: &Device, theirs: &Device) -> CaseResult {
    let kernel = kernel(ours, "step", STEP)?;
    let stream = ours.stream()?;
    let data: Vec<u32> = (0..N as u32).map(|i| i * 11).collect();
    let mut input = theirs.buffer_for::<u32>(N, HostAccess::Never)?;
    input.write(&data)?;
    let (mut out, mut own) = (theirs.buffer_for::<u32>(N, HostAccess::Never)?, ours.buffer::<u32>(N)?);
    match ours.peer_access(theirs) {
        Ok(()) => {
            launch(&kernel, &stream, Grid::threads(N), (&input, &mut own, 3_u32))?;
            launch(&kernel, &stream, Grid::threads(N), (&own, &mut out, 4_u32))?.wait()?;
            let expected = stepped(&data, 3);
            expect_all(&own.to_vec()?, |i| expected[i]);
            let expected = stepped(&expected, 4);
            expect_all(&out.to_vec()?, |i| expected[i]);
        }
        Err(Error::Unsupported(reason)) => {
            assert!(reason.contains("cannot access memory of device"), "{reason}");
            let launched = launch(&kernel, &stream, Grid::threads(N), (&input, &mut own, 3_u32));
            refused(launched.map(drop), "argument 0");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
