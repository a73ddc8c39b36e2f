//! [`Compiler`]: compiles the kernels of a source to PTX.

use elinvar_cache::{Cache, Key, decode, encode};
use elinvar_code::{Declared, Program, Thread, Verdict, given, is_invariant};
use elinvar_driver::{Arg, ArgKind, Dim3, MathMode, PipelineOptions, Result, Signature, Source};
use elinvar_msl::{InductionVariables, stage};
use elinvar_spmd::bounds::Checks;
use elinvar_spmd::nvptx::{self, Argument, Parameter, Prepared};
use serde::{Deserialize, Serialize};

use crate::generate::Generator;
use crate::target::Target;

/// Maximum size of `constant` arguments passed by value, in bytes: of the 4096 bytes of all parameters (CUDA C++ Programming
/// Guide), the rest is for the others.
const MOST_VALUES: u64 = 3584;

/// Passing of `constant T&` arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Constants {
    /// By value among the parameters, in the constant bank: for launches that bind bytes to them, the
    /// common case. The first 3584 bytes; further arguments are passed as addresses.
    #[default]
    Values,
    /// As addresses: for launches that bind a buffer to one of them.
    Addresses,
}

/// A kernel as PTX, with everything that a launch needs.
///
/// The calling convention is that of [`elinvar_spmd::nvptx`]: the parameters in order, each aligned to its size, dynamic shared
/// memory of [`Ptx::dynamic_base`] bytes followed by that of the threadgroup arguments, blocks of the size of a full
/// threadgroup, and one block for each threadgroup of the grid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ptx {
    /// The PTX text of a module.
    pub text: String,
    /// Name of its entry.
    pub entry: String,
    /// Minimum compute capability.
    pub target: Target,
    /// Signature of the kernel, with [`Signature::code`].
    pub signature: Signature,
    /// The entry's parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Static shared memory in bytes.
    pub static_bytes: u64,
    /// Bytes at the start of dynamic shared memory for the kernel's own variables; a multiple of 16.
    pub dynamic_base: u64,
    /// Meaning of a fault record, with bounds checks; [`elinvar_code::Bounds`] formats it.
    pub checks: Option<Checks>,
}

impl Ptx {
    /// Whether a launch that binds a buffer to a `constant T&` needs the variant with [`Constants::Addresses`].
    pub fn takes_values(&self) -> bool {
        let is_value = |p: &Parameter| matches!(p, Parameter::Argument(_, Argument::Value { .. }));
        self.parameters.iter().any(is_value)
    }
}

/// A validated source.
pub struct Compiler {
    program: Program,
    generator: Generator,
}

impl Compiler {
    /// Validates a source with the installed clang, through a cache.
    ///
    /// # Errors
    /// `Compile` with the diagnostics; `Environment` if there is no clang.
    pub fn new(cache: &Cache, source: &Source, target: Target) -> Result<Self> {
        let program = Program::new(cache, source, InductionVariables::AsWritten)?;
        let generator = Generator::new(program.clang(), target);
        Ok(Self { program, generator })
    }

    /// Declarations of the source.
    pub fn declared(&self) -> &Declared {
        self.program.declared()
    }

    pub(crate) fn target(&self) -> Target {
        self.generator.target()
    }

    pub(crate) fn source(&self) -> &Source {
        self.program.source()
    }

    /// The LLVM IR of one thread of a kernel, as the front end emits it.
    ///
    /// # Errors
    /// As [`Compiler::kernel`].
    pub fn ir(&self, name: &str, options: &PipelineOptions) -> Result<String> {
        self.program.ir(name, &options.constants)
    }

    /// The PTX of a kernel, from the cache or compiled.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such kernel or constant; `Compile`; `Unsupported` with the source line;
    /// `Environment` if clang fails.
    pub fn kernel(&self, name: &str, options: &PipelineOptions, constants: Constants) -> Result<Ptx> {
        let key = self.key("ptx", name, options, constants, 0);
        let found = || decode(&self.program.cache().load(key.as_ref()?)?);
        if let Some(found) = stage::timed("cache", found) {
            return Ok(found);
        }
        let thread = self.program.thread(name, &options.constants)?;
        let made = self.make(&thread, options, constants)?;
        if let Some(key) = &key {
            self.program.cache().store(key, &encode(&made));
        }
        Ok(made)
    }

    /// A kernel's signature, with [`Signature::code`].
    ///
    /// # Errors
    /// As [`Compiler::kernel`].
    pub fn signature(&self, name: &str, options: &PipelineOptions) -> Result<Signature> {
        Ok(self.program.thread(name, &options.constants)?.origin.signature.clone())
    }

    /// Runs all passes before code generation of several kernels, for the threadgroup sizes of [`elinvar_code::check_sizes`]. Verdicts are in
    /// the order of the kernels.
    pub fn check(&self, kernels: &[&str], options: &PipelineOptions, constants: Constants) -> Vec<Verdict> {
        let key = |name: &str| self.key("ptx checked", name, options, constants, 0);
        self.program.check(kernels, &options.constants, key, |thread, group| {
            self.prepare(thread, options, constants)?;
            self.check_group_of(thread, group)
        })
    }

