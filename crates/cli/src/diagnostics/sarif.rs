//! Diagnostics in SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format), which GitHub's code scanning and editors read.

use elinvar::{Diagnostic, Severity};
use serde_json::{Value, json};

/// A rule: its name and what it finds.
pub type Rule = (&'static str, &'static str);

/// The log of one run: rules, and results with the names of their rules.
pub fn log(rules: &[Rule], results: &[(&str, &Diagnostic)]) -> Value {
    let rule = |(id, text): &Rule| json!({ "id": id, "shortDescription": { "text": text } });
    let rules: Vec<Value> = rules.iter().map(rule).collect();
    let results: Vec<Value> = results.iter().map(|(rule, diagnostic)| result(rule, diagnostic)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "elinvar", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": results,
        }],
    })
}

fn result(rule: &str, diagnostic: &Diagnostic) -> Value {
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    json!({
        "ruleId": rule,
        "level": level,
        "message": { "text": diagnostic.message },
        "locations": [location(diagnostic)],
        "relatedLocations": diagnostic.notes.iter().map(location).collect::<Vec<_>>(),
    })
}

/// Lines and columns are 1-based, and absent where they are unknown.
fn location(diagnostic: &Diagnostic) -> Value {
    let mut physical = json!({ "artifactLocation": { "uri": uri(&diagnostic.file) } });
    if diagnostic.line > 0 {
        physical["region"] = json!({ "startLine": diagnostic.line });
        if diagnostic.column > 0 {
            physical["region"]["startColumn"] = diagnostic.column.into();
        }
    }
    json!({ "physicalLocation": physical, "message": { "text": diagnostic.message } })
}

/// A path as a URI reference (RFC 3986): other characters than unreserved ones and separators are escaped.
fn uri(path: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_rules_levels_and_places() {
        let mut warning = Diagnostic::error("a b/k.metal", 3, 14, "strided");
        warning.severity = Severity::Warning;
        let whole = Diagnostic::error("k.metal", 0, 0, "unsupported");
        let log = log(&[("one", "First."), ("two", "Second.")], &[("one", &warning), ("two", &whole)]);
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"][1]["id"], "two");
        let place = &run["results"][0]["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "a%20b/k.metal");
        assert_eq!(place["region"], json!({ "startLine": 3, "startColumn": 14 }));
        assert_eq!(
            (&run["results"][0]["level"], &run["results"][1]["level"]),
            (&json!("warning"), &json!("error"))
        );
        assert!(run["results"][1]["locations"][0]["physicalLocation"]["region"].is_null());
    }
}
