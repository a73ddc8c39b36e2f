//! Data-parallel work over the devices, compared with one device.
#![allow(unsafe_code)] // launches

use elinvar::{Device, DeviceGroup, DeviceKind, Error, Grid, Kernel, Layout, Part, Sharded};

use super::{Figure, Setup, medians, timed};
use crate::bench::carried::compile;
use crate::bench::cpu::problem::scattered;
use crate::failure::{Failure, Result};
use crate::report::time_text;

const KERNELS: &str = include_str!("../kernels/devices.metal");
const STEPS: usize = 20;
const TILE: usize = 16;

fn kernels(devices: &[Device], name: &str) -> Result<Vec<Kernel>> {
    let kernel = |device: &Device| Ok(compile(device, "devices.metal", KERNELS)?.kernel(name)?);
    devices.iter().map(kernel).collect()
}

fn gain(one: u64, all: u64, size: String) -> Figure {
    let detail = format!("{size}: {} on one, {} on all", time_text(one), time_text(all));
    Figure { value: one as f64 / all.max(1) as f64, unit: "x", detail }
}

fn differ(what: &str) -> Failure {
    Failure::Machine(format!("{what}: the results of one device and of all differ"))
}

/// A simulation of bodies, each device with a block of them and with all positions.
struct Bodies {
    group: DeviceGroup,
    step: Vec<Kernel>,
    all: Sharded<[f32; 4]>,
    own: Sharded<[f32; 4]>,
}

impl Bodies {
    fn new(devices: &[Device], n: usize) -> Result<Self> {
        let group = DeviceGroup::new(devices)?;
        let step = kernels(devices, "nbody_step")?;
        let numbers: Vec<f32> = scattered(4 * n, 1 << 16).map(|x| 0.5 + x as f32 / 65536.0).collect();
        let bodies: Vec<[f32; 4]> =
            numbers.chunks_exact(4).map(|body| [body[0], body[1], body[2], body[3]]).collect();
        let all = group.sharded_with_data(&bodies, Layout::replicated())?;
        let own = group.sharded(n, Layout::block())?;
        Ok(Self { group, step, all, own })
    }

    fn run(&mut self, steps: usize) -> Result<()> {
        let Self { group, step, all, own } = self;
        let n = all.len() as u32;
        for _ in 0..steps {
            group.run(|member, commands| {
                let block = own.block(member);
                let grid = Grid::threads(block.len().next_multiple_of(256)).group(256);
                let (first, count) = (block.start as u32, block.len() as u32);
                let args = (all.shard(member), own.shard_mut(member), n, first, count);
                // SAFETY: each of the first `count` threads writes its element, and all bodies are read.
                unsafe { commands.launch(&step[member], grid, args) }
            })?;
            all.copy_from(own)?;
        }
        Ok(group.synchronize()?)
    }
}

/// Steps on one device and on all.
pub(super) fn nbody(setup: &Setup) -> Result<Figure> {
    // On each of four GPUs several threadgroups for each of its cores, so that latencies are hidden as on one.
    simulate(setup, if setup.is_gpu() { 1 << 19 } else { 3001 }, 2)
}

/// The same with as many bodies on each device as one has there, so that its threadgroups fill the cores as often as on one.
pub(super) fn nbody_large(setup: &Setup) -> Result<Figure> {
    simulate(setup, setup.count() * if setup.is_gpu() { 1 << 19 } else { 3001 }, 1)
}

/// Runs of `each` steps of `n` bodies.
fn simulate(setup: &Setup, n: usize, each: usize) -> Result<Figure> {
    setup.expect_several()?;
    let mut one = Bodies::new(&setup.devices[..1], n)?;
    let mut all = Bodies::new(&setup.devices, n)?;
    one.run(1)?;
    all.run(1)?;
    if bytemuck::cast_slice::<_, u32>(&one.all.to_vec()?)
        != bytemuck::cast_slice::<_, u32>(&all.all.to_vec()?)
    {
        return Err(differ("n-body"));
    }
    let times = medians(&mut [&mut || timed(|| one.run(each)), &mut || timed(|| all.run(each))])?;
    Ok(gain(times[0] / each as u64, times[1] / each as u64, format!("{n} bodies, per step")))
}

/// A product, the left matrix and the result divided by rows, the right one on each device.
struct Product {
    group: DeviceGroup,
    kernel: Vec<Kernel>,
    left: Sharded<f32>,
    right: Sharded<f32>,
    out: Sharded<f32>,
    n: usize,
}

impl Product {
    fn new(devices: &[Device], n: usize) -> Result<Self> {
        let (group, kernel) = (DeviceGroup::new(devices)?, kernels(devices, "product_rows")?);
        let matrix = |seed: u32| -> Vec<f32> {
            scattered(n * n, 8).map(|x| (x.wrapping_mul(seed) % 8) as f32 - 4.0).collect()
        };
        // Rows of tiles, so that each shard has whole tiles.
        let rows = Layout::block().row(n * TILE);
        let left = group.sharded_with_data(&matrix(3), rows)?;
        let right = group.sharded_with_data(&matrix(5), Layout::replicated().row(n))?;
        let out = group.sharded(n * n, rows)?;
        Ok(Self { group, kernel, left, right, out, n })
    }

    fn run(&mut self) -> Result<()> {
        let Self { group, kernel, left, right, out, n } = self;
        group.run(|member, commands| {
            let grid = Grid::threads((*n, left.rows(member) * TILE)).group((TILE, TILE));
            let args = (left.shard(member), right.shard(member), out.shard_mut(member), *n as u32);
            // SAFETY: each thread writes its element; all sizes are multiples of the tile.
            unsafe { commands.launch(&kernel[member], grid, args) }
        })?;
        Ok(group.synchronize()?)
    }
}

