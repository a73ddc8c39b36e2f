//! Joins the text of LLVM modules, so that one run of clang serves many kernels. Only the names of entries are changed.

use std::collections::HashSet;

use elinvar_spmd::SYMBOL;

/// Joins modules that each define [`SYMBOL`], and returns the names of these functions in the result. Definitions with the same name must
/// be identical; of several declarations, the first is used.
pub(crate) fn together<'a>(texts: impl Iterator<Item = &'a str>) -> (String, Vec<String>) {
    let (mut all, mut symbols, mut seen) = (String::new(), Vec::new(), HashSet::new());
    for text in texts {
        for item in items(text) {
            if item.starts_with("define") && names(item).next() == Some(&format!("@{SYMBOL}")) {
                let symbol = format!("{SYMBOL}_{}", symbols.len());
                all.push_str(&item.replacen(SYMBOL, &symbol, 1));
                symbols.push(symbol);
            } else if seen.insert(symbol(item).unwrap_or(item)) {
                all.push_str(item);
            }
        }
    }
    (all, symbols)
}

fn items(text: &str) -> Vec<&str> {
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
fn symbol(item: &str) -> Option<&str> {
    let numbered = item.strip_prefix('!').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let named = ["define", "declare", "@"].iter().any(|start| item.starts_with(start));
    if numbered || named { names(item).next() } else { None }
}

/// The names of functions, variables and metadata nodes in a text, with what could be taken for them.
fn names(text: &str) -> impl Iterator<Item = &str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_modules_share_is_there_once() {
        let text = |n: u32| {
            format!(
                "declare void @f()\ndefine i32 @{SYMBOL}(i32 %x) {{\n  call void @f()\n  ret i32 {n}\n}}\n\
                 @t = internal constant i32 1\n"
            )
        };
        let (all, symbols) = together([text(1), text(2)].iter().map(String::as_str));
        assert_eq!(symbols, [format!("{SYMBOL}_0"), format!("{SYMBOL}_1")]);
        assert_eq!(all.matches("declare").count(), 1);
        assert_eq!(all.matches("@t =").count(), 1);
        assert!(all.contains(&format!("@{SYMBOL}_1(i32 %x) {{\n  call void @f()\n  ret i32 2\n}}\n")));
    }
}
