//! fp4-fp8-for-torch-mps's kernels: floats of eight and four bits, to and from wider ones, and products of matrices of them.

use elinvar::f16;

use super::case::Case;
use super::element::{Element, Sequence};
use super::reference::{U, product, sum};

const CORPUS: &str = "fp4-fp8-for-torch-mps";
const FILE: &str = "fp8_matmul.metal";

/// A format of a few bits.
#[derive(Clone, Copy)]
struct Format {
    name: &'static str,
    /// Bits of the mantissa and of the exponent; with the sign they are all.
    mantissa: u32,
    exponent: u32,
    bias: i32,
    kind: Kind,
}

/// What the codes at the end of the range mean.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// As IEEE 754: infinities and NaNs.
    Ieee,
    /// All ones are NaN.
    Finite,
    /// Negative zero is NaN.
    Unsigned,
    /// No NaN.
    All,
    /// A power of two without sign; all ones are NaN.
    Power,
}

const FORMATS: [Format; 5] = [
    Format { name: "e4m3fn", mantissa: 3, exponent: 4, bias: 7, kind: Kind::Finite },
    Format { name: "e5m2", mantissa: 2, exponent: 5, bias: 15, kind: Kind::Ieee },
    Format { name: "e4m3fnuz", mantissa: 3, exponent: 4, bias: 8, kind: Kind::Unsigned },
    Format { name: "e5m2fnuz", mantissa: 2, exponent: 5, bias: 16, kind: Kind::Unsigned },
    Format { name: "e8m0fnu", mantissa: 0, exponent: 8, bias: 127, kind: Kind::Power },
];

const FOUR_BITS: Format = Format { name: "e2m1fn", mantissa: 1, exponent: 2, bias: 1, kind: Kind::All };

