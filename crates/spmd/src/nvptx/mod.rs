//! The NVIDIA back end: lowers the code of one thread to a module that clang compiles to PTX.
//!
//! A thread is a CUDA thread, a threadgroup is a block (CTA) of the same shape, a simdgroup is a warp. The input is that of the
//! CPU's passes; the output is LLVM IR text for `nvptx64-nvidia-cuda` with one kernel.
//!
//! 1. [`crate::transform::bounds`] inserts bounds checks, if requested, as on the CPU;
//!    [`zero_shared_memory`](mod@zero_shared_memory) then zeroes threadgroup memory.
//!    [`converge_barriers`](crate::transform::converge_barriers) makes warps reach barriers as a whole, and
//!    [`grid_barriers`](mod@grid_barriers) lowers those of a grid. [`tensor_products`](mod@tensor_products) lowers products of tensors
//!    before that, to calls of functions of [`wgmma`](mod@wgmma).
//! 2. [`target`](mod@target) removes x86's properties from the module; [`shared_memory`](mod@shared_memory) moves threadgroup
//!    variables to shared memory.
//! 3. [`entry`](mod@entry) adds the kernel's parameters, and a [`prologue`](mod@prologue) that computes all positions, in which
//!    threads outside the grid exit.
//! 4. [`barriers`](mod@barriers) lowers barriers and fences, and [`system_atomics`](mod@system_atomics) atomic operations on `coherent`
//!    memory; division and shifts are legalized;
//!    [`vectorize_copies`](mod@vectorize_copies) widens copies as far as their alignment allows.
//! 5. [`simdgroup`](mod@simdgroup) lowers simdgroup functions to calls of the [`library`](mod@library), with the masks of
//!    converged lanes that [`active_masks`](mod@active_masks) derives from branches that
//!    [`divergence`](crate::analysis::divergence) does not prove uniform. If matrix products use tensor cores,
//!    [`lane_permutation`](mod@lane_permutation) permutes lanes to the fragment layout, [`matrix_loads`](mod@matrix_loads)
//!    loads factors whose addresses [`lane_bits`](mod@lane_bits) knows, and [`mma_tiling`](mod@mma_tiling) combines products.
//! 6. [`approximate_math`](mod@approximate_math) marks the divisions that must be correctly rounded.
//!
//! # The kernel's parameters
//!
//! In this order, each aligned to its size, as [`Prepared::parameters`] lists them:
//!
//! - One for each argument of the launch: [`Argument::Pointer`] the address (u64), [`Argument::Value`] the bytes themselves (in
//!   the constant bank), [`Argument::Threadgroup`] a byte offset (u32) into dynamic shared memory, a multiple of 16 and at least
//!   [`Prepared::dynamic_base`].
//! - `threads` (three u32): `threads_per_grid`.
//! - `extent` (u32): an [`Extent`], combined with the shape of a [`Block`].
//! - `linear` (two u32): for [`Extent::Row`] the number of threadgroups along x and y; otherwise unused.
//! - With bounds checks: the address of the launch's [`FaultRecord`](crate::transform::bounds::FaultRecord) (u64) in device
//!   memory, all zero before the launch, and for each argument the size of its memory in bytes (u64).
//! - With grid barriers: the address of a counter (u64), a u32 in device memory that is 0 before its first launch. Launches at the
//!   same time need counters of their own.
//! - With log calls: the address of the log ring's control block (u64), and the kernel's number in log records (u32).
//!
//! # Launching
//!
//! The launch of a kernel with grid barriers is cooperative: all its blocks are resident at once.
//! Blocks have the shape of a full threadgroup, unless it is [deeper](Block) than CUDA allows, and are launched whole, also at the grid's edges. Threads outside the grid exit
//! first; a barrier does not wait for exited threads (PTX ISA, "barrier", for sm_70 and above). `threads_per_threadgroup` is the
//! smaller size at the edges, and the missing threads are inactive lanes of simdgroup functions.
//!
//! Dynamic shared memory has [`Prepared::dynamic_base`] bytes, followed by the memory of the threadgroup arguments.
//!
//! The passes omit optimizations that clang performs afterwards.

mod active_masks;
mod approximate_math;
mod barriers;
mod entry;
mod grid_barriers;
mod lane_bits;
mod lane_permutation;
mod library;
mod loop_versioning;
mod matrix_loads;
mod matrix_product;
mod mma_tiling;
pub(crate) mod pipeline;
mod prologue;
mod reductions;
mod shared_memory;
mod simdgroup;
mod system_atomics;
mod target;
mod tensor_products;
mod vectorize_copies;
mod wgmma;
mod yields;
mod zero_shared_memory;

pub use target::TRIPLE;
pub(crate) use tensor_products::{HAS as TENSOR_QUESTION, is_function as is_of_tensor_products};

use elinvar_ir::Module;

use crate::analysis::barrier_divergence;
use crate::pass::{self, Unit as _};
use crate::transform::bounds;
use crate::{Error, Target};
use pipeline::State;
use shared_memory::Memory;

/// How an argument is passed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Argument {
    /// As an address in global memory.
    Pointer {
        /// Whether the memory is invariant while the kernel runs: `constant` in MSL.
        constant: bool,
    },
    /// By value.
    Value {
        /// Size in bytes.
        bytes: u64,
        /// Alignment, a power of two.
        align: u64,
    },
    /// As an offset into dynamic shared memory.
    Threadgroup,
}

