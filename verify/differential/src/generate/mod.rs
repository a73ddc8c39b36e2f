//! Random kernels as trees of statements.
//!
//! All kernels take the same arguments: `out`, of which each thread owns [`WORDS`] elements; `in` with
//! [`INPUTS`] random numbers; a number `n`; `acc`, [`ACCUMULATORS`] atomics, each for one operation
//! whose result does not depend on the order, and `wide`, large numbers ([`index`]). All variables are declared and set before the first statement,
//! so any statement can be taken out.

mod expression;
mod index;
mod statement;

use crate::compile::Setting;
use crate::random::Random;
use expression::Scope;

/// Consecutive seeds from a multiple of this share processor and optimization.
pub const BATCH: u64 = 32;
/// Elements of `out` per thread.
pub(crate) const WORDS: usize = 4;
/// Elements of `in`; a power of two.
pub(crate) const INPUTS: usize = 256;
pub(crate) use index::wide;
/// Elements of `acc`.
pub(crate) const ACCUMULATORS: usize = 6;
/// Maximum threadgroup size.
pub(crate) const MOST_THREADS: usize = 160;

/// Maximum number of threads of a launch, except for the last threadgroups.
const FEW_THREADS: u32 = 160;

/// The sizes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Grid size in threads.
    pub threads: [u32; 3],
    /// Threadgroup size in threads.
    pub group: [u32; 3],
}

/// A statement: parts that each open with a line and hold statements, and a last line.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub parts: Vec<(String, Vec<Statement>)>,
    pub end: String,
}

impl Statement {
    pub(crate) fn line(text: impl Into<String>) -> Statement {
        Statement { parts: Vec::new(), end: text.into() }
    }

    fn write(&self, indent: usize, out: &mut String) {
        let line = |indent: usize, text: &str, out: &mut String| {
            if !text.is_empty() {
                out.push_str(&format!("{:1$}{text}\n", "", indent * 4));
            }
        };
        for (head, body) in &self.parts {
            line(indent, head, out);
            for statement in body {
                statement.write(indent + 1, out);
            }
        }
        line(indent, &self.end, out);
    }
}

/// A random kernel with its launch.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its seed; also the seed of its input.
    pub seed: u64,
    /// Its launch.
    pub shape: Shape,
    /// The value of `n`.
    pub n: u32,
    /// How it is compiled.
    pub setting: Setting,
    /// Whether accesses are plain (unguarded), which requires checked compilation.
    plain: bool,
    pub(crate) helpers: Vec<(String, Vec<Statement>)>,
    pub(crate) body: Vec<Statement>,
}

impl Kernel {
    /// Generates the kernel of a seed.
    pub fn random(seed: u64) -> Kernel {
        let mut random = Random::new(seed);
        let shape = shape(&mut random);
        let n = random.next() as u32 & 0xff;
        let (helpers, body) = statement::kernel(&mut random, seed);
        Kernel { seed, shape, n, setting: setting(seed), plain: false, helpers, body }
    }

    /// Generates a kernel that uses indices of all widths and both signednesses everywhere. Half of these kernels are checked, and also access
    /// out of bounds.
    pub fn indexed(seed: u64) -> Kernel {
        let mut kernel = Kernel::random(seed);
        let mut random = Random::new(seed ^ 0x1d_ce5);
        let scope = Scope { kernel: true, seed };
        kernel.body.truncate(2);
        for _ in 0..2 + random.below(3) {
            let at = random.below(kernel.body.len() + 1);
            kernel.body.insert(at, index::statement(&mut random, scope));
        }
        let lanes = random.pick(&[kernel.setting.lanes, kernel.setting.lanes, kernel.setting.lanes, 1, 2, 4]);
        kernel.plain = random.percent(50);
        kernel.setting = Setting { lanes, checked: kernel.plain, ..kernel.setting };
        kernel
    }

