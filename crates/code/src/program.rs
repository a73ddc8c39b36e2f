//! A checked source and the code of one thread of its kernels: what every compiler behind the front end begins with.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elinvar_cache::{Cache, KeyBuilder, decode, encode};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{Constant, Result, Source};
use elinvar_ir::Module;
use elinvar_msl::{CachedProgram, Declared, InductionVariables, Specialized, Toolchain};

use crate::Origin;

/// A kernel's name, and the function constants that it is specialized with.
type Key = (String, Vec<Constant>);

/// A source that has passed all checks.
pub struct Program {
    checked: CachedProgram,
    clang: PathBuf,
    cache: Cache,
    source: Arc<Source>,
    induction_variables: InductionVariables,
    threads: Mutex<HashMap<Key, Arc<Thread>>>,
}

/// The code of one thread of a kernel, read when it is first needed.
pub struct Thread {
    /// The kernel's signature, with facts about its code, and its source.
    pub origin: Origin,
    constants: Vec<Constant>,
    module: Mutex<Option<Arc<Module>>>,
}

impl Program {
    /// Check a source in full, with the clang that is found, by way of a cache.
    ///
    /// # Errors
    /// `Compile` with the diagnostics; `Environment` when there is no clang.
    pub fn new(cache: &Cache, source: &Source, induction_variables: InductionVariables) -> Result<Self> {
        let toolchain = Toolchain::find_with(cache)?;
        let checked = CachedProgram::new(&toolchain, source)?;
        let (clang, source) = (toolchain.path().to_owned(), Arc::new(source.clone()));
        Ok(Self {
            checked,
            clang,
            cache: cache.clone(),
            source,
            induction_variables,
            threads: Mutex::default(),
        })
    }

    /// What the source declares.
    pub fn declared(&self) -> &Declared {
        self.checked.declared()
    }

    /// The source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The clang that it was checked with.
    pub fn clang(&self) -> &Path {
        &self.clang
    }

    /// The cache for what is compiled from it.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Begin a key of something that depends on a kernel's code and nothing else of this source. `None` when nothing of it can be
    /// cached.
    pub fn key(&self, kind: &str, kernel: &str, constants: &[Constant]) -> Option<KeyBuilder> {
        self.checked.key(kind, kernel, constants)
    }

    /// The code of one thread of a kernel with these function constants. Its signature may come from the cache, without the code.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such kernel or constant; as the front end and [`Origin::facts`].
    pub fn thread(&self, name: &str, constants: &[Constant]) -> Result<Arc<Thread>> {
        let place = (name.to_owned(), constants.to_vec());
        if let Some(thread) = self.threads.lock().get(&place) {
            return Ok(thread.clone());
        }
        // Not under the lock: of two threads that make the same one, the second drops its own.
        let made = Arc::new(self.make(name, constants)?);
        Ok(self.threads.lock().entry(place).or_insert(made).clone())
    }

    /// The LLVM IR of one thread of a kernel with these function constants, optimized, as the front end gives it.
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
                let Specialized { ir, signature } =
                    self.checked.specialize_with(name, constants, self.induction_variables)?;
                let origin = Origin { signature, source: self.source.clone() };
                let module = origin.parse(&ir)?;
                let code = origin.facts(&module)?;
                let signature = origin.signature.with_code(code);
                if let Some(key) = &key {
                    self.cache.store(key, &encode(&signature));
                }
                (signature, Some(Arc::new(module)))
            }
        };
        let origin = Origin { signature, source: self.source.clone() };
        Ok(Thread { origin, constants: constants.to_vec(), module: Mutex::new(module) })
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
