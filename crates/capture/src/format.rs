//! The file format: a magic number, and records that are only appended.
//!
//! Record: length of the body (u32, little-endian), first 8 bytes of the body's BLAKE3 hash, body ([`elinvar_cache::encode`]). A program that is killed leaves a file that
//! ends within a record; what is before it can be read.

use std::path::{Path, PathBuf};

use elinvar_driver::{Dim3, Label, MathMode, PipelineOptions, Result, Source, SourceFile};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::includes::Includes;

pub(crate) const MAGIC: &[u8; 18] = b"elinvar capture\r\n\x03";
/// Bytes in front of a record's body.
pub(crate) const HEAD: usize = 4 + 8;
/// Maximum length in bytes of a record's body that is read.
pub(crate) const LONGEST: usize = 1 << 31;

/// BLAKE3 hash of contents.
pub(crate) type BlobId = [u8; 32];

#[derive(Serialize, Deserialize)]
pub(crate) enum Record {
    /// The device whose launches follow; devices of one file are numbered in this order.
    Device {
        kind: String,
        name: String,
    },
    /// A source; numbered in this order.
    Source(SourceRecord),
    /// A kernel; numbered in this order.
    Kernel {
        source: u32,
        name: String,
        options: PipelineOptions,
    },
    /// Contents of memory, compressed by LZ4.
    Blob {
        id: BlobId,
        bytes: u64,
        compressed: ByteBuf,
    },
    Launch(Launch),
    /// Work that is not in the file, and why.
    NotCaptured {
        what: String,
        reason: String,
    },
}

/// A source that can be compiled again, with the files that it includes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SourceRecord {
    files: Vec<(String, String)>,
    include_dirs: Vec<PathBuf>,
    includes: Includes,
    include_outside: bool,
    defines: Vec<(String, Option<String>)>,
    /// 0 safe, 1 relaxed, 2 fast.
    math: u8,
    libraries: Vec<SourceRecord>,
}

impl SourceRecord {
    /// Of a source of text; `None` for a source in a bundle and a Metal library, which have none.
    pub(crate) fn new(source: &Source) -> Option<Self> {
        if source.packed.is_some() || source.metal_library.is_some() {
            return None;
        }
        Some(Self {
            files: source.files.iter().map(|file| (file.name.clone(), file.text.clone())).collect(),
            include_dirs: source.include_dirs.clone(),
            includes: Includes::of(source),
            include_outside: source.include_outside,
            defines: source.defines.clone(),
            math: match source.math {
                MathMode::Safe => 0,
                MathMode::Relaxed => 1,
                MathMode::Fast => 2,
            },
            libraries: source.libraries.iter().map(Self::new).collect::<Option<_>>()?,
        })
    }

    /// The source. Included files are written below `folder`.
    ///
    /// # Errors
    /// Those of [`Includes::unpack`].
    pub(crate) fn source(&self, folder: &Path) -> Result<Source> {
        let file = |(name, text): &(String, String)| SourceFile { name: name.clone(), text: text.clone() };
        let libraries = self.libraries.iter().enumerate();
        let library = |(at, library): (usize, &Self)| library.source(&folder.join(format!("library-{at}")));
        Ok(Source {
            files: self.files.iter().map(file).collect(),
            include_dirs: self.includes.unpack(&self.include_dirs, folder)?,
            include_outside: self.include_outside,
            defines: self.defines.clone(),
            math: [MathMode::Safe, MathMode::Relaxed, MathMode::Fast][usize::from(self.math.min(2))],
            libraries: libraries.map(library).collect::<Result<_>>()?,
            ..Source::default()
        })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) device: u32,
    /// Queue and submission on it.
    pub(crate) queue: u32,
    pub(crate) submission: u64,
    pub(crate) kernel: u32,
    pub(crate) label: Option<Label>,
    pub(crate) grid: GridRecord,
    pub(crate) group: Dim3,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) slices: Vec<Slice>,
    /// Slices that the kernel may access through addresses in other memory, and values.
    pub(crate) uses: Vec<Used>,
    /// The error of the submission, whose first failing launch is this one or another.
    pub(crate) error: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum GridRecord {
    Threads(Dim3),
    /// Counts in this slice.
    Indirect(u32),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Argument {
    /// This slice.
    Slice(u32),
    Bytes(ByteBuf),
    Threadgroup(u64),
    Unbound,
}

/// Memory that a launch uses through its address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(crate) slice: u32,
    pub(crate) is_written: bool,
}

/// A range of memory that a launch uses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Slice {
    /// Which of the launch's memories: ranges of one memory may overlap.
    pub(crate) memory: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Device address, if the device has any.
    pub(crate) address: Option<u64>,
    pub(crate) before: BlobId,
    /// If the launch may have written it and succeeded.
    pub(crate) after: Option<BlobId>,
}
