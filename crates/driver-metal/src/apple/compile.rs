//! Compilation of MSL: Metal's compiler builds the kernels, Elinvar's front end supplies the signatures.
//!
//! Metal decides whether a source is valid. The front end parses it as well, for the signatures. If it fails (no clang, or unsupported
//! syntax), the signatures come from Metal's reflection, and a warning gives the reason.

use std::collections::HashMap;
use std::sync::Arc;

use dispatch2::DispatchData;
use elinvar_cache::Key;
use elinvar_code::Declared;
use elinvar_driver::{
    Arg, Constant, ConstantKey, Diagnostic, ElementType, Error, FunctionConstant, Library, MathMode,
    MetalLibrary as Compiled, Pipeline, PipelineOptions, Result, Severity, Signature, Source,
    UnsupportedKernel, similar_names,
};
use elinvar_msl::CachedProgram;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{NSObjectProtocol as _, ProtocolObject};
use objc2::sel;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{MTLCompileOptions, MTLDevice as _, MTLFunction, MTLLibrary, MTLLibraryError, MTLMathMode};
use parking_lot::Mutex;
use serde_bytes::ByteBuf;

use super::core::Core;
use super::kernel_log::KernelLog;
use super::pipeline::{self, Known, MetalPipeline, Own, States};
use super::reflect::Reflection;
use super::{archive, constants, reflect};
use crate::packed::PackedSource;
use crate::packer::Code;
use crate::split::{self, Split};
use crate::{diagnostics, flatten, front, own_memory, steering};

type Function = Retained<ProtocolObject<dyn MTLFunction>>;

/// Why a kernel with grid barriers has no bounds checks.
const NO_CHECKED_BARRIERS: &str = "bounds checks of kernels with grid barriers on Metal, whose states are not among the arguments that shader validation checks";

struct MetalLibrary {
    core: Arc<Core>,
    /// The first of its names.
    file: String,
    library: Retained<ProtocolObject<dyn MTLLibrary>>,
    /// First part of the archive keys: source, device and compilation options.
    key: Key,
    front: Front,
    kernels: Vec<Signature>,
    constants: Vec<FunctionConstant>,
    warnings: Vec<Diagnostic>,
    /// The kernels with grid barriers.
    split: Vec<Split>,
    pipelines: Mutex<HashMap<(String, PipelineOptions), Arc<MetalPipeline>>>,
}

/// Where signatures come from.
enum Front {
    /// Metal's reflection.
    None,
    Checked(CachedProgram),
    Packed(PackedSource),
}

pub(super) fn library(core: &Arc<Core>, source: &Source) -> Result<Arc<dyn Library>> {
    if let Some(packed) = &source.packed {
        let (packed, code) = PackedSource::open(source, packed)?;
        return Ok(Arc::new(compiled(core, source, &code)?.packed(packed)));
    }
    if let Some(Compiled(bytes)) = &source.metal_library {
        expect_nothing_else(source)?;
        let code = Code::Library(ByteBuf::from(&**bytes));
        return Ok(Arc::new(compiled(core, source, &code)?.reflected("it is compiled")?));
    }
    let made = compiled(core, source, &Code::Text(flatten::flatten(source)?));
    let made = made.map_err(|error| with_columns(core, source, error))?;
    match front::check(&core.cache, source) {
        Ok(checked) => Ok(Arc::new(made.checked(checked))),
        Err(error) => {
            let why = format!("the front end could not read the source: {error}");
            Ok(Arc::new(made.reflected(&why)?))
        }
    }
}

/// Compiler errors, with columns that Metal's text lacks taken from the front end if it reports the same errors.
fn with_columns(core: &Core, source: &Source, error: Error) -> Error {
    match error {
        Error::Compile(found) if found.iter().any(|diagnostic| diagnostic.column == 0) => {
            let ours = match front::check(&core.cache, source) {
                Err(elinvar_msl::Error::Compile(ours)) => ours,
                _ => Vec::new(),
            };
            Error::Compile(diagnostics::with_columns(found, &ours))
        }
        other => other,
    }
}

