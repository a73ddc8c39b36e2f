//! Helper functions with type and const parameters, references in each address space, structs with arrays, flags.

use elinvar::kernel::*;

/// The sum of an array.
#[elinvar::device]
pub fn sum_of<T: Number, const N: usize>(values: &[T; N]) -> T {
    let mut sum = T::ZERO;
    for k in 0..N {
        sum = sum + values[k];
    }
    sum
}

/// The sum of a part of a slice.
#[elinvar::device]
pub fn sum_part(values: &[u32], from: usize, count: usize) -> u32 {
    let mut sum = 0u32;
    for k in from..(from + count).min(values.len()) {
        sum = sum.wrapping_add(values[k]);
    }
    sum
}

/// Doubles in place, and returns the old value.
#[elinvar::device]
fn doubled(value: &mut u32) -> u32 {
    let old = *value;
    *value *= 2;
    old
}

/// Larger of both.
#[elinvar::device]
fn larger<T: Number>(a: T, b: T) -> T {
    if a > b { a } else { b }
}

/// Sums of device, threadgroup and private memory by the same functions.
#[elinvar::kernel]
pub fn spaces(
    x: &[u32],
    out: &mut [u32],
    #[threadgroup] tile: &mut [u32; 32],
    #[thread_position_in_grid] i: usize,
    #[thread_index_in_threadgroup] t: usize,
) {
    tile[t] = x[i] + 1;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    let mut own = [x[i], 2, 3, 4];
    own[1] = doubled(&mut own[2]);
    let mut single = x[i];
    let old = doubled(&mut single);
    out[6 * i] = sum_part(x, i, 4);
    out[6 * i + 1] = sum_of(tile);
    out[6 * i + 2] = sum_of(&own);
    out[6 * i + 3] = larger(own[0], 50);
    out[6 * i + 4] = (larger(x[i] as f32, 7.5) * 2.0) as u32;
    out[6 * i + 5] = old + single + sum_part(&own, 1, 9);
}

/// Samples of a sensor.
#[derive(Clone, Copy, Debug, PartialEq, elinvar::KernelType)]
#[repr(C)]
pub struct Samples {
    /// Values.
    pub values: [f32; 3],
    /// How many are used.
    pub count: u32,
}

/// A node with samples.
#[derive(Clone, Copy, Debug, PartialEq, elinvar::KernelType)]
#[repr(C)]
pub struct Node {
    /// Where.
    pub place: Vec3<f32>,
    /// What.
    pub samples: Samples,
}

#[elinvar::device]
fn mean(samples: &Samples) -> f32 {
    let mut sum = 0.0f32;
    for k in 0..samples.count as usize {
        sum += samples.values[k];
    }
    sum / samples.count as f32
}

/// Copies of structs with arrays, and a flag and a scale that the kernel changes.
#[elinvar::kernel]
pub fn change_nodes(
    nodes: &mut [Node],
    flip: bool,
    mut scale: f32,
    first: Samples,
    #[thread_position_in_grid] i: usize,
) {
    let mut node = nodes[i];
    let values = node.samples.values;
    if flip {
        scale = -scale;
        node.samples.values = [values[2], values[1], values[0]];
    }
    node.samples.values[1] += mean(&node.samples) * scale + mean(&first);
    node.place = node.place.mul_add(Vec3::splat(scale), Vec3::new(1.0, 2.0, 3.0));
    node.place[2] = values[0];
    nodes[i] = node;
}

/// Products of small matrices, as arrays of arrays.
#[elinvar::kernel]
pub fn matrices(x: &[f32], out: &mut [f32], #[thread_position_in_grid] i: usize) {
    let turn = [[0.0f32, -1.0], [1.0, 0.0]];
    let mut m = [[1.0f32; 2]; 2];
    for row in 0..2 {
        for column in 0..2 {
            m[row][column] = x[4 * i + 2 * row + column];
        }
    }
    let mut product = [[0.0f32; 2]; 2];
    for row in 0..2 {
        for column in 0..2 {
            for k in 0..2 {
                product[row][column] += turn[row][k] * m[k][column];
            }
        }
    }
    let copy = product;
    for k in 0..4 {
        out[4 * i + k] = copy[k / 2][k % 2];
    }
}

/// Dynamic threadgroup memory, rotated by one.
#[elinvar::kernel]
pub fn rotate_group(
    x: &mut [i32],
    #[threadgroup] tile: &mut [i32],
    #[thread_position_in_grid] i: usize,
    #[thread_index_in_threadgroup] t: usize,
) {
    tile[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[i] = tile[(t + 1) % tile.len()];
}
