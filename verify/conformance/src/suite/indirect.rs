//! Indirect launches, with counts mostly written by the preceding kernel.

use elinvar::{Buffer, Device, Error, Graph, Grid, HostAccess, Threadgroup};

use super::{CaseResult, expect_all, kernel, launch, run};

cases!("indirect": runs_over_what_was_found, zero_counts_run_nothing, positions_in_three_dimensions,
    offsets_into_the_buffer, behind_copy_fill_and_kernel, many_in_one_submission, counts_by_other_streams,
    run_again_with_other_counts, checked_kernels, counts_beyond_the_limits, errors_reach_what_is_behind,
    much_threadgroup_memory);

/// Threadgroup size of the kernels that are launched indirectly.
const GROUP: u32 = 64;
const UNTOUCHED: u32 = 0xffff_ffff;

/// `keep` stores and counts the multiples of `by`, `count` converts the count to threadgroups, and `visit` runs over exactly the stored
/// values.
const COMPACT: &str = "
    kernel void keep(device const uint* x [[buffer(0)]], device uint* kept [[buffer(1)]],
                     device atomic_uint* found [[buffer(2)]], constant uint& by [[buffer(3)]],
                     uint i [[thread_position_in_grid]]) {
        if (x[i] % by == 0) { kept[atomic_fetch_add_explicit(found, 1u, memory_order_relaxed)] = x[i]; }
    }
    kernel void count(device const uint* found [[buffer(0)]], device uint* groups [[buffer(1)]]) {
        groups[0] = (found[0] + 63u) / 64u; groups[1] = 1u; groups[2] = 1u;
    }
    kernel void visit(device const uint* kept [[buffer(0)]], device const uint* found [[buffer(1)]],
                      device atomic_uint* visits [[buffer(2)]], device atomic_uint* ran [[buffer(3)]],
                      uint i [[thread_position_in_grid]], uint all [[threads_per_grid]]) {
        atomic_fetch_add_explicit(ran, 1u, memory_order_relaxed);
        atomic_fetch_max_explicit(ran + 1, all, memory_order_relaxed);
        if (i < found[0]) { atomic_fetch_add_explicit(visits + kept[i], 1u, memory_order_relaxed); }
    }";

fn runs_over_what_was_found(device: &Device) -> CaseResult {
    let [keep, count, visit] = ["keep", "count", "visit"].map(|name| kernel(device, name, COMPACT));
    let (keep, count, visit) = (keep?, count?, visit?);
    let n = 10_000_u32;
    let x = device.buffer_with_data(&(0..n).collect::<Vec<_>>())?;
    for host in [HostAccess::ReadWrite, HostAccess::Never] {
        for by in [1_u32, 3, 64, 157, 9_999, 20_000] {
            let (mut kept, mut found) =
                (device.buffer::<u32>(n as usize)?, device.buffer_for::<u32>(1, host)?);
            let (mut visits, mut ran) = (device.buffer::<u32>(n as usize)?, device.buffer::<u32>(2)?);
            let mut groups = device.buffer_for::<u32>(3, host)?;
            let stream = device.stream()?;
            launch(&keep, &stream, Grid::threads(n), (&x, &mut kept, &mut found, by))?;
            launch(&count, &stream, Grid::threads(1), (&found, &mut groups))?;
            let indirect = Grid::indirect(&groups).group(GROUP);
            launch(&visit, &stream, indirect, (&kept, &found, &mut visits, &mut ran))?.wait()?;
            let threads = n.div_ceil(by).next_multiple_of(GROUP);
            assert_eq!(ran.to_vec()?, [threads, threads], "every {by}th of {n}");
            expect_all(&visits.to_vec()?, |i| u32::from((i as u32).is_multiple_of(by)));
        }
    }
    Ok(())
}

const TALLY: &str = "kernel void tally(device atomic_uint* n [[buffer(0)]]) {
        atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);
    }";

