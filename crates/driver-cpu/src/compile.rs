//! From MSL to kernels: `elinvar-msl` checks the source, `elinvar-ir` reads its IR, `elinvar-spmd`
//! makes the work-group function, and `codegen` builds it.
//!
//! The source is checked when the library is made. A kernel's IR is made when its pipeline is first
//! asked for; machine code when the pipeline is prepared for a size. Each of the three is looked for in the
//! cache first, and what comes later is not made for what comes earlier: with machine code from the cache, no
//! IR is read.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};

use elinvar_cache::{Cache, Key, KeyBuilder};
use elinvar_driver::{
    Arg, ArgKind, CodeFacts, Constant, Diagnostic, Error, FunctionConstant, Library, Pipeline,
    PipelineOptions, Result, Severity, Signature, Source,
};
use elinvar_ir::{Location, Module};
use elinvar_msl::{Checked, Specialized, Toolchain, stage};
use parking_lot::Mutex;

use crate::bounds::Bounds;
use crate::codegen::Codegen;
use crate::device::CpuDriver;
use crate::kept::{self, Object};
use crate::kernel::{CpuPipeline, Form, Kernel};
use crate::loader::Code;
use crate::order;
use crate::target::Target;

/// The user's cache, opened when it is first asked for.
pub(crate) fn user_cache() -> &'static Cache {
    static CACHE: LazyLock<Cache> = LazyLock::new(|| Cache::user(CpuDriver::CACHE_VERSION));
    &CACHE
}

/// Compile a source with the clang that is found, by way of a cache.
pub(crate) fn library(cache: &Cache, source: &Source) -> Result<Arc<dyn Library>> {
    let toolchain = Toolchain::find_with(cache)?;
    let program = Checked::new(&toolchain, source)?;
    let codegen = Codegen::new(toolchain.path(), Target::from_env()?);
    let (cache, source) = (cache.clone(), Arc::new(source.clone()));
    let compiler = Arc::new(Compiler { program, cache, codegen });
    Ok(Arc::new(CpuLibrary { compiler, source, pipelines: Mutex::default() }))
}

/// A source and the tools that make its kernels.
struct Compiler {
    program: Checked,
    cache: Cache,
    codegen: Codegen,
}

struct CpuLibrary {
    compiler: Arc<Compiler>,
    source: Arc<Source>,
    pipelines: Mutex<HashMap<(String, PipelineOptions), Arc<CpuPipeline>>>,
}

impl Library for CpuLibrary {
    fn kernels(&self) -> &[Signature] {
        self.compiler.program.kernels()
    }

    fn constants(&self) -> &[FunctionConstant] {
        self.compiler.program.constants()
    }

    fn warnings(&self) -> &[Diagnostic] {
        self.compiler.program.warnings()
    }

    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
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
        let Compiler { program, cache, .. } = &*self.compiler;
        let constants = options.constants.clone();
        let key = program.key("kernel", name, &constants).map(KeyBuilder::finish);
        let (mut signature, mut module) = (None, None);
        if let Some(key) = &key {
            signature = cache.load(key).and_then(|record| kept::read_signature(&record));
        }
        if signature.is_none() {
            let Specialized { ir, signature: plain } = program.specialize(name, &constants)?;
            let origin = Origin { signature: plain, source: self.source.clone() };
            let parsed = origin.parse(&ir)?;
            let facts = elinvar_spmd::facts(&parsed).map_err(|error| origin.error(error))?;
            let code = CodeFacts {
                threadgroup_memory: facts.threadgroup_memory,
                barriers: facts.barriers,
                atomics: facts.atomics,
                simdgroup: facts.simdgroup,
                only_written: only_written(&parsed),
            };
            let known = Signature { code: Some(code), ..origin.signature };
            if let Some(key) = &key {
                cache.store(key, &kept::write_signature(&known));
            }
            (signature, module) = (Some(known), Some(parsed));
        }
        let signature = signature.ok_or_else(|| Error::invalid(format!("no kernel `{name}`")))?;
        let origin = Origin { signature: signature.clone(), source: self.source.clone() };
        let compiler = self.compiler.clone();
        let thread =
            ThreadCode { constants, checked: options.checked, module: Mutex::new(module.map(Arc::new)) };
        let build = move |form| compiler.kernel(&origin, &thread, form);
        Ok(CpuPipeline::new(signature, Arc::new(build)))
    }
}

