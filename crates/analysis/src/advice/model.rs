//! The cost of a kernel: cycles that a core needs for a simdgroup of it, if the core has enough others to hide latencies.
//!
//! A throughput model: operations, memory and threadgroup memory work at the same time, and the slowest of them decides. The constants of
//! the GPU are those of an H100: a core issues four simdgroups' operations a cycle (CUDA C++ Programming Guide, "Compute Capability 9.0"), and its share of
//! memory is 14.5 bytes a cycle (3.35 TB/s, 132 cores, 1.755 GHz; NVIDIA H100 data sheet). Those of the CPU are of a core with two vector
//! ports of 256 bits and 16 bytes of memory a cycle.

use std::str::FromStr;

use serde::Serialize;

use crate::forms::{Kernel, Space};
use crate::traffic;
use crate::trips::Trips;
use crate::walk::Kind;
use crate::{Access, Analysis, Class, SECTOR, operations};

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    /// A CPU with vector registers.
    Cpu,
    /// A GPU.
    Gpu,
}

impl Machine {
    /// The name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }

    const fn costs(self) -> Costs {
        match self {
            Self::Gpu => Costs {
                operation: 0.25,
                access: 1.0,
                lane: 0.0,
                sector: 32.0 / 14.5,
                segment: SECTOR,
                round: 1.0,
                device_atomic: 1.4,
                local_atomic: 0.2,
                barrier: 15.0,
                group: 40.0,
            },
            Self::Cpu => Costs {
                operation: 2.0,
                access: 2.0,
                lane: 1.0,
                sector: 32.0 / 16.0,
                segment: 64,
                round: 2.0,
                device_atomic: 18.0,
                local_atomic: 2.0,
                barrier: 15.0,
                group: 40.0,
            },
        }
    }
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Cpu, Self::Gpu]
            .into_iter()
            .find(|machine| machine.name() == text)
            .ok_or_else(|| format!("unknown machine `{text}`: expected cpu or gpu"))
    }
}

/// Cycles of a core.
struct Costs {
    /// An operation of 32 lanes.
    operation: f64,
    /// An access of 32 lanes.
    access: f64,
    /// Each lane of an access whose lanes are apart.
    lane: f64,
    /// 32 bytes from or to memory.
    sector: f64,
    /// Bytes that memory moves at a time.
    segment: u64,
    /// 128 bytes of threadgroup memory.
    round: f64,
    /// A lane's atomic operation in device memory, and in threadgroup memory.
    device_atomic: f64,
    local_atomic: f64,
    barrier: f64,
    /// A threadgroup's start and end.
    group: f64,
}

/// Iterations of a loop whose trip count is unknown.
const UNKNOWN_TRIPS: f64 = 16.0;
/// Bytes of memory in flight that a core needs for its share of the bandwidth (Little's law: 14.5 bytes a cycle, 560 cycles), and simdgroups that it
/// holds.
const IN_FLIGHT: f64 = 8192.0;
const RESIDENT: f64 = 64.0;

/// An access as the model sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub kind: Kind,
    pub space: Space,
    pub class: Class,
    /// Distance of lanes in bytes; `None` if it is not a constant.
    pub stride: Option<i128>,
    pub bytes: u64,
    /// Executions by a simdgroup.
    pub times: f64,
}

/// What a simdgroup executes.
#[derive(Clone, Debug)]
pub(super) struct Code {
    /// In the order of [`Analysis::accesses`].
    pub shapes: Vec<Shape>,
    pub operations: f64,
    pub barriers: f64,
}

/// Iterations of a loop.
pub(super) fn iterations(analysis: &Analysis, index: usize) -> f64 {
    match analysis.loops.get(index).map(|facts| &facts.trips) {
        Some(Trips::Constant(count)) => (*count).max(1) as f64,
        _ => UNKNOWN_TRIPS,
    }
}

/// Executions of a block by a simdgroup, if it takes all ways.
pub(super) fn weight(analysis: &Analysis, kernel: &Kernel<'_>, block: elinvar_ir::BlockId) -> f64 {
    kernel.loops.around(block).into_iter().map(|index| iterations(analysis, index)).product()
}

