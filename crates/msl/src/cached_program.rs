//! [`CachedProgram`]: a source checked by the front end, through the cache.
//!
//! The cache is queried in two steps. The key of the source (identity, include folders, options, compiler) maps to the list of files that it
//! included last time. That key and the current content of these files form the key of the source's declarations and of its kernels'
//! code.

use std::path::PathBuf;
use std::sync::Arc;

use elinvar_cache::{Key, KeyBuilder, decode, encode};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Constant, ConstantKey, Diagnostic, FunctionConstant, Scalar, Signature, Source, UnsupportedKernel,
};
use serde::{Deserialize, Serialize};

use crate::clang::InductionVariables;
use crate::optimizer::Emitted;
use crate::preprocess::dependencies::Dependencies;
use crate::program::Specialized;
use crate::{Error, Program, Result, Toolchain, stage};

/// Longest unoptimized IR that is stored, in bytes. Few kernels have longer IR, which would fill most of the cache.
const MAX_EMITTED: usize = 2 << 20;

/// A checked source, compiled on demand. Results come from the toolchain's cache, without a run of clang, or are stored there.
#[derive(Debug)]
pub struct CachedProgram {
    toolchain: Toolchain,
    source: Source,
    declared: Declared,
    /// `None` when nothing of it can be cached.
    identity: Option<Key>,
    /// Created when the cache does not have a kernel's code.
    program: Mutex<Option<Arc<Program>>>,
}

/// What a source declares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// What each kernel takes, in source order.
    pub kernels: Vec<Signature>,
    /// Valid kernels that are not supported, in source order.
    pub unsupported: Vec<UnsupportedKernel>,
    /// The function constants, in source order.
    pub constants: Vec<FunctionConstant>,
    /// Warnings of the compilation.
    pub warnings: Vec<Diagnostic>,
}

impl CachedProgram {
    /// Check a source, or find the result in the cache.
    ///
    /// # Errors
    /// As [`Program::compile`].
    pub fn new(toolchain: &Toolchain, source: &Source) -> Result<Self> {
        let made = |declared, identity, program| Self {
            toolchain: toolchain.clone(),
            source: source.clone(),
            declared,
            identity,
            program: Mutex::new(program),
        };
        if let Some((declared, identity)) = stage::timed("cache", || find(toolchain, source)) {
            return Ok(made(declared, Some(identity), None));
        }
        let program = Program::compile(toolchain, source)?;
        let declared = Declared {
            kernels: program.kernels().to_vec(),
            unsupported: program.unsupported().to_vec(),
            constants: program.constants().to_vec(),
            warnings: program.warnings().to_vec(),
        };
        let identity = keep(toolchain, source, &program, Some(&declared));
        Ok(made(declared, identity, Some(Arc::new(program))))
    }

    /// What the source declares.
    pub fn declared(&self) -> &Declared {
        &self.declared
    }

    /// [`Program::kernels`].
    pub fn kernels(&self) -> &[Signature] {
        &self.declared.kernels
    }

    /// [`Program::unsupported`].
    pub fn unsupported(&self) -> &[UnsupportedKernel] {
        &self.declared.unsupported
    }

    /// [`Program::constants`].
    pub fn constants(&self) -> &[FunctionConstant] {
        &self.declared.constants
    }

