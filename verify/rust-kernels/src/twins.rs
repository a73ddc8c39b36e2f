//! The kernels of `elinvar bench` in Rust. Each has a twin in MSL in `crates/cli/src/bench/kernels`; where fast math contracts, `mul_add` is
//! written.

use elinvar::kernel::*;

/// `vector_add.metal`.
#[elinvar::kernel]
pub fn vector_add(a: &[f32], b: &[f32], out: &mut [f32], n: u32, #[thread_position_in_grid] id: u32) {
    if id < n {
        out[id as usize] = a[id as usize] + b[id as usize];
    }
}

/// `saxpy.metal`.
#[elinvar::kernel]
pub fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32, #[thread_position_in_grid] id: u32) {
    if id < n {
        y[id as usize] = a.mul_add(x[id as usize], y[id as usize]);
    }
}

/// `gather.metal`.
#[elinvar::kernel]
pub fn gather(index: &[u32], table: &[f32], out: &mut [f32], #[thread_position_in_grid] id: usize) {
    out[id] = table[index[id] as usize];
}

/// `matmul.metal`.
#[elinvar::kernel]
pub fn matmul_naive(
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    n: u32,
    #[thread_position_in_grid] position: Vec2<u32>,
) {
    if position.x >= n || position.y >= n {
        return;
    }
    let mut sum = 0.0f32;
    for i in 0..n {
        sum = a[(position.y * n + i) as usize].mul_add(b[(i * n + position.x) as usize], sum);
    }
    c[(position.y * n + position.x) as usize] = sum;
}

#[elinvar::device]
const TILE: usize = 16;

