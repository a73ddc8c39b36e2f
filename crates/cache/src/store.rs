//! The open folder: reading, writing and refusing entries.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use crate::{Key, KeyBuilder, entry, evict, place, trust};

/// The folder in the cache's folder that holds the entries of this form.
const FORM: &str = "1";

/// What names of unfinished files begin with.
pub(crate) const TEMPORARY: &str = "tmp-";

/// No entry is larger; a larger file is none.
const LARGEST: u64 = 256 << 20;

/// With a smaller limit there are no folders.
const LEAST_FOR_FOLDERS: u64 = 64 << 20;

/// Entries that outlive the process. Clones are the same cache.
#[derive(Clone, Debug)]
pub struct Cache {
    version: Arc<str>,
    /// `None`: nothing is found and nothing is kept.
    folder: Option<Arc<Folder>>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    open: OwnedFd,
    /// The user whose files are read.
    owner: u32,
    limit: u64,
    /// Bytes stored since the folder was last swept; `u64::MAX` before the first time.
    unswept: AtomicU64,
}

impl Cache {
    /// A cache that has nothing and keeps nothing.
    pub fn off() -> Self {
        Self { version: "".into(), folder: None }
    }

    /// The user's cache, as `ELINVAR_CACHE` and `ELINVAR_CACHE_LIMIT` have it. `version` becomes part of
    /// every key: entries of other versions are never seen.
    pub fn user(version: &str) -> Self {
        let limit = place::limit(std::env::var_os("ELINVAR_CACHE_LIMIT").as_deref());
        let limit = limit.unwrap_or_else(|wrong| {
            warn(&format!("{wrong}; the limit is {} bytes", place::DEFAULT_LIMIT));
            place::DEFAULT_LIMIT
        });
        match place::folder(std::env::var_os("ELINVAR_CACHE").as_deref()) {
            Some(folder) => Self::at(&folder, limit, version),
            None => Self::off(),
        }
    }

    /// The cache in `folder`, which is made if need be, with at most about `limit` bytes.
    pub fn at(folder: &Path, limit: u64, version: &str) -> Self {
        let owner = rustix::process::geteuid().as_raw();
        let folder = Folder::open(folder, owner, limit)
            .inspect_err(|why| warn(&format!("no cache in `{}`: {why}", folder.display())));
        Self { version: version.into(), folder: folder.ok().map(Arc::new) }
    }

    /// Whether anything can be found or kept.
    pub fn is_on(&self) -> bool {
        self.folder.is_some()
    }

    /// Begin a key for an entry of a kind.
    pub fn key(&self, kind: &str) -> KeyBuilder {
        KeyBuilder::new().text(&self.version).text(kind)
    }

    /// The bytes under the key, verified. A file that is damaged or not this user's is removed.
    pub fn load(&self, key: &Key) -> Option<Vec<u8>> {
        let folder = self.folder.as_ref()?;
        match folder.load(key) {
            Ok(found) => found,
            Err(why) => {
                tracing::debug!("cache entry {key} in {}: {why}; removed", folder.path.display());
                let _gone = rustix::fs::unlinkat(&folder.open, key.to_string(), AtFlags::empty());
                None
            }
        }
    }

    /// Keep bytes under the key, if that is possible. The limit is looked after when a process stores for
    /// the first time and again each time it has stored a sixteenth of it: entries beyond the limit are
    /// removed, those not loaded for longest first.
    pub fn store(&self, key: &Key, bytes: &[u8]) {
        let Some(folder) = &self.folder else { return };
        let size = bytes.len() as u64;
        if size > LARGEST || size > folder.limit {
            return;
        }
        match folder.store(key, bytes) {
            Ok(()) => folder.look_after(size),
            Err(why) => tracing::debug!("cannot keep {key} in {}: {why}", folder.path.display()),
        }
    }

    /// A folder of that name for files that programs have to find under a path; it is made if need be. Only
    /// this user can enter it. What is in it is not sealed and does not count towards the limit; a folder that
    /// was not asked for in 30 days is removed when entries are.
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        let folder = self.folder.as_ref().filter(|folder| folder.limit >= LEAST_FOR_FOLDERS)?;
        // Entries are opened from the open folder; what a path leads to is in the hands of whoever owns the way.
        if let Err(why) = trust::expect_private(&folder.path, folder.owner) {
            warn(&format!("cannot store precompiled headers in `{}`: {why}", folder.path.display()));
            return None;
        }
        let made = folder.sub(name);
        made.inspect_err(|why| tracing::debug!("no folder {name} in {}: {why}", folder.path.display())).ok()
    }
}

