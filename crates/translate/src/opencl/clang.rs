//! Runs clang on OpenCL C: `-E` to preprocess, `-ast-dump=json` for the tree, and a check of the original text for diagnostics.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elinvar_driver::{Diagnostic, Severity, Source};
use elinvar_msl::Toolchain;
use elinvar_msl::process::{Failure, Limits, run};
use elinvar_msl::scratch::Scratch;

use super::text::Text;
use crate::{Error, Result};

/// The main file in the scratch folder.
const MAIN: &str = "main.cl";
/// The preprocessed text in the scratch folder.
pub(super) const TEXT: &str = "text.cl";

/// The language: OpenCL C 1.2 with a 64-bit `size_t`, without `double`, images and 64-bit atomics, with `half`.
const LANGUAGE: &[&str] = &[
    "-x",
    "cl",
    "-cl-std=CL1.2",
    "--target=spir64-unknown-unknown",
    "-Xclang",
    "-cl-ext=-cl_khr_fp64,-cl_khr_int64_base_atomics,-cl_khr_int64_extended_atomics,-cl_khr_3d_image_writes,+cl_khr_fp16",
    "-U__IMAGE_SUPPORT__",
    "-fno-color-diagnostics",
];

/// Largest tree in bytes of JSON.
const MAX_TREE: u64 = 2 << 30;

/// How clang is told the language.
pub(crate) struct Language {
    /// Options for all runs.
    pub options: Vec<String>,
    /// Further options of the run that preprocesses.
    pub preprocess: Vec<String>,
    /// Names of the source and of the preprocessed text in the scratch folder.
    pub files: [&'static str; 2],
    /// Headers that are written to a folder of this name, which is searched first.
    pub headers: Option<(&'static str, &'static [(&'static str, &'static str)])>,
    /// Whether headers that are not found are empty, and errors do not end the translation.
    pub skip_host: bool,
    /// Text behind the source's, with the name of its file.
    pub appendix: Option<(&'static str, String)>,
}

/// The tree of preprocessed text.
pub(crate) struct Tree {
    /// clang's JSON.
    pub json: Vec<u8>,
    /// Errors with their offsets in the text, where they do not end the translation.
    pub errors: Vec<(usize, String)>,
}

/// Headers that are empty, below the scratch folder: deep enough that `../` stays inside.
const MISSING: &str = "missing/1/2/3/4";
/// Most headers that are not found.
const MAX_MISSING: usize = 500;

impl Language {
    fn opencl() -> Self {
        Self {
            options: LANGUAGE.iter().map(|option| (*option).to_owned()).collect(),
            preprocess: vec!["-cl-no-stdinc".into()],
            files: [MAIN, TEXT],
            headers: None,
            skip_host: false,
            appendix: None,
        }
    }
}

/// A source under translation.
pub(crate) struct Clang<'a> {
    language: Language,
    toolchain: &'a Toolchain,
    source: &'a Source,
    scratch: Scratch,
    limits: Limits,
}

impl<'a> Clang<'a> {
    pub fn new(toolchain: &'a Toolchain, source: &'a Source) -> Result<Self> {
        Self::of(Language::opencl(), toolchain, source)
    }

    pub fn of(mut language: Language, toolchain: &'a Toolchain, source: &'a Source) -> Result<Self> {
        let io = |error: std::io::Error| Error::Environment(error.to_string());
        let scratch = Scratch::new().map_err(io)?;
        let mut text = String::new();
        for file in &source.files {
            let name = file.name.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ");
            text.push_str(&format!("#line 1 \"{name}\"\n{}\n", file.text.trim_start_matches('\u{feff}')));
        }
        if let Some((name, appendix)) = &language.appendix {
            text.push_str(&format!("#line 1 \"{name}\"\n{appendix}\n"));
        }
        std::fs::write(scratch.path().join(language.files[0]), text).map_err(io)?;
        if let Some((folder, headers)) = language.headers {
            let folder = scratch.path().join(folder);
            std::fs::create_dir(&folder).map_err(io)?;
            for (name, text) in headers {
                let file = folder.join(name);
                std::fs::create_dir_all(file.parent().unwrap_or(&folder)).map_err(io)?;
                std::fs::write(file, text).map_err(io)?;
            }
            language.preprocess.extend(["-isystem".into(), folder.display().to_string()]);
        }
        if language.skip_host {
            let folder = scratch.path().join(MISSING);
            std::fs::create_dir_all(&folder).map_err(io)?;
            language.preprocess.extend(["-idirafter".into(), folder.display().to_string()]);
        }
        let mut limits = Limits::from_env().map_err(Error::Environment)?;
        limits.stdout = MAX_TREE;
        Ok(Self { language, toolchain, source, scratch, limits })
    }

