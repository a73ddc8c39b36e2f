//! [`Includes`]: the files that a source may include, so that a capture can be replayed where its folders are not.
//!
//! Directives are found in the text, also those in branches that the preprocessor skips; a file is taken from each folder that has it, so that the
//! search finds the same one. Names that macros make, and files outside the folders, are not found; they are searched in the original folders.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use elinvar_driver::{Error, Result, Source};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Maximum bytes of the included files of a source.
const MOST: u64 = 64 << 20;

/// Files by number of the folder and path within it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Includes(BTreeMap<(u32, PathBuf), ByteBuf>);

impl Includes {
    /// The files that the texts of a source may include.
    pub(crate) fn of(source: &Source) -> Self {
        let mut found = Self::default();
        let mut left = MOST;
        // A name, and the folder of the file that includes it.
        let mut wanted: Vec<(String, Option<PathBuf>)> = Vec::new();
        for file in &source.files {
            wanted.extend(directives(&file.text).map(|name| (name, None)));
        }
        while let Some((name, beside)) = wanted.pop() {
            let besides = beside.into_iter().map(|folder| folder.join(&name));
            for path in besides.chain([PathBuf::from(&name)]).filter_map(|path| normal(&path)) {
                for (number, folder) in (0..).zip(&source.include_dirs) {
                    let key = (number, path.clone());
                    if found.0.contains_key(&key) {
                        continue;
                    }
                    let Some(bytes) = read(&folder.join(&path), left) else { continue };
                    left -= bytes.len() as u64;
                    let text = String::from_utf8_lossy(&bytes);
                    let own = path.parent().map(Path::to_owned);
                    wanted.extend(directives(&text).map(|name| (name, own.clone())));
                    found.0.insert(key, ByteBuf::from(bytes));
                }
            }
        }
        found
    }

    /// Writes the files below `target`; returns the folders that are searched: those with the files, then the original ones.
    ///
    /// # Errors
    /// `Environment` if a file cannot be written; `InvalidArgument` for a path that leaves its folder.
    pub(crate) fn unpack(&self, original: &[PathBuf], target: &Path) -> Result<Vec<PathBuf>> {
        if self.0.is_empty() {
            return Ok(original.to_vec());
        }
        let folders: Vec<PathBuf> = (0..original.len()).map(|at| target.join(at.to_string())).collect();
        for ((number, path), bytes) in &self.0 {
            let folder = folders.get(*number as usize).filter(|_| normal(path).as_ref() == Some(path));
            let wrong = || Error::invalid(format!("the capture has an included file `{}`", path.display()));
            let file = folder.ok_or_else(wrong)?.join(path);
            let written = file.parent().map_or(Ok(()), std::fs::create_dir_all);
            written.and_then(|()| std::fs::write(&file, bytes)).map_err(|error| {
                Error::Environment(format!("cannot write the included file `{}`: {error}", file.display()))
            })?;
        }
        Ok(folders.into_iter().chain(original.iter().cloned()).collect())
    }
}

/// The content of a file of at most `most` bytes; `None` if there is none.
fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let file = std::fs::File::open(path).ok().filter(|file| file.metadata().is_ok_and(|it| it.is_file()))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

/// A path within a folder, without `.` and `..`; `None` if it leaves the folder.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => normal.push(part),
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            _ => return None,
        }
    }
    (normal.components().count() > 0).then_some(normal)
}

/// Names in the directives of a text.
fn directives(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter_map(|line| {
        let directive = line.trim_start().strip_prefix('#')?.trim_start();
        let mut kinds = ["include_next", "include", "import", "embed"].into_iter();
        let name = kinds.find_map(|kind| directive.strip_prefix(kind))?.trim_start();
        let end = match name.chars().next()? {
            '"' => '"',
            '<' => '>',
            _ => return None,
        };
        name[1..].split_once(end).map(|(name, _)| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path, files: &[(&str, &str)]) -> PathBuf {
        for (name, text) in files {
            let file = folder.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        folder.to_owned()
    }

    #[test]
    fn files_of_all_folders_are_found_with_those_that_they_include() {
        let root = tempfile::tempdir().unwrap();
        let first = files(
            &root.path().join("a"),
            &[
                ("x.h", "  #  include \"sub/y.h\"\n#include <absent.h>\n"),
                ("sub/y.h", "#include \"../z.h\" // beside\n#embed \"data.bin\"\n"),
                ("unused.h", ""),
            ],
        );
        let second = files(&root.path().join("b"), &[("x.h", "b"), ("z.h", "z"), ("sub/data.bin", "\u{1}")]);
        files(root.path(), &[("secret.h", "")]);
        let source = Source {
            files: vec![elinvar_driver::SourceFile {
                name: "k.metal".into(),
                text: "#include <x.h>\n#import \"../secret.h\"\n#include \"/etc/passwd\"\n#include MACRO\n"
                    .into(),
            }],
            include_dirs: vec![first, second],
            ..Source::default()
        };
        let found = Includes::of(&source);
        let names: Vec<(u32, &str)> =
            found.0.keys().map(|(at, path)| (*at, path.to_str().unwrap())).collect();
        assert_eq!(names, [(0, "sub/y.h"), (0, "x.h"), (1, "sub/data.bin"), (1, "x.h"), (1, "z.h")]);
        let target = tempfile::tempdir().unwrap();
        let folders = found.unpack(&source.include_dirs, target.path()).unwrap();
        assert_eq!(folders[2..], source.include_dirs);
        assert_eq!(std::fs::read(folders[1].join("x.h")).unwrap(), b"b");
        let same = |name: &str| {
            std::fs::read(folders[0].join(name)).unwrap() == std::fs::read(folders[2].join(name)).unwrap()
        };
        assert!(same("sub/y.h") && same("x.h"));
    }

    #[test]
    fn paths_of_a_hostile_capture_do_not_leave_their_folder() {
        for path in ["../x", "/x", "a/../../x", "a/../x", "./x", ""] {
            let hostile = Includes(BTreeMap::from([((0, PathBuf::from(path)), ByteBuf::from("x"))]));
            let target = tempfile::tempdir().unwrap();
            let refused = hostile.unpack(&[PathBuf::from("a")], &target.path().join("t"));
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{path}: {refused:?}");
            assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0, "{path}");
        }
        let hostile = Includes(BTreeMap::from([((1, PathBuf::from("x")), ByteBuf::from("x"))]));
        assert!(hostile.unpack(&[PathBuf::from("a")], Path::new("t")).is_err());
    }
}
