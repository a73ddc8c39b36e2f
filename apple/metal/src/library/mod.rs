//! [`Library`]: [`MTLLibrary`](https://developer.apple.com/documentation/metal/mtllibrary), compiled by Elinvar's front end; and
//! [`MTLCompileOptions`](https://developer.apple.com/documentation/metal/mtlcompileoptions).
//!
//! In place of the contents of a `.metallib` file, whose format is not public, the stand-in uses MSL text that follows a magic line
//! ([`MAGIC`]).

pub mod binary_archive;
pub mod function;
pub mod pipeline;
pub mod reflection;

use std::ffi::c_void;
use std::sync::Arc;

use elinvar_driver::{MathMode, Source, SourceFile};
use elinvar_objc::foundation::{
    NsArray, NsData, NsDictionary, NsError, NsNumber, NsString, NsUrl, os_version,
};
use elinvar_objc::{Block, Declaration, Id, Object, Out, Property, Ref};

use self::function::Function;
use crate::device::Device;
use crate::require;
use crate::validation::fault_injection::Site;

/// The magic line of data that replaces a compiled library.
const MAGIC: &[u8] = b"elinvar-metallib 1\n";

/// Magic bytes of a library from Apple's compiler.
const APPLES: &[u8] = b"MTLB";

pub const DOMAIN: &str = "MTLLibraryErrorDomain";

/// `MTLLibraryError`.
pub mod error {
    pub const UNSUPPORTED: isize = 1;
    pub const INTERNAL: isize = 2;
    pub const COMPILE_FAILURE: isize = 3;
    pub const FUNCTION_NOT_FOUND: isize = 5;
    pub const FILE_NOT_FOUND: isize = 6;
}

/// How a source is compiled.
#[derive(Clone)]
pub struct CompileOptions {
    macros: Property<Option<Ref<NsDictionary>>>,
    math: Property<isize>,
    functions: Property<isize>,
    version: Property<usize>,
    kind: Property<isize>,
    install_name: Property<Option<Ref<NsString>>>,
    libraries: Property<Option<Ref<NsArray>>>,
    invariant: Property<bool>,
    optimization: Property<isize>,
    max_threads: Property<usize>,
    logging: Property<bool>,
}

elinvar_objc::object!(CompileOptions, c"MTLCompileOptions");

/// `MTLMathModeSafe`, `MTLMathModeFast`.
const SAFE: isize = 0;
const FAST: isize = 2;

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            macros: Property::default(),
            math: Property::new(FAST),
            functions: Property::default(),
            version: Property::new(newest()),
            kind: Property::default(),
            install_name: Property::default(),
            libraries: Property::default(),
            invariant: Property::default(),
            optimization: Property::default(),
            max_threads: Property::default(),
            logging: Property::default(),
        }
    }
}

/// The newest language version that the system supports, as an `MTLLanguageVersion`.
fn newest() -> usize {
    let (major, minor) = match os_version() {
        (26.., _) => (4, 0),
        (15.., _) => (3, 2),
        (14, _) => (3, 1),
        (13, _) => (3, 0),
        (12, _) => (2, 4),
        (11, _) => (2, 3),
        (_, 15..) => (2, 2),
        (_, 14) => (2, 1),
        _ => (2, 0),
    };
    major << 16 | minor
}

impl CompileOptions {
    fn source(&self, text: &str) -> Source {
        let math = match self.math.get() {
            SAFE => MathMode::Safe,
            1 => MathMode::Relaxed,
            _ => MathMode::Fast,
        };
        let mut defines: Vec<_> =
            self.macros.get().map(|macros| macros.entries().map(define).collect()).unwrap_or_default();
        // Metal has no `printf`, which Elinvar's compiler adds.
        if text.contains("printf") && !defines.iter().any(|(name, _)| name == "printf") {
            defines.push(("printf".to_owned(), Some("printf_is_not_declared_in_Metal".to_owned())));
        }
        Source { files: files(text), defines, math, ..Source::default() }
    }
}

/// A text as files: those that its lines `#line 1 "NAME"` name if they are its only such directives, and one begins the text. They are the
/// source that the CPU compiles to the same code, so that the two share the compilation cache.
fn files(text: &str) -> Vec<SourceFile> {
    let mut files: Vec<SourceFile> = Vec::new();
    let whole = || vec![SourceFile { name: "program_source".to_owned(), text: text.to_owned() }];
    for line in text.split_inclusive('\n') {
        let name = line.strip_prefix("#line 1 \"").and_then(|rest| rest.strip_suffix("\"\n"));
        let name = name.filter(|name| !name.contains(['\\', '"']));
        match (name, files.last_mut()) {
            (Some(name), _) => files.push(SourceFile { name: name.to_owned(), text: String::new() }),
            (None, Some(file)) if !line.contains("#line") => file.text.push_str(line),
            _ => return whole(),
        }
    }
    if files.is_empty() { whole() } else { files }
}

