//! Random functions in OpenCL C against an OpenCL driver: expressions of vectors, components, conversions, control flow, arrays.
//!
//! What they compute is defined by OpenCL C: signed arithmetic that may overflow is done on unsigned integers, and float operations are not
//! contracted, because each is a statement of its own. `ELINVAR_RANDOM_OPENCL` is the number of functions, and `ELINVAR_RANDOM_SEED` the first seed.

use elinvar::Source;

use crate::support::pocl::Program;
use crate::support::{Argument, Launch, Random, Translated};

/// Functions of a source, which are computed by one kernel.
const BATCH: usize = 20;
const THREADS: usize = 64;
/// Words that a function writes at most.
const SLOTS: usize = 96;
/// Words of a thread's input.
const WORDS: usize = 16;

const SCALARS: [&str; 9] = ["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float"];
const LANES: [usize; 6] = [1, 2, 3, 4, 8, 16];

/// A type: index of the scalar, and number of components.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ty(usize, usize);

const INT: Ty = Ty(4, 1);
const FLOAT: usize = 8;

impl Ty {
    fn is_float(self) -> bool {
        self.0 == FLOAT
    }

    fn is_signed(self) -> bool {
        self.0.is_multiple_of(2)
    }

    /// log2 of the size of a component in bytes.
    fn size(self) -> usize {
        if self.is_float() { 2 } else { self.0 / 2 }
    }

    fn signed(self) -> Self {
        Self(self.size() * 2, self.1)
    }

    fn unsigned(self) -> Self {
        Self(self.size() * 2 + 1, self.1)
    }

    fn with(self, scalar: usize) -> Self {
        Self(scalar, self.1)
    }

    fn element(self) -> Self {
        Self(self.0, 1)
    }
}

impl std::fmt::Display for Ty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.1 {
            1 => f.write_str(SCALARS[self.0]),
            lanes => write!(f, "{}{lanes}", SCALARS[self.0]),
        }
    }
}

/// Writes a function.
struct Writer {
    random: Random,
    /// Variables that are visible, with their types.
    variables: Vec<(String, Ty)>,
    /// Arrays of eight elements.
    arrays: Vec<(String, Ty)>,
    names: usize,
    out: String,
    indent: usize,
}

