//! An entry's file is loaded or is none, whatever is in it, and a record that was read is written as the same.
#![no_main]

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::LazyLock;

use elinvar_cache::{Cache, Key, decode, encode};
use elinvar_driver::{Diagnostic, FunctionConstant, Signature, UnsupportedKernel};
use elinvar_spmd::bounds::Checks;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

struct Place {
    cache: Cache,
    /// The file of the one entry.
    file: PathBuf,
    key: Key,
    _folder: tempfile::TempDir,
}

static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path(), 1 << 30, "fuzz");
    let key = cache.key("entry").finish();
    let file = folder.path().join("1").join(key.to_string());
    cache.store(&key, b"content");
    assert!(file.is_file(), "{}", file.display());
    Place { cache, file, key, _folder: folder }
});

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    let Place { cache, file, key, .. } = &*PLACE;
    match kind % 8 {
        0 => {
            // Its owner and mode stay: the file is there, and is written again.
            cache.store(key, b"content");
            std::fs::write(file, rest).expect("written");
            if let Some(content) = cache.load(key) {
                cache.store(key, &content);
                assert_eq!(cache.load(key), Some(content));
            } else {
                assert!(!file.exists(), "what is damaged is removed");
            }
        }
        1 => {
            cache.store(key, rest);
            assert_eq!(cache.load(key).as_deref(), Some(rest));
        }
        2 => same::<Signature>(rest),
        3 => same::<Diagnostic>(rest),
        4 => same::<UnsupportedKernel>(rest),
        5 => same::<FunctionConstant>(rest),
        6 => same::<Checks>(rest),
        _ => same::<Vec<String>>(rest),
    }
});

fn same<T: PartialEq + Debug + Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Some(value) = decode::<T>(bytes) else { return };
    assert_eq!(decode(&encode(&value)), Some(value));
}
