//! Arrays divided among devices: every layout, kernels on each shard, halos, and a shard that fails.
//!
//! The members have all devices of a kind, or one device three times. Results are compared with those computed on the host.
#![allow(unsafe_code)] // launches

use elinvar::{CommandBuffer, Device, DeviceGroup, Error, Grid, Kernel, Layout, Part, Source};

use super::{CaseResult, GroupCase, expect_all, refused};

/// Cases for several devices.
pub(super) const CASES: &[GroupCase] = &[
    GroupCase { name: "sharded::every_layout_to_every_layout", run: every_layout_to_every_layout },
    GroupCase { name: "sharded::kernels_on_shards", run: kernels_on_shards },
    GroupCase { name: "sharded::halos_have_the_neighbors_rows", run: halos_have_the_neighbors_rows },
    GroupCase { name: "sharded::stencils_with_overlapped_exchange", run: stencils_with_overlapped_exchange },
    GroupCase { name: "sharded::bodies_by_replication", run: bodies_by_replication },
    GroupCase { name: "sharded::products_by_rows", run: products_by_rows },
    GroupCase { name: "sharded::rows_move_with_the_shares", run: rows_move_with_the_shares },
    GroupCase { name: "sharded::a_shard_that_fails_is_named", run: a_shard_that_fails_is_named },
    GroupCase { name: "sharded::invalid_arrays", run: invalid_arrays },
];

/// Unequal shares, of which the second is the largest.
fn shares(count: usize) -> Vec<f64> {
    (0..count).map(|member| if member == 1 { 3.0 } else { 1.0 + member as f64 * 0.25 }).collect()
}

fn data(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| i.wrapping_mul(2_654_435_761).rotate_left(7)).collect()
}

fn every_layout_to_every_layout(devices: &[Device]) -> CaseResult {
    let group = DeviceGroup::new(devices)?;
    for unequal in [false, true] {
        if unequal {
            group.set_shares(&shares(devices.len()))?;
        }
        for (rows, row) in [(1, 1), (2, 5), (61, 3), (1000, 17)] {
            let kinds = [Layout::block(), Layout::block().halo(2), Layout::cyclic(), Layout::replicated()];
            let data = data(rows * row);
            for from in kinds {
                let source = group.sharded_with_data(&data, from.row(row))?;
                assert_eq!(source.to_vec()?, data, "{source:?}");
                for to in kinds {
                    let mut target = group.sharded::<u32>(rows * row, to.row(row))?;
                    target.copy_from(&source)?;
                    let result = target.to_vec()?;
                    expect_all(&result, |i| data[i]);
                    if to == Layout::replicated() {
                        for member in 0..group.len() {
                            expect_all(&target.shard(member).to_vec()?, |i| data[i]);
                        }
                    }
                    // Back, behind the copy and without a wait in between.
                    let mut back = group.sharded::<u32>(rows * row, from.row(row))?;
                    target.copy_from(&source)?;
                    back.copy_from(&target)?;
                    expect_all(&back.to_vec()?, |i| data[i]);
                }
            }
        }
    }
    Ok(())
}

const KERNELS: &str = "
kernel void scale(device uint* x [[buffer(0)]], constant uint& first [[buffer(1)]], constant uint& step [[buffer(2)]],
                  uint i [[thread_position_in_grid]]) {
    x[i] = x[i] * 3u + first + i * step;
}
kernel void stencil(device const uint* now [[buffer(0)]], device uint* next [[buffer(1)]], constant uint& width [[buffer(2)]],
                    constant uint& first [[buffer(3)]], constant uint& reach [[buffer(4)]], constant uint& row [[buffer(5)]],
                    constant uint& rows [[buffer(6)]], uint2 at [[thread_position_in_grid]]) {
    uint i = (first + at.y) * width + at.x;
    uint sum = now[i];
    for (uint d = 1; d <= reach; ++d) {
        // Outside of the array are zeros.
        uint above = row + at.y >= d ? now[i - d * width] : 0u;
        uint below = row + at.y + d < rows ? now[i + d * width] : 0u;
        sum = sum * 5u + above - below * 3u;
    }
    next[i] = sum;
}
kernel void attract(device const uint* x [[buffer(0)]], device uint* out [[buffer(1)]], constant uint& first [[buffer(2)]],
                    constant uint& n [[buffer(3)]], uint i [[thread_position_in_grid]]) {
    uint here = x[first + i], sum = 0u;
    for (uint j = 0; j < n; ++j) { sum = sum * 3u + (x[j] ^ here); }
    out[i] = here + sum;
}
kernel void product(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]],
                    constant uint& n [[buffer(3)]], uint2 at [[thread_position_in_grid]]) {
    float sum = 0.0f;
    for (uint k = 0; k < n; ++k) { sum = sum + a[at.y * n + k] * b[k * n + at.x]; }
    c[at.y * n + at.x] = sum;
}";