impl Writer {
    fn below(&mut self, n: usize) -> usize {
        (self.random.next() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        let at = self.below(all.len());
        all[at]
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(&"    ".repeat(self.indent));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn ty(&mut self) -> Ty {
        let scalar = if self.below(5) == 0 { FLOAT } else { self.below(8) };
        let lanes = self.pick(&[1, 1, 1, 2, 3, 4, 4, 8, 16]);
        Ty(scalar, lanes)
    }

    fn literal(&mut self, ty: Ty) -> String {
        let text = match ty.0 {
            FLOAT => {
                let numerator = self.below(4000) as f64 - 2000.0;
                format!("{:?}f", numerator / 16.0)
            }
            _ if self.below(4) == 0 => {
                ["0", "1", "-1", "127", "128", "255", "32767", "65535"][self.below(8)].to_owned()
            }
            _ => self.below(1 << 20).to_string(),
        };
        format!("(({ty})({text}))")
    }

    fn variable(&mut self, ty: Ty) -> Option<String> {
        let found: Vec<&String> =
            self.variables.iter().filter(|(_, own)| *own == ty).map(|(name, _)| name).collect();
        let count = found.len();
        if count == 0 {
            return None;
        }
        let at = (self.random.next() % count as u64) as usize;
        Some(found[at].clone())
    }

    /// A condition.
    fn condition(&mut self, depth: usize) -> String {
        let ty = Ty(self.below(9), 1);
        match self.below(6) {
            0 if depth > 0 => format!("({} && {})", self.condition(depth - 1), self.condition(depth - 1)),
            1 if depth > 0 => format!("({} || !{})", self.condition(depth - 1), self.condition(depth - 1)),
            2 => {
                let lanes = self.pick(&LANES[1..]);
                let function = self.pick(&["any", "all"]);
                let of = Ty(self.pick(&[0, 2, 4, 6]), lanes);
                format!("{function}({})", self.expression(of, 1))
            }
            _ => {
                let op = self.pick(&["<", ">", "<=", ">=", "==", "!="]);
                format!("({} {op} {})", self.expression(ty, 1), self.expression(ty, 1))
            }
        }
    }

    /// An expression with exactly this type.
    fn expression(&mut self, ty: Ty, depth: usize) -> String {
        if depth == 0 || self.below(8) == 0 {
            return match self.variable(ty) {
                Some(name) if self.below(6) > 0 => name,
                _ => self.literal(ty),
            };
        }
        if ty.is_float() { self.float(ty, depth - 1) } else { self.integer(ty, depth - 1) }
    }

    fn float(&mut self, ty: Ty, depth: usize) -> String {
        match self.below(9) {
            0 => {
                let from = ty.with(self.below(8));
                format!("convert_{ty}({})", self.expression(from, depth))
            }
            1 => {
                let function = self.pick(&["fabs", "floor", "ceil", "trunc", "rint", "sign"]);
                format!("{function}({})", self.expression(ty, depth))
            }
            2 => format!("copysign({}, {})", self.expression(ty, depth), self.expression(ty, depth)),
            3 => self.choice(ty, depth),
            4 | 5 => self.shape(ty, depth),
            _ => match (self.variable(ty), self.variable(ty)) {
                (Some(a), Some(b)) => {
                    let op = self.pick(&["+", "-"]);
                    format!("({a} {op} {b})")
                }
                _ => self.literal(ty),
            },
        }
    }

    /// A choice between two values.
    fn choice(&mut self, ty: Ty, depth: usize) -> String {
        let (a, b) = (self.expression(ty, depth), self.expression(ty, depth));
        if ty.1 == 1 {
            return format!("(({ty})({} ? {a} : {b}))", self.condition(depth));
        }
        let mask = self.expression(ty.signed(), depth);
        match self.below(4) {
            0 => format!("select({a}, {b}, {mask})"),
            1 if !ty.is_float() => format!("bitselect({a}, {b}, {})", self.expression(ty, depth)),
            2 => {
                let of = if self.below(3) == 0 { ty.with(FLOAT) } else { ty };
                let of = if of.size() == ty.size() { of } else { ty };
                let op = self.pick(&["<", ">=", "==", "!="]);
                format!("(({} {op} {}) ? {a} : {b})", self.expression(of, depth), self.expression(of, depth))
            }
            _ => format!("({mask} ? {a} : {b})"),
        }
    }

    /// Components of vectors, and vectors of parts.
    fn shape(&mut self, ty: Ty, depth: usize) -> String {
        if ty.1 == 1 {
            if let Some(name) = self.array_of(ty) {
                return format!("{name}[{} & 7]", self.expression(Ty(5, 1), depth));
            }
            let from = Ty(ty.0, self.pick(&LANES[1..]));
            return match self.variable(from) {
                Some(name) => {
                    let at = self.below(from.1);
                    format!("{name}.s{at:x}")
                }
                None => self.literal(ty),
            };
        }
        let wider: Vec<usize> = LANES.iter().copied().filter(|lanes| *lanes > 1).collect();
        let from = Ty(ty.0, self.pick(&wider));
        if let Some(name) = self.variable(from) {
            let half = if from.1 == 3 { 2 } else { from.1 / 2 };
            if half == ty.1 && half > 1 && from.1 != 3 && self.below(2) == 0 {
                let part = self.pick(&["lo", "hi", "even", "odd"]);
                return format!("{name}.{part}");
            }
            let digits: String =
                (0..ty.1).filter_map(|_| char::from_digit(self.below(from.1) as u32, 16)).collect();
            if from.1 <= 4 && ty.1 <= 4 && self.below(2) == 0 {
                let letters: String = digits.chars().map(|c| ['x', 'y', 'z', 'w'][c as usize - 48]).collect();
                return format!("{name}.{letters}");
            }
            return format!("{name}.s{digits}");
        }
        let mut parts = Vec::new();
        let mut left = ty.1;
        while left > 0 {
            let fitting: Vec<usize> = LANES.iter().copied().filter(|lanes| *lanes <= left).collect();
            let lanes = if left == ty.1 { 1 } else { self.pick(&fitting) };
            parts.push(self.expression(Ty(ty.0, lanes), depth.min(1)));
            left -= lanes;
        }
        format!("(({ty})({}))", parts.join(", "))
    }

    /// An array with elements of a type.
    fn array_of(&mut self, ty: Ty) -> Option<String> {
        let found: Vec<String> =
            self.arrays.iter().filter(|(_, own)| *own == ty).map(|(name, _)| name.clone()).collect();
        if found.is_empty() || self.below(2) == 0 {
            return None;
        }
        let at = self.below(found.len());
        Some(found[at].clone())
    }

    fn integer(&mut self, ty: Ty, depth: usize) -> String {
        let unsigned = ty.unsigned();
        match self.below(14) {
            0 | 1 => {
                let op = self.pick(&["+", "-", "*"]);
                let (a, b) = (self.expression(ty, depth), self.expression(ty, depth));
                if !ty.is_signed() || (ty.1 == 1 && ty.size() < 2) {
                    format!("(({ty})({a} {op} {b}))")
                } else {
                    format!("as_{ty}(as_{unsigned}({a}) {op} as_{unsigned}({b}))")
                }
            }
            2 => {
                let op = self.pick(&["&", "|", "^"]);
                format!("(({ty})({} {op} {}))", self.expression(ty, depth), self.expression(ty, depth))
            }
            3 => {
                let op = self.pick(&["<<", ">>"]);
                // A signed value that is shifted to the left may overflow.
                let of = if op == "<<" { unsigned } else { ty };
                let (a, b) = (self.expression(of, depth), self.expression(of, depth));
                let shifted =
                    if ty.1 == 1 { format!("(({of})({a} {op} {b}))") } else { format!("({a} {op} {b})") };
                if of == ty { shifted } else { format!("as_{ty}({shifted})") }
            }
            4 => {
                let op = self.pick(&["/", "%"]);
                let (a, b) = (self.expression(ty, depth), self.expression(ty, depth));
                format!("(({ty})({a} {op} (({ty})(({b} & (({ty})(31))) + (({ty})(1))))))")
            }
            5 => {
                let a = self.expression(ty, depth);
                let b = self.expression(ty, depth);
                let c = self.expression(ty, depth);
                match self.below(12) {
                    0 => format!("add_sat({a}, {b})"),
                    1 => format!("sub_sat({a}, {b})"),
                    2 => format!("hadd({a}, {b})"),
                    3 => format!("rhadd({a}, {b})"),
                    4 => format!("mul_hi({a}, {b})"),
                    5 => format!("max({a}, {b})"),
                    6 => format!("min({a}, {b})"),
                    7 => format!("clamp({a}, min({b}, {c}), max({b}, {c}))"),
                    8 => format!("rotate({a}, {b})"),
                    9 => format!("clz({a})"),
                    10 => format!("popcount({a})"),
                    _ => format!("mad_sat({a}, {b}, {c})"),
                }
            }
            6 => {
                let from = ty.with(self.below(9));
                let mode = self.pick(&["", "_rte", "_rtz", "_rtp", "_rtn"]);
                let a = self.expression(from, depth);
                if from.is_float() || self.below(3) == 0 {
                    let mode = if from.is_float() { mode } else { "" };
                    format!("convert_{ty}_sat{mode}({a})")
                } else {
                    format!("convert_{ty}({a})")
                }
            }
            7 => {
                let other = if ty.is_signed() { unsigned } else { ty.signed() };
                format!("as_{ty}({})", self.expression(other, depth))
            }
            8 => {
                // Bytes of another type of integers.
                let bytes = ty.1 << ty.size();
                let scalar = self.below(8);
                let lanes = bytes >> (scalar / 2);
                if ty.1 == 3 || !matches!(lanes, 1 | 2 | 4 | 8 | 16) {
                    return self.expression(ty, depth);
                }
                format!("as_{ty}({})", self.expression(Ty(scalar, lanes), depth))
            }
            9 => self.choice(ty, depth),
            10 | 11 => self.shape(ty, depth),
            12 if ty.is_signed() && ty.1 > 1 => {
                let scalars: Vec<usize> =
                    (0..9).filter(|scalar| Ty(*scalar, 1).size() == ty.size()).collect();
                let of = ty.with(self.pick(&scalars));
                let op = self.pick(&["<", ">", "<=", ">=", "==", "!="]);
                let (a, b) = (self.expression(of, depth), self.expression(of, depth));
                match self.below(4) {
                    0 => format!(
                        "(({a} {op} {b}) && ({} != {}))",
                        self.expression(of, depth),
                        self.literal(of)
                    ),
                    1 if !of.is_float() => format!("(!{a})"),
                    _ => format!("({a} {op} {b})"),
                }
            }
            12 => format!("(({ty})({}))", self.literal(ty.element())),
            _ => match self.below(3) {
                0 => format!("(({ty})(~{}))", self.expression(ty, depth)),
                1 if ty.is_signed() => format!("as_{ty}(abs({}))", self.expression(ty, depth)),
                // Of signed integers it overflows in PoCL.
                _ => format!(
                    "as_{ty}(abs_diff({}, {}))",
                    self.expression(unsigned, depth),
                    self.expression(unsigned, depth)
                ),
            },
        }
    }

    fn declare(&mut self) {
        let (ty, name) = (self.ty(), self.name("v"));
        let value = self.expression(ty, 2);
        self.line(&format!("{ty} {name} = {value};"));
        self.variables.push((name, ty));
    }

    /// An assignment to a variable, some of its components, or an element of an array.
    fn assign(&mut self) {
        let at = self.below(self.variables.len());
        let (name, ty) = self.variables[at].clone();
        if let Some(at) =
            (!self.arrays.is_empty() && self.below(4) == 0).then(|| self.below(self.arrays.len()))
        {
            let (array, ty) = self.arrays[at].clone();
            let index = self.expression(Ty(5, 1), 1);
            let value = self.expression(ty, 2);
            return self.line(&format!("{array}[{index} & 7] = {value};"));
        }
        if ty.is_float()
            && self.below(2) == 0
            && let (Some(a), Some(b)) = (self.variable(ty), self.variable(ty))
        {
            return self.line(&format!("{name} = {a} * {b};"));
        }
        if ty.1 > 1 && self.below(2) == 0 {
            let (part, lanes) = match self.below(4) {
                0 if ty.1 != 3 => (self.pick(&["lo", "hi", "even", "odd"]).to_owned(), ty.1 / 2),
                1 if ty.1 >= 4 => {
                    let first = self.below(ty.1 - 2);
                    (format!("s{:x}{:x}", first + 2, first), 2)
                }
                _ => (format!("s{:x}", self.below(ty.1)), 1),
            };
            let value = self.expression(Ty(ty.0, lanes), 2);
            return self.line(&format!("{name}.{part} = {value};"));
        }
        if !ty.is_float() && !ty.is_signed() && self.below(2) == 0 {
            let op = self.pick(&["+=", "-=", "*=", "&=", "|=", "^=", "<<=", ">>="]);
            let value = self.expression(ty, 2);
            return self.line(&format!("{name} {op} {value};"));
        }
        let value = self.expression(ty, 2);
        self.line(&format!("{name} = {value};"));
    }

    fn block(&mut self, depth: usize) {
        let (variables, arrays) = (self.variables.len(), self.arrays.len());
        self.indent += 1;
        for _ in 0..1 + self.below(2) {
            self.statement(depth);
        }
        self.indent -= 1;
        self.variables.truncate(variables);
        self.arrays.truncate(arrays);
    }

    fn statement(&mut self, depth: usize) {
        match self.below(if depth == 0 { 6 } else { 13 }) {
            0 | 1 => self.declare(),
            2..=5 => self.assign(),
            6 | 7 => {
                let condition = self.condition(1);
                self.line(&format!("if ({condition}) {{"));
                self.block(depth - 1);
                if self.below(2) == 0 {
                    self.line("} else {");
                    self.block(depth - 1);
                }
                self.line("}");
            }
            8 | 9 => {
                let (name, limit) = (self.name("i"), self.expression(Ty(5, 1), 1));
                self.line(&format!("for (uint {name} = 0; {name} < ({limit} & 3) + 1; {name}++) {{"));
                self.block(depth - 1);
                if self.below(2) == 0 {
                    let (condition, leave) = (self.condition(0), self.pick(&["break", "continue"]));
                    self.line(&format!("    if ({condition}) {leave};"));
                    self.indent += 1;
                    self.assign();
                    self.indent -= 1;
                }
                self.line("}");
            }
            10 => {
                let value = self.expression(Ty(5, 1), 2);
                self.line(&format!("switch ({value} & 3) {{"));
                for case in 0..2 + self.below(2) {
                    self.line(&format!("case {case}: {{"));
                    self.block(depth - 1);
                    self.line(self.ending());
                }
                self.line("default: {");
                self.block(depth - 1);
                self.line("} }");
            }
            11 => {
                let (ty, name) = (Ty(self.below(9), 1), self.name("a"));
                let values: Vec<String> = (0..8).map(|_| self.literal(ty)).collect();
                self.line(&format!("{ty} {name}[8] = {{ {} }};", values.join(", ")));
                self.arrays.push((name, ty));
            }
            _ => {
                // A jump over a block.
                let (label, condition) = (self.name("l"), self.condition(1));
                self.line("{");
                self.line(&format!("    if ({condition}) goto {label};"));
                self.line("    {");
                self.indent += 1;
                self.block(depth - 1);
                self.indent -= 1;
                self.line("    }");
                self.line(&format!("{label}:"));
                self.indent += 1;
                self.assign();
                self.indent -= 1;
                self.line("}");
            }
        }
    }

    /// The end of a case: some fall through.
    fn ending(&self) -> &'static str {
        if self.names.is_multiple_of(3) { "} // falls through" } else { "} break;" }
    }
}

/// A function of the thread's input, which writes the components of its variables.
fn function(seed: u64, index: usize) -> String {
    let mut writer = Writer {
        random: Random(seed),
        variables: Vec::new(),
        arrays: Vec::new(),
        names: 0,
        out: format!("static void f{index}(__global const uint *in, __global ulong *out) {{\n"),
        indent: 1,
    };
    for (k, scalar) in SCALARS.iter().enumerate().take(8) {
        let name = writer.name("v");
        writer.line(&format!("{scalar} {name} = ({scalar})(in[{k}] * 2654435761u ^ (in[{}] << 16));", k + 1));
        writer.variables.push((name, Ty(k, 1)));
    }
    for (k, lanes) in [(8, 1), (9, 4)] {
        let (ty, name) = (Ty(FLOAT, lanes), writer.name("v"));
        writer.line(&format!("{ty} {name} = convert_{ty}(({})((int)in[{k}] >> 8)) * 0.0625f;", Ty(4, lanes)));
        writer.variables.push((name, ty));
    }
    let name = writer.name("v");
    writer.line(&format!("int4 {name} = (int4)((int)in[11], (int)in[12], -1, (int)in[13] >> 20);"));
    writer.variables.push((name, Ty(INT.0, 4)));
    for _ in 0..5 {
        writer.statement(2);
    }
    let mut slot = 0;
    for (name, ty) in writer.variables.clone() {
        for lane in (0..ty.1).take_while(|lane| slot + lane < SLOTS) {
            let part = if ty.1 == 1 { name.clone() } else { format!("{name}.s{lane:x}") };
            let bits = if ty.is_float() { format!("convert_int_sat_rte({part})") } else { part };
            writer.line(&format!("out[{}] = (ulong)({bits});", slot + lane));
        }
        slot += ty.1;
    }
    writer.out + "}\n"
}

/// Functions that differ, with their texts.
fn batch(seed: u64) -> Vec<String> {
    let functions: Vec<String> =
        (0..BATCH).map(|index| function(seed.wrapping_mul(1_000_003) + index as u64, index)).collect();
    let calls: String = (0..BATCH)
        .map(|index| format!("    f{index}(in + i * {WORDS}, out + (i * {BATCH} + {index}) * {SLOTS});\n"))
        .collect();
    let text = format!(
        "{}__kernel void k(__global const uint *in, __global ulong *out) {{\n    size_t i = get_global_id(0);\n{calls}}}\n",
        functions.concat()
    );
    let mut random = Random(seed);
    let input: Vec<u8> = (0..THREADS * WORDS).flat_map(|_| (random.next() as u32).to_le_bytes()).collect();
    let launch = Launch {
        kernel: "k".into(),
        arguments: vec![Argument::Buffer(input), Argument::Buffer(vec![0; THREADS * BATCH * SLOTS * 8])],
        global: [THREADS, 1, 1],
        local: [32, 1, 1],
    };
    let theirs = Program::new(&text, "").and_then(|program| program.launch(&launch));
    let ours = Translated::new(&Source::named("test.cl", text.as_str()));
    let ours = ours.and_then(|ours| ours.launch_as(&launch, false));
    let (ours, theirs) = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (ours, theirs) => {
            let why = [ours.err(), theirs.err().map(|error| format!("driver: {error}"))];
            return vec![format!("seed {seed}: {}\n{text}", why.into_iter().flatten().collect::<String>())];
        }
    };
    let words = |all: &[Vec<u8>], thread: usize, index: usize| -> Vec<u64> {
        let begin = (thread * BATCH + index) * SLOTS * 8;
        all[1][begin..begin + SLOTS * 8].chunks_exact(8).map(bytemuck::pod_read_unaligned).collect()
    };
    let mut wrong = Vec::new();
    for (index, function) in functions.iter().enumerate() {
        for thread in 0..THREADS {
            let (own, other) = (words(&ours, thread, index), words(&theirs, thread, index));
            if let Some(slot) = (0..SLOTS).find(|slot| own[*slot] != other[*slot]) {
                wrong.push(format!(
                    "seed {seed}, function {index}, thread {thread}: out[{slot}] is {:#x}, driver {:#x}:\n{function}",
                    own[slot], other[slot]
                ));
                break;
            }
        }
    }
    wrong
}

fn functions(first: u64, batches: u64) {
    let wrong: Vec<String> = (first..first + batches).flat_map(batch).collect();
    assert!(wrong.is_empty(), "{} functions differ\n{}", wrong.len(), wrong.join("\n"));
}

pub fn cases(driver: &Option<String>) -> Vec<crate::Case> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("ELINVAR_RANDOM_OPENCL").unwrap_or(200);
    let first = number("ELINVAR_RANDOM_SEED").unwrap_or(1);
    let batches = count.div_ceil(BATCH as u64);
    // Several cases, so that they run in parallel.
    let parts = 4;
    let case = |part: u64| {
        let begin = first + batches * part / parts;
        let end = first + batches * (part + 1) / parts;
        crate::Case {
            name: format!("random::functions_{part}"),
            absence: driver.clone(),
            run: Box::new(move || functions(begin, end - begin)),
            required: true,
        }
    };
    (0..parts).map(case).collect()
}
