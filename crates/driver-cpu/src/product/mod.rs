//! Matrix products and convolutions, as jobs of the workers: deadlines, priorities and limits of workers hold as for dispatches.
//!
//! - [`packed`]: products of packed panels by `elinvar-gemm`.
//! - [`direct`]: those whose left factor is read where it is.
//! - [`thin`]: small products, and those with few rows or columns, such as of a matrix and a vector, by the crate `gemm`.
//! - [`convolution`]: convolutions, which are products too.

mod convolution;
mod direct;
mod factor;
mod packed;
mod thin;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use elinvar_driver::primitive::{Activation, Convolution, DataType, MatMul};
use elinvar_driver::{Error, MemorySlice, Result};
use elinvar_gemm::{Element, widen};

use packed::BiasOf;

use crate::job::{Demand, RANGE_NS};
use crate::pool::Worker;
use crate::scratch::Scratch;
use crate::stop::Stop;

/// Products with fewer rows or columns, or fewer multiply-adds, are not packed, which costs as much as it saves.
const LEAST: u32 = 8;
const LEAST_MULTIPLY_ADDS: u64 = 1 << 20;
/// Packed elements of factors at a time: 16 MiB.
const PANELS: usize = 4 << 20;
/// Blocks for each worker, if there is enough work: what one worker does longer than the others is a part of a block.
const BLOCKS_PER_WORKER: usize = 3;
/// Multiply-adds in a nanosecond of one thread, an estimate, by which products are shared and divided.
const PER_NS: u64 = 64;

/// Computes a product: left, right, bias if there is one, result.
pub(crate) fn multiply(
    p: &MatMul,
    operands: &[MemorySlice],
    stop: &Arc<Stop>,
    worker: &mut Worker,
) -> Result<()> {
    let multiply_adds =
        u64::from(p.result.rows) * u64::from(p.result.columns).saturating_mul(u64::from(p.interior()));
    if p.result.rows.min(p.result.columns) < LEAST || multiply_adds < LEAST_MULTIPLY_ADDS {
        return thin::multiply(p, operands, stop, worker);
    }
    packed::multiply(p, operands, BiasOf::Columns, PANELS, stop, worker)
}

/// Computes a convolution: source, weights, bias if there is one, result.
pub(crate) fn convolve(
    p: &Convolution,
    operands: &[MemorySlice],
    stop: &Arc<Stop>,
    worker: &mut Worker,
) -> Result<()> {
    convolution::convolve(p, operands, PANELS, stop, worker)
}

fn element(data_type: DataType) -> Result<Element> {
    match data_type {
        DataType::F32 => Ok(Element::F32),
        DataType::F16 => Ok(Element::F16),
        DataType::BF16 => Ok(Element::BF16),
        other => Err(Error::unsupported(format!("the CPU driver has no products of {other}"))),
    }
}

fn activation(of: Activation) -> elinvar_gemm::Activation {
    match of {
        Activation::Relu => elinvar_gemm::Activation::Relu,
        Activation::Gelu => elinvar_gemm::Activation::Gelu,
        _ => elinvar_gemm::Activation::None,
    }
}

/// Runs groups in order, until the submission is stopped. A failure stops it.
fn run(stop: &Stop, groups: Range<u64>, mut each: impl FnMut(usize) -> Result<()>) -> ControlFlow<()> {
    run_blocks(stop, groups, |groups| each(groups.start).map(|()| groups.start + 1))
}

/// As [`run`], several groups at a time: `block` runs the first ones of a range, and returns the first that it has not run.
fn run_blocks(
    stop: &Stop,
    groups: Range<u64>,
    mut block: impl FnMut(Range<usize>) -> Result<usize>,
) -> ControlFlow<()> {
    let mut groups = groups.start as usize..groups.end as usize;
    while !groups.is_empty() {
        if stop.check().is_err() {
            return ControlFlow::Break(());
        }
        match block(groups.clone()) {
            Ok(next) => groups.start = next,
            Err(error) => {
                stop.set(error);
                return ControlFlow::Break(());
            }
        }
    }
    ControlFlow::Continue(())
}

/// A job of so many groups, each of which takes about `group_ns` nanoseconds.
fn demand(groups: u64, group_ns: u64) -> Demand {
    Demand { groups, group_ns, ascending: false, range_ns: RANGE_NS }
}

/// Returns a worker's panels to it, unless they are much larger than what it packs at a time.
fn keep(mut panels: Scratch, room: usize, worker: &mut Worker) {
    panels.release_above(2 * room * size_of::<f32>());
    worker.panels = panels;
}

/// A vector of `count` elements as `f32`: where it is, or converted to `room`.
///
/// # Safety
/// The elements must be readable, and as many writable in `room`.
#[allow(unsafe_code)] // addresses of operands
unsafe fn as_floats(first: *const u8, element: Element, count: usize, room: *mut f32) -> *const f32 {
    if element == Element::F32 {
        return first.cast();
    }
    // SAFETY: the caller's promise.
    unsafe { widen(element, first, 1, std::slice::from_raw_parts_mut(room, count)) };
    room
}

/// Lines of a block: as many panels of `width` as give `wanted` blocks, but at most `most` panels.
fn lines_of_block(lines: usize, width: usize, wanted: usize, most: usize) -> usize {
    lines.div_ceil(width).div_ceil(wanted.max(1)).clamp(1, most) * width
}

/// The most panels of rows in a block, so that its left factor stays in a core's cache with [`TERMS`](packed::TERMS) terms.
fn most_panels(tall: usize) -> usize {
    96 / tall
}

/// Number of blocks that are wanted for a number of workers.
fn wanted_blocks(workers: usize) -> usize {
    if workers > 1 { workers * BLOCKS_PER_WORKER } else { 1 }
}

#[cfg(test)]
mod tests;
