//! A persistent cache: bytes under a key, in a directory shared by all processes of a user.
//!
//! [`Cache::user`] opens the user's cache: `$ELINVAR_CACHE` (`off` for none), else `elinvar` in the platform's cache directory.
//! Keys are made with [`Cache::key`] from everything that the bytes depend on; the version given on opening is part of each key.
//! [`encode`] and [`decode`] serialize values compactly.
//!
//! Invariants:
//! - Integrity: [`Cache::load`] returns exactly what [`Cache::store`] was given under that key. A checksum covers key and bytes.
//! - Ownership: only files of this user are read. Symbolic links are not followed, and owner and mode are checked on the open
//!   file. The checksum guards against accidents, the owner check against others.
//! - Atomicity: entries are written to a temporary file and renamed, also with several processes at once. The last writer wins.
//! - Failures are cache misses. A directory that cannot be used is an empty cache that stores nothing.
//! - Directories of [`Cache::folder`], for files that other programs open by path, are checked like entries but have no
//!   checksum: users verify the content.
//! - The directory stays near its limit (`$ELINVAR_CACHE_LIMIT`, 1 GiB by default) by LRU eviction. See [`Cache::store`].
//!
//! It takes no locks, starts no process, and knows nothing of kernels or compilers.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod encoding;
mod entry;
mod evict;
mod key;
mod place;
mod store;
mod trust;

pub use encoding::{decode, encode};
pub use key::{Key, KeyBuilder};
pub use store::Cache;
