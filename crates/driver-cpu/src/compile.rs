//! From MSL to kernels: `elinvar-msl` checks the source, `elinvar-ir` reads its IR, `elinvar-spmd`
//! makes the work-group function, and `codegen` builds it.
//!
//! The source is checked when the library is made. A kernel's IR is made when its pipeline is first
//! asked for, and kept with the pipeline; machine code when the pipeline is prepared for a size.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use elinvar_driver::{
    Arg, ArgKind, CodeFacts, Diagnostic, Dim3, Error, Library, Pipeline, PipelineOptions, Result, Severity,
    Signature, Source,
};
use elinvar_ir::{Location, Module};
use elinvar_msl::{Program, Toolchain};
use parking_lot::Mutex;

use crate::bounds::Bounds;
use crate::codegen::Codegen;
use crate::kernel::{CpuPipeline, Kernel};

/// Compile a source with the clang that is found.
pub(crate) fn library(source: &Source) -> Result<Arc<dyn Library>> {
    let toolchain = Toolchain::find()?;
    let program = Program::compile(&toolchain, source)?;
    let codegen = Arc::new(Codegen::new(toolchain.path()));
    let source = Arc::new(source.clone());
    Ok(Arc::new(CpuLibrary { program, source, codegen, pipelines: Mutex::default() }))
}

struct CpuLibrary {
    program: Program,
    source: Arc<Source>,
    codegen: Arc<Codegen>,
    pipelines: Mutex<HashMap<(String, PipelineOptions), Arc<CpuPipeline>>>,
}

impl Library for CpuLibrary {
    fn kernels(&self) -> &[Signature] {
        self.program.kernels()
    }

    fn warnings(&self) -> &[Diagnostic] {
        self.program.warnings()
    }

    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        if !options.constants.is_empty() {
            return Err(Error::unsupported(format!("kernel `{kernel}`: function constants on the CPU")));
        }
        let key = (kernel.to_owned(), options.clone());
        if let Some(pipeline) = self.pipelines.lock().get(&key) {
            return Ok(pipeline.clone());
        }
        // Not under the lock: other kernels' pipelines can be had meanwhile. Of two threads that make
        // the same one, the second drops its own.
        let made = Arc::new(self.make(kernel, options)?);
        Ok(self.pipelines.lock().entry(key).or_insert(made).clone())
    }
}

impl CpuLibrary {
    fn make(&self, name: &str, options: &PipelineOptions) -> Result<CpuPipeline> {
        let text = self.program.ir(name)?;
        let signature = self.program.kernels().iter().find(|signature| signature.name == name);
        let mut signature =
            signature.cloned().ok_or_else(|| Error::invalid(format!("no kernel `{name}` in the source")))?;
        let module = Module::parse(&text).map_err(|error| {
            Error::unsupported(format!("kernel `{name}`: cannot read clang's output: {error}"))
        })?;
        let origin = Origin { signature: signature.clone(), source: self.source.clone() };
        let facts = elinvar_spmd::facts(&module).map_err(|error| origin.error(error))?;
        signature.code = Some(CodeFacts {
            threadgroup_memory: facts.threadgroup_memory,
            barriers: facts.barriers,
            atomics: facts.atomics,
            simdgroup: facts.simdgroup,
        });
        let codegen = self.codegen.clone();
        let checked = options.checked;
        let build = move |group| build(&module, &origin, &codegen, group, checked);
        Ok(CpuPipeline::new(signature, Box::new(build)))
    }
}

fn build(module: &Module, origin: &Origin, codegen: &Codegen, group: Dim3, checked: bool) -> Result<Kernel> {
    let args = &origin.signature.args;
    let options = elinvar_spmd::Options {
        group: group.to_array(),
        lanes: 1,
        threadgroup_args: args.iter().map(|arg| arg.kind == ArgKind::Threadgroup).collect(),
        checks: checked.then(|| args.iter().map(least_bytes).collect()),
    };
    let compiled = elinvar_spmd::compile(module, &options).map_err(|error| origin.error(error))?;
    let place = |location: Location| format!("{}:{}", location.file, location.line);
    let faults = compiled.faults.into_iter().map(|site| (site.message, site.location.map(place)));
    Ok(Kernel {
        name: origin.signature.name.clone(),
        code: codegen.build(&compiled.ir, elinvar_spmd::SYMBOL)?,
        scratch_bytes: compiled.scratch_bytes,
        faults: faults.collect(),
        bounds: compiled.checks.map(|checks| Bounds::new(checks, origin.signature.clone())),
        group_ns: AtomicU64::new(0),
    })
}