fn kernels(group: &DeviceGroup, name: &str) -> elinvar::Result<Vec<Kernel>> {
    group.kernels(&Source::msl(KERNELS), name)
}

/// Launches on block and cyclic shards, each behind the other and behind a copy.
fn kernels_on_shards(devices: &[Device]) -> CaseResult {
    const N: usize = 1003;
    let group = DeviceGroup::new(devices)?;
    let (scale, count) = (kernels(&group, "scale")?, devices.len() as u32);
    let data = data(N);
    let mut block = group.sharded_with_data(&data, Layout::block())?;
    let mut cyclic = group.sharded::<u32>(N, Layout::cyclic())?;
    for _ in 0..3 {
        group.run(|member, commands| {
            let (first, n) = (block.block(member).start as u32, block.rows(member));
            // SAFETY: each thread has its element.
            unsafe {
                commands.launch(&scale[member], Grid::threads(n), (block.shard_mut(member), first, 1_u32))
            }
        })?;
        cyclic.copy_from(&block)?;
        group.run(|member, commands| {
            let n = cyclic.rows(member);
            let args = (cyclic.shard_mut(member), member as u32, count);
            // SAFETY: as above.
            unsafe { commands.launch(&scale[member], Grid::threads(n), args) }
        })?;
        block.copy_from(&cyclic)?;
    }
    let scaled = |x: u32, i: usize| x.wrapping_mul(3).wrapping_add(i as u32);
    expect_all(&block.to_vec()?, |i| (0..6).fold(data[i], |x, _| scaled(x, i)));
    Ok(())
}

fn halos_have_the_neighbors_rows(devices: &[Device]) -> CaseResult {
    let group = DeviceGroup::new(devices)?;
    group.set_shares(&shares(devices.len()))?;
    for (rows, row, halo) in [(1, 3, 1), (5, 2, 3), (64, 7, 2), (1000, 1, 5)] {
        let data = data(rows * row);
        let mut array = group.sharded_with_data(&data, Layout::block().row(row).halo(halo))?;
        array.exchange_halos()?;
        for member in 0..group.len() {
            let block = array.block(member);
            group.synchronize()?;
            expect_all(&array.shard(member).to_vec()?, |i| {
                let at = (block.start * row + i).checked_sub(halo * row);
                at.and_then(|at| data.get(at).copied()).unwrap_or(0)
            });
        }
    }
    Ok(())
}

/// One step on the host.
fn stepped(now: &[u32], width: usize, reach: usize) -> Vec<u32> {
    let rows = now.len() / width;
    let cell = |i: usize| {
        let (row, mut sum) = (i / width, now[i]);
        for d in 1..=reach {
            let above = if row >= d { now[i - d * width] } else { 0 };
            let below = if row + d < rows { now[i + d * width] } else { 0 };
            sum = sum.wrapping_mul(5).wrapping_add(above).wrapping_sub(below.wrapping_mul(3));
        }
        sum
    };
    (0..now.len()).map(cell).collect()
}

fn stencils_with_overlapped_exchange(devices: &[Device]) -> CaseResult {
    let group = DeviceGroup::new(devices)?;
    let stencil = kernels(&group, "stencil")?;
    for unequal in [false, true] {
        if unequal {
            group.set_shares(&shares(devices.len()))?;
        }
        for (rows, width, reach) in [(1, 1, 1), (3, 4, 2), (13, 33, 1), (257, 65, 3), (64, 1, 8)] {
            let layout = Layout::block().row(width).halo(reach);
            let mut expected = data(rows * width);
            let mut now = group.sharded_with_data(&expected, layout)?;
            let mut next = group.sharded::<u32>(rows * width, layout)?;
            for _ in 0..5 {
                group.update(
                    &mut now,
                    &mut next,
                    |commands: &mut CommandBuffer, part: Part<'_, u32, u32>| {
                        let Part { member, rows: range, first, source, target } = part;
                        let grid = Grid::threads((width, range.len()));
                        let numbers = [width, first, reach, range.start, rows].map(|number| number as u32);
                        let [width, first, reach, start, rows] = numbers;
                        let args = (source, target, width, first, reach, start, rows);
                        // SAFETY: each thread writes its cell, and reads `reach` rows before and behind it.
                        unsafe { commands.launch(&stencil[member], grid, args) }
                    },
                )?;
                std::mem::swap(&mut now, &mut next);
                expected = stepped(&expected, width, reach);
            }
            let result = now.to_vec()?;
            expect_all(&result, |i| expected[i]);
        }
    }
    Ok(())
}

