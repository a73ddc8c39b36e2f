//! The declarations, parsed once: clang's precompiled header, one per clang and math mode.
//!
//! It is taken from the cache, or made and put there, and lies with the headers while these are in use. It
//! names the headers relative to their folder (clang's relocatable form), which differs from process to
//! process, and their sizes but not their times. Without a cache, where none can be made, and where clang
//! refuses it, the declarations are read as text: the result is the same.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elinvar_driver::MathMode;

use crate::headers::Headers;
use crate::process::{self, Limits};
use crate::toolchain::Toolchain;
use crate::{Error, Result, clang, headers, stage};

/// The header for a math mode, if there can be one.
pub(crate) fn header(toolchain: &Toolchain, math: MathMode) -> Result<Option<PathBuf>> {
    if !toolchain.cache.is_on() {
        return Ok(None);
    }
    let headers = toolchain.headers()?;
    let flags = clang::language_flags(math);
    let key =
        flags.iter().fold(toolchain.cache.key("precompiled header"), |key, flag| key.path(Path::new(flag)));
    let key = key.program(toolchain.path()).key(&headers::digest()).finish();
    // Held while the header is made: who needs the same one waits for it.
    let mut known = headers.precompiled();
    if let Some(found) = known.get(&key) {
        return Ok(found.clone());
    }
    let file = headers.root().join(format!("{key}.pch"));
    let kept = stage::timed("header", || {
        let bytes = toolchain.cache.load(&key)?;
        std::fs::write(&file, bytes).ok()
    });
    let made = match kept {
        Some(()) => Some(file),
        None => stage::timed("header", || make(toolchain, headers.root(), &flags, &file))?
            .inspect(|bytes| toolchain.cache.store(&key, bytes))
            .map(|_| file),
    };
    known.insert(key, made.clone());
    Ok(made)
}

/// Have it made; its bytes. `None` when clang does not do that.
fn make(toolchain: &Toolchain, root: &Path, flags: &[OsString], file: &Path) -> Result<Option<Vec<u8>>> {
    let mut command = Command::new(toolchain.path());
    command.args(["-x", "c++-header", "-relocatable-pch", "-Xclang", "-fno-pch-timestamp", "-isysroot"]);
    command.arg(root).args(flags).arg("-o").arg(file).arg(root.join(headers::DECLARATIONS));
    let limits = Limits::from_env().map_err(Error::Io)?;
    let why = match process::run(command.stdin(Stdio::null()), &limits) {
        Ok(finished) if finished.status.success() => match std::fs::read(file) {
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

/// Do without a header that clang has refused.
pub(crate) fn give_up(headers: &Headers, refused: &Path) {
    tracing::debug!("clang refuses the precompiled header");
    for header in headers.precompiled().values_mut().filter(|header| header.as_deref() == Some(refused)) {
        *header = None;
    }
}