/// `matmul.metal`.
#[elinvar::kernel]
pub fn matmul_tiled(
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    n: u32,
    #[threadgroup] tile_a: &mut [[f32; TILE]; TILE],
    #[threadgroup] tile_b: &mut [[f32; TILE]; TILE],
    #[thread_position_in_grid] position: Vec2<usize>,
    #[thread_position_in_threadgroup] local: Vec2<usize>,
) {
    let n = n as usize;
    let mut sum = 0.0f32;
    let mut start = 0;
    while start < n {
        tile_a[local.y][local.x] = a[position.y * n + start + local.x];
        tile_b[local.y][local.x] = b[(start + local.y) * n + position.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for i in 0..TILE {
            sum = tile_a[local.y][i].mul_add(tile_b[i][local.x], sum);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        start += TILE;
    }
    c[position.y * n + position.x] = sum;
}

/// `transpose.metal`: tiles of 32 by threadgroups of 32 by 8 threads.
#[elinvar::kernel]
pub fn transpose(
    input: &[f32],
    out: &mut [f32],
    n: u32,
    #[threadgroup] tile: &mut [[f32; 33]; 32],
    #[thread_position_in_threadgroup] local: Vec2<usize>,
    #[threadgroup_position_in_grid] group: Vec2<usize>,
) {
    let n = n as usize;
    let (x, y) = (group.x * 32 + local.x, group.y * 32 + local.y);
    for row in (0..32).step_by(8) {
        tile[local.y + row][local.x] = input[(y + row) * n + x];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    let (x, y) = (group.y * 32 + local.x, group.x * 32 + local.y);
    for row in (0..32).step_by(8) {
        out[(y + row) * n + x] = tile[local.x][local.y + row];
    }
}

/// `reduce.metal`.
#[elinvar::kernel]
pub fn reduce_tree(
    input: &[f32],
    sums: &mut [f32],
    #[threadgroup] partial: &mut [f32; 256],
    #[thread_position_in_grid] id: usize,
    #[thread_index_in_threadgroup] local: usize,
    #[threads_per_threadgroup] size: usize,
    #[threadgroup_position_in_grid] group: usize,
) {
    partial[local] = input[id];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    let mut step = size / 2;
    while step > 0 {
        if local < step {
            partial[local] += partial[local + step];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        step /= 2;
    }
    if local == 0 {
        sums[group] = partial[0];
    }
}

/// `reduce.metal`.
#[elinvar::kernel]
pub fn reduce_simd(
    input: &[f32],
    sums: &mut [f32],
    #[threadgroup] partial: &mut [f32; 32],
    #[thread_position_in_grid] id: usize,
    #[threadgroup_position_in_grid] group: usize,
    #[thread_index_in_simdgroup] lane: usize,
    #[simdgroup_index_in_threadgroup] simdgroup: usize,
    #[simdgroups_per_threadgroup] simdgroups: usize,
) {
    let mut sum = simd_sum(input[id]);
    if lane == 0 {
        partial[simdgroup] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if simdgroup == 0 {
        sum = simd_sum(if lane < simdgroups { partial[lane] } else { 0.0 });
        if lane == 0 {
            sums[group] = sum;
        }
    }
}

/// `softmax.metal`: a threadgroup of 256 threads for each row.
#[elinvar::kernel]
pub fn softmax(
    input: &[f32],
    out: &mut [f32],
    n: u32,
    #[threadgroup] partial: &mut [f32; 32],
    #[threadgroup_position_in_grid] row: usize,
    #[thread_index_in_threadgroup] local: usize,
    #[threads_per_threadgroup] size: usize,
    #[thread_index_in_simdgroup] lane: usize,
    #[simdgroup_index_in_threadgroup] simdgroup: usize,
    #[simdgroups_per_threadgroup] simdgroups: usize,
) {
    let n = n as usize;
    let from = row * n;
    let mut highest = f32::NEG_INFINITY;
    let mut i = local;
    while i < n {
        highest = highest.max(input[from + i]);
        i += size;
    }
    highest = simd_max(highest);
    if lane == 0 {
        partial[simdgroup] = highest;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    highest = simd_max(if lane < simdgroups { partial[lane] } else { f32::NEG_INFINITY });
    threadgroup_barrier(mem_flags::mem_threadgroup);

    let mut sum = 0.0f32;
    i = local;
    while i < n {
        let value = (input[from + i] - highest).exp();
        out[from + i] = value;
        sum += value;
        i += size;
    }
    sum = simd_sum(sum);
    if lane == 0 {
        partial[simdgroup] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(if lane < simdgroups { partial[lane] } else { 0.0 });

    let factor = 1.0 / sum;
    i = local;
    while i < n {
        out[from + i] *= factor;
        i += size;
    }
}

/// `histogram.metal`.
#[elinvar::kernel]
pub fn histogram_device(data: &[u8], bins: &[AtomicU32], #[thread_position_in_grid] id: usize) {
    bins[data[id] as usize].fetch_add(1, Ordering::Relaxed);
}

#[elinvar::device]
const PER_THREAD: usize = 16;

/// `histogram.metal`.
#[elinvar::kernel]
pub fn histogram_threadgroup(
    data: &[u8],
    bins: &[AtomicU32],
    #[threadgroup] counts: &[AtomicU32; 256],
    #[thread_index_in_threadgroup] local: usize,
    #[threads_per_threadgroup] size: usize,
    #[threadgroup_position_in_grid] group: usize,
) {
    let mut i = local;
    while i < 256 {
        counts[i].store(0, Ordering::Relaxed);
        i += size;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    let start = group * size * PER_THREAD + local;
    for k in 0..PER_THREAD {
        counts[data[start + k * size] as usize].fetch_add(1, Ordering::Relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    i = local;
    while i < 256 {
        let count = counts[i].load(Ordering::Relaxed);
        if count > 0 {
            bins[i].fetch_add(count, Ordering::Relaxed);
        }
        i += size;
    }
}

/// `mandelbrot.metal`.
#[elinvar::kernel]
pub fn mandelbrot(out: &mut [u32], size: u32, limit: u32, #[thread_position_in_grid] position: Vec2<u32>) {
    let cx = -2.0 + 3.0 * position.x as f32 / size as f32;
    let cy = -1.5 + 3.0 * position.y as f32 / size as f32;
    let (mut x, mut y) = (0.0f32, 0.0f32);
    let mut count = 0u32;
    while count < limit && x.mul_add(x, y * y) <= 4.0 {
        let next = x.mul_add(x, y.mul_add(-y, cx));
        y = (2.0 * x).mul_add(y, cy);
        x = next;
        count += 1;
    }
    out[(position.y * size + position.x) as usize] = count;
}

/// `stencil3d.metal`.
#[elinvar::kernel]
pub fn stencil3d(input: &[f32], out: &mut [f32], n: u32, #[thread_position_in_grid] position: Vec3<usize>) {
    let n = n as usize;
    let (x, y, z) = (position.x, position.y, position.z);
    if x == 0 || y == 0 || z == 0 || x >= n - 1 || y >= n - 1 || z >= n - 1 {
        return;
    }
    let at = (z * n + y) * n + x;
    let around =
        input[at - 1] + input[at + 1] + input[at - n] + input[at + n] + input[at - n * n] + input[at + n * n];
    out[at] = 0.5f32.mul_add(input[at], 0.0625 * around);
}

/// `nbody.metal`, in the math mode in which Metal compiles it.
#[elinvar::kernel(math = "fast")]
pub fn nbody(
    bodies: &[Vec4<f32>],
    accelerations: &mut [Vec4<f32>],
    n: u32,
    softening: f32,
    #[thread_position_in_grid] id: usize,
) {
    let here = bodies[id].xyz();
    let mut sum = Vec3::splat(0.0f32);
    for i in 0..n as usize {
        let other = bodies[i];
        let way = other.xyz() - here;
        let square = way.x.mul_add(way.x, way.y.mul_add(way.y, way.z.mul_add(way.z, softening)));
        let inverse = rsqrt(square);
        sum = way.mul_add(Vec3::splat(other.w * inverse * inverse * inverse), sum);
    }
    accelerations[id] = Vec4::new(sum.x, sum.y, sum.z, 0.0);
}
