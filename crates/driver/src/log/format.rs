//! Formats of log calls: `printf` of C (ISO C17, 7.21.6.1), with OpenCL's vectors (OpenCL C specification, "printf").
//!
//! `%v4f` formats the components of a `float4`, separated by commas; flags, width and precision apply to each. A vector's length
//! modifier may be written before or after the `v`, and `hl` is that of 32-bit components. A message is made on the host, from the
//! words that a kernel has stored.

use super::site::LogValue;
use crate::Scalar;

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text as it is, `%%` already replaced.
    Text(String),
    /// A conversion.
    Conversion(Conversion),
}

/// A conversion specification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conversion {
    /// As written, for messages.
    written: String,
    left: bool,
    plus: bool,
    space: bool,
    alternative: bool,
    zero: bool,
    width: Option<Count>,
    precision: Option<Count>,
    /// Number of components of a vector; 1 for a scalar.
    lanes: u8,
    length: Length,
    conversion: char,
}

/// A width or precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Given(u32),
    /// `*`: an argument.
    Argument,
}

/// A length modifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Length {
    #[default]
    None,
    Char,
    Short,
    /// `hl`, of vectors.
    Word,
    Long,
}

/// Maximum width and precision.
const MOST: u32 = 4096;

/// Splits a format.
pub(super) fn parse(format: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("%%") {
            text.push('%');
            rest = after;
            continue;
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        let (conversion, after) = conversion(rest)?;
        pieces.push(Piece::Conversion(conversion));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// The conversion at the start of a text, and what follows it.
fn conversion(text: &str) -> Result<(Conversion, &str), String> {
    let mut c = Conversion { lanes: 1, ..Conversion::default() };
    let mut rest = &text[1..];
    while let Some(flag) = rest.chars().next().filter(|flag| "-+ #0".contains(*flag)) {
        match flag {
            '-' => c.left = true,
            '+' => c.plus = true,
            ' ' => c.space = true,
            '#' => c.alternative = true,
            _ => c.zero = true,
        }
        rest = &rest[1..];
    }
    (c.width, rest) = count(rest)?;
    if let Some(after) = rest.strip_prefix('.') {
        (c.precision, rest) = count(after)?;
        c.precision.get_or_insert(Count::Given(0));
    }
    let (mut length, after) = length(rest);
    rest = after;
    if let Some(after) = rest.strip_prefix('v') {
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        c.lanes = match &after[..digits] {
            "2" => 2,
            "3" => 3,
            "4" => 4,
            "8" => 8,
            "16" => 16,
            other => return Err(format!("a vector of `{other}` components: 2, 3, 4, 8 or 16 are allowed")),
        };
        rest = &after[digits..];
        if length.is_empty() {
            (length, rest) = self::length(rest);
        }
    }
    c.length = match (length, c.lanes) {
        ("", _) => Length::None,
        ("hh", _) => Length::Char,
        ("h", _) => Length::Short,
        ("hl", 2..) => Length::Word,
        ("l" | "ll" | "j" | "z" | "t", _) => Length::Long,
        (other, _) => return Err(format!("the length modifier `{other}` of a scalar")),
    };
    let Some(conversion) = rest.chars().next() else {
        return Err(format!("the format ends within `{text}`"));
    };
    rest = &rest[conversion.len_utf8()..];
    c.written = text[..text.len() - rest.len()].to_owned();
    c.conversion = conversion;
    match conversion {
        'd' | 'i' | 'o' | 'u' | 'x' | 'X' | 'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A' => Ok((c, rest)),
        'c' | 's' | 'p' if c.length == Length::None => Ok((c, rest)),
        'c' | 's' | 'p' => Err(format!("`{}`: `{conversion}` has no length modifier", c.written)),
        'n' => Err(format!("`{}` is not supported", c.written)),
        _ => Err(format!("`{}` is no conversion", c.written)),
    }
}

fn count(text: &str) -> Result<(Option<Count>, &str), String> {
    if let Some(rest) = text.strip_prefix('*') {
        return Ok((Some(Count::Argument), rest));
    }
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    match &text[..text.len() - rest.len()] {
        "" => Ok((None, rest)),
        digits => match digits.parse() {
            Ok(number @ 0..=MOST) => Ok((Some(Count::Given(number)), rest)),
            _ => Err(format!("a width or precision of {digits}: the largest is {MOST}")),
        },
    }
}

/// The length modifier at the start of a text, and what follows it.
fn length(text: &str) -> (&str, &str) {
    let all = ["hh", "hl", "h", "ll", "l", "j", "z", "t", "L", "q"];
    let found = all.iter().find(|modifier| text.starts_with(**modifier)).map_or(0, |modifier| modifier.len());
    text.split_at(found)
}

/// Checks that a format's conversions fit the values of a call.
pub(super) fn check(pieces: &[Piece], values: &[LogValue]) -> Result<(), String> {
    let mut left = values.iter().enumerate();
    for piece in pieces {
        let Piece::Conversion(c) = piece else { continue };
        for what in [("width", c.width), ("precision", c.precision)] {
            if what.1 != Some(Count::Argument) {
                continue;
            }
            match left.next() {
                Some((_, LogValue::Number { scalar: Scalar::I32 | Scalar::U32, lanes: 1 })) => {}
                Some((at, other)) => {
                    return Err(format!(
                        "`{}`: argument {} is {other}; a {} is an `int`",
                        c.written,
                        at + 1,
                        what.0
                    ));
                }
                None => return Err(missing(c, values)),
            }
        }
        let Some((at, value)) = left.next() else { return Err(missing(c, values)) };
        if !c.fits(value) {
            return Err(format!("`{}` formats {}, but argument {} is {value}", c.written, c.takes(), at + 1));
        }
    }
    match left.next() {
        None => Ok(()),
        Some((at, _)) => Err(format!("the format uses {at} of {} arguments", values.len())),
    }
}

fn missing(c: &Conversion, values: &[LogValue]) -> String {
    format!("`{}` has no argument: there are {}", c.written, values.len())
}

impl Conversion {
    fn is_float(&self) -> bool {
        "fFeEgGaA".contains(self.conversion)
    }

    fn fits(&self, value: &LogValue) -> bool {
        let (scalar, lanes) = match value {
            LogValue::Text(_) => return matches!(self.conversion, 's' | 'p'),
            LogValue::Pointer => return self.conversion == 'p' && self.lanes == 1,
            LogValue::Number { scalar, lanes } => (*scalar, *lanes),
        };
        if lanes != self.lanes {
            return false;
        }
        match (self.conversion, scalar) {
            ('s' | 'p', _) => false,
            (_, Scalar::F16 | Scalar::BF16 | Scalar::F32) => {
                let sized = match self.length {
                    Length::None => true,
                    // C's `%lf` is `%f`.
                    Length::Long => lanes == 1,
                    Length::Short => lanes > 1 && scalar != Scalar::F32,
                    Length::Word => scalar == Scalar::F32,
                    Length::Char => false,
                };
                self.is_float() && sized
            }
            _ if self.is_float() => false,
            (_, Scalar::I64 | Scalar::U64) => self.length == Length::Long,
            // Smaller integers are promoted to `int`, unless they are components.
            _ => match self.length {
                Length::None => true,
                Length::Char | Length::Short | Length::Word if lanes > 1 => {
                    let bytes = match self.length {
                        Length::Char => 1,
                        Length::Short => 2,
                        _ => 4,
                    };
                    scalar.size() == bytes
                }
                Length::Char | Length::Short => true,
                Length::Word | Length::Long => false,
            },
        }
    }

    /// What it formats.
    fn takes(&self) -> String {
        let kind = match (self.conversion, self.length) {
            ('s', _) => return "a string literal".into(),
            ('p', _) => return "a pointer".into(),
            (_, Length::Short) if self.is_float() => "16-bit floating-point numbers",
            _ if self.is_float() => "floating-point numbers",
            (_, Length::Long) => "64-bit integers",
            (_, Length::Char) if self.lanes > 1 => "8-bit integers",
            (_, Length::Short) if self.lanes > 1 => "16-bit integers",
            (_, Length::Word) => "32-bit integers",
            _ => "integers of up to 32 bits",
        };
        match self.lanes {
            1 => format!("{kind}, one at a time"),
            lanes => format!("vectors of {lanes} {kind}"),
        }
    }
}

/// Formats the values of a call. The format has been checked against them; missing words are 0.
pub(super) fn message(pieces: &[Piece], values: &[LogValue], words: &[u64]) -> String {
    let mut out = String::new();
    let mut words = words.iter().copied();
    let mut word = || words.next().unwrap_or(0);
    let mut values = values.iter();
    for piece in pieces {
        let c = match piece {
            Piece::Text(text) => {
                out.push_str(text);
                continue;
            }
            Piece::Conversion(c) => c,
        };
        let mut argument = |count: &Option<Count>| match count {
            None => None,
            Some(Count::Given(number)) => Some(i64::from(*number)),
            Some(Count::Argument) => {
                values.next();
                let given = i64::from(word() as i32);
                Some(given.clamp(-i64::from(MOST), i64::from(MOST)))
            }
        };
        let width = argument(&c.width);
        // A negative precision is none.
        let precision = argument(&c.precision).and_then(|precision| usize::try_from(precision).ok());
        let field = Field {
            c,
            left: c.left || width.is_some_and(|width| width < 0),
            width: width.map_or(0, |width| width.unsigned_abs() as usize),
            precision,
        };
        match values.next() {
            None => {}
            Some(LogValue::Text(text)) => {
                let address = word();
                match c.conversion {
                    's' => field.text(&mut out, text),
                    _ => field.pointer(&mut out, address),
                }
            }
            Some(LogValue::Pointer) => field.pointer(&mut out, word()),
            Some(LogValue::Number { lanes, .. }) => {
                for lane in 0..*lanes {
                    if lane > 0 {
                        out.push(',');
                    }
                    field.number(&mut out, word());
                }
            }
        }
    }
    out
}

/// A conversion with its width and precision.
struct Field<'c> {
    c: &'c Conversion,
    left: bool,
    width: usize,
    precision: Option<usize>,
}

impl Field<'_> {
    /// Appends a sign or prefix and what follows it, padded; with zeros if `zeros`.
    fn pad(&self, out: &mut String, prefix: &str, body: &str, zeros: bool) {
        let missing = self.width.saturating_sub(prefix.chars().count() + body.chars().count());
        let zeros = zeros && !self.left;
        if !self.left && !zeros {
            out.extend(std::iter::repeat_n(' ', missing));
        }
        out.push_str(prefix);
        if zeros {
            out.extend(std::iter::repeat_n('0', missing));
        }
        out.push_str(body);
        if self.left {
            out.extend(std::iter::repeat_n(' ', missing));
        }
    }

    fn text(&self, out: &mut String, text: &str) {
        let shown: String = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
        self.pad(out, "", &shown, false);
    }

    fn pointer(&self, out: &mut String, address: u64) {
        match address {
            0 => self.pad(out, "", "(nil)", false),
            address => self.pad(out, "0x", &format!("{address:x}"), false),
        }
    }

    fn number(&self, out: &mut String, word: u64) {
        if self.c.is_float() {
            return self.float(out, f64::from(f32::from_bits(word as u32)));
        }
        // The value as the conversion's type.
        let (signed, bits) = match self.c.length {
            Length::Char => (i64::from(word as i8), 8),
            Length::Short => (i64::from(word as i16), 16),
            Length::Long => (word as i64, 64),
            Length::None | Length::Word => (i64::from(word as i32), 32),
        };
        let unsigned = word & (u64::MAX >> (64 - bits));
        match self.c.conversion {
            'd' | 'i' => {
                let sign = self.sign(signed < 0);
                self.digits(out, sign, signed.unsigned_abs().to_string(), signed == 0);
            }
            'u' => self.digits(out, "", unsigned.to_string(), unsigned == 0),
            'o' => {
                let mut digits = format!("{unsigned:o}");
                let enough = self.precision.is_some_and(|precision| precision > digits.len());
                if self.c.alternative && !enough && unsigned != 0 {
                    digits.insert(0, '0');
                }
                if self.c.alternative && self.precision == Some(0) {
                    // The first digit is a 0 in any case.
                    return self.digits(out, "", digits, false);
                }
                self.digits(out, "", digits, unsigned == 0);
            }
            'x' | 'X' => {
                let upper = self.c.conversion == 'X';
                let digits = if upper { format!("{unsigned:X}") } else { format!("{unsigned:x}") };
                let prefix = match (self.c.alternative && unsigned != 0, upper) {
                    (false, _) => "",
                    (true, false) => "0x",
                    (true, true) => "0X",
                };
                self.digits(out, prefix, digits, unsigned == 0);
            }
            _ => self.pad(out, "", &char::from(word as u8).to_string(), false),
        }
    }

    /// An integer: at least as many digits as the precision, none for a 0 with precision 0.
    fn digits(&self, out: &mut String, prefix: &str, digits: String, is_zero: bool) {
        let body = match self.precision {
            Some(0) if is_zero => String::new(),
            Some(precision) => format!("{digits:0>precision$}"),
            None => digits,
        };
        self.pad(out, prefix, &body, self.c.zero && self.precision.is_none());
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.c.plus, self.c.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }

    fn float(&self, out: &mut String, value: f64) {
        let (sign, magnitude) = (self.sign(value.is_sign_negative()), value.abs());
        let c = self.c;
        let upper = c.conversion.is_ascii_uppercase();
        let cased = |text: String| if upper { text.to_ascii_uppercase() } else { text };
        if !value.is_finite() {
            let name = if value.is_nan() { "nan" } else { "inf" };
            return self.pad(out, sign, &cased(name.into()), false);
        }
        let precision = self.precision.unwrap_or(6);
        match c.conversion.to_ascii_lowercase() {
            'f' => self.pad(out, sign, &fixed(magnitude, precision, c.alternative), c.zero),
            'e' => self.pad(out, sign, &cased(scientific(magnitude, precision, c.alternative)), c.zero),
            'g' => self.pad(out, sign, &cased(general(magnitude, precision, c.alternative)), c.zero),
            _ => {
                let (prefix, body) =
                    (cased(format!("{sign}0x")), hexadecimal(magnitude, self.precision, c.alternative));
                self.pad(out, &prefix, &cased(body), c.zero);
            }
        }
    }
}

