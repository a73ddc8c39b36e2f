//! A kernel's source text and how to compile it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

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
    /// Macros, as `-D NAME[=VALUE]` defines them.
    pub defines: Vec<(String, Option<String>)>,
    /// The math mode.
    pub math: MathMode,
    /// Whether to look for misuse of address spaces as well: what Metal refuses and a driver to which all memory
    /// is one takes all the same becomes a warning. It takes about as long as the other checks.
    pub check_spaces: bool,
    /// Where to find what was made of it ahead, in place of a text to compile.
    pub packed: Option<Packed>,
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
