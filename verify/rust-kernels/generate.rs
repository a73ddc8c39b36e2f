//! Random kernels of the subset, as Rust text. The build script writes them; rustc compiles them for the host, and the translator for devices.
//!
//! Generated kernels end, index within bounds and do not divide by zero; the rest is what Rust defines without overflow checks. Floating
//! point is limited to operations that IEEE 754 rounds correctly, and signs of zeros and NaN do not reach results.

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
    next: usize,
    text: String,
    indent: usize,
    loops: Vec<String>,
    helpers: Vec<(String, Vec<Ty>, Ty)>,
    budget: usize,
    slot: usize,
}

/// Results of a thread.
const SLOTS: usize = 64;

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

    fn literal(&mut self, ty: Ty) -> String {
        match ty {
            Ty::Bool => self.random.pick(&["true", "false"]).into(),
            Ty::F32 => {
                let value = self.random.pick(&[
                    "0.0",
                    "1.0",
                    "0.5",
                    "2.25",
                    "1e10",
                    "3.0e-5",
                    "7.75",
                    "16777216.0",
                    "1.1754944e-38",
                ]);
                format!("{value}f32")
            }
            Ty::Int(name) => match self.random.below(8) {
                0 => format!("{name}::MAX"),
                1 => format!("{name}::MIN"),
                2 if signed(name) => format!("(-{}{name})", self.random.below(100) + 1),
                _ => format!("{}{name}", self.random.below(if bits(name) == 8 { 120 } else { 3000 })),
            },
        }
    }

    fn variable(&mut self, ty: Ty) -> Option<String> {
        // A later variable of the same name hides an earlier one.
        let mut found = Vec::new();
        for (at, one) in self.variables.iter().enumerate() {
            if one.ty == ty && !self.variables[at + 1..].iter().any(|later| later.name == one.name) {
                found.push(one.name.clone());
            }
        }
        if found.is_empty() { None } else { Some(found[self.random.below(found.len())].clone()) }
    }

    fn mutable(&mut self) -> Option<(String, Ty)> {
        let mut found = Vec::new();
        for (at, one) in self.variables.iter().enumerate() {
            if one.mutable && !self.variables[at + 1..].iter().any(|later| later.name == one.name) {
                found.push((one.name.clone(), one.ty));
            }
        }
        if found.is_empty() { None } else { Some(found[self.random.below(found.len())].clone()) }
    }

    fn leaf(&mut self, ty: Ty) -> String {
        if self.random.one_in(4) {
            return self.literal(ty);
        }
        if let Some(name) = self.variable(ty) {
            return name;
        }
        match ty {
            Ty::Int(name) => match self.random.below(3) {
                0 => format!("(a[i] as {name})"),
                1 => format!("(b[(i * 7 + 3) % b.len()] as {name})"),
                _ => self.literal(ty),
            },
            Ty::F32 => "f[i]".into(),
            Ty::Bool => "(a[i] > 3)".into(),
        }
    }

    fn expr(&mut self, ty: Ty, depth: usize) -> String {
        if depth == 0 || self.budget == 0 {
            return self.leaf(ty);
        }
        self.budget -= 1;
        let d = depth - 1;
        match self.random.below(16) {
            0 => {
                let (c, x, y) = (self.expr(Ty::Bool, d), self.expr(ty, d), self.expr(ty, d));
                return format!("(if {c} {{ {x} }} else {{ {y} }})");
            }
            1 => return self.block(ty, d),
            2 => return self.matched(ty, d),
            3 => {
                let helpers: Vec<usize> =
                    (0..self.helpers.len()).filter(|at| self.helpers[*at].2 == ty).collect();
                if !helpers.is_empty() {
                    let (name, types, _) = self.helpers[self.random.pick(&helpers)].clone();
                    let arguments: Vec<_> = types.into_iter().map(|ty| self.expr(ty, d)).collect();
                    return format!("{name}({})", arguments.join(", "));
                }
            }
            4 => {
                let arrays: Vec<usize> =
                    (0..self.arrays.len()).filter(|at| self.arrays[*at].1 == ty).collect();
                if !arrays.is_empty() {
                    let (name, _, length) = self.arrays[self.random.pick(&arrays)].clone();
                    let index = self.expr(Ty::Int("u32"), d);
                    return format!("{name}[({index} % {length}) as usize]");
                }
            }
            5 => return self.ordered(ty, d),
            _ => {}
        }
        match ty {
            Ty::Bool => self.boolean(d),
            Ty::F32 => self.float(d),
            Ty::Int(name) => self.integer(name, d),
        }
    }

    /// A block that changes a variable, as an operand.
    fn block(&mut self, ty: Ty, d: usize) -> String {
        if let Some((name, of)) = self.mutable()
            && self.random.one_in(2)
        {
            let value = self.expr(of, d);
            let rest = self.expr(ty, d);
            return format!("{{ {name} = {value}; {rest} }}");
        }
        let of = self.ty();
        let value = self.expr(of, d);
        let name = self.name("t");
        self.variables.push(Variable { name: name.clone(), ty: of, mutable: false });
        let rest = self.expr(ty, d);
        self.variables.pop();
        format!("{{ let {name}: {} = {value}; {rest} }}", of.name())
    }

    fn matched(&mut self, ty: Ty, d: usize) -> String {
        let of = self.int();
        let value = self.expr(Ty::Int(of), d);
        let (p, q) = (self.random.below(50), self.random.below(50));
        let (low, high) = (p.min(q), p.max(q));
        let arms: Vec<String> = (0..4).map(|_| self.expr(ty, d.min(1))).collect();
        let guard = self.expr(Ty::Bool, 1);
        // Bindings are only of patterns without alternatives.
        let guarded = if guard.contains(['{', '&', '(']) { "n % 3 == 1".to_owned() } else { guard };
        format!(
            "(match {value} {{ {low}..={high} => {}, 60 | 61 | {}::MAX => {}, n if {guarded} && n != 5 => {}, _ => {} }})",
            arms[0], of, arms[1], arms[2], arms[3]
        )
    }

    /// Operands whose order of evaluation shows in the result.
    fn ordered(&mut self, ty: Ty, d: usize) -> String {
        let Ty::Int(name) = ty else { return self.expr(ty, d.min(1)) };
        let (x, y) = (self.expr(ty, d), self.expr(ty, d));
        let s = self.name("s");
        match self.random.below(5) {
            3 => {
                let (p, q) = (
                    self.random.pick(&["+", "-", "*", "&", "|", "^"]),
                    self.random.pick(&["+", "-", "*", "^"]),
                );
                let swizzle = self.random.pick(&["zyx", "xxy", "yzz", "zxy"]);
                let lane = self.random.pick(&["x", "y", "z"]);
                let last = self.leaf(ty);
                format!(
                    "{{ let {s} = Vec3::new({x}, {y}, {last}); (({s} {p} {s}.{swizzle}()) {q} Vec3::splat({last})).{lane} ^ (-{s}.xz().y) as {name} }}"
                )
                .replace("(-", if signed(name) { "(-" } else { "(!" })
            }
            4 => {
                let condition = self.expr(Ty::Bool, d.min(1));
                let label = self.name("block");
                format!(
                    "('{label}: {{ let {s} = {x}; if {condition} {{ break '{label} {s}; }} for _ in 0..3 {{ if {s} > {y} {{ break '{label} {y}; }} }} {s} ^ 1 }})"
                )
            }
            0 => format!(
                "{{ let mut {s}: {name} = {x}; let mut g = |p: {name}| {{ {s} = {s}.wrapping_mul(3).wrapping_add(p); {s} }}; g({y}).wrapping_sub(g(1)) ^ g(2) }}"
            ),
            1 => format!(
                "{{ let mut {s}: {name} = {x}; {s}.wrapping_add({{ {s} ^= {y}; {s} }}).wrapping_mul({s}) }}"
            ),
            _ => format!(
                "{{ let mut {s}: u32 = ({x}) as u32; (bump(&mut {s}) ^ {s}.rotate_left(bump(&mut {s}) % 7) ^ {s}) as {name} }}"
            ),
        }
    }

    fn boolean(&mut self, d: usize) -> String {
        match self.random.below(6) {
            0 => format!("(!{})", self.expr(Ty::Bool, d)),
            1 => {
                let operator = self.random.pick(&["&&", "||", "^", "&", "|", "==", "!="]);
                format!("({} {operator} {})", self.expr(Ty::Bool, d), self.expr(Ty::Bool, d))
            }
            _ => {
                let ty = if self.random.one_in(4) { Ty::F32 } else { Ty::Int(self.int()) };
                let operator = self.random.pick(&["<", "<=", ">", ">=", "==", "!="]);
                format!("(({}) {operator} ({}))", self.expr(ty, d), self.expr(ty, d))
            }
        }
    }

    fn float(&mut self, d: usize) -> String {
        match self.random.below(10) {
            0 => {
                let ty = Ty::Int(self.int());
                format!("(({}) as f32)", self.expr(ty, d))
            }
            1 => format!("({}).abs().sqrt()", self.expr(Ty::F32, d)),
            2 => format!(
                "({}).mul_add({}, {})",
                self.expr(Ty::F32, d),
                self.expr(Ty::F32, d),
                self.expr(Ty::F32, d)
            ),
            3 => {
                let method = self.random.pick(&["min", "max"]);
                format!("(({}).{method}({}) + 0.0)", self.expr(Ty::F32, d), self.expr(Ty::F32, d))
            }
            4 => {
                let method =
                    self.random.pick(&["floor", "ceil", "trunc", "round", "fract", "abs", "round_ties_even"]);
                format!("(({}).{method}() + 0.0)", self.expr(Ty::F32, d))
            }
            5 => format!("(-({}))", self.expr(Ty::F32, d)),
            6 => format!("(({}) % ({}))", self.expr(Ty::F32, d), self.expr(Ty::F32, d)),
            _ => {
                let operator = self.random.pick(&["+", "-", "*", "/"]);
                format!("(({}) {operator} ({}))", self.expr(Ty::F32, d), self.expr(Ty::F32, d))
            }
        }
    }

    fn integer(&mut self, name: &'static str, d: usize) -> String {
        let ty = Ty::Int(name);
        match self.random.below(14) {
            0 => {
                let from = self.ty();
                format!("(({}) as {name})", self.expr(from, d))
            }
            1 => format!("(!({}))", self.expr(ty, d)),
            2 if signed(name) => format!("(-({}))", self.expr(ty, d)),
            3 => {
                let operator = self.random.pick(&["<<", ">>"]);
                let by = self.int();
                format!("(({}) {operator} (({}) & 63))", self.expr(ty, d), self.expr(Ty::Int(by), d))
            }
            4 => {
                let method =
                    self.random.pick(&["wrapping_shl", "wrapping_shr", "rotate_left", "rotate_right"]);
                format!("({}).{method}({})", self.expr(ty, d), self.expr(Ty::Int("u32"), d))
            }
            5 => {
                let method =
                    self.random.pick(&["count_ones", "leading_zeros", "trailing_zeros", "count_zeros"]);
                format!("(({}).{method}() as {name})", self.expr(ty, d))
            }
            6 => {
                let method =
                    self.random.pick(&["saturating_add", "saturating_sub", "min", "max", "wrapping_mul"]);
                format!("({}).{method}({})", self.expr(ty, d), self.expr(ty, d))
            }
            7 => {
                let method = self.random.pick(&["wrapping_div", "wrapping_rem"]);
                format!("({}).{method}(({}) | 1)", self.expr(ty, d), self.expr(ty, d))
            }
            8 => {
                let method = self.random.pick(&["rem_euclid", "div_euclid"]);
                format!("({}).{method}((({}) & 15) + 1)", self.expr(ty, d), self.expr(ty, d))
            }
            9 => match self.random.below(3) {
                0 => format!("(({}).abs_diff({}) as {name})", self.expr(ty, d), self.expr(ty, d)),
                1 if signed(name) => format!("({}).signum()", self.expr(ty, d)),
                _ => format!("({}).wrapping_pow(({}) & 7)", self.expr(ty, d), self.expr(Ty::Int("u32"), d)),
            },
            10 => {
                let operator = self.random.pick(&["/", "%"]);
                format!("(({}) {operator} ((({}) & 31) + 3))", self.expr(ty, d), self.expr(ty, d))
            }
            _ => {
                let operator = self.random.pick(&["+", "-", "*", "&", "|", "^"]);
                format!("(({}) {operator} ({}))", self.expr(ty, d), self.expr(ty, d))
            }
        }
    }

    fn statements(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            self.statement(depth);
        }
    }

    fn scope(&mut self, body: impl FnOnce(&mut Self)) {
        let (variables, arrays) = (self.variables.len(), self.arrays.len());
        self.indent += 1;
        body(self);
        self.indent -= 1;
        self.variables.truncate(variables);
        self.arrays.truncate(arrays);
    }

    fn statement(&mut self, depth: usize) {
        self.budget = 14;
        match self.random.below(if depth == 0 { 8 } else { 14 }) {
            0..3 => {
                let ty = self.ty();
                let value = self.expr(ty, 3);
                let name = self.name("v");
                let mutable = !self.random.one_in(3);
                let word = if mutable { "mut " } else { "" };
                self.line(&format!("let {word}{name}: {} = {value};", ty.name()));
                self.variables.push(Variable { name, ty, mutable });
            }
            3 => {
                let (ty, length) = (self.ty(), self.random.below(5) + 2);
                let name = self.name("r");
                if self.random.one_in(2) {
                    let value = self.expr(ty, 2);
                    self.line(&format!("let mut {name} = [{value}; {length}];"));
                } else {
                    let values: Vec<_> = (0..length).map(|_| self.expr(ty, 2)).collect();
                    self.line(&format!(
                        "let mut {name}: [{}; {length}] = [{}];",
                        ty.name(),
                        values.join(", ")
                    ));
                }
                self.arrays.push((name, ty, length));
            }
            4 => {
                let (x, y) = (self.ty(), self.ty());
                let (p, q) = (self.expr(x, 2), self.expr(y, 2));
                let (one, two) = (self.name("p"), self.name("q"));
                self.line(&format!("let (mut {one}, {two}): ({}, {}) = ({p}, {q});", x.name(), y.name()));
                self.variables.push(Variable { name: one, ty: x, mutable: true });
                self.variables.push(Variable { name: two, ty: y, mutable: false });
            }
            5 if !self.arrays.is_empty() => {
                let at = self.random.below(self.arrays.len());
                let (name, ty, length) = self.arrays[at].clone();
                let (index, value) = (self.expr(Ty::Int("u32"), 2), self.expr(ty, 2));
                self.line(&format!("{name}[(({index}) % {length}) as usize] = {value};"));
            }
            5..8 => {
                let Some((name, ty)) = self.mutable() else { return };
                let value = self.expr(ty, 3);
                let operator = match ty {
                    Ty::Int(_) => self.random.pick(&["=", "+=", "-=", "*=", "^=", "&=", "|="]),
                    Ty::F32 => self.random.pick(&["=", "+=", "-=", "*=", "/="]),
                    Ty::Bool => self.random.pick(&["=", "^=", "&=", "|="]),
                };
                self.line(&format!("{name} {operator} {value};"));
            }
            8..10 => {
                let condition = self.expr(Ty::Bool, 2);
                self.line(&format!("if {condition} {{"));
                self.scope(|this| this.statements(2, depth - 1));
                if self.random.one_in(2) {
                    self.line("} else {");
                    self.scope(|this| this.statements(2, depth - 1));
                }
                self.line("}");
            }
            10 => {
                let fuel = self.name("fuel");
                let label = self.name("outer");
                self.line(&format!("let mut {fuel} = 0;"));
                let condition = self.expr(Ty::Bool, 2);
                self.line(&format!("'{label}: while {condition} && {fuel} < 5 {{"));
                self.loop_body(label, Some(fuel), depth);
            }
            11 => {
                let (fuel, label, name) = (self.name("fuel"), self.name("outer"), self.name("v"));
                let ty = self.ty();
                self.line(&format!("let mut {fuel} = 0;"));
                self.line(&format!("let mut {name}: {} = '{label}: loop {{", ty.name()));
                self.scope(|this| {
                    this.line(&format!("{fuel} += 1;"));
                    let (condition, value) = (this.expr(Ty::Bool, 2), this.expr(ty, 2));
                    this.line(&format!("if {condition} || {fuel} > 3 {{ break {value}; }}"));
                    this.statements(2, depth - 1);
                    let (condition, value) = (this.expr(Ty::Bool, 2), this.expr(ty, 1));
                    this.line(&format!("for _ in 0..3 {{ if {condition} {{ break '{label} ({value}); }} }}"));
                });
                self.line("};");
                self.variables.push(Variable { name, ty, mutable: true });
            }
            _ => {
                let (label, name) = (self.name("outer"), self.name("k"));
                let ty = self.int();
                let (low, high) = (self.random.below(4), self.random.below(8));
                let bound = self.leaf(Ty::Int(ty));
                let range = match self.random.below(7) {
                    0 => format!("{low}..={high}"),
                    1 => format!("({low}..{high}).rev()"),
                    2 => format!("({low}..={high}).rev()"),
                    3 => format!("({ty}::MAX - {high}..={ty}::MAX)"),
                    4 => format!("({ty}::MIN..{ty}::MIN + {high}).rev()"),
                    5 => format!("{low}..({bound} & 7)"),
                    _ => format!("{low}..{high}"),
                };
                if self.random.one_in(6) {
                    self.line(&format!(
                        "'{label}: for {name} in ({low}usize..{}).step_by({}) {{",
                        high + 9,
                        high / 2 + 1
                    ));
                    self.loop_body(label, None, depth);
                    return;
                }
                let range = range.replacen(&format!("{low}."), &format!("{low}{ty}."), 1);
                self.line(&format!("'{label}: for {name} in {range} {{"));
                let before = self.variables.len();
                self.variables.push(Variable { name, ty: Ty::Int(ty), mutable: false });
                self.loop_body(label, None, depth);
                self.variables.truncate(before);
            }
        }
    }

    fn loop_body(&mut self, label: String, fuel: Option<String>, depth: usize) {
        self.loops.push(label);
        self.scope(|this| {
            if let Some(fuel) = fuel {
                this.line(&format!("{fuel} += 1;"));
            }
            this.statements(1, depth - 1);
            let condition = this.expr(Ty::Bool, 2);
            let jump = this.random.pick(&["break", "continue"]);
            let labels = this.loops.clone();
            let at = this.random.below(labels.len());
            let to = if this.random.one_in(2) { format!(" '{}", labels[at]) } else { String::new() };
            this.line(&format!("if {condition} {{ {jump}{to}; }}"));
            this.statements(1, depth - 1);
        });
        self.loops.pop();
        self.line("}");
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
        let start = self.text.len();
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
        // Helpers read no arguments of the kernel.
        let body = self.text.split_off(start);
        let body =
            body.replace("a[i]", "7").replace("b[(i * 7 + 3) % b.len()]", "9").replace("f[i]", "1.5f32");
        self.text.push_str(&body);
        self.variables.clear();
        self.arrays.clear();
        self.helpers.push((name, types, result));
    }

    fn kernel(&mut self, index: usize) {
        self.helpers.clear();
        for at in 0..self.random.below(3) {
            self.helper(index, at);
        }
        self.line("#[elinvar::kernel]");
        self.line(&format!(
            "pub fn kernel_{index}(a: &[i32], b: &[u64], f: &[f32], out: &mut [u64], #[thread_position_in_grid] i: usize) {{"
        ));
        self.indent += 1;
        self.slot = 0;
        self.statements(7, 2);
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
        self.variables.clear();
        self.arrays.clear();
    }
}

/// The text of `count` kernels and a table of them.
pub fn generate(seed: u64, count: usize) -> String {
    let mut generator = Generator {
        random: Random(seed),
        variables: Vec::new(),
        arrays: Vec::new(),
        next: 0,
        text: String::new(),
        indent: 0,
        loops: Vec::new(),
        helpers: Vec::new(),
        budget: 0,
        slot: 0,
    };
    let mut out = String::from("use elinvar::kernel::*;\n\n");
    out.push_str("#[elinvar::device]\nfn bump(x: &mut u32) -> u32 {\n    *x = x.wrapping_mul(5).wrapping_add(1);\n    *x >> 3\n}\n\n");
    for index in 0..count {
        generator.kernel(index);
    }
    out.push_str(&generator.text);
    out.push_str("macro_rules! with_all {\n    ($f:ident) => {{\n");
    for index in 0..count {
        let _ = writeln!(out, "        $f!(kernel_{index});");
    }
    out.push_str("    }};\n}\n");
    out
}