/// Compiles code with Metal; the kernels' signatures are not known yet.
fn compiled(core: &Arc<Core>, source: &Source, code: &Code) -> Result<MetalLibrary> {
    core.expect_present()?;
    let key = archive::key(&core.device, &core.cache);
    let mut kernels = Vec::new();
    let (key, library) = match code {
        Code::Library(bytes) => {
            (key.bytes(bytes), core.device.newLibraryWithData_error(&DispatchData::from_bytes(bytes)))
        }
        Code::Text(text) => {
            let options = options(source.math);
            if let Some(log) = core.log.as_ref().filter(|_| KernelLog::is_for(text)) {
                log.begin(&core.device)?;
                options.setEnableLogging(true);
            }
            let (text, found) = split::split(text);
            kernels = found;
            let (key, text) = (key.text(&text).number(source.math as u64), NSString::from_str(&text));
            (key, core.device.newLibraryWithSource_options_error(&text, Some(&options)))
        }
    };
    let (key, library) = (key.finish(), library.map_err(|error| refused(&error, source, code))?);
    let file = source.files.first().map_or_else(String::new, |file| file.name.clone());
    Ok(MetalLibrary {
        core: core.clone(),
        file,
        library,
        key,
        front: Front::None,
        kernels: Vec::new(),
        constants: Vec::new(),
        warnings: Vec::new(),
        split: kernels,
        pipelines: Mutex::default(),
    })
}

/// Rejects options that a compiled library does not support.
fn expect_nothing_else(source: &Source) -> Result<()> {
    if source.defines.is_empty() && source.include_dirs.is_empty() && source.math == MathMode::default() {
        return Ok(());
    }
    let name = source.files.first().map_or("", |file| &file.name);
    Err(Error::invalid(format!(
        "`{name}` is a compiled Metal library: it has the macros, folders and math mode that it was compiled with"
    )))
}

/// The newest language version that the system supports, which is Metal's default. `mathMode` requires macOS 15; before, fast math is
/// on or off, and `relaxed` is mapped to off.
#[allow(deprecated)] // for systems that have nothing else
fn options(math: MathMode) -> Retained<MTLCompileOptions> {
    let options = MTLCompileOptions::new();
    if options.respondsToSelector(sel!(setMathMode:)) {
        options.setMathMode(match math {
            MathMode::Safe => MTLMathMode::Safe,
            MathMode::Relaxed => MTLMathMode::Relaxed,
            MathMode::Fast => MTLMathMode::Fast,
        });
    } else {
        options.setFastMathEnabled(math == MathMode::Fast);
    }
    options
}

fn refused(error: &NSError, source: &Source, code: &Code) -> Error {
    let text = error.localizedDescription().to_string();
    match MTLLibraryError(usize::try_from(error.code()).unwrap_or(0)) {
        MTLLibraryError::Unsupported => Error::Unsupported(text),
        // For invalid data, Metal reports an internal error.
        _ if matches!(code, Code::Library(_)) => {
            let name = source.files.first().map_or("", |file| &file.name);
            Error::invalid(format!("Metal library `{name}`: {text}"))
        }
        MTLLibraryError::Internal => Error::Environment(text),
        _ => unless_refused(diagnostics::parse(&text, source, Severity::Error)),
    }
}

/// `Unsupported` if a source includes a header of what Metal lacks.
fn unless_refused(found: Vec<Diagnostic>) -> Error {
    let refused = found.iter().find_map(|Diagnostic { file, line, message, .. }| {
        if ["'metal_tensor' file not found", "'MetalPerformancePrimitives/"]
            .iter()
            .any(|part| message.contains(part))
        {
            let reason = "tensors are part of Metal 4, which requires macOS 26";
            return Some(Error::unsupported(format!("{file}:{line}: {reason}")));
        }
        let reasons = [split::NO_GRID_BARRIERS, flatten::NO_RESIDENT_KERNELS];
        let at = reasons.into_iter().find_map(|reason| message.find(reason))?;
        let reason = message[at..].trim_end_matches('"');
        Some(Error::unsupported(format!("{file}:{line}: {reason}")))
    });
    refused.unwrap_or(Error::Compile(found))
}

