//! Random kernels of the subset, as Rust text. The build script writes them; rustc compiles them for the host, and the translator for devices.
//!
//! Generated kernels end and do not divide by zero, and index within bounds but for one thread of some; the rest is what Rust defines without overflow checks. Floating
//! point is limited to operations that IEEE 754 rounds correctly, and signs of zeros and NaN do not reach results.

mod expressions;
mod statements;

use std::fmt::Write;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ty {
    Int(&'static str),
    F32,
    Bool,
}

const INTS: [&str; 8] = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"];

impl Ty {
    fn name(self) -> &'static str {
        match self {
            Self::Int(name) => name,
            Self::F32 => "f32",
            Self::Bool => "bool",
        }
    }
}

fn bits(ty: &str) -> u32 {
    ty[1..].parse().unwrap_or(32)
}

fn signed(ty: &str) -> bool {
    ty.starts_with('i')
}

struct Variable {
    name: String,
    ty: Ty,
    mutable: bool,
}

struct Generator {
    random: Random,
    variables: Vec<Variable>,
    arrays: Vec<(String, Ty, usize)>,
    records: Vec<String>,
    in_helper: bool,
    /// Whether the threads have written the threadgroup's memory.
    tile: bool,
    next: usize,
    text: String,
    indent: usize,
    loops: Vec<String>,
    helpers: Vec<(String, Vec<Ty>, Ty)>,
    budget: usize,
    slot: usize,
}

/// Threads, in one threadgroup.
const THREADS: usize = 48;
/// Results of a thread.
const SLOTS: usize = 64;

/// What kernels use beside their own functions.
const PRELUDE: &str = "use elinvar::kernel::*;

#[derive(Clone, Copy, Debug, PartialEq, elinvar::KernelType)]
#[repr(C)]
pub struct Record {
    pub place: Vec4<f32>,
    pub wide: u64,
    pub id: u32,
    pub level: i16,
    pub small: [u8; 2],
}

#[derive(Clone, Copy, PartialEq, elinvar::KernelType)]
#[repr(u32)]
enum Mode {
    Low,
    High,
    Other,
}

#[elinvar::device]
const PRIMES: [u32; 8] = [2, 3, 5, 65_537, 2_147_483_647, 4_294_967_291, 11, 13];

#[elinvar::device]
fn bump(x: &mut u32) -> u32 {
    *x = x.wrapping_mul(5).wrapping_add(1);
    *x >> 3
}

#[elinvar::device]
fn advance(record: &mut Record, by: u32) {
    record.id += by;
    record.place = record.place.wzyx() * 0.5;
    record.small[(by % 2) as usize] ^= 0x5a;
}

#[elinvar::device]
fn mixed(record: &Record, by: u32) -> u32 {
    (record.id ^ by).rotate_left(record.level as u32 & 31) + record.small[0] as u32
}

#[elinvar::device]
fn poly<T: Number, const N: usize>(x: T, y: T) -> T {
    let mut sum = T::ONE;
    for _ in 0..N {
        sum = sum * x + y;
    }
    sum
}

#[elinvar::device]
fn largest<T: Number, const N: usize>(values: &[T; N]) -> T {
    let mut most = values[0];
    for k in 1..N {
        if values[k] > most {
            most = values[k];
        }
    }
    most
}

";

