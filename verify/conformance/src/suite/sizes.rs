//! Threadgroup sizes: one kernel is launched with many, in one, two and three dimensions, over grids with partial threadgroups.

use elinvar::{Device, Grid};

use super::{CaseResult, expect_all, kernel, run};

cases!("sizes": neighbors, sums, simdgroups, same_bits, many_launches);

/// Sizes of one dimension, in rows and across rows, with and without unused lanes.
const GROUPS: [[u32; 3]; 24] = [
    [64, 1, 1],
    [1, 1, 1],
    [16, 1, 1],
    [32, 1, 1],
    [100, 1, 1],
    [1024, 1, 1],
    [33, 1, 1],
    [1000, 1, 1],
    [7, 1, 1],
    [32, 4, 1],
    [16, 16, 1],
    [8, 8, 1],
    [32, 32, 1],
    [64, 3, 1],
    [30, 5, 1],
    [128, 2, 4],
    [16, 2, 5],
    [32, 3, 7],
    [4, 4, 4],
    [48, 1, 3],
    [1, 64, 1],
    [1, 1, 64],
    [5, 3, 2],
    [22, 46, 1],
];

/// A grid of two to three threadgroups along each dimension that has several threads, the last one partial.
fn grid_of(group: [u32; 3]) -> [usize; 3] {
    group.map(|size| if size == 1 { 2 } else { 2 * size as usize + size.div_ceil(2) as usize })
}

/// Number of elements of a grid.
fn volume(grid: [usize; 3]) -> usize {
    grid.iter().product()
}

/// For each thread, in linear order: its position in the grid, its threadgroup's first position, and its threadgroup's size.
fn threads(grid: [usize; 3], group: [u32; 3]) -> impl Iterator<Item = [[usize; 3]; 3]> {
    let [x, y, z] = grid;
    let positions = (0..z).flat_map(move |k| (0..y).flat_map(move |j| (0..x).map(move |i| [i, j, k])));
    positions.map(move |at| {
        let first: [usize; 3] = std::array::from_fn(|d| at[d] / group[d] as usize * group[d] as usize);
        [at, first, std::array::from_fn(|d| (group[d] as usize).min(grid[d] - first[d]))]
    })
}

fn linear([i, j, k]: [usize; 3], [x, y, _]: [usize; 3]) -> usize {
    (k * y + j) * x + i
}

