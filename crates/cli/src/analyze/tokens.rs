//! Tokens of a Metal source with their places: enough to find a declaration or a loop that advice is about, and to replace it.

use std::ops::Range;

/// A word, a number or a punctuation character.
#[derive(Clone, Copy, Debug)]
pub struct Token<'t> {
    pub text: &'t str,
    pub start: usize,
}

impl Token<'_> {
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// The tokens of a text, without comments and preprocessor lines. `+=`, `/=` and `>>=` are of several tokens.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    let mut is_line_start = true;
    while at < bytes.len() {
        let rest = &text[at..];
        let skip = |until: &str, after: usize| rest.find(until).map_or(rest.len(), |end| end + after);
        let byte = bytes[at];
        if byte == b'\n' {
            (is_line_start, at) = (true, at + 1);
        } else if byte.is_ascii_whitespace() {
            at += 1;
        } else if rest.starts_with("//") {
            at += skip("\n", 0);
        } else if rest.starts_with("/*") {
            at += skip("*/", 2);
        } else if byte == b'#' && is_line_start {
            at += skip("\n", 0);
        } else {
            is_line_start = false;
            let is_word =
                |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.' && byte.is_ascii_digit();
            let length = match rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()) {
                0 if byte == b'"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
                0 => rest.chars().next().map_or(1, char::len_utf8),
                length => length,
            };
            found.push(Token { text: &rest[..length], start: at });
            at += length;
        }
    }
    found
}

/// The index behind the token that closes the parenthesis, bracket or brace at `open`.
pub fn closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(index + 1);
        }
    }
    None
}

/// A kernel's parameters and body, as ranges of tokens without their parentheses and braces.
pub struct Definition {
    pub parameters: Range<usize>,
    pub body: Range<usize>,
}

/// The definition `kernel void NAME(…) {…}`; `None` if it is not written so, as in a macro or a template.
pub fn definition(tokens: &[Token<'_>], name: &str) -> Option<Definition> {
    let is_here = |at: &usize| {
        tokens[*at].text == name && *at >= 2 && tokens[*at - 1].text == "void" && tokens[at + 1].text == "("
    };
    let at = (0..tokens.len().saturating_sub(1)).find(is_here)?;
    let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at)).map(|token| token.text);
    let is_kernel = before(2) == Some("kernel")
        || before(2) == Some("]") && tokens[..at].iter().rev().take(8).any(|t| t.text == "kernel");
    let end = closing(tokens, at + 1)?;
    if !is_kernel || tokens.get(end)?.text != "{" {
        return None;
    }
    Some(Definition { parameters: at + 2..end - 1, body: end + 1..closing(tokens, end)? - 1 })
}

/// A parameter with a position: its type, name and attribute.
pub struct Positions<'t> {
    pub ty: &'t str,
    pub name: Token<'t>,
    pub attribute: &'t str,
}

/// The parameters `TYPE NAME [[ATTRIBUTE]]`.
pub fn positions<'t>(tokens: &[Token<'t>], definition: &Definition) -> Vec<Positions<'t>> {
    let parameters = &tokens[definition.parameters.clone()];
    let of = |window: &[Token<'t>]| match window {
        [ty, name, a, b, attribute, c, d]
            if a.text == "[" && b.text == "[" && c.text == "]" && d.text == "]" =>
        {
            Some(Positions { ty: ty.text, name: *name, attribute: attribute.text })
        }
        _ => None,
    };
    parameters.windows(7).filter_map(of).collect()
}

/// Whether the tokens from `at` on are these words; `$0` to `$9` stand for a token each, the same everywhere. Returns the index behind them.
pub fn matches<'t>(
    tokens: &[Token<'t>],
    at: usize,
    pattern: &str,
    names: &mut [Option<&'t str>; 10],
) -> Option<usize> {
    let mut index = at;
    for word in pattern.split_whitespace() {
        let token = tokens.get(index)?.text;
        match word.strip_prefix('$').and_then(|digit| digit.parse::<usize>().ok()) {
            Some(which) if names[which].is_none_or(|known| known == token) => names[which] = Some(token),
            None if word == token => {}
            _ => return None,
        }
        index += 1;
    }
    Some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_and_patterns_are_found() {
        let text = "#define k(x) x\n// kernel void k(int a) {}\nkernel void k(device float* a [[buffer(0)]], uint2 at [[thread_position_in_grid]]) { a[at.x] /= 2.5f; /* } */ }\nvoid f() {}";
        let all = tokens(text);
        let found = definition(&all, "k").expect("a kernel");
        let body: Vec<&str> = all[found.body.clone()].iter().map(|token| token.text).collect();
        assert_eq!(body.join(" "), "a [ at . x ] / = 2.5f ;");
        let positions = positions(&all, &found);
        assert_eq!(positions.len(), 1);
        assert_eq!(
            (positions[0].ty, positions[0].name.text, positions[0].attribute),
            ("uint2", "at", "thread_position_in_grid")
        );
        assert!(definition(&all, "f").is_none() && definition(&all, "at").is_none());
        let mut names = [None; 10];
        assert_eq!(
            matches(&all, found.body.start, "a [ $1 . x ] / =", &mut names),
            Some(found.body.start + 8)
        );
        assert_eq!(names[1], Some("at"));
        assert_eq!(matches(&all, found.body.start, "$1 [ $2", &mut names), None, "$1 is `at`");
    }
}
