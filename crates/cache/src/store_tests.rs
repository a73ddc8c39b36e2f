//! Tests of the store: what is torn, foreign or stale is never handed out.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use super::*;

struct Place {
    folder: tempfile::TempDir,
    cache: Cache,
}

const KEPT: &[u8] = b"some bytes that are kept";

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path(), 1 << 20, "v");
        Self { folder, cache }
    }

    /// A place with one entry, its key and its file.
    fn with_entry() -> (Self, Key, PathBuf) {
        let place = Self::new();
        let key = place.cache.key("test").text("a").finish();
        place.cache.store(&key, KEPT);
        let file = place.entries().join(key.to_string());
        assert_eq!(place.cache.load(&key).as_deref(), Some(KEPT));
        (place, key, file)
    }

    fn entries(&self) -> PathBuf {
        self.folder.path().join(FORM)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.entries()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn entries_are_found_by_the_next_one_to_open_the_folder() {
    let (place, key, file) = Place::with_entry();
    assert_eq!((mode(&place.entries()), mode(&file)), (0o700, 0o600));
    assert_eq!(place.names(), [key.to_string()]);
    let again = Cache::at(place.folder.path(), 1 << 20, "v");
    assert_eq!(again.load(&key).as_deref(), Some(KEPT));
    again.store(&key, b"");
    assert_eq!(place.cache.load(&key).as_deref(), Some(&b""[..]));
}

#[test]
fn another_version_or_kind_is_another_key() {
    let (place, key, _) = Place::with_entry();
    let other = Cache::at(place.folder.path(), 1 << 20, "w");
    assert_ne!(other.key("test").text("a").finish(), key);
    assert_ne!(place.cache.key("tess").text("a").finish(), key);
    assert_eq!(place.cache.key("test").text("a").finish(), key);
}

#[test]
fn damaged_entries_are_removed() {
    let (place, key, file) = Place::with_entry();
    let right = std::fs::read(&file).unwrap();
    let mut flipped = right.clone();
    *flipped.last_mut().unwrap() ^= 4;
    for wrong in [&right[..right.len() - 1], &right[..3], b"", &flipped] {
        std::fs::write(&file, wrong).unwrap();
        assert_eq!(place.cache.load(&key), None);
        assert!(!file.exists());
    }
    let other = place.entries().join(place.cache.key("test").text("b").finish().to_string());
    std::fs::write(&other, &right).unwrap();
    assert_eq!(place.cache.load(&place.cache.key("test").text("b").finish()), None, "under another name");
    place.cache.store(&key, KEPT);
    assert_eq!(place.cache.load(&key).as_deref(), Some(KEPT));
}

#[test]
fn what_is_no_file_of_ours_is_removed() {
    let (place, key, file) = Place::with_entry();
    set_mode(&file, 0o620);
    assert_eq!(place.cache.load(&key), None);
    assert!(!file.exists());
    place.cache.store(&key, KEPT);
    let elsewhere = place.folder.path().join("elsewhere");
    std::fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert_eq!(place.cache.load(&key), None, "a link, even to a right entry");
    assert!(file.symlink_metadata().is_err() && elsewhere.exists());
    std::fs::create_dir(&file).unwrap();
    assert_eq!(place.cache.load(&key), None, "a folder");
    place.cache.store(&key, KEPT);
    assert_eq!(place.names().len(), 1, "no unfinished file stays");
}

/// Only root can give a file to somebody; for others the next test has to do.
#[test]
fn a_file_that_was_given_to_another_user_is_not_read() {
    if rustix::process::geteuid().is_root() {
        let (place, key, file) = Place::with_entry();
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        assert_eq!(place.cache.load(&key), None);
        assert!(!file.exists());
        std::os::unix::fs::chown(place.entries(), Some(65534), None).unwrap();
        assert!(!Cache::at(place.folder.path(), 1 << 20, "v").is_on(), "the folder is another user's");
    }
}

/// The owner that is expected is another one: for the file this is the same as a file of another user.
#[test]
fn entries_of_another_user_are_not_read() {
    let (place, key, file) = Place::with_entry();
    let open = &place.cache.folder.as_ref().unwrap().open;
    let folder = Folder {
        path: place.entries(),
        open: open.try_clone().unwrap(),
        owner: rustix::process::geteuid().as_raw() + 1,
        limit: 1 << 20,
        unswept: AtomicU64::new(0),
    };
    assert!(folder.load(&key).unwrap_err().contains("belongs to user"));
    let other = Cache { version: "v".into(), lookups: Arc::default(), folder: Some(Arc::new(folder)) };
    assert_eq!(other.load(&key), None);
    assert!(!file.exists());
}

#[test]
fn a_folder_of_others_is_not_used() {
    let (place, key, _) = Place::with_entry();
    let us = rustix::process::geteuid().as_raw();
    let error = Folder::open(place.folder.path(), us + 1, 1).unwrap_err();
    assert!(error.to_string().contains("belongs to user"), "{error}");
    set_mode(&place.entries(), 0o770);
    let cache = Cache::at(place.folder.path(), 1 << 20, "v");
    assert!(!cache.is_on() && cache.load(&key).is_none());
    set_mode(&place.entries(), 0o700);
    std::fs::rename(place.entries(), place.folder.path().join("real")).unwrap();
    symlink(place.folder.path().join("real"), place.entries()).unwrap();
    assert!(!Cache::at(place.folder.path(), 1 << 20, "v").is_on(), "a link");
}

#[test]
fn a_folder_that_cannot_be_is_a_cache_with_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for cache in [Cache::at(file.path(), 1 << 20, "v"), Cache::off()] {
        let key = cache.key("test").finish();
        cache.store(&key, KEPT);
        assert!(!cache.is_on() && cache.load(&key).is_none());
    }
}

