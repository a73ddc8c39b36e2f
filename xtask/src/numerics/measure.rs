//! Runs the functions through the public API and finds the largest error of each.
//!
//! The error of a result is its distance from the exact value in units in the last place (ULP) of the exact value, as the specification
//! defines it. An f64 reference finds the worst sample; its reported error is computed with 160 bits, as are some samples of every
//! function, for which the f64 reference must be accurate.

use anyhow::{Context, Result, ensure};
use elinvar::{Device, Grid, Kernel, MathMode, Source};

use super::exact;
use super::formats::Format;
use super::functions::{Bound, Function};
use super::inputs::{self, Sequence};

/// Number of samples per function that are verified with 160 bits.
const CHECKED: usize = 48;

/// Maximum relative error of the f64 reference: 1/10000 ULP of float.
const DOUBT: f64 = 5e-12;

/// Result of one function in one format and math mode.
pub struct Row {
    pub function: &'static str,
    pub format: &'static str,
    pub math: MathMode,
    pub samples: usize,
    /// Maximum error in ULP, and its sample.
    pub error: f64,
    pub at: Vec<f64>,
    pub bound: Bound,
}

impl Row {
    pub fn within(&self) -> bool {
        self.error <= self.bound.units
    }

    pub fn title(&self) -> String {
        format!(
            "{} of {} ({:?} math): {} ulp at {:?}",
            self.function, self.format, self.math, self.error, self.at
        )
    }
}

