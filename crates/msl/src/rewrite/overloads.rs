//! Declarations that differ only by address space.
//!
//! MSL overloads on address spaces; without them such overloads are one declaration, which C++ takes once.
//! A later one is dropped. Heads and bodies are compared by their tokens, address spaces left out, `const`
//! in front of its specifiers and once.

use std::collections::HashMap;

use crate::lex::token_tree::Code;

/// The declarations of all scopes so far.
#[derive(Default)]
pub(crate) struct Declarations {
    /// By the scope's number and the head.
    seen: HashMap<(usize, Vec<String>), Seen>,
}

struct Seen {
    body: Vec<String>,
    /// Whether it mentions an address space.
    spaced: bool,
}

/// A declaration that repeats an earlier one.
pub(crate) struct Repeated {
    /// The token behind it.
    pub behind: usize,
    /// Whether its body is another one.
    pub differs: bool,
}

impl Declarations {
    /// Look at the declaration that begins at token `i` of scope number `scope`, which is a class or a namespace.
    pub(crate) fn visit(&mut self, code: &Code, i: usize, scope: usize, class: bool) -> Option<Repeated> {
        let (end, is_function) = head_end(code, i)?;
        let (body, behind) = match code.at(end) {
            "{" => (words(code, end, code.behind(end)?), code.behind(end)?),
            "=" | ";" if class && is_function => {
                let semicolon = (end..code.len().min(end + 3)).find(|&t| code.at(t) == ";")?;
                (words(code, end, semicolon), semicolon)
            }
            _ => return None,
        };
        let behind = behind + usize::from(code.at(behind) == ";");
        let spaced = (i..end).any(|t| is_space(code.at(t)));
        let head = words(code, i, end);
        let is_constructor = class && is_constructor(code, i, end);
        let head = if is_constructor { without_trailing_const(head) } else { head };
        match self.seen.entry((scope, head)) {
            std::collections::hash_map::Entry::Occupied(first) => {
                let first = first.get();
                (spaced || first.spaced).then(|| Repeated { behind, differs: first.body != body })
            }
            std::collections::hash_map::Entry::Vacant(slot) => {
                slot.insert(Seen { body, spaced });
                None
            }
        }
    }
}

pub(crate) fn is_space(word: &str) -> bool {
    matches!(word, "device" | "constant" | "thread" | "threadgroup")
}

/// Whether the declaration at `i` of a namespace is a variable that is not in the constant address space.
pub(crate) fn is_variable(code: &Code, i: usize) -> bool {
    let Some((end, false)) = head_end(code, i) else { return false };
    let words = (i..end).filter(|&t| code.is_word(t)).count();
    let other = |t: usize| {
        let class = matches!(code.at(t), "struct" | "class" | "union") && code.at(end) != "=";
        class || matches!(code.at(t), "constant" | "template" | "operator" | "static_assert" | "::")
    };
    code.is_word(i) && words > 1 && code.at(end) != "{" && !(i..end).any(other)
}

/// Whether the function whose declaration runs from `i` to before `end` has no result type.
pub(crate) fn is_constructor(code: &Code, i: usize, end: usize) -> bool {
    let Some(open) = (i..end).find(|&t| code.at(t) == "(" && code.at(t.wrapping_sub(1)) != "__attribute__")
    else {
        return false;
    };
    let specifier = |t: usize| {
        matches!(code.at(t), "constexpr" | "explicit" | "inline" | "__attribute__" | "METAL_FUNC")
            || !code.is_word(t)
    };
    let mut name = open.wrapping_sub(1);
    if code.at(name) == ">" {
        name = (i..name).rev().find(|&t| code.at(t) == "<").map_or(i, |t| t.wrapping_sub(1));
    }
    let mut at = i;
    if code.at(at) == "template" {
        at = code.behind_angles(at + 1).unwrap_or(at + 1);
    }
    code.is_word(name) && (at..name).all(|t| specifier(t) && !matches!(code.at(t), "*" | "&" | ">" | "::"))
}

/// Where the head of a declaration ends, and whether it has a parameter list.
fn head_end(code: &Code, i: usize) -> Option<(usize, bool)> {
    let (mut at, mut is_function) = (i, false);
    if matches!(code.at(i), "namespace" | "using" | "typedef" | "extern" | "kernel" | "enum") {
        return None;
    }
    while at < code.len() {
        match code.at(at) {
            "{" | ";" | "=" => return Some((at, is_function)),
            "}" => return None,
            "operator" => {
                // `operator()` and `operator=` are names.
                at += 1;
                while at < code.len() && !code.is_word(at) && (code.at(at) != "(" || code.at(at + 1) == ")") {
                    at += if code.at(at) == "(" { 2 } else { 1 };
                }
            }
            "(" => {
                is_function = true;
                at = code.behind(at)?;
            }
            "[" => at = code.behind(at)?,
            "<" => at = code.behind_angles(at).unwrap_or(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// The tokens without address spaces; `const` first among its neighbours, and once.
fn words(code: &Code, from: usize, to: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut run = 0;
    for t in from..to {
        let word = if code.at(t) == "constant" { "const" } else { code.at(t) };
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
        let code = Code::new(text);
        let mut declarations = Declarations::default();
        let mut at = 0;
        for _ in 0..2 {
            match declarations.visit(&code, at, 0, class) {
                Some(repeated) => return Some(repeated.differs),
                None => {
                    let (end, _) = head_end(&code, at).unwrap();
                    at = if code.at(end) == "{" {
                        code.behind(end).unwrap()
                    } else {
                        (end..code.len()).find(|&t| code.at(t) == ";").unwrap() + 1
                    };
                }
            }
        }
        None
    }

    #[test]
    fn variables_of_a_namespace() {
        let is = |text: &str| is_variable(&Code::new(text), 0);
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