#[test]
fn a_folder_that_has_gone_is_no_trouble() {
    let (place, key, _) = Place::with_entry();
    std::fs::remove_dir_all(place.entries()).unwrap();
    assert_eq!(place.cache.load(&key), None);
    place.cache.store(&key, KEPT);
    assert_eq!(place.cache.load(&key), None);
}

/// Who can write to the parent could put another folder in the place of the one that clang reads from.
#[test]
fn there_are_no_folders_where_others_own_the_way() {
    let parent = tempfile::tempdir().unwrap();
    let open = parent.path().join("open");
    std::fs::create_dir(&open).unwrap();
    set_mode(&open, 0o777);
    let cache = Cache::at(&open.join("cache"), LEAST_FOR_FOLDERS, "v");
    assert!(cache.is_on(), "entries are opened from the open folder");
    assert_eq!(cache.folder("files"), None);
    set_mode(&open, 0o755);
    assert!(cache.folder("files").is_some());
}

#[test]
fn folders_for_files_of_other_programs() {
    let place = Place::new();
    assert_eq!(place.cache.folder("files"), None, "the limit is too small");
    let cache = Cache::at(place.folder.path(), LEAST_FOR_FOLDERS, "v");
    let folder = cache.folder("files").unwrap();
    assert!(folder.is_absolute() && mode(&folder) == 0o700);
    std::fs::write(folder.join("file"), "x").unwrap();
    assert_eq!(cache.folder("files").as_ref(), Some(&folder));
    set_mode(&folder, 0o777);
    assert_eq!(cache.folder("files"), None, "others may write to it");
    set_mode(&folder, 0o700);
    symlink(&folder, place.entries().join("link")).unwrap();
    assert_eq!(cache.folder("link"), None, "a link");
    std::fs::write(place.entries().join("plain"), "x").unwrap();
    assert_eq!(cache.folder("plain"), None, "no folder");

    let days = |count: u64| SystemTime::now() - Duration::from_secs(count * 24 * 3600);
    let sweep = |used| {
        File::open(&folder).unwrap().set_modified(used).unwrap();
        let open = &cache.folder.as_ref().unwrap().open;
        evict::sweep(open, &place.entries(), LEAST_FOR_FOLDERS, SystemTime::now()).unwrap();
        folder.join("file").exists()
    };
    assert!(sweep(days(29)));
    assert!(!sweep(days(31)) && !folder.exists());
}