impl MetalLibrary {
    fn checked(self, checked: CachedProgram) -> Self {
        let (kernels, constants) = (checked.kernels().to_vec(), checked.constants().to_vec());
        let warnings = checked.warnings().to_vec();
        Self { kernels, constants, warnings, front: Front::Checked(checked), ..self }
    }

    fn packed(self, packed: PackedSource) -> Self {
        let Declared { kernels, constants, warnings, .. } = packed.declared.clone();
        Self { kernels, constants, warnings, front: Front::Packed(packed), ..self }
    }

    /// Uses Metal's reflection of the functions without values of function constants. A function that cannot be built without them has no
    /// arguments here.
    fn reflected(mut self, why: &str) -> Result<Self> {
        let message = format!(
            "kernel signatures come from Metal's reflection only, without position parameters and without distinguishing pointers \
             and references, because {why}"
        );
        let warning = Diagnostic::error(self.file.clone(), 0, 0, message);
        self.warnings.push(Diagnostic { severity: Severity::Warning, ..warning });
        for name in self.library.functionNames().iter() {
            let Some(function) = self.library.newFunctionWithName(&name) else { continue };
            for constant in reflect::constants(&function) {
                if !self.constants.contains(&constant) {
                    self.constants.push(constant);
                }
            }
            let name = name.to_string();
            let key = self.archived(&name, &PipelineOptions::default());
            let signature = match pipeline::build(&self.core, &name, &function, &key, false) {
                Ok((_, reflection)) => reflection.signature(&name, &self.file),
                Err(_) => Reflection::default().signature(&name, &self.file),
            };
            // Arguments that are not buffers are reported when the pipeline is requested.
            let plain = || Reflection::default().signature(&name, &self.file);
            self.kernels.push(signature.or_else(|_| plain())?);
        }
        Ok(self)
    }

    fn function(&self, name: &str, options: &PipelineOptions) -> Result<Function> {
        let text = NSString::from_str(name);
        let missing = || {
            let known = self.kernels.iter().map(|kernel| kernel.name.as_str());
            Error::invalid(format!(
                "no kernel `{name}` in the source; {}",
                similar_names("kernels", name, known)
            ))
        };
        if !self.kernels.iter().any(|kernel| kernel.name == name) {
            return Err(missing());
        }
        if self.constants.is_empty() && options.constants.is_empty() {
            return self.library.newFunctionWithName(&text).ok_or_else(missing);
        }
        let values = constants::values(&self.constants, &options.constants)?;
        let function = self.library.newFunctionWithName_constantValues_error(&text, &values);
        function.map_err(|error| Error::invalid(format!("kernel `{name}`: {}", error.localizedDescription())))
    }

    /// The archive key of a pipeline.
    fn archived(&self, name: &str, options: &PipelineOptions) -> Key {
        let key = self.core.cache.key("metal pipeline").key(&self.key).text(name);
        let constants = options.constants.iter().fold(key, |key, Constant { key: of, scalar, bytes }| {
            let key = match of {
                ConstantKey::Index(index) => key.text("index").number(u64::from(*index)),
                ConstantKey::Name(name) => key.text("name").text(name),
            };
            key.text(scalar.msl_name()).bytes(bytes)
        });
        constants.finish()
    }

    /// Adds the library's file name to diagnostics without one.
    fn named(&self, error: Error) -> Error {
        let Error::Compile(mut found) = error else { return error };
        for diagnostic in found.iter_mut().filter(|diagnostic| diagnostic.file.is_empty()) {
            diagnostic.file.clone_from(&self.file);
        }
        Error::Compile(found)
    }

