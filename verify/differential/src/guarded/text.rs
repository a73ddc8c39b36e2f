//! The text of random kernels with arbitrary pointers.
//!
//! The values of indices and pointers depend on the numbers in `k`: with small ones nearly all accesses are in bounds, and a
//! single thread has one result; with others they are arbitrary. Loop counters have no address, so every kernel ends.

use crate::random::Random;

/// Maximum number of elements of an argument.
pub(crate) const BYTES: [usize; 7] = [96 * 4, 384, 24 * 24, 16 * 8, 16 * 4, 24, 16 * 8];
/// Size of the threadgroup argument in bytes.
pub(crate) const DYNAMIC: usize = 64 * 4;
/// Index of each argument in [`BYTES`].
pub(crate) const CONTROL: usize = 3;
pub(crate) const REFERENCE: usize = 5;
/// Numbers in `k` below this keep accesses in bounds.
pub(crate) const SMALL: usize = 3;

pub(crate) const HEADER: &str = "#include <metal_stdlib>
using namespace metal;
struct S { uint u[3]; ushort h; uchar2 c; ulong w; };
struct P { long n; uint m[4]; };
constant uint table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
static void fill(device uchar* to, device const uchar* from, uint n) { for (uint q = 0; q < n; ++q) to[q] = from[q]; }
static uint sum(device const uint* from, uint n) { uint r = 0; for (uint q = 0; q < n; ++q) r += from[q]; return r; }
template <typename T> static T through(thread T* p, long at) { return p[at]; }
";

const DECLARATIONS: &str = "    uint x = me * 5u + 1u, y = p.m[1]; ulong w = ulong(k[1]); uint arr[8] = {1, x, 3, y, 5, 6, 7, 8};
    uint4 vec = uint4(x, y, 3, 4); S loc; loc.u[0] = x; loc.u[1] = 2; loc.u[2] = y; loc.h = 5; loc.c = uchar2(1, 2); loc.w = w;
    device uint* pa = a; device uchar* pb = b; device S* ps = s; device ulong* pw = (device ulong*)b; device uint4* pv = (device uint4*)a;
    device uint* nul = nullptr; thread uint* pt = arr; threadgroup uint* pg = sh;
";

/// The text of a kernel.
pub(crate) fn kernel(seed: u64, threads: u32) -> String {
    let mut r = Random::new(seed ^ 0xc4ec_4ed0);
    let mut writer = Writer { loops: 0, odd: r.percent(8), r: &mut r };
    let mut body = String::new();
    for _ in 0..2 + writer.r.below(7) {
        body.push_str(&format!("    {}\n", writer.top()));
    }
    format!(
        "kernel void k{seed}(device uint* a [[buffer(0)]], device uchar* b [[buffer(1)]], device S* s [[buffer(2)]],\n    \
         device const long* k [[buffer(3)]], device atomic_uint* at [[buffer(4)]], constant P& p [[buffer(5)]],\n    \
         constant short4* v [[buffer(6)]], threadgroup uint* dyn [[threadgroup(0)]],\n    \
         uint me [[thread_position_in_grid]], uint lid [[thread_index_in_threadgroup]]) {{\n    \
         threadgroup uint sh[16]; threadgroup ulong2 wide[4]; threadgroup atomic_uint ta[4];\n    \
         if (lid == 0u) {{ for (uint q = 0; q < 16u; ++q) sh[q] = q * 7u; for (uint q = 0; q < 4u; ++q) {{ wide[q] = ulong2(q, 1); \
         atomic_store_explicit(&ta[q], q, memory_order_relaxed); }} for (uint q = 0; q < 64u; ++q) dyn[q] = q; }}\n    \
         threadgroup_barrier(mem_flags::mem_threadgroup);\n{DECLARATIONS}{body}    \
         a[me % {threads}u] += x + y * 3u + uint(w) + vec.x + vec.z * 5u + arr[me & 7u] + loc.u[1] + uint(loc.w);\n}}\n"
    )
}

struct Writer<'a> {
    r: &'a mut Random,
    loops: usize,
    /// Whether unsupported constructs are generated, for which checked compilation may be rejected.
    odd: bool,
}

