//! The precompiled header of the declarations, one per clang and math mode.
//!
//! It is stored in the headers' directory under the hash of its content, which the cache maps from the key of its inputs; the
//! hash is verified before use. It refers to the headers by relative path (`-relocatable-pch`) and by size, not by time. Without
//! a cache, or when clang cannot build or rejects it, the declarations are parsed as text, with the same result.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elinvar_cache::Key;
use elinvar_driver::{Cancellation, MathMode};

use crate::clang::headers;
use crate::clang::headers::Headers;
use crate::clang::process::{self, Limits};
use crate::clang::scratch::Scratch;
use crate::clang::toolchain::Toolchain;
use crate::{Error, Result, clang, stage};

/// The precompiled header for a math mode; `None` if it cannot be used.
pub(crate) fn header(toolchain: &Toolchain, math: MathMode) -> Result<Option<PathBuf>> {
    let headers = toolchain.headers()?;
    if !headers.is_persistent() {
        return Ok(None);
    }
    let flags = clang::language_flags(math);
    let key =
        flags.iter().fold(toolchain.cache.key("precompiled header"), |key, flag| key.path(Path::new(flag)));
    let key = key.program(toolchain.path()).key(&headers::digest()).finish();
    // Held while the header is built: concurrent users wait for it.
    let mut known = headers.precompiled();
    if let Some(found) = known.get(&key) {
        return Ok(found.clone());
    }
    let name = |content: &Key| format!("{content}.pch");
    let kept = stage::timed("header", || {
        let content = Key::from_bytes(&toolchain.cache.load(&key)?)?;
        let file = headers.root().join(name(&content));
        (Key::of(&std::fs::read(&file).ok()?) == content).then_some(file)
    });
    let made = match kept {
        Some(file) => Some(file),
        None => stage::timed("header", || make(toolchain, headers.root(), &flags))?.and_then(|bytes| {
            let content = Key::of(&bytes);
            let written = headers::write_if_changed(headers.root(), &name(&content), &bytes);
            written.inspect_err(|error| tracing::debug!("no precompiled header: {error}")).ok()?;
            toolchain.cache.store(&key, content.as_bytes());
            Some(headers.root().join(name(&content)))
        }),
    };
    known.insert(key, made.clone());
    Ok(made)
}

/// Build the header; `None` if clang cannot.
fn make(toolchain: &Toolchain, root: &Path, flags: &[OsString]) -> Result<Option<Vec<u8>>> {
    let Ok(folder) = Scratch::new() else { return Ok(None) };
    let file = folder.path().join("all.pch");
    let mut command = Command::new(toolchain.path());
    command.args(["-x", "c++-header", "-relocatable-pch", "-Xclang", "-fno-pch-timestamp", "-isysroot"]);
    command.arg(root).args(flags).arg("-o").arg(&file).arg(root.join(headers::DECLARATIONS));
    let limits = Limits::from_env().map_err(Error::Io)?;
    let why = match Cancellation::shield(|| process::run(command.stdin(Stdio::null()), &limits)) {
        Ok(finished) if finished.status.success() => match std::fs::read(&file) {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) => error.to_string(),
        },
        Ok(finished) => String::from_utf8_lossy(&finished.stderr).into_owned(),
        Err(process::Failure::Start(error)) => error.to_string(),
        Err(process::Failure::Killed(why)) => why,
    };
    tracing::debug!("no precompiled header: {why}");
    Ok(None)
}

/// Stop using a header that clang has rejected.
pub(crate) fn disable(headers: &Headers, refused: &Path) {
    tracing::debug!("clang refuses the precompiled header");
    for header in headers.precompiled().values_mut().filter(|header| header.as_deref() == Some(refused)) {
        *header = None;
    }
}

#[cfg(test)]
mod tests {
    use elinvar_cache::Cache;

    use super::*;

    #[test]
    fn one_is_made_and_then_found() {
        let folder = tempfile::tempdir().unwrap();
        let header = || {
            let cache = Cache::at(folder.path(), 1 << 30, "test");
            header(&Toolchain::find_with(&cache).unwrap(), MathMode::Fast).unwrap().unwrap()
        };
        let made = header();
        let time = std::fs::metadata(&made).unwrap().modified().unwrap();
        assert_eq!(header(), made);
        assert_eq!(std::fs::metadata(&made).unwrap().modified().unwrap(), time);
    }
}
