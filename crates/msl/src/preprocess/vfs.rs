//! The preprocessor's view of the file system: a VFS overlay (`-ivfsoverlay`) and nothing beside it.
//!
//! [`SearchPaths`] maps the include directories. [`FileSnapshot`] maps files whose bytes were read before, so that the output
//! depends on those bytes alone. The overlay removes `..` from a path lexically, and so does [`SearchPaths::virtual_path`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use elinvar_driver::Source;

use crate::clang::headers::Headers;
use crate::preprocess::output::PreprocessorOutput;
use crate::{Error, Result};

/// The main file. There are no headers beside it.
pub(crate) const MAIN_FILE: &str = "/dev/stdin";

/// The file with the predefined macros. clang copies this name into text without escaping it.
pub(crate) const PREDEFINED: &str = "/dev/elinvar/predefined.h";

/// Most bytes of a snapshot.
const MAX_SNAPSHOT_BYTES: u64 = 256 << 20;

/// The include directories of a source.
#[derive(Debug)]
pub(crate) struct SearchPaths {
    /// Virtual path (absolute, without `..`) and path on disk; longest first.
    roots: Vec<(PathBuf, PathBuf)>,
    /// Canonical paths of the include directories. `None`: any file may be included.
    allowed: Option<Vec<PathBuf>>,
    headers: PathBuf,
    current_dir: PathBuf,
}

impl SearchPaths {
    /// # Errors
    /// `Io` for a directory whose path is not UTF-8.
    pub(crate) fn of(source: &Source, headers: &Headers) -> Result<Self> {
        let current_dir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let (allowed, headers) = (source.include_roots(), headers.root().to_owned());
        let mut folders = Self { roots: Vec::new(), allowed, headers, current_dir };
        let all = source.include_outside.then(|| PathBuf::from("/"));
        for folder in source.include_dirs.iter().chain(&all) {
            if folder.to_str().is_none() {
                let folder = folder.display();
                return Err(Error::Io(format!("include directory `{folder}`: the path is not UTF-8")));
            }
            folders.roots.push((folders.virtual_path(folder), folders.current_dir.join(folder)));
        }
        // The first of equal names wins, as in a search.
        folders.roots.sort_by_key(|(name, _)| std::cmp::Reverse(name.components().count()));
        folders.roots.dedup_by(|next, kept| next.0 == kept.0);
        Ok(folders)
    }

    /// The path in the overlay: absolute and without `.` and `..`.
    pub(crate) fn virtual_path(&self, path: &Path) -> PathBuf {
        let mut plain = PathBuf::new();
        for component in self.current_dir.join(path).components() {
            match component {
                Component::ParentDir => {
                    plain.pop();
                }
                Component::CurDir => {}
                other => plain.push(other),
            }
        }
        plain
    }

    /// Map a virtual path to the disk. `None` outside the directories, and for Elinvar's headers.
    fn on_disk(&self, path: &Path) -> Option<PathBuf> {
        if path.starts_with(&self.headers) {
            return None;
        }
        self.roots.iter().find_map(|(name, disk)| Some(disk.join(path.strip_prefix(name).ok()?)))
    }

