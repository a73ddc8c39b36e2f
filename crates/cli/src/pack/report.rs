//! [`Report`]: what was packed, and what was not.

use std::path::Path;

use elinvar::{Diagnostic, Error, Severity};
use serde_json::{Value, json};

use super::selected::Selected;
use crate::failure::Failure;
use crate::report::visible;
use crate::target::Target;

/// What was packed, and what was not. Warnings are printed as they occur, each once.
#[derive(Default)]
pub struct Report {
    /// Number of kernels, counted for each target and specialization.
    pub packed: usize,
    pub missing: Vec<Missing>,
    /// Whether the declarations of a file are unknown.
    has_failed_files: bool,
    warned: Vec<String>,
}

/// What was not packed.
pub struct Missing {
    /// `None` for a file, or an entry of the manifest.
    kernel: Option<(String, Target)>,
    reason: String,
}

impl Missing {
    pub fn to_json(&self) -> Value {
        let (kernel, target) =
            self.kernel.as_ref().map(|(kernel, target)| (kernel, target.to_string())).unzip();
        json!({ "kernel": kernel, "target": target, "reason": self.reason })
    }
}

impl Report {
    /// Prints a warning, unless it has been printed.
    pub fn warn(&mut self, warning: String) {
        if !self.warned.contains(&warning) {
            eprintln!("{}", visible(&warning));
            self.warned.push(warning);
        }
    }

    /// A kernel that is not packed. Only the first line of the reason is reported.
    pub fn miss(&mut self, kernel: &str, target: Target, reason: &str) {
        let reason = reason.lines().next().unwrap_or_default().to_owned();
        self.missing.push(Missing { kernel: Some((kernel.to_owned(), target)), reason });
    }

    /// A file of which nothing is packed. Its diagnostics are printed.
    pub fn fail_file(&mut self, file: &Path, failure: &Failure) {
        self.has_failed_files = true;
        let reason = match failure {
            Failure::Runtime(Error::Compile(diagnostics)) => {
                failure.print();
                let errors =
                    diagnostics.iter().filter(|d: &&Diagnostic| d.severity == Severity::Error).count();
                format!("{}: {errors} error{}", file.display(), if errors == 1 { "" } else { "s" })
            }
            other => other.to_string(),
        };
        self.missing.push(Missing { kernel: None, reason });
    }

    /// Reports patterns that match no kernel. If a file has errors, its kernels are unknown.
    pub fn expect_matched(&mut self, selected: &[Selected], files: usize) {
        if !self.has_failed_files {
            let found = selected.iter().flat_map(|set| set.unmatched(files));
            self.missing.extend(found.map(|reason| Missing { kernel: None, reason }));
        }
    }

    /// Writes a line for each missing kernel to standard error.
    pub fn print_missing(&self) {
        for Missing { kernel, reason } in &self.missing {
            let text = match kernel {
                Some((kernel, target)) => format!("not packed: kernel `{kernel}` for {target}: {reason}"),
                None => format!("not packed: {reason}"),
            };
            eprintln!("{}", visible(&text));
        }
    }
}
