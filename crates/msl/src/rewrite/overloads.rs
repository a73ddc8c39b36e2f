//! Overloads that differ only by address spaces.
//!
//! MSL overloads on address spaces. Without them such overloads are redefinitions in C++, so later ones are removed. Heads and
//! bodies are compared by tokens, without address spaces and with `const` normalized.

use std::collections::HashMap;

use crate::lex::TokenKind;
use crate::lex::token_buffer::TokenBuffer;

/// The declarations of all scopes so far.
#[derive(Default)]
pub(crate) struct OverloadTable {
    /// By scope ID and head.
    seen: HashMap<(usize, Vec<String>), Seen>,
}

struct Seen {
    body: Vec<String>,
    /// Whether it mentions an address space.
    spaced: bool,
}

/// A redeclaration.
pub(crate) struct Redeclaration {
    /// The token after it.
    pub behind: usize,
    /// Whether its body differs.
    pub differs: bool,
}

impl OverloadTable {
    /// Enter the declaration that begins at token `i` of a class or namespace with this ID.
    pub(crate) fn visit(
        &mut self,
        tokens: &TokenBuffer,
        i: usize,
        scope: usize,
        class: bool,
    ) -> Option<Redeclaration> {
        let (end, is_function) = head_end(tokens, i)?;
        let (body, behind) = match tokens.spelling(end) {
            ":" => {
                let behind = tokens.after_group(initialized(tokens, end)?)?;
                (words(tokens, end, behind), behind)
            }
            "{" => (words(tokens, end, tokens.after_group(end)?), tokens.after_group(end)?),
            "=" | ";" if class && is_function => {
                let semicolon = (end..tokens.len().min(end + 3)).find(|&t| tokens.spelling(t) == ";")?;
                (words(tokens, end, semicolon), semicolon)
            }
            _ => return None,
        };
        let behind = behind + usize::from(tokens.spelling(behind) == ";");
        let spaced = (i..end).any(|t| is_address_space(tokens.spelling(t)));
        let head = head_words(tokens, i, end);
        let is_constructor = is_function && is_constructor(tokens, i, end);
        let head = if is_constructor { without_trailing_const(head) } else { head };
        match self.seen.entry((scope, head)) {
            std::collections::hash_map::Entry::Occupied(first) => {
                let first = first.get();
                (spaced || first.spaced).then(|| Redeclaration { behind, differs: first.body != body })
            }
            std::collections::hash_map::Entry::Vacant(slot) => {
                slot.insert(Seen { body, spaced });
                None
            }
        }
    }
}

pub(crate) fn is_address_space(word: &str) -> bool {
    matches!(word, "device" | "constant" | "thread" | "threadgroup")
}

/// Variables that sources declare in `metal` for versions of Metal that lack them.
const OF_LATER_VERSIONS: [&str; 1] = ["thread_scope_system"];

/// The token after the declaration at `i`, if it is a variable that the library declares too.
pub(crate) fn of_library(tokens: &TokenBuffer, i: usize) -> Option<usize> {
    let (end, false) = head_end(tokens, i)? else { return None };
    if tokens.spelling(end) != "=" || !OF_LATER_VERSIONS.contains(&tokens.spelling(end - 1)) {
        return None;
    }
    // Bounds the search; the initializer is a cast of a number.
    (end..end + 40).find(|&t| tokens.spelling(t) == ";").map(|semicolon| semicolon + 1)
}

/// Whether the declaration at `i` is a kernel.
pub(crate) fn is_kernel(tokens: &TokenBuffer, i: usize) -> bool {
    head_end(tokens, i).is_some_and(|(end, _)| {
        (i..end).take_while(|&t| tokens.spelling(t) != "(").any(|t| tokens.spelling(t) == "kernel")
    })
}

/// Whether the declaration at `i` is a variable at namespace scope outside the `constant` address space.
pub(crate) fn is_variable(tokens: &TokenBuffer, i: usize) -> bool {
    let Some((end, false)) = head_end(tokens, i) else { return false };
    let words = (i..end).filter(|&t| tokens.is_identifier(t)).count();
    let other = |t: usize| {
        let class = matches!(tokens.spelling(t), "struct" | "class" | "union") && tokens.spelling(end) != "=";
        class || matches!(tokens.spelling(t), "constant" | "template" | "operator" | "static_assert" | "::")
    };
    tokens.is_identifier(i) && words > 1 && tokens.spelling(end) != "{" && !(i..end).any(other)
}

