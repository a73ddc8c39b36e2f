//! Leaves out the functions that no kernel can reach, before clang writes their trees: included files often have hundreds.
//!
//! A word that is a function's name counts as a call, so what is left out is never needed. Places in the text stay the same.

use std::collections::{HashMap, HashSet};

use super::text::{tokens, words};

/// A function definition: its name and range.
#[derive(Debug, PartialEq, Eq)]
struct Definition<'a> {
    name: &'a str,
    begin: usize,
    end: usize,
    is_kernel: bool,
}

/// The text with functions that no kernel among `kernels` (all if empty) reaches replaced by spaces.
pub(super) fn prune(text: &str, kernels: &[String]) -> String {
    let definitions = definitions(text);
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, definition) in definitions.iter().enumerate() {
        by_name.entry(definition.name).or_default().push(index);
    }
    let is_root = |definition: &Definition| {
        definition.is_kernel && (kernels.is_empty() || kernels.iter().any(|name| name == definition.name))
    };
    let mut open: Vec<usize> = (0..definitions.len()).filter(|index| is_root(&definitions[*index])).collect();
    let mut kept: HashSet<usize> = open.iter().copied().collect();
    while let Some(index) = open.pop() {
        for word in words(&text[definitions[index].begin..definitions[index].end]) {
            for callee in by_name.get(word).into_iter().flatten() {
                if kept.insert(*callee) {
                    open.push(*callee);
                }
            }
        }
    }
    let mut out = text.as_bytes().to_vec();
    for (index, definition) in definitions.iter().enumerate() {
        if !kept.contains(&index) {
            out[definition.begin..definition.end]
                .iter_mut()
                .filter(|byte| **byte != b'\n')
                .for_each(|byte| *byte = b' ');
        }
    }
    // Whole tokens are replaced, so the text stays UTF-8.
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// The function definitions at file scope.
fn definitions(text: &str) -> Vec<Definition<'_>> {
    let mut found = Vec::new();
    let (mut depth, mut begin) = (0_usize, None::<usize>);
    let mut head: Vec<&str> = Vec::new();
    let mut body: Option<(&str, bool)> = None;
    for (at, token) in tokens(text, 0) {
        // A directive that is left is a pragma.
        if depth == 0 && token == "#" {
            begin = None;
            head.clear();
            continue;
        }
        let start = *begin.get_or_insert(at);
        match token {
            "(" | "[" | "{" => {
                if token == "{" && depth == 0 {
                    body = function_name(&head);
                }
                depth += 1;
            }
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if token == "}"
                    && depth == 0
                    && let Some((name, is_kernel)) = body.take()
                {
                    let end = at + 1;
                    found.push(Definition { name, begin: start, end, is_kernel });
                    begin = None;
                    head.clear();
                    continue;
                }
            }
            ";" if depth == 0 => {
                begin = None;
                head.clear();
                continue;
            }
            _ => {}
        }
        if depth == 0 || (depth == 1 && token == "(") {
            head.push(token);
        }
    }
    found
}

/// The name in the tokens before a body at file scope: `(` stands for a group. `None` for structs and initializers.
fn function_name<'a>(head: &[&'a str]) -> Option<(&'a str, bool)> {
    if head.contains(&"=") || head.contains(&"typedef") || head.last() != Some(&")") {
        return None;
    }
    let is_kernel = head.contains(&"__kernel") || head.contains(&"kernel");
    let is_name = |word: &str| {
        word.starts_with(|c: char| c.is_alphabetic() || c == '_') && !word.starts_with("__attribute")
    };
    // `head` has `(` and `)` of each group at depth 0.
    let mut name = None;
    for pair in head.windows(2) {
        if pair[1] == "(" && is_name(pair[0]) && name.is_none() {
            name = Some(pair[0]);
        }
    }
    name.map(|name| (name, is_kernel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_kernels_reach_is_kept() {
        let text = "struct S { int a; };\nint x[2] = {1, 2};\nstatic int f(int a) { return a; }\nint g(void)\n{ return '}'; }\n\
                    __kernel __attribute__((reqd_work_group_size(1, 1, 1))) void k(__global int *p) { p[0] = f(1); }\nkernel void l() {}";
        let kept = prune(text, &[]);
        assert_eq!(kept.len(), text.len());
        assert!(kept.contains("int f(") && !kept.contains("int g("), "{kept}");
        assert_eq!(kept.matches('\n').count(), text.matches('\n').count());
        assert!(kept.contains("struct S") && kept.contains("{1, 2}"), "{kept}");
        let one = prune(text, &["l".into()]);
        assert!(!one.contains("int f(") && !one.contains("void k(") && one.contains("void l("), "{one}");
    }
}
