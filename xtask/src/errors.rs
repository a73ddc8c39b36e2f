//! Every variant of the error types has a row in `docs/testing.md` with a test that provokes it.
//!
//! The variants are read from the sources, so that a new variant without a test is an error. A row's test must exist and name the
//! variant; tests of the command line check an exit code instead.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// Files with an error enum, and the enum's name in the table.
const TYPES: [(&str, &str, &str); 6] = [
    ("crates/driver/src/error.rs", "Error", "elinvar::Error"),
    ("crates/msl/src/error.rs", "Error", "msl::Error"),
    ("crates/msl/src/clang/process.rs", "Failure", "msl::process::Failure"),
    ("crates/spmd/src/error.rs", "Error", "spmd::Error"),
    ("verify/reference/src/fault.rs", "Problem", "reference::Problem"),
    ("crates/cli/src/failure.rs", "Failure", "cli::Failure"),
];

const TABLE: &str = "docs/testing.md";

/// Breaches in the table.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).context(name.to_owned());
    let table = read(TABLE)?;
    let mut breaches = Vec::new();
    for (file, name, shown) in TYPES {
        for variant in variants(&read(file)?, name)? {
            let row = format!("| `{shown}::{variant}` | ");
            let Some(row) = table.lines().find_map(|line| line.strip_prefix(&row)) else {
                breaches
                    .push(format!("{TABLE}: `{shown}::{variant}` has no row with a test that provokes it"));
                continue;
            };
            let Some((path, test)) = row.trim_matches(['`', '|', ' ']).split_once(' ') else {
                breaches.push(format!(
                    "{TABLE}: the row of `{shown}::{variant}` does not name a file and a test"
                ));
                continue;
            };
            let text = read(path)?;
            let Some(body) = function(&text, test) else {
                breaches.push(format!("{TABLE}: {path} has no function `{test}`"));
                continue;
            };
            if !path.starts_with("crates/cli/") && !mentions(&text, body, &format!("{name}::{variant}")) {
                breaches.push(format!("{TABLE}: `{test}` does not name `{name}::{variant}`"));
            }
        }
    }
    Ok(breaches)
}

/// Names of an enum's variants: lines that are indented once and start with a capital letter.
fn variants(text: &str, name: &str) -> Result<Vec<String>> {
    let start = format!("enum {name} {{\n");
    let Some((_, rest)) = text.split_once(&start) else { bail!("there is no enumeration `{name}`") };
    let body = rest.split("\n}").next().unwrap_or(rest);
    let variant = |line: &str| {
        let inner = line.strip_prefix("    ")?;
        let name: String = inner.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
        name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
    };
    Ok(body.lines().filter_map(variant).collect())
}

/// Text of a function, up to its closing brace.
fn function<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = ['(', '<'].iter().find_map(|end| text.find(&format!("fn {name}{end}")))?;
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let indent = text[line..].len() - text[line..].trim_start().len();
    let end = format!("\n{}}}", " ".repeat(indent));
    let rest = &text[at..];
    Some(&rest[..rest.find(&end).unwrap_or(rest.len())])
}

/// Whether a function mentions a name, or calls a function of its file that does.
fn mentions(text: &str, body: &str, what: &str) -> bool {
    let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
    let called = names.filter(|name| !name.is_empty() && body.contains(&format!("{name}(")));
    body.contains(what)
        || called.into_iter().any(|name| function(text, name).is_some_and(|f| f.contains(what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_read_from_the_source() {
        let text = "/// Doc.\npub enum Error {\n    /// One.\n    #[error(\"x\")]\n    One(Vec<u8>),\n\n    Two {\n        /// Not a variant.\n        Field: u8,\n    },\n    Three,\n}\nenum Other {\n    Four,\n}\n";
        assert_eq!(variants(text, "Error").unwrap(), ["One", "Two", "Three"]);
        assert_eq!(variants(text, "Other").unwrap(), ["Four"]);
        assert!(variants(text, "Missing").is_err());
    }

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let text = "fn a() {\n    if x {\n    }\n    Error::One\n}\nfn b() {\n    Error::Two\n}\n";
        assert!(function(text, "a").is_some_and(|body| body.contains("One") && !body.contains("Two")));
        assert!(function(text, "c").is_none());
    }

    #[test]
    fn every_variant_has_a_test_that_provokes_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(check(root).unwrap(), Vec::<String>::new());
    }
}
