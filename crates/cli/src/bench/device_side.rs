//! The `device-side` suite: work whose steps the device decides, in one launch.

use std::time::{Duration, Instant};

use elinvar::{
    Arg, Buffer, Grid, IndirectCommandBuffer, IndirectCommandBufferDescriptor, Kernel, LaunchQueue,
    PersistentKernel, Residency, Stream,
};

use super::carried::compile;
use super::{Context, Measured};
use crate::failure::{Failure, Result};
use crate::report::median;

const KERNELS: &str = include_str!("kernels/device_side.metal");
const NESTED: &str = include_str!("kernels/nested.metal");
const TIMES: usize = 15;
const STEPS: u32 = 1000;
/// Threads of a threadgroup.
const GROUP: usize = 256;

/// Median time of `run` until its end on the host's clock.
fn timed(stream: &Stream, mut run: impl FnMut() -> Result<()>) -> Result<u64> {
    let mut times = Vec::with_capacity(TIMES);
    for time in 0..=TIMES {
        let start = Instant::now();
        run()?;
        stream.synchronize()?;
        // The first run builds what is needed.
        times.extend((time > 0).then(|| start.elapsed().as_nanos() as u64));
    }
    Ok(median(times))
}

/// A grid barrier between the steps of a loop, compared with the loop alone; per step. Stages: the same with other numbers of
/// threadgroups.
pub(super) fn grid_barrier(context: &Context) -> Result<Measured> {
    let device = &context.device;
    let library = compile(device, "device_side.metal", KERNELS)?;
    let (barriers, empty, stream) = (library.kernel("barriers")?, library.kernel("loop")?, device.stream()?);
    let each = |kernel: &Kernel, groups: usize| {
        let mut out = device.buffer::<u32>(groups * GROUP)?;
        let all = timed(&stream, || {
            // SAFETY: each thread writes its element.
            #[allow(unsafe_code)]
            unsafe {
                kernel.launch_cooperative(&stream, Grid::groups(groups).group(GROUP), (&mut out, STEPS))?
            };
            Ok(())
        })?;
        Ok::<u64, Failure>(all / u64::from(STEPS))
    };
    let stages = [1, 4, 64].map(|groups| Ok((format!("{groups} threadgroups"), each(&barriers, groups)?)));
    let stages = stages.into_iter().collect::<Result<_>>()?;
    let (time, alone) = (each(&barriers, 16)?, each(&empty, 16)?);
    let size = format!("16 threadgroups of {GROUP}, per step of {STEPS}");
    Ok(Measured { size, median_ns: time, baselines: vec![("loop", alone)], stages, ..Measured::default() })
}

/// Steps of a stencil over few threadgroups in one launch, compared with a launch for each step, in one command buffer and in one
/// submission each.
pub(super) fn stencil(context: &Context) -> Result<Measured> {
    const N: usize = 4 * GROUP;
    let device = &context.device;
    let library = compile(device, "device_side.metal", KERNELS)?;
    let (all, once) = (library.kernel("diffuse")?, library.kernel("diffuse_once")?);
    let stream = device.stream()?;
    let (first, n, grid) = (vec![1.0_f32; N], N as u32, || Grid::threads(N).group(GROUP));
    let buffer = || device.buffer_with_data(&first);
    let (mut a, mut b, mut c, mut d) = (buffer()?, buffer()?, buffer()?, buffer()?);
    let together = timed(&stream, || {
        // SAFETY: each of the N threads writes its element, and reads its neighbors within the buffer.
        #[allow(unsafe_code)]
        unsafe {
            all.launch_cooperative(&stream, grid(), (&mut a, &mut b, n, STEPS))?
        };
        Ok(())
    })?;
    let recorded = timed(&stream, || {
        let mut commands = stream.command_buffer();
        for step in 0..STEPS {
            let (from, to) = if step % 2 == 0 { (&c, &mut d) } else { (&d, &mut c) };
            // SAFETY: as above.
            #[allow(unsafe_code)]
            unsafe {
                commands.launch(&once, grid(), (from, to, n))?;
            }
        }
        commands.submit()?;
        Ok(())
    })?;
    let launches = timed(&stream, || {
        for step in 0..STEPS {
            let (from, to) = if step % 2 == 0 { (&c, &mut d) } else { (&d, &mut c) };
            // SAFETY: as above.
            #[allow(unsafe_code)]
            unsafe {
                once.launch(&stream, grid(), (from, to, n))?;
            }
        }
        Ok(())
    })?;
    let size = format!("{STEPS} steps of {N} elements, 4 threadgroups");
    let baselines = vec![("commands", recorded), ("launches", launches)];
    Ok(Measured { size, median_ns: together, baselines, ..Measured::default() })
}