    fn make(&self, name: &str, options: &PipelineOptions) -> Result<MetalPipeline> {
        let known = match &self.front {
            Front::Packed(packed) => Some(packed.kernel(name, options)?),
            Front::Checked(checked) => {
                if options.checked {
                    own_memory::expect_only_buffers(checked, name, &options.constants)?;
                }
                Some(front::signature(&self.core.cache, checked, name, &options.constants)?)
            }
            Front::None if options.checked => {
                let why = "the front end could not read the source, so its accesses cannot be analyzed";
                return Err(own_memory::refusal(name, why));
            }
            Front::None => None,
        };
        if let Some((signature, _)) = &known {
            expect_no_tables(signature)?;
        }
        let function = self.function(name, options)?;
        let key = self.archived(name, options);
        let (state, mut reflection) = pipeline::build(&self.core, name, &function, &key, options.checked)
            .map_err(|error| self.named(error))?;
        let split = self.split.iter().find(|split| split.name == name).cloned();
        let split = split.map(|split| self.states(split, &mut reflection, options, known.is_some()));
        let split = split.transpose()?;
        let reflected = known.is_none();
        let (signature, steering) = match known {
            Some((signature, steering)) => {
                reflection.compare(&signature)?;
                (signature, steering)
            }
            None => (reflection.signature(name, &self.file)?, steering::ALL),
        };
        let known = Known { signature, steering, reflected };
        let own = Own { function, key, split };
        Ok(MetalPipeline::new(&self.core, state, known, options.checked, own))
    }
}

impl MetalLibrary {
    /// The states of the threads of a kernel with grid barriers, by their size in the reflection.
    fn states(
        &self,
        split: Split,
        reflection: &mut Reflection,
        options: &PipelineOptions,
        is_read: bool,
    ) -> Result<States> {
        let refuse = |why: &str| Error::unsupported(format!("kernel `{}`: {why}", split.name));
        if options.checked {
            return Err(refuse(NO_CHECKED_BARRIERS));
        }
        if !is_read {
            return Err(refuse("grid barriers on Metal need Elinvar's front end"));
        }
        let bytes = reflection.take(split.states).max(4);
        reflection.take(split.waits);
        Ok(States { split, bytes })
    }
}

/// Tables of functions would have to be created for each pipeline.
fn expect_no_tables(signature: &Signature) -> Result<()> {
    let is_table = |arg: &&Arg| matches!(arg.element, ElementType::Function { .. });
    match signature.args.iter().find(is_table) {
        Some(table) => Err(Error::unsupported(format!(
            "kernel `{}`, argument `{}`: the Metal driver does not support tables of functions",
            signature.name, table.name
        ))),
        None => Ok(()),
    }
}

impl Library for MetalLibrary {
    fn kernels(&self) -> &[Signature] {
        &self.kernels
    }

    fn constants(&self) -> &[FunctionConstant] {
        &self.constants
    }

    fn unsupported(&self) -> &[UnsupportedKernel] {
        match &self.front {
            Front::Checked(checked) => checked.unsupported(),
            // A bundle does not list them.
            Front::Packed(_) | Front::None => &[],
        }
    }

    fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        let key = (kernel.to_owned(), options.clone());
        if let Some(pipeline) = self.pipelines.lock().get(&key) {
            return Ok(pipeline.clone());
        }
        // Not under the lock, so that pipelines of other kernels remain available. If two threads build the same pipeline, the second drops its
        // own.
        let made = autoreleasepool(|_| self.make(kernel, options));
        let made = Arc::new(made.map_err(|error| self.core.explained(error))?);
        Ok(self.pipelines.lock().entry(key).or_insert(made).clone())
    }
}

#[cfg(test)]
mod tests {
    use elinvar_cache::Cache;
    use elinvar_driver::{Access, ArgKind, ElementType, Scalar};
    use objc2_metal::MTLCreateSystemDefaultDevice;

    use super::*;

    fn without_front_end(text: &str) -> MetalLibrary {
        let device = MTLCreateSystemDefaultDevice().expect("a device");
        let core = Core::open((device, Arc::default()), Cache::off()).unwrap();
        let source =
            Source::named("k.metal", format!("#include <metal_stdlib>\nusing namespace metal;\n{text}"));
        autoreleasepool(|_| {
            let code = Code::Text(flatten::flatten(&source).unwrap());
            let plain = compiled(&core, &source, &code).unwrap();
            plain.reflected("there is no clang here").unwrap()
        })
    }

