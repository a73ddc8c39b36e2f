//! The NVPTX preparation: from the code of one thread to a module that clang compiles to PTX.
//!
//! A thread stays a thread here, a threadgroup is a block (CTA) of the same shape, a simdgroup is a warp. Input is what
//! the CPU's passes take; output is LLVM IR text for `nvptx64-nvidia-cuda` with one kernel.
//!
//! 1. [`bounds`](crate::transform::bounds), where asked for, as on the CPU; [`clear`](mod@zero_shared_memory) sets threadgroup memory to zero then.
//! 2. [`target`](mod@target) takes what is x86's out of the module, [`shared`](mod@shared_memory) puts threadgroup variables
//!    into shared memory.
//! 3. [`entry`](mod@entry) gives the kernel its parameters, and a [`prologue`](mod@prologue) that knows all positions;
//!    threads outside the grid end there.
//! 4. [`sync`](mod@barriers) writes barriers and fences, and makes division and shifts defined; [`wide`](mod@vectorize_copies) copies as wide as
//!    addresses allow.
//! 5. [`exchange`](mod@simdgroup) turns functions across a simdgroup into calls of the [`library`](mod@library), with the
//!    lanes that are together, which [`masks`](mod@active_masks) finds from what [`divergence`](crate::analysis::divergence) says of branches.
//!    Where products of matrices are for tensor cores, lanes are [`permuted`](mod@lane_permutation) as these want them, and products of
//!    several [`tiles`](mod@mma_tiling) are one instruction.
//! 6. [`math`](mod@approximate_math) says which divisions have to be right.
//!
//! # The kernel's parameters
//!
//! In this order, each aligned to its size, as [`Prepared::parameters`] lists them:
//!
//! - One for each argument of the launch: [`Argument::Pointer`] the address (u64), [`Argument::Value`] the bytes
//!   themselves (in the constant bank), [`Argument::Threadgroup`] a byte offset (u32) into dynamic shared memory, a multiple of
//!   16 and not below [`Prepared::dynamic_base`].
//! - `threads` (three u32): `threads_per_grid`.
//! - `extent` (u32): an [`Extent`].
//! - `linear` (two u32): of [`Extent::Row`] the threadgroups along x and y; of others nothing looks at them.
//! - Of a kernel with bounds checks: the address of the launch's [`FaultRecord`](crate::transform::bounds::FaultRecord) (u64) in
//!   device memory, all zero before the launch, and for each argument the bytes of its memory (u64).
//!
//! # What a launch does
//!
//! The block has the shape of a full threadgroup, also where the grid ends within it: all blocks are launched whole. Threads
//! outside the grid return before anything else; a barrier waits for the threads that have not exited (PTX ISA,
//! "barrier", for sm_70 and above). `threads_per_threadgroup` is the smaller size there, and functions of a simdgroup
//! leave them out, as inactive lanes.
//!
//! Dynamic shared memory is [`Prepared::dynamic_base`] bytes and behind them that of the threadgroup arguments.
//!
//! It does no optimisation that clang does afterwards.

mod active_masks;
mod approximate_math;
mod barriers;
mod entry;
mod lane_permutation;
mod library;
mod matrix_product;
mod mma_tiling;
pub(crate) mod pipeline;
mod prologue;
mod reductions;
mod shared_memory;
mod simdgroup;
mod target;
mod vectorize_copies;
mod zero_shared_memory;

pub use target::TRIPLE;

use elinvar_ir::Module;

use crate::analysis::{barrier_divergence, regions};
use crate::pass::{self, Unit as _};
use crate::transform::{bounds, lower_intrinsics, scalarize};
use crate::{Error, Target};
use pipeline::State;
use shared_memory::Memory;

/// How the kernel takes an argument of the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Argument {
    /// As an address in global memory.
    Pointer {
        /// Whether nothing writes that memory while the kernel runs: `constant` in MSL.
        constant: bool,
    },
    /// As bytes among the parameters.
    Value {
        /// How many.
        bytes: u64,
        /// The alignment of the first, a power of two.
        align: u64,
    },
    /// As an offset into dynamic shared memory.
    Threadgroup,
}

