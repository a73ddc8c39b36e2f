//! [`Bundle`]: kernels compiled ahead of time by `elinvar pack`, for machines without a compiler.
//!
//! A bundle has no source text, but provides [`Source`]s: compiling one looks up its packed code. Targets and kernels were chosen
//! when it was packed; others are `Unsupported`.

use std::path::Path;
use std::sync::Arc;

use elinvar_driver::{
    Error, MathMode, Packed, PipelineOptions, Result, Source, SourceFile, Tier, similar_names,
};

use crate::{Device, Kernel, Library};

/// Kernels compiled ahead of time by `elinvar pack`.
#[derive(Clone, Debug)]
pub struct Bundle {
    bytes: Arc<[u8]>,
    sources: Vec<(String, MathMode, [u8; 32])>,
    kernels: Arc<[PackedKernel]>,
}

/// A kernel in a bundle.
#[derive(Debug)]
struct PackedKernel {
    source: [u8; 32],
    variant: elinvar_code::Variant,
}

/// The kernels of a bundle that have been loaded for a device ([`Bundle::load`]). Their code is kept as long as this is.
#[derive(Debug)]
pub struct LoadedBundle {
    libraries: Vec<Library>,
    kernels: Vec<Kernel>,
    unsupported: Vec<(String, Error)>,
}

impl LoadedBundle {
    /// The libraries of the sources: their kernels are ready.
    pub fn libraries(&self) -> &[Library] {
        &self.libraries
    }

    /// The library of the source of this name, as in [`Bundle::sources`].
    ///
    /// # Errors
    /// `InvalidArgument` with similar names of the loaded sources.
    pub fn library(&self, name: &str) -> Result<&Library> {
        self.libraries.iter().find(|library| library.source_name() == name).ok_or_else(|| {
            let names = self.libraries.iter().map(Library::source_name);
            Error::invalid(format!(
                "no source `{name}` was loaded; {}",
                similar_names("sources", name, names)
            ))
        })
    }

    /// The kernels, one for each set of constants that it was packed with.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Names of sources and kernels that the device does not support, with the reason.
    pub fn unsupported(&self) -> &[(String, Error)] {
        &self.unsupported
    }
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
        let sources: Vec<_> = read.sources().map(|(name, math, key)| (name.to_owned(), math, key)).collect();
        let of = |source: [u8; 32]| {
            read.variants(&source)
                .iter()
                .map(move |variant| PackedKernel { source, variant: variant.clone() })
        };
        let kernels = sources.iter().flat_map(|(.., source)| of(*source)).collect();
        Ok(Self { bytes, sources, kernels })
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

    /// Creates all kernels that were packed for this kind of device, and prepares them for the threadgroup sizes that they were packed for
    /// ([`Kernel::prepare`]), so that their first launches take as long as later ones. What the device does not support is listed.
    ///
    /// # Errors
    /// Those of [`Device::compile`] and [`Library::kernel`], but for `Unsupported` and `Compile`.
    pub fn load(&self, device: &Device) -> Result<LoadedBundle> {
        let mut loaded = LoadedBundle { libraries: Vec::new(), kernels: Vec::new(), unsupported: Vec::new() };
        for (name, math, key) in &self.sources {
            let of_device = |packed: &&PackedKernel| {
                packed.source == *key && packed.variant.target == device.kind().name()
            };
            let mut kernels = self.kernels.iter().filter(of_device).peekable();
            if kernels.peek().is_none() {
                continue;
            }
            let library = match device.compile(self.source_with(name, *math)?) {
                Ok(library) => library,
                Err(error) => {
                    loaded.lacks(name, error)?;
                    continue;
                }
            };
            for PackedKernel { variant, .. } in kernels {
                match ready(&library, variant) {
                    Ok(kernel) => loaded.kernels.push(kernel),
                    Err(error) => loaded.lacks(&variant.kernel, error)?,
                }
            }
            loaded.libraries.push(library);
        }
        Ok(loaded)
    }

    /// Names of the sources in the bundle: file names as they were passed to `elinvar pack`.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        // Sorted; a source that was packed in several math modes is listed once for each.
        self.sources.chunk_by(|a, b| a.0 == b.0).map(|same| same[0].0.as_str())
    }

    /// The source of this name, which can be compiled. If it was packed in several math modes, it is the one in the default mode if there is
    /// one.
    ///
    /// # Errors
    /// `InvalidArgument` with the names of the sources in the bundle.
    pub fn source(&self, name: &str) -> Result<Source> {
        let (_, math, _) = self.named(name)?[0];
        self.source_with(name, math)
    }

    /// The source of this name that was packed in this math mode.
    ///
    /// # Errors
    /// `InvalidArgument` with the names of the sources in the bundle, or with the math modes of the source.
    pub fn source_with(&self, name: &str, math: MathMode) -> Result<Source> {
        let known = self.named(name)?;
        let Some((name, _, key)) = known.iter().find(|(_, mode, _)| *mode == math) else {
            let modes: Vec<String> =
                known.iter().map(|(_, mode, _)| format!("{mode:?}").to_lowercase()).collect();
            let math = format!("{math:?}").to_lowercase();
            return Err(Error::invalid(format!(
                "the bundle has source `{name}` not in math mode {math}; it was packed in {}",
                modes.join(", ")
            )));
        };
        let packed = Some(Packed { bundle: self.bytes.clone(), key: *key });
        let files = vec![SourceFile { name: name.clone(), text: String::new() }];
        Ok(Source { files, packed, math, ..Source::default() })
    }

    /// What there is of a source, at least one.
    fn named(&self, name: &str) -> Result<&[(String, MathMode, [u8; 32])]> {
        let mut known = self.sources.chunk_by(|a, b| a.0 == b.0);
        known.find(|same| same[0].0 == name).ok_or_else(|| {
            Error::invalid(format!(
                "the bundle has no source `{name}`; {}",
                similar_names("sources", name, self.sources())
            ))
        })
    }
}

impl LoadedBundle {
    fn lacks(&mut self, name: &str, error: Error) -> Result<()> {
        if !matches!(error, Error::Unsupported(_) | Error::Compile(_)) {
            return Err(error);
        }
        self.unsupported.push((name.to_owned(), error));
        Ok(())
    }
}

/// A packed kernel, ready to be launched.
fn ready(library: &Library, variant: &elinvar_code::Variant) -> Result<Kernel> {
    // With the default options besides, as programs ask for it.
    let options = PipelineOptions { tier: Tier::default(), ..variant.options.clone() };
    let kernel = library.build(&variant.kernel, options)?;
    for group in &variant.groups {
        kernel.prepare(*group)?;
    }
    Ok(kernel)
}