/// The least bytes that a launch gives for an argument.
fn least_bytes(arg: &Arg) -> u64 {
    match arg.kind {
        ArgKind::Reference => arg.element_size,
        ArgKind::Pointer | ArgKind::Threadgroup => 0,
    }
}

/// Where a kernel comes from, for messages about it.
struct Origin {
    signature: Signature,
    source: Arc<Source>,
}

impl Origin {
    fn error(&self, error: elinvar_spmd::Error) -> Error {
        let Signature { name, file, line, .. } = &self.signature;
        match &error {
            elinvar_spmd::Error::DivergentBarrier { location, branch } => {
                let message = format!(
                    "threadgroup_barrier in kernel `{name}` under control flow that differs between the \
                     threads of a threadgroup"
                );
                let mut diagnostic = self.diagnostic(location.as_ref(), message);
                if let Some(branch) = branch {
                    let note = self.diagnostic(Some(branch), "the branch that decides".into());
                    diagnostic.notes.push(Diagnostic { severity: Severity::Note, ..note });
                }
                Error::Compile(vec![diagnostic])
            }
            elinvar_spmd::Error::Unsupported { location: Some(_), .. } => {
                Error::unsupported(format!("{error} (kernel `{name}`)"))
            }
            _ => Error::unsupported(format!("{file}:{line}: kernel `{name}`: {error}")),
        }
    }

    /// An error at a place, or at the kernel's declaration, with the source line if it is ours.
    fn diagnostic(&self, location: Option<&Location>, message: String) -> Diagnostic {
        let (file, line, column) = match location {
            Some(Location { file, line, column, .. }) => (file, *line, *column),
            None => (&self.signature.file, self.signature.line, 0),
        };
        let mut diagnostic = Diagnostic::error(file.clone(), line, column, message);
        let piece = self.source.pieces.iter().find(|piece| piece.name == *file);
        let text = piece.and_then(|piece| piece.text.lines().nth((line as usize).checked_sub(1)?));
        diagnostic.source_line = text.map(str::to_owned);
        diagnostic
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn origin() -> Origin {
        let source = Arc::new(Source::named("a.metal", "first\n  second\n"));
        let signature = Signature { file: "a.metal".into(), ..testing::signature("k") };
        Origin { signature, source }
    }

    fn at(line: u32) -> Option<Location> {
        Some(Location { file: "a.metal".into(), line, column: 3 })
    }

    #[test]
    fn a_divergent_barrier_is_a_diagnostic_with_its_branch() {
        let error = elinvar_spmd::Error::DivergentBarrier { location: at(2), branch: at(1) };
        let Error::Compile(diagnostics) = origin().error(error) else { panic!("another kind of error") };
        let text = diagnostics[0].to_string();
        assert!(text.starts_with("a.metal:2:3: error: threadgroup_barrier in kernel `k`"), "{text}");
        assert_eq!(diagnostics[0].source_line.as_deref(), Some("  second"));
        let note = &diagnostics[0].notes[0];
        assert_eq!(
            (note.severity, note.line, note.source_line.as_deref()),
            (Severity::Note, 1, Some("first"))
        );
    }

    #[test]
    fn a_message_without_a_place_gets_the_kernels() {
        let error = elinvar_spmd::Error::DivergentBarrier { location: None, branch: None };
        let Error::Compile(diagnostics) = origin().error(error) else { panic!("another kind of error") };
        assert_eq!((diagnostics[0].line, diagnostics[0].column), (1, 0));
        let error = elinvar_spmd::Error::Unsupported { what: "this".into(), location: None };
        assert_eq!(origin().error(error).to_string(), "unsupported: a.metal:1: kernel `k`: this");
        let error = elinvar_spmd::Error::Unsupported { what: "this".into(), location: at(2) };
        assert_eq!(origin().error(error).to_string(), "unsupported: a.metal:2:3: this (kernel `k`)");
    }
}
