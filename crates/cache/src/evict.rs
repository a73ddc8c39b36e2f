//! Eviction: least recently used entries are removed when the directory exceeds its limit.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use crate::store::TEMPORARY;

/// Age from which a temporary file is a killed writer's.
const ABANDONED: Duration = Duration::from_secs(600);

/// Age from which an unused directory is removed.
const OUTDATED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Entries occupy whole blocks of this size.
const BLOCK: u64 = 4096;

struct File {
    name: std::ffi::CString,
    used: Duration,
    bytes: u64,
    is_folder: bool,
}

/// Remove abandoned temporary files and outdated directories. If the entries exceed `limit` bytes, remove the least recently
/// used ones until nine tenths of it remain. Returns the bytes that remain.
pub(crate) fn sweep(folder: impl AsFd, path: &Path, limit: u64, now: SystemTime) -> rustix::io::Result<u64> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut files = list(&folder)?;
    files.retain(|file| {
        let temporary = file.name.to_bytes().starts_with(TEMPORARY.as_bytes());
        if temporary && now.saturating_sub(file.used) > ABANDONED {
            let _gone = rustix::fs::unlinkat(&folder, &file.name, AtFlags::empty());
        }
        if file.is_folder && now.saturating_sub(file.used) > OUTDATED {
            let _gone = std::fs::remove_dir_all(path.join(std::ffi::OsStr::from_bytes(file.name.to_bytes())));
        }
        !temporary && !file.is_folder
    });
    let mut total: u64 = files.iter().map(|file| file.bytes).sum();
    if total > limit {
        files.sort_by_key(|file| file.used);
        for file in files {
            if total <= limit / 10 * 9 {
                break;
            }
            if rustix::fs::unlinkat(&folder, &file.name, AtFlags::empty()).is_ok() {
                total -= file.bytes;
            }
        }
    }
    Ok(total)
}

fn list(folder: impl AsFd) -> rustix::io::Result<Vec<File>> {
    // A separate file description: the read position is its own.
    let own = rustix::fs::openat(&folder, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut files = Vec::new();
    for entry in Dir::new(own)? {
        let name = entry?.file_name().to_owned();
        // Another process may have removed it.
        let Ok(found) = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if ![b".", b"..".as_slice()].contains(&name.to_bytes()) {
            let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
            let seconds = u64::try_from(found.st_mtime).unwrap_or(0);
            let used = Duration::new(seconds, u32::try_from(found.st_mtime_nsec).unwrap_or(0));
            let bytes = u64::try_from(found.st_size).unwrap_or(0).next_multiple_of(BLOCK);
            files.push(File { name, used, bytes, is_folder });
        }
    }
    Ok(files)
}
