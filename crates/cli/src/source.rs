//! Loads a file with its options as a [`Source`].

use std::path::{Path, PathBuf};

use clap::Args;
use elinvar::{MathMode, Source, Tier};

use crate::failure::{Failure, Result};

/// How a file is compiled.
#[derive(Args, Debug, Default)]
pub struct SourceOptions {
    /// Search this folder for `#include`, after the file's own folder; may be repeated
    #[arg(short = 'I', value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Allow `#include` of files outside the file's folder and the -I folders
    #[arg(long)]
    include_outside: bool,
    /// Define a macro; may be repeated
    #[arg(short = 'D', value_name = "NAME[=V]")]
    define: Vec<String>,
    /// Metal file with functions that the source declares and does not define; may be repeated
    #[arg(long, value_name = "FILE")]
    library: Vec<PathBuf>,
}

impl SourceOptions {
    /// Load a file: MSL, or a compiled Metal library if its name ends with `.metallib`.
    pub fn load_any(&self, path: &Path, math: MathMode) -> Result<Source> {
        if path.extension().is_none_or(|extension| extension != "metallib") {
            return self.load(path, math);
        }
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| Failure::input(format!("{name}: {error}")))?;
        Ok(self.applied(Source::metal_library(name, bytes).math(math)))
    }

    /// Load an MSL file. Diagnostics show its name as given.
    pub fn load(&self, path: &Path, math: MathMode) -> Result<Source> {
        let mut source = self.load_text(path, math)?;
        for library in &self.library {
            source = source.with_library(self.load_text(library, math)?);
        }
        Ok(source.linked()?.into_owned())
    }

    /// Load a file of another language. Bytes that are not UTF-8, as in old comments, become U+FFFD, which is an error elsewhere than in comments.
    pub fn load_lossy(&self, path: &Path, math: MathMode) -> Result<Source> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| Failure::input(format!("{name}: {error}")))?;
        let mut source = Source::named(name, String::from_utf8_lossy(&bytes)).math(math);
        let own = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        source = source.include_dir(own.unwrap_or(Path::new(".")));
        Ok(self.applied(source))
    }

    fn load_text(&self, path: &Path, math: MathMode) -> Result<Source> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| Failure::input(format!("{name}: {error}")))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Failure::input(format!("{name}: not UTF-8: invalid byte at offset {at}"))
        })?;
        let mut source = Source::named(name, text).math(math);
        let own = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        source = source.include_dir(own.unwrap_or(Path::new(".")));
        Ok(self.applied(source))
    }

    /// Apply the options.
    fn applied(&self, mut source: Source) -> Source {
        for folder in &self.include {
            source = source.include_dir(folder);
        }
        source.include_outside = self.include_outside;
        for define in &self.define {
            source = match define.split_once('=') {
                Some((name, value)) => source.define(name, Some(value)),
                None => source.define(define, None),
            };
        }
        source
    }
}

/// The tiers by name.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum TierName {
    /// Optimized in the background if that takes long
    Adaptive,
    /// Not optimized
    Quick,
    /// Optimized before the first run
    Optimized,
}

impl From<TierName> for Tier {
    fn from(tier: TierName) -> Self {
        match tier {
            TierName::Adaptive => Self::Adaptive,
            TierName::Quick => Self::Quick,
            TierName::Optimized => Self::Optimized,
        }
    }
}

/// The math modes by name.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Math {
    /// IEEE 754 semantics: no reassociation
    Safe,
    /// May reassociate and use reciprocals
    Relaxed,
    /// As relaxed; Metal's default
    Fast,
}

impl From<Math> for MathMode {
    fn from(math: Math) -> Self {
        match math {
            Math::Safe => Self::Safe,
            Math::Relaxed => Self::Relaxed,
            Math::Fast => Self::Fast,
        }
    }
}
