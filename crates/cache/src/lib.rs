//! A folder of entries that survive the process: bytes under a key, shared by all processes of a user.
//!
//! [`Cache::user`] opens the user's folder: `$ELINVAR_CACHE` (`off` for none), else `elinvar` in the
//! platform's folder for caches. Keys are made with [`Cache::key`], from everything that the bytes depend
//! on; the version given when the cache was opened is part of each. What the bytes mean is the user's of
//! this crate: [`encode`] and [`decode`] are a compact encoding for them.
//!
//! Invariants:
//! - What [`Cache::load`] returns is what [`Cache::store`] was given under that key: an entry is sealed with
//!   a checksum over key and bytes, and the very bytes that were verified are returned.
//! - Only what this user wrote is read: folder and entries are opened without following links, and owner
//!   and mode are checked on the open file. The checksum guards against accidents, the owner against others.
//! - An entry appears whole or not at all, also with several processes at once: it is written under another
//!   name and renamed. Two processes may build the same entry; the last one stays.
//! - Nothing here fails a caller. A folder that cannot be used is a cache that has nothing and keeps nothing.
//! - Files that other programs read by their path have folders of their own ([`Cache::folder`]), which are
//!   checked like an entry but not sealed: who uses them verifies what is in them.
//! - The folder stays about within its limit (`$ELINVAR_CACHE_LIMIT`, 1 GiB if not set): what was not used
//!   for longest goes first. See [`Cache::store`].
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
