//! Rules for the text of files.
//!
//! Rust files are checked line by line, without comments for rules about code. Rules that need a parser belong to
//! clippy.

/// Maximum number of lines of a Rust file, unless it is marked as generated.
const TOO_LONG: usize = 800;

/// Meaningless suffixes of type names.
const HOLLOW: [&str; 9] = [
    "Manager",
    "Handler",
    "Engine",
    "Executor",
    "Provider",
    "Coordinator",
    "Orchestrator",
    "Helper",
    "Wrapper",
];

/// Whether a file's first lines mark it as generated or as a table.
pub fn is_generated(content: &str) -> bool {
    content.lines().take(5).any(|line| line.contains("@generated"))
}

/// All rules for a Rust file.
pub fn check(name: &str, content: &str) -> Vec<String> {
    let mut breaches = check_blanks(name, content);
    let lines = content.lines().count();
    if lines > TOO_LONG && !is_generated(content) {
        breaches.push(format!("{name}: {lines} lines, {TOO_LONG} at most"));
    }
    if needs_docs(name) && !begins_with_docs(content) {
        breaches.push(format!("{name}:1: the file does not begin with `//!` docs"));
    }
    for (number, line) in content.lines().enumerate() {
        let code = line.split("//").next().unwrap_or(line);
        let place = format!("{name}:{}", number + 1);
        if let Some(hollow) = hollow_name(code) {
            breaches.push(format!("{place}: the name `{hollow}` says nothing; name what it is"));
        }
        for macro_name in ["todo", "unimplemented", "dbg"] {
            if calls_macro(code, macro_name) {
                breaches.push(format!("{place}: `{macro_name}!`"));
            }
        }
    }
    breaches
}

/// What git puts at the start of the lines around the two sides of a conflict. Rust files with them do not compile.
const MERGE_MARKERS: [&str; 2] = ["<<<<<<<", ">>>>>>>"];

/// No tabs, no trailing whitespace, one newline at the end of the file.
pub fn check_blanks(name: &str, content: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    for (number, line) in content.split_terminator('\n').enumerate() {
        let place = format!("{name}:{}", number + 1);
        if line.contains('\t') {
            breaches.push(format!("{place}: a tab"));
        }
        if line.ends_with([' ', '\t', '\r']) {
            breaches.push(format!("{place}: trailing whitespace"));
        }
        if MERGE_MARKERS
            .iter()
            .any(|marker| line.strip_prefix(marker).is_some_and(|rest| rest.starts_with(' ')))
        {
            breaches.push(format!("{place}: a conflict of a merge"));
        }
    }
    if !content.is_empty() && (!content.ends_with('\n') || content.ends_with("\n\n")) {
        breaches.push(format!("{name}: the file does not end with exactly one line end"));
    }
    breaches
}

/// Test data and build scripts need no docs.
fn needs_docs(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let data = parts.iter().any(|part| matches!(*part, "data" | "fixtures" | "snapshots"));
    !data && parts.last() != Some(&"build.rs")
}

fn begins_with_docs(content: &str) -> bool {
    content.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("//!"))
}

/// The type name with a meaningless suffix that a line declares.
fn hollow_name(code: &str) -> Option<&str> {
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.find(|word| matches!(*word, "struct" | "enum" | "trait" | "union" | "type"))?;
    let name = words.next()?;
    let hollow = HOLLOW.iter().any(|end| name.ends_with(end)) || matches!(name, "Utils" | "Util");
    (hollow || name.ends_with("Utils")).then_some(name)
}

fn calls_macro(code: &str, name: &str) -> bool {
    let call = format!("{name}!");
    code.match_indices(&call).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + call.len()..].chars().next();
        !before.is_some_and(|c| c.is_alphanumeric() || "_`\"".contains(c))
            && after.is_some_and(|c| "([{".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(content: &str) -> Vec<String> {
        check("crates/x/src/a.rs", content)
    }

    #[test]
    fn a_clean_file_passes() {
        assert!(breaches("//! Docs.\n\nstruct Pool;\n// a struct Manager in a comment\n").is_empty());
    }

    #[test]
    fn docs_come_first() {
        assert!(breaches("use std::fs;\n")[0].contains("`//!` docs"));
        assert!(check("crates/x/build.rs", "fn main() {}\n").is_empty());
        assert!(check("crates/x/tests/data/a.rs", "fn main() {}\n").is_empty());
    }

    #[test]
    fn hollow_names_are_found() {
        let found = breaches("//! Docs.\npub(crate) struct BufferManager<T> {}\nenum MathUtils {}\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/x/src/a.rs:2: the name `BufferManager`"));
        assert!(breaches("//! Docs.\nstruct Managers;\n").is_empty());
    }

    #[test]
    fn unfinished_code_is_found() {
        for call in ["todo!()", "unimplemented!(\"x\")", "dbg!(x)"] {
            assert_eq!(breaches(&format!("//! Docs.\nfn f() {{ {call} }}\n")).len(), 1, "{call}");
        }
        assert!(breaches("//! Docs.\nlet x = my_todo!();\n").is_empty());
    }

    #[test]
    fn blanks_are_found() {
        assert_eq!(check_blanks("a", "x \n\ty\n").len(), 2);
        assert_eq!(check_blanks("a", "x").len(), 1);
        assert_eq!(check_blanks("a", "x\n\n").len(), 1);
        assert_eq!(check_blanks("a", "<<<<<<< HEAD\nx\n>>>>>>> main\n").len(), 2);
        assert_eq!(check_blanks("a", "x\n"), Vec::<String>::new());
    }

    #[test]
    fn long_files_fail_unless_generated() {
        let long = format!("//! Docs.\n{}", "fn f() {}\n".repeat(TOO_LONG));
        assert_eq!(breaches(&long).len(), 1);
        assert!(breaches(&format!("//! @generated by hand.\n{long}")).is_empty());
    }
}
