//! Whether others could redirect a path.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// Most symbolic links on the way.
const MOST_LINKS: usize = 40;

/// Check that each directory and link on the way to an absolute path, links resolved, belongs to `owner` or root, and that
/// others cannot write to the directories, unless these are sticky as `/tmp` is.
///
/// # Errors
/// The first that others control.
pub(crate) fn expect_private(path: &Path, owner: u32) -> Result<(), String> {
    let parts = |path: &Path| -> VecDeque<OsString> {
        let named = |part: Component| match part {
            Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
            _ => None,
        };
        path.components().filter_map(named).collect()
    };
    let (mut at, mut left, mut links) = (PathBuf::from("/"), parts(path), 0);
    loop {
        let found = std::fs::symlink_metadata(&at).map_err(|error| format!("{}: {error}", at.display()))?;
        let shown = at.display();
        if ![0, owner].contains(&found.uid()) {
            return Err(format!("`{shown}` belongs to user {}", found.uid()));
        }
        if found.is_symlink() {
            links += 1;
            if links > MOST_LINKS {
                return Err(format!("`{shown}`: too many symbolic links"));
            }
            let to = std::fs::read_link(&at).map_err(|error| format!("{shown}: {error}"))?;
            at.pop();
            if to.is_absolute() {
                at = PathBuf::from("/");
            }
            let mut further = parts(&to);
            further.append(&mut left);
            left = further;
        } else if found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
            return Err(format!("others may write to `{shown}` (mode {:o})", found.mode() & 0o7777));
        }
        match left.pop_front() {
            None => return Ok(()),
            Some(part) if part == ".." => drop(at.pop()),
            Some(part) => at.push(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_way_that_others_can_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let us = rustix::process::geteuid().as_raw();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("parent/cache")).unwrap();
        let mode =
            |mode| std::fs::set_permissions(root.join("parent"), PermissionsExt::from_mode(mode)).unwrap();
        let cache = root.join("parent/cache");
        for fine in [0o700, 0o755, 0o1777] {
            mode(fine);
            assert_eq!(expect_private(&cache, us), Ok(()));
        }
        for open in [0o777, 0o770, 0o702] {
            mode(open);
            let why = expect_private(&cache, us).unwrap_err();
            assert!(why.contains("others may write") && why.contains("parent`"), "{why}");
        }
        // By way of links as well, whichever way they go.
        symlink("parent/cache", root.join("link")).unwrap();
        symlink(root.join("link/../../link"), root.join("parent/again")).unwrap();
        mode(0o777);
        for link in ["link", "parent/again"] {
            assert!(expect_private(&root.join(link), us).is_err());
        }
        mode(0o755);
        for link in ["link", "parent/again"] {
            assert_eq!(expect_private(&root.join(link), us), Ok(()));
        }
        symlink("round", root.join("round")).unwrap();
        assert!(expect_private(&root.join("round"), us).unwrap_err().contains("too many"));
        if us == 0 {
            std::os::unix::fs::chown(root.join("parent"), Some(65534), None).unwrap();
            assert!(expect_private(&cache, us).unwrap_err().contains("belongs to user 65534"));
        } else {
            assert!(expect_private(&cache, us + 1).unwrap_err().contains("belongs to user"));
        }
    }
}
