//! Products, transposes, attention.

use elinvar::kernel::*;

#[elinvar::device]
pub const TILE: usize = 16;

/// `c = a · b` for square matrices, with tiles in threadgroup memory.
#[elinvar::kernel]
pub fn matmul_tiled(
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    n: u32,
    #[threadgroup] left: &mut [[f32; TILE]; TILE],
    #[threadgroup] right: &mut [[f32; TILE]; TILE],
    #[thread_position_in_grid] at: Vec2<usize>,
    #[thread_position_in_threadgroup] t: Vec2<usize>,
) {
    let n = n as usize;
    let mut sum = 0.0f32;
    for step in 0..n / TILE {
        left[t.y][t.x] = a[at.y * n + step * TILE + t.x];
        right[t.y][t.x] = b[(step * TILE + t.y) * n + at.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for k in 0..TILE {
            sum = left[t.y][k].mul_add(right[k][t.x], sum);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    c[at.y * n + at.x] = sum;
}

/// `c = a · b`, one element a thread.
#[elinvar::kernel]
pub fn matmul_naive(a: &[f32], b: &[f32], c: &mut [f32], n: u32, #[thread_position_in_grid] at: Vec2<usize>) {
    let n = n as usize;
    if at.x >= n || at.y >= n {
        return;
    }
    let mut sum = 0.0f32;
    for k in 0..n {
        sum = a[at.y * n + k].mul_add(b[k * n + at.x], sum);
    }
    c[at.y * n + at.x] = sum;
}

/// The transpose of a matrix of `width` columns, through a tile.
#[elinvar::kernel]
pub fn transpose(
    x: &[u32],
    y: &mut [u32],
    width: u32,
    height: u32,
    #[threadgroup] tile: &mut [[u32; 17]; 16],
    #[threadgroup_position_in_grid] group: Vec2<usize>,
    #[thread_position_in_threadgroup] t: Vec2<usize>,
) {
    let (width, height) = (width as usize, height as usize);
    let (column, row) = (group.x * 16 + t.x, group.y * 16 + t.y);
    if column < width && row < height {
        tile[t.y][t.x] = x[row * width + column];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    let (column, row) = (group.y * 16 + t.x, group.x * 16 + t.y);
    if column < height && row < width {
        y[row * height + column] = tile[t.x][t.y];
    }
}

/// Attention of one head of `D` dimensions with a running maximum, one query a thread.
#[elinvar::kernel]
pub fn attention<const D: usize>(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    out: &mut [f32],
    keys: u32,
    scale: f32,
    #[thread_position_in_grid] query: usize,
) {
    let mut sums = [0.0f32; D];
    let mut most = f32::NEG_INFINITY;
    let mut total = 0.0f32;
    let dot = |key: usize| {
        let mut sum = 0.0f32;
        for d in 0..D {
            sum = q[query * D + d].mul_add(k[key * D + d], sum);
        }
        sum * scale
    };
    for key in 0..keys as usize {
        let score = dot(key);
        let next = most.max(score);
        let (old, new) = ((most - next).exp(), (score - next).exp());
        total = total * old + new;
        for d in 0..D {
            sums[d] = sums[d] * old + new * v[key * D + d];
        }
        most = next;
    }
    for d in 0..D {
        out[query * D + d] = sums[d] / total;
    }
}

/// A sparse matrix (CSR) times a vector, one row a thread.
#[elinvar::kernel]
pub fn spmv(
    starts: &[u32],
    columns: &[u32],
    values: &[f32],
    x: &[f32],
    y: &mut [f32],
    #[thread_position_in_grid] row: usize,
) {
    let mut sum = 0.0f32;
    for at in starts[row]..starts[row + 1] {
        sum += values[at as usize] * x[columns[at as usize] as usize];
    }
    y[row] = sum;
}

/// `x · a + b` with `f16`.
#[elinvar::kernel]
pub fn half_axpy(x: &mut [f16], a: f16, b: &[f16], #[thread_position_in_grid] i: usize) {
    let sum = x[i] * a + b[i];
    x[i] = if sum > f16::from_f32(100.0) { f16::from_f32(sum.to_f32() / 2.0) } else { sum };
}
