//! Elinvar's own front end, which provides more information about kernels than Metal's reflection.
//!
//! It needs clang, which a Mac may not have; then only the reflection is available.

use elinvar_cache::{Cache, KeyBuilder, decode, encode};
use elinvar_driver::{CodeFacts, Constant, Result, Signature, Source};
use elinvar_ir::Module;
use elinvar_msl::{CachedProgram, Toolchain};

use crate::steering::{self, steering};

/// Checks a source.
pub(crate) fn check(cache: &Cache, source: &Source) -> elinvar_msl::Result<CachedProgram> {
    CachedProgram::new(&Toolchain::find_with(cache)?, source)
}

/// The signature of a kernel with these function constants and facts about its code, if they can be determined; and the arguments that it
/// steers by.
pub(crate) fn signature(
    cache: &Cache,
    checked: &CachedProgram,
    name: &str,
    constants: &[Constant],
) -> Result<(Signature, u64)> {
    let key = checked.key("metal signature and steering", name, constants).map(KeyBuilder::finish);
    let cached = key.as_ref().and_then(|key| decode(&cache.load(key)?));
    if let Some(known) = cached {
        return Ok(known);
    }
    let specialized = checked.specialize(name, constants)?;
    let module = Module::parse(&specialized.ir).ok();
    let signature = match module.as_ref().and_then(facts) {
        Some(code) => specialized.signature.with_code(code),
        None => specialized.signature,
    };
    let known = (signature, module.as_ref().map_or(steering::ALL, steering));
    if let Some(key) = &key {
        cache.store(key, &encode(&known));
    }
    Ok(known)
}

fn facts(module: &Module) -> Option<CodeFacts> {
    let facts = elinvar_spmd::facts(module).ok()?;
    Some(CodeFacts {
        threadgroup_memory: facts.threadgroup_memory,
        barriers: facts.barriers,
        grid_barriers: facts.grid_barriers,
        divergent_barrier: None,
        spin_wait: None,
        atomics: facts.atomics,
        simdgroup: facts.simdgroup,
        only_written: facts.only_written,
        may_write: facts.may_write,
    })
}
