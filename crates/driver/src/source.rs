//! A kernel's source text and how to compile it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Error, Result};

/// One file's worth of source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The name that diagnostics show.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// How far floating-point arithmetic may be rearranged (Metal's math mode).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MathMode {
    /// IEEE results, except that `a*b+c` written in one expression may be contracted.
    Safe,
    /// Rearranged for speed; infinities and NaN are honoured.
    Relaxed,
    /// Metal's default. Elinvar honours infinities and NaN here as well, since real kernels use them.
    #[default]
    Fast,
}

/// Metal Shading Language text with the options that change its meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Source {
    /// The pieces, compiled as if written one after the other.
    pub pieces: Vec<Piece>,
    /// Folders that `#include` searches, and no others.
    pub include_dirs: Vec<PathBuf>,
    /// Whether `#include` and `#embed` may name files outside [`Source::include_dirs`], by an absolute path, by `..` or
    /// by way of a symbolic link. Whoever writes a source can read with it what it may include, so this is for sources
    /// that are trusted as programs are.
    pub include_outside: bool,
    /// Macros, as `-D NAME[=VALUE]` defines them.
    pub defines: Vec<(String, Option<String>)>,
    /// The math mode.
    pub math: MathMode,
    /// Whether to look for misuse of address spaces as well: what Metal refuses and a driver to which all memory
    /// is one takes all the same becomes a warning. It takes about as long as the other checks.
    pub check_spaces: bool,
    /// Where to find what was made of it ahead, in place of a text to compile.
    pub packed: Option<Packed>,
    /// A compiled Metal library in place of a text; the one piece gives its name and has no text. Macros, folders and the math mode
    /// are those that it was compiled with.
    pub metal_library: Option<MetalLibrary>,
}

/// What is in a `.metallib` file: kernels that Apple's compiler has compiled for Apple's GPUs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MetalLibrary(pub Arc<[u8]>);

impl fmt::Debug for MetalLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a Metal library of {} bytes", self.0.len())
    }
}

/// A source in a bundle.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Packed {
    /// The bundle's bytes. Code in it is run as it is.
    pub bundle: Arc<[u8]>,
    /// What the bundle calls the source.
    pub key: [u8; 32],
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a source in a bundle of {} bytes", self.bundle.len())
    }
}

impl Source {
    /// One piece of MSL text, called `kernel.metal` in diagnostics.
    pub fn msl(text: impl Into<String>) -> Self {
        Self::named("kernel.metal", text)
    }

    /// One piece of MSL text with the name that diagnostics show.
    pub fn named(name: impl Into<String>, text: impl Into<String>) -> Self {
        let piece = Piece { name: name.into(), text: text.into() };
        Self { pieces: vec![piece], ..Self::default() }
    }

    /// A compiled Metal library, with the name that messages show. Only Apple's GPUs run what is in it.
    pub fn metal_library(name: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        let metal_library = Some(MetalLibrary(bytes.into()));
        Self { metal_library, ..Self::named(name, String::new()) }
    }

    /// That it is not a compiled Metal library, for a driver that takes none.
    ///
    /// # Errors
    /// `Unsupported`, with the library's name.
    pub fn expect_no_metal_library(&self) -> Result<()> {
        if self.metal_library.is_none() {
            return Ok(());
        }
        let name = self.pieces.first().map_or("", |piece| &piece.name);
        Err(Error::unsupported(format!(
            "`{name}`: a Metal library holds code for Apple's GPUs, and this device has Metal Shading Language compiled for it"
        )))
    }

    /// Add a macro.
    #[must_use]
    pub fn define(mut self, name: impl Into<String>, value: Option<&str>) -> Self {
        self.defines.push((name.into(), value.map(str::to_owned)));
        self
    }

    /// Add a folder for `#include`.
    #[must_use]
    pub fn include_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.include_dirs.push(dir.into());
        self
    }

    /// Let `#include` and `#embed` name files outside the folders; see [`Source::include_outside`].
    #[must_use]
    pub fn include_outside(mut self) -> Self {
        self.include_outside = true;
        self
    }

    /// The folders that the source may include files from, with symbolic links resolved. `None` when it may include any
    /// file.
    pub fn include_roots(&self) -> Option<Vec<PathBuf>> {
        let resolved = || self.include_dirs.iter().filter_map(|folder| std::fs::canonicalize(folder).ok());
        (!self.include_outside).then(|| resolved().collect())
    }

    /// Look for misuse of address spaces as well; see [`Source::check_spaces`].
    #[must_use]
    pub fn check_spaces(mut self) -> Self {
        self.check_spaces = true;
        self
    }

    /// Set the math mode.
    #[must_use]
    pub fn math(mut self, math: MathMode) -> Self {
        self.math = math;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_the_text_and_the_name_that_it_is_made_from() {
        let source = Source::named("a.metal", "text");
        let [piece] = &source.pieces[..] else { panic!("{:?}", source.pieces) };
        assert_eq!((piece.name.as_str(), piece.text.as_str()), ("a.metal", "text"));
        assert!(source.expect_no_metal_library().is_ok());
        let library = Source::metal_library("b.metallib", *b"bytes");
        assert_eq!(library.pieces[0].name, "b.metallib");
        assert!(matches!(library.expect_no_metal_library(), Err(crate::Error::Unsupported(_))));
    }
}
