//! Dependencies between the subject folders of the runtime: no cycle among them.
//!
//! A subject is a folder of `crates/runtime/src`. It depends on another if one of its files names `crate::other::…`, or an item
//! that `lib.rs` re-exports from there. `device` is left out: its `Device` handle owns the state of every subject, and every
//! subject holds the handle. Unit tests (`mod tests` at the end of a file) are not counted.

use std::collections::{BTreeMap, BTreeSet};

/// Folder of the subjects.
const ROOT: &str = "crates/runtime/src/";
/// The subject that may depend on all others, and all others on it.
const HUB: &str = "device";
/// Known dependencies that close a cycle: a trace contains recovery decisions, and health contains the breaker's state. An entry that no
/// longer exists is a breach, so that it is removed from this list.
const KNOWN: [(&str, &str); 1] = [("observe", "recovery")];

/// Dependencies between subjects, each with a file that causes it.
type Edges = BTreeMap<(String, String), String>;

/// Breaches in these sources, given by path and text.
pub fn check(sources: &[(String, String)]) -> Vec<String> {
    let edges = edges(sources);
    if edges.is_empty() {
        return Vec::new();
    }
    let is_known = |(from, to): &(String, String)| KNOWN.contains(&(from, to));
    let gone = KNOWN.iter().filter(|(from, to)| !edges.contains_key(&((*from).into(), (*to).into())));
    let gone = gone.map(|(from, to)| {
        format!("{ROOT}{from} no longer depends on {to}: remove it from KNOWN in xtask/src/layers.rs")
    });
    let edges: Edges = edges.clone().into_iter().filter(|(edge, _)| !is_known(edge)).collect();
    let cycles = edges.iter().filter(|((from, to), _)| reaches(&edges, to, from));
    let cycles = cycles
        .map(|((from, to), file)| format!("{file}: `{from}` depends on `{to}`, which depends on `{from}`"));
    gone.chain(cycles).collect()
}

/// Whether `from` depends on `to`, directly or transitively.
fn reaches(edges: &Edges, from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(subject) = next.pop() {
        if subject == to {
            return true;
        }
        if seen.insert(subject) {
            next.extend(edges.keys().filter(|(from, _)| from == subject).map(|(_, to)| to.as_str()));
        }
    }
    false
}

fn edges(sources: &[(String, String)]) -> Edges {
    let files: Vec<(&str, &str)> =
        sources.iter().filter_map(|(path, text)| Some((path.strip_prefix(ROOT)?, text.as_str()))).collect();
    let subjects: BTreeSet<&str> =
        files.iter().filter_map(|(path, _)| Some(path.split_once('/')?.0)).collect();
    let exported = files
        .iter()
        .find(|(path, _)| *path == "lib.rs")
        .map_or_else(BTreeMap::new, |(_, text)| exports(text));
    let mut edges = Edges::new();
    for (path, text) in files {
        let Some((from, _)) = path.split_once('/') else { continue };
        for name in named(text) {
            let to = subjects.get(name.as_str()).copied().or_else(|| exported.get(&name).map(String::as_str));
            if let Some(to) =
                to.filter(|to| *to != from && *to != HUB && from != HUB && subjects.contains(to))
            {
                edges.entry((from.into(), to.into())).or_insert_with(|| format!("{ROOT}{path}"));
            }
        }
    }
    edges
}

/// What `lib.rs` re-exports: item to subject.
fn exports(text: &str) -> BTreeMap<String, String> {
    let uses = text.split(';').filter_map(|item| item.trim().rsplit_once("pub use ").map(|(_, path)| path));
    let mut items = BTreeMap::new();
    for path in uses {
        let Some((subject, rest)) = path.split_once("::") else { continue };
        for item in heads(rest.rsplit_once("::").map_or(rest, |(_, last)| last)) {
            items.insert(item, subject.to_owned());
        }
    }
    items
}

/// The first segments of all paths that begin with `crate::`, without comments and unit tests.
fn named(text: &str) -> Vec<String> {
    let code: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("mod tests {"))
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect();
    let code = code.join("\n");
    code.match_indices("crate::").flat_map(|(at, prefix)| heads(&code[at + prefix.len()..])).collect()
}

/// The first identifiers of a path, or of each path of a list in braces.
fn heads(text: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(list) = text.strip_prefix('{') else { return vec![word(text)] };
    let (mut depth, mut heads, mut begin) = (0, Vec::new(), 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                heads.push(word(&list[begin..at]));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(files: &[(&str, &str)]) -> Vec<String> {
        let known = [("observe/trace.rs", "use crate::recovery::Decision;"), ("recovery/mod.rs", "")];
        let all = files.iter().chain(&known);
        check(&all.map(|(path, text)| (format!("{ROOT}{path}"), (*text).into())).collect::<Vec<_>>())
    }

    #[test]
    fn layers_are_no_breach() {
        let files = [
            ("sync/event.rs", "use crate::Device;"),
            ("memory/usage.rs", "use crate::sync::event;"),
            ("device/mod.rs", "use crate::{memory::usage, sync};"),
        ];
        assert!(breaches(&files).is_empty());
    }

    #[test]
    fn cycles_are_found_in_lists_paths_and_exports() {
        let lib =
            ("lib.rs", "mod memory;\npub use memory::buffer::{Buffer, Slice};\npub use sync::event::Event;");
        let down = ("memory/buffer.rs", "use crate::sync::event;");
        for up in [
            "use crate::memory::buffer;",
            "use crate::{\n    Event, memory::{a, b}};",
            "use crate::{Event, Slice};",
            "fn f() { crate::Buffer::new() }",
        ] {
            assert_eq!(breaches(&[lib, down, ("sync/event.rs", up)]).len(), 2, "{up}");
        }
        for none in ["// crate::Buffer", "use crate::Event;", "mod tests {\n    use crate::Buffer;\n}"] {
            assert!(breaches(&[lib, down, ("sync/event.rs", none)]).is_empty(), "{none}");
        }
    }

    #[test]
    fn a_cycle_through_a_third_is_found() {
        let files =
            [("a/x.rs", "use crate::b::y;"), ("b/y.rs", "use crate::c::z;"), ("c/z.rs", "use crate::a::x;")];
        assert_eq!(breaches(&files).len(), 3);
    }

    #[test]
    fn a_known_dependency_that_is_gone_is_a_breach() {
        let files =
            [(format!("{ROOT}a/x.rs"), "use crate::b::y;".into()), (format!("{ROOT}b/y.rs"), String::new())];
        assert_eq!(check(&files).len(), 1);
    }
}