/// Launches that a kernel encodes and the device executes, compared with the same launches recorded by the host in one command buffer.
pub(super) fn indirect_commands(context: &Context) -> Result<Measured> {
    const COUNT: u32 = 1000;
    let device = &context.device;
    let library = compile(device, "device_side.metal", KERNELS)?;
    let (encode, shift, stream) =
        (library.kernel("encode_shifts")?, library.kernel("shift")?, device.stream()?);
    let mut commands = IndirectCommandBuffer::new(
        device,
        IndirectCommandBufferDescriptor::new(COUNT).buffers(1),
        &[&shift],
    )?;
    let first: Vec<u32> = (0..COUNT * GROUP as u32).collect();
    let (mut x, mut y) = (device.buffer_with_data(&first)?, device.buffer_with_data(&first)?);
    let handles = [commands.handle()?, commands.number(&shift)?];
    let indirect = timed(&stream, || {
        let arguments = (Arg::value(&handles), &mut x, GROUP as u32, Arg::use_resource(&mut commands));
        // SAFETY: each command has its own elements.
        #[allow(unsafe_code)]
        unsafe {
            encode.launch(&stream, Grid::threads(COUNT), arguments)?;
            stream.execute_commands(&commands.execution(0..COUNT).uses((&mut x,)))?
        };
        Ok(())
    })?;
    let executed = timed(&stream, || {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            stream.execute_commands(&commands.execution(0..COUNT).uses((&mut x,)))?
        };
        Ok(())
    })?;
    let recorded = timed(&stream, || {
        let mut list = stream.command_buffer();
        for i in 0..COUNT as usize {
            let part = y.slice_mut(i * GROUP..(i + 1) * GROUP)?;
            // SAFETY: as above.
            #[allow(unsafe_code)]
            unsafe {
                list.launch(&shift, Grid::threads(GROUP).group(GROUP), (part,))?;
            }
        }
        list.submit()?;
        Ok(())
    })?;
    let rounds = |x: u32, i: u32, count: usize| (0..count).fold(x, |x, _| x.wrapping_mul(3).wrapping_add(i));
    for (data, count) in [(x.to_vec()?, 2 * (TIMES + 1)), (y.to_vec()?, TIMES + 1)] {
        for (at, (first, last)) in (0..).zip(first.iter().zip(&data)) {
            if rounds(*first, at % GROUP as u32, count) != *last {
                return Err(Failure::input(format!("element {at} is {last}")));
            }
        }
    }
    let size = format!("{COUNT} launches of {GROUP} threads");
    let stages = vec![("executed again".into(), executed)];
    let baselines = vec![("commands", recorded)];
    Ok(Measured { size, median_ns: indirect, baselines, stages, ..Measured::default() })
}

/// Launches with counts in memory, against launches whose counts the host knows.
pub(super) fn indirect_launches(context: &Context) -> Result<Measured> {
    const COUNT: usize = 100;
    let device = &context.device;
    let (shift, stream) = (compile(device, "device_side.metal", KERNELS)?.kernel("shift")?, device.stream()?);
    let first: Vec<u32> = (0..GROUP as u32 * 4).collect();
    let (mut x, mut y) = (device.buffer_with_data(&first)?, device.buffer_with_data(&first)?);
    let counts = device.buffer_with_data(&[4_u32, 1, 1])?;
    let run = |target: &mut Buffer<u32>, grid: Grid| {
        timed(&stream, || {
            let mut list = stream.command_buffer();
            for _ in 0..COUNT {
                // SAFETY: each thread has its own element.
                #[allow(unsafe_code)]
                unsafe {
                    list.launch(&shift, grid.clone(), (&mut *target,))?;
                }
            }
            list.submit()?;
            Ok(())
        })
    };
    let indirect = run(&mut x, Grid::indirect(&counts).group(GROUP))?;
    let known = run(&mut y, Grid::threads(4 * GROUP).group(GROUP))?;
    if x.to_vec()? != y.to_vec()? {
        return Err(Failure::input(
            "the launches with counts in memory and those with known ones differ".to_owned(),
        ));
    }
    let size = format!("{COUNT} launches of 4 threadgroups of {GROUP}");
    Ok(Measured { size, median_ns: indirect, baselines: vec![("launches", known)], ..Measured::default() })
}

