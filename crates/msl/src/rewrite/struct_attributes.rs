//! Structs whose members have attributes for positions and sizes, taken by kernels as one parameter: `struct Ids { uint3 g
//! [[thread_position_in_grid]]; }`.
//!
//! Each such member gets an initializer that reads the value, and the struct an enumerator with its number, by which its type is
//! recognized. Templates are not supported.

use crate::lex::token_buffer::TokenBuffer;
use crate::reflection::builtins;
use crate::rewrite::attributes::{self, Attribute};

/// A struct with such attributes.
#[derive(Clone, Debug)]
pub(crate) struct AttributedStruct {
    /// Qualified name, `a::b::Ids`.
    pub path: String,
    pub members: Vec<Member>,
}

/// A data member.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub name: String,
    /// Token of the name.
    pub token: usize,
    /// Offset of the name.
    pub offset: usize,
    /// `None` without attribute.
    pub attribute: Option<Attribute>,
}

impl Member {
    /// The replacement of the member's name.
    pub(crate) fn initialized(&self, attribute: &Attribute) -> String {
        let name = &self.name;
        format!(
            "{name} = elinvar::builtin<__remove_cv(decltype({name})), elinvar::attribute::{}>()",
            attribute.name
        )
    }
}

/// The data members of the class whose brace is at `open`, if one has such an attribute.
pub(crate) fn members(tokens: &TokenBuffer, open: usize) -> Option<Vec<Member>> {
    let end = tokens.after_group(open)?.checked_sub(1)?;
    let (mut members, mut at) = (Vec::new(), open + 1);
    while at < end {
        let semicolon = statement_end(tokens, at, end);
        if !matches!(tokens.spelling(at), "using" | "typedef" | "static" | "friend" | "template" | "enum") {
            members.extend(declared(tokens, at, semicolon));
        }
        at = semicolon + 1;
    }
    members.iter().any(|m: &Member| m.attribute.is_some()).then_some(members)
}

/// The `;` of the statement, or the brace that ends a body.
fn statement_end(tokens: &TokenBuffer, mut at: usize, end: usize) -> usize {
    while at < end {
        match tokens.spelling(at) {
            ";" => return at,
            "{" => {
                let behind = tokens.after_group(at).unwrap_or(end);
                if tokens.spelling(behind) != ";" {
                    return behind.saturating_sub(1).max(at);
                }
                at = behind;
            }
            "(" | "[" => at = tokens.after_group(at).unwrap_or(at + 1),
            _ => at += 1,
        }
    }
    end
}

/// The data members that a statement declares.
fn declared(tokens: &TokenBuffer, from: usize, to: usize) -> Vec<Member> {
    let mut found = Vec::new();
    for (a, b) in tokens.split_commas(from, to) {
        let (mut name, mut attribute, mut at) = (None, None, a);
        while at < b {
            if let Some(behind) = tokens.after_attribute_list(at) {
                let mut list = attributes::parse(tokens, at, behind);
                let known = list.iter().position(|a| builtins::dimensions(&a.name).is_some());
                attribute = known.map(|i| list.swap_remove(i)).or(attribute);
                at = behind;
                continue;
            }
            match tokens.spelling(at) {
                "(" | "{" => return Vec::new(),
                "=" | ":" => break,
                "[" => at = tokens.after_group(at).unwrap_or(b),
                "<" => at = tokens.after_template_list(at).unwrap_or(at + 1),
                _ => {
                    name = tokens.is_identifier(at).then_some(at).or(name);
                    at += 1;
                }
            }
        }
        found.extend(name.map(|token| Member {
            name: tokens.spelling(token).to_owned(),
            token,
            offset: tokens.start(token),
            attribute,
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(String, Option<String>)>> {
        let tokens = TokenBuffer::new(text);
        let open = (0..tokens.len()).find(|&i| tokens.spelling(i) == "{").unwrap();
        let found = members(&tokens, open)?;
        Some(found.into_iter().map(|m| (m.name, m.attribute.map(|a| a.name))).collect())
    }

    #[test]
    fn members_and_their_attributes() {
        let text = "struct S { uint3 g [[thread_position_in_grid]], n [[grid_size]]; \
                    [[thread_index_in_simdgroup]] ushort lane; vec<float, 2> v; uint f() const { return 1; } \
                    static constexpr int K = 3; float a[4] = {1, 2}; };";
        let expected = [
            ("g", Some("thread_position_in_grid")),
            ("n", Some("grid_size")),
            ("lane", Some("thread_index_in_simdgroup")),
            ("v", None),
            ("a", None),
        ];
        let found = read(text).unwrap();
        let found: Vec<_> = found.iter().map(|(n, a)| (n.as_str(), a.as_deref())).collect();
        assert_eq!(found, expected);
        assert_eq!(read("struct S { device float* a [[id(0)]]; int b; };"), None);
        for text in ["{", "{ a [[grid_size]]", "{ uint a [[grid_size]] }", "{ {{}} ; }", "{ , ; = }"] {
            let _ = read(text);
        }
    }
}
