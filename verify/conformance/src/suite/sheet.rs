//! A sheet: one kernel that evaluates many MSL expressions on rows of inputs, with the host's expected values.
//!
//! The kernel writes every component of every result as one 64-bit word. An expression must have exactly the MSL type of the host's
//! value. NaNs are equal to each other; all other values are compared bitwise, unless the host's value is [`near`] a number.

use bytemuck::Pod;
use elinvar::{Arg, Device, Grid, MathMode, Source, bf16, f16};

use super::{CaseResult, run};

/// Declares cases that are sheets; each line of a sheet counts as a part of its case.
macro_rules! sheets {
    ($chapter:literal: $($name:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            name: concat!($chapter, "::", stringify!($name)),
            run: |device| $name().run(device),
            parts: || $name().names(),
        }),*];
    };
}
pub(super) use sheets;

/// A component of a result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Integer(u64),
    Float(f32),
    Half(f16),
    Bfloat(bf16),
    /// A float, and the permitted absolute error.
    Near(f32, f32),
}

impl Word {
    pub(super) fn admits(self, got: u64) -> bool {
        match self {
            Self::Integer(v) => got == v,
            Self::Float(v) => {
                got == u64::from(v.to_bits()) || v.is_nan() && f32::from_bits(got as u32).is_nan()
            }
            Self::Half(v) => {
                got == u64::from(v.to_bits()) || v.is_nan() && f16::from_bits(got as u16).is_nan()
            }
            // Instructions for bfloat may flush subnormal results.
            Self::Bfloat(v) => {
                let other = bf16::from_bits(got as u16);
                let flushed = v.to_f32().is_subnormal() && other == bf16::ZERO;
                got == u64::from(v.to_bits()) || v.is_nan() && other.is_nan() || flushed
            }
            Self::Near(v, bound) => (f32::from_bits(got as u32) - v).abs() <= bound,
        }
    }

    pub(super) fn show(self, got: u64) -> String {
        match self {
            Self::Integer(_) => format!("{:#x}", got),
            Self::Float(_) | Self::Near(..) => format!("{:?} ({got:#x})", f32::from_bits(got as u32)),
            Self::Half(_) => format!("{:?} ({got:#x})", f16::from_bits(got as u16)),
            Self::Bfloat(_) => format!("{:?} ({got:#x})", bf16::from_bits(got as u16)),
        }
    }
}

/// A host value with its MSL type.
pub(super) trait Value: Copy + 'static {
    /// The type's name in MSL.
    fn msl() -> String;
    /// Its components.
    fn words(self) -> Vec<Word>;
    /// Number of components.
    fn count() -> usize;
}

macro_rules! values {
    ($($host:ty, $msl:literal, $v:ident => $word:expr;)*) => {$(
        impl Value for $host {
            fn msl() -> String {
                $msl.to_owned()
            }
            fn words(self) -> Vec<Word> {
                let $v = self;
                vec![$word]
            }
            fn count() -> usize {
                1
            }
        }
    )*};
}
values! {
    bool, "bool", v => Word::Integer(u64::from(v));
    i8, "char", v => Word::Integer(v as u64);
    u8, "uchar", v => Word::Integer(u64::from(v));
    i16, "short", v => Word::Integer(v as u64);
    u16, "ushort", v => Word::Integer(u64::from(v));
    i32, "int", v => Word::Integer(v as u64);
    u32, "uint", v => Word::Integer(u64::from(v));
    i64, "long", v => Word::Integer(v as u64);
    u64, "ulong", v => Word::Integer(v);
    f32, "float", v => Word::Float(v);
    f16, "half", v => Word::Half(v);
    bf16, "bfloat", v => Word::Bfloat(v);
    Near, "float", v => Word::Near(v.0, v.1);
}

/// A float, and the permitted absolute error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near(pub f32, pub f32);

/// Within a few units in the last place of an f64 result.
pub(super) fn near(v: f64) -> Near {
    Near(v as f32, (v.abs() * 1e-6) as f32 + f32::MIN_POSITIVE)
}

