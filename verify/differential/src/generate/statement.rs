//! Random statements.

use super::Statement;
use super::expression::{INTEGERS, Scope, condition, float, integer, uniform_condition, vector};
use crate::random::Random;

/// The kernel's own variables and their first values.
pub(crate) fn declarations(name: &str) -> String {
    format!(
        "    char c = char(me); uchar uc = uchar(in[me & 255u]); short s = short(in[(me + 1u) & 255u]);\n    \
         ushort us = ushort(lid); int i = int(in[(me * 3u) & 255u]); uint u = me ^ n;\n    \
         long l = long(in[lid & 255u]) << 16; ulong ul = ulong(me) * 0x100000001ul; float f = float(me & 15u);\n    \
         half h = half(lid & 7u); bool b = (me & 2u) != 0u;\n    \
         int4 v = int4(int(me), i, int(n), 7); ushort4 w = ushort4(us, ushort(s), 3, ushort(i));\n    \
         int arr[8] = {{1, i, 3, int(u), 5, 6, 7, int(lid)}};\n    \
         S{name} st; st.a = i; st.b = us; st.c = uchar4(1, uc, 3, 4); st.d = l; st.e = f; st.f = c; st.g = uint2(u, n);\n"
    )
}

/// Prologue of a helper.
const HELPER_DECLARATIONS: &str = "char c = char(x); uchar uc = uchar(y); short s = short(x >> 3); ushort us = 9; int i = x; uint u = uint(y); \
     long l = x; ulong ul = ulong(y); float f = float(x & 15); half h = half(x & 7); bool b = y > 3; int4 v = int4(x, int(y), 3, 4); ushort4 w = ushort4(us);";

/// Epilogue: stores the variables to the thread's elements; array and struct only if `body` has them.
pub(crate) fn last(body: &str) -> String {
    let has = |names: &[&str]| names.iter().any(|name| body.contains(name));
    let array = if has(&["arr"]) { ARRAY } else { "" };
    let structure = if has(&["st.", "st,", "= st"]) { STRUCT } else { "" };
    format!("{SCALARS}{array}{structure}")
}

const SCALARS: &str = "    out[me * 4u] += uint(c) * 3u + uint(uc) * 5u + uint(s) * 7u + uint(us) * 11u + uint(int(f)) + uint(int(h)) * 3u + uint(b);
    out[me * 4u + 1u] ^= uint(i) * 13u + u * 17u + uint(l) + uint(l >> 32) * 19u + uint(ul) * 23u + uint(ul >> 32);
    out[me * 4u + 2u] += uint(v.x + v.y * 3 + v.z * 5 + v.w * 7) + uint(w.x + w.y + w.z * 3 + w.w);
";
const ARRAY: &str =
    "    for (int k = 0; k < 8; ++k) out[me * 4u + 3u] = out[me * 4u + 3u] * 31u + uint(arr[k]);\n";
const STRUCT: &str = "    out[me * 4u + 3u] += uint(st.a) + uint(st.b) + uint(st.c.x + st.c.y * 3 + st.c.w) + uint(st.d) + uint(int(st.e)) + uint(st.f) + st.g.x * 3u + st.g.y;\n";

/// The log call with this number.
pub(crate) fn log(r: &mut Random, number: u32) -> String {
    let values = [
        ("%u", "u"),
        ("%d", "i"),
        ("%ld %lx", "l, ul"),
        ("%hhd %hu", "c, us"),
        ("%v4d", "v"),
        ("%v4hx", "w"),
        ("%g %.2f", "f, h"),
        ("%d %s", "b, \"text\""),
        ("%v4d %v4d %u", "v, v.wzyx, u"),
        ("", ""),
    ];
    match r.pick(&values) {
        ("", _) => format!("printf(\"{number}\");"),
        (format, values) => format!("printf(\"{number} {format}\", {values});"),
    }
}

type Helpers = Vec<(String, Vec<Statement>)>;