impl Generator {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{}{text}", "    ".repeat(self.indent));
    }

    fn name(&mut self, prefix: &str) -> String {
        self.next += 1;
        // Some names hide others.
        if prefix == "v" && self.random.one_in(12) && self.loops.is_empty() {
            "v0".into()
        } else {
            format!("{prefix}{}", self.next)
        }
    }

    fn ty(&mut self) -> Ty {
        match self.random.below(12) {
            0..8 => Ty::Int(self.random.pick(&INTS)),
            8..10 => Ty::F32,
            _ => Ty::Bool,
        }
    }

    fn int(&mut self) -> &'static str {
        self.random.pick(&INTS)
    }

    /// Adds a variable to the result.
    fn fold(&mut self, name: &str, ty: Ty) {
        let value = match ty {
            Ty::F32 => format!("(if {name}.is_nan() {{ 1 }} else {{ ({name} + 0.0).to_bits() as u64 }})"),
            _ => format!("({name} as u64)"),
        };
        let slot = self.slot % SLOTS;
        self.slot += 1;
        self.line(&format!("out[i * {SLOTS} + {slot}] ^= {value};"));
    }

    fn helper(&mut self, kernel: usize, index: usize) {
        let (types, result): (Vec<Ty>, Ty) =
            ((0..self.random.below(3) + 1).map(|_| self.ty()).collect(), self.ty());
        let name = format!("helper_{kernel}_{index}");
        self.variables = types
            .iter()
            .enumerate()
            .map(|(at, ty)| Variable { name: format!("x{at}"), ty: *ty, mutable: true })
            .collect();
        let parameters: Vec<String> =
            types.iter().enumerate().map(|(at, ty)| format!("mut x{at}: {}", ty.name())).collect();
        self.in_helper = true;
        self.line("#[elinvar::device]");
        self.line(&format!("fn {name}({}) -> {} {{", parameters.join(", "), result.name()));
        self.indent += 1;
        self.statements(2, 1);
        let (condition, early) = (self.expr(Ty::Bool, 2), self.expr(result, 1));
        self.line(&format!("if {condition} {{ return {early}; }}"));
        self.budget = 10;
        let value = self.expr(result, 3);
        self.line(&value);
        self.indent -= 1;
        self.line("}\n");
        self.in_helper = false;
        self.forget();
        self.helpers.push((name, types, result));
    }

    fn forget(&mut self) {
        self.variables.clear();
        self.arrays.clear();
        self.records.clear();
    }

    /// Writes a kernel; the thread that accesses a buffer out of bounds, if one does.
    fn kernel(&mut self, index: usize) -> Option<usize> {
        self.helpers.clear();
        for at in 0..self.random.below(3) {
            self.helper(index, at);
        }
        let together = self.random.one_in(6);
        let own = if together {
            ", #[thread_index_in_threadgroup] t: usize, #[threadgroup] tile: &mut [u32; 48], #[threadgroup] counts: &[AtomicU32; 8]"
        } else {
            ""
        };
        self.line("#[elinvar::kernel]");
        self.line(&format!(
            "pub fn kernel_{index}(a: &[i32], b: &[u64], f: &[f32], records: &[Record], table: Constant<u32>, out: &mut [u64], #[thread_position_in_grid] i: usize{own}) {{"
        ));
        self.indent += 1;
        self.slot = 0;
        if together {
            self.statements(3, 2);
            self.together();
        } else {
            self.statements(3, 2);
            if self.random.one_in(6) {
                self.budget = 8;
                let condition = self.expr(Ty::Bool, 2);
                self.line(&format!("if {condition} {{ return; }}"));
            }
            self.statements(4, 2);
        }
        let fault = (!together && self.random.one_in(12)).then(|| self.random.below(THREADS));
        if let Some(thread) = fault {
            self.budget = 8;
            let value = self.expr(Ty::Int("u32"), 2);
            let access = match self.random.below(4) {
                0 => format!("out[(i + 1) * {SLOTS} - 1] += a[({value} | 64) as usize] as u64;"),
                1 => format!("out[({value} | {}) as usize] = 1;", 4096),
                2 => format!("out[(i + 1) * {SLOTS} - 1] ^= records[({value} | 64) as usize].wide;"),
                _ => format!("out[(i + 1) * {SLOTS} - 1] |= table[({value} | 64) as usize] as u64;"),
            };
            self.line(&format!("if i == {thread} {{ {access} }}"));
        }
        for at in 0..self.variables.len() {
            let (name, ty) = (self.variables[at].name.clone(), self.variables[at].ty);
            if !self.variables[at + 1..].iter().any(|later| later.name == name) {
                self.fold(&name, ty);
            }
        }
        for (name, ty, length) in self.arrays.clone() {
            for at in 0..length {
                self.fold(&format!("{name}[{at}]"), ty);
            }
        }
        self.indent -= 1;
        self.line("}\n");
        self.tile = false;
        self.forget();
        fault
    }
}

/// The text of `count` kernels and a table of them, each with the thread that accesses a buffer out of bounds.
pub fn generate(seed: u64, count: usize) -> String {
    let mut generator = Generator {
        random: Random(seed),
        variables: Vec::new(),
        arrays: Vec::new(),
        records: Vec::new(),
        in_helper: false,
        tile: false,
        next: 0,
        text: String::new(),
        indent: 0,
        loops: Vec::new(),
        helpers: Vec::new(),
        budget: 0,
        slot: 0,
    };
    let mut out = String::from(PRELUDE);
    let mut table = String::from("macro_rules! with_all {\n    ($f:ident) => {{\n");
    for index in 0..count {
        let fault = generator.kernel(index);
        let _ = writeln!(table, "        $f!(kernel_{index}, {fault:?});");
    }
    out.push_str(&generator.text);
    out.push_str(&table);
    out.push_str("    }};\n}\n");
    out
}
