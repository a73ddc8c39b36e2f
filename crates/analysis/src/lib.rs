//! Static analysis of kernels: what a kernel does to memory and to the arithmetic units, from the code of one thread.
//!
//! [`analyze`] describes a kernel: each access with its address as a function of positions, counters and arguments where there is one, and
//! otherwise its class; loops with their trip counts; operations, barriers, divergent branches, threadgroup memory, live registers.
//! [`Analysis::launch`] adds the sizes of a launch and the numbers in its `constant` arguments, and has totals: executions, bytes that
//! lanes use, bytes that transactions move, operations.
//!
//! Nothing is run. What depends on the contents of other memory is an estimate, and marked so.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
mod advice;
mod evaluate;
mod findings;
mod forms;
mod language;
mod launch;
mod loops;
mod missing_barriers;
mod occupancy;
mod operations;
mod poly;
mod portability;
mod roofline;
mod traffic;
mod trips;
mod walk;

pub use access::{Access, Branch, Class, LoopFacts};
pub use advice::{Advice, Machine, Remedy};
pub use elinvar_ir::Location;
pub use evaluate::Launch;
pub use findings::{Finding, Rule};
pub use forms::Space;
pub use language::{Language, System, language_violations};
pub use launch::{Effort, LaunchTotals, SiteTotals};
pub use occupancy::{
    CoreCaches, Limiter, Multiprocessor, Occupancy, apple_occupancy, cpu_occupancy, occupancies, occupancy,
};
pub use operations::Operations;
pub use portability::{AppleFamily, Violation, violations};
pub use roofline::{Bound, Roofline};
pub use traffic::{LINE, SECTOR};
pub use trips::Trips;
pub use walk::Kind;

use std::sync::Arc;

use elinvar_driver::{Error, Result, Signature};
use elinvar_ir::{Callee, Function, Module, Op};
use elinvar_spmd::ENTRY;
use elinvar_spmd::intrinsic::Intrinsic;
use serde::Serialize;

use forms::Kernel;

/// What is known of a kernel without a launch.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// The kernel's name.
    pub kernel: String,
    /// Its file.
    pub file: String,
    /// Its line.
    pub line: u32,
    /// Number of dimensions of positions that it uses.
    pub dimensions: u32,
    /// Accesses to memory other than the thread's own variables, in the order of the code.
    pub accesses: Vec<Access>,
    /// Loops, in the order of their headers.
    pub loops: Vec<LoopFacts>,
    /// Operations, each instruction counted once.
    pub operations: Operations,
    /// Locations of threadgroup barriers.
    pub barriers: Vec<Option<Location>>,
    /// Branches that lanes of a simdgroup can take differently.
    pub divergent_branches: Vec<Branch>,
    /// Static threadgroup memory in bytes.
    pub threadgroup_bytes: u64,
    /// An estimate of the 32-bit registers of a thread, from the lifetimes of values in the code before scheduling.
    pub live_registers: u64,
    /// Names of functions that are called and not analyzed.
    pub calls: Vec<String>,
    /// Names of the `constant` arguments' numbers that addresses, loops or branches depend on.
    pub scalars: Vec<String>,
    #[serde(skip)]
    source: Source,
}

/// The code that was analyzed.
#[derive(Clone, Debug)]
struct Source {
    module: Arc<Module>,
    signature: Signature,
}

/// Analyzes the entry of a module, a kernel with this signature.
///
/// # Errors
/// `Unsupported` if the module has no entry, or it takes another number of arguments.
pub fn analyze(module: Arc<Module>, signature: &Signature) -> Result<Analysis> {
    let source = Source { module, signature: signature.clone() };
    let kernel = source.kernel()?;
    let function = kernel.function;
    let mut operations = Operations::default();
    function.blocks.iter().for_each(|block| operations.add(&operations::of_block(block), 1.0));
    let (mut barriers, mut calls) = (Vec::new(), Vec::new());
    for inst in function.blocks.iter().flat_map(|block| &block.insts) {
        let Op::Call(call) = &inst.op else { continue };
        let Callee::Function(name) = &call.callee else {
            calls.push("a function by its address".to_owned());
            continue;
        };
        if Intrinsic::parse(name).is_some_and(Intrinsic::is_threadgroup_barrier) {
            barriers.push(kernel.module.location(&inst.metadata));
        } else if kernel.module.function(name).is_some_and(|callee| !callee.is_declaration()) {
            calls.push(name.clone());
        }
    }
    calls.sort();
    calls.dedup();
    let facts = elinvar_spmd::facts(kernel.module).map_err(|error| Error::unsupported(error.to_string()))?;
    Ok(Analysis {
        kernel: signature.name.clone(),
        file: signature.file.clone(),
        line: signature.line,
        dimensions: access::dimensions(&kernel),
        accesses: access::accesses(&kernel),
        loops: trips::loops(&kernel),
        operations,
        barriers,
        divergent_branches: access::branches(&kernel),
        threadgroup_bytes: facts.threadgroup_memory,
        live_registers: operations::live_registers(kernel.module, function),
        calls,
        scalars: access::scalars(&kernel),
        source,
    })
}

impl Analysis {
    /// The kernel's signature.
    pub fn signature(&self) -> &Signature {
        &self.source.signature
    }
}

impl Source {
    fn kernel(&self) -> Result<Kernel<'_>> {
        let name = &self.signature.name;
        let entry = |function: &&Function| !function.is_declaration();
        let function = self.module.function(ENTRY).filter(entry);
        let function = function.ok_or_else(|| Error::unsupported(format!("kernel `{name}` has no code")))?;
        if function.params.len() != self.signature.args.len() {
            return Err(Error::unsupported(format!(
                "kernel `{name}`: its code takes {} arguments, its signature {}",
                function.params.len(),
                self.signature.args.len()
            )));
        }
        Ok(Kernel::new(&self.module, function, &self.signature))
    }
}
