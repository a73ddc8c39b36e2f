//! Numeric literals: translates MSL's suffixes to C++. A floating literal without suffix is a `float` in MSL.

/// The C++ spelling of a literal, or `None` if it is the same.
pub(crate) fn translate(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    if text.contains('_') || lower.starts_with("0b") {
        return None;
    }
    if let Some(digits) = lower.strip_prefix("0x") {
        let exponent = digits.find('p')?;
        let suffix = digits[exponent..].trim_start_matches(|c: char| !c.is_ascii_alphabetic() || c == 'p');
        return floating(text, suffix);
    }
    let suffix_at = suffix_start(&lower);
    let (number, suffix) = lower.split_at(suffix_at);
    let is_float = number.contains(['.', 'e']);
    match suffix {
        "f" if !is_float => Some(format!("{}.0f", &text[..suffix_at])),
        "h" | "bf" if !is_float => floating(&format!("{}.0{suffix}", &text[..suffix_at]), suffix),
        _ if is_float => floating(text, suffix),
        _ => None,
    }
}

/// Offset of the suffix: after digits, point and exponent.
fn suffix_start(lower: &str) -> usize {
    let bytes = lower.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'0'..=b'9' | b'.' | b'\'' => at += 1,
            b'e' if at + 1 < bytes.len() => at += if matches!(bytes[at + 1], b'+' | b'-') { 2 } else { 1 },
            _ => break,
        }
    }
    at
}

fn floating(text: &str, suffix: &str) -> Option<String> {
    let number = &text[..text.len() - suffix.len()];
    match suffix {
        "" => Some(format!("{number}f")),
        "h" => Some(format!("{number}f16")),
        "bf" => Some(format!("((bfloat){number}f)")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::translate;

    #[test]
    fn suffixes() {
        let cases = [
            ("1", None),
            ("1.0", Some("1.0f")),
            (".5", Some(".5f")),
            ("1.", Some("1.f")),
            ("1e10", Some("1e10f")),
            ("1.5E-3", Some("1.5E-3f")),
            ("1.0f", None),
            ("1.0F", None),
            ("1f", Some("1.0f")),
            ("2h", Some("2.0f16")),
            ("0.5h", Some("0.5f16")),
            ("1.5bf", Some("((bfloat)1.5f)")),
            ("3bf", Some("((bfloat)3.0f)")),
            ("0x1f", None),
            ("0xE", None),
            ("0x1p-3", Some("0x1p-3f")),
            ("0x1.8p3f", None),
            ("0x1p3h", Some("0x1p3f16")),
            ("10u", None),
            ("10ul", None),
            ("1'000.0", Some("1'000.0f")),
            ("0b101", None),
            ("1_x", None),
            ("e", None),
        ];
        for (text, expected) in cases {
            assert_eq!(translate(text).as_deref(), expected, "{text}");
        }
    }
}
