//! Value casts in sources that mention `bfloat`: MSL allows casts between `half` and `bfloat`, clang does not.
//!
//! The rewriter knows no types. A cast is rewritten to `elinvar::cast` when its type is `half`, `bfloat` or the name of a
//! template type parameter; for all other types `elinvar::cast` is the ordinary cast.

use std::collections::HashSet;

use crate::lex::TokenKind;
use crate::lex::token_buffer::TokenBuffer;

/// Names that are certainly types; empty in a source without `bfloat`.
pub(crate) struct Casts<'a> {
    types: HashSet<&'a str>,
}

impl<'a> Casts<'a> {
    pub(crate) fn new(tokens: &TokenBuffer<'a>) -> Self {
        let mut types = HashSet::new();
        if tokens.text.contains("bfloat") {
            types.extend(["half", "bfloat"]);
            for i in 0..tokens.len() {
                let parameter = matches!(tokens.spelling(i), "typename" | "class")
                    && tokens.is_identifier(i + 1)
                    && matches!(tokens.spelling(i + 2), "," | ">" | "=");
                if parameter {
                    types.insert(tokens.spelling(i + 1));
                }
            }
            for value in value_parameters(tokens) {
                types.remove(value);
            }
        }
        Self { types }
    }

    pub(crate) fn any(&self) -> bool {
        !self.types.is_empty()
    }

    /// The replacement for `T` in a functional cast `T(x)` at token `i`.
    pub(crate) fn functional(&self, tokens: &TokenBuffer, i: usize) -> Option<String> {
        if !self.types.contains(tokens.spelling(i))
            || tokens.spelling(i + 1) != "("
            || !begins_operand(tokens, i)
        {
            return None;
        }
        if matches!(tokens.spelling(i - 1), ";" | "}") {
            return None;
        }
        let behind = tokens.after_group(i + 1)?;
        let one = tokens.split_commas(i + 2, behind - 1).len() == 1;
        let declarator = matches!(tokens.spelling(i + 2), "*" | "&" | "&&" | "{");
        (one && !declarator).then(|| format!("elinvar::cast<{}>", tokens.spelling(i)))
    }

    /// The replacement for `(T)` in a C-style cast whose parenthesis is token `i`.
    pub(crate) fn c_style(&self, tokens: &TokenBuffer, i: usize) -> Option<String> {
        if !self.types.contains(tokens.spelling(i + 1))
            || tokens.spelling(i + 2) != ")"
            || !begins_operand(tokens, i)
        {
            return None;
        }
        // A unary operator would apply to the operator that replaces the cast.
        if matches!(tokens.spelling(i - 1), "-" | "+" | "!" | "~" | "*" | "&")
            && begins_operand(tokens, i - 1)
        {
            return None;
        }
        let operand = match tokens.kind(i + 3) {
            Some(TokenKind::NumericLiteral) => true,
            Some(TokenKind::Identifier) => {
                !matches!(tokens.spelling(i + 3), "const" | "noexcept" | "volatile" | "override")
            }
            _ => tokens.spelling(i + 3) == "(",
        };
        operand.then(|| format!("elinvar::cast_to<{}>{{}} ->* ", tokens.spelling(i + 1)))
    }
}

/// The names of template parameters that are values, `template <int N, Function F>`.
fn value_parameters<'a>(tokens: &TokenBuffer<'a>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for i in (0..tokens.len()).filter(|&i| tokens.spelling(i) == "template") {
        let Some(behind) = tokens.after_template_list(i + 1) else { continue };
        for (from, to) in tokens.split_commas(i + 2, behind - 1) {
            let end = (from..to).find(|&t| tokens.spelling(t) == "=").unwrap_or(to);
            let of_value = !matches!(tokens.spelling(from), "typename" | "class" | "template");
            if of_value && end > from + 1 && tokens.is_identifier(end - 1) {
                found.push(tokens.spelling(end - 1));
            }
        }
    }
    found
}

/// Whether an operand begins at `i`, rather than a parameter list or declarator.
pub(super) fn begins_operand(tokens: &TokenBuffer, i: usize) -> bool {
    let Some(before) = i.checked_sub(1) else { return false };
    match tokens.spelling(before) {
        "return" => true,
        "(" | "," | "=" | "?" | ":" | "{" | ";" | "}" | "[" | "+" | "-" | "*" | "/" | "%" | "|" | "^"
        | "!" | "~" | "+=" | "-=" | "*=" | "/=" | "==" | "!=" | "<=" | "&&" | "||" => true,
        // After another cast: `(T) (U) x`.
        ")" => tokens
            .matching_bracket(before)
            .is_some_and(|open| before == open + 2 && begins_operand(tokens, open)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let text = format!("bfloat; {text}");
        let tokens = TokenBuffer::new(&text);
        let casts = Casts::new(&tokens);
        (0..tokens.len())
            .filter_map(|i| casts.functional(&tokens, i).or_else(|| casts.c_style(&tokens, i)))
            .map(|new| new.replace("{} ->* ", "").replace("elinvar::", ""))
            .collect()
    }

    #[test]
    fn casts_and_what_is_none() {
        assert_eq!(found("x = (bfloat) h; y = a * (half)(b);"), ["cast_to<bfloat>", "cast_to<half>"]);
        assert_eq!(
            found("template <typename T> f() { return T(x) + (T)(bfloat) 1; }"),
            ["cast<T>", "cast_to<T>", "cast_to<bfloat>"]
        );
        for none in [
            "float f(bfloat) ;",
            "bfloat (*f)(half);",
            "sizeof(bfloat) * 2;",
            "x = bfloat(1, 2);",
            "y = (n) * x;",
            "z = -(bfloat) x;",
            "operator half() const { return h; }",
            "bfloat(half) const;",
            "template <typename F> void f(F g); template <Function F, int N = 2> float h(float x) { return F(x); }",
        ] {
            assert_eq!(found(none), [""; 0], "{none}");
        }
        let tokens = TokenBuffer::new("x = (half) y;");
        assert!(!Casts::new(&tokens).any());
    }
}