pub(super) fn product(setup: &Setup) -> Result<Figure> {
    setup.expect_several()?;
    let n = if setup.is_gpu() { 8192 } else { 384 };
    let (mut one, mut all) = (Product::new(&setup.devices[..1], n)?, Product::new(&setup.devices, n)?);
    one.run()?;
    all.run()?;
    // Sums of small whole numbers are exact.
    if one.out.to_vec()? != all.out.to_vec()? {
        return Err(differ("product"));
    }
    let times = medians(&mut [&mut || timed(|| one.run()), &mut || timed(|| all.run())])?;
    Ok(gain(times[0], times[1], format!("{n} x {n}")))
}

/// A step of a stencil with the exchange, compared with both parts alone.
pub(super) fn halo(setup: &Setup) -> Result<Figure> {
    setup.expect_several()?;
    // 1 GiB and 2 MiB of halo on each GPU.
    let (width, each, reach) = if setup.is_gpu() { (8192, 32768, 32) } else { (512, 512, 8) };
    let rows = each * setup.count();
    let group = DeviceGroup::new(&setup.devices)?;
    let step = kernels(&setup.devices, "stencil_rows")?;
    let layout = Layout::block().row(width).halo(reach);
    let number = |row: usize| (row % 253) as f32;
    let first: Vec<f32> = (0..rows).flat_map(|row| std::iter::repeat_n(number(row), width)).collect();
    let mut now = group.sharded_with_data(&first, layout)?;
    let mut next = group.sharded::<f32>(first.len(), layout)?;
    drop(first);
    let launch = |commands: &mut elinvar::CommandBuffer, part: Part<'_, f32, f32>| {
        let numbers = [width, part.first, reach, part.rows.start, rows].map(|number| number as u32);
        let [width_, first, reach, start, rows] = numbers;
        let grid = Grid::threads((width, part.rows.len())).group((256, 1));
        let args = (part.source, part.target, width_, first, reach, start, rows);
        // SAFETY: each thread writes its cell, and reads `reach` rows before and behind it, within the halo.
        unsafe { commands.launch(&step[part.member], grid, args) }
    };
    group.update(&mut now, &mut next, launch)?;
    let at = |row: Option<usize>| row.filter(|row| *row < rows).map_or(0.0, number);
    let expected =
        |row: usize| 0.5 * number(row) + 0.25 * (at(row.checked_sub(reach)) + at(Some(row + reach)));
    let result = next.to_vec()?;
    if (0..result.len()).any(|i| result[i].to_bits() != expected(i / width).to_bits()) {
        return Err(Failure::Machine("halo_exchange: the result is wrong".into()));
    }
    drop(result);
    let cell = std::cell::RefCell::new((now, next));
    let mut both = || {
        timed(|| {
            let (now, next) = &mut *cell.borrow_mut();
            for _ in 0..STEPS {
                group.update(now, next, launch)?;
                std::mem::swap(now, next);
            }
            Ok(group.synchronize()?)
        })
    };
    let mut exchange = || {
        timed(|| {
            let (now, _) = &mut *cell.borrow_mut();
            (0..STEPS).try_for_each(|_| now.exchange_halos())?;
            Ok(group.synchronize()?)
        })
    };
    let mut compute = || {
        timed(|| {
            let (now, next) = &mut *cell.borrow_mut();
            for _ in 0..STEPS {
                group.run(|member, commands| {
                    let rows = now.block(member);
                    let (source, target) = (now.shard(member), next.shard_mut(member));
                    launch(commands, Part { member, rows, first: reach, source, target })
                })?;
                std::mem::swap(now, next);
            }
            Ok(group.synchronize()?)
        })
    };
    let times = medians(&mut [&mut both, &mut exchange, &mut compute])?;
    let [both, exchange, compute] = [times[0], times[1], times[2]].map(|ns| ns / STEPS as u64);
    let detail = format!(
        "{rows} x {width}, halo {reach}: {} per step; exchange {}, computation {}",
        time_text(both),
        time_text(exchange),
        time_text(compute)
    );
    Ok(Figure { value: both as f64 / exchange.max(compute).max(1) as f64, unit: "x", detail })
}

/// The fastest device, and the same with a CPU device.
pub(super) fn unlike(setup: &Setup) -> Result<Figure> {
    let cpu = setup.all.iter().find(|device| device.kind() == DeviceKind::Cpu);
    let Some(cpu) = cpu.filter(|_| setup.is_gpu()) else {
        return Err(Error::unsupported("devices of two kinds: there is no GPU").into());
    };
    let n = 1 << 16;
    let mut one = Bodies::new(&setup.devices[..1], n)?;
    let mut both = Bodies::new(&[setup.devices[0].clone(), cpu.clone()], n)?;
    // A guess, which the measurement corrects.
    both.group.set_shares(&[100.0, 1.0])?;
    let mut shares = Vec::new();
    for _ in 0..3 {
        both.own.redistribute()?;
        both.run(2)?;
        shares = both.group.rebalance()?;
    }
    both.own.redistribute()?;
    let times = medians(&mut [&mut || timed(|| one.run(3)), &mut || timed(|| both.run(3))])?;
    let size = format!("{n} bodies, the CPU computes {:.2} %", 100.0 * shares[1]);
    Ok(gain(times[0] / 3, times[1] / 3, size))
}
