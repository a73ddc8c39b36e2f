//! From the code of one thread to a function that runs whole threadgroups.
//!
//! Input is a module with one per-thread entry, as the front end leaves it: positions, sizes and barriers are calls of
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
//! A *region* is what a thread may run from the entry, or from one barrier, to the next barriers or its return. On a CPU each region is
//! a loop over vector iterations, in two versions: one for all lanes, one with masks. Which region runs next is decided once for the
//! threadgroup.
//!
//! With one lane ([`Options::lanes`]) all branches are branches and there is no masked version: code that has no vector form runs so.
//! Kernels whose threads exchange values have vectors of a whole simdgroup.
//!
//! The passes do no optimization that clang does afterwards: no constant folding, no promotion to registers.
#![forbid(unsafe_code)]

mod analysis;
mod error;
pub mod intrinsic;
mod kernel;
pub mod nvptx;
pub mod pass;
mod support;
mod transform;
mod vector;

pub use analysis::facts::{Facts, facts};
pub use analysis::index_narrowing::MOST_BYTES;
pub use elinvar_ir::Location;
pub use error::Error;
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
/// It runs the threadgroups with linear index `begin..end` (x fastest), each from start to end and in ascending order
/// if [`Options::ascending`], and returns 0, or a fault's code. `Launch` is `{ const *void *args; u32 threads[3]; u32 groups[3]; const u64 *sizes;
/// FaultRecord *record; const u8 *stop; }`; sizes and record are read only by kernels with bounds checks, `stop` by
/// those that can be stopped ([`Options::stoppable`]). An entry
/// of `args` is an address; for a threadgroup argument it is the byte offset of its memory behind the
/// first [`Compiled::scratch_bytes`] of `scratch`. `scratch` is aligned to 64 and belongs to one call
/// at a time; what it holds on entry does not matter. `sizes` are the bytes of each argument's memory,
/// `record` is a [`bounds::FaultRecord`]. While the byte at `stop` is not 0, the function returns [`STOPPED`] where a
/// thread would run a loop's body again.
pub const SYMBOL: &str = "elinvar_threadgroups";

/// What the function returns when it has been stopped.
pub const STOPPED: i32 = -1;

/// What to compile for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kernel's name, for dumps.
    pub name: String,
    /// Threads of a full threadgroup along x, y, z. The output is specialized for it.
    pub group: [u32; 3],
    /// Threads that one vector covers: a power of two up to 32. A simdgroup where threads exchange values.
    pub lanes: u32,
    /// Vectors of 32-bit elements that the processor's registers hold.
    pub registers: u32,
    /// Whether the processor has instructions that load and store at an address per lane.
    pub gathers: bool,
    /// For each parameter of the entry, whether it points to threadgroup memory of the launch.
    pub threadgroup_args: Vec<bool>,
    /// For each parameter of the entry the bytes from its start that are there and do not change while the function
    /// runs: the size of a `constant T&`.
    pub invariant_bytes: Vec<u64>,
    /// Whether groups have to start in ascending order, since the kernel could tell.
    pub ascending: bool,
    /// To check every access against the bounds of its memory: for each parameter of the entry what a launch gives at least.
    pub checks: Option<Vec<bounds::Given>>,
    /// Whether the function can be stopped in loops, its own and those of functions that are not inlined.
    pub stoppable: bool,
}

/// A compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// LLVM IR text that defines [`SYMBOL`].
    pub ir: String,
    /// Bytes of scratch before the dynamic threadgroup memory; a multiple of 64.
    pub scratch_bytes: u64,
    /// What the function's fault codes mean: code `n` is entry `n - 1`.
    pub faults: Vec<FaultSite>,
    /// What a fault record means, of a kernel with bounds checks.
    pub checks: Option<bounds::Checks>,
}

/// What a fault code stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSite {
    /// What happened.
    pub message: String,
    /// Where in the user's source.
    pub location: Option<Location>,
}

/// What a module is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A CPU: [`compile`].
    Cpu,
    /// A GPU of NVIDIA: [`nvptx::prepare`].
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

/// Compile the entry of `module` to a function over threadgroups.
///
/// # Errors
/// `Unsupported` and `DivergentBarrier` with what and where in the source; `Malformed` for a module that the front end does not
/// write.
pub fn compile(module: &Module, options: &Options) -> Result<Compiled, Error> {
    expect_lanes(options)?;
    let mut state = State::new(module, options);
    pass::run(&vector::pipeline::passes(), &mut state, None)?;
    let Code::Target(output, workgroup) = state.code else {
        return Err(Error::Malformed("the pipeline ended early".into()));
    };
    let WorkgroupFunction { scratch_bytes, faults, .. } = *workgroup;
    Ok(Compiled { ir: output.to_string(), scratch_bytes, faults, checks: state.checks })
}

/// The IR that `pass` leaves of the entry of `module`, as text, with what [`compile`] runs before it. For tests and tools.
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
