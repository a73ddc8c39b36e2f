//! Rules for the `Cargo.toml` of a crate.

use toml::{Table, Value};

/// Fields of `[package]` that every crate has, most of them from the workspace.
const FIELDS: [&str; 6] = ["name", "description", "version", "edition", "rust-version", "license"];

/// All rules for a crate's manifest.
pub fn check(name: &str, content: &str) -> Vec<String> {
    let table: Table = match content.parse() {
        Ok(table) => table,
        Err(error) => return vec![format!("{name}: {error}")],
    };
    let mut breaches = Vec::new();
    let package = table.get("package").and_then(Value::as_table);
    for field in FIELDS {
        if !package.is_some_and(|package| package.contains_key(field)) {
            breaches.push(format!("{name}: `[package]` has no `{field}`"));
        }
    }
    let inherits = |key: &str, from: Option<&Table>| {
        let inherited = from.and_then(|table| table.get(key)).and_then(|value| value.get("workspace"));
        inherited.and_then(Value::as_bool) == Some(true)
    };
    if !inherits("license", package) {
        breaches.push(format!("{name}: `license.workspace = true` is missing"));
    }
    if !inherits("lints", Some(&table)) {
        breaches.push(format!("{name}: `[lints] workspace = true` is missing"));
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"x\"\ndescription = \"x\"\nversion.workspace = true\n\
        edition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\n\n\
        [lints]\nworkspace = true\n";

    #[test]
    fn a_complete_manifest_passes() {
        assert_eq!(check("x/Cargo.toml", GOOD), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_is_named() {
        let without = |text: &str| check("x/Cargo.toml", &GOOD.replace(text, ""));
        assert_eq!(
            without("[lints]\nworkspace = true\n"),
            ["x/Cargo.toml: `[lints] workspace = true` is missing"]
        );
        assert_eq!(without("license.workspace = true\n").len(), 2);
        assert_eq!(without("description = \"x\"\n"), ["x/Cargo.toml: `[package]` has no `description`"]);
        let own = GOOD.replace("license.workspace = true", "license = \"MIT\"");
        assert_eq!(check("x", &own), ["x: `license.workspace = true` is missing"]);
        assert_eq!(check("x", "no").len(), 1);
    }
}