impl Writer<'_> {
    fn counter(&mut self) -> String {
        self.loops += 1;
        format!("q{}", self.loops)
    }

    /// A number that is below 8 if those in `k` are small.
    fn index(&mut self) -> String {
        let c = self.r.below(16);
        match self.r.below(14) {
            0..=2 => format!("k[{c}]"),
            3 => format!("(k[{c}] + {})", self.r.below(6)),
            4 => format!("{}(k[{c}])", self.r.pick(&["int", "uint", "short", "uchar", "ulong"])),
            5 => "long(lid & 7u)".into(),
            // Those in `k` ascend.
            6 => format!("(k[{}] - k[{c}])", c + self.r.below(16 - c)),
            7 => format!("(k[{c}] * 3)"),
            8 => format!("(ulong(k[{c}]) - 5ul + {}ul)", 5 + self.r.below(6)),
            9 => format!("(uint(k[{c}]) + 0xfffffff0u + 16u)"),
            10 => format!("{}", self.r.below(8)),
            11 => format!("(p.n + k[{c}])"),
            12 => format!("(k[{c}] << 1)"),
            _ => format!("(k[{c}] ^ (k[{}] & 4))", self.r.below(16)),
        }
    }

    /// An unsigned number.
    fn value(&mut self) -> String {
        let index = self.index();
        match self.r.below(14) {
            0 | 1 => "x".into(),
            2 => "y".into(),
            3 => format!("a[{index}]"),
            4 => format!("uint(b[{index}])"),
            5 => format!("uint(v[{index}].z)"),
            6 => format!("table[{index}]"),
            7 => format!("{}u", self.r.next() as u32),
            8 => format!("arr[{index}]"),
            9 => format!("sh[{index}]"),
            10 => format!("s[{index}].u[{}]", self.index()),
            // The sum, since `(uint(uint(k[1])))` before `&` would be a type, and the rest an address.
            11 => format!("uint(0 + {index})"),
            12 => format!("p.m[{}]", self.r.below(4)),
            _ => format!("(x * {}u + y)", self.r.below(100)),
        }
    }

    fn condition(&mut self) -> String {
        let value = self.value();
        format!("(({value}) & {}u) != 0u", 1 << self.r.below(4))
    }

    /// A pointer to `device uint`.
    fn address(&mut self) -> String {
        let index = self.index();
        match self.r.below(14) {
            0 => format!("a + {index}"),
            1 => format!("pa + {index}"),
            2 => format!("pa - {index} + {}", self.r.below(8)),
            3 => format!("(device uint*)(b + {index} * 4)"),
            4 => format!("(device uint*)(pb + {index})"),
            5 => format!("&s[{index}].u[{}]", self.index()),
            6 => format!("({}) ? pa : (device uint*)s + {index}", self.condition()),
            7 => format!("({}) ? a : nul", self.condition()),
            8 => format!("nul + {index}"),
            9 => format!("(device uint*)&ps[{index}]"),
            10 => format!("(device uint*)(pw + {index})"),
            11 => format!("(device uint*)(at + {index})"),
            12 => format!("&a[{index}] + ({} - {})", self.r.below(8), self.r.below(4)),
            _ => format!("(device uint*)((device ulong*)a + {index})"),
        }
    }

    fn top(&mut self) -> String {
        match self.r.below(12) {
            0 => "threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);".into(),
            1..=3 => self.block(2),
            _ => self.simple(),
        }
    }

    fn block(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.simple();
        }
        let inner =
            |w: &mut Self| (0..1 + w.r.below(3)).map(|_| w.block(depth - 1) + " ").collect::<String>();
        match self.r.below(7) {
            0 | 1 => {
                let (condition, yes, no) = (self.condition(), inner(self), inner(self));
                format!("if ({condition}) {{ {yes} }} else {{ {no} }}")
            }
            2 | 3 => {
                let (q, bound, body) = (self.counter(), self.value(), inner(self));
                let leave = if self.r.percent(30) {
                    format!("if ({}) break; ", self.condition())
                } else {
                    String::new()
                };
                format!("for (uint {q} = 0; {q} < (({bound}) & 3u); ++{q}) {{ {leave}{body} }}")
            }
            4 => {
                let (q, pointer, bound) = (self.counter(), self.address(), self.index());
                let does = self.r.pick(&["*z += x", "x ^= *z", "*z = y"]);
                format!(
                    "{{ uint {q} = uint({bound}) & 15u; for (device uint* z = {pointer}; {q} > 0u; ++z, --{q}) {does}; }}"
                )
            }
            _ => self.simple(),
        }
    }

    fn simple(&mut self) -> String {
        if self.odd && self.r.percent(20) {
            return self.refusable();
        }
        match self.r.below(5) {
            0 => self.moves(),
            1 | 2 => self.through_device(),
            3 => self.own(),
            _ => self.whole(),
        }
    }

    /// Reassigns a pointer.
    fn moves(&mut self) -> String {
        let index = self.index();
        match self.r.below(10) {
            0..=2 => format!("pa = {};", self.address()),
            3 => format!("pa {}= {index};", self.r.pick(&["+", "-"])),
            4 => self.r.pick(&["++pa;", "--pb;", "++pb;", "ps++;", "pv += 1;", "pw--;"]).into(),
            5 => format!("pb = (device uchar*)({}) + {index};", self.address()),
            6 => format!("ps = ({}) ? s + {index} : (device S*)pa;", self.condition()),
            7 => format!("pw = (device ulong*)({});", self.address()),
            8 => format!("pv = (device uint4*)(a + {index} * 4);"),
            _ => format!("pt = ({}) ? arr + {index} : &loc.u[0];", self.condition()),
        }
    }

    /// Reads and writes of arguments.
    fn through_device(&mut self) -> String {
        let (index, value) = (self.index(), self.value());
        match self.r.below(16) {
            0 => format!("a[{index}] = {value};"),
            1 => format!("pa[{index}] += {value};"),
            2 => format!("*({}) = {value};", self.address()),
            3 => format!("x ^= *({});", self.address()),
            4 => format!("pb[{index}] = uchar({value});"),
            5 => format!("w += pw[{index}];"),
            6 => format!("pw[{index}] = w;"),
            7 => format!("ps[{index}].u[{}] = {value};", self.index()),
            8 => format!("x += ps[{index}].c.y + uint(ps[{}].w);", self.index()),
            9 => format!(
                "atomic_fetch_{}_explicit(&at[{index}], {value}, memory_order_relaxed);",
                self.r.pick(&["add", "xor", "max"])
            ),
            10 => format!(
                "x += atomic_exchange_explicit((device atomic_uint*)({}), {value}, memory_order_relaxed);",
                self.address()
            ),
            11 => format!(
                "{{ uint was = x; if (atomic_compare_exchange_weak_explicit(&at[{index}], &was, y, memory_order_relaxed, memory_order_relaxed)) ++x; }}"
            ),
            12 => format!("*(device ushort*)(pb + {index} * 2) = ushort({value});"),
            13 => format!("x += uint(*(device const int*)(k + {index}));"),
            14 => format!("x ^= uint(v[{index}].y) + uint(((constant uchar*)v)[{}]);", self.index()),
            _ => format!("a[{index}] = uint(b[{}]) << 3;", self.index()),
        }
    }

    /// Reads and writes of threadgroup and private memory.
    fn own(&mut self) -> String {
        let (index, value) = (self.index(), self.value());
        match self.r.below(14) {
            0 => format!("arr[{index}] = {value};"),
            1 => format!("x += pt[{index}];"),
            2 => format!("pt[{index}] ^= {value};"),
            3 => format!("loc.u[{index}] = {value};"),
            4 => format!("x += through(arr, {index});"),
            5 => format!("sh[{index}] = {value};"),
            6 => format!("pg = ({}) ? dyn + {index} : sh;", self.condition()),
            7 => format!("pg[{index}] += {value};"),
            8 => format!("dyn[{index}] ^= {value};"),
            9 => format!("wide[{index}].y = w + {value};"),
            10 => format!("atomic_fetch_add_explicit(&ta[{index}], {value}, memory_order_relaxed);"),
            11 => format!("vec = ((thread uint4*)arr)[{index}];"),
            12 => format!(
                "{{ device uint* several[3] = {{a, pa, nul}}; x += several[{}][{index}]; }}",
                self.r.below(3)
            ),
            _ => format!("{{ thread uchar* bytes = (thread uchar*)&loc; bytes[{index}] = uchar({value}); }}"),
        }
    }

    /// Accesses of many bytes.
    fn whole(&mut self) -> String {
        let (index, other) = (self.index(), self.index());
        match self.r.below(13) {
            0 => format!("s[{index}] = s[{other}];"),
            1 => format!("loc = s[{index}];"),
            2 => "*ps = loc;".into(),
            3 => format!("ps[{index}] = loc;"),
            4 => format!("vec += pv[{index}];"),
            5 => format!("pv[{index}].zx = vec.xy;"),
            6 => format!("*(device packed_uint3*)({}) = packed_uint3(vec.xyz);", self.address()),
            7 => format!("fill(b + {index}, pb, uint({other}) & 31u);"),
            8 => format!("fill((device uchar*)(ps + {index}), b, uint({other}) & 4095u);"),
            9 => format!("x += sum({}, uint({other}) & 15u);", self.address()),
            10 => {
                let q = self.counter();
                format!("for (uint {q} = 0; {q} < (uint({other}) & 63u); ++{q}) pb[{q} + {index}] = 0;")
            }
            11 => format!(
                "{{ device S* from = (device S*)({}); S copy = *from; copy.u[{index}] += x; *from = copy; }}",
                self.address()
            ),
            _ => format!("vec.yw = ((device uint2*)a)[{index}];"),
        }
    }

    /// Pointers for which bounds may be unknown.
    fn refusable(&mut self) -> String {
        let (index, value) = (self.index(), self.value());
        match self.r.below(7) {
            0 => format!(
                "{{ union {{ ulong n; device uint* p; }} un; un.p = pa; un.n += ulong({index}) * 4ul; *un.p = {value}; }}"
            ),
            1 => format!(
                "{{ union {{ uint n[2]; device uint* p; }} un; un.p = pa; un.n[0] = x; y += un.p[{index}]; }}"
            ),
            2 => format!(
                "{{ device uint* several[3] = {{a, pa, nul}}; x += several[{index}][{}]; }}",
                self.index()
            ),
            3 => format!("*(device uint*)(ulong(a) + ulong({index}) * 4ul) = {value};"),
            4 => format!("((device long*)k)[{index}] = long({value});"),
            5 => format!("x += *(device uint*)(w + ulong({index}));"),
            _ => format!(
                "{{ device uint* several[2] = {{a, pa}}; thread uchar* bytes = (thread uchar*)several; bytes[{index}] = 1; x += *several[0]; }}"
            ),
        }
    }
}
