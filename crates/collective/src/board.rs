//! [`Board`]: a file in which a launcher records how the processes of a job have ended, for those that are left.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use elinvar_driver::{Error, Result};

/// Bytes of an entry.
const ENTRY: usize = 64;
/// Path of the board, which the launcher sets.
pub(crate) const VARIABLE: &str = "ELINVAR_BOARD";

/// How the processes of a job have ended, by rank.
pub struct Board {
    file: File,
    path: PathBuf,
}

impl Board {
    /// Creates the board of a job of `size` processes, and removes it when it is dropped.
    ///
    /// # Errors
    /// `Environment` if the file exists or cannot be written.
    pub fn create(path: &Path, size: u32) -> Result<Self> {
        let failed = |error| Error::Environment(format!("{}: {error}", path.display()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        file.set_len(u64::from(size) * ENTRY as u64).map_err(failed)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Records how a process has ended; at most 63 bytes are kept.
    ///
    /// # Errors
    /// `Environment` if the file cannot be written.
    pub fn ended(&self, rank: u32, how: &str) -> Result<()> {
        let mut entry = [0; ENTRY];
        let len = how.len().min(ENTRY - 1);
        entry[..len].copy_from_slice(&how.as_bytes()[..len]);
        let failed = |error| Error::Environment(format!("{}: {error}", self.path.display()));
        self.file.write_all_at(&entry, u64::from(rank) * ENTRY as u64).map_err(failed)
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _removed = std::fs::remove_file(&self.path);
    }
}

/// Reads the board of the job.
pub(crate) struct Reader(File);

impl Reader {
    /// That of this process' launcher, if it has one.
    pub(crate) fn of_job() -> Option<Self> {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        File::open(path).ok().map(Self)
    }

    /// How a process has ended; `None` while it runs.
    pub(crate) fn how(&self, rank: u32) -> Option<String> {
        let mut entry = [0; ENTRY];
        self.0.read_exact_at(&mut entry, u64::from(rank) * ENTRY as u64).ok()?;
        let text = entry.split(|byte| *byte == 0).next().filter(|text| !text.is_empty())?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}
