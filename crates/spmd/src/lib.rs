//! The SPMD compiler: compiles the code of one thread to a function that runs whole threadgroups.
//!
//! The input is a module with one per-thread entry, as the front end emits it: positions, sizes and barriers are calls of
//! [intrinsics](intrinsic), threadgroup variables are globals in a marked section. For a CPU the output is LLVM IR text with one
//! function, [`SYMBOL`], in which each threadgroup is a loop over vectors of its threads. For an NVIDIA GPU it is a module for NVPTX
//! ([`nvptx`]).
//!
//! Each target has one list of passes: `vector/pipeline.rs` and `nvptx/pipeline.rs`. [`passes`] lists them with what holds before
//! and after each; [`pass`] says how they are run, verified and dumped.
//!
//! | folder | contents |
//! |---|---|
//! | `analysis/` | CFG and loops, regions, divergence, uniformity and strides, liveness, lane layout, pointer roots; a cache that passes invalidate |
//! | `transform/` | target-independent passes: bounds checks, lowering of intrinsics, legalization, scalarization, hoisting of invariant loads |
//! | `vector/` | the CPU back end: unroll-and-jam, linearization, uniform and masked versions, emission of vector code |
//! | `nvptx/` | the NVIDIA back end: prologue, warp masks, shared memory, matrix products |
//!
//! A *region* is the code from the entry, or from one barrier, to the next barriers or the return. On a CPU each region is
//! a loop over vector iterations, in two versions: a uniform and a masked one. The next region is selected once for the
//! threadgroup.
//!
//! With one lane ([`Options::lanes`]) there is no masked version; code without a vector form is compiled this way.
//! Kernels with simdgroup operations have vectors of a whole simdgroup.
//!
//! The passes omit optimizations that clang performs afterwards, such as constant folding and promotion to registers.
#![forbid(unsafe_code)]

mod analysis;
mod error;
pub mod intrinsic;
mod kernel;
mod line_sizes;
mod logging;
pub mod nvptx;
pub mod pass;
mod support;
pub mod tensor_products;
mod transform;
mod vector;

pub use analysis::divergent_barriers::divergent_barriers;
pub use analysis::facts::{Facts, facts};
pub use analysis::lane_layout::{GroupSize, RowSizes};
pub use analysis::size_bound::SizeBound;
pub use analysis::spin_waits::spin_waits;
pub use elinvar_ir::Location;
pub use error::Error;
pub use line_sizes::{LineSize, line_sizes};
pub use logging::{LogCall, LoggedValue, log_calls};
pub use pass::{Form, PassInfo, verify_each};
pub use transform::bounds;

use elinvar_ir::Module;

use pass::Unit as _;
use vector::pipeline::{Code, State};
use vector::workgroup::WorkgroupFunction;

/// The name of the per-thread function in the input.
pub const ENTRY: &str = "__elinvar_entry";

/// The section that holds threadgroup variables in the input.
pub const THREADGROUP_SECTION: &str = "elinvar.threadgroup";

/// The name of the function in the output:
/// `i32 elinvar_threadgroups(const Launch*, u8* scratch, u64 begin, u64 end)`.
///
/// It runs the threadgroups with linear index `begin..end` (x fastest), each from start to end and in ascending order if
/// [`Options::ascending`], and returns 0, or a fault's code. `Launch` is `{ const *void *args; u32 threads[3]; u32 groups[3]; const u64
/// *sizes; FaultRecord *record; const u8 *stop; u32 group[3]; u32 log_kernel; Control *log; }`; `sizes` is read only by kernels with bounds
/// checks or [private counters](Compiled::private_counters), `record` by those with bounds checks, `stop` by those that can be stopped
/// ([`Options::stoppable`]), `group`, the size of a full threadgroup, by those for which it is [dynamic](GroupSize::Dynamic), `log_kernel`
/// and `log`, the kernel's number in log records and the log ring's control block, by those with [log calls](log_calls). An entry of `args`
/// is an address; for a threadgroup argument it is the byte offset of its memory behind the first [`Compiled::scratch_bytes`] of `scratch`.
/// `scratch` is aligned to 64 and belongs to one call at a time; its content on entry is irrelevant. `sizes` has the size of each
/// argument's memory in bytes, `record` is a [`bounds::FaultRecord`]. While the byte at `stop` is not 0, the function returns [`STOPPED`]
/// before the next iteration of a loop.
pub const SYMBOL: &str = "elinvar_threadgroups";

/// Return value of a stopped function.
pub const STOPPED: i32 = -1;

/// Return value of a function whose threadgroup waits at a grid barrier, or yields.
///
/// A call of a kernel [with such barriers](Compiled::cooperative) runs one threadgroup, and `scratch` belongs to that threadgroup. Its
/// first word, a u32, is 0 before the first call; the function stores another value there when it returns `SUSPENDED`, and the next call
/// continues behind the barrier. The second word is then the code of the fault that describes a barrier at which not all threadgroups
/// arrive.
pub const SUSPENDED: i32 = -2;

/// The second word of a resident kernel's threadgroup that yields, after work and after it has found nothing to do.
pub const YIELDED_BUSY: u32 = u32::MAX - 1;
/// As [`YIELDED_BUSY`].
pub const YIELDED_IDLE: u32 = u32::MAX;

