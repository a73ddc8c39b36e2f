//! The keyword `threadgroup`: variables, and qualifiers of types.

use super::{AddressSpaces, Rewriter, Scope};
use crate::lex::TokenKind;

/// Specifiers of a threadgroup variable.
pub(super) const THREADGROUP: &str = "static __attribute__((used, section(\"elinvar.threadgroup\")))";

impl Rewriter<'_> {
    /// Rewrite `threadgroup`: a variable becomes static in its own section; elsewhere the qualifier is replaced.
    pub(super) fn threadgroup(&mut self, i: usize) -> usize {
        let mut after = i + 1;
        if self.declares_variable(i) {
            let mut place = i;
            if self.tokens.spelling(i + 1) == "alignas"
                && let Some(behind) = self.tokens.after_group(i + 2)
            {
                // `static` has to follow the attribute, not stand between specifiers.
                self.edit(i, i + 1, String::new());
                place = behind - 1;
                after = behind;
            }
            let keep = if place == i { "" } else { ") " };
            if self.address_spaces == AddressSpaces::Annotated
                && !matches!(self.scopes.last(), Some(Scope::Body { kernel: true }))
            {
                let message = "a threadgroup variable outside a kernel function, which is an error in Metal";
                self.warnings.push((self.tokens.start(i), message.to_owned()));
            }
            let variable = match self.address_spaces {
                AddressSpaces::Erased => THREADGROUP,
                AddressSpaces::Annotated => "static ELINVAR_threadgroup",
            };
            self.edit(place, place + 1, format!("{keep}{variable}"));
        } else {
            if !self.in_body() && self.begins_statement(i) && self.is_variable(i) {
                self.error(i, "a threadgroup variable at program scope; declare it in a kernel");
            }
            self.edit(i, i + 1, self.space_attribute(i).to_owned());
        }
        after
    }

    fn declares_variable(&self, i: usize) -> bool {
        self.in_body() && self.begins_statement(i) && self.is_variable(i)
    }

    /// Whether the declaration after the qualifier at `i` is a variable, and no pointer, reference or function.
    fn is_variable(&self, i: usize) -> bool {
        let (mut at, mut words) = (i + 1, 0);
        while at < self.tokens.len() {
            match self.tokens.spelling(at) {
                "*" | "&" | "&&" | ")" | "{" => return false,
                "[" if self.tokens.after_attribute_list(at).is_none() => return words > 1,
                ";" | "=" | "," => return words > 1,
                "alignas" | "decltype" | "__attribute__" | "__attribute" | "__declspec" | "__typeof__" => {
                    words += usize::from(matches!(self.tokens.spelling(at), "decltype" | "__typeof__"));
                    at = self.tokens.after_group(at + 1).unwrap_or(at + 1);
                }
                // A class that is defined with the variable.
                "struct" | "class" | "union" | "enum" => {
                    let brace =
                        (at + 1..at + 8).find(|&t| matches!(self.tokens.spelling(t), "{" | ";" | "" | "="));
                    match brace.filter(|&t| self.tokens.spelling(t) == "{") {
                        Some(open) => {
                            words += 1;
                            at = self.tokens.after_group(open).unwrap_or(open + 1);
                        }
                        None => at += 1,
                    }
                }
                "<" => at = self.tokens.after_template_list(at).unwrap_or(at + 1),
                "(" => return false,
                _ if self.tokens.after_attribute_list(at).is_some() => {
                    at = self.tokens.after_attribute_list(at).unwrap_or(at + 1);
                }
                _ => {
                    words += usize::from(self.tokens.is_identifier(at));
                    at += 1;
                }
            }
        }
        false
    }

    /// Whether only specifiers precede token `i` in the statement.
    fn begins_statement(&self, i: usize) -> bool {
        let mut at = self.statement;
        while at < i {
            match self.tokens.spelling(at) {
                "static" | "const" | "constexpr" | "volatile" => at += 1,
                "alignas" | "__attribute__" | "__attribute" | "__declspec" => {
                    at = self.tokens.after_group(at + 1).unwrap_or(i + 1);
                }
                // A label, or the head of a statement without braces.
                "case" | "default" => return self.tokens.spelling(i - 1) == ":",
                _ if self.tokens.after_attribute_list(at).is_some() => {
                    at = self.tokens.after_attribute_list(at).unwrap_or(i)
                }
                _ if self.tokens.kind(at) == Some(TokenKind::Directive) => at += 1,
                _ => return false,
            }
        }
        at == i
    }
}
