//! [`Generator`]: compiles LLVM IR text to a shared object with `clang -c` and a linker.
//!
//! The linker is called directly, since `clang -shared` takes many times as long as the link itself: `ELINVAR_LD` if set, else
//! `ld.lld-NN` (newest first), `ld.lld`, `ld`. If none is found, and on Apple systems, where the linker requires platform options,
//! clang links. Files are in a private folder, which is removed when the object has been loaded. If a tool fails or exceeds a limit
//! of `elinvar_msl::process`, the folder is kept, and the error contains the command line.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elinvar_cache::KeyBuilder;
use elinvar_driver::{Error, Result};
use elinvar_msl::process::{self, Failure, Limits};
use elinvar_msl::scratch::Scratch;
use elinvar_msl::stage;
use serde::{Deserialize, Serialize};

use crate::processor;
use crate::target::Target;

/// Major versions of `ld.lld-NN` to look for.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=30;

/// File names.
const TEXT: &str = "kernel.ll";
const OBJECT: &str = "kernel.o";
const ASSEMBLY: &str = "kernel.s";
const SHARED: &str = "kernel.so";

const PRELUDE: &str = include_str!("prelude.ll");

/// Size of the text in bytes from which on clang's instruction schedulers are disabled: their time is quadratic in the number of memory
/// accesses of a block.
const LONG_TEXT: usize = 500_000;
const FOR_LONG_TEXT: [&str; 4] = ["-mllvm", "-enable-misched=false", "-mllvm", "-disable-post-ra"];

/// Tools and options for building kernels.
pub struct Generator {
    clang: PathBuf,
    /// `None` if clang links.
    linker: Option<PathBuf>,
    target: Target,
    /// Identity of this machine's processor.
    machine: &'static str,
}

impl Generator {
    /// Creates a generator for a target, with this clang.
    pub fn new(clang: impl Into<PathBuf>, target: Target) -> Self {
        Self { clang: clang.into(), linker: find_linker(), target, machine: processor::identity() }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Adds everything but the text that determines the object to a cache key: tools, options and processor.
    pub(crate) fn identify(&self, key: KeyBuilder, level: Level) -> KeyBuilder {
        let key = key.program(&self.clang).text(&self.target.processor).number(self.target.lanes().into());
        let key = key.text(level.option()).text(self.machine);
        // Within a larger limit, code that was made without optimization may be optimized.
        let limits = Limits::from_env().unwrap_or_default();
        let key = key.number(limits.time.as_millis() as u64).number(limits.memory);
        match &self.linker {
            Some(linker) => key.program(linker),
            None => key.text("clang links"),
        }
    }

    /// Compiles IR text to a shared object.
    ///
    /// # Errors
    /// `Environment` if a tool fails, with the command line and its output; the input is kept.
    pub fn object(&self, ir: &str) -> Result<Vec<u8>> {
        Ok(self.object_with(ir, self.target.level(), |_| Ok(()))?.1.bytes)
    }

    /// As [`Generator::object`] at an optimization level, and loads the bytes with `load`. If optimization exceeds a limit, the code is
    /// compiled without it, which takes time and memory in proportion to the text.
    ///
    /// # Errors
    /// As [`Generator::object`] and `load`; the input is kept in both cases.
    pub(crate) fn object_with<T>(
        &self,
        ir: &str,
        level: Level,
        load: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<(T, MachineCode)> {
        let folder = temporary_folder()?;
        let built = self.build_in(folder.path(), ir, level).and_then(|level| {
            let bytes = read_object(&folder.path().join(SHARED))?;
            let loaded = stage::timed("load", || load(&bytes))?;
            Ok((loaded, MachineCode { bytes, optimized: level == Level::O3 }))
        });
        built.map_err(|error| with_kept_input(error, folder))
    }

    /// Compiles IR text to assembly.
    ///
    /// # Errors
    /// As [`Generator::object`].
    pub fn assembly(&self, ir: &str) -> Result<String> {
        let folder = temporary_folder()?;
        let compiled = self.compile(folder.path(), ir, self.target.level(), "-S", ASSEMBLY).and_then(|_| {
            let file = folder.path().join(ASSEMBLY);
            std::fs::read_to_string(&file)
                .map_err(|error| Error::Environment(format!("cannot read {}: {error}", file.display())))
        });
        compiled.map_err(|error| with_kept_input(error, folder))
    }

    /// Returns the level at which it was compiled.
    fn build_in(&self, folder: &Path, ir: &str, level: Level) -> Result<Level> {
        let level = self.compile(folder, ir, level, "-c", OBJECT)?;

        let mut link = tool_in(folder, self.linker.as_ref().unwrap_or(&self.clang))?;
        if cfg!(target_vendor = "apple") {
            link.args(["-undefined", "dynamic_lookup"]);
        }
        // One object does not need threads, and those of lld would compete with launches.
        let is_lld = self
            .linker
            .as_ref()
            .and_then(|path| path.file_name())
            .is_some_and(|name| name.to_string_lossy().starts_with("ld.lld"));
        if is_lld {
            link.arg("--threads=1");
        }
        link.args(["-shared", OBJECT, "-o", SHARED]);
        stage::timed("link", || run(link))?;
        Ok(level)
    }

    /// Runs clang on IR text in a folder, with the option `-c` or `-S`. If it exceeds a limit, it is run again without optimization.
    fn compile(&self, folder: &Path, ir: &str, level: Level, kind: &str, output: &str) -> Result<Level> {
        let text = folder.join(TEXT);
        std::fs::write(&text, with_prelude(ir).as_bytes())
            .map_err(|error| Error::Environment(format!("cannot write {}: {error}", text.display())))?;
        let clang = |level: Level| {
            let mut compile = tool_in(folder, &self.clang)?;
            compile.args([kind, level.option(), "-fPIC", "-ffp-contract=on", "-Wno-override-module"]);
            compile.args(self.target.processor.split(' '));
            if ir.len() > LONG_TEXT {
                compile.args(FOR_LONG_TEXT);
            }
            compile.args(["-x", "ir"]).arg(&text).args(["-o", output]);
            stage::timed("codegen", || run(compile)).map(|()| level)
        };
        match clang(level) {
            Err(Failed::Killed(why)) if level == Level::O3 => {
                tracing::warn!("compiled without optimization: {why}");
                Ok(clang(Level::O0)?)
            }
            outcome => Ok(outcome?),
        }
    }
}

/// An optimization level of clang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    O0,
    O3,
}

impl Level {
    fn option(self) -> &'static str {
        match self {
            Self::O0 => "-O0",
            Self::O3 => "-O3",
        }
    }
}