/// Helpers and body of the kernel of a seed. Mostly small, because compilation time grows with size.
pub(crate) fn kernel(r: &mut Random, seed: u64) -> (Helpers, Vec<Statement>) {
    let (helpers, most, budget) = match r.below(60) {
        0 => (2, 8, 24),
        1..=4 => (1, 4, 9),
        5..=9 => (1, 2, 3),
        _ => (0, 3, 4),
    };
    let exchanging = r.percent(12);
    let together = r.percent(20);
    let scope = Scope { kernel: false, seed };
    let mut writer = Writer {
        r,
        loops: 0,
        scope,
        helpers: 0,
        exchanging: false,
        together,
        budget,
        barriers: 0,
        loops_with_barriers: false,
    };
    let helpers: Helpers = (0..helpers).map(|index| writer.helper(index)).collect();
    (writer.scope.kernel, writer.helpers, writer.exchanging) = (true, helpers.len(), exchanging);
    writer.budget = budget;
    let count = 1 + writer.r.below(most);
    let mut body: Vec<Statement> = (0..count).map(|_| writer.top(2)).collect();
    if together {
        body.push(writer.rounds(1));
    }
    (helpers, body)
}

/// The body of a kernel with up to this many barriers in divergent control flow, if there is one not in loops, and operations across
/// simdgroups. No values are exchanged through memory.
pub(crate) fn divergent(r: &mut Random, seed: u64, barriers: usize) -> Vec<Statement> {
    let loops_with_barriers = barriers > 1;
    let scope = Scope { kernel: true, seed };
    let (together, exchanging) = (false, true);
    let mut writer = Writer {
        r,
        loops: 0,
        scope,
        helpers: 0,
        exchanging,
        together,
        budget: 3,
        barriers,
        loops_with_barriers,
    };
    let mut body = Vec::new();
    for _ in 0..1 + writer.r.below(2) {
        body.push(writer.inner(2, NOWHERE));
        body.push(writer.across());
    }
    body
}

/// Possible exits from a statement.
type Leaves = &'static [&'static str];
const NOWHERE: Leaves = &[];
const LOOP: Leaves = &["break", "continue"];
const SWITCH_IN_LOOP: Leaves = &["continue"];

struct Writer<'a> {
    r: &'a mut Random,
    /// Number of loops so far, for counter names.
    loops: usize,
    scope: Scope,
    /// Helpers that may be called.
    helpers: usize,
    /// Whether simdgroup functions may be called.
    exchanging: bool,
    /// Whether all loops of the kernel itself are uniform, so that several vectors can execute them together.
    together: bool,
    /// Remaining number of statements.
    budget: usize,
    /// Remaining number of barriers in divergent control flow.
    barriers: usize,
    /// Whether they may be in loops.
    loops_with_barriers: bool,
}

