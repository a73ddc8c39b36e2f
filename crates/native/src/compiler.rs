//! [`Compiler`]: a source and the machine code of its kernels.
//!
//! The source is validated when the compiler is created, a kernel's IR is generated when its signature is first requested, and machine
//! code when it is requested for a form. Each of the three is looked up in the cache first, and a hit makes the earlier steps
//! unnecessary: if machine code is cached, no IR is read.

use std::sync::Arc;

use elinvar_cache::{Cache, Key, decode, encode};
use elinvar_code::{
    Declared, Program, Thread, Verdict, check_group, given, is_invariant, least_bytes, max_threads,
};
use elinvar_driver::{ArgKind, Dim3, PipelineOptions, Result, Signature, Source, Tier};
use elinvar_ir::Location;
use elinvar_msl::{InductionVariables, stage};
use elinvar_spmd::{Compiled, GroupSize, LineSize, SizeBound};

use crate::generate::{Generator, Level, MachineCode};
use crate::object::Object;
use crate::order;
use crate::specialization::{Sizes, Specialization};
use crate::target::Target;
use crate::tiers::Tiers;

/// Parameters for which a kernel's machine code is specialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Size of a full threadgroup in threads; `None` for general code, which takes it as a value.
    pub group: Option<Dim3>,
    /// Whether loops poll for a request to stop, which is slower.
    pub stoppable: bool,
    /// Upper bound of the sizes of all buffers.
    pub objects: SizeBound,
}

/// A kernel's code, loaded.
pub struct Loaded<T> {
    /// What the caller's function has made of the shared object.
    pub loaded: T,
    /// The code.
    pub object: Object,
    /// Whether the code is to be replaced by optimized code.
    pub optimizable: bool,
}

/// A validated source.
pub struct Compiler {
    program: Program,
    generator: Generator,
    tiers: Tiers,
    sizes: Sizes,
}

