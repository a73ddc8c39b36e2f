//! Running clang: one process, its input on stdin, its answer or its complaint.

pub(crate) mod headers;
pub(crate) mod pch;
pub mod process;
pub mod scratch;
mod shards;
pub(crate) mod toolchain;

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus};

use elinvar_cache::{decode, encode};
use elinvar_driver::{MathMode, Source};
use serde_bytes::{ByteBuf, Bytes};

use self::headers::{DECLARATIONS, Headers};
use self::process::{Failure, Limits};
use self::scratch::Scratch;
use self::toolchain::Toolchain;
use crate::preprocess::source_map;
use crate::preprocess::vfs::PREDEFINED;
use crate::{Error, Result};

/// The names of files in the folder of a run.
const SOURCE: &str = "source.metal";
pub(crate) const OVERLAY: &str = "overlay.json";

/// What a run of clang gave.
pub(crate) struct Output {
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub success: bool,
    status: ExitStatus,
    command: String,
}

impl Output {
    /// The error for a failure that no diagnostic explains.
    pub(crate) fn unexplained_failure(&self) -> Error {
        let said = self.stderr.trim();
        let said =
            if said.is_empty() { "without output".to_owned() } else { format!("and printed:\n{said}") };
        Error::Clang {
            command: self.command.clone(),
            detail: format!("clang exited with {} {said}", self.status),
        }
    }

    /// Whether clang itself failed, rather than the source.
    fn crashed(&self) -> bool {
        self.status.code().is_none_or(|c| c > 1) || self.stderr.contains("PLEASE submit a bug report")
    }
}

/// Run clang on `text`, which is its standard input. When clang crashes or breaks a limit, the text and the headers stay
/// where the error's command finds them, and the error says so.
pub(crate) fn run(toolchain: &Toolchain, args: &[OsString], text: &str) -> Result<Output> {
    run_with(scratch(&[])?, clang(toolchain, args), text)
}

/// [`run`] in the headers' folder: clang makes text of the names that `-include` gives, without escapes, so that these are relative.
fn run_in_headers_dir(toolchain: &Toolchain, args: &[OsString], text: &str) -> Result<Output> {
    let headers = toolchain.headers()?;
    let mut command = clang(toolchain, args);
    command.current_dir(headers.root());
    run_with(scratch(&[])?, command, text)
}

fn clang(toolchain: &Toolchain, args: &[OsString]) -> Command {
    let mut command = Command::new(toolchain.path());
    command.args(args);
    command
}

/// A private folder with these files.
pub(crate) fn scratch(files: &[(&str, &[u8])]) -> Result<Scratch> {
    let cannot = |e: std::io::Error| Error::Io(format!("cannot write the source to a temporary file: {e}"));
    let scratch = Scratch::new().map_err(cannot)?;
    for (name, bytes) in files {
        std::fs::write(scratch.path().join(name), bytes).map_err(cannot)?;
    }
    Ok(scratch)
}

/// [`run`], with files in a folder.
pub(crate) fn run_in(
    folder: Scratch,
    toolchain: &Toolchain,
    args: &[OsString],
    text: &str,
) -> Result<Output> {
    run_with(folder, clang(toolchain, args), text)
}

fn run_with(folder: Scratch, mut command: Command, text: &str) -> Result<Output> {
    let cannot = |e: std::io::Error| Error::Io(format!("cannot write the source to a temporary file: {e}"));
    let file = folder.path().join(SOURCE);
    std::fs::write(&file, text).map_err(cannot)?;

    command.stdin(File::open(&file).map_err(cannot)?);
    let mut shown = process::quoted(std::iter::once(command.get_program()).chain(command.get_args()));
    shown.push_str(&format!(" < {}", process::quoted([file.as_os_str()])));
    let (shown, detail) = match process::run(&mut command, &Limits::from_env().map_err(Error::Io)?) {
        Ok(finished) => {
            let output = Output {
                stdout: finished.stdout,
                stderr: String::from_utf8_lossy(&finished.stderr).into_owned(),
                success: finished.status.success(),
                status: finished.status,
                command: shown,
            };
            if !output.crashed() {
                return Ok(output);
            }
            match output.unexplained_failure() {
                Error::Clang { command, detail } => (command, detail),
                other => return Err(other),
            }
        }
        Err(Failure::Start(error)) => {
            let program = Path::new(command.get_program()).display();
            return Err(Error::Io(format!("cannot run `{program}`: {error}")));
        }
        Err(Failure::Killed(why)) => (shown, format!("clang {why}")),
    };
    Headers::preserve();
    Err(Error::Clang { command: shown, detail: format!("{detail}\n{}", folder.keep(&[SOURCE, OVERLAY])) })
}

