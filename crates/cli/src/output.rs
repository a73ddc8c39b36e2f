//! Atomic replacement of result files.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// Replace a file: write a temporary file next to it, sync, rename. Symbolic links are followed and the mode is preserved.
/// Anything but a regular file, such as a pipe, is written directly.
///
/// # Errors
/// Those of the file system. The old file is unchanged then.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> std::io::Result<()> {
    let place = place(path);
    let old = std::fs::metadata(&place).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return write(&mut File::options().write(true).open(&place)?);
    }
    // As the umask has it, where there is none.
    let mode = old.map_or_else(|| Permissions::from_mode(0o666), |old| old.permissions());
    let kept = mode.mode() & 0o7777;
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let replaces = place.exists();
    let mut file = tempfile::Builder::new().prefix(".elinvar-").permissions(mode).tempfile_in(folder)?;
    let _part = crate::progress::Part::new(file.path());
    write(file.as_file_mut())?;
    file.flush()?;
    if replaces {
        file.as_file().set_permissions(Permissions::from_mode(kept))?;
    }
    file.as_file().sync_all()?;
    file.persist(&place).map_err(|error| error.error)?;
    Ok(())
}

/// As [`replace`], with a content.
pub fn replace_with(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let written = replace(path, |file| file.write_all(content.as_ref()));
    written.map_err(|error| Failure::Machine(format!("cannot write {}: {error}", path.display())))
}

/// Two paths that name the same file, if any do.
pub fn twice<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Option<(&'a Path, &'a Path)> {
    let mut seen: Vec<(PathBuf, &Path)> = Vec::new();
    for path in paths {
        let place = place(path);
        // A device or a pipe takes one after the other.
        if std::fs::metadata(&place).is_ok_and(|found| !found.is_file()) {
            continue;
        }
        if let Some((_, other)) = seen.iter().find(|(known, _)| *known == place) {
            return Some((other, path));
        }
        seen.push((place, path));
    }
    None
}

/// The path with all symbolic links resolved; the file need not exist.
fn place(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // A link may lead to what is not there yet.
    for _ in 0..40 {
        match std::fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => break,
        }
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn an_old_file_stays_when_the_new_one_cannot_be_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        std::fs::write(&path, "old").expect("written");
        let fails = replace(&path, |file| {
            file.write_all(b"half of the new")?;
            Err(std::io::Error::from(ErrorKind::StorageFull))
        });
        assert_eq!(fails.map_err(|error| error.kind()), Err(ErrorKind::StorageFull));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "old");
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 1);
    }

    #[test]
    fn modes_and_links_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, link, new] = ["a", "link", "new"].map(|name| folder.path().join(name));
        std::fs::write(&path, "old").expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o604)).expect("set");
        symlink("a", &link).expect("linked");
        replace(&link, |file| file.write_all(b"new")).expect("written");
        assert!(link.is_symlink() && std::fs::read_to_string(&path).expect("there") == "new");
        assert_eq!(path.metadata().expect("there").mode() & 0o777, 0o604);
        // As any other new file.
        replace(&new, |file| file.write_all(b"new")).expect("written");
        File::create(&link).expect("made");
        let other = folder.path().join("other");
        File::create(&other).expect("made");
        assert_eq!(new.metadata().expect("there").mode(), other.metadata().expect("there").mode());
        replace(Path::new("/dev/null"), |file| file.write_all(b"gone")).expect("written");
    }

    #[test]
    fn one_file_under_two_names_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        symlink("a", at("link")).expect("linked");
        symlink(folder.path(), at("self")).expect("linked");
        for other in ["a", "./a", "link", "self/a", "self/link"] {
            assert!(twice([at("a").as_path(), &at(other)]).is_some(), "{other}");
        }
        assert!(twice([at("a").as_path(), &at("b"), &at("self/c")]).is_none());
        assert!(twice([Path::new("/dev/null"), Path::new("/dev/null")]).is_none());
    }
}