/// What to prepare for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kernel's name in PTX, an identifier there.
    pub name: String,
    /// How each parameter of the entry is passed.
    pub arguments: Vec<Argument>,
    /// Whether quotients and roots may be some units in the last place off, as where the source's math mode is not
    /// safe.
    pub approximate: bool,
    /// The most threads of a threadgroup, if the source says so.
    pub max_threads: Option<u32>,
    /// To check every access against the bounds of its memory: for each parameter of the entry what a launch gives at least.
    pub checks: Option<Vec<bounds::Given>>,
}

/// A kernel, ready for clang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// LLVM IR text.
    pub ir: String,
    /// The kernel's parameters.
    pub parameters: Vec<Parameter>,
    /// Bytes of shared memory that the module declares itself.
    pub static_bytes: u64,
    /// Bytes at the start of dynamic shared memory that the kernel uses itself; a multiple of 16. It declares none then.
    pub dynamic_base: u64,
    /// What a fault record means, of a kernel with bounds checks.
    pub checks: Option<bounds::Checks>,
}

/// A parameter of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Parameter {
    /// An argument of the launch, by its place.
    Argument(usize, Argument),
    /// `threads_per_grid` along a dimension, a u32.
    Threads(usize),
    /// An [`Extent`], a u32.
    Extent,
    /// Threadgroups along x (0) or y (1) of a grid in one row, a u32.
    Linear(usize),
    /// The address of the fault record, a u64.
    Record,
    /// The bytes of an argument's memory, a u64.
    Bytes(usize),
}

/// How CUDA's grid stands for the grid of threadgroups. What is before [`Extent::Edged`] is quicker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Extent {
    /// It is the grid of threadgroups, all of whole simdgroups and inside the grid, with all threads along x.
    Flat = 0,
    /// It is the grid of threadgroups, all of whole simdgroups and inside the grid.
    Whole = 1,
    /// It is the grid of threadgroups.
    Edged = 2,
    /// It is one row of all threadgroups, x fastest: for more than 65535 along y or z.
    Row = 3,
}

impl Extent {
    /// That of a grid of so many threads in threadgroups of this size that is no row.
    pub fn of(threads: [u32; 3], group: [u32; 3]) -> Self {
        let lanes: u32 = group.iter().product();
        let mut sides = threads.iter().zip(group);
        let is_whole =
            lanes.is_multiple_of(32) && sides.all(|(threads, group)| threads.is_multiple_of(group));
        match (is_whole, threads) {
            (true, [_, 1, 1]) => Self::Flat,
            (true, _) => Self::Whole,
            (false, _) => Self::Edged,
        }
    }
}

/// The most shared memory that a module may declare (CUDA C++ Programming Guide, compute capabilities); beyond that
/// it has to be dynamic.
const MOST_STATIC: u64 = 48 << 10;

/// Refuse barriers that some threads of a threadgroup of this size reach and others provably miss; the hardware would let
/// them pass one another.
///
/// # Errors
/// `DivergentBarrier`, and as [`prepare`].
pub fn check_group(module: &Module, group: [u32; 3]) -> Result<(), Error> {
    let mut kernel = lower_intrinsics::lower(module)?;
    scalarize::scalarize(module, &mut kernel.function);
    barrier_divergence::check(module, &kernel, &regions::regions(&kernel), group)
}

/// Prepare the entry of `module`.
///
/// # Errors
/// `Unsupported` with what the kernel does that this does not do, `Malformed`.
pub fn prepare(module: &Module, options: &Options) -> Result<Prepared, Error> {
    let mut state = State::new(module, options);
    pass::run(&pipeline::passes(), &mut state, None)?;
    let Memory { static_bytes, dynamic_base } = state.memory;
    let parameters = state.wrapped.map(|wrapped| wrapped.parameters).unwrap_or_default();
    Ok(Prepared {
        ir: state.module.to_string(),
        parameters,
        static_bytes,
        dynamic_base,
        checks: state.checks,
    })
}

/// The IR that `pass` leaves of the entry of `module`, as text, with what [`prepare`] runs before it. For tests and tools.
///
/// # Errors
/// As [`prepare`]; `Malformed` if there is no such pass.
pub fn ir_after(module: &Module, options: &Options, pass: &str) -> Result<String, Error> {
    crate::expect_pass(Target::Nvptx, pass)?;
    let mut state = State::new(module, options);
    pass::run(&pipeline::passes(), &mut state, Some(pass))?;
    Ok(state.text())
}
