//! [`Bundle`]: kernels compiled ahead of time by `elinvar pack`, for machines without a compiler.
//!
//! A bundle has no source text, but provides [`Source`]s: compiling one looks up its packed code. Targets and kernels were chosen
//! when it was packed; others are `Unsupported`.

use std::path::Path;
use std::sync::Arc;

use elinvar_driver::{Error, Packed, Result, Source, SourceFile};

/// Kernels compiled ahead of time by `elinvar pack`.
#[derive(Clone, Debug)]
pub struct Bundle {
    bytes: Arc<[u8]>,
    sources: Vec<(String, [u8; 32])>,
}

impl Bundle {
    /// Whether `path` is a readable file that begins with a bundle's magic number.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        elinvar_code::Bundle::is_at(path.as_ref())
    }

    /// A bundle in memory.
    ///
    /// # Safety
    /// The machine code in the bundle is executed as is. The bundle must have been written by `elinvar pack` and come from a
    /// source that is as trusted as the program. A checksum detects damage, but not manipulation.
    ///
    /// # Errors
    /// `InvalidArgument` with the reason: not a bundle, another version, truncated, damaged.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        let read = elinvar_code::Bundle::from_bytes(&bytes)?;
        let sources = read.sources().map(|(name, key)| (name.to_owned(), key)).collect();
        Ok(Self { bytes, sources })
    }

    /// Reads a bundle from a file.
    ///
    /// # Safety
    /// As [`Bundle::from_bytes`].
    ///
    /// # Errors
    /// `Environment` if the file cannot be read; as [`Bundle::from_bytes`], with the file's name.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self> {
        let bytes = std::fs::read(path.as_ref());
        let path = path.as_ref().display();
        let bytes =
            bytes.map_err(|error| Error::Environment(format!("cannot read the bundle {path}: {error}")))?;
        // SAFETY: the caller promises what is asked for.
        unsafe { Self::from_bytes(bytes) }.map_err(|error| match error {
            Error::InvalidArgument(why) => Error::invalid(format!("{path}: {why}")),
            other => other,
        })
    }

    /// Names of the sources in the bundle: file names as they were passed to `elinvar pack`.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|(name, _)| name.as_str())
    }

    /// The source of this name, which can be compiled.
    ///
    /// # Errors
    /// `InvalidArgument` with the names of the sources in the bundle.
    pub fn source(&self, name: &str) -> Result<Source> {
        let Some((name, key)) = self.sources.iter().find(|(known, _)| known == name) else {
            let known: Vec<String> = self.sources().map(|name| format!("`{name}`")).collect();
            return Err(Error::invalid(format!(
                "the bundle has no source `{name}`; it has {}",
                known.join(", ")
            )));
        };
        let packed = Some(Packed { bundle: self.bytes.clone(), key: *key });
        let files = vec![SourceFile { name: name.clone(), text: String::new() }];
        Ok(Source { files, packed, ..Source::default() })
    }
}