/// A shared object.
#[derive(Serialize, Deserialize)]
pub(crate) struct MachineCode {
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    pub optimized: bool,
}

/// Why a tool has not done its work, with its command line and its output.
enum Failed {
    /// It exceeded a limit.
    Killed(String),
    Other(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Killed(why) => Self::Environment(why),
            Failed::Other(error) => error,
        }
    }
}

fn temporary_folder() -> Result<Scratch> {
    Scratch::new().map_err(|error| {
        Error::Environment(format!("cannot make a folder in {}: {error}", std::env::temp_dir().display()))
    })
}

/// Keeps a tool's input and adds its path to the error.
fn with_kept_input(error: Error, folder: Scratch) -> Error {
    match error {
        Error::Environment(why) => Error::Environment(format!("{why}\n{}", folder.keep(&[TEXT]))),
        other => other,
    }
}

/// A command that runs in a folder, so that its outputs have no paths: LLVM interprets `%` in the path of an output as a placeholder.
fn tool_in(folder: &Path, program: &Path) -> Result<Command> {
    let cannot = |error| Error::Environment(format!("cannot find {}: {error}", program.display()));
    // A name without a separator is searched on the PATH; a path is relative to the current directory of this process.
    let searched = program.components().count() == 1;
    let program = if searched { program.to_owned() } else { std::path::absolute(program).map_err(cannot)? };
    let mut command = Command::new(program);
    command.current_dir(folder);
    Ok(command)
}

fn read_object(shared: &Path) -> Result<Vec<u8>> {
    std::fs::read(shared)
        .map_err(|error| Error::Environment(format!("cannot read {}: {error}", shared.display())))
}

/// Appends the conversion functions that the text may require. Other architectures have instructions for them.
fn with_prelude(ir: &str) -> Cow<'_, str> {
    let needed = cfg!(target_arch = "x86_64") && (ir.contains("half") || ir.contains("bfloat"));
    if needed { Cow::Owned(format!("{ir}\n{PRELUDE}")) } else { Cow::Borrowed(ir) }
}

