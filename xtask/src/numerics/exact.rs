//! Reference results with 160 bits, where f64 is not sufficient.

use dashu_float::{FBig, round::mode::HalfEven};

/// A number of 160 bits.
pub type Exact = FBig<HalfEven, 2>;

const PRECISION: usize = 160;

/// A finite f64.
pub fn from(value: f64) -> Exact {
    let (bits, negative) = (value.to_bits(), value.is_sign_negative());
    let (exponent, fraction) = ((bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
    let significand = if exponent == 0 { fraction } else { fraction | 1 << 52 } as i64;
    let significand = if negative { -significand } else { significand };
    let exponent = exponent.max(1) as isize - 1075;
    Exact::from_parts(significand.into(), exponent).with_precision(PRECISION).value()
}

/// `from(10)`.
pub fn ten() -> Exact {
    from(10.0)
}

/// Error of `got`, in units of `unit`.
pub fn error(got: f64, exact: &Exact, unit: f64) -> f64 {
    let difference = (from(got) - exact).to_f64().value().abs();
    difference / unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [1.0, -0.1, 1e-310, 3.5e300, 2f64.powi(-149)] {
            assert_eq!(from(value).to_f64().value(), value);
        }
    }

    #[test]
    fn sines_are_known() {
        let third = from(1.0).sin().to_f64().value();
        assert_eq!(third, 0.8414709848078965);
        // Near a multiple of pi/2: Kahan's worst case for f64.
        let worst = from(5.319372648326541e255).cos().to_f64().value();
        assert!((worst.abs() - 4.687165924254624e-19).abs() < 1e-30, "{worst}");
    }
}