    /// [`Program::warnings`].
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.declared.warnings
    }

    /// Begin a key for something that depends on a kernel's code and nothing else of this source. `None` when it cannot be
    /// cached.
    pub fn key(&self, kind: &str, kernel: &str, constants: &[Constant]) -> Option<KeyBuilder> {
        let key = self.toolchain.cache.key(kind).key(self.identity.as_ref()?).text(kernel);
        let key = key.number(constants.len() as u64);
        Some(constants.iter().fold(key, |key, Constant { key: which, scalar, bytes }| {
            let key = match which {
                ConstantKey::Index(index) => key.number(u64::from(*index)),
                ConstantKey::Name(name) => key.text("name").text(name),
            };
            key.text(Scalar::msl_name(*scalar)).bytes(bytes)
        }))
    }

    /// [`Program::specialize`] by way of the cache.
    ///
    /// # Errors
    /// As [`Program::specialize`], and `Io` when an included file has changed meanwhile.
    pub fn specialize(&self, kernel: &str, constants: &[Constant]) -> Result<Specialized> {
        self.specialize_with(kernel, constants, InductionVariables::default())
    }

    /// [`Program::specialize_with`] by way of the cache.
    ///
    /// # Errors
    /// As [`CachedProgram::specialize`].
    pub fn specialize_with(
        &self,
        kernel: &str,
        constants: &[Constant],
        induction_variables: InductionVariables,
    ) -> Result<Specialized> {
        let key = self.ir_key(kernel, constants, induction_variables);
        if let Some(found) = self.cached_ir(key.as_ref()) {
            return Ok(found);
        }
        let emitted = self.emit(kernel, constants)?;
        let made = emitted.optimize(&self.toolchain, induction_variables);
        let made = made.or_else(|why| Err(self.program()?.rejected(kernel, why)))?;
        if let Some(key) = key {
            self.toolchain.cache.store(&key, &encode(&made));
        }
        Ok(made)
    }

    /// [`Program::specialize_all`]. What the cache has is taken from there; what several kernels together are compiled to is not stored,
    /// so that the cache does not depend on which these are.
    pub fn specialize_all(
        &self,
        kernels: &[&str],
        constants: &[Constant],
        induction_variables: InductionVariables,
    ) -> Vec<Result<Specialized>> {
        if let [kernel] = kernels {
            return vec![self.specialize_with(kernel, constants, induction_variables)];
        }
        let cached =
            |kernel: &&str| self.cached_ir(self.ir_key(kernel, constants, induction_variables).as_ref());
        let all: Vec<Option<Specialized>> = kernels.iter().map(cached).collect();
        let missing: Vec<&str> = kernels
            .iter()
            .zip(&all)
            .filter(|(_, found)| found.is_none())
            .map(|(kernel, _)| *kernel)
            .collect();
        let made = match missing.is_empty() {
            true => Vec::new(),
            false => match self.program() {
                Ok(program) => program.specialize_all(&missing, constants, induction_variables),
                Err(error) => missing.iter().map(|_| Err(error.clone())).collect(),
            },
        };
        let mut made = made.into_iter();
        all.into_iter().filter_map(|found| found.map(Ok).or_else(|| made.next())).collect()
    }

    /// [`Program::emit`] by way of the cache: the back ends, which optimize with different options, share it.
    fn emit(&self, kernel: &str, constants: &[Constant]) -> Result<Emitted> {
        let key = self.key("unoptimized ir", kernel, constants).map(KeyBuilder::finish);
        let cached = stage::timed("cache", || decode(&self.toolchain.cache.load(key.as_ref()?)?));
        if let Some(found) = cached {
            return Ok(found);
        }
        let made = self.program()?.emit(kernel, constants)?;
        if let Some(key) = key.filter(|_| made.ir.len() <= MAX_EMITTED) {
            self.toolchain.cache.store(&key, &encode(&made));
        }
        Ok(made)
    }

    fn ir_key(
        &self,
        kernel: &str,
        constants: &[Constant],
        induction_variables: InductionVariables,
    ) -> Option<Key> {
        let key = self.key("ir", kernel, constants)?;
        Some(key.number(u64::from(induction_variables == InductionVariables::AsWritten)).finish())
    }

    fn cached_ir(&self, key: Option<&Key>) -> Option<Specialized> {
        stage::timed("cache", || decode(&self.toolchain.cache.load(key?)?))
    }

    fn program(&self) -> Result<Arc<Program>> {
        let mut program = self.program.lock();
        if let Some(program) = &*program {
            return Ok(program.clone());
        }
        let made = Arc::new(Program::compile(&self.toolchain, &self.source)?);
        if keep(&self.toolchain, &self.source, &made, None) != self.identity {
            let what = "a file that the source includes has changed since the source was compiled";
            return Err(Error::Io(format!("{what}; compile it again")));
        }
        Ok(program.insert(made).clone())
    }
}

