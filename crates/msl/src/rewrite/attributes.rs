//! Attribute lists `[[…]]`: parsing, and which of them clang may see.

use crate::lex::token_buffer::TokenBuffer;
use crate::reflection::builtins;

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// The name, without namespace.
    pub name: String,
    /// The text between the parentheses.
    pub argument: Option<String>,
    /// Offset of the name.
    pub offset: usize,
    /// Offset of the argument.
    pub argument_offset: usize,
}

/// Standard attributes of C++, which clang handles.
const STANDARD: [&str; 7] =
    ["maybe_unused", "nodiscard", "noreturn", "fallthrough", "likely", "unlikely", "deprecated"];

/// Attributes of functions and of statements that need no treatment, or that other parts of the rewriter read.
const OF_FUNCTIONS: [&str; 17] = [
    "kernel",
    "vertex",
    "fragment",
    "visible",
    "stitchable",
    "object",
    "mesh",
    "intersection",
    "host_name",
    "max_total_threads_per_threadgroup",
    "max_total_threadgroups_per_mesh_grid",
    "required_threads_per_threadgroup",
    "early_fragment_tests",
    "patch",
    "function_groups",
    "always_inline",
    "noinline",
];

/// Attributes of members of structs for graphics functions and for argument buffers.
const OF_MEMBERS: [&str; 31] = [
    "id",
    "attribute",
    "user",
    "position",
    "point_size",
    "point_coord",
    "clip_distance",
    "color",
    "depth",
    "stencil",
    "sample_mask",
    "sample_id",
    "flat",
    "invariant",
    "shared",
    "center_perspective",
    "center_no_perspective",
    "centroid_perspective",
    "centroid_no_perspective",
    "sample_perspective",
    "sample_no_perspective",
    "front_facing",
    "primitive_id",
    "primitive_culled",
    "render_target_array_index",
    "viewport_array_index",
    "raster_order_group",
    "accept_intersection",
    "continue_search",
    "distance",
    "aligned",
];

/// Where an attribute list stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before or behind a function's declaration, or in its body.
    Function,
    /// On a parameter; those of kernels are checked by [`crate::reflection`].
    Parameter,
    Member,
    /// On a variable at program scope.
    Variable,
}

/// What is wrong with an attribute that clang does not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Warning(String),
    Error(String),
}

/// Check an attribute that is removed. Attributes that give a value are handled before, where they can be.
pub(crate) fn check(attribute: &Attribute, place: Place) -> Option<Fault> {
    let name = attribute.name.as_str();
    let value = builtins::dimensions(name).is_some()
        || matches!(name, "buffer" | "threadgroup" | "texture" | "sampler" | "function_constant");
    let unknown = || format!("unknown attribute `{name}`");
    match place {
        Place::Parameter => None,
        Place::Function if OF_FUNCTIONS.contains(&name) || STANDARD.contains(&name) => None,
        Place::Function if value => Some(Fault::Error(format!("attribute `{name}` has no meaning here"))),
        Place::Function => Some(Fault::Warning(format!("{}, which is ignored", unknown()))),
        Place::Member if OF_MEMBERS.contains(&name) || STANDARD.contains(&name) => None,
        // Resources that a kernel takes in a struct, which its signature refuses.
        Place::Member if matches!(name, "buffer" | "threadgroup" | "texture" | "sampler") => None,
        Place::Member if value => Some(Fault::Error(format!(
            "attribute `{name}` on a member of a class template, or of a class in a function or without a name, is not supported"
        ))),
        Place::Member => Some(Fault::Warning(format!("{} on a member, which is ignored", unknown()))),
        Place::Variable if STANDARD.contains(&name) => None,
        Place::Variable if value => {
            Some(Fault::Error(format!("`[[{name}]]` on a variable at program scope is not supported")))
        }
        Place::Variable => Some(Fault::Error(format!("{} on a variable at program scope", unknown()))),
    }
}

/// Parse the list that opens at token `i` and ends before `behind`.
pub(crate) fn parse(tokens: &TokenBuffer, i: usize, behind: usize) -> Vec<Attribute> {
    let mut found = Vec::new();
    for (from, to) in tokens.split_commas(i + 2, behind.saturating_sub(2)) {
        let mut at = from;
        while tokens.spelling(at + 1) == "::" && at + 2 < to {
            at += 2;
        }
        let (argument, argument_offset) = match tokens.after_group(at + 1) {
            Some(end) if tokens.spelling(at + 1) == "(" && end <= to => {
                (Some(tokens.source_text(at + 2, end - 1).to_owned()), tokens.start(at + 2))
            }
            _ => (None, tokens.start(at)),
        };
        found.push(Attribute {
            name: tokens.spelling(at).to_owned(),
            argument,
            offset: tokens.start(at),
            argument_offset,
        });
    }
    found
}

/// Whether clang may see the list.
pub(crate) fn standard(list: &[Attribute]) -> bool {
    list.iter().all(|a| STANDARD.contains(&a.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_are_removed() {
        let checked = |name: &str, place| {
            let text = format!("[[{name}]]");
            let tokens = TokenBuffer::new(&text);
            check(&parse(&tokens, 0, tokens.len())[0], place)
        };
        for (name, place) in [
            ("visible", Place::Function),
            ("stitchable", Place::Function),
            ("function_groups(\"a\")", Place::Function),
            ("user(locn0)", Place::Member),
            ("id(3)", Place::Member),
            ("anything", Place::Parameter),
        ] {
            assert_eq!(checked(name, place), None, "{name}");
        }
        assert!(
            matches!(checked("kernal", Place::Function), Some(Fault::Warning(text)) if text.contains("`kernal`"))
        );
        assert!(matches!(checked("grid_size", Place::Member), Some(Fault::Error(_))));
        assert!(matches!(checked("buffer(0)", Place::Variable), Some(Fault::Error(_))));
        assert!(matches!(checked("idd(0)", Place::Member), Some(Fault::Warning(_))));
    }

    #[test]
    fn lists() {
        let tokens = TokenBuffer::new("[[buffer(A + 1), gpu::host_name(\"x,y\"), id]]");
        let list = parse(&tokens, 0, tokens.len());
        let pairs: Vec<_> = list.iter().map(|a| (a.name.as_str(), a.argument.as_deref())).collect();
        assert_eq!(pairs, [("buffer", Some("A + 1")), ("host_name", Some("\"x,y\"")), ("id", None)]);
        assert_eq!(list[0].argument_offset, 9);
        assert!(!standard(&list));
        let tokens = TokenBuffer::new("[[maybe_unused]]");
        assert!(standard(&parse(&tokens, 0, tokens.len())));
        assert!(parse(&TokenBuffer::new("[[]]"), 0, 4).is_empty());
    }
}