impl Writer<'_> {
    fn helper(&mut self, index: usize) -> (String, Vec<Statement>) {
        let seed = self.scope.seed;
        let head = format!(
            "static int h{index}k{seed}(thread int* arr, Sk{seed} st, int x, long y) {{ {HELPER_DECLARATIONS}"
        );
        self.budget = self.budget.min(6);
        let mut body: Vec<Statement> = (0..1 + self.r.below(2)).map(|_| self.inner(2, NOWHERE)).collect();
        if self.r.percent(50) {
            let condition = condition(self.r, self.scope, 1);
            body.push(Statement::line(format!("if ({condition}) return i;")));
            body.push(self.inner(1, NOWHERE));
        }
        body.push(Statement::line("return i + int(u) + int(l) + int(c) + v.y + int(w.z) + int(f) + int(h) * 3 + int(b) + int(s) * int(uc) + int(us) + int(ul);"));
        (head, body)
    }

    fn expression(&mut self, depth: usize) -> String {
        integer(self.r, self.scope, depth)
    }

    fn condition(&mut self) -> String {
        condition(self.r, self.scope, 1)
    }

    fn counter(&mut self) -> String {
        self.loops += 1;
        format!("q{}", self.loops)
    }

    /// A statement that all active threads of the threadgroup reach together.
    fn top(&mut self, depth: usize) -> Statement {
        match self.r.below(if depth == 0 { 4 } else { 10 }) {
            0 if self.exchanging => self.across(),
            0 | 1 => self.exchange(),
            2 | 3 => self.aside(2),
            4 => {
                let head = format!("if ({}) {{", uniform_condition(self.r));
                let mut parts = vec![(head, self.tops(depth - 1))];
                if self.r.percent(40) {
                    parts.push(("} else {".into(), self.tops(depth - 1)));
                }
                Statement { parts, end: "}".into() }
            }
            5 | 6 => self.rounds(depth),
            7 if !self.together && self.r.percent(40) => {
                let condition = self.condition();
                Statement::line(format!("if ({condition}) {{ out[me * 4u] += 77u; return; }}"))
            }
            _ => self.aside(3),
        }
    }

    /// A uniform loop.
    fn rounds(&mut self, depth: usize) -> Statement {
        let q = self.counter();
        let bound = self.r.pick(&["(n & 3u) + 1u", "3u", "(in[n & 255u] & 3u)"]);
        let mut body = self.tops(depth - 1);
        if self.r.percent(30) {
            body.push(Statement::line(format!("if ({}) break;", uniform_condition(self.r))));
            body.extend(self.tops(0));
        }
        let head = format!("for (uint {q} = 0; {q} < {bound}; ++{q}) {{");
        Statement { parts: vec![(head, body)], end: "}".into() }
    }

    /// A statement that may be divergent.
    fn aside(&mut self, depth: usize) -> Statement {
        if self.together { self.simple(NOWHERE) } else { self.inner(depth, NOWHERE) }
    }

    fn tops(&mut self, depth: usize) -> Vec<Statement> {
        (0..1 + self.r.below(2)).map(|_| self.top(depth)).collect()
    }

    /// Exchange through threadgroup memory: write, barrier, read, barrier.
    fn exchange(&mut self) -> Statement {
        let (value, index) = (self.expression(1), self.expression(1));
        let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
        if self.r.percent(25) {
            return Statement::line(format!(
                "{{ {barrier} u ^= atomic_load_explicit(&ta[uint({index}) & 3u], memory_order_relaxed); {barrier} }}"
            ));
        }
        if !self.together && self.r.percent(25) {
            return self.first_threads(&value, &index);
        }
        let write = match self.together || self.r.percent(70) {
            true => format!("sh[lid] = uint({value});"),
            false => format!("if ({}) sh[lid] = uint({value});", self.condition()),
        };
        Statement::line(format!("{{ {write} {barrier} u += sh[uint({index}) % count]; {barrier} }}"))
    }

    /// Work of a subset of threads between barriers; sometimes repeated.
    fn first_threads(&mut self, value: &str, index: &str) -> Statement {
        let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
        let read = format!("u ^= sh[uint({index}) % count]; {barrier}");
        if self.r.percent(40) {
            let q = self.counter();
            let least = self.r.pick(&["0u", "1u", "n & 7u"]);
            return Statement::line(format!(
                "{{ sh[lid] = uint({value}); {barrier}
        for (uint {q} = count / 2u; {q} > {least}; {q} /= 2u) {{ if (lid < {q}) sh[lid] += sh[lid + {q}] * 3u; {barrier} }}
        {read} }}"
            ));
        }
        let number = self.r.pick(&["lid", "lid * 3u + 1u", "lid / 4u", "(lid >> 1)", "gid.x"]);
        let limit = self.r.pick(&["n", "count / 3u", "0u", "37u", "(in[n & 255u] & 63u)", "tgid.x * 5u"]);
        let compare = self.r.pick(&["<", "<=", "==", ">", ">=", "!="]);
        let kept = self.r.pick(&["", "", "u += in[lid & 255u];"]);
        let end = self.r.pick(&["", "", "", "out[me * 4u + 1u] += u; return;"]);
        Statement::line(format!(
            "{{ {barrier} {kept} if ({number} {compare} {limit}) {{ sh[lid] = uint({value}) + u; {end} }} {barrier} {read} }}"
        ))
    }

    /// A simdgroup operation.
    fn across(&mut self) -> Statement {
        let (ty, name) = self.r.pick(&[
            ("uint", "u"),
            ("int", "i"),
            ("ushort", "us"),
            ("short", "s"),
            ("char", "c"),
            ("ulong", "ul"),
        ]);
        let group = self.r.pick(&["simd", "quad"]);
        let value = format!("{ty}({})", self.expression(1));
        let call = match self.r.below(6) {
            0 | 1 if ty != "ulong" => {
                format!("{}({value})", self.r.pick(&["sum", "min", "max", "and", "or", "xor", "product"]))
            }
            2 if ty != "ulong" => {
                let function = self.r.pick(&["prefix_exclusive_sum", "prefix_inclusive_sum"]);
                format!("{function}({value})")
            }
            3 => format!("broadcast_first({value})"),
            4 => {
                let (function, condition) = (self.r.pick(&["all", "any"]), self.condition());
                return Statement::line(format!("b = {group}_{function}({condition});"));
            }
            // The value of an inactive lane is undefined.
            _ => {
                let from = match self.r.below(3) {
                    0 => format!("{}", self.r.below(32)),
                    1 => format!("(lane ^ {}u)", self.r.below(32)),
                    _ => format!("(uint({}) & 31u)", self.expression(1)),
                };
                let there = format!("(ulong(simd_active_threads_mask()) >> {from} & 1ul) != 0ul");
                return Statement::line(format!(
                    "{{ {ty} got = simd_shuffle({value}, ushort({from})); if ({there}) {name} += got; }}"
                ));
            }
        };
        Statement::line(format!("{name} += {ty}({group}_{call});"))
    }

    /// A statement in divergent control flow.
    fn inner(&mut self, depth: usize, leaves: Leaves) -> Statement {
        if depth == 0 || self.budget == 0 {
            return self.simple(leaves);
        }
        self.budget -= 1;
        match self.r.below(9) {
            0 | 1 => {
                let head = format!("if ({}) {{", self.condition());
                let mut parts = vec![(head, self.inners(depth - 1, leaves))];
                if self.r.percent(50) {
                    parts.push(("} else {".into(), self.inners(depth - 1, leaves)));
                }
                Statement { parts, end: "}".into() }
            }
            2 | 3 => {
                let (q, mut bound) = (self.counter(), self.expression(1));
                if self.loops_with_barriers && self.r.percent(60) {
                    bound = self.r.pick(&["n", "3u", "in[n & 255u]"]).into();
                }
                let most = if depth > 2 { 7 } else { 3 };
                let head = format!("for (uint {q} = 0; {q} < (uint({bound}) & {most}u); ++{q}) {{");
                Statement { parts: vec![(head, self.inners(depth - 1, LOOP))], end: "}".into() }
            }
            4 => {
                let (q, condition) = (self.counter(), self.condition());
                let head = format!("{{ int {q} = 0; do {{ ++{q};");
                let end = format!("}} while ({q} < 3 && ({condition})); }}");
                Statement { parts: vec![(head, self.inners(depth - 1, LOOP))], end }
            }
            5 => {
                let head = format!("switch (uint({}) & 3u) {{", self.expression(1));
                let leaves = if leaves.is_empty() { NOWHERE } else { SWITCH_IN_LOOP };
                let mut parts = vec![(head, Vec::new())];
                for case in 0..2 + self.r.below(2) {
                    parts.push((format!("case {case}: {{"), self.inners(depth - 1, leaves)));
                    let leave = if self.r.percent(70) { "} break;" } else { "}" };
                    parts.push((leave.into(), Vec::new()));
                }
                if self.r.percent(50) {
                    parts.push(("default: {".into(), self.inners(depth - 1, leaves)));
                    parts.push(("}".into(), Vec::new()));
                }
                Statement { parts, end: "}".into() }
            }
            _ => self.simple(leaves),
        }
    }

    fn inners(&mut self, depth: usize, leaves: Leaves) -> Vec<Statement> {
        (0..1 + self.r.below(3)).map(|_| self.inner(depth, leaves)).collect()
    }

    fn simple(&mut self, leaves: Leaves) -> Statement {
        let allowed = self.loops_with_barriers || leaves.is_empty();
        if allowed && self.barriers > 0 && self.r.percent(40) {
            self.barriers -= 1;
            return Statement::line("threadgroup_barrier(mem_flags::mem_none);");
        }
        let depth = if self.r.percent(30) { 2 } else { 1 };
        let e = self.expression(depth);
        Statement::line(match self.r.below(if self.scope.kernel { 20 } else { 11 }) {
            0 | 1 => {
                let at = self.r.below(INTEGERS.len());
                let name = ["c", "uc", "s", "us", "i", "u", "l", "ul"][at];
                format!("{name} {} {}({e});", self.r.pick(&["=", "+=", "^="]), INTEGERS[at].0)
            }
            2 => format!("arr[uint({}) & 7u] = int({e});", self.expression(1)),
            3 => match self.r.below(3) {
                0 => format!("v = {};", vector(self.r, self.scope, 2)),
                1 => format!("v.zx = int2(int({e}), v.w);"),
                _ => format!("w.yw = ushort2(ushort({e}), w.x);"),
            },
            4 => match self.r.below(4) {
                0 => format!("st.a = int({e});"),
                1 => format!("st.c.zy = uchar2(uchar({e}), st.c.x);"),
                2 => format!("st.d = long({e});"),
                _ => format!("st.g = uint2(uint({e}), st.g.x);"),
            },
            5 => {
                let value = float(self.r, self.scope, 2);
                let name = self.r.pick(&[("f", "float"), ("h", "half")]);
                format!("{} = {}(int({value}) & 15);", name.0, name.1)
            }
            6 | 7 if !leaves.is_empty() => {
                let condition = self.condition();
                format!("if ({condition}) {};", self.r.pick(leaves))
            }
            6 => format!("if ({}) i = int({e});", self.condition()),
            7 => format!("b = {};", self.condition()),
            8 => {
                let (condition, other) = (self.condition(), self.expression(1));
                format!(
                    "{{ thread int* p = ({condition}) ? &arr[uint({other}) & 7u] : &arr[2]; *p += int({e}); }}"
                )
            }
            9 if self.r.percent(30) => {
                let condition = self.condition();
                let leave = if self.scope.kernel { "{ out[me * 4u] += 77u; return; }" } else { "return i;" };
                format!("if ({condition}) {leave}")
            }
            11 | 12 => {
                let (slot, call) =
                    [(0, "add"), (1, "xor"), (2, "or"), (3, "and"), (4, "max"), (5, "min")][self.r.below(6)];
                let fence = fence(e.len());
                format!("atomic_fetch_{call}_explicit(&acc[{slot}], uint({e}), memory_order_relaxed);{fence}")
            }
            13 => {
                let (slot, call) = [(0, "add"), (1, "xor"), (2, "or"), (3, "max")][self.r.below(4)];
                format!("atomic_fetch_{call}_explicit(&ta[{slot}], uint({e}), memory_order_relaxed);")
            }
            14 => format!("out[me * 4u + (uint({e}) & 3u)] += {}u;", self.r.below(1000)),
            15 => format!("u ^= out[me * 4u + (uint({e}) & 3u)];"),
            16 => format!("{{ auto copy = st; copy.a += int({e}); st = copy; }}"),
            17 => {
                let condition = self.condition();
                format!("{{ device const uint* p = ({condition}) ? in : in + 5; u += p[uint({e}) & 127u]; }}")
            }
            18 if self.helpers > 0 => {
                let (index, seed) = (self.r.below(self.helpers), self.scope.seed);
                format!("i += h{index}k{seed}(arr, st, int(u), {e});")
            }
            19 if self.exchanging => return self.across(),
            _ => format!("i += int({e});"),
        })
    }
}

/// A fence of some order and scope, or none, by a number, so that no other random number is drawn.
fn fence(number: usize) -> String {
    let pick = |choices: &[&'static str], by: usize| choices[number / by % choices.len()];
    if number % 2 == 1 {
        return String::new();
    }
    let flags = pick(&["mem_device", "mem_threadgroup"], 2);
    let order = pick(&["relaxed", "acquire", "release", "acq_rel", "seq_cst"], 4);
    let scope = pick(&["thread", "simdgroup", "threadgroup", "device", "system"], 20);
    format!(" atomic_thread_fence(mem_flags::{flags}, memory_order_{order}, thread_scope_{scope});")
}
