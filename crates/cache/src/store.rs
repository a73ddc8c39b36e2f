//! The open cache: loads, stores and validates entries.

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

/// Subdirectory for this version of the entry format.
const FORM: &str = "1";

/// Prefix of temporary files.
pub(crate) const TEMPORARY: &str = "tmp-";

/// Largest entry in bytes.
const LARGEST: u64 = 256 << 20;

/// Smallest limit in bytes with which [`Cache::folder`] is available.
const LEAST_FOR_FOLDERS: u64 = 64 << 20;

/// A persistent cache. Clones share it.
#[derive(Clone, Debug)]
pub struct Cache {
    version: Arc<str>,
    lookups: Arc<Lookups>,
    /// `None`: disabled.
    folder: Option<Arc<Folder>>,
}

/// Numbers of loads that found an entry, and that did not.
#[derive(Debug, Default)]
struct Lookups {
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    open: OwnedFd,
    /// Owner of the files that are read (effective user ID).
    owner: u32,
    limit: u64,
    /// Bytes stored since the last eviction; `u64::MAX` before the first.
    unswept: AtomicU64,
}

impl Cache {
    /// A disabled cache: every load misses, nothing is stored.
    pub fn off() -> Self {
        Self { version: "".into(), lookups: Arc::default(), folder: None }
    }

    /// The user's cache, as `ELINVAR_CACHE` and `ELINVAR_CACHE_LIMIT` configure it. `version` is part of every key: entries of
    /// other versions are never found.
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

    /// The cache in `folder`, which is created if missing, with a limit of about `limit` bytes.
    pub fn at(folder: &Path, limit: u64, version: &str) -> Self {
        let owner = rustix::process::geteuid().as_raw();
        let folder = Folder::open(folder, owner, limit)
            .inspect_err(|why| warn(&format!("no cache in `{}`: {why}", folder.display())));
        Self { version: version.into(), lookups: Arc::default(), folder: folder.ok().map(Arc::new) }
    }

    /// Examines the user's cache: its folder, in which an entry was stored and found again, or `None` if it is off.
    ///
    /// # Errors
    /// Why the cache does not work, with its folder or the setting that is wrong.
    pub fn examine() -> Result<Option<PathBuf>, String> {
        let limit = place::limit(std::env::var_os("ELINVAR_CACHE_LIMIT").as_deref())?;
        let Some(path) = place::folder(std::env::var_os("ELINVAR_CACHE").as_deref()) else { return Ok(None) };
        let at = |why: &dyn std::fmt::Display| format!("`{}`: {why}", path.display());
        let owner = rustix::process::geteuid().as_raw();
        let folder = Folder::open(&path, owner, limit).map_err(|why| at(&why))?;
        let bytes = std::process::id().to_ne_bytes();
        let key = KeyBuilder::new().text("examined").bytes(&bytes).finish();
        let sealed = entry::seal(&key, &bytes).ok_or_else(|| at(&"no entry can be made"))?;
        folder.store(&key, &sealed).map_err(|why| at(&format!("an entry cannot be stored: {why}")))?;
        let found = folder.load(&key);
        let _gone = rustix::fs::unlinkat(&folder.open, key.to_string(), AtFlags::empty());
        match found {
            Ok(Some(found)) if found == bytes => Ok(Some(path)),
            Ok(_) => Err(at(&"an entry that was stored is not found")),
            Err(why) => Err(at(&format!("an entry that was stored cannot be read: {why}"))),
        }
    }

    /// The same cache, with lookups of its own.
    #[must_use]
    pub fn counted(&self) -> Self {
        Self { lookups: Arc::default(), ..self.clone() }
    }

    /// Numbers of loads that have found an entry, and that have not, through this cache and its clones. `None` if it is disabled.
    pub fn lookups(&self) -> Option<[u64; 2]> {
        self.folder.as_ref()?;
        Some([&self.lookups.hits, &self.lookups.misses].map(|count| count.load(Ordering::Relaxed)))
    }

    /// Whether it is enabled.
    pub fn is_on(&self) -> bool {
        self.folder.is_some()
    }