fn zero_counts_run_nothing(device: &Device) -> CaseResult {
    let tally = kernel(device, "tally", TALLY)?;
    let mut n = device.buffer::<u32>(1)?;
    // With a zero count, counts beyond the limits run nothing either, on a driver that sees the counts.
    let beyond = device.caps().features.sees_counts.then_some([0, u32::MAX, u32::MAX]);
    for counts in [[0, 1, 1], [5, 0, 1], [5, 5, 0], [0, 0, 0]].into_iter().chain(beyond) {
        let counts = device.buffer_with_data(&counts)?;
        run(device, &tally, Grid::indirect(&counts).group((4, 2)), (&mut n,))?;
    }
    assert_eq!(n.to_vec()?, [0]);
    run(device, &tally, Grid::indirect(&device.buffer_with_data(&[1_u32; 3])?).group((4, 2)), (&mut n,))?;
    assert_eq!(n.to_vec()?, [8]);
    Ok(())
}

fn positions_in_three_dimensions(device: &Device) -> CaseResult {
    let place = kernel(
        device,
        "place",
        "struct Place { uint grid[3], group[3], local[3], groups[3], full[3], actual[3], all[3], index; };
        kernel void place(device Place* out [[buffer(0)]], uint3 p [[thread_position_in_grid]],
                          uint3 group [[threadgroup_position_in_grid]], uint3 local [[thread_position_in_threadgroup]],
                          uint3 groups [[threadgroups_per_grid]], uint3 full [[dispatch_threads_per_threadgroup]],
                          uint3 actual [[threads_per_threadgroup]], uint3 all [[threads_per_grid]],
                          uint index [[thread_index_in_threadgroup]]) {
            device Place& to = out[p.x + all.x * (p.y + all.y * p.z)];
            for (uint d = 0; d < 3; ++d) {
                to.grid[d] = p[d]; to.group[d] = group[d]; to.local[d] = local[d]; to.groups[d] = groups[d];
                to.full[d] = full[d]; to.actual[d] = actual[d]; to.all[d] = all[d];
            }
            to.index = index;
        }",
    )?;
    for (counts, group) in [([3_u32, 5, 2], [8_u32, 4, 2]), ([7, 1, 1], [33, 1, 1]), ([1, 2, 9], [5, 3, 4])] {
        let all: [u32; 3] = std::array::from_fn(|d| counts[d] * group[d]);
        let total = all.iter().product::<u32>() as usize;
        let mut out = device.buffer_with_data(&vec![[UNTOUCHED; 22]; total + 1])?;
        let counted = device.buffer_with_data(&counts)?;
        run(device, &place, Grid::indirect(&counted).group(group), (&mut out,))?;
        expect_all(&out.to_vec()?, |i| {
            if i == total {
                return [UNTOUCHED; 22];
            }
            let i = i as u32;
            let at = [i % all[0], i / all[0] % all[1], i / all[0] / all[1]];
            let local: [u32; 3] = std::array::from_fn(|d| at[d] % group[d]);
            let index = local[0] + group[0] * (local[1] + group[1] * local[2]);
            let places = [at, std::array::from_fn(|d| at[d] / group[d]), local, counts, group, group, all];
            let mut place = [index; 22];
            place[..21].copy_from_slice(places.as_flattened());
            place
        });
    }
    Ok(())
}

/// `size[k]` = number of threads in the grid.
const SIZE: &str = "kernel void size_k(device uint* size [[buffer(0)]], constant uint& k [[buffer(1)]],
        uint3 all [[threads_per_grid]], uint3 p [[thread_position_in_grid]]) {
        if (all.x * all.y * all.z == 1 + p.x + all.x * (p.y + all.y * p.z)) { size[k] = all.x * all.y * all.z; }
    }";

fn offsets_into_the_buffer(device: &Device) -> CaseResult {
    let size = kernel(device, "size_k", SIZE)?;
    let words: Vec<u32> = (0..40).map(|i| 1 + i * 7 % 5).collect();
    let (counts, bytes) =
        (device.buffer_with_data(&words)?, device.buffer_with_data(bytemuck::cast_slice::<_, u8>(&words))?);
    let mut sizes = device.buffer::<u32>(2 * 38)?;
    let stream = device.stream()?;
    for k in 0..38 {
        let at = Grid::indirect(counts.slice(k..k + 3)?).group((2, 2));
        launch(&size, &stream, at, (&mut sizes, k as u32))?;
        let at = Grid::indirect(bytes.slice(4 * k..4 * k + 12)?).group(8);
        launch(&size, &stream, at, (&mut sizes, 38 + k as u32))?;
    }
    let expected = |k: usize| words[k..k + 3].iter().product::<u32>();
    expect_all(&sizes.to_vec()?, |i| if i < 38 { 4 * expected(i) } else { 8 * expected(i - 38) });
    Ok(())
}

