//! What the preprocessor sees of the disk: an overlay of clang's virtual file system, and nothing beside it.
//!
//! [`SearchPaths`] shows the folders that a source may include from. [`FileSnapshot`] shows files whose bytes were read before, and
//! nothing where there was no file: what is preprocessed over it depends on those bytes alone, whatever happens to the disk
//! meanwhile. The overlay removes `..` from a path before it looks at the disk, and so does [`SearchPaths::virtual_path`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use elinvar_driver::Source;

use crate::clang::headers::Headers;
use crate::preprocess::output::PreprocessorOutput;
use crate::{Error, Result};

/// The main file. Beside it there are no headers.
pub(crate) const MAIN_FILE: &str = "/dev/stdin";

/// The name of the macros that each source begins with. It stands in text that clang makes of its arguments without escapes.
pub(crate) const PREDEFINED: &str = "/dev/elinvar/predefined.h";

/// More bytes of included files are not read a second time.
const MAX_SNAPSHOT_BYTES: u64 = 256 << 20;

/// The folders that a source may include from.
#[derive(Debug)]
pub(crate) struct SearchPaths {
    /// Absolute and without `..`, as the overlay names them, and where they are. Those with the longest names first.
    roots: Vec<(PathBuf, PathBuf)>,
    /// What the folders are with all links resolved. `None`: any file may be included.
    allowed: Option<Vec<PathBuf>>,
    headers: PathBuf,
    current_dir: PathBuf,
}

impl SearchPaths {
    /// # Errors
    /// `Io` for a folder whose path is not UTF-8.
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
        // The first of two of one name, as in a search.
        folders.roots.sort_by_key(|(name, _)| std::cmp::Reverse(name.components().count()));
        folders.roots.dedup_by(|next, kept| next.0 == kept.0);
        Ok(folders)
    }

    /// The name by which the overlay looks for a path: absolute and without `.` and `..`.
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

    /// Where such a path is on the disk. `None` outside the folders, and for our own headers.
    fn on_disk(&self, path: &Path) -> Option<PathBuf> {
        if path.starts_with(&self.headers) {
            return None;
        }
        self.roots.iter().find_map(|(name, disk)| Some(disk.join(path.strip_prefix(name).ok()?)))
    }

    /// Whether a file may be included, with all links resolved.
    fn is_allowed(&self, disk: &Path) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        std::fs::canonicalize(disk).is_ok_and(|file| allowed.iter().any(|folder| file.starts_with(folder)))
    }

    /// Whether there is a file at a place of the overlay that may not be included.
    pub(crate) fn is_denied(&self, place: &Path) -> bool {
        self.on_disk(place).is_some_and(|disk| disk.is_file() && !self.is_allowed(&disk))
    }

    /// Where a file that the preprocessed text names is on the disk, if it lies in the folders and may be included.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        self.on_disk(&self.virtual_path(Path::new(name)))
            .filter(|file| file.is_file() && self.is_allowed(file))
    }

    /// All places where the preprocessor may have looked for a file; more than it has looked at.
    pub(crate) fn lookup_candidates(
        &self,
        source: &Source,
        expansion: &PreprocessorOutput,
    ) -> BTreeSet<PathBuf> {
        let spelled = spelled(source, expansion);
        let places = spelled.iter().map(|path| self.virtual_path(path));
        places.filter(|path| self.on_disk(path).is_some()).collect()
    }

    /// Those of these places that are spelled with a `..`.
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

    /// The first that is a file elsewhere than the overlay shows it. A file that may not be included is none.
    pub(crate) fn first_mismatch<'a>(&self, parent_paths: &'a [ParentPath]) -> Option<&'a Path> {
        let first_mismatch = |place: &&ParentPath| place.differs_from_overlay(&|file| self.is_allowed(file));
        parent_paths.iter().find(first_mismatch).map(|place| place.spelled.as_path())
    }

    /// The overlay that shows the folders, our headers and the main file.
    pub(crate) fn overlay(&self, headers: &Headers) -> String {
        let mut overlay = VfsOverlay::with(headers);
        for (name, disk) in &self.roots {
            if name != Path::new("/") {
                // clang would take `..` out of this path, too.
                overlay.folder(name, &std::fs::canonicalize(disk).unwrap_or_else(|_| disk.clone()));
                continue;
            }
            // clang takes no overlay of the root itself.
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

/// Each name that an inclusion has, in each folder where it may have been looked for.
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

/// A place that is spelled with a `..`. Behind a link to a folder, `..` is that folder's parent on the disk and the link's in
/// the overlay; behind a folder that is not there it is nothing on the disk.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct ParentPath {
    pub spelled: PathBuf,
    /// Where the overlay looks.
    pub disk: PathBuf,
    /// Whether the preprocessor has found a file there.
    pub included_files: bool,
}

impl ParentPath {
    /// Whether the disk has another file there than the overlay.
    pub(crate) fn differs_from_overlay(&self, is_allowed: &dyn Fn(&Path) -> bool) -> bool {
        let file =
            |path: &Path| std::fs::canonicalize(path).ok().filter(|path| path.is_file() && is_allowed(path));
        let there = file(&self.spelled);
        (there.is_some() || self.included_files) && there != file(&self.disk)
    }
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    pub disk: PathBuf,
    pub bytes: Vec<u8>,
    /// The same number for the same file under several names: `#pragma once` tells by that.
    pub unique_id: usize,
}

/// Files, and the places where there is none.
#[derive(Debug, Default)]
pub(crate) struct FileSnapshot {
    pub present: BTreeMap<PathBuf, SnapshotFile>,
    pub absent: BTreeMap<PathBuf, PathBuf>,
}

impl FileSnapshot {
    /// What there is at these places. `None` for what cannot be shown: too many bytes, or a name that is not UTF-8.
    pub(crate) fn of(folders: &SearchPaths, places: &BTreeSet<PathBuf>) -> Option<Self> {
        let (mut snapshot, mut files, mut left) = (Self::default(), Vec::new(), MAX_SNAPSHOT_BYTES);
        for place in places {
            place.to_str()?;
            let disk = folders.on_disk(place)?;
            match read(&disk, left) {
                // What may not be included is not shown.
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

    /// Whether all these places were looked at.
    pub(crate) fn covers(&self, places: &BTreeSet<PathBuf>) -> bool {
        places.iter().all(|place| self.present.contains_key(place) || self.absent.contains_key(place))
    }

    /// The text of a file.
    pub(crate) fn text(&self, path: &Path) -> Option<&str> {
        std::str::from_utf8(&self.present.get(path)?.bytes).ok()
    }

    /// The overlay that shows these files, our headers and the main file. Copies of the files are put into `folder`.
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

/// The bytes of a file, with what tells it from others; `None` where there is none or it has more than `most`.
pub(crate) fn read(path: &Path, most: u64) -> Option<(Vec<u8>, (u64, u64))> {
    // Not to wait for whom writes into a pipe.
    if !path.is_file() {
        return None;
    }
    let file = std::fs::File::open(path).ok()?;
    let found = file.metadata().ok().filter(|found| found.is_file() && found.len() <= most)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some((bytes, (found.dev(), found.ino())))
}

/// A description as clang's `-ivfsoverlay` takes it.
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

/// A path within a string of YAML.
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