/// The cached declarations of a source, and the key of what is compiled from it.
fn find(toolchain: &Toolchain, source: &Source) -> Option<(Declared, Key)> {
    if !toolchain.cache.is_on() {
        return None;
    }
    let key = source_key(toolchain, source);
    let dependencies: Dependencies = decode(&toolchain.cache.load(&key.clone().finish())?)?;
    let identity = dependencies.refresh()?.identity(key);
    let declared = toolchain.cache.load(&identity)?;
    Some((decode(&declared)?, identity))
}

/// Store the dependencies of a source and, if given, what it declares. Returns the key of what is compiled from it, if it can be
/// cached.
fn keep(
    toolchain: &Toolchain,
    source: &Source,
    program: &Program,
    declared: Option<&Declared>,
) -> Option<Key> {
    if !toolchain.cache.is_on() {
        return None;
    }
    let dependencies = program.dependencies()?;
    let key = source_key(toolchain, source);
    let identity = dependencies.identity(key.clone());
    if let Some(declared) = declared {
        toolchain.cache.store(&identity, &encode(declared));
        toolchain.cache.store(&key.finish(), &encode(&dependencies));
    }
    Some(identity)
}

/// The key of a source: its identity, the options that it is checked with, and the compiler.
fn source_key(toolchain: &Toolchain, source: &Source) -> KeyBuilder {
    let Source { include_dirs, include_outside, check_spaces, .. } = source;
    let key = toolchain.cache.key("source").program(toolchain.path()).key(&Key::from(source.identity()));
    let key = include_dirs.iter().fold(key.number(include_dirs.len() as u64), |key, folder| key.path(folder));
    let relative = include_dirs.iter().any(|folder| folder.is_relative());
    let current_dir = if relative { std::env::current_dir().unwrap_or_default() } else { PathBuf::new() };
    key.path(&current_dir).number(u64::from(*check_spaces)).number(u64::from(*include_outside))
}

#[cfg(test)]
mod tests {
    use elinvar_cache::Cache;
    use elinvar_driver::{Access, Arg, ArgKind, Builtin, CodeFacts, ElementType, Severity};

    use super::*;

    const SCALARS: [Scalar; 12] = [
        Scalar::Bool,
        Scalar::I8,
        Scalar::U8,
        Scalar::I16,
        Scalar::U16,
        Scalar::I32,
        Scalar::U32,
        Scalar::I64,
        Scalar::U64,
        Scalar::F16,
        Scalar::BF16,
        Scalar::F32,
    ];
    const KINDS: [ArgKind; 3] = [ArgKind::Pointer, ArgKind::Reference, ArgKind::Threadgroup];

    fn signature() -> Signature {
        let element = |i: usize| match i {
            0..12 => ElementType::Scalar(SCALARS[i]),
            12 => ElementType::Vector { scalar: Scalar::F16, lanes: 3, packed: true },
            13 => ElementType::Atomic(Scalar::U64),
            _ => ElementType::Other("Größe<4>".into()),
        };
        let arg = |i: usize| Arg {
            name: format!("a{i}"),
            kind: KINDS[i % 3],
            index: i as u32 * 100,
            element: element(i),
            element_size: 1 << i,
            element_align: 4,
            access: if i < 7 { Access::Read } else { Access::ReadWrite },
            constant: i > 10,
        };
        Signature {
            name: "k".into(),
            args: (0..15).map(arg).collect(),
            builtins: vec![Builtin { attribute: "thread_position_in_grid".into(), dimensions: 2 }],
            file: "k.metal".into(),
            line: 7,
            max_threads_per_threadgroup: Some(64),
            code: Some(CodeFacts {
                threadgroup_memory: 16,
                barriers: 1,
                grid_barriers: 2,
                divergent_barrier: Some(9),
                spin_wait: Some(11),
                atomics: 300,
                simdgroup: true,
                only_written: 5,
                may_write: 9,
            }),
            logs: Vec::new(),
        }
    }