/// Each launch of a command buffer uses the counts of the preceding command, at any position in memory.
fn behind_copy_fill_and_kernel(device: &Device) -> CaseResult {
    let size = kernel(device, "size_k", SIZE)?;
    let set = kernel(
        device,
        "set",
        "kernel void set(device uint* counts [[buffer(0)]], constant uint& k [[buffer(1)]]) {
            counts[0] = k; counts[1] = k + 1u; counts[2] = 2u;
        }",
    )?;
    for host in [HostAccess::ReadWrite, HostAccess::Never] {
        let from = device.buffer_with_data(&[5_u32, 6, 1, 4])?;
        let (mut counts, mut sizes) = (device.buffer_for::<u32>(3, host)?, device.buffer::<u32>(6)?);
        counts.write(&[9, 1, 1])?;
        let mut commands = device.stream()?.command_buffer();
        for k in 0..6_u32 {
            match k {
                1 => commands.fill(&mut counts, 3)?,
                2 => commands.copy(from.slice(0..3)?, &mut counts)?,
                // SAFETY: the kernel writes three elements.
                #[allow(unsafe_code)]
                3 | 5 => unsafe { commands.launch(&set, Grid::threads(1), (&mut counts, k)) }?,
                4 => commands.copy(from.slice(1..4)?, &mut counts)?,
                _ => {}
            }
            // SAFETY: the kernel writes one of six elements.
            #[allow(unsafe_code)]
            unsafe { commands.launch(&size, Grid::indirect(&counts).group(2), (&mut sizes, k)) }?;
        }
        commands.submit()?.wait()?;
        assert_eq!(sizes.to_vec()?, [9, 27, 30, 3 * 4 * 2, 24, 5 * 6 * 2].map(|groups| 2 * groups));
    }
    Ok(())
}

fn many_in_one_submission(device: &Device) -> CaseResult {
    let size = kernel(device, "size_k", SIZE)?;
    let next = kernel(
        device,
        "next",
        "kernel void next(device atomic_uint* counts [[buffer(0)]], uint all [[threads_per_grid]],
                          uint i [[thread_position_in_grid]]) {
            if (i + 1 == all) { atomic_fetch_add_explicit(counts, 1u, memory_order_relaxed); }
        }",
    )?;
    let n = 300_u32;
    let mut counts = device.buffer_with_data(&[1_u32, 1, 1])?;
    let mut sizes = device.buffer::<u32>(n as usize)?;
    let mut commands = device.stream()?.command_buffer();
    for k in 0..n {
        // SAFETY: the kernels write one of `n` elements, and the first count.
        #[allow(unsafe_code)]
        unsafe {
            commands.launch(&size, Grid::indirect(&counts).group(3), (&mut sizes, k))?;
            let grid = Grid::indirect(&counts.clone()).group(32);
            commands.launch(&next, grid, (&mut counts,))?;
        }
    }
    commands.submit()?.wait()?;
    expect_all(&sizes.to_vec()?, |k| 3 * (k as u32 + 1));
    assert_eq!(counts.to_vec()?, [n + 1, 1, 1]);
    Ok(())
}