/// A macro's value in the dictionary: a string or a number.
fn define((name, value): (String, &Object)) -> (String, Option<String>) {
    let text = value.downcast::<NsString>().map(|text| text.as_str().to_owned());
    let text = text.or_else(|| value.downcast::<NsNumber>().map(|number| number.text()));
    (name, text)
}

/// A compiled source.
pub struct Library {
    pub device: Ref<Device>,
    pub compiled: Arc<dyn elinvar_driver::Library>,
    /// Hash of the source text.
    pub fingerprint: u64,
    label: Property<Option<Ref<NsString>>>,
}

elinvar_objc::object!(Library, c"ElinvarMTLLibrary");

type LibraryResult = Result<Ref<Library>, Ref<NsError>>;

fn failure(code: isize, message: &str) -> Ref<NsError> {
    NsError::new(DOMAIN, code, message)
}

impl Library {
    fn compile(device: &Ref<Device>, text: &str, options: &CompileOptions) -> LibraryResult {
        if Device::fails(device, Site::Library) {
            return Err(failure(error::INTERNAL, "the compiler failed (injected by a test)"));
        }
        let (asked, newest) = (options.version.get(), newest());
        if asked > newest {
            let name = |version: usize| format!("{}.{}", version >> 16, version & 0xffff);
            let (asked, newest) = (name(asked), name(newest));
            let message =
                format!("language version {asked} is not supported on this OS; the newest is {newest}");
            return Err(failure(error::UNSUPPORTED, &message));
        }
        let source = options.source(text);
        let compiled = device
            .cpu
            .compile(&source)
            .map_err(|error| failure(error::COMPILE_FAILURE, &error.to_string()))?;
        if options.logging.get() {
            device.log.enable(compiled.kernels().iter().map(|kernel| kernel.name.clone()));
        }
        let fingerprint = fingerprint(&source);
        Ok(Ref::new(Self { device: device.clone(), compiled, fingerprint, label: Property::default() }))
    }

    /// `newLibraryWithSource:options:error:`.
    pub fn with_source(
        device: &Ref<Device>,
        text: Ref<NsString>,
        options: Option<Ref<CompileOptions>>,
        error: Out,
    ) -> Option<Ref<Self>> {
        let options = options.unwrap_or_else(|| Ref::new(CompileOptions::default()));
        error.catch(Self::compile(device, text.as_str(), &options))
    }

    /// `newLibraryWithSource:options:completionHandler:`.
    pub fn with_source_later(
        device: &Ref<Device>,
        text: Ref<NsString>,
        options: Option<Ref<CompileOptions>>,
        done: Option<Block<(Id, Id)>>,
    ) {
        let device = device.clone();
        // Later changes of the options have no effect.
        let options = options.map(|options| CompileOptions::clone(&options)).unwrap_or_default();
        later(done, move || Self::compile(&device, text.as_str(), &options));
    }

    fn from_bytes(device: &Ref<Device>, bytes: &[u8]) -> LibraryResult {
        let text = bytes.strip_prefix(MAGIC).and_then(|text| std::str::from_utf8(text).ok());
        if bytes.starts_with(APPLES) {
            let message = "the library contains code for Apple GPUs, which the stand-in for Metal cannot run";
            return Err(failure(error::UNSUPPORTED, message));
        }
        let Some(text) = text else {
            return Err(failure(error::INTERNAL, "Invalid library file"));
        };
        Self::compile(device, text, &CompileOptions::default())
    }

    /// `newLibraryWithData:error:`.
    pub fn with_data(device: &Ref<Device>, data: Ref<NsData>, error: Out) -> Option<Ref<Self>> {
        error.catch(Self::from_bytes(device, data.bytes()))
    }

    fn from_path(device: &Ref<Device>, path: &std::path::Path) -> LibraryResult {
        let message = |error| format!("library not found: {}: {error}", path.display());
        let bytes = std::fs::read(path).map_err(|error| failure(error::FILE_NOT_FOUND, &message(error)))?;
        Self::from_bytes(device, &bytes)
    }

    /// `newLibraryWithURL:error:`.
    pub fn with_url(device: &Ref<Device>, url: Ref<NsUrl>, error: Out) -> Option<Ref<Self>> {
        error.catch(Self::from_path(device, url.path()))
    }

    /// `newLibraryWithFile:error:`.
    pub fn with_file(device: &Ref<Device>, path: Ref<NsString>, error: Out) -> Option<Ref<Self>> {
        error.catch(Self::from_path(device, path.as_str().as_ref()))
    }