    fn declared() -> Declared {
        let note = Diagnostic { severity: Severity::Note, ..Diagnostic::error("b", 3, 4, "there") };
        let source_line = Some("x = y".to_owned());
        let error = Diagnostic {
            source_line,
            notes: vec![note],
            ..Diagnostic::error("a.metal", 1, 2, "current_dir")
        };
        let ty = ElementType::Vector { scalar: Scalar::Bool, lanes: 4, packed: false };
        Declared {
            kernels: vec![
                signature(),
                Signature { code: None, max_threads_per_threadgroup: None, ..signature() },
            ],
            unsupported: vec![UnsupportedKernel { name: "takes_a_texture".into(), reason: error.clone() }],
            constants: vec![FunctionConstant { name: "ns::c".into(), index: 65535, ty }],
            warnings: vec![Diagnostic { severity: Severity::Warning, ..error }],
        }
    }

    fn expect_record<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
        let record = encode(value);
        assert_eq!(decode::<T>(&record).as_ref(), Some(value));
        assert!((0..record.len()).all(|end| decode::<T>(&record[..end]).is_none()), "cut short");
        assert_eq!(decode::<T>(&[&record[..], &[0]].concat()), None, "longer");
    }

    const SHARED: &str = "#include <metal_stdlib>
        using namespace metal;
        constant uint N [[function_constant(0)]];
        uint deep(uint n) { return n < 2 ? n : deep(n - 1) + deep(n - 2); }
        kernel void sums(device uint* x, device uint* y [[function_constant(N)]], uint i [[thread_position_in_grid]]) {
            uint sum = 0;
            for (int k = 0; k < int(N); ++k) sum += x[k + int(i)];
            x[i] = sum;
        }
        kernel void recursive(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = deep(x[i]); }";
    const WIDTHS: [InductionVariables; 2] = [InductionVariables::Widened, InductionVariables::AsWritten];

    #[test]
    fn back_ends_share_what_clang_emits() {
        let folder = tempfile::tempdir().unwrap();
        let toolchain = Toolchain::find_with(&Cache::at(folder.path(), 1 << 30, "test")).unwrap();
        let source = Source::named("shared.metal", SHARED);
        let open = || CachedProgram::new(&toolchain, &source).unwrap();
        // The first kernel of a program; metadata of later ones has other numbers.
        let whole = || Program::compile(&toolchain, &source).unwrap();
        for n in [7_u32, 0] {
            let constants =
                [Constant { key: 0.into(), scalar: Scalar::U32, bytes: n.to_ne_bytes().to_vec() }];
            let programs = WIDTHS.map(|width| {
                let (program, direct) = (open(), whole().specialize_with("sums", &constants, width).unwrap());
                assert_eq!(
                    program.specialize_with("sums", &constants, width).unwrap(),
                    direct,
                    "{n} {width:?}"
                );
                assert_eq!(direct.signature.args.len(), if n == 0 { 1 } else { 2 });
                program
            });
            let compiled = programs.map(|program| program.program.lock().is_some());
            assert_eq!(compiled, [true, false], "the second finds what the first has emitted");
        }
        for kernel in ["sums", "recursive"] {
            let found =
                WIDTHS.map(|width| open().specialize_with(kernel, &[], width).unwrap_err().to_string());
            let direct = whole().specialize(kernel, &[]).unwrap_err().to_string();
            assert_eq!(found, [direct.clone(), direct], "{kernel}");
        }
    }

    #[test]
    fn what_a_source_declares_is_a_record() {
        expect_record(&declared());
    }

    #[test]
    fn a_specialized_kernel_is_a_record() {
        expect_record(&Specialized { ir: "define void @k()".into(), signature: signature() });
    }

    #[test]
    fn notes_within_notes_do_not_exhaust_the_stack() {
        // An error without place, text or source line, and so many levels of one note.
        let nested = |levels| [[0, 0, 0, 0, 0, 0, 1].repeat(levels), vec![0; 7]].concat();
        let read = |levels| decode::<Diagnostic>(&nested(levels));
        assert!(read(15).is_some_and(|d| d.notes[0].notes[0].notes.len() == 1));
        assert_eq!(read(16), None);
        assert_eq!(read(1 << 20), None);
        assert!(read(15).is_some(), "what failed leaves nothing behind");
    }
}