/// Sets when a file was used, in seconds before now.
fn used(file: &Path, seconds: u64) {
    let file = File::options().write(true).open(file).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let place = Place::new();
    let small = Cache::at(place.folder.path(), 10 * 4096, "v");
    let key = |i: u64| small.key("test").number(i).finish();
    for i in 0..10 {
        small.store(&key(i), &[7; 4000]);
        used(&place.entries().join(key(i).to_string()), 1000 - i);
    }
    assert_eq!(place.names().len(), 10);
    assert!(small.load(&key(0)).is_some(), "makes it the last one used");
    let [old, young] = ["tmp-old", "tmp-young"].map(|name| place.entries().join(name));
    std::fs::write(&old, "x").unwrap();
    std::fs::write(&young, "x").unwrap();
    used(&old, 3600);
    small.store(&key(10), &[7; 4000]);
    let left: Vec<u64> = (0..11).filter(|i| small.load(&key(*i)).is_some()).collect();
    assert_eq!(left, [0, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert!(!old.exists() && young.exists());
    small.store(&key(11), &entry::tests::pseudorandom(11 * 4096));
    assert!(small.load(&key(11)).is_none(), "larger than the limit");
    small.store(&key(12), &[7; 11 * 4096]);
    assert!(small.load(&key(12)).is_some(), "smaller than the limit when compressed");
}

/// A file is as large as an entry can be at most before it is read: the size alone refuses it.
#[test]
fn a_file_too_large_for_an_entry_is_not_read() {
    let (place, key, file) = Place::with_entry();
    let folder = place.cache.folder.as_ref().unwrap();
    // It takes no room on the disk.
    let grow = |size: u64| File::options().write(true).open(&file).unwrap().set_len(size).unwrap();
    grow(LARGEST + 4097);
    assert_eq!(folder.load(&key).unwrap_err(), format!("{} bytes", LARGEST + 4097));
    assert_eq!(place.cache.load(&key), None);
    assert!(!file.exists());
}

/// An unfinished file has a name of its own, by which it is known as one, and nothing that lies there is written to.
#[test]
fn unfinished_files_are_new() {
    let names: Vec<String> = (0..100).map(|_| temporary_name()).collect();
    assert!(names.iter().all(|name| name.starts_with(TEMPORARY)));
    let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());

    let place = Place::new();
    let folder = place.cache.folder.as_ref().unwrap();
    let mut new = folder.create("new").unwrap();
    new.write_all(b"mine").unwrap();
    for (open, what) in
        [(rustix::io::fcntl_getfd(&new), "file"), (rustix::io::fcntl_getfd(&folder.open), "folder")]
    {
        assert!(
            open.unwrap().contains(rustix::io::FdFlags::CLOEXEC),
            "programs that are started inherit the {what}"
        );
    }
    let [file, target, link] = ["new", "target", "link"].map(|name| place.entries().join(name));
    assert_eq!((std::fs::read(&file).unwrap(), mode(&file)), (b"mine".to_vec(), 0o600));
    assert_eq!(folder.create("new").unwrap_err(), Errno::EXIST, "a file");
    std::fs::write(&target, "theirs").unwrap();
    symlink(&target, &link).unwrap();
    assert_eq!(folder.create("link").unwrap_err(), Errno::EXIST, "a link to a file");
    std::fs::remove_file(&target).unwrap();
    assert_eq!(folder.create("link").unwrap_err(), Errno::EXIST, "a link to nothing");
    assert!(!target.exists());
}

#[test]
fn loads_are_counted_apart_for_each_user() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path(), 1 << 20, "v");
    let (key, missing) = (cache.key("k").text("a").finish(), cache.key("k").text("b").finish());
    cache.store(&key, b"found");
    let user = cache.counted();
    assert_eq!((user.load(&key).as_deref(), user.clone().load(&missing)), (Some(&b"found"[..]), None));
    assert!(user.load(&key).is_some());
    assert_eq!((user.lookups(), cache.lookups()), (Some([2, 1]), Some([0, 0])));
    assert_eq!(Cache::off().lookups(), None);
}
