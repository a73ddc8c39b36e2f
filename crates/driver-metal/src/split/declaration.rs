//! Declarations of variables: types and names, from tokens.

use std::ops::Range;

use super::Refusal;
use super::tokens::{Kind, Text};

/// A variable, and what it is initialized with.
pub(super) struct Declared {
    pub(super) ty: String,
    pub(super) name: usize,
    /// The bound of an array.
    pub(super) bound: Option<Range<usize>>,
    pub(super) value: Value,
}

pub(super) enum Value {
    None,
    /// Behind `=`.
    Of(Range<usize>),
    /// With its braces or parentheses.
    Braces(Range<usize>),
}

fn is_name(text: &Text<'_>, at: usize) -> bool {
    let is_word = text.tokens.get(at).is_some_and(|token| token.kind == Kind::Word);
    is_word && !text.word(at).starts_with(|first: char| first.is_ascii_digit())
}

/// The variables that a simple statement declares; `None` if it is an expression.
pub(super) fn declared(text: &Text<'_>, range: &Range<usize>) -> Result<Option<Vec<Declared>>, Refusal> {
    let refuse = |what: &str| Err(Refusal::new(range.start, what));
    let mut at = range.start;
    // Qualifiers and the type's name.
    let mut has_type = false;
    loop {
        match text.word(at) {
            "const" | "volatile" | "device" | "constant" | "thread" | "unsigned" | "signed" | "struct"
            | "metal" => {}
            "threadgroup" => return refuse("threadgroup memory, which is not kept at a grid barrier"),
            "static" | "constexpr" | "using" | "typedef" | "enum" | "auto" | "union" => {
                return refuse(&format!("`{}`", text.word(at)));
            }
            ":" => {}
            "return" | "delete" | "discard_fragment" => return Ok(None),
            "<" if has_type => {
                let mut depth = 0_usize;
                loop {
                    match text.word(at) {
                        "<" => depth += 1,
                        ">" => depth -= 1,
                        ";" | "" => return Ok(None),
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                    at += 1;
                }
            }
            _ if is_name(text, at) && (!has_type || text.word(at - 1) == ":") => has_type = true,
            _ => break,
        }
        at += 1;
        if at >= range.end {
            return Ok(None);
        }
    }
    if !has_type && !matches!(text.word(at.saturating_sub(1)), "unsigned" | "signed") {
        return Ok(None);
    }
    let base = range.start..at;
    let mut all = Vec::new();
    loop {
        let stars = at;
        while matches!(text.word(at), "*" | "const" | "device" | "constant" | "thread") {
            at += 1;
        }
        if text.word(at) == "&" && is_name(text, at + 1) && text.word(at + 2) == "=" {
            return refuse("a reference, which is not kept at a grid barrier");
        }
        if !is_name(text, at) || !matches!(text.word(at + 1), "=" | ";" | "," | "[" | "(" | "{") {
            return if all.is_empty() {
                Ok(None)
            } else {
                refuse("a declaration that the driver cannot read")
            };
        }
        let is_pointer = (stars..at).any(|at| text.word(at) == "*");
        // `a * b;` is an expression without effect.
        let words = base.clone().map(|at| text.word(at));
        if is_pointer && !words.clone().any(|word| matches!(word, "device" | "constant")) {
            return refuse("a pointer to private memory, which is not kept at a grid barrier");
        }
        let kept = words.filter(|word| is_pointer || *word != "const").collect::<Vec<_>>();
        let pointer = (stars..at).map(|at| text.word(at)).filter(|word| *word == "*").collect::<String>();
        let ty = format!("{} {pointer}", kept.join(" ").replace(": :", "::"));
        let name = at;
        at += 1;
        let mut bound = None;
        if text.word(at) == "[" {
            let behind = text.behind(at).unwrap_or(range.end);
            bound = Some(at + 1..behind - 1);
            at = behind;
            if !matches!(text.word(at), ";" | ",") {
                return refuse("an array with more than one dimension or with initial values");
            }
        }
        let mut value = Value::None;
        match text.word(at) {
            "=" => {
                let first = at + 1;
                while !matches!(text.word(at), "," | ";" | "") {
                    at = match text.word(at) {
                        "(" | "[" | "{" => text.behind(at).unwrap_or(range.end),
                        "<" if text.word(at + 1) != "<"
                            && text.word(at - 1) != "<"
                            && has_comma(text, at) =>
                        {
                            return refuse("a template in a declaration");
                        }
                        _ => at + 1,
                    };
                }
                let is_list = text.word(first) == "{";
                value = if is_list { Value::Braces(first..at) } else { Value::Of(first..at) };
            }
            "(" | "{" => {
                let behind = text.behind(at).unwrap_or(range.end);
                value = Value::Braces(at..behind);
                at = behind;
            }
            _ => {}
        }
        all.push(Declared { ty, name, bound, value });
        match text.word(at) {
            "," => at += 1,
            ";" => return Ok(Some(all)),
            _ => return refuse("a declaration that the driver cannot read"),
        }
    }
}

/// Whether there is a comma before the next `>`: a list of template arguments, perhaps.
fn has_comma(text: &Text<'_>, open: usize) -> bool {
    (open + 1..text.tokens.len())
        .map(|at| text.word(at))
        .take_while(|word| !matches!(*word, ">" | ";" | "(" | ")"))
        .any(|word| word == ",")
}
