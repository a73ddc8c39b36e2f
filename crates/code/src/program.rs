//! A validated source and the code of one thread of its kernels: the input of both back ends.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elinvar_cache::{Cache, Key as CacheKey, KeyBuilder, decode, encode};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{Constant, Dim3, Error, Result, Signature, Source};
use elinvar_ir::Module;
use elinvar_msl::{CachedProgram, Declared, InductionVariables, Specialized, Toolchain, stage};

use crate::{Origin, max_threads};

/// Threads of a simdgroup.
const SIMDGROUP: u32 = 32;

/// Kernel name and values of function constants.
type Key = (String, Vec<Constant>);

/// A validated source.
pub struct Program {
    checked: CachedProgram,
    clang: PathBuf,
    cache: Cache,
    source: Arc<Source>,
    induction_variables: InductionVariables,
    threads: Mutex<HashMap<Key, Arc<Thread>>>,
}

/// The code of one thread of a kernel, parsed on first use.
pub struct Thread {
    /// The kernel's signature, with facts about its code, and its source.
    pub origin: Origin,
    constants: Vec<Constant>,
    module: Mutex<Option<Arc<Module>>>,
}

/// Whether a kernel was accepted for threadgroups of two simdgroups, or of one.
pub type Verdict = Result<Accepted, Rejected>;

/// A kernel that was accepted.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The kernel's signature.
    pub signature: Signature,
    /// Why it was rejected for threadgroups of two simdgroups, if it was.
    pub beyond_one_simdgroup: Option<Error>,
}

/// Why a kernel was rejected.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The kernel's signature, if the front end accepted it.
    pub signature: Option<Box<Signature>>,
    /// The error.
    pub error: Error,
}

/// Checks a kernel for threadgroups of two simdgroups, since some kernels are rejected only then. If it is rejected, or allows fewer threads,
/// it is checked for one simdgroup, as it may be meant for one.
pub fn check_sizes(signature: &Signature, check: impl Fn(Dim3) -> Result<()>) -> Verdict {
    let most = max_threads(signature);
    let accepted = |beyond_one_simdgroup| Ok(Accepted { signature: signature.clone(), beyond_one_simdgroup });
    let beyond = match most >= 2 * SIMDGROUP {
        true => match check(Dim3::from(2 * SIMDGROUP)) {
            Ok(()) => return accepted(None),
            Err(error) => Some(error),
        },
        false => None,
    };
    match check(Dim3::from(most.min(SIMDGROUP))) {
        Ok(()) => accepted(beyond),
        Err(error) => Err(Rejected { signature: Some(Box::new(signature.clone())), error }),
    }
}

impl Program {
    /// Validates a source with the installed clang, through a cache.
    ///
    /// # Errors
    /// `Compile` with the diagnostics; `Environment` if there is no clang.
    pub fn new(cache: &Cache, source: &Source, induction_variables: InductionVariables) -> Result<Self> {
        let toolchain = Toolchain::find_with(cache)?;
        let source = Arc::new(source.linked()?.into_owned());
        let checked = CachedProgram::new(&toolchain, &source)?;
        let clang = toolchain.path().to_owned();
        Ok(Self {
            checked,
            clang,
            cache: cache.clone(),
            source,
            induction_variables,
            threads: Mutex::default(),
        })
    }

    /// Declarations of the source.
    pub fn declared(&self) -> &Declared {
        self.checked.declared()
    }

    /// The source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The clang with which it was validated.
    pub fn clang(&self) -> &Path {
        &self.clang
    }

    /// The cache for its compiled code.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Begins a cache key for a value that depends on a kernel's code only. `None` if the source cannot be
    /// cached.
    pub fn key(&self, kind: &str, kernel: &str, constants: &[Constant]) -> Option<KeyBuilder> {
        self.checked.key(kind, kernel, constants)
    }

    /// The code of one thread of a kernel with these function constants. Its signature may come from the cache, without the code.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such kernel or constant; as the front end and [`Origin::facts`].
    pub fn thread(&self, name: &str, constants: &[Constant]) -> Result<Arc<Thread>> {
        let place = (name.to_owned(), constants.to_vec());
        if let Some(thread) = self.threads.lock().get(&place) {
            return Ok(thread.clone());
        }
        // Without the lock: if two threads create the same one, the second drops its own.
        let made = Arc::new(self.make(name, constants)?);
        Ok(self.threads.lock().entry(place).or_insert(made).clone())
    }

    /// The optimized LLVM IR of one thread of a kernel with these function constants, as the front end emits it.
    ///
    /// # Errors
    /// As the front end.
    pub fn ir(&self, name: &str, constants: &[Constant]) -> Result<String> {
        Ok(self.checked.specialize_with(name, constants, self.induction_variables)?.ir)
    }