/// Each thread reads what its right neighbor, in the linear order of their threadgroup, has computed, in several rounds.
const NEIGHBORS: &str =
    "kernel void neighbors(device uint* out [[buffer(0)]], constant uint& rounds [[buffer(1)]],
        uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
        uint local [[thread_index_in_threadgroup]], uint3 in [[thread_position_in_threadgroup]],
        uint3 size [[threads_per_threadgroup]], uint3 full [[dispatch_threads_per_threadgroup]],
        uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]]) {
        threadgroup uint shared[1024];
        uint threads = size.x * size.y * size.z;
        uint place = (at.z * grid.y + at.y) * grid.x + at.x;
        uint mine = place * 2654435761u + in.x + 7u * in.y + 11u * in.z + 13u * full.x + 17u * full.y + 19u * full.z
            + 23u * group.x + 29u * group.y + 31u * group.z + 37u * (groups.x + groups.y + groups.z);
        for (uint round = 0; round < rounds; ++round) {
            shared[local] = mine;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            mine = 3u * mine + shared[(local + 1) % threads] + round;
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        out[place] = mine;
    }";

const ROUNDS: u32 = 3;

fn neighbors_of(grid: [usize; 3], full: [u32; 3]) -> Vec<u32> {
    let groups: u32 = (0..3).map(|d| grid[d].div_ceil(full[d] as usize) as u32).sum();
    let dot = |a: [u32; 3], b: [usize; 3]| (0..3).map(|d| a[d] * b[d] as u32).sum::<u32>();
    let first = |(place, [at, first, _]): (usize, [[usize; 3]; 3])| {
        let inside = std::array::from_fn(|d| at[d] - first[d]);
        let group = std::array::from_fn(|d| first[d] / full[d] as usize);
        let sum =
            dot([1, 7, 11], inside) + dot([13, 17, 19], full.map(|n| n as usize)) + dot([23, 29, 31], group);
        (place as u32).wrapping_mul(2_654_435_761).wrapping_add(sum + 37 * groups)
    };
    let mut values: Vec<u32> = threads(grid, full).enumerate().map(first).collect();
    for round in 0..ROUNDS {
        let before = values.clone();
        for (place, [at, first, size]) in threads(grid, full).enumerate() {
            let local = linear(std::array::from_fn(|d| at[d] - first[d]), size);
            let next = (local + 1) % volume(size);
            let next = [next % size[0], next / size[0] % size[1], next / size[0] / size[1]];
            let next = linear(std::array::from_fn(|d| first[d] + next[d]), grid);
            values[place] = before[place].wrapping_mul(3).wrapping_add(before[next]).wrapping_add(round);
        }
    }
    values
}

fn neighbors(device: &Device) -> CaseResult {
    let kernel = kernel(device, "neighbors", NEIGHBORS)?;
    for group in GROUPS {
        let grid = grid_of(group);
        let mut out = device.buffer::<u32>(volume(grid))?;
        run(device, &kernel, Grid::threads(grid).group(group), (&mut out, ROUNDS))?;
        let expected = neighbors_of(grid, group);
        let got = out.to_vec()?;
        let wrong = (0..got.len()).find(|place| got[*place] != expected[*place]);
        assert_eq!(wrong, None, "threadgroups of {group:?}");
    }
    Ok(())
}

/// A tree reduction in threadgroup memory, whose rounds have ever fewer threads with work.
const SUMS: &str = "kernel void sums(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
        uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
        uint threads [[threads_per_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
        threadgroup uint shared[1024];
        shared[t] = in[i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint count = threads; count > 1;) {
            uint half_of = (count + 1) / 2;
            if (t < count / 2) { shared[t] += shared[t + half_of]; }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            count = half_of;
        }
        if (t == 0) { out[group] = shared[0]; }
    }";

fn sums(device: &Device) -> CaseResult {
    let kernel = kernel(device, "sums", SUMS)?;
    for group in [64_usize, 128, 16, 100, 1024, 999, 256, 33, 512, 31, 1] {
        let n = 3 * group + group / 2;
        let input: Vec<u32> = (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let (buffer, mut out) = (device.buffer_with_data(&input)?, device.buffer::<u32>(n.div_ceil(group))?);
        run(device, &kernel, Grid::threads(n).group(group), (&buffer, &mut out))?;
        let parts: Vec<&[u32]> = input.chunks(group).collect();
        expect_all(&out.to_vec()?, |i| parts[i].iter().fold(0, |sum: u32, x| sum.wrapping_add(*x)));
    }
    Ok(())
}

/// The sum over each full simdgroup, and its place in the threadgroup.
const SIMDGROUPS: &str =
    "kernel void simdgroups(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
        uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
        uint lane [[thread_index_in_simdgroup]], uint number [[simdgroup_index_in_threadgroup]]) {
        threadgroup uint shared[32];
        uint place = (at.z * grid.y + at.y) * grid.x + at.x;
        uint sum = simd_sum(in[place]);
        if (lane == 0) { shared[number] = sum; }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[place] = shared[number] + 3u * lane + 100u * number + simd_broadcast(in[place], ushort(number));
    }";

fn simdgroups(device: &Device) -> CaseResult {
    let kernel = kernel(device, "simdgroups", SIMDGROUPS)?;
    for group in [
        [64_u32, 1, 1],
        [32, 1, 1],
        [1024, 1, 1],
        [96, 1, 1],
        [32, 8, 1],
        [64, 4, 2],
        [16, 4, 1],
        [32, 32, 1],
    ] {
        let grid: [usize; 3] = group.map(|size| if size == 1 { 1 } else { 2 * size as usize });
        let input: Vec<u32> = (0..volume(grid) as u32).map(|i| i.wrapping_mul(40_503) >> 3).collect();
        let (buffer, mut out) = (device.buffer_with_data(&input)?, device.buffer::<u32>(volume(grid))?);
        run(device, &kernel, Grid::threads(grid).group(group), (&buffer, &mut out))?;
        let size = group.map(|n| n as usize);
        let value = |[at, first, _]: [[usize; 3]; 3]| {
            let local = linear(std::array::from_fn(|d| at[d] - first[d]), size);
            let (number, lane) = (local / 32, local % 32);
            let of = |lane: usize| {
                let place = number * 32 + lane;
                let place = [place % size[0], place / size[0] % size[1], place / size[0] / size[1]];
                input[linear(std::array::from_fn(|d| first[d] + place[d]), grid)]
            };
            let sum = (0..32).fold(0_u32, |sum, lane| sum.wrapping_add(of(lane)));
            sum.wrapping_add((3 * lane + 100 * number) as u32).wrapping_add(of(number))
        };
        let expected: Vec<u32> = threads(grid, group).map(value).collect();
        expect_all(&out.to_vec()?, |i| expected[i]);
    }
    Ok(())
}

/// Arithmetic whose rounding would change if it were reordered, with divergent loops and branches.
const MIXED: &str =
    "kernel void mixed(device const float* a, device float* out, uint i [[thread_position_in_grid]]) {
        float x = a[i], r = x * 0.3f + 1.0f;
        for (uint k = 0; k < i % 7; ++k) { r = r * x + 0.1f / (r * r + 1.5f) - float(k) * x; }
        if (i % 3 == 1) { r -= rsqrt(x * x + 0.5f) * x; }
        out[i] = r + (x + r) * (x - r) + exp(x * 0.5f);
    }";

fn same_bits(device: &Device) -> CaseResult {
    const N: usize = 2111;
    let kernel = kernel(device, "mixed", MIXED)?;
    let a: Vec<f32> = (0..N).map(|i| ((i * 37) % 101) as f32 * 0.03 - 1.5).collect();
    let a = device.buffer_with_data(&a)?;
    let mut first: Option<Vec<u32>> = None;
    for group in [64, 128, 100, 1024, 16, 33, 777, 8] {
        let mut out = device.buffer::<f32>(N)?;
        run(device, &kernel, Grid::threads(N).group(group), (&a, &mut out))?;
        let bits: Vec<u32> = out.to_vec()?.into_iter().map(f32::to_bits).collect();
        expect_all(&bits, |i| first.as_ref().map_or(bits[i], |first| first[i]));
        first.get_or_insert(bits);
    }
    Ok(())
}

/// Sizes are launched in turns, so often that specialized code replaces general code.
fn many_launches(device: &Device) -> CaseResult {
    let kernel = kernel(device, "neighbors", NEIGHBORS)?;
    let groups = [[64, 1, 1], [96, 1, 1], [32, 4, 1]];
    let expected = groups.map(|group| neighbors_of(grid_of(group), group));
    for _ in 0..40 {
        for (group, expected) in groups.iter().zip(&expected) {
            let mut out = device.buffer::<u32>(expected.len())?;
            run(device, &kernel, Grid::threads(grid_of(*group)).group(*group), (&mut out, ROUNDS))?;
            expect_all(&out.to_vec()?, |i| expected[i]);
        }
    }
    Ok(())
}