impl Format {
    fn value(self, code: u8) -> f64 {
        let code = i32::from(code);
        if self.kind == Kind::Power {
            return if code == 255 { f64::NAN } else { 2_f64.powi(code - self.bias) };
        }
        let width = self.mantissa + self.exponent;
        let (sign, rest) = (code >> width & 1, code & ((1 << width) - 1));
        let (exponent, mantissa) = (rest >> self.mantissa, rest & ((1 << self.mantissa) - 1));
        let ones = rest == (1 << width) - 1;
        let value = match self.kind {
            Kind::Finite if ones => f64::NAN,
            Kind::Unsigned if sign == 1 && rest == 0 => f64::NAN,
            Kind::Ieee if exponent == (1 << self.exponent) - 1 => {
                if mantissa == 0 {
                    f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            _ if exponent == 0 => f64::from(mantissa) * 2_f64.powi(1 - self.bias - self.mantissa as i32),
            _ => {
                f64::from(mantissa + (1 << self.mantissa))
                    * 2_f64.powi(exponent - self.bias - self.mantissa as i32)
            }
        };
        if sign == 1 { -value } else { value }
    }

    fn codes(self) -> impl Iterator<Item = u8> {
        0..=if self.kind == Kind::All { 15 } else { 255 }
    }

    /// The code of the nearest value, ties to even; of the nearest exponent for powers of two.
    fn nearest(self, value: f64) -> u8 {
        if self.kind == Kind::Power {
            return (value.abs().log2().round() + f64::from(self.bias)) as u8;
        }
        let same_sign = |code: &u8| {
            let at = self.value(*code);
            at.is_finite() && at.is_sign_negative() == value.is_sign_negative()
        };
        let away = |code: u8| (self.value(code) - value).abs();
        let best = |a: u8, b: u8| match away(a).total_cmp(&away(b)) {
            std::cmp::Ordering::Less => a,
            std::cmp::Ordering::Greater => b,
            std::cmp::Ordering::Equal => {
                if a.is_multiple_of(2) {
                    a
                } else {
                    b
                }
            }
        };
        self.codes().filter(same_sign).reduce(best).unwrap_or_default()
    }

    /// Numbers between the smallest of the format and one below its largest, of both signs; ties of the rounding among them.
    fn samples(self, count: usize) -> Vec<f32> {
        let finite =
            || self.codes().map(|code| self.value(code)).filter(|value| value.is_finite() && *value > 0.0);
        let low = finite().fold(f64::INFINITY, f64::min).max(2_f64.powi(-120));
        let high = (finite().fold(0.0, f64::max) * 0.9).min(2_f64.powi(120));
        let mut sequence = Sequence(3);
        let exponents: Vec<f32> = sequence.between(count, low.log2(), high.log2());
        exponents
            .iter()
            .enumerate()
            .map(|(number, exponent)| {
                let sign = if number % 2 == 0 { 1.0 } else { -1.0 };
                let mut value = exponent.value().exp2();
                if self.kind == Kind::Power {
                    // Not between two powers.
                    value = value.log2().floor().exp2() * [1.0, 1.3, 1.6, 1.9][number % 4];
                } else if number % 5 == 0 {
                    // Between two of its values, or one of them.
                    let step = 2_f64.powi(value.log2().floor() as i32 - self.mantissa as i32 - 1);
                    value = ((value / step).round() * step).max(low);
                }
                (sign * value) as f32
            })
            .collect()
    }
}

pub fn cases() -> Vec<Case> {
    let case = |kernel: &str| Case::new(CORPUS, FILE, kernel);
    let codes: Vec<u8> = (0..=255).chain(Sequence(5).any::<u8>(44)).collect();
    let count = codes.len();
    let sized = |case: Case, count: usize| case.value([count as u32]).threads(320, 64);
    let mut cases = Vec::new();
    for format in FORMATS {
        let name = format.name;
        let halves = || codes.iter().map(|code| f16::of(format.value(*code)));
        let floats = || codes.iter().map(|code| f32::of(format.value(*code)));
        let to_half = if name == "e4m3fn" {
            "fp8_to_half_arithmetic_kernel".into()
        } else {
            format!("fp8_{name}_to_half_arithmetic_kernel")
        };
        cases.push(sized(case(&to_half).input(&codes).full_output(halves()), count));
        cases.push(sized(
            case(&format!("fp8_{name}_to_float_arithmetic_kernel")).input(&codes).full_output(floats()),
            count,
        ));
        let samples = format.samples(300);
        let nearest = || samples.iter().map(|value| format.nearest(value.value()));
        let to_code = if name == "e4m3fn" {
            "float_to_fp8_kernel".into()
        } else {
            format!("float_to_fp8_{name}_arithmetic_kernel")
        };
        cases.push(sized(case(&to_code).input(&samples).full_output(nearest()), 300));
        let table: Vec<f32> = (0..=255).map(|code| f32::of(format.value(code))).collect();
        // The search compares values, not exponents.
        let searched: Vec<u8> = samples
            .iter()
            .map(|value| match format.kind {
                Kind::Power => {
                    let away = |code: &u8| (format.value(*code) - value.value().abs()).abs();
                    (0..255).min_by(|a, b| away(a).total_cmp(&away(b))).unwrap_or_default()
                }
                _ => format.nearest(value.value()),
            })
            .collect();
        cases.push(sized(
            case(&format!("float_to_fp8_{name}_lut_kernel"))
                .input(&samples)
                .input(&table)
                .full_output(searched),
            300,
        ));
    }
    let eight = FORMATS[0];
    let halves = codes.iter().map(|code| f16::of(eight.value(*code)));
    cases.push(sized(case("fp8_to_half_kernel").input(&codes).full_output(halves), count));
    let half_table: Vec<f16> = Sequence(7).between(256, -9.0, 9.0);
    let float_table: Vec<f32> = Sequence(11).between(256, -9.0, 9.0);
    let bits: Vec<u32> = Sequence(13).any(256);
    cases.extend([
        sized(
            case("fp8_lut_to_half_kernel")
                .input(&codes)
                .input(&half_table)
                .full_output(codes.iter().map(|code| half_table[usize::from(*code)])),
            count,
        ),
        sized(
            case("fp8_lut_to_float_kernel")
                .input(&codes)
                .input(&float_table)
                .full_output(codes.iter().map(|code| float_table[usize::from(*code)])),
            count,
        ),
        sized(
            case("fp8_lut_bits_to_float_kernel")
                .input(&codes)
                .input(&bits)
                .full_output(codes.iter().map(|code| f32::from_bits(bits[usize::from(*code)]))),
            count,
        ),
    ]);
    let unpacked =
        || codes.iter().flat_map(|byte| [byte & 15, byte >> 4]).map(|code| f16::of(FOUR_BITS.value(code)));
    cases.push(sized(case("fp4x2_to_half_kernel").input(&codes).full_output(unpacked()), count));
    cases.push(sized(case("fp4x2_to_half_arithmetic_kernel").input(&codes).full_output(unpacked()), count));
    // No ties: the kernel rounds them up.
    let samples: Vec<f32> = Sequence(17).between(600, -7.0, 7.0);
    let pairs = samples.chunks(2).map(|pair| {
        let code = |value: f32| FOUR_BITS.nearest(value.value());
        code(pair[0]) | code(pair[1]) << 4
    });
    cases.push(sized(case("float_to_fp4x2_kernel").input(&samples).full_output(pairs), 300));
    cases.extend(products());
    cases
}

fn products() -> [Case; 2] {
    let format = FORMATS[0];
    let finite = |count: usize, seed: u64| -> Vec<u8> {
        Sequence(seed).any::<u8>(count).iter().map(|code| if code & 127 == 127 { 1 } else { *code }).collect()
    };
    let [m, n, k] = [7, 11, 39];
    let (a, b) = (finite(m * k, 19), finite(n * k, 23));
    let (of_rows, of_columns): (Vec<f32>, Vec<f32>) =
        (Sequence(29).between(m, 0.5, 2.0), Sequence(31).between(n, 0.5, 2.0));
    let scaled = |(value, error): (f64, f64), row: f32, column: f32| {
        let scale = row.value() * column.value();
        (value * scale, error * scale + 2.0 * U * (value * scale).abs())
    };
    let all = product([m, k, n], |i, j| format.value(a[i * k + j]), |j, c| format.value(b[c * k + j]), U);
    let all = all.into_iter().enumerate().map(|(e, near)| scaled(near, of_rows[e / n], of_columns[e % n]));
    let (rows, width) = (9, 172);
    let (x, w) = (finite(width, 37), finite(rows * width, 41));
    let scales: Vec<f32> = Sequence(43).between(rows, 0.5, 2.0);
    let one = [0.75_f32];
    let vector = (0..rows).map(|row| {
        let terms = (0..width).map(|j| format.value(x[j]) * format.value(w[row * width + j]));
        scaled(sum(terms, U), one[0], scales[row])
    });
    const SUM: &str = "one rounding of the sum of magnitudes for each term, two of the scales";
    let size = |case: Case, sizes: &[usize]| sizes.iter().fold(case, |case, n| case.value([*n as u32]));
    [
        size(
            Case::new(CORPUS, FILE, "fp8_scaled_matmul_kernel")
                .input(&a)
                .input(&b)
                .near::<f32>(all.collect(), SUM)
                .input(&of_rows)
                .input(&of_columns),
            &[m, n, k, 1],
        )
        .threads((16, 8), (8, 8)),
        size(
            Case::new(CORPUS, FILE, "fp8_scaled_vecmat_kernel")
                .input(&x)
                .input(&w)
                .near::<f32>(vector.collect(), SUM)
                .input(&one)
                .input(&scales),
            &[rows, width, 1],
        )
        .groups(5, 64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes() {
        let [finite, ieee, unsigned, _, power] = FORMATS;
        assert_eq!((finite.value(0x7e), finite.value(0x01)), (448.0, 1.0 / 512.0));
        assert_eq!((ieee.value(0x7b), ieee.value(0xfc)), (57_344.0, f64::NEG_INFINITY));
        assert_eq!((unsigned.value(0x7f), unsigned.value(0x80).is_nan()), (240.0, true));
        assert_eq!((power.value(127), power.value(130)), (1.0, 8.0));
        assert_eq!(
            (0..8).map(|code| FOUR_BITS.value(code)).collect::<Vec<_>>(),
            [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        );
        for format in FORMATS {
            for code in (0..=255).filter(|code| format.value(*code).is_finite()) {
                assert_eq!(format.nearest(format.value(code)), code, "{} {code}", format.name);
            }
        }
        // Halfway between 1 and 1.125: to the even code.
        assert_eq!(finite.nearest(1.0625), 0x38);
    }
}