/// Each device computes its block from all positions, which are gathered in between.
fn bodies_by_replication(devices: &[Device]) -> CaseResult {
    const N: usize = 203;
    let group = DeviceGroup::new(devices)?;
    group.set_shares(&shares(devices.len()))?;
    let attract = kernels(&group, "attract")?;
    let mut expected = data(N);
    let mut all = group.sharded_with_data(&expected, Layout::replicated())?;
    let mut own = group.sharded::<u32>(N, Layout::block())?;
    for _ in 0..4 {
        group.run(|member, commands| {
            let block = own.block(member);
            let (grid, first) = (Grid::threads(block.len()), block.start as u32);
            let args = (all.shard(member), own.shard_mut(member), first, N as u32);
            // SAFETY: each thread writes its element.
            unsafe { commands.launch(&attract[member], grid, args) }
        })?;
        all.copy_from(&own)?;
        let sum =
            |here: u32| expected.iter().fold(0_u32, |sum, x| sum.wrapping_mul(3).wrapping_add(x ^ here));
        expected = expected.iter().map(|here| here.wrapping_add(sum(*here))).collect();
    }
    group.synchronize()?;
    for member in 0..group.len() {
        expect_all(&all.shard(member).to_vec()?, |i| expected[i]);
    }
    Ok(())
}

fn products_by_rows(devices: &[Device]) -> CaseResult {
    let group = DeviceGroup::new(devices)?;
    let product = kernels(&group, "product")?;
    for n in [1, 7, 65] {
        let number = |i: usize, seed: usize| ((i * seed + i / 7) % 11) as f32 - 5.0;
        let a: Vec<f32> = (0..n * n).map(|i| number(i, 3)).collect();
        let b: Vec<f32> = (0..n * n).map(|i| number(i, 5)).collect();
        let left = group.sharded_with_data(&a, Layout::block().row(n))?;
        let right = group.sharded_with_data(&b, Layout::replicated().row(n))?;
        let mut out = group.sharded::<f32>(n * n, Layout::block().row(n))?;
        group.run(|member, commands| {
            let grid = Grid::threads((n, left.rows(member)));
            let args = (left.shard(member), right.shard(member), out.shard_mut(member), n as u32);
            // SAFETY: each thread writes its element.
            unsafe { commands.launch(&product[member], grid, args) }
        })?;
        // Sums of small whole numbers are exact.
        expect_all(&out.to_vec()?, |i| (0..n).map(|k| a[i / n * n + k] * b[k * n + i % n]).sum::<f32>());
    }
    Ok(())
}

/// Rows move to where the shares say, also behind launches.
fn rows_move_with_the_shares(devices: &[Device]) -> CaseResult {
    const N: usize = 5003;
    let group = DeviceGroup::new(devices)?;
    let scale = kernels(&group, "scale")?;
    let data = data(N);
    let mut array = group.sharded_with_data(&data, Layout::block().halo(1))?;
    for round in 0..4_usize {
        group.run(|member, commands| {
            let (block, n) = (array.block(member), array.rows(member));
            let own = array.shard_mut(member).slice_mut(1..1 + n)?;
            // SAFETY: each thread has its element.
            unsafe { commands.launch(&scale[member], Grid::threads(n), (own, block.start as u32, 1_u32)) }
        })?;
        let mut shares = shares(devices.len());
        shares.rotate_left(round % devices.len());
        group.set_shares(&shares)?;
        array.redistribute()?;
        let total: f64 = shares.iter().sum();
        for (member, share) in shares.iter().enumerate() {
            let expected = N as f64 * share / total;
            assert!((array.rows(member) as f64 - expected).abs() <= 1.0, "{} rows", array.rows(member));
        }
    }
    let scaled = |x: u32, i: usize| x.wrapping_mul(3).wrapping_add(i as u32);
    expect_all(&array.to_vec()?, |i| (0..4).fold(data[i], |x, _| scaled(x, i)));
    // By measured times, all rows are still there.
    let shares = group.rebalance()?;
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
    array.redistribute()?;
    expect_all(&array.to_vec()?, |i| (0..4).fold(data[i], |x, _| scaled(x, i)));
    Ok(())
}

