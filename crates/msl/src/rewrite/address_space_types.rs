//! Types that differ by address spaces only, which are one type here: specializations and type traits that tell them apart are errors.
//!
//! Overloaded functions are told apart in another way; see [`super::dispatch`].

use std::collections::BTreeMap;

use super::qualifiers::ADDRESS_SPACES;
use crate::lex::token_buffer::TokenBuffer;

/// The address spaces that a pointer may have in a kernel.
const ALL: [&str; 4] = ["device", "constant", "thread", "threadgroup"];

/// Longest text of a specialization that is compared, in tokens, if it has no braces.
const LONGEST: usize = 256;

/// Type traits that compare types.
const COMPARISONS: [&str; 8] = [
    "is_same",
    "is_same_v",
    "is_convertible",
    "is_convertible_v",
    "is_assignable",
    "is_assignable_v",
    "is_constructible",
    "is_constructible_v",
];

/// The errors: offset and message.
pub(super) fn errors(tokens: &TokenBuffer) -> Vec<(usize, String)> {
    let mut errors = Vec::new();
    let mut specializations: BTreeMap<String, Specialized> = BTreeMap::new();
    for i in 0..tokens.len() {
        let word = tokens.spelling(i);
        if COMPARISONS.contains(&word)
            && let Some(behind) = tokens.after_template_list(i + 1)
            && differ(tokens, i + 2, behind - 1)
        {
            let message = format!(
                "`{word}` of types with different address spaces: types have no address space here, so that they would be the same"
            );
            errors.push((tokens.start(i), message));
        }
        if word == "template"
            && let Some(behind) = tokens.after_template_list(i + 1)
            && let Some((name, list)) = specialization(tokens, behind)
        {
            let spaces = spaces(tokens, list.0, list.1);
            if spaces.is_empty() {
                continue;
            }
            let body = body(tokens, list.1 + 1);
            let found = specializations.entry(key(tokens, name, list)).or_insert_with(|| Specialized {
                offset: tokens.start(name),
                text: tokens.source_text(name, list.1 + 1).to_owned(),
                body: body.clone(),
                spaces: Vec::new(),
            });
            if found.body != body {
                let message = format!(
                    "this specialization and `{}` differ, and their types only by address spaces, which types do not have here",
                    found.text
                );
                errors.push((tokens.start(name), message));
            }
            found.spaces.extend(spaces);
        }
    }
    for Specialized { offset, text, spaces, .. } in specializations.into_values() {
        let missing: Vec<_> = ALL.iter().filter(|space| !spaces.contains(space)).collect();
        if let Some(missing) = missing.first() {
            let message = format!(
                "`{text}` is specialized for some address spaces and not for `{missing}`: types have no address space here, so that it \
                 would be chosen for all"
            );
            errors.push((offset, message));
        }
    }
    errors
}

/// Specializations whose arguments differ by address spaces only.
struct Specialized<'a> {
    /// Of the first.
    offset: usize,
    text: String,
    /// What is declared, without address spaces.
    body: Vec<&'a str>,
    spaces: Vec<&'a str>,
}

/// The name and the template arguments of the class or variable whose specialization goes on at token `i`.
fn specialization(tokens: &TokenBuffer, i: usize) -> Option<(usize, (usize, usize))> {
    // Bounds the search; no declaration has more specifiers.
    let mut name = None;
    for t in i..i + 32 {
        match tokens.spelling(t) {
            "(" | ";" | "{" | "=" | ":" | "" => return None,
            "<" => {
                name = tokens.is_identifier(t.wrapping_sub(1)).then_some(t);
                let behind = tokens.after_template_list(t)?;
                // Of the type of a variable, or of a class around the name.
                if tokens.is_identifier(behind) && tokens.spelling(behind) != "final"
                    || matches!(tokens.spelling(behind), "::" | "*" | "&")
                {
                    return specialization(tokens, behind);
                }
                break;
            }
            _ => {}
        }
    }
    let open = name?;
    let behind = tokens.after_template_list(open)?;
    let ends = matches!(tokens.spelling(behind), "{" | ":" | "=" | "final");
    ends.then_some((open - 1, (open + 1, behind - 1)))
}