    /// Whether a file may be included, with symbolic links resolved.
    fn is_allowed(&self, disk: &Path) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        std::fs::canonicalize(disk).is_ok_and(|file| allowed.iter().any(|folder| file.starts_with(folder)))
    }

    /// Whether there is a file at a virtual path that may not be included.
    pub(crate) fn is_denied(&self, place: &Path) -> bool {
        self.on_disk(place).is_some_and(|disk| disk.is_file() && !self.is_allowed(&disk))
    }

    /// Path on disk of a file that the preprocessed text names, if it may be included.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        self.on_disk(&self.virtual_path(Path::new(name)))
            .filter(|file| file.is_file() && self.is_allowed(file))
    }

    /// All places where the preprocessor may have looked; a superset.
    pub(crate) fn lookup_candidates(
        &self,
        source: &Source,
        expansion: &PreprocessorOutput,
    ) -> BTreeSet<PathBuf> {
        let spelled = spelled(source, expansion);
        let places = spelled.iter().map(|path| self.virtual_path(path));
        places.filter(|path| self.on_disk(path).is_some()).collect()
    }

    /// The subset of these that contain `..`.
    pub(crate) fn parent_paths(&self, source: &Source, expansion: &PreprocessorOutput) -> Vec<ParentPath> {
        let has_parent = |path: &PathBuf| path.components().any(|part| part == Component::ParentDir);
        let included_files: BTreeSet<PathBuf> = expansion.included_files.iter().map(PathBuf::from).collect();
        let all =
            spelled(source, expansion).into_iter().chain(included_files.iter().cloned()).filter(has_parent);
        let all: BTreeSet<PathBuf> = all.collect();
        let parent_paths = all.into_iter().filter_map(|path| {
            let (disk, included_files) =
                (self.on_disk(&self.virtual_path(&path))?, included_files.contains(&path));
            Some(ParentPath { spelled: self.current_dir.join(path), disk, included_files })
        });
        parent_paths.collect()
    }

    /// The first that the disk resolves to another file than the overlay. Files that may not be included count as absent.
    pub(crate) fn first_mismatch<'a>(&self, parent_paths: &'a [ParentPath]) -> Option<&'a Path> {
        let first_mismatch = |place: &&ParentPath| place.differs_from_overlay(&|file| self.is_allowed(file));
        parent_paths.iter().find(first_mismatch).map(|place| place.spelled.as_path())
    }

    /// The overlay of the directories, Elinvar's headers and the main file.
    pub(crate) fn overlay(&self, headers: &Headers) -> String {
        let mut overlay = VfsOverlay::with(headers);
        for (name, disk) in &self.roots {
            if name != Path::new("/") {
                // clang would remove `..` from this path lexically.
                overlay.folder(name, &std::fs::canonicalize(disk).unwrap_or_else(|_| disk.clone()));
                continue;
            }
            // clang accepts no mapping of the root directory.
            for entry in std::fs::read_dir("/").into_iter().flatten().flatten() {
                let path = entry.path();
                let known = overlay.names.contains(&path) || path.is_file();
                if !known && path != Path::new("/dev") {
                    overlay.folder(&path, &path);
                }
            }
        }
        overlay.text()
    }
}

/// Every included name, joined to every directory in which it may have been searched.
fn spelled(source: &Source, expansion: &PreprocessorOutput) -> BTreeSet<PathBuf> {
    let beside = expansion.included_files.iter().filter_map(|name| Path::new(name).parent());
    let beside: BTreeSet<&Path> = beside.chain([Path::new("/dev")]).collect();
    let mut found = BTreeSet::new();
    for directive in &expansion.directives {
        let folders = source.include_dirs.iter().map(PathBuf::as_path);
        let beside = beside.iter().copied().filter(|_| directive.quoted);
        found.extend(folders.chain(beside).map(|at| at.join(&directive.name)));
    }
    found
}

/// A path with `..`. Behind a symbolic link, `..` is the target's parent on disk and the link's parent in the overlay.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct ParentPath {
    pub spelled: PathBuf,
    /// Where the overlay looks.
    pub disk: PathBuf,
    /// Whether the preprocessor has found a file there.
    pub included_files: bool,
}

impl ParentPath {
    /// Whether disk and overlay resolve the path to different files.
    pub(crate) fn differs_from_overlay(&self, is_allowed: &dyn Fn(&Path) -> bool) -> bool {
        let file =
            |path: &Path| std::fs::canonicalize(path).ok().filter(|path| path.is_file() && is_allowed(path));
        let there = file(&self.spelled);
        (there.is_some() || self.included_files) && there != file(&self.disk)
    }
}

/// A file in a snapshot.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    pub disk: PathBuf,
    pub bytes: Vec<u8>,
    /// Equal for one file under several names, as `#pragma once` needs.
    pub unique_id: usize,
}

/// A snapshot of files, and of places without a file.
#[derive(Debug, Default)]
pub(crate) struct FileSnapshot {
    pub present: BTreeMap<PathBuf, SnapshotFile>,
    pub absent: BTreeMap<PathBuf, PathBuf>,
}

impl FileSnapshot {
    /// Read these places. `None` if that is impossible: too many bytes, or a path that is not UTF-8.
    pub(crate) fn of(folders: &SearchPaths, places: &BTreeSet<PathBuf>) -> Option<Self> {
        let (mut snapshot, mut files, mut left) = (Self::default(), Vec::new(), MAX_SNAPSHOT_BYTES);
        for place in places {
            place.to_str()?;
            let disk = folders.on_disk(place)?;
            match read(&disk, left) {
                // Files that may not be included have no place in a snapshot.
                Some(_) if !folders.is_allowed(&disk) => return None,
                Some((bytes, file)) => {
                    left = left.checked_sub(bytes.len() as u64)?;
                    let unique_id = files.iter().position(|known| *known == file).unwrap_or(files.len());
                    files.push(file);
                    snapshot.present.insert(place.clone(), SnapshotFile { disk, bytes, unique_id });
                }
                None if disk.is_file() => return None,
                None => {
                    snapshot.absent.insert(place.clone(), disk);
                }
            }
        }
        Some(snapshot)
    }

