//! Preprocessing: `clang -E` over the source's files as one text.
//!
//! With a cache, a source that includes files other than Elinvar's headers is preprocessed twice: over the include directories, to learn
//! which files it may include, and over a snapshot of these files. The second output is compiled; it depends on the snapshot alone. Output that
//! depends on anything else (the time, `__has_include`, files that keep changing) is compiled and not cached.

pub(crate) mod dependencies;
mod output;
pub(crate) mod source_map;
pub(crate) mod vfs;

use std::ffi::OsString;

use elinvar_driver::{Diagnostic, Severity, Source};

use self::dependencies::Dependencies;
use self::output::{NONDETERMINISTIC, NONDETERMINISTIC_MACROS, PreprocessorOutput};
use self::source_map::SourceMap;
use self::vfs::{FileSnapshot, MAIN_FILE, PREDEFINED, SearchPaths};
use crate::clang::headers::Headers;
use crate::clang::scratch::Scratch;
use crate::clang::toolchain::Toolchain;
use crate::{Error, Result, clang, diagnostics, stage};

/// How often to retry when files change meanwhile.
const ATTEMPTS: usize = 3;

/// A preprocessed source.
pub(crate) struct Preprocessed {
    pub source_map: SourceMap,
    /// Warnings of the preprocessor.
    pub warnings: Vec<Diagnostic>,
    /// All files that the text depends on; `None` if it depends on anything else.
    pub dependencies: Option<Dependencies>,
}

/// Preprocess a source.
pub(crate) fn run(toolchain: &Toolchain, source: &Source) -> Result<Preprocessed> {
    let headers = toolchain.headers()?;
    let folders = SearchPaths::of(source, &headers)?;
    let stage = Preprocessor { toolchain, source, headers: &headers, folders: &folders };
    stage::timed("preprocess", || stage.run())
}

struct Preprocessor<'a> {
    toolchain: &'a Toolchain,
    source: &'a Source,
    headers: &'a Headers,
    folders: &'a SearchPaths,
}

/// Input of a run of `clang -E`.
#[derive(Clone, Copy)]
struct ExpansionMode<'a> {
    /// `None`: the include directories.
    snapshot: Option<&'a FileSnapshot>,
    /// Whether nondeterministic macros expand to a marker.
    poison: bool,
    /// Whether `#embed` stays a directive.
    keep_embeds: bool,
}

/// A run of `clang -E`.
struct Run {
    output: clang::Output,
    expansion: PreprocessorOutput,
    utf8: bool,
}

impl Run {
    fn is_clean(&self) -> bool {
        self.output.success && self.utf8 && self.expansion.stray_directive.is_none()
    }

    /// Whether the expansion may depend on more than files and text.
    fn is_nondeterministic(&self) -> bool {
        let directive = |word: &&str| self.output.stderr.contains(*word);
        !self.output.success
            || self.expansion.text.contains(NONDETERMINISTIC)
            || [NONDETERMINISTIC].iter().chain(&NONDETERMINISTIC_MACROS).any(directive)
    }
}