    /// Begin a key for an entry of a kind.
    pub fn key(&self, kind: &str) -> KeyBuilder {
        KeyBuilder::new().text(&self.version).text(kind)
    }

    /// Load the bytes under a key, verified. A damaged or foreign file is removed.
    pub fn load(&self, key: &Key) -> Option<Vec<u8>> {
        let folder = self.folder.as_ref()?;
        let found = folder.load(key).unwrap_or_else(|why| {
            tracing::debug!("cache entry {key} in {}: {why}; removed", folder.path.display());
            let _gone = rustix::fs::unlinkat(&folder.open, key.to_string(), AtFlags::empty());
            None
        });
        let count = if found.is_some() { &self.lookups.hits } else { &self.lookups.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Store bytes under a key, if possible. Eviction runs on the first store of a process and whenever it has stored a
    /// sixteenth of the limit: least recently used entries beyond the limit are removed.
    pub fn store(&self, key: &Key, bytes: &[u8]) {
        let Some(folder) = &self.folder else { return };
        if bytes.len() as u64 > LARGEST {
            return;
        }
        let Some(sealed) = entry::seal(key, bytes).filter(|sealed| sealed.len() as u64 <= folder.limit)
        else {
            return;
        };
        match folder.store(key, &sealed) {
            Ok(()) => folder.evict_if_due(sealed.len() as u64),
            Err(why) => tracing::debug!("cannot store {key} in {}: {why}", folder.path.display()),
        }
    }

    /// A directory for files that programs open by path, created with mode 0700 if missing. Its content has no checksum and does
    /// not count towards the limit; a directory that was not asked for in 30 days is removed on eviction.
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        let folder = self.folder.as_ref().filter(|folder| folder.limit >= LEAST_FOR_FOLDERS)?;
        // Entries are opened relative to the open directory; a path depends on every directory on the way.
        if let Err(why) = trust::expect_private(&folder.path, folder.owner) {
            warn(&format!("cannot store precompiled headers in `{}`: {why}", folder.path.display()));
            return None;
        }
        let made = folder.sub(name);
        made.inspect_err(|why| tracing::debug!("no folder {name} in {}: {why}", folder.path.display())).ok()
    }
}

/// Warn once per process; further warnings are debug events.
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

    /// `Err` for a file that has to be removed.
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

    fn store(&self, key: &Key, sealed: &[u8]) -> std::io::Result<()> {
        let temporary = temporary_name();
        let mut file = self.create(&temporary)?;
        let written = file
            .write_all(sealed)
            .and_then(|()| Ok(rustix::fs::renameat(&self.open, &temporary, &self.open, key.to_string())?));
        if written.is_err() {
            let _gone = rustix::fs::unlinkat(&self.open, &temporary, AtFlags::empty());
        }
        written
    }

    /// Create a new file. An existing name is an error; links are not followed.
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

    fn evict_if_due(&self, stored: u64) {
        let before = self.unswept.load(Ordering::Relaxed);
        let due = before == u64::MAX || before.saturating_add(stored) > self.limit / 16;
        self.unswept.store(if due { 0 } else { before + stored }, Ordering::Relaxed);
        if due && let Err(why) = evict::sweep(&self.open, &self.path, self.limit, SystemTime::now()) {
            tracing::debug!("cannot evict entries in {}: {why}", self.path.display());
        }
    }
}

/// Set the modification time, by which LRU eviction works. Fails silently on a read-only file system.
fn mark_used(open: impl std::os::fd::AsFd) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let keep = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: keep, last_modification: now };
    let _kept = rustix::fs::futimens(open, &times);
}

/// Why an open file is rejected: kind, owner or mode.
fn refuse(found: &Stat, kind: FileType, owner: u32) -> Result<(), String> {
    if FileType::from_raw_mode(found.st_mode) != kind {
        return Err("not a regular file or directory".into());
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

/// A unique name, also among containers that share the directory and have equal process IDs.
fn temporary_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    format!("{TEMPORARY}{}-{count}-{now:x}", std::process::id())
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
