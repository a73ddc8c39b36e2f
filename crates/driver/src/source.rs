//! [`Source`]: MSL text or compiled code, with the options that determine its meaning.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Error, Result};

/// A named part of a source's text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// File name in diagnostics.
    pub name: String,
    /// The text.
    pub text: String,
}

/// Floating-point optimizations (`MTLMathMode`). The numerics page of the documentation specifies the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MathMode {
    /// IEEE 754 results, except that `a * b + c` within one expression may be contracted.
    Safe,
    /// Allows reassociation and reciprocal division; infinities and NaN are honored.
    Relaxed,
    /// Metal's default. Elinvar's own compilers honor infinities and NaN here as well, because existing kernels rely on them.
    #[default]
    Fast,
}

/// Input of a compilation: MSL text with its options, a source in a bundle, or a compiled Metal library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Source {
    /// Parts of the text, compiled as if concatenated.
    pub pieces: Vec<Piece>,
    /// Folders that `#include` searches; there are no default folders.
    pub include_dirs: Vec<PathBuf>,
    /// Whether `#include` and `#embed` may access files outside [`Source::include_dirs`], by absolute paths, `..` or symbolic links.
    /// A source can read every file that it may include, so set this for trusted sources only.
    pub include_outside: bool,
    /// Macro definitions, as with `-D NAME[=VALUE]`.
    pub defines: Vec<(String, Option<String>)>,
    /// The math mode.
    pub math: MathMode,
    /// Whether to diagnose misuse of address spaces, which Metal rejects and drivers with a single address space accept, as
    /// warnings. Takes about as long as the other checks.
    pub check_spaces: bool,
    /// A source in a bundle, in place of text.
    pub packed: Option<Packed>,
    /// A compiled Metal library, in place of text; the only part has its name and no text. Macros, folders and math mode are ignored:
    /// they were fixed when the library was compiled.
    pub metal_library: Option<MetalLibrary>,
}

/// Content of a `.metallib` file: kernels compiled for Apple GPUs by Apple's compiler.
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
    /// The bundle's bytes. They are trusted: the code in it is run as is.
    pub bundle: Arc<[u8]>,
    /// Identity of the source in the bundle, a hash.
    pub key: [u8; 32],
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a source in a bundle of {} bytes", self.bundle.len())
    }
}

impl Source {
    /// MSL text, named `kernel.metal` in diagnostics.
    pub fn msl(text: impl Into<String>) -> Self {
        Self::named("kernel.metal", text)
    }

    /// MSL text with a file name for diagnostics.
    pub fn named(name: impl Into<String>, text: impl Into<String>) -> Self {
        let piece = Piece { name: name.into(), text: text.into() };
        Self { pieces: vec![piece], ..Self::default() }
    }

    /// A compiled Metal library with a name for messages. It is `Unsupported` on devices other than Apple GPUs.
    pub fn metal_library(name: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        let metal_library = Some(MetalLibrary(bytes.into()));
        Self { metal_library, ..Self::named(name, String::new()) }
    }

    /// Checks that it is not a compiled Metal library, for drivers other than Metal's.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the library's name.
    pub fn expect_no_metal_library(&self) -> Result<()> {
        if self.metal_library.is_none() {
            return Ok(());
        }
        let name = self.pieces.first().map_or("", |piece| &piece.name);
        Err(Error::unsupported(format!(
            "`{name}` is a compiled Metal library, which runs on Apple GPUs only; this device needs Metal Shading Language source"
        )))
    }

    /// Defines a macro, as with `-D NAME[=VALUE]`.
    #[must_use]
    pub fn define(mut self, name: impl Into<String>, value: Option<&str>) -> Self {
        self.defines.push((name.into(), value.map(str::to_owned)));
        self
    }

    /// Adds a folder that `#include` searches.
    #[must_use]
    pub fn include_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.include_dirs.push(dir.into());
        self
    }

    /// Allows `#include` and `#embed` of files outside the include folders; see the field [`Source::include_outside`].
    #[must_use]
    pub fn include_outside(mut self) -> Self {
        self.include_outside = true;
        self
    }

    /// Folders that the source may include files from, with symbolic links resolved; folders that do not exist are left out. `None` if
    /// it may include any file.
    pub fn include_roots(&self) -> Option<Vec<PathBuf>> {
        let resolved = || self.include_dirs.iter().filter_map(|folder| std::fs::canonicalize(folder).ok());
        (!self.include_outside).then(|| resolved().collect())
    }

    /// Enables diagnostics of address space misuse; see the field [`Source::check_spaces`].
    #[must_use]
    pub fn check_spaces(mut self) -> Self {
        self.check_spaces = true;
        self
    }

    /// Sets the math mode.
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