impl Preprocessor<'_> {
    fn run(&self) -> Result<Preprocessed> {
        let keep = self.toolchain.cache.is_on();
        for _ in 0..ATTEMPTS {
            let first = self.expand(ExpansionMode { snapshot: None, poison: keep, keep_embeds: true })?;
            self.reject_links(&first.expansion)?;
            if !keep && !first.expansion.has_embed {
                return self.finish(first, None);
            }
            if !keep || first.is_nondeterministic() || !first.is_clean() {
                break;
            }
            let places = self.folders.lookup_candidates(self.source, &first.expansion);
            let Some(snapshot) = FileSnapshot::of(self.folders, &places) else { break };
            let mut included_files = first.expansion.included_files.iter();
            if snapshot.present.is_empty() && included_files.all(|name| self.is_own(name)) {
                return self.finish(first, Some(&snapshot));
            }
            let mut mode = ExpansionMode { snapshot: Some(&snapshot), poison: true, keep_embeds: true };
            let mut second = self.expand(mode)?;
            let known = snapshot.covers(&self.folders.lookup_candidates(self.source, &second.expansion));
            if second.is_clean() && second.expansion.has_embed {
                mode.keep_embeds = false;
                second = self.expand(mode)?;
            }
            if known && second.is_clean() && !second.is_nondeterministic() {
                return self.finish(second, Some(&snapshot));
            }
        }
        let last = self.expand(ExpansionMode { snapshot: None, poison: false, keep_embeds: false })?;
        self.reject_links(&last.expansion)?;
        self.finish(last, None)
    }

    fn expand(&self, mode: ExpansionMode) -> Result<Run> {
        let cannot = |e: std::io::Error| Error::Io(format!("cannot write to a temporary folder: {e}"));
        let folder = Scratch::new().map_err(cannot)?;
        let overlay = match mode.snapshot {
            Some(snapshot) => snapshot.overlay(self.headers, folder.path()).map_err(cannot)?,
            None => self.folders.overlay(self.headers),
        };
        let file = folder.path().join(clang::OVERLAY);
        std::fs::write(&file, overlay).map_err(cannot)?;
        let mut args = clang::preprocess_flags(self.headers, self.source);
        args.extend(["-ivfsoverlay".into(), file.into(), OsString::from("-dI")]);
        if mode.keep_embeds {
            args.extend(["-Xclang", "-dE"].map(OsString::from));
        }
        if mode.poison {
            let define =
                |name: &str| [format!("-U{name}").into(), format!("-D{name}=\"{NONDETERMINISTIC}\"").into()];
            // Before the source's own definitions.
            args.splice(0..0, NONDETERMINISTIC_MACROS.iter().flat_map(|name| define(name)));
        }
        args.push(MAIN_FILE.into());
        let output = clang::run_in(folder, self.toolchain, &args, &join(self.source))?;
        let (text, utf8) = match str::from_utf8(&output.stdout) {
            Ok(text) => (text, true),
            Err(error) => (str::from_utf8(&output.stdout[..error.valid_up_to()]).unwrap_or_default(), false),
        };
        let expansion = PreprocessorOutput::parse(text);
        Ok(Run { output, expansion, utf8 })
    }

    /// Reject files outside the include directories that were reached by a symbolic link, and paths with `..` that the overlay
    /// resolves differently from the disk.
    fn reject_links(&self, expansion: &PreprocessorOutput) -> Result<()> {
        let places = self.folders.lookup_candidates(self.source, expansion);
        let included_files =
            expansion.included_files.iter().map(|name| self.folders.virtual_path(name.as_ref()));
        let included_files: Vec<_> = included_files.collect();
        for place in places {
            if self.folders.is_denied(&place) && (expansion.has_embed || included_files.contains(&place)) {
                let message = format!(
                    "`{}` is a symbolic link to a file outside the include directories",
                    place.display()
                );
                return Err(self.rejected(message));
            }
        }
        let parent_paths = self.folders.parent_paths(self.source, expansion);
        if let Some(path) = self.folders.first_mismatch(&parent_paths) {
            let message = format!(
                "`{}`: the directory before `..` is a symbolic link or does not exist; include the file by a path without `..`",
                path.display()
            );
            return Err(self.rejected(message));
        }
        Ok(())
    }

    fn rejected(&self, message: String) -> Error {
        let file = self.source.files.first().map(|file| file.name.clone()).unwrap_or_default();
        Error::Compile(vec![Diagnostic::error(file, 0, 0, message)])
    }

    /// Whether a file is one of Elinvar's.
    fn is_own(&self, file: &str) -> bool {
        file == PREDEFINED || std::path::Path::new(file).starts_with(self.headers.root())
    }

    fn finish(&self, run: Run, snapshot: Option<&FileSnapshot>) -> Result<Preprocessed> {
        let Run { output, expansion, utf8 } = run;
        let parent_paths = self.folders.parent_paths(self.source, &expansion);
        let included_files: Vec<String> = expansion.included_files.iter().cloned().collect();
        let texts = included_files.into_iter().filter_map(|name| {
            let text = match snapshot {
                Some(snapshot) => snapshot.text(&self.folders.virtual_path(name.as_ref()))?.to_owned(),
                None => std::fs::read_to_string(self.folders.find(&name)?).ok()?,
            };
            Some((name, text))
        });
        let source_map = SourceMap::new(self.source, expansion.text, texts.collect());
        if !utf8 {
            let (file, line) = source_map.last_line();
            return Err(Error::Compile(vec![Diagnostic::error(file, line, 0, "the file is not UTF-8")]));
        }
        let messages = diagnostics::parse_with_files(&output.stderr, source_map.files());
        let place = |m: &diagnostics::ClangDiagnostic| {
            (!self.is_own(&m.file)).then(|| diagnostics::source_location(&source_map, m))
        };
        let found = diagnostics::resolve(messages, &place);
        if found.iter().any(|d| d.severity == Severity::Error) {
            return Err(Error::Compile(found));
        }
        if !output.success {
            return Err(output.unexplained_failure());
        }
        if let Some(at) = expansion.stray_directive {
            let p = source_map.location(at);
            let message = "a macro expands to a line that begins with `#`; macros cannot produce directives";
            let error = Diagnostic::error(p.file, p.line, p.column, message);
            return Err(Error::Compile(vec![Diagnostic { source_line: p.source_line, ..error }]));
        }
        Ok(Preprocessed {
            source_map,
            warnings: found,
            dependencies: snapshot.and_then(|snapshot| Dependencies::of(snapshot, parent_paths)),
        })
    }
}