/// Whether the function declared by tokens `i..end` is a constructor, `C(` or `C::C(`.
pub(crate) fn is_constructor(tokens: &TokenBuffer, i: usize, end: usize) -> bool {
    let mut at = i;
    loop {
        at = match tokens.spelling(at) {
            "constexpr" | "explicit" | "inline" => at + 1,
            "__attribute__" => tokens.after_group(at + 1).unwrap_or(end),
            "template" => tokens.after_template_list(at + 1).unwrap_or(end),
            _ if tokens.kind(at) == Some(TokenKind::Directive) => at + 1,
            _ => match tokens.after_attribute_list(at) {
                Some(behind) => behind,
                None => break,
            },
        };
    }
    let mut class = "";
    while at < end && tokens.is_identifier(at) {
        let behind = tokens.after_template_list(at + 1).unwrap_or(at + 1);
        match tokens.spelling(behind) {
            "(" => return class.is_empty() || class == tokens.spelling(at),
            "::" => class = tokens.spelling(at),
            _ => return false,
        }
        at = behind + 1;
    }
    false
}

/// The brace of the body behind the constructor's initializers that begin at `colon`.
fn initialized(tokens: &TokenBuffer, colon: usize) -> Option<usize> {
    let mut at = colon + 1;
    loop {
        // The name of a member or base, and its arguments.
        while tokens.is_identifier(at) || tokens.spelling(at) == "::" {
            at = tokens.after_template_list(at + 1).unwrap_or(at + 1);
        }
        if !matches!(tokens.spelling(at), "(" | "{") {
            return None;
        }
        at = tokens.after_group(at)?;
        match tokens.spelling(at) {
            "{" => return Some(at),
            "," => at += 1,
            "." if tokens.spelling(at + 1) == "." => at += 3,
            _ => return None,
        }
    }
}