    /// Generates a kernel with barriers that not all threads of a simdgroup reach: several in threadgroups of one simdgroup, or a single
    /// one outside of loops, so that no two simdgroups can reach different barriers, or one in different iterations, which may be unrolled.
    pub fn divergent(seed: u64) -> Kernel {
        let mut random = Random::new(seed ^ 0xba_441e);
        let random_depth = random.below(90) as u32;
        let (shape, barriers) = match random.percent(60) {
            true => {
                let row = [random.below(32) as u32 + 1, 1, 1];
                let group = random.pick(&[[32, 1, 1], row, [8, 4, 1], [5, 3, 2]]);
                (launch(&mut random, group), 3)
            }
            // Deeper than a block of CUDA can be.
            false if random.percent(25) => {
                let group = random.pick(&[[1, 1, 65 + random_depth], [2, 1, 80], [1, 2, 70]]);
                (launch(&mut random, group), 1)
            }
            false => (shape(&mut random), 1),
        };
        let n = random.next() as u32 & 0xff;
        let body = statement::divergent(&mut random, seed, barriers);
        Kernel { seed, shape, n, setting: setting(seed), plain: false, helpers: Vec::new(), body }
    }

    /// Generates a kernel with log calls at random places.
    pub fn logging(seed: u64) -> Kernel {
        let mut kernel = if seed % 4 == 1 { Kernel::divergent(seed) } else { Kernel::random(seed) };
        let mut random = Random::new(seed ^ 0x10_6611);
        let (mut calls, share) = (0, random.pick(&[20, 40, 60]));
        let helpers = kernel.helpers.iter_mut().map(|(_, body)| body);
        for body in helpers.chain([&mut kernel.body]) {
            insert_logs(&mut random, body, share, &mut calls);
        }
        kernel
    }

    /// Its name in the text.
    pub fn name(&self) -> String {
        format!("k{}", self.seed)
    }

    /// Name of the compiled kernel, if it differs from that of the interpreted one.
    pub(crate) fn plain_name(&self) -> Option<String> {
        self.plain.then(|| format!("p{}", self.seed))
    }

    /// Its text, without the prologue that the kernels of a source share.
    pub fn text(&self) -> String {
        let plain = self.plain_name().map(|name| index::plain(&self.entry(&name)));
        self.types() + &index::guarded(&self.entry(&self.name())) + &plain.unwrap_or_default()
    }

    /// Its types and helpers.
    fn types(&self) -> String {
        let name = self.name();
        let mut out =
            format!("struct S{name} {{ int a; ushort b; uchar4 c; long d; float e; char f; uint2 g; }};\n");
        for (head, body) in &self.helpers {
            Statement { parts: vec![(head.clone(), body.clone())], end: "}".into() }.write(0, &mut out);
        }
        out
    }

    fn entry(&self, name: &str) -> String {
        let mut out = format!(
            "kernel void {name}(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],\n    \
             constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]],\n    \
             device const ulong* wide [[buffer(4)]],\n    \
             uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],\n    \
             uint3 tgid [[threadgroup_position_in_grid]], uint3 size [[threads_per_threadgroup]],\n    \
             uint lid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {{\n    \
             const uint me = gid.x + grid.x * (gid.y + grid.y * gid.z);\n    \
             const uint count = size.x * size.y * size.z;\n    \
             const uint out_words = grid.x * grid.y * grid.z * {WORDS}u;\n    \
             threadgroup uint sh[{MOST_THREADS}];\n    sh[lid] = in[lid & 255u] ^ me;\n    \
             threadgroup atomic_uint ta[4];\n    \
             if (lid == 0u) {{ {} }}\n",
            // No loop: a divergent loop would exclude joint execution of several vectors for all loops.
            (0..4)
                .map(|k| format!("atomic_store_explicit(&ta[{k}], {k}u, memory_order_relaxed);"))
                .collect::<String>()
        );
        out.push_str(&statement::declarations(&self.name()));
        out.push_str("    threadgroup_barrier(mem_flags::mem_threadgroup);\n");
        let mut body = String::new();
        for statement in &self.body {
            statement.write(1, &mut body);
        }
        out.push_str(&body);
        out.push_str(&statement::last(&body));
        out.push_str("}\n");
        out
    }