    fn make(&self, name: &str, constants: &[Constant]) -> Result<Thread> {
        let kind = match self.induction_variables {
            InductionVariables::Widened => "kernel",
            InductionVariables::AsWritten => "kernel, induction variables as written",
        };
        let key = self.checked.key(kind, name, constants).map(KeyBuilder::finish);
        let cached = key.as_ref().and_then(|key| decode(&self.cache.load(key)?));
        let (signature, module) = match cached {
            Some(signature) => (signature, None),
            None => {
                let (signature, module) =
                    self.read(self.checked.specialize_with(name, constants, self.induction_variables)?)?;
                if let Some(key) = &key {
                    self.cache.store(key, &encode(&signature));
                }
                (signature, Some(module))
            }
        };
        Ok(self.assemble(signature, constants, module))
    }

    /// The signature of a kernel, with facts about its code, and the code.
    fn read(&self, Specialized { ir, signature }: Specialized) -> Result<(Signature, Arc<Module>)> {
        let origin = Origin { signature, source: self.source.clone() };
        let module = origin.parse(&ir)?;
        let code = origin.facts(&module)?;
        let logs = origin.logs(&module)?;
        Ok((Signature { logs, ..origin.signature.with_code(code) }, Arc::new(module)))
    }

    fn assemble(&self, signature: Signature, constants: &[Constant], module: Option<Arc<Module>>) -> Thread {
        let origin = Origin { signature, source: self.source.clone() };
        Thread { origin, constants: constants.to_vec(), module: Mutex::new(module) }
    }

    /// Checks kernels with these function constants, in their order. Those whose verdicts the cache does not have under their keys are
    /// compiled together. `check` accepts or rejects a threadgroup size.
    pub fn check(
        &self,
        kernels: &[&str],
        constants: &[Constant],
        key: impl Fn(&str) -> Option<CacheKey>,
        check: impl Fn(&Arc<Thread>, Dim3) -> Result<()>,
    ) -> Vec<Verdict> {
        let keys: Vec<_> = kernels.iter().map(|kernel| key(kernel)).collect();
        let incomplete = |why| Rejected { signature: None, error: Error::InvalidArgument(why) };
        let cached = |key: &Option<CacheKey>| -> Option<Result<Signature, String>> {
            decode(&self.cache.load(key.as_ref()?)?)
        };
        let mut verdicts: Vec<Option<Verdict>> = stage::timed("cache", || {
            let verdict = |cached: Result<Signature, String>| match cached {
                Ok(signature) => Ok(Accepted { signature, beyond_one_simdgroup: None }),
                Err(why) => Err(incomplete(why)),
            };
            keys.iter().map(|key| cached(key).map(verdict)).collect()
        });
        let missing: Vec<usize> = (0..kernels.len()).filter(|at| verdicts[*at].is_none()).collect();
        let names: Vec<&str> = missing.iter().map(|at| kernels[*at]).collect();
        let specialized = self.checked.specialize_all(&names, constants, self.induction_variables);
        for (at, specialized) in missing.into_iter().zip(specialized) {
            let verdict = self.verdict(specialized, constants, &check);
            let record = match &verdict {
                Ok(Accepted { signature, beyond_one_simdgroup: None }) => {
                    Some(encode(&Ok::<_, String>(signature)))
                }
                Err(Rejected { error: Error::InvalidArgument(why), .. }) => {
                    Some(encode(&Err::<Signature, _>(why)))
                }
                Ok(_) | Err(_) => None,
            };
            if let (Some(key), Some(record)) = (&keys[at], record) {
                self.cache.store(key, &record);
            }
            verdicts[at] = Some(verdict);
        }
        verdicts.into_iter().flatten().collect()
    }

    fn verdict(
        &self,
        specialized: Result<Specialized, elinvar_msl::Error>,
        constants: &[Constant],
        check: &impl Fn(&Arc<Thread>, Dim3) -> Result<()>,
    ) -> Verdict {
        let read = specialized.map_err(Error::from).and_then(|specialized| self.read(specialized));
        let (signature, module) = read.map_err(|error| Rejected { signature: None, error })?;
        let thread = Arc::new(self.assemble(signature, constants, Some(module)));
        check_sizes(&thread.origin.signature, |group| check(&thread, group))
    }

    /// The IR of a thread's code.
    ///
    /// # Errors
    /// As the front end and [`Origin::parse`].
    pub fn module(&self, thread: &Thread) -> Result<Arc<Module>> {
        let mut module = thread.module.lock();
        if let Some(module) = &*module {
            return Ok(module.clone());
        }
        let (name, constants) = (&thread.origin.signature.name, &thread.constants);
        let specialized = self.checked.specialize_with(name, constants, self.induction_variables)?;
        Ok(module.insert(Arc::new(thread.origin.parse(&specialized.ir)?)).clone())
    }
}
