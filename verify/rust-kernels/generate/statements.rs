//! Statements of random kernels.

use super::{Generator, Ty, Variable};

impl Generator {
    pub(super) fn statements(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            self.statement(depth);
        }
    }

    fn scope(&mut self, body: impl FnOnce(&mut Self)) {
        let (variables, arrays, records) = (self.variables.len(), self.arrays.len(), self.records.len());
        self.indent += 1;
        body(self);
        self.indent -= 1;
        self.variables.truncate(variables);
        self.arrays.truncate(arrays);
        self.records.truncate(records);
    }

    fn statement(&mut self, depth: usize) {
        self.budget = 14;
        match self.random.below(if depth == 0 { 10 } else { 16 }) {
            8 => self.record(),
            9 => self.vector(),
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
            10 | 11 => {
                let condition = self.expr(Ty::Bool, 2);
                self.line(&format!("if {condition} {{"));
                self.scope(|this| this.statements(2, depth - 1));
                if self.random.one_in(2) {
                    self.line("} else {");
                    self.scope(|this| this.statements(2, depth - 1));
                }
                self.line("}");
            }
            12 => {
                let fuel = self.name("fuel");
                let label = self.name("outer");
                self.line(&format!("let mut {fuel} = 0;"));
                let condition = self.expr(Ty::Bool, 2);
                self.line(&format!("'{label}: while {condition} && {fuel} < 5 {{"));
                self.loop_body(label, Some(fuel), depth);
            }
            13 => {
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

    /// A struct, whose fields are variables from here on; or a change of one.
    fn record(&mut self) {
        if let Some(name) = self.records.last().cloned()
            && self.random.one_in(2)
        {
            let (value, by) = (self.expr(Ty::Int("u32"), 2), self.name("by"));
            self.line(&format!("let {by} = {value};"));
            match self.random.below(3) {
                0 => self.line(&format!("advance(&mut {name}, {by});")),
                1 => self.line(&format!("{name}.id ^= mixed(&{name}, {by});")),
                _ => self.line(&format!("{name}.small[({by} & 1) as usize] = {name}.small[0] ^ 5;")),
            }
            return;
        }
        let value = if self.in_helper || self.random.one_in(2) {
            let [x, y] = [0; 2].map(|_| self.expr(Ty::F32, 1));
            let (wide, id) = (self.expr(Ty::Int("u64"), 2), self.expr(Ty::Int("u32"), 2));
            let (level, small) = (self.expr(Ty::Int("i16"), 2), self.expr(Ty::Int("u8"), 2));
            format!(
                "Record {{ place: Vec4::new({x}, 1.5, {y}, -0.5), wide: {wide}, id: {id}, level: {level}, small: [{small}, 9] }}"
            )
        } else if let Some(name) = self.records.last() {
            name.clone()
        } else {
            format!("records[(i * 3 + {}) % records.len()]", self.random.below(48))
        };
        let name = self.name("record");
        self.line(&format!("let mut {name} = {value};"));
        let fields = [
            ("place.x", Ty::F32),
            ("place.z", Ty::F32),
            ("wide", Ty::Int("u64")),
            ("id", Ty::Int("u32")),
            ("level", Ty::Int("i16")),
            ("small[1]", Ty::Int("u8")),
        ];
        for (field, ty) in fields {
            self.variables.push(Variable { name: format!("{name}.{field}"), ty, mutable: true });
        }
        self.records.push(name);
    }

    /// A vector, whose lanes are variables from here on, and arithmetic on it.
    fn vector(&mut self) {
        let lanes = &["x", "y", "z", "w"][..self.random.below(3) + 2];
        let ty = if self.random.one_in(3) { Ty::F32 } else { Ty::Int(self.int()) };
        let values: Vec<String> = lanes.iter().map(|_| self.expr(ty, 1)).collect();
        let (name, count) = (self.name("w"), lanes.len());
        self.line(&format!(
            "let mut {name}: Vec{count}<{}> = Vec{count}::new({});",
            ty.name(),
            values.join(", ")
        ));
        for _ in 0..self.random.below(3) {
            let swizzle: String = lanes.iter().map(|_| self.random.pick(lanes)).collect();
            let scalar = self.expr(ty, 1);
            let splat = format!("Vec{count}::splat({scalar})");
            let line = match (ty, self.random.below(5)) {
                (Ty::F32, 0) => format!("{name} = {name}.mul_add({name}.{swizzle}(), {splat});"),
                (Ty::F32, 1) => {
                    format!("{name} = {name}.min({splat}).max({name}.{swizzle}()) + Vec{count}::splat(0.0);")
                }
                (Ty::F32, 2) => format!("{name} = {name}.abs().sqrt() / {splat} + 2.0 * {name}.{swizzle}();"),
                (_, 3) => format!("{name}[{}] = {scalar};", self.random.below(count)),
                (Ty::F32, _) => format!("{name} = ({name} - {splat}) * {name}.{swizzle}() * {name}.x;"),
                (_, 0) => format!("{name} += {name}.{swizzle}() * {splat};"),
                (_, 1) => format!("{name} = ({name} ^ {splat}) - ({name}.{swizzle}() | {splat});"),
                _ => format!("{name} = ({name} & {name}.{swizzle}()) * {scalar};"),
            };
            self.line(&line);
        }
        for lane in lanes {
            self.variables.push(Variable { name: format!("{name}.{lane}"), ty, mutable: true });
        }
    }

    /// What the threads of a threadgroup do together: memory, atomic counts, simdgroup functions. Each is behind a barrier.
    pub(super) fn together(&mut self) {
        self.budget = 14;
        let value = self.expr(Ty::Int("u32"), 3);
        self.line(&format!("tile[t] = {value};"));
        // One operation, so that the order of the threads does not matter.
        let operation = self.random.pick(&[
            "fetch_add",
            "fetch_max",
            "fetch_xor",
            "fetch_or",
            "fetch_min",
            "fetch_and",
            "fetch_sub",
        ]);
        for _ in 0..2 {
            let (index, value) = (self.expr(Ty::Int("u32"), 2), self.expr(Ty::Int("u32"), 2));
            let count = format!("counts[({index} % 8) as usize].{operation}({value}, Ordering::Relaxed);");
            let condition = self.expr(Ty::Bool, 2);
            self.line(&format!("if {condition} {{ {count} }}"));
        }
        self.line("threadgroup_barrier(mem_flags::mem_threadgroup);");
        self.tile = true;
        let (name, at) = (self.name("v"), self.random.below(8));
        self.line(&format!("let {name}: u32 = counts[(t + {at}) % 8].load(Ordering::Relaxed);"));
        self.variables.push(Variable { name, ty: Ty::Int("u32"), mutable: false });
        for _ in 0..3 {
            self.budget = 10;
            let of = self.random.pick(&["i8", "u8", "i16", "u16", "i32", "u32"]);
            let value = self.expr(Ty::Int(of), 2);
            let (ty, call) = match self.random.below(10) {
                0 => (Ty::F32, format!("simd_shuffle({}, {})", self.leaf(Ty::F32), self.random.below(16))),
                1 => (
                    Ty::Bool,
                    format!("simd_{}({})", self.random.pick(&["any", "all"]), self.expr(Ty::Bool, 2)),
                ),
                2 => (Ty::Int(of), format!("simd_shuffle_xor({value}, {})", self.random.below(15) + 1)),
                3 => (Ty::Int(of), format!("simd_broadcast({value}, {})", self.random.below(16))),
                4 => (Ty::Int(of), format!("simd_broadcast_first({value})")),
                5 => (Ty::Int(of), format!("simd_prefix_inclusive_sum({value})")),
                6 => (Ty::Int(of), format!("simd_prefix_exclusive_sum({value})")),
                _ => {
                    let function = self.random.pick(&["sum", "product", "min", "max", "and", "or", "xor"]);
                    (Ty::Int(of), format!("simd_{function}({value})"))
                }
            };
            let name = self.name("v");
            self.line(&format!("let mut {name}: {} = {call};", ty.name()));
            self.variables.push(Variable { name, ty, mutable: true });
        }
        self.statements(2, 1);
    }
}
