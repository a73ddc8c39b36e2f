//! From MSL to kernels: `elinvar-msl` checks the source, `elinvar-ir` reads its IR, `elinvar-spmd`
//! makes the work-group function, and `codegen` builds it.
//!
//! The source is checked when the library is made. A kernel's IR is made when its pipeline is first
//! asked for; machine code when the pipeline is prepared for a size. Each of the three is looked for in the
//! cache first, and what comes later is not made for what comes earlier: with machine code from the cache, no
//! IR is read.

use std::collections::HashMap;
use std::sync::Arc;

use elinvar_cache::{Cache, Key, KeyBuilder};
use elinvar_code::{Origin, given, least_bytes};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Access, Arg, ArgKind, Constant, Diagnostic, Error, FunctionConstant, Library, Pipeline, PipelineOptions,
    Result, Signature, Source, UnsupportedKernel,
};
use elinvar_ir::{Location, Module};
use elinvar_msl::{Checked, Specialized, Toolchain, stage};

use crate::codegen::Codegen;
use crate::kept::{self, Object};
use crate::kernel::{CpuPipeline, Form, Kernel};
use crate::loader::Code;
use crate::target::Target;
use crate::{order, packed};

/// Compile a source with the clang that is found, by way of a cache.
pub(crate) fn library(cache: &Cache, source: &Source) -> Result<Arc<dyn Library>> {
    source.expect_no_metal_library()?;
    if source.packed.is_some() {
        return packed::library(source);
    }
    Ok(Arc::new(CpuLibrary::new(cache, source, Target::from_env()?)?))
}

/// A source and the tools that make its kernels.
struct Compiler {
    program: Checked,
    cache: Cache,
    codegen: Codegen,
}

pub(crate) struct CpuLibrary {
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

    fn unsupported(&self) -> &[UnsupportedKernel] {
        self.compiler.program.unsupported()
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
    /// Compile for a target.
    pub(crate) fn new(cache: &Cache, source: &Source, target: Target) -> Result<Self> {
        let toolchain = Toolchain::find_with(cache)?;
        let program = Checked::new(&toolchain, source)?;
        let codegen = Codegen::new(toolchain.path(), target);
        let (cache, source) = (cache.clone(), Arc::new(source.clone()));
        let compiler = Arc::new(Compiler { program, cache, codegen });
        Ok(Self { compiler, source, pipelines: Mutex::default() })
    }

    fn make(&self, name: &str, options: &PipelineOptions) -> Result<CpuPipeline> {
        let (origin, thread) = self.thread(name, options)?;
        let (compiler, signature) = (self.compiler.clone(), origin.signature.clone());
        let build = move |form| compiler.kernel(&origin, &thread, form);
        Ok(CpuPipeline::new(signature, Arc::new(build)))
    }

    /// A kernel's code for threadgroups of a size, as the cache keeps it. It is not loaded here.
    pub(crate) fn object(&self, origin: &Origin, thread: &ThreadCode, form: Form) -> Result<Object> {
        Ok(self.compiler.object(origin, thread, form, &KEPT)?.1)
    }

    /// Where a kernel comes from, and its code for one thread.
    pub(crate) fn thread(&self, name: &str, options: &PipelineOptions) -> Result<(Origin, ThreadCode)> {
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
            let code = origin.facts(&parsed)?;
            let known = origin.signature.with_code(code);
            if let Some(key) = &key {
                cache.store(key, &kept::write_signature(&known));
            }
            (signature, module) = (Some(known), Some(parsed));
        }
        let signature = signature.ok_or_else(|| Error::invalid(format!("no kernel `{name}`")))?;
        let origin = Origin { signature, source: self.source.clone() };
        let thread =
            ThreadCode { constants, checked: options.checked, module: Mutex::new(module.map(Arc::new)) };
        Ok((origin, thread))
    }
}

/// What is made of an object: code that is loaded here, or nothing where another process loads it.
struct Use<C> {
    /// Of bytes from the cache; `None` if they are no use.
    found: fn(&[u8]) -> Option<C>,
    /// Of a text that is built.
    built: Built<C>,
}

/// Builds a text: what is made of the object, and its bytes.
type Built<C> = fn(&Codegen, &str) -> Result<(C, Vec<u8>)>;

