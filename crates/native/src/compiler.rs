//! [`Compiler`]: a source and the machine code of its kernels.
//!
//! The source is validated when the compiler is created, a kernel's IR is generated when its signature is first requested, and machine
//! code when it is requested for a form. Each of the three is looked up in the cache first, and a hit makes the earlier steps
//! unnecessary: if machine code is cached, no IR is read.

use std::sync::Arc;

use elinvar_cache::{Cache, Key, decode, encode};
use elinvar_code::{Declared, Program, Thread, check_group, given, is_invariant, least_bytes};
use elinvar_driver::{ArgKind, Dim3, PipelineOptions, Result, Signature, Source};
use elinvar_ir::Location;
use elinvar_msl::{InductionVariables, stage};
use elinvar_spmd::{Compiled, SizeBound};

use crate::generate::Generator;
use crate::object::Object;
use crate::order;
use crate::target::Target;

/// Parameters for which a kernel's machine code is specialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Size of a full threadgroup in threads.
    pub group: Dim3,
    /// Whether loops poll for a request to stop, which is slower.
    pub stoppable: bool,
    /// Upper bound of the sizes of all buffers.
    pub objects: SizeBound,
}

/// A validated source.
pub struct Compiler {
    program: Program,
    generator: Generator,
}

impl Compiler {
    /// Validates a source with the installed clang, or with a result from the cache.
    ///
    /// # Errors
    /// `Compile` with the diagnostics; `Environment` if there is no clang.
    pub fn new(cache: &Cache, source: &Source, target: Target) -> Result<Self> {
        let program = Program::new(cache, source, InductionVariables::Widened)?;
        let generator = Generator::new(program.clang(), target);
        Ok(Self { program, generator })
    }

    /// Declarations of the source.
    pub fn declared(&self) -> &Declared {
        self.program.declared()
    }

    pub(crate) fn target(&self) -> &Target {
        self.generator.target()
    }

    pub(crate) fn source(&self) -> &Source {
        self.program.source()
    }

    /// The LLVM IR of one thread of a kernel, from the front end.
    ///
    /// # Errors
    /// As [`Compiler::signature`].
    pub fn ir(&self, name: &str, options: &PipelineOptions) -> Result<String> {
        self.program.ir(name, &options.constants)
    }

    /// A kernel's signature, with [`Signature::code`].
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such kernel or function constant; `Compile` and `Unsupported` with the source line.
    pub fn signature(&self, name: &str, options: &PipelineOptions) -> Result<Signature> {
        Ok(self.program.thread(name, &options.constants)?.origin.signature.clone())
    }

    /// The machine code of a kernel, from the cache or compiled.
    ///
    /// # Errors
    /// As [`Compiler::signature`]; `InvalidArgument` for a threadgroup with more threads than [`elinvar_code::max_threads`];
    /// `Environment` if clang or the linker fails.
    pub fn kernel(&self, name: &str, options: &PipelineOptions, form: Form) -> Result<Object> {
        Ok(self.kernel_with(name, options, form, |_| Ok(()))?.1)
    }