impl Compiler {
    /// Validates a source with the installed clang, or with a result from the cache.
    ///
    /// # Errors
    /// `Compile` with the diagnostics; `Environment` if there is no clang.
    pub fn new(cache: &Cache, source: &Source, target: Target) -> Result<Self> {
        let program = Program::new(cache, source, InductionVariables::Widened)?;
        let generator = Generator::new(program.clang(), target);
        Ok(Self { program, generator, tiers: Tiers::from_env()?, sizes: Sizes::from_env()? })
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

    /// When a kernel's code is specialized for a threadgroup size.
    pub fn specialization(&self, options: &PipelineOptions) -> Specialization {
        self.sizes.of(self.tiers.of(options))
    }

    /// The machine code of a kernel, from the cache or compiled.
    ///
    /// # Errors
    /// As [`Compiler::signature`]; `InvalidArgument` for a threadgroup with more threads than [`elinvar_code::max_threads`];
    /// `Unsupported` for general code of a kernel that has none ([`Object::row_sizes`]); `Environment` if clang or the linker fails.
    pub fn kernel(&self, name: &str, options: &PipelineOptions, form: Form) -> Result<Object> {
        Ok(self.kernel_with(name, options, form, |_| Ok(()))?.object)
    }

    /// As [`Compiler::kernel`], and loads the shared object with `load`. If loading an object from the cache fails, the kernel is
    /// compiled again.
    ///
    /// With [`Tier::Adaptive`], the code is not optimized if optimization would take long and the cache has no optimized code.
    /// [`Loaded::optimizable`] tells this.
    ///
    /// # Errors
    /// As [`Compiler::kernel`] and `load`.
    pub fn kernel_with<T>(
        &self,
        name: &str,
        options: &PipelineOptions,
        form: Form,
        load: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<Loaded<T>> {
        let thread = self.program.thread(name, &options.constants)?;
        check_form(&thread.origin.signature, form)?;
        let tier = self.tiers.of(options);
        let keys =
            [self.target().level(), Level::O0].map(|level| self.key("object", name, options, form, level));
        let [optimized, quick] = &keys;
        let kept = |key: &Option<Key>| {
            let object: Object = decode(&self.program.cache().load(key.as_ref()?)?)?;
            Some((cached(&object.bytes, &load)?, object))
        };
        let kept = || match tier {
            Tier::Optimized => kept(optimized).map(|found| (found, false)),
            Tier::Quick => kept(quick).map(|found| (found, false)),
            Tier::Adaptive => {
                let found = kept(optimized).map(|found| (found, false));
                found.or_else(|| Some((kept(quick)?, true)))
            }
        };
        if let Some(((loaded, object), optimizable)) = stage::timed("cache", kept) {
            return Ok(Loaded { loaded, object, optimizable });
        }
        let (compiled, ascending) = self.vectorize(&thread, options.checked, form)?;
        let is_costly = compiled.ir.len() >= self.tiers.costly && self.target().level() != Level::O0;
        let optimizable = tier == Tier::Adaptive && is_costly;
        let (level, key) = match optimizable || tier == Tier::Quick {
            true => (Level::O0, quick),
            false => (self.target().level(), optimized),
        };
        let (loaded, code) = self.code(&compiled.ir, level, &load)?;
        let object = object(compiled, code, ascending);
        if let Some(key) = key {
            self.program.cache().store(key, &encode(&object));
        }
        Ok(Loaded { loaded, object, optimizable })
    }

    fn key(
        &self,
        kind: &str,
        name: &str,
        options: &PipelineOptions,
        form: Form,
        level: Level,
    ) -> Option<Key> {
        let key = self.program.key(kind, name, &options.constants)?;
        let key = form
            .group
            .map_or([0; 3], Dim3::to_array)
            .into_iter()
            .fold(key, |key, threads| key.number(u64::from(threads)));
        let objects = u64::from(form.objects.number());
        let flags = u64::from(options.checked) | u64::from(form.stoppable) << 1 | objects << 2;
        Some(self.generator.identify(key.number(flags), level).finish())
    }

    /// Runs all passes before code generation of several kernels, for the threadgroup sizes of [`elinvar_code::check_sizes`]. Verdicts are in
    /// the order of the kernels.
    pub fn check(&self, kernels: &[&str], options: &PipelineOptions) -> Vec<Verdict> {
        let form = Form { group: None, stoppable: false, objects: SizeBound::DEFAULT };
        let key = |name: &str| self.key("checked", name, options, form, self.target().level());
        self.program.check(kernels, &options.constants, key, |thread, group| {
            self.vectorize(thread, options.checked, Form { group: Some(group), ..form }).map(drop)
        })
    }

    /// The LLVM IR of a kernel's vectorized function over whole threadgroups, the input of clang.
    ///
    /// # Errors
    /// As [`Compiler::kernel`].
    pub fn vector_ir(&self, name: &str, options: &PipelineOptions, form: Form) -> Result<String> {
        let thread = self.program.thread(name, &options.constants)?;
        check_form(&thread.origin.signature, form)?;
        Ok(self.vectorize(&thread, options.checked, form)?.0.ir)
    }

    /// The size of a kernel's code by source line.
    ///
    /// # Errors
    /// As [`Compiler::kernel`].
    pub fn line_sizes(&self, name: &str, options: &PipelineOptions, form: Form) -> Result<Vec<LineSize>> {
        let thread = self.program.thread(name, &options.constants)?;
        check_form(&thread.origin.signature, form)?;
        let module = self.program.module(&thread)?;
        let options = self.options(&thread, &module, options.checked, form);
        elinvar_spmd::line_sizes(&module, &options).map_err(|error| thread.origin.error(error))
    }

    /// A kernel's assembly.
    ///
    /// # Errors
    /// As [`Compiler::kernel`].
    pub fn assembly(&self, name: &str, options: &PipelineOptions, form: Form) -> Result<String> {
        self.generator.assembly(&self.vector_ir(name, options, form)?)
    }

    /// Size in bytes of the values of a threadgroup's threads that live across barriers; with grid barriers, static threadgroup memory as well. Generates no
    /// machine code.
    ///
    /// # Errors
    /// As [`Compiler::kernel`], apart from those of clang and the linker.
    pub fn live_bytes(&self, name: &str, options: &PipelineOptions, form: Form) -> Result<u64> {
        let thread = self.program.thread(name, &options.constants)?;
        check_form(&thread.origin.signature, form)?;
        Ok(self.vectorize(&thread, options.checked, form)?.0.scratch_bytes)
    }

    /// Vectorizes a kernel. Also returns whether threadgroups must start in ascending order.
    fn vectorize(&self, thread: &Arc<Thread>, checked: bool, form: Form) -> Result<(Compiled, bool)> {
        let module = self.program.module(thread)?;
        let options = self.options(thread, &module, checked, form);
        let compiled = stage::timed("passes", || elinvar_spmd::compile(&module, &options));
        Ok((compiled.map_err(|error| thread.origin.error(error))?, options.ascending))
    }

    fn options(
        &self,
        thread: &Thread,
        module: &elinvar_ir::Module,
        checked: bool,
        form: Form,
    ) -> elinvar_spmd::Options {
        let args = &thread.origin.signature.args;
        elinvar_spmd::Options {
            group: match form.group {
                Some(group) => GroupSize::Static(group.to_array()),
                None => GroupSize::Dynamic(max_threads(&thread.origin.signature)),
            },
            lanes: self.target().lanes(),
            registers: self.target().registers(),
            gathers: self.target().gathers(),
            half_arithmetic: self.target().half_arithmetic(),
            scalef: self.target().scalef(),
            threadgroup_args: args.iter().map(|arg| arg.kind == ArgKind::Threadgroup).collect(),
            name: thread.origin.signature.name.clone(),
            invariant_bytes: args
                .iter()
                .map(|arg| if is_invariant(arg) { least_bytes(arg) } else { 0 })
                .collect(),
            checks: checked.then(|| args.iter().map(given).collect()),
            stoppable: form.stoppable,
            objects: form.objects,
            ascending: order::is_observed(module),
        }
    }

    /// Machine code for IR text, from the cache or compiled: sources that differ only in names and comments have the same text.
    fn code<T>(
        &self,
        ir: &str,
        level: Level,
        load: &impl Fn(&[u8]) -> Result<T>,
    ) -> Result<(T, MachineCode)> {
        let cache = self.program.cache();
        let key = self.generator.identify(cache.key("code"), level).text(ir).finish();
        let kept = || {
            let code: MachineCode = decode(&cache.load(&key)?)?;
            Some((cached(&code.bytes, load)?, code))
        };
        if let Some(found) = kept() {
            return Ok(found);
        }
        let (loaded, code) = self.generator.object_with(ir, level, load)?;
        cache.store(&key, &encode(&code));
        Ok((loaded, code))
    }
}

/// Rejects a form with a threadgroup that is empty or too large.
pub(crate) fn check_form(signature: &Signature, form: Form) -> Result<()> {
    form.group.map_or(Ok(()), |group| check_group(signature, group))
}

fn object(compiled: Compiled, code: MachineCode, ascending: bool) -> Object {
    let place = |location: Location| format!("{}:{}", location.file, location.line);
    let faults = compiled.faults.into_iter().map(|site| (site.message, site.location.map(place))).collect();
    let Compiled { scratch_bytes, private_counters, cooperative, checks, row_sizes, .. } = compiled;
    let MachineCode { bytes, optimized } = code;
    Object {
        bytes,
        optimized,
        scratch_bytes,
        ascending,
        private_counters,
        cooperative,
        faults,
        checks,
        row_sizes,
    }
}

/// Loads bytes from the cache; `None` if that fails.
fn cached<T>(bytes: &[u8], load: &impl Fn(&[u8]) -> Result<T>) -> Option<T> {
    load(bytes).inspect_err(|error| tracing::debug!("{error}")).ok()
}