const LOADED: Use<Code> = Use { found: loaded, built: |codegen, ir| codegen.build(ir, elinvar_spmd::SYMBOL) };
const KEPT: Use<()> = Use { found: |_| Some(()), built: |codegen, ir| Ok(((), codegen.object(ir)?)) };

/// The code of one thread of a kernel, which threadgroup sizes are built from.
pub(crate) struct ThreadCode {
    constants: Vec<Constant>,
    checked: bool,
    /// Read when a size has to be built.
    module: Mutex<Option<Arc<Module>>>,
}

impl Compiler {
    /// A kernel for a threadgroup size, from the cache or built.
    fn kernel(&self, origin: &Origin, thread: &ThreadCode, form: Form) -> Result<Kernel> {
        let (code, object) = self.object(origin, thread, form, &LOADED)?;
        Ok(object.kernel(code, &origin.signature))
    }

    fn object<C>(
        &self,
        origin: &Origin,
        thread: &ThreadCode,
        form: Form,
        of: &Use<C>,
    ) -> Result<(C, Object)> {
        let key = self.object_key(origin, thread, form);
        let found = || {
            let object = Object::read(&self.cache.load(key.as_ref()?)?)?;
            Some(((of.found)(&object.bytes)?, object))
        };
        match stage::timed("cache", found) {
            Some(found) => Ok(found),
            None => self.build(origin, thread, form, key, of),
        }
    }

    fn object_key(&self, origin: &Origin, thread: &ThreadCode, form: Form) -> Option<Key> {
        let key = self.program.key("object", &origin.signature.name, &thread.constants)?;
        let key = form.group.to_array().into_iter().fold(key, |key, threads| key.number(u64::from(threads)));
        let flags = u64::from(thread.checked) | u64::from(form.stoppable) << 1;
        Some(self.codegen.identify(key.number(flags)).finish())
    }

    fn build<C>(
        &self,
        origin: &Origin,
        thread: &ThreadCode,
        form: Form,
        key: Option<Key>,
        of: &Use<C>,
    ) -> Result<(C, Object)> {
        let module = self.module(origin, thread)?;
        let args = &origin.signature.args;
        let ascending = order::is_observed(&module);
        let options = elinvar_spmd::Options {
            group: form.group.to_array(),
            lanes: self.codegen.target().lanes(),
            registers: self.codegen.target().registers(),
            gathers: self.codegen.target().gathers(),
            threadgroup_args: args.iter().map(|arg| arg.kind == ArgKind::Threadgroup).collect(),
            still: args.iter().map(|arg| if is_still(arg) { least_bytes(arg) } else { 0 }).collect(),
            checks: thread.checked.then(|| args.iter().map(given).collect()),
            stoppable: form.stoppable,
            ascending,
        };
        let compiled = stage::timed("passes", || elinvar_spmd::compile(&module, &options));
        let compiled = compiled.map_err(|error| origin.error(error))?;
        let (code, bytes) = self.code(&compiled.ir, of)?;
        let place = |location: Location| format!("{}:{}", location.file, location.line);
        let faults = compiled.faults.into_iter().map(|site| (site.message, site.location.map(place)));
        let (scratch_bytes, checks) = (compiled.scratch_bytes, compiled.checks);
        let object = Object { bytes, scratch_bytes, ascending, faults: faults.collect(), checks };
        if let Some(key) = key {
            self.cache.store(&key, &object.write());
        }
        Ok((code, object))
    }

    /// Machine code of a text, from the cache or built: sources that differ in names and comments come to the same text.
    fn code<C>(&self, ir: &str, of: &Use<C>) -> Result<(C, Vec<u8>)> {
        let key = self.codegen.identify(self.cache.key("code")).text(ir).finish();
        let found = self.cache.load(&key).and_then(|bytes| Some(((of.found)(&bytes)?, bytes)));
        if let Some(found) = found {
            return Ok(found);
        }
        let (code, bytes) = (of.built)(&self.codegen, ir)?;
        self.cache.store(&key, &bytes);
        Ok((code, bytes))
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

/// Whether nothing writes an argument while the kernel runs.
fn is_still(arg: &Arg) -> bool {
    arg.constant && arg.access == Access::Read
}

/// Code that was kept, if it can be loaded here.
fn loaded(bytes: &[u8]) -> Option<Code> {
    let code = Code::from_bytes(bytes, elinvar_spmd::SYMBOL);
    code.inspect_err(|error| tracing::debug!("{error}")).ok()
}
