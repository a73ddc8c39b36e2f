//! An entry's file is loaded or is none, whatever is in it, and a record that was read is written as the same.
#![no_main]

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::LazyLock;

use elinvar_cache::{Cache, Key, Reader, Writer};
use elinvar_code::{read_checks, write_checks};
use elinvar_msl::record;
use libfuzzer_sys::fuzz_target;

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
        2 => same(rest, record::read_signature, record::write_signature),
        3 => same(rest, record::read_diagnostic, record::write_diagnostic),
        4 => same(rest, record::read_unsupported, record::write_unsupported),
        5 => same(rest, record::read_constant, record::write_constant),
        6 => same(rest, read_checks, write_checks),
        _ => {
            same(rest, |r| r.list(Reader::text), |w, list: &Vec<String>| w.list(list, |w, text| w.text(text)))
        }
    }
});

fn same<T: PartialEq + Debug>(
    bytes: &[u8],
    read: impl Fn(&mut Reader) -> Option<T>,
    write: impl Fn(&mut Writer, &T),
) {
    let Some(value) = read(&mut Reader::new(bytes)) else { return };
    let mut w = Writer::new();
    write(&mut w, &value);
    let bytes = w.finish();
    let mut r = Reader::new(&bytes);
    let again = read(&mut r).and_then(|again| r.end(again));
    assert_eq!(again, Some(value));
}
