//! [`Source`]: MSL text or compiled code, with the options that determine its meaning.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Error, Result};

/// A file of a source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceFile {
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

/// Language of a source's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceLanguage {
    /// Metal Shading Language.
    #[default]
    Msl,
    /// OpenCL C 1.2, which is translated to MSL when it is compiled.
    OpenClC,
}

/// Input of a compilation: MSL text with its options, a source in a bundle, or a compiled Metal library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Source {
    /// Language of the files.
    pub language: SourceLanguage,
    /// The files, compiled in order as one translation unit.
    pub files: Vec<SourceFile>,
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
    /// Sources of the functions that this one declares and does not define; see [`Source::with_library`].
    pub libraries: Vec<Source>,
    /// A source in a bundle, in place of text.
    pub packed: Option<Packed>,
    /// A compiled Metal library, in place of text; the only file has its name and no text. Macros, folders and math mode are ignored:
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
    /// The [identity](Source::identity) of the source that was packed.
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
        let file = SourceFile { name: name.into(), text: text.into() };
        Self { files: vec![file], ..Self::default() }
    }

    /// OpenCL C 1.2, named `kernel.cl` in diagnostics. It is translated to MSL when it is compiled, which needs the feature `translate` of
    /// the crate `elinvar`, and clang.
    pub fn opencl(text: impl Into<String>) -> Self {
        Self { language: SourceLanguage::OpenClC, ..Self::named("kernel.cl", text) }
    }

    /// A compiled Metal library with a name for messages. It is `Unsupported` on devices other than Apple GPUs.
    pub fn metal_library(name: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        let metal_library = Some(MetalLibrary(bytes.into()));
        Self { metal_library, ..Self::named(name, String::new()) }
    }

    /// Identity of the source: a BLAKE3 hash of its files' names and texts, its macros and its math mode, or of a Metal library's bytes.
    /// A source in a bundle has the identity of the source that was packed, one with libraries that of the [linked](Source::linked) source.
    ///
    /// Include directories and their files are not hashed, since they do not exist where bundles are used; keys of compiled code
    /// hash them in addition.
    pub fn identity(&self) -> [u8; 32] {
        let Self {
            language,
            files,
            include_dirs: _,
            include_outside: _,
            defines,
            math,
            check_spaces: _,
            libraries,
            packed,
            metal_library,
        } = self;
        if let Some(packed) = packed {
            return packed.key;
        }
        if !libraries.is_empty()
            && let Ok(linked) = self.linked()
        {
            return linked.identity();
        }
        let mut hash = blake3::Hasher::new();
        let mut add = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        add(&(files.len() as u64).to_le_bytes());
        for SourceFile { name, text } in files {
            add(name.as_bytes());
            add(text.as_bytes());
        }
        if *language == SourceLanguage::OpenClC {
            add(b"OpenCL C");
        }
        add(&(defines.len() as u64).to_le_bytes());
        for (name, value) in defines {
            add(name.as_bytes());
            add(&[u8::from(value.is_some())]);
            add(value.as_deref().unwrap_or_default().as_bytes());
        }
        add(match math {
            MathMode::Safe => b"safe",
            MathMode::Relaxed => b"relaxed",
            MathMode::Fast => b"fast",
        });
        if let Some(MetalLibrary(bytes)) = metal_library {
            add(bytes);
        }
        *hash.finalize().as_bytes()
    }

    /// Checks that it is not a compiled Metal library, for drivers other than Metal's.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the library's name.
    pub fn expect_no_metal_library(&self) -> Result<()> {
        if self.metal_library.is_none() {
            return Ok(());
        }
        let name = self.files.first().map_or("", |file| &file.name);
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

    /// Adds a library: a source that defines functions which this one declares, as `MTLCompileOptions.libraries` does.
    ///
    /// Both are compiled together, in this source's math mode; a library that several need is compiled once. Macros of [`Source::define`]
    /// and those that a file of a library defines are not known to the others. What two of them define, apart from headers that both
    /// include, is an error.
    #[must_use]
    pub fn with_library(mut self, library: Self) -> Self {
        self.libraries.push(library);
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
        let [file] = &source.files[..] else { panic!("{:?}", source.files) };
        assert_eq!((file.name.as_str(), file.text.as_str()), ("a.metal", "text"));
        assert!(source.expect_no_metal_library().is_ok());
        let library = Source::metal_library("b.metallib", *b"bytes");
        assert_eq!(library.files[0].name, "b.metallib");
        assert!(matches!(library.expect_no_metal_library(), Err(crate::Error::Unsupported(_))));
    }

    #[test]
    fn what_compiles_to_something_else_has_another_identity() {
        let packed = |key| Source {
            packed: Some(Packed { bundle: Arc::new([]), key: [key; 32] }),
            ..Source::named("k.metal", "")
        };
        let text = || Source::msl("kernel void k() {}");
        let two = |a: &str, b: &str| {
            let file = |text: &str| SourceFile { name: "k.metal".into(), text: text.into() };
            Source { files: vec![file(a), file(b)], ..Source::default() }
        };
        let sources = [
            text(),
            Source::named("other.metal", "kernel void k() {}"),
            Source::msl("kernel void l() {}"),
            text().define("N", None),
            text().define("N", Some("")),
            text().define("N", Some("1")),
            text().define("N1", None),
            text().define("N", None).define("1", None),
            text().math(MathMode::Safe),
            two("a", "b"),
            two("ab", ""),
            Source { language: SourceLanguage::OpenClC, ..text() },
            text().with_library(Source::msl("int f() { return 1; }")),
            text().with_library(Source::msl("int f() { return 2; }")),
            Source::metal_library("k", [0]),
            Source::metal_library("k", [1]),
            packed(0),
            packed(1),
        ];
        let identities: std::collections::HashSet<_> = sources.iter().map(Source::identity).collect();
        assert_eq!(identities.len(), sources.len());
        // Neither where headers are nor what is checked besides.
        assert_eq!(text().include_dir("a").check_spaces().identity(), text().identity());
    }

    #[test]
    fn a_source_from_a_bundle_has_the_identity_of_the_source_that_was_packed() {
        let source = Source::named("a.metal", "kernel void k() {}");
        let packed = Packed { bundle: Arc::new([]), key: source.identity() };
        let file = SourceFile { name: "a.metal".into(), text: String::new() };
        let loaded = Source { files: vec![file], packed: Some(packed), ..Source::default() };
        assert_eq!(loaded.identity(), source.identity());
    }
}