fn fixed(magnitude: f64, precision: usize, point: bool) -> String {
    let mut text = format!("{magnitude:.precision$}");
    if point && precision == 0 {
        text.push('.');
    }
    text
}

fn scientific(magnitude: f64, precision: usize, point: bool) -> String {
    let text = format!("{magnitude:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let point = if point && precision == 0 { "." } else { "" };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}{point}e{sign}{digits:0>2}")
}

fn general(magnitude: f64, precision: usize, keeps_zeros: bool) -> String {
    let precision = precision.max(1);
    let rounded = format!("{magnitude:.*e}", precision - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') && !keeps_zeros {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match usize::try_from(exponent) {
        Ok(integers) if integers < precision => {
            trimmed(&fixed(magnitude, precision - 1 - integers, keeps_zeros))
        }
        Err(_) if exponent >= -4 => {
            trimmed(&fixed(magnitude, precision - 1 + exponent.unsigned_abs() as usize, keeps_zeros))
        }
        _ => {
            let text = scientific(magnitude, precision - 1, keeps_zeros);
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
            format!("{}e{exponent}", trimmed(mantissa))
        }
    }
}

/// The hexadecimal form of glibc, without the `0x`: normalized to a first digit of 1.
fn hexadecimal(magnitude: f64, precision: Option<usize>, point: bool) -> String {
    const MANTISSA: u32 = 52;
    let bits = magnitude.to_bits();
    // Values come from 32-bit numbers, whose subnormal ones are normal here.
    let mut exponent = if bits == 0 { 0 } else { (bits >> MANTISSA) as i64 - 1023 };
    let mut significand = u64::from(bits != 0) << MANTISSA | bits & ((1 << MANTISSA) - 1);
    let digits = match precision {
        Some(precision) if precision < 13 => {
            let dropped = 4 * (13 - precision as u32);
            let (kept, rest, half) =
                (significand >> dropped, significand & ((1 << dropped) - 1), 1_u64 << (dropped - 1));
            let up = rest > half || (rest == half && kept & 1 == 1);
            significand = (kept + u64::from(up)) << dropped;
            precision
        }
        Some(precision) => precision,
        None => (13 - significand.trailing_zeros().min(MANTISSA) / 4) as usize,
    };
    let first = significand >> MANTISSA;
    let fraction = format!("{:013x}", significand & ((1 << MANTISSA) - 1));
    let fraction: String = fraction.chars().chain(std::iter::repeat('0')).take(digits).collect();
    if bits == 0 {
        exponent = 0;
    }
    let point = if digits > 0 || point { "." } else { "" };
    format!("{first:x}{point}{fraction}p{exponent:+}")
}