/// The end of a declaration's head, and whether it has a parameter list. A constructor's initializers are not of its head.
fn head_end(tokens: &TokenBuffer, i: usize) -> Option<(usize, bool)> {
    let (mut at, mut is_function) = (i, false);
    if matches!(tokens.spelling(i), "namespace" | "using" | "typedef" | "extern" | "kernel" | "enum") {
        return None;
    }
    while at < tokens.len() {
        match tokens.spelling(at) {
            "{" | ";" | "=" => return Some((at, is_function)),
            ":" if is_function => return Some((at, is_function)),
            "}" => return None,
            "operator" => {
                // `operator()` and `operator=` are names.
                at += 1;
                while at < tokens.len()
                    && !tokens.is_identifier(at)
                    && (tokens.spelling(at) != "(" || tokens.spelling(at + 1) == ")")
                {
                    at += if tokens.spelling(at) == "(" { 2 } else { 1 };
                }
            }
            "(" => {
                is_function = true;
                at = tokens.after_group(at)?;
            }
            "[" => at = tokens.after_group(at)?,
            "<" => at = tokens.after_template_list(at).unwrap_or(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// The tokens without address spaces; `const` first among its specifiers, and once.
fn words(tokens: &TokenBuffer, from: usize, to: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut run = 0;
    for t in from..to {
        let word = if tokens.spelling(t) == "constant" { "const" } else { tokens.spelling(t) };
        match word {
            "device" | "thread" | "threadgroup" => {}
            "const" => {
                if out.get(run).is_none_or(|first| first != "const") {
                    out.insert(run, word.to_owned());
                }
            }
            _ => {
                out.push(word.to_owned());
                if matches!(word, "(" | ")" | "," | "*" | "&" | "<" | ">" | ";" | "{" | "}" | "=") {
                    run = out.len();
                }
            }
        }
    }
    out
}

/// The words of a head, without specifiers that overloads may have or not.
fn head_words(tokens: &TokenBuffer, from: usize, to: usize) -> Vec<String> {
    let (mut head, mut at) = (Vec::new(), from);
    let is_specifier = |t: usize| matches!(tokens.spelling(t), "constexpr" | "inline" | "__attribute__");
    while at < to {
        let next = (at..to).find(|&t| is_specifier(t)).unwrap_or(to);
        head.extend(words(tokens, at, next));
        let attribute = tokens.spelling(next) == "__attribute__";
        at = tokens.after_group(next + 1).filter(|_| attribute).unwrap_or(next + 1);
    }
    head
}

fn without_trailing_const(mut head: Vec<String>) -> Vec<String> {
    if head.last().is_some_and(|last| last == "const") {
        head.pop();
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of the second of two declarations: kept, dropped, or dropped although it differs.
    fn second(text: &str, class: bool) -> Option<bool> {
        let tokens = TokenBuffer::new(text);
        let mut declarations = OverloadTable::default();
        let mut at = 0;
        for _ in 0..2 {
            match declarations.visit(&tokens, at, 0, class) {
                Some(repeated) => return Some(repeated.differs),
                None => {
                    let (end, _) = head_end(&tokens, at).unwrap();
                    let body = initialized(&tokens, end).filter(|_| tokens.spelling(end) == ":");
                    let end = body.unwrap_or(end);
                    at = if tokens.spelling(end) == "{" {
                        tokens.after_group(end).unwrap()
                    } else {
                        (end..tokens.len()).find(|&t| tokens.spelling(t) == ";").unwrap() + 1
                    };
                }
            }
        }
        None
    }

    #[test]
    fn variables_of_a_namespace() {
        let is = |text: &str| is_variable(&TokenBuffer::new(text), 0);
        for text in ["int a;", "struct S s = {1};", "static device int a;", "class C c = C();"] {
            assert!(is(text), "{text}");
        }
        for text in
            ["struct S;", "union U;", "constant int a = 1;", "template <class T> T t = 0;", "int f() {}"]
        {
            assert!(!is(text), "{text}");
        }
    }

    #[test]
    fn functions() {
        assert_eq!(
            second("int f(device int* a) { return *a; } int f(threadgroup int* a) { return *a; }", false),
            Some(false)
        );
        assert_eq!(
            second("int f(device int* a) { return 1; } int f(thread int* a) { return 2; }", false),
            Some(true)
        );
        assert_eq!(
            second("int f(constant int* a) { return 1; } int f(device const int* a) { return 1; }", false),
            Some(false)
        );
        assert_eq!(
            second("int f(const device int* a) { return 1; } int f(device int* a) { return 1; }", false),
            None
        );
        assert_eq!(
            second("int f(int a) { return 1; } int f(int a) { return 1; }", false),
            None,
            "clang's to tell"
        );
        assert_eq!(second("int f(device int* a); int f(thread int* a) { return 1; }", false), None);
    }

    #[test]
    fn initializers_are_of_the_body() {
        for text in [
            "C(float a) thread : r(a) {} C(float a) constant : r(a) {}",
            "constexpr C(float a) : n::B<int>{a}, r{a, {1}} {} constexpr C(float a) constant : n::B<int>{a}, r{a, {1}} {}",
            "inline __attribute__((x(1))) C(float a) thread : r(a) {} inline __attribute__((x(1))) C(float a) const device : r(a) {}",
            "inline __attribute__((x(1))) C(float a) thread : r(a) {} constexpr C(float a) constant : r(a) {}",
            "C::C(float a) thread : r(a) {} C::C(float a) constant : r(a) {}",
            "C<v<T>>::C(float a) thread {} C<v<T>>::C(float a) constant {}",
        ] {
            assert_eq!(second(text, true), Some(false), "{text}");
        }
        assert_eq!(second("C() thread : r(1) {} C() constant : r(2) {}", true), Some(true));
        assert_eq!(second("C(int a) thread : r(a) {} C(float a) constant : r(a) {}", true), None);
        let body = |text: &str| initialized(&TokenBuffer::new(text), 0);
        assert_eq!(body(": a(1), b{2} {}"), Some(10));
        for text in [": 3;", ": a", ": a(", ":", ": a(1),", ": a(1) + {}"] {
            assert_eq!(body(text), None, "{text}");
        }
    }

    #[test]
    fn members_and_classes() {
        assert_eq!(second("S() thread = default; S() constant = default;", true), Some(false));
        assert_eq!(
            second("constexpr S<T>() = default; constexpr S<T>() threadgroup = default;", true),
            Some(false)
        );
        assert_eq!(
            second("operator T() const thread { return x; } operator T() const constant { return x; }", true),
            Some(false)
        );
        assert_eq!(
            second(
                "T operator()(T a) device { return a; } T operator()(T a) const thread { return a; }",
                true
            ),
            None
        );
        assert_eq!(
            second("struct P<thread T*> { int x; } struct P<device T*> { int x; }", false),
            Some(false)
        );
        assert_eq!(second("struct P<device T*> { int x; } struct P<constant T*> { int x; }", false), None);
    }
}
