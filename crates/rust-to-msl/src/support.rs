//! Functions that a translation defines in front of the kernel: Rust's arithmetic where MSL leaves it undefined or defines it otherwise.
//! Only those that a kernel uses are written.

use crate::types::Scalar;

/// The functions by name.
const NAMES: &[&str] = &[
    "wrapping_add",
    "wrapping_sub",
    "wrapping_mul",
    "negate",
    "divide",
    "remainder",
    "shift_left",
    "shift_right",
    "saturate_to",
    "fraction",
    "signum",
    "clamped",
    "absolute",
    "unsigned_absolute",
    "difference",
    "rem_euclid",
    "div_euclid",
    "div_ceil",
    "power",
    "hypotenuse",
    "power_of",
    "rotate_left",
    "rotate_right",
    "count_zeros",
    "add",
    "sub",
    "mul",
    "div",
    "rem",
];

/// Whether a support function has this name.
pub(crate) fn is_support(name: &str) -> bool {
    NAMES.contains(&name) || name.starts_with("saturate_to_")
}

/// The definition for operands of a scalar type, or of vectors of it with `lanes`.
pub(crate) fn definition(name: &str, scalar: Scalar, lanes: u8) -> String {
    let vector = if lanes > 1 { lanes.to_string() } else { String::new() };
    let ty = format!("{}{vector}", scalar.msl());
    // C++ computes narrow integers as `int`, whose product may overflow.
    let unsigned = match (scalar.bits(), lanes) {
        (64, _) => format!("ulong{vector}"),
        (_, 1) => "uint".to_owned(),
        _ => format!("{}{vector}", scalar.unsigned().msl()),
    };
    let same = scalar.unsigned().msl();
    let bits = scalar.bits();
    let mask = bits - 1;
    let binary = |body: String| format!("inline {ty} {name}({ty} a, {ty} b) {{ return {body}; }}");
    let wrapping = |operator: &str| {
        if lanes > 1 {
            binary(format!("as_type<{ty}>(as_type<{unsigned}>(a) {operator} as_type<{unsigned}>(b))"))
        } else {
            binary(format!("{ty}({unsigned}(a) {operator} {unsigned}(b))"))
        }
    };
    let signed = scalar.is_signed();
    match name {
        "wrapping_add" => wrapping("+"),
        "wrapping_sub" => wrapping("-"),
        "wrapping_mul" => wrapping("*"),
        "negate" if lanes > 1 => {
            format!(
                "inline {ty} negate({ty} a) {{ return as_type<{ty}>({unsigned}(0) - as_type<{unsigned}>(a)); }}"
            )
        }
        "negate" => format!("inline {ty} negate({ty} a) {{ return {ty}({unsigned}(0) - {unsigned}(a)); }}"),
        // Division by zero is 0; the least number divided by -1 is itself.
        "divide" if signed => {
            binary(format!("b == 0 ? {ty}(0) : b == -1 ? {ty}({unsigned}(0) - {unsigned}(a)) : {ty}(a / b)"))
        }
        "divide" => binary(format!("b == 0 ? {ty}(0) : {ty}(a / b)")),
        "remainder" if signed => binary(format!("b == 0 || b == -1 ? {ty}(0) : {ty}(a % b)")),
        "remainder" => binary(format!("b == 0 ? {ty}(0) : {ty}(a % b)")),
        "shift_left" => format!(
            "inline {ty} shift_left({ty} a, uint n) {{ return {ty}({unsigned}(a) << (n & {mask}u)); }}"
        ),
        "shift_right" => {
            format!("inline {ty} shift_right({ty} a, uint n) {{ return {ty}(a >> (n & {mask}u)); }}")
        }
        "fraction" => format!("inline {ty} fraction({ty} a) {{ return a - trunc(a); }}"),
        "signum" if scalar.is_float() => {
            format!("inline {ty} signum({ty} a) {{ return isnan(a) ? a : copysign({ty}(1), a); }}")
        }
        "signum" => format!("inline {ty} signum({ty} a) {{ return {ty}(a > 0 ? 1 : a < 0 ? -1 : 0); }}"),
        "clamped" => format!(
            "inline {ty} clamped({ty} a, {ty} low, {ty} high) {{ return a < low ? low : a > high ? high : a; }}"
        ),
        "absolute" => {
            format!(
                "inline {ty} absolute({ty} a) {{ return a < 0 ? {ty}({unsigned}(0) - {unsigned}(a)) : a; }}"
            )
        }
        "unsigned_absolute" => format!(
            "inline {same} unsigned_absolute({ty} a) {{ return {same}(a < 0 ? {unsigned}(0) - {unsigned}(a) : {unsigned}(a)); }}"
        ),
        "difference" => format!(
            "inline {same} difference({ty} a, {ty} b) {{ return {same}(a < b ? {unsigned}(b) - {unsigned}(a) : {unsigned}(a) - {unsigned}(b)); }}"
        ),
        "rem_euclid" if signed => format!(
            "inline {ty} rem_euclid({ty} a, {ty} b) {{\n    if (b == 0 || b == -1) return 0;\n    {ty} r = {ty}(a % b);\n    \
             return r >= 0 ? r : {ty}(b < 0 ? {unsigned}(r) - {unsigned}(b) : {unsigned}(r) + {unsigned}(b));\n}}"
        ),
        "rem_euclid" => binary(format!("b == 0 ? {ty}(0) : {ty}(a % b)")),
        "div_euclid" if signed => format!(
            "inline {ty} div_euclid({ty} a, {ty} b) {{\n    if (b == 0) return 0;\n    if (b == -1) return {ty}({unsigned}(0) - {unsigned}(a));\n    \
             {ty} q = {ty}(a / b);\n    return a % b >= 0 ? q : {ty}(b > 0 ? q - 1 : q + 1);\n}}"
        ),
        "div_euclid" => binary(format!("b == 0 ? {ty}(0) : {ty}(a / b)")),
        "div_ceil" => binary(format!("b == 0 ? {ty}(0) : {ty}(a / b + (a % b != 0 ? 1 : 0))")),
        "power" => format!(
            "inline {ty} power({ty} a, uint n) {{\n    {unsigned} result = 1;\n    for ({unsigned} base = {unsigned}(a); n != 0; n >>= 1) {{\n        \
             if ((n & 1u) != 0) result *= base;\n        base *= base;\n    }}\n    return {ty}(result);\n}}"
        ),
        // Squares of `float` overflow, and of small numbers lose bits: both are scaled by a power of two.
        "hypotenuse" if bits == 32 => format!(
            "inline {ty} hypotenuse({ty} x, {ty} y) {{\n    {ty} a = fmax(fabs(x), fabs(y)), b = fmin(fabs(x), fabs(y));\n    \
             if (isinf(a)) return a;\n    if (isnan(x) || isnan(y)) return x + y;\n    \
             {ty} scale = a > 0x1p60f ? 0x1p-66f : a < 0x1p-60f ? 0x1p100f : 1.0f;\n    a *= scale;\n    b *= scale;\n    \
             return precise::sqrt(fma(a, a, b * b)) / scale;\n}}"
        ),
        "hypotenuse" => format!(
            "inline {ty} hypotenuse({ty} x, {ty} y) {{\n    if (isinf(x) || isinf(y)) return {ty}(INFINITY);\n    \
             return {ty}(precise::sqrt(float(x) * float(x) + float(y) * float(y)));\n}}"
        ),
        // The products of Rust's `powi`, in its order.
        "power_of" => format!(
            "inline {ty} power_of({ty} a, int n) {{\n    {ty} result = 1;\n    for (uint rest = n < 0 ? 0u - uint(n) : uint(n); rest != 0; rest >>= 1) {{\n        \
             if ((rest & 1u) != 0) result *= a;\n        a *= a;\n    }}\n    return n < 0 ? {ty}(1) / result : result;\n}}"
        ),
        // `rotate` of narrow and signed types, by any amount.
        "rotate_left" => format!(
            "inline {ty} rotate_left({ty} a, uint n) {{\n    {same} bits = {same}(a);\n    n &= {mask}u;\n    \
             return {ty}({same}(bits << n) | {same}(bits >> (({bits}u - n) & {mask}u)));\n}}"
        ),
        "rotate_right" => format!(
            "inline {ty} rotate_right({ty} a, uint n) {{\n    {same} bits = {same}(a);\n    n &= {mask}u;\n    \
             return {ty}({same}(bits >> n) | {same}(bits << (({bits}u - n) & {mask}u)));\n}}"
        ),
        "count_zeros" => format!("inline uint count_zeros({ty} a) {{ return uint({bits} - popcount(a)); }}"),
        _ => String::new(),
    }
}

