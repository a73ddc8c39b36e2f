//! Functions that a source declares with the label of an intrinsic of Metal's compiler: `void wait(…) __asm("air.…");`.
//!
//! Such a declaration becomes a definition that calls what the headers define for the intrinsic. Other labels are errors.

use std::collections::HashSet;

use crate::lex::TokenKind;
use crate::lex::token_buffer::TokenBuffer;
use crate::rewrite::kernels;

/// The intrinsics, without the types of their operands.
const KNOWN: [&str; 3] =
    ["air.simdgroup_async_copy_1d", "air.simdgroup_async_copy_2d", "air.wait_simdgroup_events"];

/// The functions that have been declared with labels.
#[derive(Default)]
pub(crate) struct LabeledFunctions {
    /// Names and parameters, without address spaces.
    defined: HashSet<String>,
}

/// The edits of a labeled declaration: by token, names for parameters without; the replacement of the label, and the token after it.
pub(crate) struct Definition {
    pub names: Vec<(usize, String)>,
    pub body: String,
    pub behind: usize,
}

/// Whether an `asm` at token `i` is the label of an intrinsic.
pub(crate) fn is_label(tokens: &TokenBuffer, i: usize) -> bool {
    label(tokens, i).is_some_and(|(name, _)| KNOWN.contains(&intrinsic(&name)))
}

/// The label of the `asm` at token `i`, and the token after it.
fn label(tokens: &TokenBuffer, i: usize) -> Option<(String, usize)> {
    let is_asm = matches!(tokens.spelling(i), "asm" | "__asm" | "__asm__");
    let behind = tokens.after_group(i + 1).filter(|_| is_asm && tokens.spelling(i + 1) == "(")?;
    let strings = (i + 2..behind - 1).all(|t| tokens.kind(t) == Some(TokenKind::StringLiteral));
    let text = kernels::literal(tokens.source_text(i + 2, behind - 1));
    // A label that begins with the byte 1 is not mangled.
    strings.then(|| (text.trim_start_matches('\u{1}').to_owned(), behind))
}

/// `air.copy.p3i8.p1i8` without its types.
fn intrinsic(name: &str) -> &str {
    let end = name.match_indices('.').nth(1).map_or(name.len(), |(at, _)| at);
    &name[..end]
}

impl LabeledFunctions {
    /// The definition for the declaration of the statement `head`, whose label begins at token `i`. `None` if it is no function.
    pub(crate) fn define(&mut self, tokens: &TokenBuffer, head: usize, i: usize) -> Option<Definition> {
        let (name, behind) = label(tokens, i).filter(|(name, _)| KNOWN.contains(&intrinsic(name)))?;
        let open = (head..i).find(|&t| tokens.spelling(t) == "(" && tokens.after_group(t) == Some(i))?;
        if tokens.spelling(behind) != ";" {
            return None;
        }
        let space = |word: &&str| !matches!(*word, "device" | "threadgroup" | "constant" | "thread");
        let key: Vec<&str> = (head..i).map(|t| tokens.spelling(t)).filter(space).collect();
        if !self.defined.insert(key.join(" ")) {
            return Some(Definition { names: Vec::new(), body: String::new(), behind });
        }
        let (mut names, mut arguments) = (Vec::new(), Vec::new());
        for (n, (from, to)) in tokens.split_commas(open + 1, i - 1).into_iter().enumerate() {
            let named = kernels::param(tokens, from, to).name;
            if named.is_empty() {
                names.push((to, format!(" elinvar_{n}")));
            }
            arguments.push(if named.is_empty() { format!("elinvar_{n}") } else { named });
        }
        let call = intrinsic(&name).trim_start_matches("air.");
        let returns = if tokens.spelling(open - 2) == "void" { "" } else { " return nullptr;" };
        let body = format!("{{ elinvar::air::{call}({});{returns} }}", arguments.join(", "));
        Some(Definition { names, body, behind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_intrinsics() {
        let is = |text: &str| is_label(&TokenBuffer::new(text), 0);
        for text in [
            r#"__asm("air.simdgroup_async_copy_2d.p3i8.p1i8")"#,
            r#"asm("\01air.simdgroup_async_copy_1d" ".p1i8.p3i8")"#,
            r#"__asm__("air.wait_simdgroup_events")"#,
        ] {
            assert!(is(text), "{text}");
        }
        for text in
            [r#"__asm("air.other")"#, r#"__asm("nop")"#, "asm", "asm(x)", r#"asm volatile("")"#, "asm("]
        {
            assert!(!is(text), "{text}");
        }
    }

    #[test]
    fn each_declaration_is_defined_once() {
        let mut functions = LabeledFunctions::default();
        let mut define = |text: &str| {
            let tokens = TokenBuffer::new(text);
            let at = (0..tokens.len()).find(|&t| tokens.spelling(t) == "__asm").unwrap();
            functions.define(&tokens, 0, at).map(|found| (found.body, found.names.len()))
        };
        let one = r#"thread E* copy(ulong, ulong size, threadgroup void*, const device void*, ulong) __asm("air.simdgroup_async_copy_1d.p3i8.p1i8");"#;
        let other = r#"thread E* copy(ulong, ulong size, device void*, const threadgroup void*, ulong) __asm("air.simdgroup_async_copy_1d.p1i8.p3i8");"#;
        let body = "{ elinvar::air::simdgroup_async_copy_1d(elinvar_0, size, elinvar_2, elinvar_3, elinvar_4); return nullptr; }";
        assert_eq!(define(one), Some((body.to_owned(), 4)));
        assert_eq!(define(other), Some((String::new(), 0)));
        let wait = r#"void wait(int, thread E**) __asm("air.wait_simdgroup_events");"#;
        let body = "{ elinvar::air::wait_simdgroup_events(elinvar_0, elinvar_1); }";
        assert_eq!(define(wait), Some((body.to_owned(), 2)));
        assert_eq!(define(r#"int x __asm("air.wait_simdgroup_events");"#), None);
    }
}