/// The run that checks a source. What the text is, with our declarations and flags, decides what comes out: a
/// run that went well is kept in the cache, for sources that differ in comments only and for further kernels.
pub(crate) fn check(toolchain: &Toolchain, math: MathMode, text: &str) -> Result<Output> {
    let flags = check_flags(math);
    let key = toolchain.cache.key("check").program(toolchain.path()).key(&headers::digest());
    let key = key.text(&normalized(text, toolchain.headers()?.root()));
    let key = flags.iter().fold(key, |key, flag| key.path(Path::new(flag))).finish();
    let found = || {
        let record = toolchain.cache.load(&key)?;
        let (stdout, stderr): (ByteBuf, String) = decode(&record)?;
        let (stdout, status) = (stdout.into_vec(), ExitStatus::default());
        Some(Output { stdout, stderr, success: true, status, command: String::new() })
    };
    if let Some(found) = found() {
        return Ok(found);
    }
    let output = shards::check(toolchain, &flags, math, text)?;
    if output.success {
        toolchain.cache.store(&key, &encode(&(Bytes::new(&output.stdout), &output.stderr)));
    }
    Ok(output)
}

/// The run that looks at address spaces. It makes no code, and what it says is not about a right or wrong source.
pub(crate) fn check_spaces(toolchain: &Toolchain, math: MathMode, text: &str) -> Result<Output> {
    let headers = toolchain.headers()?;
    let mut args: Vec<OsString> = vec!["-x".into(), "c++".into()];
    args.extend(language_flags(math));
    args.extend(
        ["-fsyntax-only", "-ferror-limit=0", "-Xclang", "-fno-diagnostics-use-presumed-location"]
            .map(OsString::from),
    );
    args.push("-isysroot".into());
    args.push(headers.root().into());
    match pch::header(toolchain, math)? {
        Some(header) => args.extend(["-include-pch".into(), header.into()]),
        None => args.extend(["-include".into(), DECLARATIONS.into()]),
    }
    args.push("-".into());
    run_in_headers_dir(toolchain, &args, text)
}

/// The text without the names of our own files, which differ from process to process.
fn normalized(text: &str, root: &Path) -> String {
    let ours = |line: &str| {
        source_map::parse_line_marker(line).is_some_and(|(_, name)| Path::new(&name).starts_with(root))
    };
    text.split('\n').map(|line| if ours(line) { "#\n".into() } else { format!("{line}\n") }).collect()
}

/// Compile rewritten text with our declarations, by way of their precompiled header if there is one. What clang
/// has against the text it says of the declarations as text: with the precompiled header it guesses other
/// names, and it may be the header that it does not like.
pub(crate) fn compile_with_declarations(
    toolchain: &Toolchain,
    flags: &[OsString],
    math: MathMode,
    text: &str,
) -> Result<Output> {
    let headers = toolchain.headers()?;
    let compile = |declarations: [OsString; 2]| {
        let root = ["-isysroot".into(), headers.root().into()];
        let args = [flags, &root, &declarations, &["-".into()]].concat();
        run_in_headers_dir(toolchain, &args, text)
    };
    let header = pch::header(toolchain, math)?;
    if let Some(header) = &header {
        let output = compile(["-include-pch".into(), header.into()])?;
        if output.success {
            return Ok(output);
        }
    }
    let output = compile(["-include".into(), DECLARATIONS.into()])?;
    if output.success
        && let Some(header) = header
    {
        pch::disable(&headers, &header);
    }
    Ok(output)
}

/// Flags of both stages: the language, and messages in the form that we read.
fn common_flags(stage: &mut Vec<OsString>) {
    stage.extend(
        [
            "-std=c++17",
            "--no-default-config",
            "-nostdinc",
            "-undef",
            "-fno-color-diagnostics",
            "-fno-caret-diagnostics",
            "-fno-diagnostics-show-option",
            "-fno-crash-diagnostics",
            "-ferror-limit=50",
            "-Wno-everything",
        ]
        .map(OsString::from),
    );
}

/// `clang -E`: macros and includes, and no more than those.
pub(crate) fn preprocess_flags(headers: &Headers, source: &Source) -> Vec<OsString> {
    let mut args = vec!["-x".into(), "c++".into(), OsString::from("-E")];
    common_flags(&mut args);
    args.extend(["-Wmacro-redefined".into(), "-W#warnings".into(), "-imacros".into()]);
    args.push(PREDEFINED.into());
    // As Metal's compiler, which says which functions a name without `fast::` or `precise::` means.
    args.extend(match source.math {
        MathMode::Fast => ["-D__METAL_MAYBE_FAST_MATH__=1", "-D__FAST_MATH__=1"].map(OsString::from),
        MathMode::Safe | MathMode::Relaxed => {
            ["-D__METAL_MAYBE_FAST_MATH__=0", "-U__FAST_MATH__"].map(OsString::from)
        }
    });
    for (name, value) in &source.defines {
        let value = value.as_deref().map(|v| format!("={v}")).unwrap_or_default();
        args.push(format!("-D{name}{value}").into());
    }
    // A file would be a table that leads names to other files.
    for dir in source.include_dirs.iter().filter(|dir| !dir.is_file()) {
        let mut embed = OsString::from("--embed-dir=");
        embed.push(dir);
        args.extend(["-I".into(), dir.into(), embed]);
    }
    args.push("-isystem".into());
    args.push(headers.include().into());
    args
}