/// Options of the NVIDIA back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Name of the kernel in PTX, an identifier.
    pub name: String,
    /// How each parameter of the entry is passed.
    pub arguments: Vec<Argument>,
    /// Whether division and square roots may be approximate (some ulp), if the source's math mode is not
    /// safe.
    pub approximate: bool,
    /// Maximum number of threads of a threadgroup, if the source declares it.
    pub max_threads: Option<u32>,
    /// Enables bounds checks: for each parameter of the entry, the properties that launches guarantee.
    pub checks: Option<Vec<bounds::Given>>,
    /// Whether the target has `wgmma`, for products of tensors; kernels with bounds checks do without.
    pub tensor_products: bool,
}

/// A kernel, ready for clang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// LLVM IR text.
    pub ir: String,
    /// The kernel's parameters.
    pub parameters: Vec<Parameter>,
    /// Static shared memory in bytes.
    pub static_bytes: u64,
    /// Bytes at the start of dynamic shared memory for the kernel's own variables; a multiple of 16. If not 0, there is no static shared memory.
    pub dynamic_base: u64,
    /// Meaning of a fault record, with bounds checks.
    pub checks: Option<bounds::Checks>,
}

/// A parameter of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Parameter {
    /// An argument of the launch, by index.
    Argument(usize, Argument),
    /// `threads_per_grid` along a dimension, a u32.
    Threads(usize),
    /// An [`Extent`], a u32.
    Extent,
    /// Number of threadgroups along x (0) or y (1) for [`Extent::Row`], a u32.
    Linear(usize),
    /// The address of the fault record, a u64.
    Record,
    /// Size of an argument's memory in bytes, a u64.
    Bytes(usize),
    /// The address of the log ring's control block, a u64.
    LogRing,
    /// The kernel's number in log records, a u32.
    LogKernel,
    /// The address of the counter of grid barriers, a u64.
    GridCounter,
}

/// Mapping of the grid of threadgroups to CUDA's grid. Those before [`Extent::Edged`] are faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Extent {
    /// One to one; all threadgroups are whole simdgroups inside the grid and one-dimensional.
    Flat = 0,
    /// One to one; all threadgroups are whole simdgroups inside the grid.
    Whole = 1,
    /// One to one.
    Edged = 2,
    /// One-dimensional, x fastest: for more than 65535 threadgroups along y or z.
    Row = 3,
}

impl Extent {
    /// The mapping, other than [`Extent::Row`], of a grid of `threads` threads in threadgroups of this size.
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

/// The block of a threadgroup. CUDA allows 64 threads along z, Metal 1024: the layers of a deeper threadgroup are stacked along y, which
/// leaves the order of threads unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its size in threads.
    pub size: [u32; 3],
    /// The threadgroup's size along y if its layers are stacked; otherwise 0.
    rows: u32,
}

impl Block {
    /// Bits of the kernel's parameter `extent` below the number of rows.
    const SHIFT: u32 = 8;

    /// The block of a threadgroup of this size.
    pub fn of(group: [u32; 3]) -> Self {
        let [x, y, z] = group;
        match z > MOST_LAYERS {
            true => Self { size: [x, y.saturating_mul(z), 1], rows: y },
            false => Self { size: group, rows: 0 },
        }
    }

    /// The kernel's parameter `extent` for this mapping.
    pub fn parameter(self, extent: Extent) -> u32 {
        self.rows << Self::SHIFT | extent as u32
    }
}

/// Maximum size of a block along z (CUDA C++ Programming Guide, compute capabilities).
const MOST_LAYERS: u32 = 64;

/// Maximum static shared memory of a module in bytes (CUDA C++ Programming Guide, compute capabilities); beyond it
/// shared memory must be dynamic.
const MOST_STATIC: u64 = 48 << 10;

/// Rejects barriers at which the simdgroups of a threadgroup of this size provably do not meet; on the hardware different barriers
/// would match.
///
/// # Errors
/// `DivergentBarrier`, and as [`prepare`].
pub fn check_group(module: &Module, group: [u32; 3]) -> Result<(), Error> {
    barrier_divergence::Entry::of(module)?.check(group)
}

/// Lowers the entry of `module`.
///
/// # Errors
/// `Unsupported` that names the construct; `Malformed`.
pub fn prepare(module: &Module, options: &Options) -> Result<Prepared, Error> {
    let mut state = State::new(module, options);
    pass::run(&pipeline::passes(), &mut state, None)?;
    let Memory { static_bytes, dynamic_base } = state.memory;
    let parameters = state.wrapped.map(|wrapped| wrapped.parameters).unwrap_or_default();
    Ok(Prepared {
        ir: state.products.define(&state.module.to_string()),
        parameters,
        static_bytes,
        dynamic_base,
        checks: state.checks,
    })
}

/// Runs the pipeline of [`prepare`] on the entry of `module` up to `pass`, and returns the IR as text. For tests and tools.
///
/// # Errors
/// As [`prepare`]; `Malformed` if there is no such pass.
pub fn ir_after(module: &Module, options: &Options, pass: &str) -> Result<String, Error> {
    crate::expect_pass(Target::Nvptx, pass)?;
    let mut state = State::new(module, options);
    pass::run(&pipeline::passes(), &mut state, Some(pass))?;
    Ok(state.text())
}