    /// Rejects a threadgroup size with which some threads reach a barrier and others provably do not.
    ///
    /// # Errors
    /// `Compile` with the barrier and the branch, and as [`Compiler::kernel`].
    pub fn check_group(&self, name: &str, options: &PipelineOptions, group: Dim3) -> Result<()> {
        let thread = self.program.thread(name, &options.constants)?;
        self.check_group_of(&thread, group)
    }

    fn check_group_of(&self, thread: &Thread, group: Dim3) -> Result<()> {
        // Without barriers the code need not be parsed.
        if thread.origin.signature.code.is_some_and(|code| code.barriers == 0) {
            return Ok(());
        }
        let module = self.program.module(thread)?;
        nvptx::check_group(&module, group.to_array()).map_err(|error| thread.origin.error(error))
    }

    fn key(
        &self,
        kind: &str,
        name: &str,
        options: &PipelineOptions,
        constants: Constants,
        threads: u32,
    ) -> Option<Key> {
        let key = self.program.key(kind, name, &options.constants)?.number(u64::from(threads));
        let flags = u64::from(options.checked) | u64::from(constants == Constants::Addresses) << 1;
        Some(self.generator.identify(key.number(flags)).finish())
    }

    fn make(&self, thread: &Thread, options: &PipelineOptions, constants: Constants) -> Result<Ptx> {
        let Prepared { ir, parameters, static_bytes, dynamic_base, checks } =
            self.prepare(thread, options, constants)?;
        let text = self.generator.ptx(&ir, self.is_approximate())?;
        let (target, signature) = (self.generator.target(), thread.origin.signature.clone());
        let entry = identifier(&signature.name);
        Ok(Ptx { text, entry, target, signature, parameters, static_bytes, dynamic_base, checks })
    }

    fn prepare(&self, thread: &Thread, options: &PipelineOptions, constants: Constants) -> Result<Prepared> {
        let (origin, module) = (&thread.origin, self.program.module(thread)?);
        let signature = &origin.signature;
        let prepared = nvptx::Options {
            name: identifier(&signature.name),
            arguments: arguments(&signature.args, constants),
            approximate: self.is_approximate(),
            max_threads: signature.max_threads_per_threadgroup,
            checks: options.checked.then(|| signature.args.iter().map(given).collect()),
            tensor_products: self.target().has_wgmma(),
        };
        let prepared = stage::timed("passes", || nvptx::prepare(&module, &prepared));
        prepared.map_err(|error| origin.error(error))
    }

    fn is_approximate(&self) -> bool {
        self.source().math != MathMode::Safe
    }
}

/// Passing of each argument.
fn arguments(args: &[Arg], constants: Constants) -> Vec<Argument> {
    let mut values = 0;
    let of = |arg: &Arg| match arg.kind {
        ArgKind::Threadgroup => Argument::Threadgroup,
        ArgKind::Reference if is_invariant(arg) && constants == Constants::Values => {
            let (bytes, align) = (arg.element_size, arg.element_align.max(1));
            let end = u64::next_multiple_of(values, align) + bytes;
            if bytes == 0 || end > MOST_VALUES {
                return Argument::Pointer { constant: true };
            }
            values = end;
            Argument::Value { bytes, align }
        }
        ArgKind::Reference | ArgKind::Pointer => Argument::Pointer { constant: is_invariant(arg) },
    };
    args.iter().map(of).collect()
}

/// A kernel's name as an identifier of PTX.
fn identifier(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("elinvar_{}", name.chars().map(letter).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_a_record() {
        let arguments = [
            Argument::Pointer { constant: true },
            Argument::Pointer { constant: false },
            Argument::Value { bytes: 12, align: 4 },
            Argument::Threadgroup,
        ];
        let mut parameters: Vec<Parameter> = arguments
            .iter()
            .enumerate()
            .map(|(index, argument)| Parameter::Argument(index, *argument))
            .collect();
        parameters.extend([
            Parameter::Threads(2),
            Parameter::Extent,
            Parameter::Linear(1),
            Parameter::Record,
            Parameter::Bytes(3),
        ]);
        let signature = Signature {
            name: "k".into(),
            args: Vec::new(),
            builtins: Vec::new(),
            file: "k.metal".into(),
            line: 1,
            max_threads_per_threadgroup: None,
            code: None,
            logs: Vec::new(),
        };
        let ptx = Ptx {
            text: ".version 7.8".into(),
            entry: "k".into(),
            target: Default::default(),
            signature,
            parameters,
            static_bytes: 64,
            dynamic_base: 16,
            checks: Some(Checks::default()),
        };
        let record = encode(&ptx);
        assert_eq!(decode(&record), Some(ptx));
        assert!((0..record.len()).all(|end| decode::<Ptx>(&record[..end]).is_none()));
    }

    #[test]
    fn a_record_for_a_target_that_is_not_known_is_none() {
        let target = |name: &str| decode::<Target>(&encode(name));
        assert_eq!(target("sm_90"), Some(Target::default()));
        assert_eq!([target("sm_87"), target("x")], [None, None]);
    }
}