/// Several streams wait for the stream that writes the counts, and launch with them.
fn counts_by_other_streams(device: &Device) -> CaseResult {
    let size = kernel(device, "size_k", SIZE)?;
    let mut counts = device.buffer::<u32>(3)?;
    let event = device.event()?;
    let streams = (0..4).map(|_| device.stream()).collect::<elinvar::Result<Vec<_>>>()?;
    let mut sizes = Vec::new();
    let mut ends = Vec::new();
    for round in 1..=5_u64 {
        let mut commands = streams[0].command_buffer();
        commands.fill(&mut counts, 2 * round as u32)?;
        commands.signal(&event, 2 * round - 1);
        commands.submit()?;
        for stream in &streams[1..] {
            let mut out = device.buffer::<u32>(1)?;
            let mut commands = stream.command_buffer();
            commands.wait_for(&event, 2 * round - 1);
            // SAFETY: the kernel writes one element.
            #[allow(unsafe_code)]
            unsafe { commands.launch(&size, Grid::indirect(&counts).group(1), (&mut out, 0u32)) }?;
            ends.push(commands.submit()?);
            sizes.push((out, 8 * (round as u32).pow(3)));
        }
        // The next counts are written after the launches have read these.
        for end in ends.drain(..) {
            end.wait()?;
        }
    }
    for (out, expected) in sizes {
        assert_eq!(out.to_vec()?, [expected]);
    }
    Ok(())
}

#[allow(unsafe_code)] // replays
fn run_again_with_other_counts(device: &Device) -> CaseResult {
    let size = kernel(device, "size_k", SIZE)?;
    let stream = device.stream()?;
    let record = |counts: &Buffer<u32>, sizes: &mut Buffer<u32>, commands: &mut elinvar::CommandBuffer| {
        // Enough commands for a driver to combine them into one call.
        (0..20_u32).try_for_each(|k| {
            let grid = Grid::indirect(counts.slice(0..3)?).group((2, 1, 4));
            // SAFETY: the kernel writes one of twenty elements.
            unsafe { commands.launch(&size, grid, (&mut *sizes, k)) }
        })
    };
    let (mut counts, mut sizes) = (device.buffer::<u32>(3)?, device.buffer::<u32>(20)?);
    let mut commands = stream.command_buffer();
    record(&counts, &mut sizes, &mut commands)?;
    let recording = commands.record()?;
    let mut plan = Graph::capture(&stream, |commands| record(&counts, &mut sizes, commands))?.plan()?;
    for round in 0..6_u32 {
        counts.write(&[round, 2, 3])?;
        let expected = if round == 0 { 7 } else { 8 * round * 2 * 3 };
        sizes.fill(7)?;
        // SAFETY: as for the recording.
        unsafe { stream.replay(&recording) }?.wait()?;
        expect_all(&sizes.to_vec()?, |_| expected);
        sizes.fill(7)?;
        // SAFETY: as above.
        unsafe { plan.run(&stream) }?.wait()?;
        expect_all(&sizes.to_vec()?, |_| expected);
    }
    Ok(())
}

fn checked_kernels(device: &Device) -> CaseResult {
    let text = "kernel void ramp(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 3u * i; }";
    let library = device.compile(elinvar::Source::named("ramp.metal", text))?;
    let ramp = library.checked_kernel("ramp")?;
    let stream = device.stream()?;
    let (mut counts, mut x) = (device.buffer_with_data(&[4_u32, 1, 1])?, device.buffer::<u32>(100)?);
    ramp.launch(&stream, Grid::indirect(&counts).group(25), (&mut x,))?.wait()?;
    expect_all(&x.to_vec()?, |i| 3 * i as u32);
    counts.write(&[5, 1, 1])?;
    let beyond = ramp.launch(&stream, Grid::indirect(&counts).group(25), (&mut x,))?.wait();
    let Err(Error::Fault(fault)) = beyond else {
        return Err(format!("expected a fault, got {beyond:?}").into());
    };
    assert!(fault.kernel == "ramp", "{fault}");
    assert!(!device.caps().features.names_accesses || fault.message.contains("`x`"), "{fault}");
    stream.acknowledge();
    counts.write(&[2, 2, 1])?;
    x.fill(1)?;
    ramp.launch(&stream, Grid::indirect(&counts).group(25), (&mut x,))?.wait()?;
    expect_all(&x.to_vec()?, |i| if i < 50 { 3 * i as u32 } else { 1 });
    Ok(())
}

