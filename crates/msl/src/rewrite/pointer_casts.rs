//! C-style casts to pointers, in text with address spaces: clang allows those that change the address space, Metal does not.

use super::casts::begins_operand;
use super::overloads::is_address_space;
use crate::lex::token_buffer::TokenBuffer;

/// A cast to a pointer.
pub(crate) struct PointerCast<'a> {
    /// Its address space, if it has one.
    pub space: Option<&'a str>,
    /// The parenthesis that closes the type.
    pub close: usize,
}

/// The C-style cast whose parenthesis is token `i`, if its type is a pointer to something that is no pointer.
pub(crate) fn pointer_cast<'a>(tokens: &TokenBuffer<'a>, i: usize) -> Option<PointerCast<'a>> {
    let close = tokens.matching_bracket(i).filter(|&close| close > i + 2)?;
    if tokens.spelling(close - 1) != "*" || !begins_operand(tokens, i) {
        return None;
    }
    let (mut at, mut space) = (i + 1, None);
    while at < close - 1 {
        let word = tokens.spelling(at);
        at = match word {
            "<" => tokens.after_template_list(at).filter(|&behind| behind < close)?,
            "::" => at + 1,
            _ if !tokens.is_identifier(at) => return None,
            _ => {
                space = space.or(is_address_space(word).then_some(word));
                at + 1
            }
        };
    }
    let next = tokens.spelling(close + 1);
    let operand =
        tokens.is_identifier(close + 1) && !matches!(next, "const" | "noexcept" | "volatile" | "override");
    (operand || matches!(next, "(" | "&" | "*")).then_some(PointerCast { space, close })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_are_told_from_declarations() {
        let cast = |text: &str| {
            let tokens = TokenBuffer::new(text);
            let open = (0..tokens.len()).find(|&i| tokens.spelling(i) == "(").unwrap();
            pointer_cast(&tokens, open).map(|cast| cast.space.unwrap_or("none").to_owned())
        };
        for (text, expected) in [
            ("x = (device float*)y;", Some("device")),
            ("x = (const constant vec<T, 4>*)&y;", Some("constant")),
            ("x = (metal::uchar*)(y + 1);", Some("none")),
            ("return (thread int *)y;", Some("thread")),
            ("x = (float)y;", None),
            ("x = (device float* thread*)y;", None),
            ("x = (a * b);", None),
            ("void f(device float*);", None),
            ("int n = sizeof(device float*);", None),
            ("x = (device float*) + 1;", None),
            ("using F = void (*)(int);", None),
        ] {
            assert_eq!(cast(text).as_deref(), expected, "{text}");
        }
    }
}