/// Runs a tool.
fn run(mut command: Command) -> Result<(), Failed> {
    let call = process::quoted(std::iter::once(command.get_program()).chain(command.get_args()));
    let limits = Limits::from_env().map_err(Error::Environment)?;
    let why = match process::run(command.stdin(Stdio::null()), &limits) {
        Ok(finished) if finished.status.success() => return Ok(()),
        Ok(finished) => {
            let said = String::from_utf8_lossy(&finished.stderr);
            format!("`{call}` failed ({}):\n{}", finished.status, said.trim_end())
        }
        Err(Failure::Start(error)) => format!("cannot run `{call}`: {error}"),
        Err(Failure::Killed(why)) => return Err(Failed::Killed(format!("`{call}` {why}"))),
    };
    Err(Error::Environment(why).into())
}

fn find_linker() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os("ELINVAR_LD") {
        return Some(chosen.into());
    }
    if cfg!(target_vendor = "apple") {
        return None;
    }
    let versions = VERSIONS.rev().map(|version| format!("ld.lld-{version}"));
    versions.chain(["ld.lld".into(), "ld".into()]).find_map(|name| on_path(&name.into()))
}

fn on_path(program: &OsString) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use elinvar_msl::Toolchain;

    use super::*;

    const TEXT_OF_ONE: &str = "define i32 @f() { ret i32 7 }";

    fn generator() -> Generator {
        Generator::new(Toolchain::find().unwrap().path(), Target::from_env().unwrap())
    }

    fn message<T>(outcome: Result<T>) -> String {
        match outcome {
            Err(Error::Environment(message)) => message,
            Err(other) => panic!("another kind of error: {other}"),
            Ok(_) => panic!("built"),
        }
    }

    /// Reads and removes the folder of kept input that the message names.
    fn take_kept_file(message: &str) -> String {
        let folder = std::env::temp_dir().join("elinvar-run-").display().to_string();
        let at = message.find(&folder).unwrap();
        let len = message[at + folder.len()..].find(['/', '\n']);
        let end = len.map_or(message.len(), |len| at + folder.len() + len);
        let folder = Path::new(&message[at..end]);
        let content = std::fs::read_to_string(folder.join("kernel.ll")).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        content
    }

    #[test]
    fn wrong_ir_is_an_error_with_the_call_and_keeps_the_file() {
        let message = message(generator().object("define void @f() {\n  ret i32 0\n}\n"));
        assert!(message.contains("kernel.ll:2:"), "{message}");
        assert!(message.contains("-O3"), "{message}");
        assert!(take_kept_file(&message).starts_with("define void @f()"));
    }

    #[test]
    fn a_missing_tool_is_named() {
        let why = message(Generator::new("/nowhere/clang", Target::new(None, None)).object(""));
        assert!(why.starts_with("cannot run `/nowhere/clang -c"), "{why}");
        take_kept_file(&why);
        let linker = Some(PathBuf::from("/nowhere/ld"));
        let why = message(Generator { linker, ..generator() }.object(""));
        assert!(why.starts_with("cannot run `/nowhere/ld -shared"), "{why}");
        take_kept_file(&why);
    }

    #[test]
    fn an_object_that_cannot_be_loaded_is_an_error_and_keeps_the_file() {
        let load = |bytes: &[u8]| -> Result<()> {
            assert!(bytes.starts_with(b"\x7fELF") || cfg!(not(target_os = "linux")));
            Err(Error::Environment("it has no symbol g".into()))
        };
        let message = message(generator().object_with(TEXT_OF_ONE, Level::O3, load));
        assert!(message.starts_with("it has no symbol g\n"), "{message}");
        assert_eq!(take_kept_file(&message), TEXT_OF_ONE);
    }

    #[test]
    fn another_processor_or_linker_is_another_key() {
        let key = |generator: &Generator| {
            let level = generator.target.level();
            generator.identify(elinvar_cache::Cache::off().key("object"), level).finish()
        };
        let usual = key(&generator());
        assert_eq!(key(&generator()), usual);
        let other = [Target::new(Some("other"), None), Target::new(None, None).unoptimized()];
        for target in other {
            assert_ne!(key(&Generator { target, ..generator() }), usual);
        }
        assert_ne!(key(&Generator { machine: "model name\t: other", ..generator() }), usual);
        assert_ne!(key(&Generator { linker: None, ..generator() }), usual);
    }

    #[test]
    fn clang_links_where_no_linker_is_found() {
        let generator = Generator { linker: None, ..generator() };
        assert!(!generator.object(TEXT_OF_ONE).unwrap().is_empty());
    }
}