/// If the driver sees the counts, they are an error that names them; the queue continues after acknowledgment.
fn counts_beyond_the_limits(device: &Device) -> CaseResult {
    if !device.caps().features.sees_counts {
        return Err(Error::unsupported("the device alone sees the counts, and any may happen").into());
    }
    let tally = kernel(device, "tally", TALLY)?;
    let stream = device.stream()?;
    let mut n = device.buffer::<u32>(1)?;
    for (counts, group) in [([1 << 31, 1, 1], (2, 1)), ([1, u32::MAX, 1], (1, 32)), ([u32::MAX; 3], (1, 1))] {
        let buffer = device.buffer_with_data(&counts)?;
        let ended = launch(&tally, &stream, Grid::indirect(&buffer).group(group), (&mut n,))?.wait();
        let text = match ended {
            Err(Error::Fault(fault)) => fault.to_string(),
            Err(Error::InvalidArgument(text)) => text,
            other => return Err(format!("{counts:?}: expected an error, got {other:?}").into()),
        };
        let [x, y, z] = counts;
        assert!(
            text.contains("kernel `tally`") && text.contains(&format!("{x}×{y}×{z} threadgroups")),
            "{text}"
        );
        stream.acknowledge();
    }
    n.fill(0)?;
    let counts = device.buffer_with_data(&[2_u32, 1, 3])?;
    launch(&tally, &stream, Grid::indirect(&counts).group(32), (&mut n,))?.wait()?;
    assert_eq!(n.to_vec()?, [6 * 32]);
    Ok(())
}

/// What waits for work behind counts that are an error ends in that error, on the stream and on one that waits for its event.
fn errors_reach_what_is_behind(device: &Device) -> CaseResult {
    if !device.caps().features.sees_counts {
        return Err(Error::unsupported("the device alone sees the counts, and any may happen").into());
    }
    let tally = kernel(device, "tally", TALLY)?;
    let (first, second, event) = (device.stream()?, device.stream()?, device.event()?);
    let (mut n, mut m) = (device.buffer::<u32>(1)?, device.buffer::<u32>(1)?);
    let counts = device.buffer_with_data(&[1, u32::MAX, 1])?;
    second.wait_for(&event, 1)?;
    let waiting = launch(&tally, &second, Grid::threads(64).group(32), (&mut m,))?;
    launch(&tally, &first, Grid::indirect(&counts).group((1, 32)), (&mut n,))?;
    let behind = launch(&tally, &first, Grid::threads(64).group(32), (&mut n,))?;
    first.signal(&event, 1)?;
    for result in [behind.wait().map(drop), event.wait(1), waiting.wait().map(drop)] {
        let is_it =
            matches!(&result, Err(Error::Poisoned(cause)) if cause.to_string().contains("4294967295"));
        assert!(is_it, "{result:?}");
    }
    assert_eq!(event.value(), 0);
    assert!(first.acknowledge().is_some() && second.acknowledge().is_some());
    m.fill(0)?;
    launch(&tally, &second, Grid::threads(64).group(32), (&mut m,))?.wait()?;
    assert_eq!(m.to_vec()?, [64]);
    Ok(())
}

/// Threadgroup memory up to the device's limit, most of which an NVIDIA GPU has to be asked for.
fn much_threadgroup_memory(device: &Device) -> CaseResult {
    let body = "
        kernel void backwards(device uint* out [[buffer(0)]], constant uint& n [[buffer(1)]], threadgroup uint* all [[threadgroup(0)]],
                              uint l [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
            for (uint i = l; i < n; i += 64) all[i] = 7 * i + g;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint i = l; i < n; i += 64) out[g * n + i] = all[n - 1 - i];
        }";
    let backwards = kernel(device, "backwards", body)?;
    let (most, stream) = (device.caps().limits.max_threadgroup_memory as usize / 16 * 4, device.stream()?);
    let counts = device.buffer_with_data(&[3_u32, 1, 1])?;
    for words in [1000, 12_288, 16_000, 48_000, most].into_iter().filter(|words| *words <= most) {
        let mut out = device.buffer::<u32>(4 * words)?;
        let args = (&mut out, words as u32, Threadgroup::of::<u32>(words));
        launch(&backwards, &stream, Grid::indirect(&counts).group(GROUP), args)?.wait()?;
        expect_all(&out.to_vec()?, |at| {
            let (g, i) = (at / words, at % words);
            if g < 3 { (7 * (words - 1 - i) + g) as u32 } else { 0 }
        });
    }
    Ok(())
}