/// Measures functions in one format and math mode.
pub fn all<F: Format>(
    device: &Device,
    functions: &[&'static Function],
    math: MathMode,
    samples: usize,
) -> Result<Vec<Row>> {
    let source = Source::named("numerics.metal", source::<F>(functions)).math(math);
    let kernel = device.compile(source)?.kernel("measure")?;
    let measured = functions.iter().enumerate().map(|(number, function)| {
        one::<F>(device, &kernel, number as u32, function, math, samples)
            .with_context(|| format!("measuring {} of {}", function.name, F::NAME))
    });
    measured.collect()
}

/// A kernel that evaluates the function with index `which`.
fn source<F: Format>(functions: &[&Function]) -> String {
    let ty = F::NAME;
    let mut text = format!(
        "#include <metal_stdlib>\nusing namespace metal;\n\
         kernel void measure(device const {ty}* a [[buffer(0)]], device const {ty}* b [[buffer(1)]],\n\
         device const {ty}* c [[buffer(2)]], device {ty}* out [[buffer(3)]],\n\
         constant uint& which [[buffer(4)]], uint i [[thread_position_in_grid]]) {{\nswitch (which) {{\n"
    );
    for (number, function) in functions.iter().enumerate() {
        let args = ["a[i]", "a[i], b[i]", "a[i], b[i], c[i]"][function.arity - 1];
        text += &format!("case {number}: out[i] = {}({args}); break;\n", function.name);
    }
    text + "}\n}\n"
}

fn one<F: Format>(
    device: &Device,
    kernel: &Kernel,
    which: u32,
    function: &'static Function,
    math: MathMode,
    samples: usize,
) -> Result<Row> {
    let columns = inputs::columns::<F>(function, samples);
    let count = columns[0].len();
    let [a, b, c] = [0, 1, 2].map(|k| device.buffer_with_data(&columns[k]));
    let (a, b, c) = (a?, b?, c?);
    let mut out = device.buffer::<F>(count)?;
    let stream = device.stream()?;
    // SAFETY: the kernel reads and writes one element per thread, and every buffer has `count` of them.
    #[allow(unsafe_code)]
    let done = unsafe { kernel.launch(&stream, Grid::threads(count), (&a, &b, &c, &mut out, which))? };
    done.wait()?;
    let got = out.to_vec()?;

    let bound = bound::<F>(function, math);
    let range = if math != MathMode::Safe { function.fast_range } else { f64::INFINITY };
    let arguments = |i: usize| [0, 1, 2].map(|k| columns[k][i].value());
    let inside =
        |i: usize| arguments(i)[..function.arity].iter().all(|v| v.abs() <= range || range.is_infinite());
    let chosen: Vec<usize> = (0..count).filter(|i| inside(*i)).collect();
    let (mut worst, mut largest) = (chosen[0], -1.0);
    for &i in &chosen {
        let error = error::<F>(got[i].value(), (function.double)(arguments(i)));
        if error > largest {
            (worst, largest) = (i, error);
        }
    }
    let mut sequence = Sequence(u64::from(which) + 7);
    for _ in 0..CHECKED {
        check_reference(function, arguments(chosen[sequence.next() as usize % chosen.len()]))?;
    }
    let at = arguments(worst);
    Ok(Row {
        function: function.name,
        format: F::NAME,
        math,
        samples: chosen.len(),
        error: exact_error::<F>(function, at, got[worst].value()).unwrap_or(largest),
        at: at[..function.arity].to_vec(),
        bound,
    })
}

/// The specification has bounds for half and none for bfloat, for which those of half are used.
fn bound<F: Format>(function: &Function, math: MathMode) -> Bound {
    let stated = if math == MathMode::Safe { function.safe } else { function.fast };
    match F::BITS {
        32 => stated,
        _ if function.safe.units == 0.5 => function.safe,
        _ => Bound { text: "1 ulp", units: 1.0 },
    }
}

/// Error relative to an f64 reference; infinite if exactly one is a NaN.
fn error<F: Format>(got: f64, expected: f64) -> f64 {
    if got.is_nan() || expected.is_nan() {
        return if got.is_nan() && expected.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let beyond = F::beyond();
    let expected = expected.clamp(-beyond, beyond);
    (got.clamp(-beyond, beyond) - expected).abs() / F::unit(expected.abs())
}

/// Whether the exact reference supports the number.
fn ordinary(v: f64) -> bool {
    v.is_finite() && v != 0.0
}

/// As above with 160 bits, for finite arguments and results.
fn exact_error<F: Format>(function: &Function, at: [f64; 3], got: f64) -> Option<f64> {
    let double = (function.double)(at);
    let inside = double.abs() < F::beyond() && got.abs() < F::beyond();
    if !inside || !ordinary(double) || !at[..function.arity].iter().all(|v| ordinary(*v)) {
        return None;
    }
    Some(exact::error(got, &exact_value(function, at, double), F::unit(double.abs())))
}

fn exact_value(function: &Function, at: [f64; 3], double: f64) -> exact::Exact {
    let finite = at.map(|v| if v.is_finite() { v } else { 0.0 });
    let value = (function.exact)(finite.map(exact::from));
    // The reference of a power is only its magnitude.
    if (value < exact::from(0.0)) == (double < 0.0) { value } else { -value }
}

fn check_reference(function: &Function, at: [f64; 3]) -> Result<()> {
    let double = (function.double)(at);
    let args = &at[..function.arity];
    if !double.is_normal() || !args.iter().all(|v| ordinary(*v)) {
        return Ok(());
    }
    let off = exact::error(double, &exact_value(function, at, double), double.abs());
    ensure!(off < DOUBT, "f64 gives {double} for {args:?}, which is off by {off}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_in_units_of_the_exact_value() {
        assert_eq!(error::<f32>(1.0, 1.0 + 2f64.powi(-24)), 0.5);
        assert_eq!(error::<f32>(f64::INFINITY, 3.5e38), 0.0);
        assert_eq!(error::<f32>(f64::from(f32::MAX), 1e300), 1.0);
        assert_eq!(error::<f32>(f64::NAN, f64::NAN), 0.0);
        assert_eq!(error::<f32>(0.0, f64::NAN), f64::INFINITY);
        assert_eq!(error::<f32>(2f64.powi(-149), 0.0), 1.0);
    }

    #[test]
    fn a_wrong_reference_is_noticed() {
        let sine = super::super::functions::FUNCTIONS.iter().find(|f| f.name == "sin").unwrap();
        assert!(check_reference(sine, [1.0, 0.0, 0.0]).is_ok());
        let wrong = Function { double: |a| a[0].sin() * (1.0 + 1e-11), ..*sine };
        assert!(check_reference(&wrong, [1.0, 0.0, 0.0]).unwrap_err().to_string().contains("off by"));
    }
}