/// The files concatenated, each behind a `#line` directive.
fn join(source: &Source) -> String {
    let mut text = String::new();
    for file in &source.files {
        text.push_str(&format!(
            "#line 1 \"{}\"\n{}\n",
            escape(&file.name),
            file.text.trim_start_matches('\u{feff}')
        ));
    }
    text
}

/// A file name as it stands in a string literal.
pub(crate) fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sources_that_include_files_are_preprocessed_twice() {
        let folder = tempfile::tempdir().unwrap();
        let [clang, runs, header] = ["clang", "runs", "a.h"].map(|name| folder.path().join(name));
        // A child writes the script: no other child inherits a descriptor open for writing, with which it could not be executed.
        let mut write = std::process::Command::new("sh");
        write.args([
            "-c",
            r#"printf '#!/bin/sh\necho >> "%s"\nexec "%s" "$@"\n' "$1" "$2" > "$0" && chmod 755 "$0""#,
        ]);
        let found = Toolchain::find().unwrap();
        assert!(write.arg(&clang).arg(&runs).arg(found.path()).status().unwrap().success());
        std::fs::write(header, "").unwrap();
        let mut toolchain = Toolchain::find_in(Some(clang.as_os_str()), std::ffi::OsStr::new("")).unwrap();
        let cached = elinvar_cache::Cache::at(&folder.path().join("cache"), 1 << 30, "test");
        for (cache, text, expected) in [
            (elinvar_cache::Cache::off(), "#include \"a.h\"", 1),
            (cached.clone(), "#include <metal_stdlib>", 1),
            (cached, "#include \"a.h\"", 2),
        ] {
            toolchain.cache = cache;
            std::fs::write(&runs, "").unwrap();
            run(&toolchain, &Source::msl(text).include_dir(folder.path())).unwrap();
            assert_eq!(std::fs::read(&runs).unwrap().len(), expected, "{text}");
        }
    }

    #[test]
    fn files_have_their_own_lines() {
        let mut source = Source::named("a \"b\".metal", "int a;");
        source.files.push(elinvar_driver::SourceFile { name: "c".into(), text: "int c;\n".into() });
        assert_eq!(join(&source), "#line 1 \"a \\\"b\\\".metal\"\nint a;\n#line 1 \"c\"\nint c;\n\n");
    }
}