    /// Path of the preprocessed text, as clang writes it in the tree.
    pub fn text_path(&self) -> String {
        self.scratch.path().join(self.language.files[1]).display().to_string()
    }

    /// The preprocessed text.
    pub fn preprocess(&self) -> Result<Text> {
        let mut arguments = vec!["-E".to_owned(), "-C".into()];
        arguments.extend(self.language.preprocess.iter().cloned());
        arguments.extend(self.macros());
        let mut output = self.run(&arguments, self.language.files[0])?;
        let mut skipped = 0;
        while self.language.skip_host && skipped < MAX_MISSING && self.skip_header(&output.stderr)? {
            skipped += 1;
            output = self.run(&arguments, self.language.files[0])?;
        }
        let errors = diagnostics(&output.stderr);
        if !output.status.success() {
            return Err(failed(errors, &output.stderr));
        }
        let stdout = String::from_utf8_lossy(&output.stdout);
        let mut text = if self.language.headers.is_some() { Text::of(&stdout) } else { Text::new(&stdout) };
        let main = self.scratch.path().join(self.language.files[0]);
        self.expect_inside(&text.files, &main)?;
        text.files.iter_mut().for_each(|name| shorten(name, self.scratch.path()));
        Ok(text)
    }

    /// Writes an empty header for the one that clang has not found; whether there was one.
    fn skip_header(&self, stderr: &[u8]) -> Result<bool> {
        let errors = diagnostics(stderr);
        let missing = errors.iter().find_map(|error| {
            let name = error.message.strip_prefix('\'')?.strip_suffix("' file not found")?;
            let up = name.split('/').filter(|part| *part == "..").count();
            (up <= 4 && !name.starts_with('/') && !name.is_empty()).then_some(name)
        });
        let Some(name) = missing else { return Ok(false) };
        let io = |error: std::io::Error| Error::Environment(format!("header `{name}`: {error}"));
        let file = self.scratch.path().join(MISSING).join(name);
        let is_new = !file.exists();
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        std::fs::write(&file, "").map_err(io)?;
        Ok(is_new)
    }

    /// The tree of preprocessed text.
    pub fn tree(&self, text: &str) -> Result<Tree> {
        let written = std::fs::write(self.scratch.path().join(self.language.files[1]), text);
        written.map_err(|error| Error::Environment(error.to_string()))?;
        let mut arguments = ["-fsyntax-only", "-Xclang", "-ast-dump=json", "-w"].map(str::to_owned).to_vec();
        if self.language.skip_host {
            arguments.push("-ferror-limit=0".into());
        }
        let output = self.run(&arguments, self.language.files[1])?;
        if output.status.success() {
            return Ok(Tree { json: output.stdout, errors: Vec::new() });
        }
        if self.language.skip_host && !output.stdout.is_empty() {
            let starts: Vec<usize> =
                std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
            let offset = |error: Diagnostic| {
                let start = starts.get((error.line as usize).checked_sub(1)?)?;
                Some((start + (error.column as usize).saturating_sub(1), error.message))
            };
            let errors = diagnostics(&output.stderr).into_iter().filter_map(offset).collect();
            return Ok(Tree { json: output.stdout, errors });
        }
        // The same errors, at the places in the user's files.
        let mut arguments = vec!["-fsyntax-only".to_owned(), "-w".into()];
        arguments.extend(self.language.headers.iter().flat_map(|_| self.language.preprocess.iter().cloned()));
        arguments.extend(self.macros());
        let original = self.run(&arguments, self.language.files[0])?;
        let stderr = if original.status.success() { output.stderr } else { original.stderr };
        Err(failed(diagnostics(&stderr), &stderr))
    }

