//! The files that a source depends on, and whether they have changed.
//!
//! What a source means is decided by the files that it includes and by the absence of files at places that clang searches first.
//! Both are recorded after preprocessing and checked before a cached result is used. The list comes from a [`FileSnapshot`], so
//! clang has read exactly these bytes.

use std::path::Path;

use elinvar_cache::{Key, KeyBuilder};
use serde::{Deserialize, Serialize};

use crate::preprocess::vfs::{self, FileSnapshot, ParentPath};

/// Files with hashes of their content, and places without a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dependencies {
    present: Vec<FileDependency>,
    absent: Vec<String>,
    parent_paths: Vec<ParentPath>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileDependency {
    /// Path in the overlay, and path on disk.
    name: String,
    disk: String,
    content: Key,
    /// Index of the first entry that is the same file (device and inode).
    unique_id: u64,
}

impl Dependencies {
    /// The files of a snapshot; `None` when a path is not UTF-8.
    pub(crate) fn of(snapshot: &FileSnapshot, parent_paths: Vec<ParentPath>) -> Option<Self> {
        let text = |path: &Path| path.to_str().map(str::to_owned);
        if parent_paths.iter().any(|place| text(&place.spelled).is_none() || text(&place.disk).is_none()) {
            return None;
        }
        let mut dependencies = Self { parent_paths, ..Self::default() };
        let mut identities = Vec::new();
        for (name, known) in &snapshot.present {
            let unique_id = first(&mut identities, known.unique_id);
            let content = Key::of(&known.bytes);
            let (name, disk) = (text(name)?, text(&known.disk)?);
            dependencies.present.push(FileDependency { name, disk, content, unique_id });
        }
        dependencies.absent = snapshot.absent.values().map(|disk| text(disk)).collect::<Option<_>>()?;
        Some(dependencies)
    }

    /// The same files with their present content; `None` when one has appeared or disappeared.
    pub(crate) fn refresh(&self) -> Option<Self> {
        let mut identities = Vec::new();
        let present = self.present.iter().map(|known| {
            let (bytes, file) = vfs::read(Path::new(&known.disk), u64::MAX - 1)?;
            let unique_id = first(&mut identities, file);
            Some(FileDependency { content: Key::of(&bytes), unique_id, ..known.clone() })
        });
        let present = present.collect::<Option<_>>()?;
        let none_came = self.absent.iter().all(|disk| !Path::new(disk).is_file());
        let none_moved = !self.parent_paths.iter().any(|place| place.differs_from_overlay(&|_| true));
        (none_came && none_moved).then(|| Self { present, ..self.clone() })
    }

    /// The key of what is compiled from the source with this key and these files.
    pub(crate) fn identity(&self, source: KeyBuilder) -> Key {
        let key = source.text("present").number(self.present.len() as u64);
        let key = self.present.iter().fold(key, |key, FileDependency { name, disk, content, unique_id }| {
            key.text(name).text(disk).key(content).number(*unique_id)
        });
        self.absent.iter().fold(key.text("absent"), |key, name| key.text(name)).finish()
    }
}

/// Index of the first equal element, after appending `next`.
fn first<T: PartialEq>(known: &mut Vec<T>, next: T) -> u64 {
    let at = known.iter().position(|known| *known == next).unwrap_or(known.len());
    known.push(next);
    at as u64
}