    /// Whether all these places were read.
    pub(crate) fn covers(&self, places: &BTreeSet<PathBuf>) -> bool {
        places.iter().all(|place| self.present.contains_key(place) || self.absent.contains_key(place))
    }

    /// The text of a file.
    pub(crate) fn text(&self, path: &Path) -> Option<&str> {
        std::str::from_utf8(&self.present.get(path)?.bytes).ok()
    }

    /// The overlay of the snapshot, Elinvar's headers and the main file. The files are copied into `folder`.
    pub(crate) fn overlay(&self, headers: &Headers, folder: &Path) -> std::io::Result<String> {
        let mut overlay = VfsOverlay::with(headers);
        for (name, known) in &self.present {
            let copy = folder.join(known.unique_id.to_string());
            if !copy.exists() {
                std::fs::write(&copy, &known.bytes)?;
            }
            overlay.file(name, &copy);
        }
        Ok(overlay.text())
    }
}

/// Read a file: its bytes, device and inode. `None` where there is none or it exceeds `most` bytes.
pub(crate) fn read(path: &Path, most: u64) -> Option<(Vec<u8>, (u64, u64))> {
    // Opening a pipe would block.
    if !path.is_file() {
        return None;
    }
    let file = std::fs::File::open(path).ok()?;
    let found = file.metadata().ok().filter(|found| found.is_file() && found.len() <= most)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some((bytes, (found.dev(), found.ino())))
}

/// An overlay description for `-ivfsoverlay`.
struct VfsOverlay {
    entries: Vec<String>,
    names: BTreeSet<PathBuf>,
}

impl VfsOverlay {
    fn with(headers: &Headers) -> Self {
        let mut overlay = Self { entries: Vec::new(), names: BTreeSet::new() };
        overlay.file(Path::new(MAIN_FILE), Path::new(MAIN_FILE));
        overlay.file(Path::new(PREDEFINED), &headers.predefined());
        overlay.folder(&headers.include(), &headers.include());
        overlay
    }

    fn file(&mut self, name: &Path, disk: &Path) {
        self.entry("file", name, disk);
    }

    fn folder(&mut self, name: &Path, disk: &Path) {
        self.entry("directory-remap", name, disk);
    }

    fn entry(&mut self, kind: &str, name: &Path, disk: &Path) {
        self.names.insert(name.to_owned());
        let (name, disk) = (escaped(name), escaped(disk));
        self.entries.push(format!(r#"{{"type":"{kind}","name":"{name}","external-contents":"{disk}"}}"#));
    }

    fn text(&self) -> String {
        let entries = self.entries.join(",\n");
        format!(
            r#"{{"version":0,"case-sensitive":"true","use-external-names":"false","redirecting-with":"redirect-only","roots":[
{entries}]}}"#
        )
    }
}

/// A path in a YAML string.
fn escaped(path: &Path) -> String {
    let plain = |c: char| c == ' ' || c.is_ascii_graphic() && !['"', '\\'].contains(&c);
    let escape = |c: char| if plain(c) { c.to_string() } else { format!("\\U{:08X}", u32::from(c)) };
    path.to_string_lossy().chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use crate::clang::toolchain::Toolchain;

    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_in_full_is_not_taken_for_absent() {
        let folder = tempfile::tempdir().unwrap();
        let headers = Toolchain::find().unwrap().headers().unwrap();
        let source = Source::msl("").include_dir(folder.path());
        let folders = SearchPaths::of(&source, &headers).unwrap();
        let place = folders.virtual_path(&folder.path().join("a.h"));
        let snapshot = || FileSnapshot::of(&folders, &BTreeSet::from([place.clone()]));
        assert!(snapshot().is_some_and(|snapshot| snapshot.absent.contains_key(&place)));
        let file = std::fs::File::create(folder.path().join("a.h")).unwrap();
        assert!(snapshot().is_some_and(|snapshot| snapshot.present.contains_key(&place)));
        // Without any content on the disk.
        file.set_len(MAX_SNAPSHOT_BYTES + 1).unwrap();
        assert!(snapshot().is_none());
    }
}
