//! Kernels that were compiled ahead by `elinvar pack`, for machines without a compiler.
//!
//! A bundle has no source text, and yet gives [`Source`]s: compiling one looks up what was made of it. Which targets and
//! kernels it has was decided when it was packed; for others the answer is `Unsupported`.

use std::path::Path;
use std::sync::Arc;

use elinvar_driver::{Error, Packed, Result, Source, SourceFile};

/// Kernels that were compiled ahead.
#[derive(Clone, Debug)]
pub struct Bundle {
    bytes: Arc<[u8]>,
    sources: Vec<(String, [u8; 32])>,
}

impl Bundle {
    /// Whether there is a file there that begins as a bundle does.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        elinvar_code::Bundle::is_at(path.as_ref())
    }

    /// A bundle's content.
    ///
    /// # Safety
    /// A bundle has machine code, which is run as it is: it must be one that `elinvar pack` wrote, from a place that is trusted
    /// as the program itself is. Damage is found, by a checksum; bad will is not.
    ///
    /// # Errors
    /// `InvalidArgument` that says what is wrong: no bundle, another version, cut short, damaged.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        let read = elinvar_code::Bundle::from_bytes(&bytes)?;
        let sources = read.sources().map(|(name, key)| (name.to_owned(), key)).collect();
        Ok(Self { bytes, sources })
    }

    /// A bundle's file.
    ///
    /// # Safety
    /// As [`Bundle::from_bytes`].
    ///
    /// # Errors
    /// `Environment` when it cannot be read, and as [`Bundle::from_bytes`], with the file's name.
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

    /// The names of the sources in it: files, as they were named when it was packed.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|(name, _)| name.as_str())
    }

    /// A source in it, to be compiled.
    ///
    /// # Errors
    /// `InvalidArgument` that lists those that it has.
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
