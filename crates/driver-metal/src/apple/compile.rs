//! From MSL to kernels: Metal's compiler makes them, Elinvar's front end says what they take.
//!
//! Metal decides whether a source is right. The front end reads it as well, for the signatures; where it cannot (no
//! clang, or something that it does not know), they come from Metal's reflection, and a warning says why.

use std::collections::HashMap;
use std::sync::Arc;

use elinvar_driver::{
    Diagnostic, Error, FunctionConstant, Library, MathMode, Pipeline, PipelineOptions, Result, Severity,
    Signature, Source,
};
use elinvar_msl::Checked;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{NSObjectProtocol as _, ProtocolObject};
use objc2::sel;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{MTLCompileOptions, MTLDevice as _, MTLFunction, MTLLibrary, MTLLibraryError, MTLMathMode};
use parking_lot::Mutex;

use super::core::Core;
use super::pipeline::{self, MetalPipeline};
use super::reflect::Reflection;
use super::{constants, front, reflect};
use crate::{diagnostics, flatten};

type Function = Retained<ProtocolObject<dyn MTLFunction>>;

struct MetalLibrary {
    core: Arc<Core>,
    /// The first of its names.
    file: String,
    library: Retained<ProtocolObject<dyn MTLLibrary>>,
    /// What the front end knows.
    checked: Option<Checked>,
    kernels: Vec<Signature>,
    constants: Vec<FunctionConstant>,
    warnings: Vec<Diagnostic>,
    pipelines: Mutex<HashMap<(String, PipelineOptions), Arc<MetalPipeline>>>,
}

pub(super) fn library(core: &Arc<Core>, source: &Source) -> Result<Arc<dyn Library>> {
    core.expect_present()?;
    let text = NSString::from_str(&flatten::flatten(source)?);
    let library = core.device.newLibraryWithSource_options_error(&text, Some(&options(source.math)));
    let library = library.map_err(|error| refused(&error, source))?;
    let file = source.pieces.first().map_or_else(String::new, |piece| piece.name.clone());
    let made = MetalLibrary {
        core: core.clone(),
        file,
        library,
        checked: None,
        kernels: Vec::new(),
        constants: Vec::new(),
        warnings: Vec::new(),
        pipelines: Mutex::default(),
    };
    match front::check(core, source) {
        Ok(checked) => Ok(Arc::new(made.checked(checked))),
        Err(error) => Ok(Arc::new(made.reflected(&error)?)),
    }
}

/// The newest version of the language that the system has, which is Metal's default. `mathMode` came with macOS 15; before,
/// fast arithmetic is on or off, and relaxed is off.
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

fn refused(error: &NSError, source: &Source) -> Error {
    let text = error.localizedDescription().to_string();
    match MTLLibraryError(usize::try_from(error.code()).unwrap_or(0)) {
        MTLLibraryError::Unsupported => Error::Unsupported(text),
        MTLLibraryError::Internal => Error::Environment(text),
        _ => Error::Compile(diagnostics::parse(&text, source, Severity::Error)),
    }
}

impl MetalLibrary {
    fn checked(self, checked: Checked) -> Self {
        let (kernels, constants) = (checked.kernels().to_vec(), checked.constants().to_vec());
        let warnings = checked.warnings().to_vec();
        Self { kernels, constants, warnings, checked: Some(checked), ..self }
    }

    /// With what Metal says of the functions as they are without values of function constants. One that cannot be built
    /// so has no arguments here.
    fn reflected(mut self, why: &elinvar_msl::Error) -> Result<Self> {
        let message = format!(
            "what the kernels take is known from Metal's reflection only: neither pointers and references nor positions \
             are told apart, because the front end could not read the source: {why}"
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
            let signature = match pipeline::build(&self.core, &name, &function) {
                Ok((_, reflection)) => reflection.signature(&name, &self.file),
                Err(_) => Reflection::default().signature(&name, &self.file),
            };
            // What is no buffer is told when its pipeline is asked for.
            let plain = || Reflection::default().signature(&name, &self.file);
            self.kernels.push(signature.or_else(|_| plain())?);
        }
        Ok(self)
    }

    fn function(&self, name: &str, options: &PipelineOptions) -> Result<Function> {
        let text = NSString::from_str(name);
        let missing = || {
            let known: Vec<&str> = self.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
            Error::invalid(format!("no kernel `{name}` in the source; it has {}", list(&known)))
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

    fn make(&self, name: &str, options: &PipelineOptions) -> Result<MetalPipeline> {
        if options.checked {
            return Err(Error::unsupported(format!(
                "bounds checks in kernel `{name}`: Metal's compiler has none that a program could ask for"
            )));
        }
        let known = self.checked.as_ref();
        let known = known
            .map(|checked| front::signature(&self.core, checked, name, &options.constants))
            .transpose()?;
        let function = self.function(name, options)?;
        let (state, reflection) = pipeline::build(&self.core, name, &function)
            .map_err(|text| Error::Compile(vec![Diagnostic::error(self.file.clone(), 0, 0, text)]))?;
        let reflected = known.is_none();
        let signature = match known {
            Some(signature) => {
                reflection.compare(&signature)?;
                signature
            }
            None => reflection.signature(name, &self.file)?,
        };
        Ok(MetalPipeline::new(&self.core, state, signature, reflected))
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { format!("`{}`", names.join("`, `")) }
}

impl Library for MetalLibrary {
    fn kernels(&self) -> &[Signature] {
        &self.kernels
    }

    fn constants(&self) -> &[FunctionConstant] {
        &self.constants
    }

    fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        let key = (kernel.to_owned(), options.clone());
        if let Some(pipeline) = self.pipelines.lock().get(&key) {
            return Ok(pipeline.clone());
        }
        // Not under the lock: other kernels' pipelines can be had meanwhile. Of two threads that make the same one, the
        // second drops its own.
        let made = Arc::new(autoreleasepool(|_| self.make(kernel, options))?);
        Ok(self.pipelines.lock().entry(key).or_insert(made).clone())
    }
}
