//! Grids of one to three dimensions whose sizes are not multiples of the threadgroup size.

use elinvar::{Device, Grid};

use super::{CaseResult, expect_all, kernel, run};

cases!("grids": three_dimensions_once_each, edges, positions_agree, zero_grid, groups_of_every_shape,
    rows_that_share_a_loop, rows_that_end_before_others, dispatch_groups, deep_threadgroups);

fn three_dimensions_once_each(device: &Device) -> CaseResult {
    let visit = kernel(
        device,
        "visit",
        "kernel void visit(device atomic_uint* count [[buffer(0)]], uint3 p [[thread_position_in_grid]],
                           uint3 size [[threads_per_grid]]) {
            uint i = p.x + size.x * (p.y + size.y * p.z);
            atomic_fetch_add_explicit(&count[i], 1u + i % 3u, memory_order_relaxed);
        }",
    )?;
    for (grid, group) in [((37, 19, 11), (8, 4, 2)), ((1, 1, 129), (1, 1, 64)), ((3, 511, 5), (2, 32, 4))] {
        let n = grid.0 * grid.1 * grid.2;
        let mut count = device.buffer::<u32>(n as usize)?;
        run(device, &visit, Grid::threads(grid).group(group), (&mut count,))?;
        expect_all(&count.to_vec()?, |i| 1 + i as u32 % 3);
    }
    Ok(())
}

fn edges(device: &Device) -> CaseResult {
    let sizes = kernel(
        device,
        "sizes",
        "kernel void sizes(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]],
                           uint local [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
                           uint actual [[threads_per_threadgroup]], uint full [[dispatch_threads_per_threadgroup]],
                           uint groups [[threadgroups_per_grid]], uint all [[threads_per_grid]]) {
            device uint* p = out + 6 * i;
            p[0] = local; p[1] = group; p[2] = actual; p[3] = full; p[4] = groups; p[5] = all;
        }",
    )?;
    for n in [1_u32, 31, 32, 33, 255, 256, 257] {
        for group in [32, 64, 256] {
            let mut out = device.buffer::<u32>(6 * n as usize)?;
            run(device, &sizes, Grid::threads(n).group(group), (&mut out,))?;
            expect_all(&out.to_vec()?, |e| {
                let i = e as u32 / 6;
                let index = i / group;
                [i % group, index, group.min(n - index * group), group, n.div_ceil(group), n][e % 6]
            });
        }
    }
    Ok(())
}

/// All position and index attributes of a thread agree.
fn positions_agree(device: &Device) -> CaseResult {
    let place = kernel(
        device,
        "place",
        "kernel void place(device uint* out [[buffer(0)]], uint3 p [[thread_position_in_grid]],
                           ushort3 local [[thread_position_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]],
                           uint3 full [[dispatch_threads_per_threadgroup]], uint3 actual [[threads_per_threadgroup]],
                           uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]], uint3 size [[threads_per_grid]],
                           uint width [[threads_per_simdgroup]], uint count [[simdgroups_per_threadgroup]],
                           uint2 flat [[thread_position_in_grid]]) {
            uint e = p.x + size.x * (p.y + size.y * p.z);
            bool good = all(p == uint3(local) + group * full);
            good = good && index == local.x + actual.x * (local.y + actual.y * local.z);
            uint nominal = local.x + full.x * (local.y + full.y * local.z);
            uint last = actual.x - 1 + full.x * (actual.y - 1 + full.y * (actual.z - 1));
            good = good && lane == nominal % 32 && simdgroup == nominal / 32 && width == 32;
            good = good && count == last / 32 + 1;
            good = good && all(flat == p.xy);
            out[e] = good ? e : 0xffffffffu;
        }",
    )?;
    let (w, h, d) = (21_u32, 13, 7);
    let mut out = device.buffer::<u32>((w * h * d) as usize)?;
    run(device, &place, Grid::threads((w, h, d)).group((8, 4, 2)), (&mut out,))?;
    expect_all(&out.to_vec()?, |i| i as u32);
    Ok(())
}

const COUNT: &str = "kernel void count_all(device atomic_uint* n [[buffer(0)]]) {
        atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);
    }";

fn zero_grid(device: &Device) -> CaseResult {
    let count = kernel(device, "count_all", COUNT)?;
    let mut n = device.buffer::<u32>(1)?;
    for grid in [(0, 1, 1), (5, 0, 1), (5, 5, 0)] {
        run(device, &count, Grid::threads(grid).group((4, 1, 1)), (&mut n,))?;
    }
    assert_eq!(n.to_vec()?, [0]);
    Ok(())
}

