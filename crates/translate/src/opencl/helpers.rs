//! Functions and types of OpenCL C that MSL does not have, as definitions in MSL. Only those that are used are written.

use std::collections::HashSet;

use super::text::words;

/// Definitions, each behind those that it uses.
#[derive(Debug, Default)]
pub(super) struct Helpers {
    names: HashSet<String>,
    /// The word whose use makes it necessary, and the text.
    pub texts: Vec<(String, String)>,
}

impl Helpers {
    /// Adds a definition, once. `key` distinguishes overloads; `name` is the word that uses it.
    pub fn add(&mut self, key: &str, name: &str, text: impl FnOnce() -> String) {
        if self.names.insert(key.to_owned()) {
            self.texts.push((name.to_owned(), text()));
        }
    }

    pub fn has(&self, key: &str) -> bool {
        self.names.contains(key)
    }

    /// The definitions that a text uses, in order.
    pub fn used_by(&self, used: &mut HashSet<String>) -> Vec<&str> {
        let mut kept = Vec::new();
        for (name, text) in self.texts.iter().rev() {
            if used.contains(name) {
                used.extend(words(text).map(str::to_owned));
                kept.push(text.as_str());
            }
        }
        kept.reverse();
        kept
    }
}
