//! Expressions of random kernels.

use super::{Generator, Ty, Variable, bits, signed};

impl Generator {
    pub(super) fn literal(&mut self, ty: Ty) -> String {
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

    pub(super) fn mutable(&mut self) -> Option<(String, Ty)> {
        let mut found = Vec::new();
        for (at, one) in self.variables.iter().enumerate() {
            if one.mutable && !self.variables[at + 1..].iter().any(|later| later.name == one.name) {
                found.push((one.name.clone(), one.ty));
            }
        }
        if found.is_empty() { None } else { Some(found[self.random.below(found.len())].clone()) }
    }

    pub(super) fn leaf(&mut self, ty: Ty) -> String {
        if self.random.one_in(4) {
            return self.literal(ty);
        }
        if let Some(name) = self.variable(ty) {
            return name;
        }
        // Helpers read no arguments of the kernel.
        if self.in_helper {
            return self.literal(ty);
        }
        match ty {
            Ty::Int(name) => match self.random.below(8) {
                0 => format!("(a[i] as {name})"),
                1 => format!("(b[(i * 7 + 3) % b.len()] as {name})"),
                2 => format!("(records[i].id as {name})"),
                3 => format!("(records[i * 5 % records.len()].small[{}] as {name})", self.random.below(2)),
                4 => format!("(table[(a[i] & 15) as usize] as {name})"),
                5 => format!("(PRIMES[(i + {}) % 8] as {name})", self.random.below(8)),
                6 if self.tile => {
                    format!(
                        "(tile[(t * {} + {}) % 48] as {name})",
                        self.random.below(9),
                        self.random.below(48)
                    )
                }
                _ => self.literal(ty),
            },
            Ty::F32 => match self.random.below(3) {
                0 => format!(
                    "records[i].place.{}",
                    self.random.pick(&["x", "y", "z", "w", "zw().y", "wzy().x"])
                ),
                _ => "f[i]".into(),
            },
            Ty::Bool => "(a[i] > 3)".into(),
        }
    }

    pub(super) fn expr(&mut self, ty: Ty, depth: usize) -> String {
        if depth == 0 || self.budget == 0 {
            return self.leaf(ty);
        }
        self.budget -= 1;
        let d = depth - 1;
        match self.random.below(20) {
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
            6 if ty != Ty::Bool => {
                let arrays: Vec<usize> =
                    (0..self.arrays.len()).filter(|at| self.arrays[*at].1 == ty).collect();
                if !arrays.is_empty() && self.random.one_in(2) {
                    let (name, ..) = self.arrays[self.random.pick(&arrays)].clone();
                    return format!("largest(&{name})");
                }
                let (x, y) = (self.expr(ty, d), self.expr(ty, d));
                return format!("poly::<{}, {}>({x}, {y})", ty.name(), self.random.below(5));
            }
            7 => return self.two_conditions(ty, d),
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

    /// A `match` of an enum, or of a tuple.
    fn two_conditions(&mut self, ty: Ty, d: usize) -> String {
        let (x, y) = (self.expr(Ty::Bool, d), self.expr(Ty::Bool, d.min(1)));
        let arms: Vec<String> = (0..4).map(|_| self.expr(ty, d.min(1))).collect();
        if self.random.one_in(2) {
            return format!(
                "(match if {x} {{ Mode::Low }} else if {y} {{ Mode::High }} else {{ Mode::Other }} {{ Mode::Low => {}, Mode::Other => {}, Mode::High => {} }})",
                arms[0], arms[1], arms[2]
            );
        }
        let of = self.int();
        let value = self.expr(Ty::Int(of), d);
        let (low, high) = (self.random.below(20), self.random.below(80) + 20);
        format!(
            "(match ({value}, {x}) {{ ({low}..={high}, true) => {}, (_, false) => {}, (n, _) if n % 2 == 0 => {}, _ => {} }})",
            arms[0], arms[1], arms[2], arms[3]
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
        match self.random.below(8) {
            0 => format!("(!{})", self.expr(Ty::Bool, d)),
            2 => {
                let method = self.random.pick(&["is_nan", "is_infinite", "is_finite"]);
                format!("({}).{method}()", self.expr(Ty::F32, d))
            }
            3 => {
                let name = self.int();
                let methods: &[_] =
                    if signed(name) { &["is_negative", "is_positive"] } else { &["is_power_of_two"] };
                format!("({}).{}()", self.expr(Ty::Int(name), d), self.random.pick(methods))
            }
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
        match self.random.below(14) {
            7 => {
                let operator = self.random.pick(&["+", "-", "*", "/"]);
                format!(
                    "(f16::from_f32({}) {operator} f16::from_f32({})).to_f32()",
                    self.expr(Ty::F32, d),
                    self.expr(Ty::F32, d)
                )
            }
            8 => format!("f32::from_bits({})", self.expr(Ty::Int("u32"), d)),
            9 => {
                let bound = self.random.pick(&["0.5", "64.0", "1e9"]);
                format!("(({}).clamp(-{bound}, 2.0 * {bound}) + 0.0)", self.expr(Ty::F32, d))
            }
            10 => {
                let method = self.random.pick(&["signum()", "recip()", "copysign(-2.0)", "copysign(1.0)"]);
                format!("(({}) + 0.0).{method}", self.expr(Ty::F32, d))
            }
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
        match self.random.below(18) {
            11 => {
                let (low, high) = (self.random.below(60), self.random.below(60) + 60);
                format!("({}).clamp({low}, {high})", self.expr(ty, d))
            }
            12 if signed(name) => format!("(({}).unsigned_abs() as {name})", self.expr(ty, d)),
            12 => format!("({}).div_ceil((({}) & 31) | 1)", self.expr(ty, d), self.expr(ty, d)),
            13 => format!("({}).reverse_bits()", self.expr(ty, d)),
            14 if bits(name) >= 32 => format!("mulhi({}, {})", self.expr(ty, d), self.expr(ty, d)),
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
}
