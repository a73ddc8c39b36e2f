//! Kernels, interpreted: each access is observed, and its bytes and transactions are counted.
//!
//! The interpreter (`verify/reference`) shares only the IR's data model with the analysis, and the counting here is by sets of bytes.

use std::collections::{BTreeMap, HashMap, HashSet};

use elinvar_analysis::{Analysis, Launch};
use elinvar_ir::BlockId;
use elinvar_reference::{Argument, Object, Options, run_observed};

use super::{analyzed, module};

/// An argument of a kernel: memory of this many bytes with numbers below a bound, or one number.
#[derive(Clone, Copy)]
pub enum Given {
    Memory { bytes: usize, below: u32 },
    Number(u32),
}

pub use Given::{Memory, Number};

/// A kernel and a launch.
pub struct Case {
    pub source: &'static str,
    pub kernel: &'static str,
    pub grid: [u32; 3],
    pub group: [u32; 3],
    pub arguments: Vec<Given>,
}

pub fn floats(count: usize) -> Given {
    Memory { bytes: 4 * count, below: 0 }
}

macro_rules! bench {
    ($name:literal) => {
        include_str!(concat!("../../../cli/src/bench/kernels/", $name, ".metal"))
    };
}

/// Kernels whose accesses depend on positions, sizes and numbers in `constant` arguments only.
pub fn affine() -> Vec<Case> {
    let case = |source, kernel, grid, group, arguments| Case { source, kernel, grid, group, arguments };
    vec![
        case(
            bench!("saxpy"),
            "saxpy",
            [1000, 1, 1],
            [96, 1, 1],
            vec![floats(1000), floats(1000), Number(0), Number(900)],
        ),
        case(
            bench!("vector_add"),
            "vector_add",
            [512, 1, 1],
            [256, 1, 1],
            vec![floats(512), floats(512), floats(512), Number(512)],
        ),
        case(
            bench!("transpose"),
            "transpose",
            [96, 24, 1],
            [32, 8, 1],
            vec![floats(96 * 96), floats(96 * 96), Number(96)],
        ),
        case(
            bench!("matmul"),
            "matmul_naive",
            [40, 40, 1],
            [16, 8, 1],
            vec![floats(1600), floats(1600), floats(1600), Number(38)],
        ),
        case(
            bench!("matmul"),
            "matmul_tiled",
            [48, 48, 1],
            [16, 16, 1],
            vec![floats(2304), floats(2304), floats(2304), Number(48)],
        ),
        case(
            bench!("stencil3d"),
            "stencil3d",
            [20, 20, 20],
            [16, 4, 2],
            vec![floats(8000), floats(8000), Number(20)],
        ),
        case(
            bench!("nbody"),
            "nbody",
            [64, 1, 1],
            [64, 1, 1],
            vec![floats(256), floats(256), Number(64), Number(0)],
        ),
        case(bench!("reduce"), "reduce_tree", [1024, 1, 1], [256, 1, 1], vec![floats(1024), floats(4)]),
        case(bench!("reduce"), "reduce_simd", [1024, 1, 1], [256, 1, 1], vec![floats(1024), floats(4)]),
        case(
            bench!("softmax"),
            "softmax",
            [512, 1, 1],
            [256, 1, 1],
            vec![floats(1400), floats(1400), Number(700)],
        ),
        case(OTHERS, "columns", [64, 8, 1], [32, 4, 1], vec![floats(64 * 64), floats(512), Number(64)]),
        case(OTHERS, "grid_stride", [96, 1, 1], [48, 1, 1], vec![floats(1000), floats(1000), Number(1000)]),
        case(OTHERS, "backwards", [100, 1, 1], [64, 1, 1], vec![floats(100), floats(100)]),
        case(OTHERS, "wrapped", [128, 1, 1], [64, 1, 1], vec![floats(200), floats(128), Number(7)]),
        case(
            OTHERS,
            "structs",
            [70, 1, 1],
            [32, 1, 1],
            vec![Memory { bytes: 70 * 24, below: 0 }, floats(70)],
        ),
        case(OTHERS, "pointers", [33, 1, 1], [32, 1, 1], vec![floats(33 * 9), floats(33), Number(9)]),
        case(OTHERS, "triangle", [40, 1, 1], [32, 1, 1], vec![floats(40 * 40), floats(40)]),
    ]
}

