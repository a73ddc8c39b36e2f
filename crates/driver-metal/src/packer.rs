//! [`Packer`]: adds what the Metal driver needs of a source to a bundle, so that a program needs no clang on an Apple device.
//!
//! Metal compiles kernels on the device, from the source's text with its included files, or has compiled them into a library on a Mac. A bundle
//! adds what only the front end knows: signatures, facts about the code, the arguments that it steers by, and whether bounds
//! checks by shader validation suffice.

use elinvar_cache::{Cache, Key, encode};
use elinvar_code::{Bundle, Declared, Variant, canonical, kernel_key};
use elinvar_driver::{DeviceKind, Error, PipelineOptions, Result, Signature, Source};
use elinvar_msl::CachedProgram;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::{flatten, front, own_memory};

/// What Metal is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Code {
    /// MSL, with macros and included files inserted.
    Text(String),
    /// Content of a `.metallib` file.
    Library(ByteBuf),
}

/// What the front end knows of a kernel: its signature, and the arguments that it steers by.
pub(crate) type Known = (Signature, u64);

/// A checked source.
pub struct Packer {
    cache: Cache,
    source: Source,
    checked: CachedProgram,
}

impl Packer {
    /// Checks a source, and adds its declarations to a bundle, with its text or the library that was compiled from it.
    ///
    /// # Errors
    /// `Compile` with the diagnostics; `Environment` if there is no clang or a file cannot be read.
    pub fn new(cache: &Cache, source: &Source, library: Option<&[u8]>, bundle: &mut Bundle) -> Result<Self> {
        let checked = front::check(cache, source).map_err(Error::from);
        let declared = |checked: &CachedProgram| checked.declared().clone();
        bundle.insert_source(source, &checked.as_ref().map(declared).map_err(Clone::clone));
        let code = match library {
            Some(bytes) => Code::Library(ByteBuf::from(bytes)),
            None => Code::Text(flatten::flatten(source)?),
        };
        let checked = checked?;
        bundle.insert(&code_key(source), &Ok(code));
        Ok(Self { cache: cache.clone(), source: source.clone(), checked })
    }

    /// Declarations of the source.
    pub fn declared(&self) -> &Declared {
        self.checked.declared()
    }

    /// Adds a kernel, or its error, to a bundle.
    ///
    /// # Errors
    /// Those of the front end; `Unsupported` for bounds checks of a kernel that could leave memory other than its buffers.
    pub fn pack(&self, name: &str, options: &PipelineOptions, bundle: &mut Bundle) -> Result<()> {
        let options = canonical(&self.declared().constants, options);
        let (target, kernel) = (DeviceKind::Metal.name().to_owned(), name.to_owned());
        let variant = Variant { target, kernel, options: options.clone(), groups: Vec::new() };
        bundle.insert_variant(&self.source, variant);
        let known = self.known(name, &options);
        bundle.insert(&known_key(&self.source, name, &options), &known);
        known.map(drop)
    }

    fn known(&self, name: &str, options: &PipelineOptions) -> Result<Known> {
        if options.checked {
            own_memory::expect_only_buffers(&self.checked, name, &options.constants)?;
        }
        front::signature(&self.cache, &self.checked, name, &options.constants)
    }
}

/// The key of a source's [`Code`].
pub(crate) fn code_key(source: &Source) -> Key {
    Key::of(&encode(&("metal code", source.identity())))
}

/// The key of what is [`Known`] of a kernel with canonical options.
pub(crate) fn known_key(source: &Source, name: &str, options: &PipelineOptions) -> Key {
    kernel_key("metal", source, name, options)
}
