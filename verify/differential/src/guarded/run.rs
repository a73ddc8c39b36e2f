//! Launches of one kernel with random arguments.

use std::ffi::c_void;

use anyhow::Result;
use elinvar_driver_cpu::Launch;
use elinvar_reference::{Argument, Options};
use elinvar_spmd::bounds::FaultRecord;

use super::memory::Guarded;
use super::text::{BYTES, CONTROL, DYNAMIC, REFERENCE, SMALL};
use super::{ALIGNS, Built, Wild};
use crate::random::Random;

/// Maximum number of interpreted instructions per launch.
const STEPS: u64 = 200_000;
/// Boundary values: about sizes, widths and signs.
const NUMBERS: [i64; 24] = [
    -1,
    -2,
    -4,
    -8,
    -64,
    -4096,
    0,
    7,
    8,
    16,
    95,
    96,
    97,
    383,
    384,
    4096,
    1 << 30,
    1 << 31,
    (1 << 31) - 1,
    1 << 32,
    -(1 << 31),
    i64::MAX,
    i64::MIN,
    1 << 61,
];

/// Result of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launched {
    /// No fault in the interpreter, and equal results.
    Same,
    /// No fault; results are not compared.
    Ended,
    /// It ended with a fault.
    Fault,
    /// A guarantee was violated.
    Broken(String),
}

/// A batch of kernels that can be launched.
pub struct Launches {
    built: Vec<Result<Built, String>>,
    kernels: Vec<Wild>,
    arguments: Vec<Guarded>,
}

impl Launches {
    /// Compiles kernels, all optimized or none.
    ///
    /// # Errors
    /// When they do not compile together, or there is no memory.
    pub fn of(kernels: Vec<Wild>) -> Result<Self> {
        let arguments = BYTES.iter().map(|bytes| Guarded::new(*bytes)).collect::<Result<_>>()?;
        Ok(Self { built: super::build(&kernels)?, kernels, arguments })
    }

    /// The compiler's error for a kernel, if any.
    pub fn refused(&self, kernel: usize) -> Option<&str> {
        self.built[kernel].as_ref().err().map(String::as_str)
    }

    /// Runs launch `number`. Every second launch has one thread and small numbers.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn launch(&mut self, kernel: usize, number: u64) -> Result<Launched> {
        let (Ok(built), wild) = (&self.built[kernel], &self.kernels[kernel]) else {
            return Ok(Launched::Ended);
        };
        let mut random = Random::new(wild.seed.wrapping_mul(1000).wrapping_add(number));
        let tame = number.is_multiple_of(2);
        let given = Given::random(&mut random, tame, wild.group);
        let expected = if tame { interpreted(built, wild, &given) } else { None };
        run(built, wild, &given, &mut self.arguments, expected.as_deref())
    }
}

/// The arguments of a launch.
struct Given {
    threads: u32,
    bytes: Vec<Vec<u8>>,
    /// Arguments that alias another's memory, with their offset.
    within: [Option<(usize, usize)>; 7],
    dynamic: usize,
    /// Whether the guard page before the memory is closer than the one behind it.
    first: bool,
}

