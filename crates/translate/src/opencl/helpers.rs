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
        let mut kept = vec![false; self.texts.len()];
        // An operator is used by the type that another definition uses, before it or behind it.
        loop {
            let mut changed = false;
            for ((name, text), kept) in self.texts.iter().zip(&mut kept).rev() {
                if !*kept && used.contains(name) {
                    used.extend(words(text).map(str::to_owned));
                    (*kept, changed) = (true, true);
                }
            }
            if !changed {
                break;
            }
        }
        self.texts.iter().zip(kept).filter(|(_, kept)| *kept).map(|((_, text), _)| text.as_str()).collect()
    }
}
