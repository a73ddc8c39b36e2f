//! A `.npy` file is read or refused, takes no more memory than it has bytes, and what is read is written as the same array.
#![no_main]

// The command line is a program, not a library: its files are compiled here.
#[path = "../../../crates/cli/src/array.rs"]
#[allow(dead_code, missing_docs)]
mod array;
#[path = "../../../crates/cli/src/failure.rs"]
#[allow(dead_code)]
mod failure;
#[path = "../../../crates/cli/src/npy.rs"]
#[allow(dead_code)]
mod npy;
#[path = "../../../crates/cli/src/output.rs"]
#[allow(dead_code)]
mod output;
/// What prints is left out.
mod report {
    pub fn visible(text: &str) -> String {
        text.into()
    }
}

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    // A header's text gets its length before it, which is hard to guess otherwise.
    let file = match kind % 2 {
        0 => rest.to_vec(),
        _ => {
            let (header, data) =
                rest.split_at(rest.iter().position(|b| *b == b'\n').map_or(rest.len(), |at| at + 1));
            let length = (header.len() as u16).to_le_bytes();
            [b"\x93NUMPY\x01\x00", &length[..], header, data].concat()
        }
    };
    // What is not sure to have so many bytes, such as a pipe.
    let _streamed = npy::parse(&mut file.as_slice(), None, "a.npy");
    let Ok(array) = npy::parse(&mut file.as_slice(), Some(file.len() as u64), "a.npy") else { return };
    assert!(array.bytes.len() <= file.len());
    let path: PathBuf = FOLDER.path().join("a.npy");
    npy::write(&path, &array).expect("written");
    assert_eq!(npy::read(&path).expect("read"), array);
});