/// The address spaces among tokens.
fn spaces<'a>(tokens: &TokenBuffer<'a>, from: usize, to: usize) -> Vec<&'a str> {
    (from..to).map(|t| tokens.spelling(t)).filter(|word| ADDRESS_SPACES.contains(word)).collect()
}

/// The specialization without its address spaces. A pointer to `constant` is one to `const`.
fn key(tokens: &TokenBuffer, name: usize, (from, to): (usize, usize)) -> String {
    let plain = |word: &&str| !ADDRESS_SPACES.contains(word) && *word != "const";
    let words: Vec<&str> = (from..to).map(|t| tokens.spelling(t)).filter(plain).collect();
    format!("{} {}", tokens.spelling(name), words.join(" "))
}

/// The words from token `from` to the end of the declaration, without address spaces.
fn body<'a>(tokens: &TokenBuffer<'a>, from: usize) -> Vec<&'a str> {
    let mut end = from;
    while end < from + LONGEST && !matches!(tokens.spelling(end), ";" | "") {
        end = tokens.after_group(end).unwrap_or(end + 1);
    }
    (from..end).map(|t| tokens.spelling(t)).filter(|word| !ADDRESS_SPACES.contains(word)).collect()
}

/// Whether the arguments of a type trait are in different address spaces, or some in one and others in none. What arguments of
/// arguments are in may not matter: `remove_reference_t<thread T&>`.
fn differ(tokens: &TokenBuffer, from: usize, to: usize) -> bool {
    let mut arguments = tokens.split_commas(from, to).into_iter().map(|(from, to)| {
        let (mut at, mut found) = (from, Vec::new());
        while at < to {
            found.extend(spaces(tokens, at, at + 1));
            at = tokens.after_template_list(at).or_else(|| tokens.after_group(at)).unwrap_or(at + 1);
        }
        found
    });
    let first = arguments.next().unwrap_or_default();
    arguments.any(|other| other != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        errors(&TokenBuffer::new(text)).into_iter().map(|(_, message)| message).collect()
    }

    #[test]
    fn types_that_only_differ_by_address_spaces() {
        for (text, part) in [
            ("bool b = is_same_v<device int*, threadgroup int*>;", "`is_same_v`"),
            ("static_assert(metal::is_same<decltype(p), device int*>::value);", "`is_same`"),
            ("bool b = is_convertible<thread T&, constant T&>::value;", "`is_convertible`"),
            ("template <class T> struct D<device T*> { int x; };", "`D<device T*>`"),
            ("template <> struct D<thread int> final : E {};", "`D<thread int>`"),
            ("template <class T> constexpr constant bool is_device<device T*> = true;", "`is_device<device T*>`"),
            ("template <class T> constant A<T> is_device<device T*> = 1;", "`is_device<device T*>`"),
            (
                "template <class T> struct P<device T*> {}; template <class T> struct P<thread T*> {};
                 template <class T> struct P<threadgroup T*> {};",
                "not for `constant`",
            ),
            (
                "template <class T> struct P<device T*> {}; template <class T> struct P<thread T*> {};
                 template <class T> struct P<threadgroup T*> {}; template <class T> struct P<constant T*> { int x; };",
                "and `P<device T*>` differ",
            ),
        ] {
            let found = found(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].contains(part), "{found:?}");
        }
        for text in [
            "bool b = is_same_v<device T*, device U*> && is_same_v<T, U>;",
            "bool b = is_same_v<remove_reference_t<thread int&>, int> && is_same_v<decltype((thread int)x), T>;",
            "template <class T> struct P<device T*> {}; template <class T> struct P<const constant T*> {};
             template <class T> struct P<threadgroup T*> {}; template <class T> struct P<thread T*> {};",
            "template <class T> device T* f(device T* a) { return a; }",
            "template <class T, device int* p> struct S { device T* q; P<device T*> r; };",
            "template <class T> void f<device T*>(int a) {}",
            "template <class T> struct S : P<device T*> {};",
            "template <class T> P<device T*> f();",
            "template <class T> using U = P<device T*>;",
            "template <class T> struct D<T*> { device T* a; };",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }
}
