//! Launches: sizes and arguments as input, the arguments' memory as output.

use elinvar_ir::Module;
use elinvar_spmd::ENTRY;

use crate::fault::{Fault, Problem, Result};
use crate::log::LogRecord;
use crate::machine::{Machine, Sizes};
use crate::memory::{Allocation, Place};
use crate::observe::Access;
use crate::thread::{Site, Thread};
use crate::transfer::Uninitialized;
use crate::value::Value;

/// Alignment of an argument's memory.
const ALIGN: u64 = 256;

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Memory with this content, writable.
    Bytes(Vec<u8>),
    /// Threadgroup memory of this size in bytes.
    Threadgroup(u64),
    /// A number, passed by value.
    Number(u32),
}

/// A launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Grid size in threads.
    pub threads: [u32; 3],
    /// Threadgroup size in threads. Threadgroups at the edges of the grid may be smaller.
    pub group: [u32; 3],
    /// One for each parameter of the entry.
    pub arguments: Vec<Argument>,
}

/// Options of the interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Value of uninitialized memory.
    pub uninitialized: Uninitialized,
    /// Maximum number of executed instructions, of all threads together.
    pub steps: u64,
    /// Whether all threadgroups are full, as the blocks of code lowered for NVPTX.
    pub blocks: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { uninitialized: Uninitialized::Zero, steps: u64::MAX, blocks: false }
    }
}

/// Runs a launch of the module's entry. Returns the memory of each argument afterwards, empty for threadgroup memory.
///
/// # Errors
/// The first fault.
pub fn run(module: &Module, launch: &Launch) -> std::result::Result<Vec<Vec<u8>>, Fault> {
    run_with(module, launch, &Options::default())
}

/// As [`run`], with options.
///
/// # Errors
/// The first fault.
pub fn run_with(
    module: &Module,
    launch: &Launch,
    options: &Options,
) -> std::result::Result<Vec<Vec<u8>>, Fault> {
    run_logged(module, launch, options, &mut |_| {})
}

/// As [`run_with`]; passes on the log calls of each threadgroup when it has ended or has a fault.
///
/// # Errors
/// The first fault.
pub fn run_logged(
    module: &Module,
    launch: &Launch,
    options: &Options,
    log: &mut dyn FnMut(LogRecord),
) -> std::result::Result<Vec<Vec<u8>>, Fault> {
    execute(module, launch, options, &mut Sinks { log, access: None })
}

/// As [`run_with`]; passes on the accesses of the entry, of each threadgroup when it has ended or waits at a grid barrier.
///
/// # Errors
/// The first fault.
pub fn run_observed(
    module: &Module,
    launch: &Launch,
    options: &Options,
    access: &mut dyn FnMut(Access),
) -> std::result::Result<Vec<Vec<u8>>, Fault> {
    execute(module, launch, options, &mut Sinks { log: &mut |_| {}, access: Some(access) })
}

/// What is told of a run.
struct Sinks<'s> {
    log: &'s mut dyn FnMut(LogRecord),
    access: Option<&'s mut dyn FnMut(Access)>,
}

fn execute(
    module: &Module,
    launch: &Launch,
    options: &Options,
    sinks: &mut Sinks<'_>,
) -> std::result::Result<Vec<Vec<u8>>, Fault> {
    let sizes = Sizes::new(launch.threads, launch.group);
    let (mut machine, entry, mut addresses) = prepare(module, launch, options, sizes)
        .map_err(|problem| Fault::outside(problem, format!("the launch of `{ENTRY}`")))?;
    machine.accesses = sinks.access.is_some().then(Vec::new);
    let mut round = Vec::new();
    for index in 0..u64::from(u32::MAX) {
        if !machine.sizes.go_to_group(index, options.blocks) {
            break;
        }
        begin_group(&mut machine, launch, &mut addresses).map_err(|p| machine.fault(p, None))?;
        let args: Vec<Value> = addresses.iter().map(|a| Value::Bits(u128::from(*a))).collect();
        let threads = machine.start(entry, &args).map_err(|p| machine.fault(p, None))?;
        let group = Suspended { index, threads, variables: Vec::new() };
        let reached = resume(&mut machine, group, options, sinks)?;
        if matches!(reached, Reached::Barrier(..)) {
            // Still its memory.
            let dynamic = launch.arguments.iter().zip(&mut addresses);
            let dynamic = dynamic.filter(|(argument, _)| matches!(argument, Argument::Threadgroup(_)));
            dynamic.for_each(|(_, address)| *address = 0);
        }
        round.push(reached);
    }
    while let Some(groups) = waiting(&machine, round)? {
        round = groups
            .into_iter()
            .map(|group| resume(&mut machine, group, options, sinks))
            .collect::<std::result::Result<_, _>>()?;
    }
    let kept = launch.arguments.iter().zip(addresses).map(|(argument, address)| match argument {
        Argument::Bytes(_) => machine.memory.release(address).map_or_else(Vec::new, |a| a.bytes),
        Argument::Threadgroup(_) | Argument::Number(_) => Vec::new(),
    });
    Ok(kept.collect())
}

