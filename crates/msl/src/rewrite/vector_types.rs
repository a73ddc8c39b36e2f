//! Types that a source declares as the compiler's vectors: `typedef float f8 __attribute__((ext_vector_type(8)));`.
//!
//! In Metal these are the vectors of the library. They become its templates, so that both are one type here too.

use crate::lex::token_buffer::TokenBuffer;

/// The alias templates of the attributes.
const TEMPLATES: [(&str, &str); 2] =
    [("ext_vector_type", "elinvar::ext_vector"), ("packed_vector_type", "elinvar::packed_vector")];

/// The vector attribute at token `i`: the alias template, its length, and the token after it.
fn attribute(tokens: &TokenBuffer, i: usize) -> Option<(&'static str, String, usize)> {
    let behind = tokens.after_group(i + 1).filter(|_| tokens.spelling(i) == "__attribute__")?;
    let name = tokens.spelling(i + 3).trim_start_matches("__").trim_end_matches("__");
    let (_, template) = TEMPLATES.iter().find(|(known, _)| *known == name)?;
    let end = tokens.after_group(i + 4)?;
    let length = tokens.source_text(i + 5, end - 1);
    // A name in parentheses would not be deduced.
    let length = if end - i == 7 { length.to_owned() } else { format!("({length})") };
    (end + 2 == behind).then_some((*template, length, behind))
}

/// The replacement of the `typedef` at token `i`, and its `;`.
pub(crate) fn typedef(tokens: &TokenBuffer, i: usize) -> Option<(String, usize)> {
    // Bounds the search; no such declaration is longer.
    let semicolon = (i..i + 40).find(|&t| matches!(tokens.spelling(t), ";" | "{" | ""))?;
    if tokens.spelling(semicolon) != ";" {
        return None;
    }
    let at = (i..semicolon).find(|&t| attribute(tokens, t).is_some())?;
    let (template, length, behind) = attribute(tokens, at)?;
    let words = [&(i + 1..at).collect::<Vec<_>>()[..], &(behind..semicolon).collect::<Vec<_>>()].concat();
    let (&name, of) = words.split_last()?;
    let of: Vec<&str> = of.iter().map(|&t| tokens.spelling(t)).collect();
    let plain = tokens.is_identifier(name) && !of.is_empty();
    plain.then(|| {
        (format!("typedef {template}<{}, {length}> {}", of.join(" "), tokens.spelling(name)), semicolon)
    })
}

/// Types of template parameters that are lengths of vectors, other than `int`.
const LENGTH_TYPES: [&str; 10] =
    ["uint", "ushort", "short", "uchar", "ulong", "long", "size_t", "uint32_t", "uint16_t", "unsigned"];

/// The types of parameters of the template at token `i` that its declaration uses as lengths of vectors. The compiler deduces such a length
/// whatever its type; that of a class template has to be `int`.
pub(crate) fn lengths(tokens: &TokenBuffer, i: usize) -> Vec<usize> {
    let Some(behind) = tokens.after_template_list(i + 1) else { return Vec::new() };
    let end = |t: &usize| matches!(tokens.spelling(*t), "{" | ";" | "");
    // Bounds the search, which is for the declaration's head.
    let head = behind..(behind..behind + 96).find(end).unwrap_or(behind + 96);
    let is_length = |name: &str| {
        head.clone().any(|t| {
            let list = (tokens.spelling(t) == "vec").then(|| tokens.after_template_list(t + 1)).flatten();
            list.is_some_and(|list| tokens.spelling(list - 2) == name && tokens.spelling(list - 3) == ",")
        })
    };
    let mut found = Vec::new();
    for (from, to) in tokens.split_commas(i + 2, behind - 1) {
        let words = to - from;
        let plain = words == 2 || (words == 3 && tokens.spelling(from + 1) == "int");
        if plain && LENGTH_TYPES.contains(&tokens.spelling(from)) && is_length(tokens.spelling(to - 1)) {
            found.push(from);
        }
    }
    found
}

/// The replacement of a type that begins at token `i` and ends in the attribute, and the token after it.
pub(crate) fn of_type(tokens: &TokenBuffer, i: usize) -> Option<(String, usize)> {
    if !matches!(tokens.spelling(i.wrapping_sub(1)), "=" | "<" | "," | "(") {
        return None;
    }
    let mut at = i;
    while at < i + 8
        && (tokens.is_identifier(at) || tokens.spelling(at) == "::")
        && tokens.spelling(at) != "__attribute__"
    {
        at = tokens.after_template_list(at + 1).unwrap_or(at + 1);
    }
    let (template, length, behind) = attribute(tokens, at)?;
    (at > i).then(|| (format!("{template}<{}, {length}>", tokens.source_text(i, at)), behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_vectors() {
        let found = |text: &str| lengths(&TokenBuffer::new(text), 0);
        assert_eq!(found("template <typename T, uint N> metal::vec<uint, N> f(metal::vec<T, N> v) {"), [5]);
        assert_eq!(found("template <unsigned int N> T f(vec<float, N> v);"), [2]);
        assert_eq!(found("template <size_t M, ushort N> struct S<vec<float, N>> { array<int, M> a; };"), [5]);
        for none in [
            "template <int N> f(vec<T, N> v) {",
            "template <uint N> f(array<T, N> v) { vec<T, N> a; }",
            "template <",
            "template",
        ] {
            assert_eq!(found(none), [0; 0], "{none}");
        }
    }

    #[test]
    fn declarations_of_vectors() {
        let replaced = |text: &str| typedef(&TokenBuffer::new(text), 0).map(|(new, _)| new);
        for text in [
            "typedef unsigned int u8 __attribute__((ext_vector_type(2 * 4)));",
            "typedef __attribute__((__ext_vector_type__(2 * 4))) unsigned int u8;",
        ] {
            assert_eq!(
                replaced(text).as_deref(),
                Some("typedef elinvar::ext_vector<unsigned int, (2 * 4)> u8")
            );
        }
        let packed = "typedef half h3 __attribute__((packed_vector_type(3)));";
        assert_eq!(replaced(packed).as_deref(), Some("typedef elinvar::packed_vector<half, 3> h3"));
        for text in [
            "typedef int a;",
            "typedef int a __attribute__((aligned(8)));",
            "typedef",
            "typedef __attribute__((",
        ] {
            assert_eq!(replaced(text), None, "{text}");
        }
        let used = |text: &str, i| of_type(&TokenBuffer::new(text), i).map(|(new, _)| new);
        assert_eq!(
            used("= T __attribute__((ext_vector_type(N)));", 1).as_deref(),
            Some("elinvar::ext_vector<T, N>")
        );
        assert_eq!(
            used("<n::A<int> __attribute__((ext_vector_type(N)))>", 1).as_deref(),
            Some("elinvar::ext_vector<n::A<int>, N>")
        );
        assert_eq!(used("= T;", 1), None);
        assert_eq!(used("int x __attribute__((ext_vector_type(2)));", 1), None);
    }
}