const POKE: &str = "kernel void poke(device uint* x [[buffer(0)]], constant uint& at [[buffer(1)]],
    uint i [[thread_position_in_grid]]) { x[i + at] = i; }";

/// Work ends in the failure of one member, with its number, and goes on after it is acknowledged: a kernel's fault, and a failed event.
fn a_shard_that_fails_is_named(devices: &[Device]) -> CaseResult {
    const N: usize = 1003;
    let group = DeviceGroup::new(devices)?;
    let poke = group.kernels(&Source::msl(POKE), "poke")?;
    let checked = devices.iter().map(|device| device.compile(Source::msl(POKE))?.checked_kernel("poke"));
    // On a device without bounds checks nothing makes a kernel fail without harm to others.
    let checked = match checked.collect::<elinvar::Result<Vec<_>>>() {
        Ok(checked) => Some(checked),
        Err(Error::Unsupported(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let failing = devices.len() - 1;
    let data = data(N);
    let mut array = group.sharded_with_data(&data, Layout::block())?;
    let mut all = group.sharded::<u32>(N, Layout::replicated())?;
    for by_kernel in [true, false].into_iter().filter(|by_kernel| !by_kernel || checked.is_some()) {
        let event = devices[failing].event()?;
        event.fail(&Error::InvalidArgument("injected".into()));
        group.run(|member, commands| {
            if !by_kernel && member == failing {
                commands.wait_for(&event, 1);
            }
            let at = if by_kernel && member == failing { 5000_u32 } else { 0 };
            let (grid, args) = (Grid::threads(array.rows(member)), (array.shard_mut(member), at));
            match &checked {
                Some(checked) => commands.launch_checked(&checked[member], grid, args),
                // SAFETY: `at` is 0, and each thread has its element.
                None => unsafe { commands.launch(&poke[member], grid, args) },
            }
        })?;
        all.copy_from(&array)?;
        let text = if by_kernel { "poke" } else { "injected" };
        for result in [group.synchronize(), all.to_vec().map(drop), array.to_vec().map(drop)] {
            let Err(Error::ShardFailed { shard, device, cause }) = result else { panic!("{result:?}") };
            assert_eq!((shard, &*device), (failing, devices[failing].name()));
            assert!(cause.to_string().contains(text), "{cause}");
            assert!(!by_kernel || matches!(*cause, Error::Fault(_)), "{cause}");
        }
        assert!(matches!(group.acknowledge()?, Some(Error::ShardFailed { shard, .. }) if shard == failing));
        assert!(group.acknowledge()?.is_none());
        group.synchronize()?;
        // It goes on, with new content.
        array.write(&data)?;
        all.write(&vec![0; N])?;
        all.copy_from(&array)?;
        expect_all(&all.to_vec()?, |i| data[i]);
    }
    // A record that fails submits nothing.
    let refused = group.run(|member, commands| match member == failing {
        true => Err(Error::InvalidArgument("not here".into())),
        false => commands.fill(array.shard_mut(member), 7),
    });
    let Err(Error::ShardFailed { shard, cause, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((shard, cause.to_string()), (failing, "not here".to_owned()));
    expect_all(&array.to_vec()?, |i| data[i]);
    Ok(())
}

fn invalid_arrays(devices: &[Device]) -> CaseResult {
    let group = DeviceGroup::new(devices)?;
    refused(DeviceGroup::new(&[]).map(drop), "no device");
    refused(group.sharded::<u32>(10, Layout::block().row(3)).map(drop), "10 elements in rows of 3");
    refused(group.sharded::<u32>(10, Layout::block().row(0)).map(drop), "in rows of 0");
    refused(group.sharded::<u32>(10, Layout::cyclic().halo(1)).map(drop), "a halo of 1 rows");
    refused(group.set_shares(&vec![0.0; devices.len()]), "one above 0");
    refused(group.set_shares(&[1.0]), "expected");
    let mut array = group.sharded::<u32>(10, Layout::block())?;
    refused(array.write(&[1; 9]), "9 elements to an array of 10");
    let (other, longer) = (DeviceGroup::new(devices)?, group.sharded::<u32>(11, Layout::block())?);
    refused(array.copy_from(&longer), "11 rows of 1 elements");
    refused(array.copy_from(&other.sharded(10, Layout::block())?), "another group");
    let (mut one, mut two) = (longer, array);
    refused(group.update(&mut one, &mut two, |_, _| Ok(())), "divided differently");
    Ok(())
}