impl Given {
    fn random(random: &mut Random, tame: bool, group: u32) -> Self {
        let mut numbers: Vec<i64> = (0..16)
            .map(|_| match (tame, random.below(3)) {
                (true, _) | (false, 0) => random.below(SMALL) as i64,
                (false, 1) => random.pick(&NUMBERS),
                _ => {
                    let by = random.below(200) as i64 * random.pick(&[1, 4, -1, 1 << 30]);
                    random.pick(&NUMBERS).wrapping_add(by)
                }
            })
            .collect();
        if tame {
            numbers.sort_unstable();
        }
        let size = |random: &mut Random, at: usize| match BYTES[at] {
            full if tame || at == REFERENCE || random.percent(40) => full,
            full if random.percent(50) => random.below(full),
            full => random.pick(&[0, 1, 3, 4, 7, 8, 15, 16, 24, 32, full - 1]).min(full),
        };
        let mut bytes: Vec<Vec<u8>> = Vec::new();
        for at in 0..BYTES.len() {
            let len = size(random, at);
            let words = (0..len.div_ceil(8)).map(|_| random.next() >> (random.below(8) * 8));
            bytes.push(words.flat_map(u64::to_le_bytes).take(len).collect());
        }
        for (to, number) in bytes[CONTROL].chunks_exact_mut(8).zip(&numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        let n = if tame { 0 } else { numbers[0] };
        bytes[REFERENCE][..8].copy_from_slice(&n.to_le_bytes());
        let mut within = [None; 7];
        if !tame && random.percent(40) {
            for at in [0, 1, 2, CONTROL, 4, 6] {
                let other = random.below(3);
                if other < at && within[other].is_none() && random.percent(50) {
                    let most = bytes[other].len().saturating_sub(bytes[at].len()) / 8;
                    within[at] = Some((other, random.below(most + 1) * 8));
                    let room = bytes[other].len().saturating_sub(within[at].map_or(0, |(_, by)| by));
                    bytes[at].truncate(room);
                }
            }
        }
        let threads = if tame { 1 } else { 1 + random.below(2 * group as usize + 3) as u32 };
        let dynamic = if tame { DYNAMIC } else { random.pick(&[0, 16, DYNAMIC, DYNAMIC]) };
        Self { threads, bytes, within, dynamic, first: random.percent(30) }
    }
}

/// Arguments after a launch without a fault in the interpreter.
fn interpreted(built: &Built, wild: &Wild, given: &Given) -> Option<Vec<Vec<u8>>> {
    let mut arguments: Vec<Argument> = given.bytes.iter().cloned().map(Argument::Bytes).collect();
    arguments.push(Argument::Threadgroup(given.dynamic as u64));
    let launch =
        elinvar_reference::Launch { threads: [given.threads, 1, 1], group: [wild.group, 1, 1], arguments };
    let options = Options { steps: STEPS, ..Options::default() };
    elinvar_reference::run_with(&built.unoptimized, &launch, &options).ok()
}

fn run(
    built: &Built,
    wild: &Wild,
    given: &Given,
    arguments: &mut [Guarded],
    expected: Option<&[Vec<u8>]>,
) -> Result<Launched> {
    for (at, argument) in arguments.iter_mut().enumerate() {
        argument.set_writable(true)?;
        argument.place(&given.bytes[at], (ALIGNS[at] as usize).max(8), !given.first);
    }
    let mut addresses: Vec<*const c_void> =
        arguments.iter().map(|a| a.address().cast_const().cast()).collect();
    for (at, within) in given.within.iter().enumerate() {
        if let Some((other, by)) = within {
            addresses[at] = arguments[*other].address().wrapping_add(*by).cast_const().cast();
        }
    }
    // The offset in the threadgroup's memory.
    addresses.push(std::ptr::null());
    let mut sizes: Vec<u64> = given.bytes.iter().map(|bytes| bytes.len() as u64).collect();
    sizes.push(given.dynamic as u64);
    let written = |at: usize| built.may_write >> at & 1 != 0;
    for (at, argument) in arguments.iter().enumerate() {
        let shared = given.within.iter().enumerate();
        let shared = shared.filter(|(_, within)| within.is_some_and(|(other, _)| other == at));
        argument.set_writable(written(at) || shared.into_iter().any(|(other, _)| written(other)))?;
    }
    let bytes = built.made.scratch_bytes as usize + given.dynamic;
    let mut scratch = Guarded::new(bytes)?;
    scratch.place(&vec![0xcd; bytes.next_multiple_of(64)], 64, true);
    let mut record = FaultRecord::default();
    let (before, lengths) = (addresses.clone(), sizes.clone());
    let status = call(built, wild, given, (&addresses, &sizes), &mut record, scratch.address());
    for argument in arguments.iter() {
        argument.set_writable(true)?;
    }
    if (&addresses, &sizes) != (&before, &lengths) {
        return Ok(Launched::Broken("the launch itself was changed".into()));
    }
    for (name, memory) in arguments.iter_mut().enumerate().chain([(99, &mut scratch)]) {
        if let Some(at) = memory.changed() {
            return Ok(Launched::Broken(format!(
                "argument {name}: byte {at} was changed, of {}",
                memory.content().len()
            )));
        }
    }
    Ok(verdict(built, given, status, &record, arguments, expected))
}

fn verdict(
    built: &Built,
    given: &Given,
    status: i32,
    record: &FaultRecord,
    arguments: &mut [Guarded],
    expected: Option<&[Vec<u8>]>,
) -> Launched {
    if status != 0 && built.made.faults.get((status - 1) as usize).is_none() {
        return Launched::Broken(format!("the code returned {status}"));
    }
    let checks = built.made.checks.clone().unwrap_or_default();
    let known = (record.site as usize) < checks.sites.len() && (record.root as usize) < checks.roots.len();
    if record.taken > 1 || record.taken == 1 && !(known && record.thread[0] < given.threads) {
        return Launched::Broken(format!("an impossible fault: {record:?}"));
    }
    for (at, argument) in arguments.iter_mut().enumerate() {
        let writes =
            built.may_write >> at & 1 != 0 || given.within.iter().flatten().any(|(other, _)| *other == at);
        if !writes && argument.content() != &given.bytes[at][..] {
            return Launched::Broken(format!("argument {at} was written"));
        }
    }
    let faulted = status != 0 || record.taken != 0;
    let Some(expected) = expected else { return if faulted { Launched::Fault } else { Launched::Ended } };
    if faulted {
        return Launched::Broken(format!("an unexpected fault: {status}, {record:?}"));
    }
    for (at, argument) in arguments.iter_mut().enumerate() {
        let differs = expected[at].iter().zip(argument.content()).position(|(a, b)| a != b);
        if let Some(byte) = differs {
            return Launched::Broken(format!("argument {at}, byte {byte} differs from the interpreter's"));
        }
    }
    Launched::Same
}

#[allow(unsafe_code)] // calls compiled code
fn call(
    built: &Built,
    wild: &Wild,
    given: &Given,
    (addresses, sizes): (&[*const c_void], &[u64]),
    record: &mut FaultRecord,
    scratch: *mut u8,
) -> i32 {
    let groups = given.threads.div_ceil(wild.group);
    let go_on = 0_u8;
    let launch = Launch {
        args: addresses.as_ptr(),
        threads: [given.threads, 1, 1],
        groups: [groups, 1, 1],
        sizes: sizes.as_ptr(),
        record,
        stop: &raw const go_on,
        group: [wild.group, 1, 1],
        log_kernel: 0,
        log: std::ptr::null(),
    };
    // SAFETY: the code is of a checked kernel, whose launch is safe whatever its text: that is what is tested. The scratch memory is
    // aligned and as large as it and the threadgroup's argument need.
    unsafe { built.code.run(&launch, scratch, 0..groups.into()) }
}
