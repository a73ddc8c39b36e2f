//! `printf!`: its format, which is Rust's, as a format of C.

use syn::parse::Parser;
use syn::spanned::Spanned;

use crate::error::{Result, fail};
use crate::types::{Scalar, Ty};

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// A value, in the order of the arguments.
    Value(Style),
}

/// How a value is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// Digits behind the point.
    precision: Option<u8>,
    /// `x` or `X`.
    hexadecimal: Option<char>,
}

/// A call of `printf!`.
pub(crate) struct Print {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) values: Vec<Value>,
}

/// An argument, or a name in the format.
pub(crate) struct Value {
    pub(crate) expr: syn::Expr,
}

/// The call, if the macro is `printf!` and rustc accepts it.
pub(crate) fn parse(call: &syn::Macro) -> Option<Print> {
    if call.path.segments.last().is_none_or(|segment| segment.ident != "printf") {
        return None;
    }
    read(call).ok()
}

/// The call.
///
/// # Errors
/// What of Rust's formats devices cannot write, at its place.
pub(crate) fn read(call: &syn::Macro) -> Result<Print> {
    let parser = syn::punctuated::Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
    let Ok(parts) = parser.parse2(call.tokens.clone()) else {
        return fail(call.span(), "`printf!` takes a format and values");
    };
    let mut parts = parts.into_iter();
    let Some(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(format), .. })) = parts.next() else {
        return fail(call.span(), "the format of `printf!` is a literal");
    };
    let (pieces, names) = pieces(&format)?;
    let mut values = Vec::new();
    for name in names {
        let expr = match name {
            Some(name) => syn::Expr::Path(syn::ExprPath {
                attrs: Vec::new(),
                qself: None,
                path: syn::Ident::new(&name, format.span()).into(),
            }),
            None => match parts.next() {
                Some(expr) => expr,
                None => return fail(format.span(), "the format has more places than there are values"),
            },
        };
        values.push(Value { expr });
    }
    if let Some(rest) = parts.next() {
        return fail(rest.span(), "the format has no place for this value");
    }
    Ok(Print { pieces, values })
}

/// The parts of a format, and the name in each place.
fn pieces(format: &syn::LitStr) -> Result<(Vec<Piece>, Vec<Option<String>>)> {
    let (mut pieces, mut names) = (Vec::new(), Vec::new());
    let value = format.value();
    let (mut rest, mut text) = (value.as_str(), String::new());
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if rest[at..].starts_with("{{") || rest[at..].starts_with("}}") {
            text.push_str(&rest[at..=at]);
            rest = &behind[1..];
            continue;
        }
        let Some((inside, after)) = behind.split_once('}').filter(|_| rest[at..].starts_with('{')) else {
            return fail(format.span(), "the braces of the format do not match");
        };
        let (name, style) = inside.split_once(':').unwrap_or((inside, ""));
        let mut written = Style::default();
        match style.as_bytes() {
            [] => {}
            [letter @ (b'x' | b'X')] => written.hexadecimal = Some(char::from(*letter)),
            [b'.', digits @ ..] if let Ok(digits) = String::from_utf8_lossy(digits).parse() => {
                written.precision = Some(digits);
            }
            _ => {
                let message = format!(
                    "devices do not write `{{:{style}}}`: use `{{}}`, `{{:x}}`, `{{:X}}` or `{{:.N}}`"
                );
                return fail(format.span(), message);
            }
        }
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return fail(format.span(), "write the values of `printf!` in the order of the format");
        }
        names.push((!name.is_empty()).then(|| name.to_owned()));
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Value(written));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok((pieces, names))
}

/// The conversion of C for a value of a type; a message if there is none.
pub(crate) fn conversion(style: &Style, ty: &Ty) -> std::result::Result<String, String> {
    let Ty::Scalar(scalar) = ty else {
        return Err(format!("devices do not print `{ty}`: print its numbers"));
    };
    if *scalar == Scalar::Bool {
        return Err("devices do not print `bool`: print a number, as in `u32::from(b)`".into());
    }
    if scalar.is_float() {
        return match style {
            Style { hexadecimal: Some(_), .. } => Err("`{:x}` is for integers".into()),
            Style { precision: Some(digits), .. } => Ok(format!("%.{digits}f")),
            Style { .. } => Ok("%g".into()),
        };
    }
    if style.precision.is_some() {
        return Err("`{:.N}` is for floating point".into());
    }
    let is_long = matches!(scalar, Scalar::I64 | Scalar::U64);
    let is_signed = matches!(scalar, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64 | Scalar::Isize);
    // C would write the bits of a wider type.
    if style.hexadecimal.is_some() && is_signed && matches!(scalar, Scalar::I8 | Scalar::I16) {
        return Err(
            "`{:x}` of a narrow signed integer is another number on devices: convert it, as in `x as u32`"
                .into(),
        );
    }
    let letter = style.hexadecimal.unwrap_or(if is_signed { 'd' } else { 'u' });
    Ok(format!("%{}{letter}", if is_long { "l" } else { "" }))
}

/// A part of a literal of C.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '%' => out.push_str("%%"),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out
}