/// An array of 2 to 4 components is a vector.
impl<T: Value, const N: usize> Value for [T; N] {
    fn msl() -> String {
        format!("{}{N}", T::msl())
    }
    fn words(self) -> Vec<Word> {
        self.into_iter().flat_map(T::words).collect()
    }
    fn count() -> usize {
        N * T::count()
    }
}

/// A matrix by columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Columns<T, const C: usize, const R: usize>(pub [[T; R]; C]);

impl<T: Value, const C: usize, const R: usize> Value for Columns<T, C, R> {
    fn msl() -> String {
        format!("{}{C}x{R}", T::msl())
    }
    fn words(self) -> Vec<Word> {
        self.0.words()
    }
    fn count() -> usize {
        C * R
    }
}

/// Creates the argument of a column.
type MakeArg = Box<dyn Fn(&Device) -> elinvar::Result<Arg>>;

struct Column {
    declaration: String,
    local: String,
    arg: MakeArg,
    show: Box<dyn Fn(usize) -> String>,
}

struct Part {
    name: String,
    code: String,
    slots: usize,
    expected: Box<dyn Fn(usize) -> Vec<Word>>,
}

pub(super) struct Sheet {
    name: &'static str,
    declarations: String,
    math: MathMode,
    rows: usize,
    columns: Vec<Column>,
    parts: Vec<Part>,
}