/// A conversion of a `float` to an integer that saturates, and gives 0 for NaN.
pub(crate) fn saturate_to(to: Scalar) -> (String, String) {
    let ty = to.msl();
    let name = format!("saturate_to_{ty}");
    let bits = to.bits();
    let (low, high) = if to.is_signed() {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    // Powers of two, and so exact.
    let (below, above) = (float(low), float(high + 1));
    let (low, high) = (crate::emit::integer_text(to, low), crate::emit::integer_text(to, high));
    let text = format!(
        "inline {ty} {name}(float x) {{ return isnan(x) ? {ty}(0) : x <= {below} ? {low} : x >= {above} ? {high} : {ty}(x); }}"
    );
    (name, text)
}

fn float(value: i128) -> String {
    format!("{value}.0f")
}

/// The operators on a type parameter: overloads for all types that it may be.
pub(crate) fn generic(name: &str) -> Vec<(&'static str, Scalar)> {
    let integer = match name {
        "add" => "wrapping_add",
        "sub" => "wrapping_sub",
        "mul" => "wrapping_mul",
        "div" => "divide",
        _ => "remainder",
    };
    [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64, Scalar::U8, Scalar::U16, Scalar::U32, Scalar::U64]
        .into_iter()
        .map(|scalar| (integer, scalar))
        .collect()
}
