//! [`Algorithms`]: the algorithms that a library has suggested, on disk, so that all processes use the same ones and ask once.

use std::fmt::Debug;
use std::path::Path;

use elinvar_cache::{Cache, Key, KeyBuilder, decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Algorithms of one library on one kind of GPU. What is loaded has to be checked by the library.
pub(super) struct Algorithms {
    cache: Cache,
    key: KeyBuilder,
}

impl Algorithms {
    /// `library` is the library's file, whose version counts, and `gpu` the GPU's name.
    pub(super) fn new(cache: &Cache, library: &Path, gpu: &str) -> Self {
        let key = cache.key("library algorithm").program(library).text(gpu);
        Self { cache: cache.clone(), key }
    }

    fn key(&self, shape: &impl Debug) -> Key {
        self.key.clone().text(&format!("{shape:?}")).finish()
    }

    /// The algorithm for a shape, if one is known.
    pub(super) fn load<A: DeserializeOwned>(&self, shape: &impl Debug) -> Option<A> {
        self.cache.load(&self.key(shape)).and_then(|bytes| decode(&bytes))
    }

    pub(super) fn store(&self, shape: &impl Debug, algorithm: &impl Serialize) {
        self.cache.store(&self.key(shape), &encode(algorithm));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_are_of_a_shape_a_library_and_a_gpu() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("cache"), 1 << 20, "0");
        let file = folder.path().join("libcublasLt.so");
        std::fs::write(&file, "1").unwrap();
        let of = |gpu| Algorithms::new(&cache, &file, gpu);
        of("H100").store(&[1, 2], &[7u64; 8]);
        assert_eq!(of("H100").load::<[u64; 8]>(&[1, 2]), Some([7; 8]));
        assert_eq!(of("H100").load::<[u64; 8]>(&[2, 1]), None);
        assert_eq!(of("A100").load::<[u64; 8]>(&[1, 2]), None);
        std::fs::write(&file, "another version").unwrap();
        assert_eq!(of("H100").load::<[u64; 8]>(&[1, 2]), None);
    }
}
