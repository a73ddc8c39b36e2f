//! [`Root`]: small text files below a folder, with the reason why one cannot be read.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use elinvar_driver::{Error, Result};

/// The folder that has `proc` and `sys`.
#[derive(Clone)]
pub(super) struct Root(PathBuf);

impl Root {
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The path of a file.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// The text of a file.
    pub(super) fn text(&self, file: &str) -> Result<String> {
        std::fs::read_to_string(self.path(file)).map_err(|error| unreadable(file, &error))
    }

    /// The number that a file consists of.
    pub(super) fn number(&self, file: &str) -> Result<u64> {
        let text = self.text(file)?;
        let none = || Error::unsupported(format!("`/{file}` is not a number: `{}`", shortened(text.trim())));
        text.trim().parse().map_err(|_| none())
    }

    /// The names in a folder, in ascending order.
    pub(super) fn list(&self, folder: &str) -> Result<Vec<String>> {
        let entries = std::fs::read_dir(self.path(folder)).map_err(|error| unreadable(folder, &error))?;
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }
}

/// Why a file cannot be read.
pub(super) fn unreadable(file: &str, error: &io::Error) -> Error {
    Error::unsupported(match error.kind() {
        ErrorKind::NotFound => format!("there is no `/{file}`"),
        ErrorKind::PermissionDenied => format!("this user may not read `/{file}`"),
        _ => format!("`/{file}` cannot be read: {error}"),
    })
}

/// At most 40 characters of a text.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
