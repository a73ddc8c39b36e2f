//! Takes the text of an LLVM module apart into functions, variables, metadata nodes and other lines.

/// Functions with their bodies, and other lines.
pub fn items(text: &str) -> Vec<&str> {
    let (mut items, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let end = if rest.starts_with("define") { rest.find("\n}\n").map(|at| at + 3) } else { None };
        let end = end.or_else(|| rest.find('\n').map(|at| at + 1)).unwrap_or(rest.len());
        items.push(&rest[..end]);
        rest = &rest[end..];
    }
    items
}

/// The function, variable or metadata node that an item defines.
pub fn symbol(item: &str) -> Option<&str> {
    let numbered = item.strip_prefix('!').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let named = ["define", "declare", "@"].iter().any(|start| item.starts_with(start));
    // A declaration begins with its debug location.
    if numbered || named { names(item).find(|name| numbered || name.starts_with('@')) } else { None }
}

/// The names of functions, variables and metadata nodes in a text, with what could be taken for them.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(['@', '!']).map(|(at, _)| {
        let rest = &text[at + 1..];
        let len = match rest.strip_prefix('"') {
            Some(quoted) => quoted.find('"').map_or(rest.len(), |end| end + 2),
            None => {
                rest.find(|c: char| !c.is_ascii_alphanumeric() && !"_.$-".contains(c)).unwrap_or(rest.len())
            }
        };
        &text[at..at + 1 + len]
    })
}