    #[test]
    fn without_a_front_end_the_reflection_says_what_a_kernel_takes() {
        let library = without_front_end(
            "struct P { float4 a; };
             kernel void k(device const float* in [[buffer(2)]], device uint3* out [[buffer(0)]],
                constant P& p [[buffer(5)]], threadgroup half* part [[threadgroup(1)]],
                uint i [[thread_position_in_grid]]) { part[0] = in[i]; out[i] = uint3(p.a.xyz + float(part[0])); }",
        );
        assert!(library.warnings()[0].message.contains("no clang here"), "{:?}", library.warnings());
        let pipeline = library.pipeline("k", &PipelineOptions::default()).unwrap();
        let mut args: Vec<_> = pipeline
            .signature()
            .args
            .iter()
            .map(|arg| (arg.name.as_str(), arg.kind, arg.index, arg.access, arg.element_size))
            .collect();
        args.sort_by_key(|arg| (arg.1 == ArgKind::Threadgroup, arg.2));
        use Access::{Read, ReadWrite};
        assert_eq!(
            args[..3],
            [
                ("out", ArgKind::Pointer, 0, ReadWrite, 16),
                ("in", ArgKind::Pointer, 2, Read, 4),
                ("p", ArgKind::Pointer, 5, Read, 16),
            ]
        );
        assert_eq!((args[3].0, args[3].1, args[3].2), ("part", ArgKind::Threadgroup, 1));
        let out = pipeline.signature().args.iter().find(|arg| arg.name == "out").unwrap();
        assert_eq!(out.element, ElementType::Vector { scalar: Scalar::U32, lanes: 3, packed: false });
        assert_eq!(pipeline.signature().code, None, "the reflection says nothing of the code");
        let error = library.pipeline("none", &PipelineOptions::default()).err().unwrap();
        assert_eq!(error.to_string(), "no kernel `none` in the source; it has `k`");
    }

    #[test]
    fn function_constants_are_checked_and_given() {
        let library = without_front_end(
            "constant uint N [[function_constant(3)]];
             kernel void k(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = N; }",
        );
        assert_eq!((library.constants().len(), library.constants()[0].index), (1, 3));
        let options = |key: ConstantKey, scalar, bytes: &[u8]| {
            let constants = vec![Constant { key, scalar, bytes: bytes.to_vec() }];
            PipelineOptions { constants, checked: false, ..PipelineOptions::default() }
        };
        let error = |options| library.pipeline("k", &options).err().unwrap().to_string();
        let unknown = error(options(ConstantKey::Name("M".into()), Scalar::U32, &[0; 4]));
        assert_eq!(unknown, "there is no function constant `M`; the source has `N` (index 3)");
        let other = error(options(ConstantKey::Index(3), Scalar::F32, &[0; 4]));
        assert_eq!(other, "function constant `N` (index 3) is `uint`; given 4 bytes of `float`");
        library.pipeline("k", &options(ConstantKey::Index(3), Scalar::U32, &[7, 0, 0, 0])).unwrap();
        let checked = PipelineOptions { checked: true, ..PipelineOptions::default() };
        assert!(
            matches!(library.pipeline("k", &checked), Err(Error::Unsupported(text)) if text.contains("`k`"))
        );
    }

    #[test]
    fn a_signature_that_differs_from_the_reflection_is_refused() {
        let library = without_front_end("kernel void k(device float* out [[buffer(4)]]) { out[0] = 1; }");
        let reflection = autoreleasepool(|_| {
            let function = library.library.newFunctionWithName(&NSString::from_str("k")).unwrap();
            let key = library.archived("k", &PipelineOptions::default());
            pipeline::build(&library.core, "k", &function, &key, false).unwrap().1
        });
        let right = reflection.signature("k", "k.metal").unwrap();
        reflection.compare(&right).unwrap();
        let refused = |change: &dyn Fn(&mut elinvar_driver::Arg)| {
            let mut wrong = right.clone();
            change(&mut wrong.args[0]);
            reflection.compare(&wrong).unwrap_err().to_string()
        };
        assert!(
            refused(&|arg| arg.element_size = 8)
                .contains("argument `out` (index 4) has elements of 4 bytes for Metal and of 8")
        );
        assert!(
            refused(&|arg| arg.access = Access::Read)
                .contains("argument `out` (index 4) is written for Metal")
        );
        assert!(
            refused(&|arg| arg.index = 3)
                .contains("Metal has an argument `out` (index 4) that is not in the signature")
        );
    }
}