/// `word` and `write` for each type of value.
pub(super) const PRELUDE: &str = "#include <metal_stdlib>
using namespace metal;
METAL_FUNC ulong word(bool v) { return v; }
METAL_FUNC ulong word(char v) { return ulong(long(v)); }
METAL_FUNC ulong word(uchar v) { return v; }
METAL_FUNC ulong word(short v) { return ulong(long(v)); }
METAL_FUNC ulong word(ushort v) { return v; }
METAL_FUNC ulong word(int v) { return ulong(long(v)); }
METAL_FUNC ulong word(uint v) { return v; }
METAL_FUNC ulong word(long v) { return ulong(v); }
METAL_FUNC ulong word(ulong v) { return v; }
METAL_FUNC ulong word(float v) { return as_type<uint>(v); }
METAL_FUNC ulong word(half v) { return as_type<ushort>(v); }
METAL_FUNC ulong word(bfloat v) { return as_type<ushort>(v); }
template <typename T> METAL_FUNC void put(device ulong* o, T v) { o[0] = word(v); }
template <typename T> METAL_FUNC void put(device ulong* o, vec<T, 2> v) { put(o, v.x); put(o + 1, v.y); }
template <typename T> METAL_FUNC void put(device ulong* o, vec<T, 3> v) { put(o, v.xy); put(o + 2, v.z); }
template <typename T> METAL_FUNC void put(device ulong* o, vec<T, 4> v) { put(o, v.xy); put(o + 2, v.zw); }
template <typename T, int C, int R> METAL_FUNC void put(device ulong* o, matrix<T, C, R> m) {
    for (int c = 0; c < C; ++c) put(o + c * R, m[c]);
}
template <typename T, typename U> METAL_FUNC void write(device ulong* o, U v) {
    static_assert(is_same_v<T, U>, \"the type of the result\");
    put(o, v);
}
";

impl Sheet {
    /// A sheet with as many rows as its longest column, at least one.
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            declarations: String::new(),
            math: MathMode::Safe,
            rows: 1,
            columns: Vec::new(),
            parts: Vec::new(),
        }
    }

    pub(super) fn math(mut self, math: MathMode) -> Self {
        self.math = math;
        self
    }

    /// Adds MSL source before the kernel.
    pub(super) fn declare(mut self, text: &str) -> Self {
        self.declarations.push_str(text);
        self.declarations.push('\n');
        self
    }

    /// Adds a variable called `name`, with a value for each row.
    pub(super) fn column<T: Value + Pod + std::fmt::Debug>(mut self, name: &str, values: &[T]) -> Self {
        let (index, ty) = (self.columns.len() + 1, T::msl());
        self.rows = self.rows.max(values.len());
        assert_eq!(self.rows, values.len(), "{}: column {name}", self.name);
        let (for_arg, for_show, label) = (values.to_vec(), values.to_vec(), name.to_owned());
        self.columns.push(Column {
            declaration: format!("device const {ty}* {name}_ [[buffer({index})]]"),
            local: format!("{ty} {name} = {name}_[i];\n"),
            arg: Box::new(move |device| Ok((&device.buffer_with_data(&for_arg)?).into())),
            show: Box::new(move |i| format!("{label} = {:?}", for_show[i])),
        });
        self
    }

    /// Adds an expression, and its expected value in a row.
    pub(super) fn line<T: Value>(self, text: &str, expected: impl Fn(usize) -> T + 'static) -> Self {
        self.block(text, "", text, expected)
    }

    /// Adds statements and the expression that uses them.
    pub(super) fn block<T: Value>(
        mut self,
        name: &str,
        statements: &str,
        result: &str,
        expected: impl Fn(usize) -> T + 'static,
    ) -> Self {
        let at = self.slots();
        self.parts.push(Part {
            name: format!("{name} -> {}", T::msl()),
            code: format!("{{ {statements} write<{}>(o + {at}, {result}); }}\n", T::msl()),
            slots: T::count(),
            expected: Box::new(move |i| expected(i).words()),
        });
        self
    }

    fn slots(&self) -> usize {
        self.parts.iter().map(|p| p.slots).sum()
    }

    /// Names of the sheet's checks.
    pub(super) fn names(&self) -> Vec<String> {
        self.parts.iter().map(|p| p.name.clone()).collect()
    }

    fn text(&self) -> String {
        let mut text =
            format!("{PRELUDE}{}kernel void sheet(device ulong* out [[buffer(0)]]", self.declarations);
        for column in &self.columns {
            text += &format!(", {}", column.declaration);
        }
        text += &format!(
            ", uint i [[thread_position_in_grid]]) {{\ndevice ulong* o = out + {} * i;\n",
            self.slots()
        );
        text.extend(self.columns.iter().map(|c| c.local.as_str()));
        text.extend(self.parts.iter().map(|p| p.code.as_str()));
        text + "}\n"
    }

    /// Evaluates and compares everything; the error lists each line that differs, with its first row.
    pub(super) fn run(&self, device: &Device) -> CaseResult {
        let source = Source::named(format!("{}.metal", self.name), self.text()).math(self.math);
        let kernel = device.compile(source)?.kernel("sheet")?;
        let slots = self.slots();
        let mut out = device.buffer::<u64>(slots * self.rows)?;
        let mut args: Vec<Arg> = vec![(&mut out).into()];
        for column in &self.columns {
            args.push((column.arg)(device)?);
        }
        run(device, &kernel, Grid::threads(self.rows), args)?;
        let got = out.to_vec()?;
        let mut at = 0;
        let mut wrong = String::new();
        for part in &self.parts {
            let differs = (0..self.rows).find_map(|i| {
                let got = &got[i * slots + at..][..part.slots];
                let expected = (part.expected)(i);
                let same = expected.len() == got.len() && expected.iter().zip(got).all(|(e, g)| e.admits(*g));
                (!same).then_some((i, expected, got))
            });
            if let Some((i, expected, got)) = differs {
                let got: Vec<_> = got.iter().zip(&expected).map(|(g, e)| e.show(*g)).collect();
                let row: Vec<_> = self.columns.iter().map(|c| (c.show)(i)).collect();
                wrong +=
                    &format!("\n{}: {got:?} instead of {expected:x?} with {}", part.name, row.join(", "));
            }
            at += part.slots;
        }
        if wrong.is_empty() { Ok(()) } else { Err(format!("{}:{wrong}", self.name).into()) }
    }
}

/// All pairs of values, as two columns.
pub(super) fn pairs<A: Copy, B: Copy>(a: &[A], b: &[B]) -> (Vec<A>, Vec<B>) {
    a.iter().flat_map(|x| b.iter().map(|y| (*x, *y))).unzip()
}