const OTHERS: &str = "#include <metal_stdlib>
using namespace metal;
kernel void columns(device const float* a [[buffer(0)]], device float* out [[buffer(1)]], constant uint& n [[buffer(2)]],
                    uint2 at [[thread_position_in_grid]], uint2 size [[threads_per_grid]]) {
    float sum = 0;
    for (uint i = 0; i < size.y; ++i) sum += a[at.x * n + i * 8 + at.y];
    out[at.y * size.x + at.x] = sum;
}
kernel void grid_stride(device const float* a [[buffer(0)]], device float* out [[buffer(1)]], constant uint& n [[buffer(2)]],
                        uint id [[thread_position_in_grid]], uint size [[threads_per_grid]]) {
    for (uint i = id; i < n; i += size) out[i] = 2.0f * a[i];
}
kernel void backwards(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                      uint id [[thread_position_in_grid]], uint size [[threads_per_grid]]) {
    out[id] = a[size - 1 - id];
}
kernel void wrapped(device const float* a [[buffer(0)]], device float* out [[buffer(1)]], constant int& n [[buffer(2)]],
                    uint id [[thread_position_in_grid]]) {
    int at = int(id) % n;
    out[id] = a[(id ^ 5) + uint(at)] + (id & 1 ? a[id / 3] : 0.0f);
}
struct Particle { packed_float3 at; float mass; uint2 kind; };
kernel void structs(device Particle* p [[buffer(0)]], device float* out [[buffer(1)]], uint id [[thread_position_in_grid]]) {
    p[id].at = float3(p[id].at) * 2.0f;
    out[id] = p[id].mass;
}
kernel void pointers(device const float* a [[buffer(0)]], device float* out [[buffer(1)]], constant uint& n [[buffer(2)]],
                     uint id [[thread_position_in_grid]]) {
    device const float* p = a + id * n;
    device const float* end = p + n;
    float sum = 0;
    while (p < end) sum += *p++;
    out[id] = sum;
}
kernel void triangle(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                     uint id [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
    float sum = 0;
    for (uint i = 0; i <= id; ++i) {
        if (i % 3 == 1) continue;
        sum += a[i * n + id];
    }
    out[id] = sum;
}
";

fn bytes_of(given: Given, random: &mut u32) -> Vec<u8> {
    match given {
        Number(number) => number.to_le_bytes().to_vec(),
        Memory { bytes, below } => {
            let mut next = || {
                *random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if below == 0 { 0 } else { (*random >> 8) % below }
            };
            (0..bytes / 4).flat_map(|_| next().to_le_bytes()).collect()
        }
    }
}

/// What was counted of an access.
#[derive(Debug, Default, PartialEq)]
pub struct Counted {
    pub executions: u64,
    pub bytes: u64,
    pub simdgroups: u64,
    pub sectors: u64,
    pub lines: u64,
}

/// The instruction of an access.
pub type Site = (BlockId, usize, usize);

/// Interprets a case and counts its accesses of memory other than the threads' own.
pub fn observed(case: &Case) -> (Analysis, Launch, HashMap<Site, Counted>) {
    observed_by(case, &mut |_| {})
}

/// Interprets a case, counts its accesses, and hands each of them on.
pub fn observed_by(
    case: &Case,
    each: &mut dyn FnMut(&elinvar_reference::Access),
) -> (Analysis, Launch, HashMap<Site, Counted>) {
    let (module, signature) = module(case.source, case.kernel);
    let analysis = analyzed(&module, &signature);
    let mut random = 1;
    let memory: Vec<Vec<u8>> = case.arguments.iter().map(|given| bytes_of(*given, &mut random)).collect();
    let constants = signature.args.iter().zip(&memory).enumerate().filter(|(_, (arg, _))| arg.constant);
    let constants = constants.map(|(index, (_, bytes))| (index, bytes.clone())).collect();
    let launch = Launch { grid: case.grid, group: case.group, constants };
    let arguments = memory.into_iter().map(Argument::Bytes).collect();
    let interpreted = elinvar_reference::Launch { threads: case.grid, group: case.group, arguments };
    // By the instruction, the simdgroup, and how often its lane has executed the instruction before.
    type Round = (Site, [u32; 3], usize, usize);
    let mut rounds: BTreeMap<Round, Vec<(Object, i64, u64)>> = BTreeMap::new();
    let mut times: HashMap<(Site, [u32; 3], usize), usize> = HashMap::new();
    let mut observe = |access: elinvar_reference::Access| {
        if access.object == Object::Private {
            return;
        }
        each(&access);
        let site = (access.site.0, access.site.1, access.which);
        let time = times.entry((site, access.group, access.thread)).or_default();
        let round = (site, access.group, access.thread / 32, *time);
        *time += 1;
        rounds.entry(round).or_default().push((access.object, access.offset, access.bytes));
    };
    run_observed(&module, &interpreted, &Options::default(), &mut observe)
        .unwrap_or_else(|fault| panic!("{}: {fault}", case.kernel));
    let mut counted: HashMap<Site, Counted> = HashMap::new();
    for ((site, ..), lanes) in rounds {
        let count = counted.entry(site).or_default();
        count.executions += lanes.len() as u64;
        count.bytes += lanes.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
        count.simdgroups += 1;
        if lanes.iter().any(|(object, ..)| matches!(object, Object::Threadgroup(_))) {
            continue;
        }
        let segments = |size: i64| {
            let all = lanes.iter().flat_map(|(object, offset, bytes)| {
                (0..*bytes as i64).map(move |byte| (object, (offset + byte).div_euclid(size)))
            });
            all.collect::<HashSet<_>>().len() as u64
        };
        count.sectors += segments(32);
        count.lines += segments(128);
    }
    (analysis, launch, counted)
}