    /// `newDefaultLibrary`: the stand-in has no default library in a program's bundle.
    pub fn default_of(_device: &Ref<Device>) -> Option<Ref<Self>> {
        None
    }

    fn function_names(this: &Ref<Self>) -> Ref<NsArray> {
        let names = this.compiled.kernels().iter().map(|kernel| NsString::new(&kernel.name).into_object());
        NsArray::new(names)
    }
}

/// Runs a function on another thread, and passes its result or error to the block.
pub fn later<T: elinvar_objc::Declared>(
    done: Option<Block<(Id, Id)>>,
    work: impl FnOnce() -> Result<Ref<T>, Ref<NsError>> + Send + 'static,
) {
    require!(done.is_some(), "a completion handler is missing");
    std::thread::spawn(move || {
        elinvar_objc::with_pool(|| {
            let result = work();
            let (made, error) = match &result {
                Ok(made) => (made.id(), std::ptr::null_mut()),
                Err(error) => (std::ptr::null_mut(), error.id()),
            };
            if let Some(done) = done {
                done.call(made, error);
            }
        });
    });
}

fn fingerprint(source: &Source) -> u64 {
    use std::hash::{Hash as _, Hasher as _};
    // Fixed keys, because archives of one process are read by another.
    let mut hasher = std::hash::DefaultHasher::new();
    source.hash(&mut hasher);
    hasher.finish()
}

pub fn register() {
    let options = Declaration::<CompileOptions>::new()
        .makes_default()
        .copies()
        .property("preprocessorMacros", |o: &CompileOptions| &o.macros)
        .property("languageVersion", |o: &CompileOptions| &o.version)
        .property("libraryType", |o: &CompileOptions| &o.kind)
        .property("installName", |o: &CompileOptions| &o.install_name)
        .property("libraries", |o: &CompileOptions| &o.libraries)
        .property("preserveInvariance", |o: &CompileOptions| &o.invariant)
        .method("fastMathEnabled", |this: &Ref<CompileOptions>| this.math.get() == FAST)
        .method("setFastMathEnabled:", |this: &Ref<CompileOptions>, fast: bool| {
            this.math.set(if fast { FAST } else { SAFE });
        });
    options
        .when(os_version() >= (13, 0), |options| {
            options.property("optimizationLevel", |o: &CompileOptions| &o.optimization)
        })
        .when(os_version() >= (13, 3), |options| {
            options.property("maxTotalThreadsPerThreadgroup", |o: &CompileOptions| &o.max_threads)
        })
        .when(os_version() >= (15, 0), |options| {
            options
                .property("mathMode", |o: &CompileOptions| &o.math)
                .property("mathFloatingPointFunctions", |o: &CompileOptions| &o.functions)
                .property("enableLogging", |o: &CompileOptions| &o.logging)
        })
        .register();
    Declaration::<Library>::new()
        .follows(c"MTLLibrary")
        .property("label", |library: &Library| &library.label)
        .method("device", |this: &Ref<Library>| this.device.clone())
        .method("functionNames", Library::function_names)
        .method("type", |_: &Ref<Library>| 0_isize)
        .method("installName", |_: &Ref<Library>| None::<Object>)
        .method("newFunctionWithName:", Function::with_name)
        .method("newFunctionWithName:constantValues:error:", Function::with_constants)
        .method("newFunctionWithDescriptor:error:", Function::with_descriptor)
        .register();
}

/// Creates data that replaces a compiled library, from MSL text. The caller owns a reference.
///
/// # Safety
/// `text` points to that many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn elinvar_apple_metallib(text: *const c_void, length: usize) -> Id {
    // SAFETY: the caller's promise.
    let text = unsafe { elinvar_objc::bytes_of(text, length) };
    NsData::new([MAGIC, text].concat()).into_object().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(String, String)> {
        files(text).into_iter().map(|file| (file.name, file.text)).collect()
    }

    #[test]
    fn files_of_a_text() {
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let two = "#line 1 \"a\"\nint a;\n\n#line 1 \"b c\"\nint b;";
        assert_eq!(split(two), [file("a", "int a;\n\n"), file("b c", "int b;")]);
        for one in [
            "",
            "int a;\n#line 1 \"a\"\nint b;\n",
            "#line 1 \"a\"\nint a;\n#line 2 \"b\"\nint b;\n",
            "#line 1 \"a\"\nint a;\n  #line 1 \"b\"\nint b;\n",
            "#line 1 \"a\\\"b\"\nint a;\n",
        ] {
            assert_eq!(split(one), [file("program_source", one)]);
        }
    }
}