/// Options of the CPU back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kernel's name, for dumps.
    pub name: String,
    /// Size of a full threadgroup in threads.
    pub group: GroupSize,
    /// Maximum number of threads of a vector: a power of two up to 32. With simdgroup operations a vector is a simdgroup.
    pub lanes: u32,
    /// Number of vectors of `lanes` 32-bit elements that fit into the vector registers.
    pub registers: u32,
    /// Whether the processor has gather and scatter instructions.
    pub gathers: bool,
    /// Whether the processor has instructions for arithmetic with halves. Otherwise operations that LLVM would take apart are computed in
    /// `float`, with the same results.
    pub half_arithmetic: bool,
    /// Whether the processor has `vscalefps` (AVX-512).
    pub scalef: bool,
    /// For each parameter of the entry, whether it points to dynamic threadgroup memory.
    pub threadgroup_args: Vec<bool>,
    /// For each parameter of the entry, the number of bytes from its start that are dereferenceable and invariant while the function
    /// runs: the size of a `constant T&`, otherwise 0.
    pub invariant_bytes: Vec<u64>,
    /// Whether threadgroups must start in ascending order, since the kernel can observe it.
    pub ascending: bool,
    /// Enables bounds checks: for each parameter of the entry, the properties that launches guarantee.
    pub checks: Option<Vec<bounds::Given>>,
    /// Whether the function can be stopped in loops, including those of functions that are not inlined.
    pub stoppable: bool,
    /// Upper bound of the sizes of the memory objects that arguments and pointers in memory point to.
    pub objects: SizeBound,
}

/// A compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// LLVM IR text that defines [`SYMBOL`].
    pub ir: String,
    /// Size in bytes of the scratch memory before the dynamic threadgroup memory; a multiple of 64.
    pub scratch_bytes: u64,
    /// Whether a call combines private counters with a buffer at its end, a cost that more threadgroups share in a longer range.
    pub private_counters: bool,
    /// Whether the kernel has grid barriers or yields; see [`SUSPENDED`].
    pub cooperative: bool,
    /// Meaning of the function's fault codes: code `n` is entry `n - 1`.
    pub faults: Vec<FaultSite>,
    /// Meaning of a fault record, with bounds checks.
    pub checks: Option<bounds::Checks>,
    /// The sizes that the kernel's code with a [dynamic](GroupSize::Dynamic) threadgroup size serves; `None` if there cannot be such code.
    pub row_sizes: Option<RowSizes>,
}

/// Meaning of a fault code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSite {
    /// Description.
    pub message: String,
    /// Location in the user's source.
    pub location: Option<Location>,
}

/// Target of a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A CPU: [`compile`].
    Cpu,
    /// An NVIDIA GPU: [`nvptx::prepare`].
    Nvptx,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Nvptx => "nvptx",
        })
    }
}

/// The passes of a target, in the order of its pipeline.
pub fn passes(target: Target) -> Vec<PassInfo> {
    match target {
        Target::Cpu => vector::pipeline::passes().iter().map(|pass| pass.info).collect(),
        Target::Nvptx => nvptx::pipeline::passes().iter().map(|pass| pass.info).collect(),
    }
}

/// Compiles the entry of `module` to a function over threadgroups.
///
/// # Errors
/// `Unsupported` and `DivergentBarrier` with the source location; `Malformed` for a module that violates the front end's
/// contract.
pub fn compile(module: &Module, options: &Options) -> Result<Compiled, Error> {
    expect_lanes(options)?;
    let mut state = State::new(module, options);
    pass::run(&vector::pipeline::passes(), &mut state, None)?;
    let Code::Target(output, workgroup) = state.code else {
        return Err(Error::Malformed("the pipeline ended early".into()));
    };
    let WorkgroupFunction { scratch_bytes, private_counters, cooperative, faults, .. } = *workgroup;
    let State { checks, row_sizes, .. } = state;
    let ir = output.to_string();
    Ok(Compiled { ir, scratch_bytes, private_counters, cooperative, faults, checks, row_sizes })
}

/// Runs the pipeline of [`compile`] on the entry of `module` up to `pass`, and returns the IR as text. For tests and tools.
///
/// # Errors
/// As [`compile`]; `Malformed` if there is no such pass.
pub fn ir_after(module: &Module, options: &Options, pass: &str) -> Result<String, Error> {
    expect_lanes(options)?;
    expect_pass(Target::Cpu, pass)?;
    let mut state = State::new(module, options);
    pass::run(&vector::pipeline::passes(), &mut state, Some(pass))?;
    Ok(state.text())
}

fn expect_lanes(options: &Options) -> Result<(), Error> {
    match (1..=32).contains(&options.lanes) && options.lanes.is_power_of_two() {
        true => Ok(()),
        false => {
            Err(Error::Malformed(format!("{} lanes; it must be a power of two up to 32", options.lanes)))
        }
    }
}

fn expect_pass(target: Target, name: &str) -> Result<(), Error> {
    match passes(target).iter().any(|pass| pass.name == name) {
        true => Ok(()),
        false => Err(Error::Malformed(format!("no pass of {target} is called `{name}`"))),
    }
}
