//! `--kernel`: selects kernels by name, or by a pattern with `*`, `?` and `[...]`.

use std::fmt;
use std::str::FromStr;

use elinvar_driver::similar_names;
use glob::Pattern;

/// A kernel's name, or a pattern of names.
#[derive(Clone, Debug)]
pub struct KernelPattern {
    text: String,
    /// `None` for a name without wildcards.
    pattern: Option<Pattern>,
}

impl FromStr for KernelPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_pattern = text.contains(['*', '?', '[']);
        let pattern = is_pattern.then(|| Pattern::new(text)).transpose();
        let pattern = pattern.map_err(|error| format!("invalid pattern `{text}`: {}", error.msg))?;
        Ok(Self { text: text.to_owned(), pattern })
    }
}

impl fmt::Display for KernelPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl KernelPattern {
    /// Whether a kernel has this name. The exact name matches, too, for names that contain wildcards.
    pub fn matches(&self, name: &str) -> bool {
        name == self.text || self.pattern.as_ref().is_some_and(|pattern| pattern.matches(name))
    }

    /// The message for a pattern that matches none of these kernels of `place`, such as "the source".
    fn unmatched<'a>(&self, place: &str, known: impl IntoIterator<Item = &'a str>) -> String {
        let text = &self.text;
        match self.pattern {
            None => format!("no kernel `{text}` in {place}; {}", similar_names("kernels", text, known)),
            Some(_) => {
                let literal = text.replace(['*', '?', '[', ']'], "");
                format!(
                    "no kernel in {place} matches `{text}`; {}",
                    similar_names("kernels", &literal, known)
                )
            }
        }
    }
}

/// Whether a kernel is selected: all are if there are no patterns.
pub fn is_selected(patterns: &[KernelPattern], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name))
}

/// Messages for the patterns that match none of these kernels.
pub fn unmatched(patterns: &[KernelPattern], place: &str, known: &[&str]) -> Vec<String> {
    let is_unmatched = |pattern: &&KernelPattern| !known.iter().any(|name| pattern.matches(name));
    patterns
        .iter()
        .filter(is_unmatched)
        .map(|pattern| pattern.unmatched(place, known.iter().copied()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<KernelPattern> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn names_and_patterns_select_kernels() {
        let selected = |texts: &[&str], name| is_selected(&patterns(texts), name);
        assert!(selected(&[], "any"));
        assert!(selected(&["gemm_*"], "gemm_nt/f32"));
        assert!(selected(&["affine_f?"], "affine_f4") && !selected(&["affine_f?"], "affine_f16"));
        assert!(selected(&["k[0-9]", "other"], "k7") && !selected(&["k[0-9]", "other"], "kx"));
        assert!(!selected(&["gemm"], "gemm_nt") && selected(&["*"], ""));
        assert!(selected(&["k[f32]"], "k[f32]"), "a name with wildcards is itself");
        assert!("k[".parse::<KernelPattern>().unwrap_err().starts_with("invalid pattern `k[`: "));
    }

    #[test]
    fn what_matches_nothing_is_told_with_similar_names() {
        let of = |texts: &[&str]| unmatched(&patterns(texts), "the source", &["add", "sub"]);
        assert_eq!(of(&["a*", "sub"]), [""; 0]);
        assert_eq!(
            of(&["mul", "m*", "add"]),
            [
                "no kernel `mul` in the source; it has `add`, `sub`",
                "no kernel in the source matches `m*`; it has `add`, `sub`"
            ]
        );
    }
}
