//! The stand-in's sources, embedded in this program, and the folder in which they are unpacked and built: one per version of the sources in
//! the user's cache, or `ELINVAR_APPLE_FOLDER`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use etcetera::BaseStrategy as _;

use super::with_path;
use crate::failure::{Failure, Result};

include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// The folder for this version of the sources.
pub fn folder() -> Result<PathBuf> {
    let chosen =
        std::env::var_os("ELINVAR_APPLE_FOLDER").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = match chosen {
        Some(chosen) => chosen,
        None => etcetera::choose_base_strategy()
            .map_err(|error| Failure::Machine(format!("cannot create a folder for the stand-in: {error}")))?
            .cache_dir()
            .join("elinvar-apple"),
    };
    Ok(folder.join(format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), state())))
}

/// Number of builds of other versions that are kept, and how long one is kept after its last use.
const KEPT: usize = 2;
const UNUSED: Duration = Duration::from_secs(24 * 3600);
/// A file in a build's folder, written at each use.
const USED: &str = "used";

/// Notes that the build in this folder is used, and removes older ones beside it, each of which takes a gigabyte: all but the last, unless
/// they were used within a day. A build that cannot be removed stays.
pub fn keep_recent(folder: &Path) {
    if let Err(error) = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(folder.join(USED), "")) {
        eprintln!("warning: {}: {error}", folder.display());
    }
    let name = folder.file_name();
    let builds = folder.parent().and_then(|all| std::fs::read_dir(all).ok()).into_iter().flatten().flatten();
    let used = |path: &Path| std::fs::metadata(path.join(USED)).and_then(|used| used.modified()).ok();
    let mut others: Vec<(SystemTime, PathBuf)> = builds
        .filter(|build| Some(&*build.file_name()) != name)
        .filter_map(|build| Some((used(&build.path())?, build.path())))
        .collect();
    others.sort_by_key(|(used, _)| std::cmp::Reverse(*used));
    for (used, path) in others.into_iter().skip(KEPT) {
        if used.elapsed().is_ok_and(|unused| unused > UNUSED) {
            let _stays = std::fs::remove_dir_all(path);
        }
    }
}

/// Hash of the sources.
fn state() -> u64 {
    let mut hash = 0_u64;
    for (name, content) in FILES.iter().chain(&[("Cargo.toml", WORKSPACE.as_bytes())]) {
        hash = hash.rotate_left(5) ^ super::compiler::hash(name.as_bytes()) ^ super::compiler::hash(content);
    }
    hash
}

/// Writes the sources as a separate workspace. Files that are up to date are not touched.
pub fn unpack(to: &Path) -> Result<()> {
    let workspace = workspace();
    for (name, content) in FILES.iter().chain(&[("Cargo.toml", workspace.as_bytes())]) {
        let path = to.join(name);
        // Cargo removes entries of other crates from the lock file.
        let is_there = std::fs::read(&path).is_ok_and(|present| present == *content || *name == "Cargo.lock");
        if !is_there {
            std::fs::create_dir_all(path.parent().unwrap_or(to)).map_err(with_path(&path))?;
            std::fs::write(&path, content).map_err(with_path(&path))?;
        }
    }
    Ok(())
}

/// The manifest of the workspace, with these members only.
fn workspace() -> String {
    let line = |line: &str| {
        if line.starts_with("members = ") { format!("members = {CRATES:?}\n") } else { format!("{line}\n") }
    };
    WORKSPACE.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The members of a workspace, and the folders of all crates that they depend on by path. Dependencies are not resolved, because the
    /// registry's index and crates of other platforms may not have been downloaded.
    fn members(manifest: &Path) -> (BTreeMap<PathBuf, String>, BTreeSet<PathBuf>) {
        let mut cargo = super::super::cargo();
        cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"]);
        cargo.arg(manifest).env("CARGO_HOME", manifest.with_file_name("empty"));
        let text = super::super::output_of(cargo, "cargo metadata").unwrap();
        let graph: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let packages = graph["packages"].as_array().unwrap();
        let path = |value: &serde_json::Value| PathBuf::from(value.as_str().unwrap());
        let members = packages.iter().map(|package| {
            let folder = path(&package["manifest_path"]).parent().unwrap().to_owned();
            (folder, package["name"].as_str().unwrap().to_owned())
        });
        let dependencies = packages.iter().flat_map(|package| package["dependencies"].as_array().unwrap());
        let beside = dependencies.map(|dependency| &dependency["path"]).filter(|path| !path.is_null());
        (members.collect(), beside.map(path).collect())
    }

    #[test]
    fn builds_that_have_not_been_used_for_long_are_removed() {
        let all = tempfile::tempdir().unwrap();
        let build = |name: &str| all.path().join(name);
        let hours = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600);
        // A folder without the file is none of ours.
        for (name, used) in [("a", Some(30)), ("b", Some(60)), ("c", Some(40)), ("d", Some(3)), ("e", None)] {
            std::fs::create_dir(build(name)).unwrap();
            if let Some(used) = used {
                let file = std::fs::File::create(build(name).join(USED)).unwrap();
                file.set_modified(hours(used)).unwrap();
            }
        }
        keep_recent(&build("new"));
        let left = |name: &str| build(name).exists();
        assert_eq!(["a", "b", "c", "d", "e", "new"].map(left), [true, false, false, true, true, true]);
        // Three that were used today stay.
        keep_recent(&build("d"));
        keep_recent(&build("f"));
        keep_recent(&build("g"));
        assert_eq!(["a", "d", "f", "g", "new"].map(left), [false, true, true, true, true]);
    }

    #[test]
    fn the_unpacked_sources_are_complete() {
        let folder = tempfile::tempdir().unwrap();
        unpack(folder.path()).unwrap();
        // Cargo refuses a workspace that lacks a member's manifest or root file.
        let (members, beside) = members(&folder.path().join("Cargo.toml"));
        assert_eq!(members.len(), CRATES.len(), "{members:?}");
        for name in ["elinvar-apple", "elinvar-driver-cpu"] {
            assert!(members.values().any(|member| member == name), "{name} is not among {members:?}");
        }
        assert!(!beside.is_empty());
        for path in beside {
            assert!(
                members.contains_key(&path),
                "a member depends on {}, which is not a member",
                path.display()
            );
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (name, content) in FILES.iter().filter(|(name, _)| *name != "Cargo.lock") {
            let is_same = |path: PathBuf| std::fs::read(path).unwrap() == *content;
            assert!(is_same(here.join(name)), "{name} is not the file that was carried");
            assert!(is_same(folder.path().join(name)), "{name} is not unpacked as it was");
        }
        assert!(FILES.iter().any(|(name, _)| name.ends_with("headers/elinvar_stdlib/all.h")));
    }

    #[test]
    fn what_is_there_is_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        unpack(folder.path()).unwrap();
        let manifest = folder.path().join("Cargo.toml");
        let written = || std::fs::metadata(&manifest).unwrap().modified().unwrap();
        let first = written();
        unpack(folder.path()).unwrap();
        assert_eq!(written(), first);
        std::fs::write(&manifest, "other").unwrap();
        unpack(folder.path()).unwrap();
        assert!(std::fs::read_to_string(&manifest).unwrap().contains("apple/metal"));
    }
}