    /// A source with only this kernel, after a comment with its launch.
    pub fn source(&self) -> String {
        let Shape { threads, group } = self.shape;
        let Setting { lanes, processor, optimized, checked, stoppable, large, dynamic, grid } = self.setting;
        format!(
            "// seed {} threads {threads:?} group {group:?} n {}\n\
             // lanes {lanes} processor {} optimized {optimized} checked {checked} stoppable {stoppable} large {large} \
             dynamic {dynamic} grid {grid}\n{}{}",
            self.seed,
            self.n,
            processor.unwrap_or("native"),
            header(),
            self.text()
        )
    }
}

/// Inserts log calls between statements, in this share of the places.
fn insert_logs(random: &mut Random, body: &mut Vec<Statement>, share: usize, calls: &mut u32) {
    for statement in body.iter_mut() {
        statement.parts.iter_mut().for_each(|(_, body)| insert_logs(random, body, share, calls));
    }
    for at in (0..=body.len()).rev() {
        if random.percent(share) {
            body.insert(at, Statement::line(statement::log(random, *calls)));
            *calls += 1;
        }
    }
}

/// The first lines of a source.
pub(crate) fn header() -> String {
    format!("#include <metal_stdlib>\nusing namespace metal;\n{}", index::MACROS)
}

/// Processors of all vector widths, mostly with a fitting width, because the cost grows with the difference. One batch in thirteen
/// is optimized.
fn setting(seed: u64) -> Setting {
    #[cfg(target_arch = "x86_64")]
    let processors: [(_, [u32; 16]); 4] = [
        (None, [16, 32, 8, 16, 4, 16, 8, 16, 16, 32, 16, 4, 16, 8, 16, 16]),
        (Some("x86-64"), [4, 4, 4, 8, 4, 4, 4, 8, 4, 4, 16, 4, 4, 8, 4, 32]),
        (None, [16, 16, 8, 16, 32, 16, 16, 4, 16, 8, 16, 16, 32, 16, 4, 8]),
        (Some("x86-64-v3"), [8, 8, 4, 8, 8, 4, 8, 16, 8, 8, 4, 8, 32, 8, 16, 8]),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let processors: [(_, [u32; 4]); 1] = [(None, [4, 8, 16, 32])];
    let batch = seed / BATCH;
    let (processor, lanes) = processors[(batch % processors.len() as u64) as usize];
    Setting {
        lanes: lanes[seed as usize % lanes.len()],
        processor,
        optimized: batch.is_multiple_of(13),
        checked: seed % 11 == 5,
        stoppable: seed % 7 == 3,
        large: seed % 5 == 2,
        dynamic: seed % 3 == 1,
        grid: seed % 5 == 3,
    }
}

fn shape(random: &mut Random) -> Shape {
    let group = group(random);
    launch(random, group)
}

fn group(random: &mut Random) -> [u32; 3] {
    match random.below(20) {
        0 => [1, 1, 1],
        1 => [random.below(MOST_THREADS) as u32 + 1, 1, 1],
        2 => [random.pick(&[64, 96, 128]), 1, 1],
        3 => [32, random.below(5) as u32 + 1, 1],
        4 | 5 => [32, 1, 1],
        6..=8 => [random.below(64) as u32 + 1, 1, 1],
        9..=11 => [random.pick(&[8, 16]), random.pick(&[2, 4]), 1],
        12..=14 => [random.below(9) as u32 + 1, random.below(7) as u32 + 1, 1],
        15..=17 => [random.below(5) as u32 + 1, random.below(4) as u32 + 1, random.below(3) as u32 + 1],
        _ => [1, random.below(7) as u32 + 1, random.below(4) as u32 + 1],
    }
}

/// Random threadgroups of this size.
fn launch(random: &mut Random, group: [u32; 3]) -> Shape {
    let mut threads = [1; 3];
    // Limits the number of threadgroups, because the interpreter is slow.
    let mut most = (FEW_THREADS / group.iter().product::<u32>()).clamp(2, 6);
    for d in 0..3 {
        let groups = random.below(most.min(3) as usize) as u32 + 1;
        most /= groups;
        let whole = group[d] * groups;
        threads[d] = if random.percent(50) { whole } else { whole - random.below(group[d] as usize) as u32 };
    }
    Shape { threads, group }
}