/// Operations of a block once.
pub(super) fn operations_of(kernel: &Kernel<'_>, block: elinvar_ir::BlockId) -> f64 {
    /// A function that is not inlined, and a reduction or shuffle of a simdgroup, in operations.
    const FUNCTION: f64 = 8.0;
    const OF_SIMDGROUP: f64 = 10.0;
    let own = operations::of_block(kernel.function.block(block));
    own.f32 + own.f16 + own.bf16 + own.integer + own.functions * FUNCTION + own.simdgroup * OF_SIMDGROUP
}

impl Code {
    pub fn new(analysis: &Analysis, kernel: &Kernel<'_>) -> Self {
        let reachable = || kernel.function.block_ids().filter(|block| kernel.dominators.is_reachable(*block));
        let shape = |access: &Access| Shape {
            kind: access.kind,
            space: access.space,
            class: access.class,
            stride: access.lane_stride_bytes.map(i128::from),
            bytes: access.bytes,
            times: weight(analysis, kernel, access.site.0) / if access.is_rare { 32.0 } else { 1.0 },
        };
        let barriers = reachable().map(|block| weight(analysis, kernel, block) * kernel.barriers_of(block));
        Self {
            shapes: analysis.accesses.iter().map(shape).collect(),
            operations: reachable()
                .map(|block| weight(analysis, kernel, block) * operations_of(kernel, block))
                .sum(),
            barriers: barriers.sum(),
        }
    }

    /// Cycles of a simdgroup.
    pub fn cycles(&self, machine: Machine) -> f64 {
        let costs = machine.costs();
        let mut issue = self.operations * costs.operation;
        let (mut memory, mut local, mut in_flight) = (0.0, 0.0, 0.0);
        for shape in &self.shapes {
            let offsets = shape.offsets();
            let is_atomic = shape.kind == Kind::Atomic;
            if shape.space == Space::Threadgroup {
                local += shape.times
                    * match (is_atomic, shape.class) {
                        (true, _) => 32.0 * costs.local_atomic,
                        // Random words: the fullest of 32 banks has 3.5 of 32 on average.
                        (false, Class::Gather | Class::Computed) => 3.5 * costs.round + 32.0 * costs.lane,
                        (false, _) if machine == Machine::Cpu => shape.apart(&costs) + costs.round,
                        (false, _) => {
                            traffic::bank_conflicts(&offsets, shape.bytes)
                                * costs.round
                                * (shape.bytes as f64 / 4.0).max(1.0)
                        }
                    };
                continue;
            }
            if is_atomic {
                memory += shape.times * 32.0 * costs.device_atomic;
                continue;
            }
            issue += shape.times * (costs.access + shape.apart(&costs));
            // A broadcast comes from the cache.
            if shape.class != Class::Broadcast {
                let moved = traffic::segments(&offsets, shape.bytes, costs.segment) * costs.segment;
                memory += shape.times * moved as f64 / SECTOR as f64 * costs.sector;
                in_flight += moved as f64;
            }
        }
        if machine == Machine::Gpu && in_flight > 0.0 {
            memory *= (IN_FLIGHT / (in_flight * RESIDENT)).max(1.0);
        }
        let busy = match machine {
            Machine::Gpu => issue.max(memory).max(local),
            Machine::Cpu => (issue + local).max(memory),
        };
        busy.max(1.0) + self.barriers * costs.barrier
    }

    /// Cycles of a thread in threadgroups of `threads` threads.
    pub fn of_thread(&self, machine: Machine, threads: u64) -> f64 {
        let threads = threads.max(1);
        (self.cycles(machine) * threads.div_ceil(32) as f64 + machine.costs().group) / threads as f64
    }
}

impl Shape {
    /// Offsets of a simdgroup's lanes.
    fn offsets(&self) -> Vec<i128> {
        /// Lanes in places of their own, in different banks.
        const APART: i128 = (1 << 20) + 4;
        let step = match self.class {
            Class::Gather => APART,
            // Some lanes share their place: a division, or a remainder.
            Class::Computed => i128::from(self.bytes),
            _ => self.stride.unwrap_or(APART),
        };
        (0..32).map(|lane| lane * step).collect()
    }

    /// Cycles of the lanes of an access that is not contiguous.
    fn apart(&self, costs: &Costs) -> f64 {
        match self.class {
            Class::Broadcast | Class::Contiguous => 0.0,
            _ => 32.0 * costs.lane,
        }
    }
}
