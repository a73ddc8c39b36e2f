//! A source that has passed all checks, in this process or in an earlier one.
//!
//! Two steps lead from a source to what the cache has of it. Under the key of the source (its text, defines,
//! folders, math mode, and the compiler's identity) lies the list of the files that it included last time.
//! The contents of these files now, with that key, are the source's *identity*; under keys made from it lie
//! what its kernels take and the code of each.

use std::path::PathBuf;
use std::sync::Arc;

use elinvar_cache::{Key, KeyBuilder, Reader, Writer};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Constant, ConstantKey, Diagnostic, FunctionConstant, MathMode, Scalar, Signature, Source,
    UnsupportedKernel,
};

use crate::clang::Counters;
use crate::preprocess::dependencies::Included;
use crate::program::Specialized;
use crate::{Error, Program, Result, Toolchain, record, stage};

/// What a source has, compiled as far as it is asked for. What the toolchain's cache has is taken from it,
/// without a run of clang; what it has not is put there.
#[derive(Debug)]
pub struct Checked {
    toolchain: Toolchain,
    source: Source,
    facts: Facts,
    /// `None` when nothing of it can be kept.
    identity: Option<Key>,
    /// Made when code is asked for that the cache has not.
    program: Mutex<Option<Arc<Program>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    kernels: Vec<Signature>,
    unsupported: Vec<UnsupportedKernel>,
    constants: Vec<FunctionConstant>,
    warnings: Vec<Diagnostic>,
}

impl Checked {
    /// Check a source in full, unless that was done before.
    ///
    /// # Errors
    /// As [`Program::compile`].
    pub fn new(toolchain: &Toolchain, source: &Source) -> Result<Self> {
        let made = |facts, identity, program| Self {
            toolchain: toolchain.clone(),
            source: source.clone(),
            facts,
            identity,
            program: Mutex::new(program),
        };
        if let Some((facts, identity)) = stage::timed("cache", || find(toolchain, source)) {
            return Ok(made(facts, Some(identity), None));
        }
        let program = Program::compile(toolchain, source)?;
        let facts = Facts {
            kernels: program.kernels().to_vec(),
            unsupported: program.unsupported().to_vec(),
            constants: program.constants().to_vec(),
            warnings: program.warnings().to_vec(),
        };
        let identity = keep(toolchain, source, &program, Some(&facts));
        Ok(made(facts, identity, Some(Arc::new(program))))
    }

    /// [`Program::kernels`].
    pub fn kernels(&self) -> &[Signature] {
        &self.facts.kernels
    }

    /// [`Program::unsupported`].
    pub fn unsupported(&self) -> &[UnsupportedKernel] {
        &self.facts.unsupported
    }

    /// [`Program::constants`].
    pub fn constants(&self) -> &[FunctionConstant] {
        &self.facts.constants
    }