/// At most one warning in a process; all else is for those who debug.
fn warn(message: &str) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if WARNED.swap(true, Ordering::Relaxed) {
        tracing::debug!("{message}");
    } else {
        tracing::warn!("{message}");
    }
}

impl Folder {
    fn open(folder: &Path, owner: u32, limit: u64) -> std::io::Result<Self> {
        let path = std::path::absolute(folder.join(FORM))?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = rustix::fs::open(&path, flags, Mode::empty())?;
        refuse(&rustix::fs::fstat(&open)?, FileType::Directory, owner).map_err(std::io::Error::other)?;
        Ok(Self { path, open, owner, limit, unswept: AtomicU64::new(u64::MAX) })
    }

    /// `Err` for what must not be in the folder.
    fn load(&self, key: &Key) -> Result<Option<Vec<u8>>, String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = match rustix::fs::openat(&self.open, key.to_string(), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err("a symbolic link".into()),
            Err(Errno::NOENT) => return Ok(None),
            Err(other) => {
                tracing::debug!("cannot open {key} in {}: {other}", self.path.display());
                return Ok(None);
            }
        };
        let found = rustix::fs::fstat(&file).map_err(|error| error.to_string())?;
        refuse(&found, FileType::RegularFile, self.owner)?;
        let size = u64::try_from(found.st_size).unwrap_or(u64::MAX);
        if size > LARGEST + 4096 {
            return Err(format!("{size} bytes"));
        }
        let mut bytes = Vec::with_capacity(size as usize + 1);
        file.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        let content = entry::open(key, bytes).ok_or("damaged")?;
        mark_used(&file);
        Ok(Some(content))
    }

    fn store(&self, key: &Key, bytes: &[u8]) -> std::io::Result<()> {
        let temporary = temporary_name();
        let mut file = self.create(&temporary)?;
        let written = file
            .write_all(&entry::head(key, bytes))
            .and_then(|()| file.write_all(bytes))
            .and_then(|()| Ok(rustix::fs::renameat(&self.open, &temporary, &self.open, key.to_string())?));
        if written.is_err() {
            let _gone = rustix::fs::unlinkat(&self.open, &temporary, AtFlags::empty());
        }
        written
    }

    /// A new file. What has its name already is neither opened nor followed.
    fn create(&self, name: &str) -> rustix::io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.open, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
    }

    fn sub(&self, name: &str) -> Result<PathBuf, String> {
        let text = |error: Errno| error.to_string();
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.open, name, flags, Mode::empty());
        let opened = match open() {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&self.open, name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(text(error)),
                }
                open()
            }
            other => other,
        };
        let opened = opened.map_err(text)?;
        refuse(&rustix::fs::fstat(&opened).map_err(text)?, FileType::Directory, self.owner)?;
        mark_used(&opened);
        Ok(self.path.join(name))
    }

    fn look_after(&self, stored: u64) {
        let before = self.unswept.load(Ordering::Relaxed);
        let due = before == u64::MAX || before.saturating_add(stored) > self.limit / 16;
        self.unswept.store(if due { 0 } else { before + stored }, Ordering::Relaxed);
        if due && let Err(why) = evict::sweep(&self.open, &self.path, self.limit, SystemTime::now()) {
            tracing::debug!("cannot look through {}: {why}", self.path.display());
        }
    }
}

/// Keep the time of the last use, by which what is old is found. A file system that is only read keeps none.
fn mark_used(open: impl std::os::fd::AsFd) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let keep = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: keep, last_modification: now };
    let _kept = rustix::fs::futimens(open, &times);
}

/// Why an open file is not to be used: it is not the kind it should be, not the owner's, or others may
/// write to it.
fn refuse(found: &Stat, kind: FileType, owner: u32) -> Result<(), String> {
    if FileType::from_raw_mode(found.st_mode) != kind {
        return Err("not a plain file or folder".into());
    }
    if found.st_uid != owner {
        return Err(format!("it belongs to user {}, not {owner}", found.st_uid));
    }
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.intersects(Mode::WGRP | Mode::WOTH) {
        return Err(format!("others may write to it (mode {:o})", mode.as_raw_mode()));
    }
    Ok(())
}

/// A name that no other writer has, also one in a container with the same process number.
fn temporary_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    format!("{TEMPORARY}{}-{count}-{now:x}", std::process::id())
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