/// The arguments that the kernel writes and never reads: what clang marks so.
fn only_written(module: &Module) -> u64 {
    let params = module.function(elinvar_spmd::ENTRY).map_or(&[][..], |entry| &entry.params);
    let marked = |attrs: &str| attrs.split_whitespace().any(|attr| attr == "writeonly");
    let bits = params.iter().take(64).enumerate().filter(|(_, param)| marked(&param.attrs));
    bits.fold(0, |bits, (index, _)| bits | 1 << index)
}

/// The code of one thread of a kernel, which threadgroup sizes are built from.
struct ThreadCode {
    constants: Vec<Constant>,
    checked: bool,
    /// Read when a size has to be built.
    module: Mutex<Option<Arc<Module>>>,
}

impl Compiler {
    /// A kernel for a threadgroup size, from the cache or built.
    fn kernel(&self, origin: &Origin, thread: &ThreadCode, form: Form) -> Result<Kernel> {
        let key = self.object_key(origin, thread, form);
        let found = || {
            let object = Object::read(&self.cache.load(key.as_ref()?)?)?;
            let code = Code::from_bytes(&object.bytes, elinvar_spmd::SYMBOL);
            Some((code.inspect_err(|error| tracing::debug!("{error}")).ok()?, object))
        };
        let (code, object) = match stage::timed("cache", found) {
            Some(found) => found,
            None => self.build(origin, thread, form, key)?,
        };
        Ok(Kernel {
            name: origin.signature.name.clone(),
            code,
            scratch_bytes: object.scratch_bytes,
            faults: object.faults,
            bounds: object.checks.map(|checks| Bounds::new(checks, origin.signature.clone())),
            ascending: object.ascending,
            group_ns: AtomicU64::new(0),
        })
    }

    fn object_key(&self, origin: &Origin, thread: &ThreadCode, form: Form) -> Option<Key> {
        let key = self.program.key("object", &origin.signature.name, &thread.constants)?;
        let key = form.group.to_array().into_iter().fold(key, |key, threads| key.number(u64::from(threads)));
        let flags = u64::from(thread.checked) | u64::from(form.stoppable) << 1;
        Some(self.codegen.identify(key.number(flags)).finish())
    }

    fn build(
        &self,
        origin: &Origin,
        thread: &ThreadCode,
        form: Form,
        key: Option<Key>,
    ) -> Result<(Code, Object)> {
        let module = self.module(origin, thread)?;
        let args = &origin.signature.args;
        let ascending = order::is_observed(&module);
        let options = elinvar_spmd::Options {
            group: form.group.to_array(),
            lanes: self.codegen.target().lanes(),
            registers: self.codegen.target().registers(),
            gathers: self.codegen.target().gathers(),
            threadgroup_args: args.iter().map(|arg| arg.kind == ArgKind::Threadgroup).collect(),
            still: args.iter().map(|arg| if arg.constant { least_bytes(arg) } else { 0 }).collect(),
            checks: thread.checked.then(|| args.iter().map(least_bytes).collect()),
            stoppable: form.stoppable,
            ascending,
        };
        let compiled = stage::timed("passes", || elinvar_spmd::compile(&module, &options));
        let compiled = compiled.map_err(|error| origin.error(error))?;
        let (code, bytes) = self.codegen.build(&compiled.ir, elinvar_spmd::SYMBOL)?;
        let place = |location: Location| format!("{}:{}", location.file, location.line);
        let faults = compiled.faults.into_iter().map(|site| (site.message, site.location.map(place)));
        let (scratch_bytes, checks) = (compiled.scratch_bytes, compiled.checks);
        let object = Object { bytes, scratch_bytes, ascending, faults: faults.collect(), checks };
        if let Some(key) = key {
            self.cache.store(&key, &object.write());
        }
        Ok((code, object))
    }

    fn module(&self, origin: &Origin, thread: &ThreadCode) -> Result<Arc<Module>> {
        let mut module = thread.module.lock();
        if let Some(module) = &*module {
            return Ok(module.clone());
        }
        let specialized = self.program.specialize(&origin.signature.name, &thread.constants)?;
        Ok(module.insert(Arc::new(origin.parse(&specialized.ir)?)).clone())
    }
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
    fn parse(&self, ir: &str) -> Result<Module> {
        stage::timed("parse", || Module::parse(ir)).map_err(|error| {
            let name = &self.signature.name;
            Error::unsupported(format!("kernel `{name}`: cannot read clang's output: {error}"))
        })
    }

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