/// A threadgroup between two grid barriers.
struct Suspended<'m> {
    index: u64,
    threads: Vec<Thread<'m>>,
    /// Addresses of its threadgroup variables, if it has run.
    variables: Vec<(&'m str, u64)>,
}

/// Where a threadgroup has come to.
enum Reached<'m> {
    End,
    Barrier(Site, Suspended<'m>),
}

/// Runs a threadgroup up to its next grid barrier.
fn resume<'m>(
    machine: &mut Machine<'m>,
    mut group: Suspended<'m>,
    options: &Options,
    sinks: &mut Sinks<'_>,
) -> std::result::Result<Reached<'m>, Fault> {
    machine.sizes.go_to_group(group.index, options.blocks);
    machine.put_threadgroup_variables(std::mem::take(&mut group.variables));
    let ended = machine.run_group(&mut group.threads);
    machine.log.drain(..).for_each(&mut *sinks.log);
    if let (Some(accesses), Some(access)) = (&mut machine.accesses, &mut sinks.access) {
        accesses.drain(..).for_each(access);
    }
    Ok(match ended? {
        None => Reached::End,
        Some(site) => {
            group.variables = machine.take_threadgroup_variables();
            Reached::Barrier(site, group)
        }
    })
}

/// The threadgroups of the next round; `None` if all have ended.
fn waiting<'m>(
    machine: &Machine<'m>,
    round: Vec<Reached<'m>>,
) -> std::result::Result<Option<Vec<Suspended<'m>>>, Fault> {
    let count = round.len();
    let (mut site, mut groups) = (None, Vec::new());
    for reached in round {
        let Reached::Barrier(at, group) = reached else { continue };
        if *site.get_or_insert(at.clone()) != at {
            return Err(machine.fault(Problem::MissedGridBarrier, group.threads.first()));
        }
        groups.push(group);
    }
    match groups.len() {
        0 => Ok(None),
        arrived if arrived == count => Ok(Some(groups)),
        _ => {
            let thread = groups.first().and_then(|group| group.threads.first());
            Err(machine.fault(Problem::MissedGridBarrier, thread))
        }
    }
}

fn prepare<'m>(
    module: &'m Module,
    launch: &Launch,
    options: &'m Options,
    sizes: Option<Sizes>,
) -> Result<(Machine<'m>, usize, Vec<u64>)> {
    let no_threads = || Problem::Malformed(format!("groups of {:?} threads", launch.group));
    let mut machine = Machine::new(module, options, sizes.ok_or_else(no_threads)?)?;
    let entry = machine.defined(ENTRY);
    let entry = entry.ok_or_else(|| Problem::Malformed(format!("the module does not define `{ENTRY}`")))?;
    let (takes, given) = (machine.function(entry).params.len(), launch.arguments.len());
    if takes != given {
        return Err(Problem::Malformed(format!("the entry takes {takes} arguments but is passed {given}")));
    }
    let mut addresses = Vec::new();
    for (index, argument) in launch.arguments.iter().enumerate() {
        addresses.push(match argument {
            Argument::Bytes(bytes) => {
                machine.memory.allocate(Allocation::filled(Place::Argument(index), bytes.clone(), ALIGN))?
            }
            Argument::Threadgroup(_) => 0,
            Argument::Number(number) => u64::from(*number),
        });
    }
    Ok((machine, entry, addresses))
}

/// Allocates threadgroup memory of arguments for a threadgroup.
fn begin_group(machine: &mut Machine<'_>, launch: &Launch, addresses: &mut [u64]) -> Result<()> {
    machine.place_threadgroup_variables()?;
    for (index, argument) in launch.arguments.iter().enumerate() {
        let Argument::Threadgroup(len) = argument else { continue };
        machine.memory.release(addresses[index]);
        let len = crate::value::length(*len)?;
        addresses[index] = machine.memory.allocate(Allocation::fresh(Place::Argument(index), len, ALIGN))?;
    }
    Ok(())
}
