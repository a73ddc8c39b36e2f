//! Renders types in diagnostics as in MSL: `float4` for `metal::vec<float, 4>`.

const NAMES: [(&str, &str); 13] = [
    ("unsigned char", "uchar"),
    ("unsigned short", "ushort"),
    ("unsigned int", "uint"),
    ("unsigned long", "ulong"),
    ("_Float16", "half"),
    ("__bf16", "bfloat"),
    ("signed char", "char"),
    ("metal::", ""),
    ("elinvar::", ""),
    // As which the headers define `as_type`.
    ("__builtin_bit_cast", "as_type"),
    ("__attribute__((address_space(1)))", "device"),
    ("__attribute__((address_space(2)))", "constant"),
    ("__attribute__((address_space(3)))", "threadgroup"),
];

const SCALARS: [&str; 12] =
    ["bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "bfloat", "float"];

/// Class templates, and what a name in MSL has before the scalar.
const TEMPLATES: [(&str, &str); 6] = [
    ("packed_vec<", "packed_"),
    ("packed_vector<", "packed_"),
    ("vec<", ""),
    ("ext_vector<", ""),
    ("simdgroup_matrix<", "simdgroup_"),
    ("matrix<", ""),
];

/// clang's text with types as in MSL.
pub(crate) fn in_msl(text: &str) -> String {
    // clang's name of a functional-style cast is empty in its messages about vectors.
    let mut out = if text.starts_with(" from ") { format!("cast{text}") } else { text.to_owned() };
    for (from, to) in NAMES {
        out = out.replace(from, to);
    }
    for (open, prefix) in TEMPLATES {
        let is_matrix = open.ends_with("matrix<");
        out = shorten(&out, open, |args| match *args {
            [scalar, ref sizes @ ..]
                if sizes.len() == 1 + usize::from(is_matrix)
                    && SCALARS.contains(&scalar)
                    && sizes.iter().all(|size| size.bytes().all(|b| b.is_ascii_digit())) =>
            {
                Some(format!("{prefix}{scalar}{}", sizes.join("x")))
            }
            _ => None,
        });
    }
    out = shorten(&out, "_atomic<", |args| match *args {
        [scalar] => Some(format!("atomic_{scalar}")),
        _ => None,
    });
    qualify_suggestion(drop_aliases(&out))
}

/// Qualify the suggestion when only the namespace was missing.
fn qualify_suggestion(text: String) -> String {
    const SUGGESTION: &str = "; did you mean '";
    let Some((before, rest)) = text.split_once(SUGGESTION) else { return text };
    let is_same = rest.split_once('\'').is_some_and(|(name, _)| before.ends_with(&format!("'{name}'")));
    if is_same { format!("{before}{SUGGESTION}metal::{rest}") } else { text }
}

/// Replace each `open…>` for whose arguments `name` returns a name.
fn shorten(text: &str, open: &str, name: impl Fn(&[&str]) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(open) {
        let boundary = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let body = &rest[at + open.len()..];
        let simple = body.find('>').map(|end| &body[..end]).filter(|b| boundary && b.chars().all(is_plain));
        let args: Vec<&str> = simple.map(|b| b.split(", ").collect()).unwrap_or_default();
        out.push_str(&rest[..at]);
        match (simple, name(&args)) {
            (Some(inside), Some(short)) => {
                out.push_str(&short);
                rest = &body[inside.len() + 1..];
            }
            _ => {
                out.push_str(open);
                rest = body;
            }
        }
    }
    out + rest
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ',' || c == ' '
}

/// Remove an alias that is equal to the type: `'float4' (aka 'float4')`.
fn drop_aliases(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(" (aka '") {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let alias = &after[" (aka '".len()..];
        match alias.find("')") {
            Some(end) if out.ends_with(&format!("'{}'", &alias[..end])) => rest = &alias[end + 2..],
            _ => {
                out.push_str(" (aka '");
                rest = alias;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::in_msl;

    #[test]
    fn msl_names() {
        let cases = [
            ("'float4' (aka 'vec<float, 4>')", "'float4'"),
            ("'metal::vec<unsigned int, 3>' to '_Float16'", "'uint3' to 'half'"),
            (
                "unknown type name 'sampler'; did you mean 'metal::sampler'?",
                "unknown type name 'sampler'; did you mean 'metal::sampler'?",
            ),
            (
                "unknown type name 'flot'; did you mean 'float'?",
                "unknown type name 'flot'; did you mean 'float'?",
            ),
            ("packed_vec<unsigned char, 2> and matrix<float, 4, 3>", "packed_uchar2 and float4x3"),
            ("_atomic<unsigned int> *", "atomic_uint *"),
            (" from vector 'int2' to scalar 'float'", "cast from vector 'int2' to scalar 'float'"),
            (
                "'simdgroup_float8x8' (aka 'simdgroup_matrix<float, 8, 8>') and 'simdgroup_matrix<__bf16, 8, 8>'",
                "'simdgroup_float8x8' and 'simdgroup_bfloat8x8'",
            ),
            (
                "'elinvar::ext_vector<_Float16, 8>' and 'packed_vector<__bf16, 2>'",
                "'half8' and 'packed_bfloat2'",
            ),
            ("__builtin_bit_cast source type must be", "as_type source type must be"),
            (
                "'p' (aka 'const __attribute__((address_space(1))) metal::vec<__bf16, 4> *')",
                "'p' (aka 'const device bfloat4 *')",
            ),
            ("'vec<vec<float, 2>, 3>' and 'vec<T, size>'", "'vec<float2, 3>' and 'vec<T, size>'"),
            ("myvec<int, 2>", "myvec<int, 2>"),
            ("'P' (aka 'Q')", "'P' (aka 'Q')"),
            ("vec<", "vec<"),
        ];
        for (from, to) in cases {
            assert_eq!(in_msl(from), to);
        }
    }
}
