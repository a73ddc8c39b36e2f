//! What was mapped how, for the user.

use std::collections::{BTreeMap, BTreeSet};

/// An argument of a kernel, in both languages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its declaration in the source's language.
    pub source: String,
    /// Its declaration in MSL, with its index.
    pub msl: String,
}

/// What was mapped how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    pub kernels: BTreeMap<String, Vec<Argument>>,
    pub group_sizes: BTreeMap<String, [u64; 3]>,
    pub renamed: BTreeSet<(String, String)>,
    pub wide: BTreeSet<String>,
    /// Functions, by what they became.
    pub functions: BTreeMap<String, String>,
    /// What differs in precision or meaning.
    pub differences: BTreeSet<String>,
}

impl Notes {
    pub fn kernel(&mut self, name: &str, arguments: Vec<Argument>) {
        self.kernels.insert(name.to_owned(), arguments);
    }

    pub fn group_size(&mut self, kernel: &str, sizes: [u64; 3]) {
        self.group_sizes.insert(kernel.to_owned(), sizes);
    }

    pub fn renamed(&mut self, from: &str, to: &str) {
        self.renamed.insert((from.to_owned(), to.to_owned()));
    }

    pub fn wide(&mut self, name: &str) {
        self.wide.insert(name.to_owned());
    }

    pub fn function(&mut self, from: &str, to: &str) {
        self.functions.insert(from.to_owned(), to.to_owned());
    }

    pub fn difference(&mut self, text: impl Into<String>) {
        self.differences.insert(text.into());
    }
}