fn groups_of_every_shape(device: &Device) -> CaseResult {
    let count = kernel(device, "count_all", COUNT)?;
    for group in [(1, 1, 1), (1024, 1, 1), (1, 1024, 1), (32, 32, 1), (7, 5, 3), (16, 16, 4), (1, 1, 64)] {
        let mut n = device.buffer::<u32>(1)?;
        run(device, &count, Grid::threads((50, 40, 3)).group(group), (&mut n,))?;
        assert_eq!(n.to_vec()?, [6000], "group {group:?}");
    }
    Ok(())
}

/// Threads of several rows and planes that run the same loop, as in a matrix product.
fn rows_that_share_a_loop(device: &Device) -> CaseResult {
    const TERMS: u32 = 5;
    let product = kernel(
        device,
        "product",
        "kernel void product(device const uint* a [[buffer(0)]], device const uint* b [[buffer(1)]],
                             device uint* out [[buffer(2)]], constant uint& terms [[buffer(3)]],
                             uint3 p [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
            uint sum = 0;
            for (uint k = 0; k < terms; ++k) sum += a[p.y * terms + k] * b[k * size.x + p.x];
            out[p.x + size.x * (p.y + size.y * p.z)] = sum + 1000003u * p.z;
        }",
    )?;
    for (group, grid) in [
        ([4, 256, 1], [12, 300, 1]),
        ([8, 128, 1], [24, 300, 1]),
        ([16, 64, 1], [40, 130, 1]),
        ([32, 32, 1], [64, 70, 1]),
        ([64, 16, 1], [130, 32, 1]),
        ([16, 8, 8], [40, 16, 17]),
        ([2, 2, 64], [7, 5, 130]),
        ([5, 3, 7], [12, 10, 15]),
    ] {
        let [w, h, d] = grid;
        let left: Vec<u32> = (0..h * TERMS).map(|i| 7 * i + 1).collect();
        let right: Vec<u32> = (0..w * TERMS).map(|i| 11 * i + 3).collect();
        let (a, b) = (device.buffer_with_data(&left)?, device.buffer_with_data(&right)?);
        let mut out = device.buffer::<u32>((w * h * d) as usize)?;
        run(device, &product, Grid::threads(grid).group(group), (&a, &b, &mut out, TERMS))?;
        expect_all(&out.to_vec()?, |i| {
            let i = i as u32;
            let (x, y, z) = (i % w, i / w % h, i / (w * h));
            let term = |k: u32| left[(y * TERMS + k) as usize].wrapping_mul(right[(k * w + x) as usize]);
            (0..TERMS).fold(1_000_003 * z, |sum, k| sum.wrapping_add(term(k)))
        });
    }
    Ok(())
}

/// Rows with iterations of their own, as of a sparse matrix: what the others read after the end of theirs, a row does not. Their numbers are at the end of
/// a buffer, and the longest row would read far behind it. The last rows of the threadgroup are not in the grid.
fn rows_that_end_before_others(device: &Device) -> CaseResult {
    let sums = kernel(
        device,
        "sums",
        "kernel void sums(device const int* starts [[buffer(0)]], device const int* columns [[buffer(1)]],
                          device const int* table [[buffer(2)]], device int* out [[buffer(3)]], constant int& width [[buffer(4)]],
                          constant int& rows [[buffer(5)]], uint2 p [[thread_position_in_grid]]) {
            int x = p.x, y = p.y;
            if (y >= rows || x >= width) return;
            int sum = 0;
            for (int at = starts[y]; at < starts[y + 1]; ++at) sum += table[columns[at] + x];
            out[y * width + x] = sum;
        }",
    )?;
    let lengths = [300_000, 1, 0, 2, 1, 3, 1];
    let starts: Vec<i32> =
        (0..=lengths.len()).map(|row| lengths[..row].iter().sum::<usize>() as i32).collect();
    let columns: Vec<i32> = (0..lengths.iter().sum::<usize>()).map(|at| (at % 5) as i32).collect();
    let table: Vec<i32> = (0..64).map(|n| n * n).collect();
    let buffers = (
        device.buffer_with_data(&starts)?,
        device.buffer_with_data(&columns)?,
        device.buffer_with_data(&table)?,
    );
    for (width, group) in [(8, (32, 8)), (16, (16, 8)), (14, (32, 8)), (5, (8, 8))] {
        let mut out = device.buffer::<i32>(lengths.len() * width)?;
        let args = (&buffers.0, &buffers.1, &buffers.2, &mut out, width as i32, lengths.len() as i32);
        run(device, &sums, Grid::threads((width, lengths.len())).group(group), args)?;
        expect_all(&out.to_vec()?, |e| {
            let (row, x) = (e / width, e % width);
            let of = &columns[starts[row] as usize..starts[row + 1] as usize];
            of.iter().fold(0_i32, |sum, column| sum.wrapping_add(table[*column as usize + x]))
        });
    }
    Ok(())
}

