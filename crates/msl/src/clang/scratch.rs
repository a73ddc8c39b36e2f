//! Temporary directories of tools, with cleanup.
//!
//! A directory is removed when its [`Scratch`] is dropped. When the process is killed, the watchdog of its tools removes it
//! ([`crate::clang::process`]). What remains even so is removed by the next process that makes one: the owner holds a file lock
//! in each directory, which the kernel releases when the owner ends.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

use elinvar_driver::PerProcess;
use elinvar_driver::sync::{Mutex, MutexGuard};
use rustix::fs::FlockOperation;
use tempfile::TempDir;

/// Prefix of the directories' names.
const PREFIX: &str = "elinvar-run-";

const LOCK: &str = "lock";

/// Larger files are not kept.
const MAX_KEPT_BYTES: u64 = 16 << 20;

/// The directories in use by this process.
static LIVE: PerProcess<Mutex<BTreeSet<PathBuf>>> = PerProcess::new(Mutex::default);

fn live_folders() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    LIVE.get().lock()
}

/// The directories to remove when this process is killed.
pub(crate) fn live() -> Vec<PathBuf> {
    live_folders().iter().cloned().collect()
}

/// A temporary directory.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    /// Held until the directory is removed.
    _lock: File,
}

impl Scratch {
    /// Create a directory with mode 0700 in the temporary directory. The first call of a process removes directories whose
    /// owners have ended.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn new() -> std::io::Result<Self> {
        static SWEPT: PerProcess<Once> = PerProcess::new(Once::new);
        let parent = std::env::temp_dir();
        if parent.to_str().is_none() {
            let why = format!("the path of the temporary directory, `{}`, is not UTF-8", parent.display());
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
        }
        SWEPT.get().call_once(|| sweep(&parent));
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        live_folders().insert(folder.path().to_owned());
        // The lock appears under its name only when it is held.
        let new = folder.path().join("new");
        let lock = File::create(&new)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        std::fs::rename(new, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Keep the directory.
    pub(crate) fn preserve(&mut self) {
        live_folders().remove(self.path());
        let _gone = std::fs::remove_file(self.path().join(LOCK));
        self.folder.disable_cleanup(true);
    }

    /// Keep these files, unless they are too large, and remove the others. Returns a sentence that says where they are.
    pub fn keep(mut self, files: &[&str]) -> String {
        let path = self.path().to_owned();
        let kept = |name: &std::ffi::OsStr| {
            let small =
                || std::fs::metadata(path.join(name)).is_ok_and(|found| found.len() <= MAX_KEPT_BYTES);
            files.iter().any(|file| name == *file) && small()
        };
        let mut left = false;
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            if kept(&entry.file_name()) {
                left = true;
            } else {
                let _gone =
                    std::fs::remove_file(entry.path()).or_else(|_| std::fs::remove_dir_all(entry.path()));
            }
        }
        if !left {
            return format!("input not kept: more than {MAX_KEPT_BYTES} bytes");
        }
        live_folders().remove(&path);
        self.folder.disable_cleanup(true);
        format!("input kept in {}", path.display())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        live_folders().remove(self.folder.path());
    }
}

/// Remove directories whose owners have ended.
fn sweep(parent: &Path) {
    let us = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let named = name.to_str().is_some_and(|name| name.starts_with(PREFIX));
        let own = || entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == us);
        if !named || !own() {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _gone = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        assert!(live().contains(&path));
        sweep(&std::env::temp_dir());
        assert!(path.join("file").is_file(), "in use");
        drop(scratch);
        assert!(!path.exists() && !live().contains(&path));
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let [left, kept, other] = [format!("{PREFIX}left"), format!("{PREFIX}kept"), "else".into()]
            .map(|name| parent.path().join(name));
        for folder in [&left, &kept, &other] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("file"), "x").unwrap();
        }
        for folder in [&left, &other] {
            std::fs::write(folder.join(LOCK), "").unwrap();
        }
        sweep(parent.path());
        assert!(!left.exists() && kept.is_dir() && other.is_dir());
    }

    #[test]
    fn small_inputs_are_kept_and_nothing_else() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("in"), "x").unwrap();
        std::fs::write(path.join("out"), "y").unwrap();
        assert_eq!(scratch.keep(&["in"]), format!("input kept in {}", path.display()));
        let left: Vec<_> =
            std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["in"]);
        std::fs::remove_dir_all(&path).unwrap();
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        File::create(path.join("in")).unwrap().set_len(MAX_KEPT_BYTES + 1).unwrap();
        assert!(scratch.keep(&["in"]).contains("not kept") && !path.exists());
    }
}
