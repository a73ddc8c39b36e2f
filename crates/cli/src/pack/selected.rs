//! [`Selected`]: kernels that are packed with the same options.

use std::path::Path;

use elinvar::{Dim3, MathMode};
use elinvar_driver::{Constant, FunctionConstant};

use super::manifest::Entry;
use crate::check::is;
use crate::failure::Result;
use crate::selection::{KernelPattern, is_selected, unmatched};

/// Kernels that are packed with the same options.
pub struct Selected {
    /// All kernels if there are no patterns.
    pub kernels: Vec<KernelPattern>,
    pub constants: Constants,
    pub groups: Vec<Dim3>,
    pub math: MathMode,
    pub checked: bool,
    pub large_buffers: bool,
    /// Names of the kernels that its sources declare.
    pub known: Vec<String>,
}

/// Values of function constants.
pub enum Constants {
    /// Of the command line: those that a source declares apply to it.
    Given(Vec<Constant>),
    /// Of a table of the manifest, which has to have the declared types.
    Manifest(Entry),
}

impl Selected {
    pub fn selects(&self, kernel: &str) -> bool {
        is_selected(&self.kernels, kernel)
    }

    /// Whether it is about kernels of this source.
    pub fn is_of(&self, source: &Path) -> bool {
        match &self.constants {
            Constants::Given(_) => true,
            Constants::Manifest(entry) => entry.is_of(source),
        }
    }

    /// Messages for the patterns that match no kernel of these files.
    pub fn unmatched(&self, files: usize) -> Vec<String> {
        let (at, file) = match &self.constants {
            Constants::Given(_) => (String::new(), None),
            Constants::Manifest(entry) => (format!("{}: ", entry.place), entry.file.as_deref()),
        };
        let place = match (file, files) {
            (Some(file), _) => format!("`{}`", file.display()),
            (None, 1) => "the source".to_owned(),
            (None, files) => format!("the {files} files"),
        };
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        unmatched(&self.kernels, &place, &known).into_iter().map(|what| format!("{at}{what}")).collect()
    }

    /// The values of a source's function constants.
    pub fn constants(&self, declared: &[FunctionConstant]) -> Result<Vec<Constant>> {
        match &self.constants {
            Constants::Manifest(entry) => entry.constants(declared),
            Constants::Given(given) => {
                let own = given.iter().filter(|given| declared.iter().any(|known| is(known, given)));
                Ok(own.cloned().collect())
            }
        }
    }
}
