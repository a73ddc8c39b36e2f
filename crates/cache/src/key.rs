//! Cache keys: hashes of everything that an entry depends on.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A cache key. Keys are equal if they were built from the same parts in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key(pub(crate) [u8; 32]);

impl Key {
    /// Hash bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The key with these bytes, which have to be 32.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Key {
    fn from(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Builds a key from parts. Each part is hashed with its length, so that different lists of parts have different keys.
#[derive(Clone)]
pub struct KeyBuilder(blake3::Hasher);

impl KeyBuilder {
    pub(crate) fn new() -> Self {
        Self(blake3::Hasher::new())
    }

    /// Add bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Add text.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// Add a number.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Add another key.
    #[must_use]
    pub fn key(self, key: &Key) -> Self {
        self.bytes(&key.0)
    }

    /// Add a path as written.
    #[must_use]
    pub fn path(self, path: &Path) -> Self {
        self.bytes(path.as_os_str().as_bytes())
    }

    /// Add a program's identity without running it: canonical path, size and modification time. A program that does not exist
    /// has an identity, too.
    #[must_use]
    pub fn program(self, path: &Path) -> Self {
        let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let this = self.path(&place);
        match std::fs::metadata(&place) {
            Ok(found) => {
                let [seconds, nanoseconds] = [found.mtime(), found.mtime_nsec()].map(i64::cast_unsigned);
                this.number(found.size()).number(seconds).number(nanoseconds)
            }
            Err(_) => this.text("absent"),
        }
    }

    /// The key.
    pub fn finish(self) -> Key {
        Key(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_together() {
        let key = |parts: &[&str]| parts.iter().fold(KeyBuilder::new(), |b, p| b.text(p)).finish();
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
        for other in [&["a", "bc"][..], &["abc"], &["ab", "c", ""], &["c", "ab"]] {
            assert_ne!(key(&["ab", "c"]), key(other));
        }
        assert_eq!(key(&[]).to_string().len(), 64);
    }

    #[test]
    fn a_program_is_its_place_size_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tool");
        let identity = || KeyBuilder::new().program(&path).finish();
        let absent = identity();
        std::fs::write(&path, "1").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000);
        file.set_modified(time).unwrap();
        let first = identity();
        assert_ne!(first, absent);
        assert_eq!(identity(), first);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(KeyBuilder::new().program(&link).finish(), first);
        file.set_modified(time + std::time::Duration::from_nanos(1)).unwrap();
        assert_ne!(identity(), first);
        std::fs::write(&path, "12").unwrap();
        file.set_modified(time).unwrap();
        assert_ne!(identity(), first);
    }
}