    fn run(&self, arguments: &[String], file: &str) -> Result<elinvar_msl::process::Output> {
        let mut command = Command::new(self.toolchain.path());
        command
            .args(&self.language.options)
            .args(arguments)
            .arg(self.scratch.path().join(file))
            .stdin(Stdio::null());
        run(&mut command, &self.limits).map_err(|failure| match failure {
            Failure::Start(error) => Error::Environment(format!("clang cannot be run: {error}")),
            Failure::Killed(why) => Error::Environment(format!("clang {why}")),
        })
    }

    /// Options for the source's macros and folders.
    fn macros(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        for (name, value) in &self.source.defines {
            arguments.push(match value {
                Some(value) => format!("-D{name}={value}"),
                None => format!("-D{name}"),
            });
        }
        for folder in &self.source.include_dirs {
            let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
            arguments.push(format!("-I{}", folder.display()));
        }
        arguments
    }

    /// Checks that all included files are below the include folders, after links are resolved.
    fn expect_inside(&self, files: &[String], main: &Path) -> Result<()> {
        let Some(roots) = self.source.include_roots() else { return Ok(()) };
        for name in files {
            let is_ours = Path::new(name).starts_with(self.scratch.path())
                || self.language.appendix.as_ref().is_some_and(|(own, _)| own == name);
            if self.source.files.iter().any(|file| file.name == *name) || name.starts_with('<') || is_ours {
                continue;
            }
            let path = std::fs::canonicalize(name).unwrap_or_else(|_| PathBuf::from(name));
            if Path::new(name) != main && !roots.iter().any(|root| path.starts_with(root)) {
                let message =
                    format!("`{name}` is outside the include folders; --include-outside allows that");
                let main = self.source.files.first().map(|file| file.name.clone()).unwrap_or_default();
                return Err(Error::Compile(vec![Diagnostic::error(main, 0, 0, message)]));
            }
        }
        Ok(())
    }
}

/// A name in the scratch folder without it.
fn shorten(name: &mut String, folder: &Path) {
    if let Ok(rest) = Path::new(name.as_str()).strip_prefix(folder) {
        *name = rest.display().to_string();
    }
}

fn failed(errors: Vec<Diagnostic>, stderr: &[u8]) -> Error {
    if errors.iter().any(|error| error.severity == Severity::Error) {
        return Error::Compile(errors);
    }
    Error::Environment(format!("clang failed: {}", String::from_utf8_lossy(stderr).trim()))
}

/// The errors that clang has printed, with their source lines; warnings and notes are left out.
fn diagnostics(stderr: &[u8]) -> Vec<Diagnostic> {
    let text = String::from_utf8_lossy(stderr);
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut is_next = false;
    for line in text.lines() {
        if is_next && let Some((_, source)) = line.split_once(" | ") {
            if let Some(last) = found.last_mut() {
                last.source_line = Some(source.to_owned());
            }
            is_next = false;
        } else if let Some(error) = error(line) {
            found.push(error);
            is_next = true;
        } else {
            is_next = false;
        }
    }
    found
}

/// `FILE:LINE:COLUMN: error: MESSAGE`.
fn error(line: &str) -> Option<Diagnostic> {
    let (place, message) = line.split_once(": error: ").or_else(|| line.split_once(": fatal error: "))?;
    let (rest, column) = place.rsplit_once(':')?;
    let (file, number) = rest.rsplit_once(':')?;
    Some(Diagnostic::error(file, number.parse().ok()?, column.parse().ok()?, message))
}