/// Warnings about the user's text that are worth having.
const WARNINGS: [&str; 15] = [
    "-Wuninitialized",
    "-Wsometimes-uninitialized",
    "-Wreturn-type",
    "-Wcast-qual",
    "-Warray-bounds",
    "-Wdivision-by-zero",
    "-Wshift-count-overflow",
    "-Wshift-count-negative",
    "-Wparentheses",
    "-Winfinite-recursion",
    "-Wliteral-conversion",
    "-Wunused-value",
    "-Wdeprecated-declarations",
    "-Wundefined-internal",
    "-Werror=undefined-internal",
];

/// What the declarations' precompiled header is made with, and the rewritten text is compiled with.
pub(crate) fn language_flags(math: MathMode) -> Vec<OsString> {
    let mut args = Vec::new();
    common_flags(&mut args);
    args.extend(
        [
            "-O2",
            "-fdeclspec",
            "-fsigned-char",
            "-fwrapv",
            "-fno-strict-aliasing",
            "-fno-delete-null-pointer-checks",
            "-fno-math-errno",
            // A float that an integer type cannot hold becomes its nearest value, NaN becomes 0.
            "-fno-strict-float-cast-overflow",
            "-fno-exceptions",
            "-fno-rtti",
            "-fno-threadsafe-statics",
            "-fno-asynchronous-unwind-tables",
            "-Xclang",
            "-ffloat16-excess-precision=none",
            "-Xclang",
            "-fbfloat16-excess-precision=none",
            // What a wrong expression would have been is not guessed: nothing follows from a guess.
            "-Xclang",
            "-fno-recovery-ast-type",
        ]
        .map(OsString::from),
    );
    if cfg!(target_arch = "x86_64") {
        args.push("-mf16c".into());
    }
    // Rearranging, but with infinities and NaN as they are: not `-ffast-math`.
    let math: &[&str] = match math {
        MathMode::Safe => &["-ffp-contract=on", "-DELINVAR_SAFE_MATH"],
        MathMode::Relaxed | MathMode::Fast => &["-funsafe-math-optimizations", "-ffp-contract=fast"],
    };
    args.extend(math.iter().map(OsString::from));
    args
}

fn compile(math: MathMode) -> Vec<OsString> {
    let mut args = vec!["-x".into(), "c++".into()];
    args.extend(language_flags(math));
    args.extend(
        ["-Xclang", "-fno-diagnostics-use-presumed-location", "-S", "-emit-llvm", "-o", "-"]
            .map(OsString::from),
    );
    args
}

/// The whole source, for its diagnostics and the tables behind it. In the language of [`entry_flags`], so
/// that one precompiled header is for both.
fn check_flags(math: MathMode) -> Vec<OsString> {
    let mut args = compile(math);
    args.extend(WARNINGS.map(OsString::from));
    args.extend(["-Xclang".into(), "-disable-llvm-passes".into()]);
    args
}

/// How wide a kernel's loop counters are when the compiler behind us has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counters {
    /// As wide as addresses, where that saves an extension: for the CPU.
    #[default]
    Widened,
    /// As the source has them: for GPUs, on which arithmetic on 64 bits takes two instructions and two registers.
    AsWritten,
}

/// IR text to optimised IR text.
pub(crate) fn optimize_flags(counters: Counters) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["-x".into(), "ir".into()];
    args.extend(
        [
            "-O2",
            "-fno-vectorize",
            "-fno-slp-vectorize",
            "-Wno-override-module",
            "-S",
            "-emit-llvm",
            "-o",
            "-",
            "-mllvm",
            "-inline-threshold=10000",
            // Also a call that is rarely reached: what is left out of line runs lane by lane, and has no bounds checks.
            "-mllvm",
            "-inline-cold-callsite-threshold=10000",
            // The compiler behind us unrolls for its target; here it would only multiply the code.
            "-mllvm",
            "-unroll-runtime=false",
            // No vector arithmetic from the halves of small structs.
            "-mllvm",
            "-disable-vector-combine",
        ]
        .map(OsString::from),
    );
    if counters == Counters::AsWritten {
        args.extend(["-mllvm", "-indvars-widen-indvars=false"].map(OsString::from));
    }
    args.push("-".into());
    args
}

/// One entry, as clang writes it before any pass.
pub(crate) fn entry_flags(headers: &Headers, math: MathMode) -> Vec<OsString> {
    let mut args = compile(math);
    args.extend(
        [
            "-gline-tables-only",
            "-gno-column-info",
            "-gdwarf-4",
            "-fdebug-compilation-dir=elinvar",
            "-Xclang",
            "-disable-llvm-passes",
        ]
        .map(OsString::from),
    );
    // No columns, which would be those of the rewritten text; no checksums (DWARF 5) of texts that no
    // user sees; and not the folder of our headers, which differs from run to run.
    let mut map = OsString::from("-fdebug-prefix-map=");
    map.push(headers.root());
    map.push("/=");
    args.push(map);
    args
}