/// Chains of launches that kernels enqueue, compared with the same launches recorded by the host in one command buffer.
pub(super) fn nested_launches(context: &Context) -> Result<Measured> {
    const CHAINS: usize = 100;
    const LEVELS: usize = 10;
    let device = &context.device;
    let library = compile(device, "nested.metal", NESTED)?;
    let (begin, link) = (library.kernel("begin_chains")?, library.kernel("link")?);
    let (shift, stream) = (library.kernel("shift")?, device.stream()?);
    let mut queue = LaunchQueue::new(device, CHAINS as u32, LEVELS as u32, &[&link])?;
    let first: Vec<u32> = (0..(CHAINS * GROUP) as u32).collect();
    let (mut x, mut y) = (device.buffer_with_data(&first)?, device.buffer_with_data(&first)?);
    let nested = timed(&stream, || {
        // SAFETY: each chain has its own elements.
        #[allow(unsafe_code)]
        unsafe {
            begin.launch_nested(
                &stream,
                &mut queue,
                Grid::threads(CHAINS).group(128),
                (&mut x, LEVELS as u32, GROUP as u32),
            )?
        };
        Ok(())
    })?;
    let recorded = timed(&stream, || {
        let mut list = stream.command_buffer();
        for i in 0..LEVELS * CHAINS {
            let chain = i % CHAINS;
            let part = y.slice_mut(chain * GROUP..(chain + 1) * GROUP)?;
            // SAFETY: as above.
            #[allow(unsafe_code)]
            unsafe {
                list.launch(&shift, Grid::threads(GROUP).group(GROUP), (part,))?;
            }
        }
        list.submit()?;
        Ok(())
    })?;
    if x.to_vec()? != y.to_vec()? {
        return Err(Failure::input("the launches of kernels and those of the host differ".to_owned()));
    }
    let size = format!("{LEVELS} levels of {CHAINS} launches of {GROUP} threads");
    Ok(Measured { size, median_ns: nested, baselines: vec![("commands", recorded)], ..Measured::default() })
}

/// Median time from the submission of an item to its result, with a pause before each, and that of a launch of the same work.
fn round_trips(context: &Context, residency: Residency, size: &str, pause: Duration) -> Result<Measured> {
    let device = &context.device;
    let library = compile(device, "device_side.metal", KERNELS)?;
    let (items, once, stream) =
        (library.kernel("square_items")?, library.kernel("square_once")?, device.stream()?);
    let count: u32 = if pause.is_zero() { 20_000 } else { 200 };
    let mut x = device.buffer::<u32>(1)?;
    let mut launches = Vec::new();
    for time in 0..=200 {
        std::thread::sleep(pause);
        let start = Instant::now();
        // SAFETY: the kernel accesses one element.
        #[allow(unsafe_code)]
        unsafe {
            once.launch(&stream, Grid::threads(1), (&mut x,))?.wait()?
        };
        launches.extend((time > 0).then(|| start.elapsed().as_nanos() as u64));
    }
    // SAFETY: the kernel accesses its inbox only.
    #[allow(unsafe_code)]
    let squares = unsafe { PersistentKernel::<u32, u32>::start(&items, residency, ())? };
    let mut times = Vec::new();
    for item in 0..count {
        std::thread::sleep(pause);
        let start = Instant::now();
        let result = squares.submit(&item)?.wait()?;
        times.push(start.elapsed().as_nanos() as u64);
        if result != item.wrapping_mul(item) {
            return Err(Failure::input(format!("item {item}: the result is {result}")));
        }
    }
    squares.finish()?;
    let baselines = vec![("launch", median(launches))];
    Ok(Measured { size: size.into(), median_ns: median(times), baselines, ..Measured::default() })
}

/// Time from the submission of an item to its result, while the resident kernel is awake, compared with a launch and its end.
pub(super) fn resident_round_trip_awake(context: &Context) -> Result<Measured> {
    let residency = Residency::new(1, 32).sleep_after(Duration::from_secs(10));
    round_trips(context, residency, "1 item, 1 threadgroup of 32", Duration::ZERO)
}

/// The same for a kernel that sleeps: items come 5 ms apart.
pub(super) fn resident_wake_up(context: &Context) -> Result<Measured> {
    let residency = Residency::new(1, 32).sleep_after(Duration::from_micros(50));
    round_trips(context, residency, "1 item each 5 ms, 1 threadgroup of 32", Duration::from_millis(5))
}
