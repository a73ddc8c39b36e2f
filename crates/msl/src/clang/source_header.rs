//! Precompiled headers of a rewritten source, from which its kernels' entries are compiled.
//!
//! Parsing a source and instantiating its templates takes longer than emitting one kernel. The first kernel is compiled with the
//! source as text; the second has the source precompiled, with its instantiations, and it and later ones read from that only what
//! they use. There is one header per values of function constants, which the text defines.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elinvar_driver::MathMode;
use elinvar_driver::sync::Mutex;

use crate::clang;
use crate::clang::headers::Headers;
use crate::clang::scratch::Scratch;
use crate::clang::toolchain::Toolchain;
use crate::{Error, Result, stage};

/// Most headers that one source has at a time; each takes a few megabytes in the temporary directory.
const MAX_HEADERS: usize = 4;

/// A precompiled header in a temporary directory, which is removed with it.
#[derive(Debug)]
pub(crate) struct SourceHeader {
    folder: Scratch,
    /// The declarations, to which it refers.
    _headers: Arc<Headers>,
}

impl SourceHeader {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("source.pch")
    }
}

#[derive(Debug)]
enum State {
    /// One kernel was compiled without a header.
    Seen,
    /// `None` if clang could not make it.
    Made(Option<Arc<SourceHeader>>),
}

/// The headers of a source, by the definitions of its function constants.
#[derive(Debug, Default)]
pub(crate) struct SourceHeaders(Mutex<VecDeque<(String, State)>>);

impl SourceHeaders {
    /// The header for these definitions; `None` for their first kernel, or if it cannot be made.
    ///
    /// # Errors
    /// `Io` when the headers or temporary files cannot be written.
    pub(crate) fn get(
        &self,
        definitions: &str,
        make: impl FnOnce() -> Result<Option<SourceHeader>>,
    ) -> Result<Option<Arc<SourceHeader>>> {
        // Held while the header is made: concurrent users wait for it.
        let mut known = self.0.lock();
        let Some(index) = known.iter().position(|(of, _)| of == definitions) else {
            known.truncate(MAX_HEADERS - 1);
            known.push_front((definitions.to_owned(), State::Seen));
            return Ok(None);
        };
        let state = &mut known[index].1;
        if let State::Made(header) = state {
            return Ok(header.clone());
        }
        let made = make()?.map(Arc::new);
        *state = State::Made(made.clone());
        Ok(made)
    }
}

/// Precompile a source's rewritten text, without entries; `None` if clang cannot.
pub(crate) fn make(toolchain: &Toolchain, math: MathMode, text: &str) -> Result<Option<SourceHeader>> {
    let headers = toolchain.headers()?;
    let declarations = clang::declarations(toolchain, math, &headers)?;
    let made = SourceHeader { folder: clang::scratch(&[])?, _headers: headers.clone() };
    let mut args: Vec<OsString> = vec!["-x".into(), "c++-header".into()];
    args.extend(clang::language_flags(math));
    args.extend(
        ["-fpch-instantiate-templates", "-Xclang", "-fno-diagnostics-use-presumed-location"]
            .map(OsString::from),
    );
    args.extend(declarations);
    args.extend(["-o".into(), made.path().into(), "-".into()]);
    let run = || clang::run_in_headers_dir(toolchain, &args, text);
    match stage::timed("precompile", run) {
        Ok(output) if output.success => Ok(Some(made)),
        Ok(output) => {
            tracing::debug!("no precompiled source: {}", output.stderr);
            Ok(None)
        }
        Err(Error::Clang { detail, .. }) => {
            tracing::debug!("no precompiled source: {detail}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Compile entries with a source's precompiled header.
pub(crate) fn compile(
    toolchain: &Toolchain,
    flags: &[OsString],
    header: &Path,
    entries: &str,
) -> Result<clang::Output> {
    let headers = toolchain.headers()?;
    let include: [OsString; 4] =
        ["-isysroot".into(), headers.root().into(), "-include-pch".into(), header.into()];
    clang::run_in_headers_dir(toolchain, &[flags, &include, &["-".into()]].concat(), entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_kernel_makes_a_header_and_later_ones_use_it() {
        let headers = SourceHeaders::default();
        let mut made = 0;
        let mut get = |definitions: &str| {
            let make = || {
                made += 1;
                let headers = Toolchain::find().unwrap().headers()?;
                Ok(Some(SourceHeader { folder: clang::scratch(&[])?, _headers: headers }))
            };
            let path = headers.get(definitions, make).unwrap().map(|header| header.path());
            (path, made)
        };
        let count = |(path, made): (Option<PathBuf>, usize)| (path.is_some(), made);
        assert_eq!(count(get("a")), (false, 0));
        let (first, made) = get("a");
        assert!(first.is_some() && made == 1);
        assert_eq!(get("a"), (first, 1));
        // Others take its place.
        for i in 0..MAX_HEADERS {
            assert_eq!(count(get(&i.to_string())), (false, 1));
        }
        assert_eq!(count(get("a")), (false, 1));
        assert_eq!(count(get("a")), (true, 2));
    }

    #[test]
    fn what_clang_cannot_precompile_is_compiled_as_text() {
        let toolchain = Toolchain::find().unwrap();
        assert!(make(&toolchain, MathMode::Fast, "int x = ;").unwrap().is_none());
        assert!(make(&toolchain, MathMode::Fast, "int x = 1;").unwrap().is_some_and(|h| h.path().is_file()));
    }
}