    /// [`Program::warnings`].
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.facts.warnings
    }

    /// Begin a key of something that depends on a kernel's code and nothing else of this source. `None` when
    /// nothing of it can be kept.
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

    /// [`Program::specialize`], unless that was done before.
    ///
    /// # Errors
    /// As [`Program::specialize`], and `Io` when a file that the source includes has changed meanwhile.
    pub fn specialize(&self, kernel: &str, constants: &[Constant]) -> Result<Specialized> {
        self.specialize_with(kernel, constants, Counters::default())
    }

    /// [`Program::specialize_with`], unless that was done before.
    ///
    /// # Errors
    /// As [`Checked::specialize`].
    pub fn specialize_with(
        &self,
        kernel: &str,
        constants: &[Constant],
        counters: Counters,
    ) -> Result<Specialized> {
        let key = self.key("ir", kernel, constants);
        let key = key.map(|key| key.number(u64::from(counters == Counters::AsWritten)).finish());
        let found = || read_specialized(&self.toolchain.cache.load(key.as_ref()?)?);
        if let Some(found) = stage::timed("cache", found) {
            return Ok(found);
        }
        let made = self.program()?.specialize_with(kernel, constants, counters)?;
        if let Some(key) = key {
            self.toolchain.cache.store(&key, &write_specialized(&made));
        }
        Ok(made)
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

/// What the cache has of a source, and the source's identity.
fn find(toolchain: &Toolchain, source: &Source) -> Option<(Facts, Key)> {
    if !toolchain.cache.is_on() {
        return None;
    }
    let key = source_key(toolchain, source);
    let list = toolchain.cache.load(&key.clone().finish())?;
    let mut r = Reader::new(&list);
    let included = Included::read(&mut r)?;
    let identity = r.end(included)?.now()?.identity(key);
    let facts = toolchain.cache.load(&identity)?;
    Some((read_facts(&facts)?, identity))
}

/// Keep what a source has included and, when given, what there is in it. The source's identity, if that can be.
fn keep(toolchain: &Toolchain, source: &Source, program: &Program, facts: Option<&Facts>) -> Option<Key> {
    if !toolchain.cache.is_on() {
        return None;
    }
    let included = program.included()?;
    let key = source_key(toolchain, source);
    let identity = included.identity(key.clone());
    if let Some(facts) = facts {
        toolchain.cache.store(&identity, &write_facts(facts));
        let mut w = Writer::new();
        included.write(&mut w);
        toolchain.cache.store(&key.finish(), &w.finish());
    }
    Some(identity)
}

/// All that a source says itself, and the compiler.
fn source_key(toolchain: &Toolchain, source: &Source) -> KeyBuilder {
    let Source {
        pieces,
        include_dirs,
        include_outside,
        defines,
        math,
        check_spaces,
        packed: _,
        metal_library: _,
    } = source;
    let key = toolchain.cache.key("source").program(toolchain.path()).number(pieces.len() as u64);
    let key = pieces.iter().fold(key, |key, piece| key.text(&piece.name).text(&piece.text));
    let key = defines.iter().fold(key.number(defines.len() as u64), |key, (name, value)| match value {
        Some(value) => key.text(name).text("=").text(value),
        None => key.text(name).text(""),
    });
    let key = include_dirs.iter().fold(key, |key, folder| key.path(folder));
    let relative = include_dirs.iter().any(|folder| folder.is_relative());
    let here = if relative { std::env::current_dir().unwrap_or_default() } else { PathBuf::new() };
    let key = key.path(&here).text(match math {
        MathMode::Safe => "safe",
        MathMode::Relaxed => "relaxed",
        MathMode::Fast => "fast",
    });
    key.number(u64::from(*check_spaces)).number(u64::from(*include_outside))
}

fn write_facts(Facts { kernels, unsupported, constants, warnings }: &Facts) -> Vec<u8> {
    let mut w = Writer::new();
    w.list(kernels, record::write_signature);
    w.list(unsupported, record::write_unsupported);
    w.list(constants, record::write_constant);
    w.list(warnings, record::write_diagnostic);
    w.finish()
}

fn read_facts(bytes: &[u8]) -> Option<Facts> {
    let mut r = Reader::new(bytes);
    let facts = Facts {
        kernels: r.list(record::read_signature)?,
        unsupported: r.list(record::read_unsupported)?,
        constants: r.list(record::read_constant)?,
        warnings: r.list(record::read_diagnostic)?,
    };
    r.end(facts)
}

fn write_specialized(Specialized { ir, signature }: &Specialized) -> Vec<u8> {
    let mut w = Writer::new();
    w.text(ir);
    record::write_signature(&mut w, signature);
    w.finish()
}

fn read_specialized(bytes: &[u8]) -> Option<Specialized> {
    let mut r = Reader::new(bytes);
    let specialized = Specialized { ir: r.text()?, signature: record::read_signature(&mut r)? };
    r.end(specialized)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_specialized_kernel_is_read_again() {
        let signature = Signature {
            name: "k".into(),
            args: Vec::new(),
            builtins: Vec::new(),
            file: "k.metal".into(),
            line: 7,
            max_threads_per_threadgroup: Some(64),
            code: None,
        };
        let written =
            write_specialized(&Specialized { ir: "define void @k()".into(), signature: signature.clone() });
        let read = read_specialized(&written).unwrap();
        assert_eq!((read.ir.as_str(), read.signature), ("define void @k()", signature));
        assert!((0..written.len()).all(|end| read_specialized(&written[..end]).is_none()));
    }
}
