//! What is new at the end of a file to which others append.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// Most bytes that are read at once, so that a large file does not fill the memory.
const MOST: u64 = 64 << 20;

/// A file of lines, read from its begin on.
pub struct Lines {
    path: PathBuf,
    file: File,
    /// A line that has no end yet.
    partial: Vec<u8>,
}

impl Lines {
    pub fn open(path: &Path) -> Result<Self> {
        let file =
            File::open(path).map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
        Ok(Self { path: path.into(), file, partial: Vec::new() })
    }

    pub fn name(&self) -> impl std::fmt::Display {
        self.path.display()
    }

    /// The complete lines that are new, of at most 64 MiB.
    pub fn read(&mut self) -> Result<String> {
        let read = (&self.file).take(MOST).read_to_end(&mut self.partial);
        read.map_err(|error| Failure::Machine(format!("{}: {error}", self.path.display())))?;
        let end = self.partial.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.partial.split_off(end);
        let lines = std::mem::replace(&mut self.partial, rest);
        Ok(String::from_utf8_lossy(&lines).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_are_read_once_and_whole() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let mut lines = Lines::open(file.path()).expect("the file");
        let mut append = |text: &str| file.write_all(text.as_bytes()).expect("it is written");
        append("one\ntw");
        assert_eq!(lines.read().expect("lines"), "one\n");
        assert_eq!(lines.read().expect("lines"), "");
        append("o\nthree\n");
        assert_eq!(lines.read().expect("lines"), "two\nthree\n");
        assert!(Lines::open(Path::new("/no/such/file")).is_err());
    }
}