fn dispatch_groups(device: &Device) -> CaseResult {
    let count = kernel(device, "count_all", COUNT)?;
    let mut n = device.buffer::<u32>(1)?;
    run(device, &count, Grid::groups((3, 5, 2)).group((8, 4, 1)), (&mut n,))?;
    assert_eq!(n.to_vec()?, [3 * 5 * 2 * 32]);
    Ok(())
}

/// Threadgroups of more than 64 threads along z, the most that a block of CUDA has: whole, and cut off at each edge of the grid.
fn deep_threadgroups(device: &Device) -> CaseResult {
    const FIELDS: usize = 14;
    let deep = kernel(
        device,
        "deep",
        "kernel void deep(device uint* out [[buffer(0)]], uint3 p [[thread_position_in_grid]],
                          uint3 local [[thread_position_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]],
                          uint3 actual [[threads_per_threadgroup]], uint3 full [[dispatch_threads_per_threadgroup]],
                          uint3 groups [[threadgroups_per_grid]], uint3 all [[threads_per_grid]],
                          uint index [[thread_index_in_threadgroup]]) {
            threadgroup uint shared[1024];
            shared[index] = 7 * index;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint count = actual.x * actual.y * actual.z;
            device uint* q = out + 14 * (p.x + all.x * (p.y + all.y * p.z));
            q[0] = local.x; q[1] = local.y; q[2] = local.z; q[3] = group.x; q[4] = group.y; q[5] = group.z;
            q[6] = actual.y; q[7] = actual.z; q[8] = full.y; q[9] = full.z; q[10] = groups.y; q[11] = groups.z;
            q[12] = index; q[13] = shared[(index + 1) % count];
        }",
    )?;
    let lanes = kernel(
        device,
        "lanes",
        "kernel void lanes(device uint* out [[buffer(0)]], uint3 p [[thread_position_in_grid]],
                           uint3 all [[threads_per_grid]], uint index [[thread_index_in_threadgroup]]) {
            out[p.x + all.x * (p.y + all.y * p.z)] = index + 10000 * simd_sum(1u) + simd_prefix_exclusive_sum(100u);
        }",
    )?;
    let cases = [
        ([1, 1, 1024], [1, 1, 1024]),
        ([1, 1, 2050], [1, 1, 1024]),
        ([2, 3, 128], [2, 3, 128]),
        ([5, 7, 200], [2, 3, 128]),
        ([1, 8, 128], [1, 8, 128]),
        ([3, 17, 129], [1, 8, 128]),
        ([4, 4, 65], [4, 3, 65]),
        ([2, 2, 64], [2, 2, 64]),
        // More threadgroups along z than a grid of CUDA has.
        ([1, 1, 65 * 65600], [1, 1, 65]),
    ];
    for (grid, group) in cases {
        let n: u32 = grid.iter().product();
        if n < 100_000 {
            let mut out = device.buffer::<u32>(FIELDS * n as usize)?;
            run(device, &deep, Grid::threads(grid).group(group), (&mut out,))?;
            expect_all(&out.to_vec()?, |e| {
                let i = (e / FIELDS) as u32;
                let p = [i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]];
                let local: [u32; 3] = std::array::from_fn(|d| p[d] % group[d]);
                let at: [u32; 3] = std::array::from_fn(|d| p[d] / group[d]);
                let actual: [u32; 3] = std::array::from_fn(|d| group[d].min(grid[d] - at[d] * group[d]));
                let groups: [u32; 3] = std::array::from_fn(|d| grid[d].div_ceil(group[d]));
                let index = local[0] + actual[0] * (local[1] + actual[1] * local[2]);
                let count: u32 = actual.iter().product();
                let [x, y, z] = local;
                let neighbor = 7 * ((index + 1) % count);
                [
                    x, y, z, at[0], at[1], at[2], actual[1], actual[2], group[1], group[2], groups[1],
                    groups[2], index, neighbor,
                ][e % FIELDS]
            });
        }
        let size: u32 = group.iter().product();
        // Threadgroups of consecutive threads, whose simdgroups are known.
        if n == size || group[0] * group[1] == 1 {
            let mut out = device.buffer::<u32>(n as usize)?;
            run(device, &lanes, Grid::threads(grid).group(group), (&mut out,))?;
            expect_all(&out.to_vec()?, |i| {
                let (index, first) = (i as u32 % size, i as u32 / size * size);
                let count = size.min(n - first);
                index + 10000 * (count - index / 32 * 32).min(32) + 100 * (index % 32)
            });
        }
    }
    Ok(())
}