    /// As [`Compiler::kernel`], and loads the shared object with `load`. If loading an object from the cache fails, the kernel is
    /// compiled again.
    ///
    /// # Errors
    /// As [`Compiler::kernel`] and `load`.
    pub fn kernel_with<T>(
        &self,
        name: &str,
        options: &PipelineOptions,
        form: Form,
        load: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<(T, Object)> {
        let thread = self.program.thread(name, &options.constants)?;
        check_group(&thread.origin.signature, form.group)?;
        let key = self.key("object", name, options, form);
        let cached = || {
            let object: Object = decode(&self.program.cache().load(key.as_ref()?)?)?;
            Some((cached(&object.bytes, &load)?, object))
        };
        if let Some(found) = stage::timed("cache", cached) {
            return Ok(found);
        }
        let (loaded, object) = self.make(&thread, options.checked, form, &load)?;
        if let Some(key) = &key {
            self.program.cache().store(key, &encode(&object));
        }
        Ok((loaded, object))
    }

    fn key(&self, kind: &str, name: &str, options: &PipelineOptions, form: Form) -> Option<Key> {
        let key = self.program.key(kind, name, &options.constants)?;
        let key = form.group.to_array().into_iter().fold(key, |key, threads| key.number(u64::from(threads)));
        let objects = u64::from(form.objects.number());
        let flags = u64::from(options.checked) | u64::from(form.stoppable) << 1 | objects << 2;
        Some(self.generator.identify(key.number(flags)).finish())
    }

    /// Runs all passes before code generation.
    ///
    /// # Errors
    /// As [`Compiler::kernel`].
    pub fn check(&self, name: &str, options: &PipelineOptions, form: Form) -> Result<()> {
        let key = self.key("checked", name, options, form);
        if stage::timed("cache", || self.program.cache().load(key.as_ref()?)).is_some() {
            return Ok(());
        }
        self.vector_ir(name, options, form)?;
        if let Some(key) = &key {
            self.program.cache().store(key, &[]);
        }
        Ok(())
    }

    /// The LLVM IR of a kernel's vectorized function over whole threadgroups, the input of clang.
    ///
    /// # Errors
    /// As [`Compiler::kernel`].
    pub fn vector_ir(&self, name: &str, options: &PipelineOptions, form: Form) -> Result<String> {
        let thread = self.program.thread(name, &options.constants)?;
        check_group(&thread.origin.signature, form.group)?;
        Ok(self.vectorize(&thread, options.checked, form)?.0.ir)
    }

    /// A kernel's assembly.
    ///
    /// # Errors
    /// As [`Compiler::kernel`].
    pub fn assembly(&self, name: &str, options: &PipelineOptions, form: Form) -> Result<String> {
        self.generator.assembly(&self.vector_ir(name, options, form)?)
    }

    /// Vectorizes a kernel. Also returns whether threadgroups must start in ascending order.
    fn vectorize(&self, thread: &Arc<Thread>, checked: bool, form: Form) -> Result<(Compiled, bool)> {
        let module = self.program.module(thread)?;
        let args = &thread.origin.signature.args;
        let ascending = order::is_observed(&module);
        let options = elinvar_spmd::Options {
            group: form.group.to_array(),
            lanes: self.target().lanes(),
            registers: self.target().registers(),
            gathers: self.target().gathers(),
            threadgroup_args: args.iter().map(|arg| arg.kind == ArgKind::Threadgroup).collect(),
            name: thread.origin.signature.name.clone(),
            invariant_bytes: args
                .iter()
                .map(|arg| if is_invariant(arg) { least_bytes(arg) } else { 0 })
                .collect(),
            checks: checked.then(|| args.iter().map(given).collect()),
            stoppable: form.stoppable,
            objects: form.objects,
            ascending,
        };
        let compiled = stage::timed("passes", || elinvar_spmd::compile(&module, &options));
        Ok((compiled.map_err(|error| thread.origin.error(error))?, ascending))
    }

    fn make<T>(
        &self,
        thread: &Arc<Thread>,
        checked: bool,
        form: Form,
        load: &impl Fn(&[u8]) -> Result<T>,
    ) -> Result<(T, Object)> {
        let (compiled, ascending) = self.vectorize(thread, checked, form)?;
        let (loaded, bytes) = self.code(&compiled.ir, load)?;
        let place = |location: Location| format!("{}:{}", location.file, location.line);
        let faults = compiled.faults.into_iter().map(|site| (site.message, site.location.map(place)));
        let (scratch_bytes, checks) = (compiled.scratch_bytes, compiled.checks);
        Ok((loaded, Object { bytes, scratch_bytes, ascending, faults: faults.collect(), checks }))
    }

    /// Machine code for IR text, from the cache or compiled: sources that differ only in names and comments have the same text.
    fn code<T>(&self, ir: &str, load: &impl Fn(&[u8]) -> Result<T>) -> Result<(T, Vec<u8>)> {
        let cache = self.program.cache();
        let key = self.generator.identify(cache.key("code")).text(ir).finish();
        if let Some(found) = cache.load(&key).and_then(|bytes| Some((cached(&bytes, load)?, bytes))) {
            return Ok(found);
        }
        let (loaded, bytes) = self.generator.object_with(ir, load)?;
        cache.store(&key, &bytes);
        Ok((loaded, bytes))
    }
}

/// Loads bytes from the cache; `None` if that fails.
fn cached<T>(bytes: &[u8], load: &impl Fn(&[u8]) -> Result<T>) -> Option<T> {
    load(bytes).inspect_err(|error| tracing::debug!("{error}")).ok()
}
