//! Runs of clang: arguments, input, output, failures.

mod covering;
pub(crate) mod headers;
pub(crate) mod pch;
pub mod process;
pub mod scratch;
mod shards;
pub(crate) mod source_header;
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

/// Files in the temporary directory of a run.
const SOURCE: &str = "source.metal";
pub(crate) const OVERLAY: &str = "overlay.json";

/// The outcome of a run.
pub(crate) struct Output {
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub success: bool,
    status: ExitStatus,
    command: String,
}

impl Output {
    /// Standard output as text, such as of IR.
    pub(crate) fn text(self) -> Result<String> {
        String::from_utf8(self.stdout).map_err(|_| Error::Io("clang's IR text is not UTF-8".to_owned()))
    }

    /// The error for a failure without diagnostics.
    pub(crate) fn unexplained_failure(&self) -> Error {
        let said = self.stderr.trim();
        let said =
            if said.is_empty() { "without output".to_owned() } else { format!("and printed:\n{said}") };
        Error::Clang {
            command: self.command.clone(),
            detail: format!("clang failed ({}) {said}", self.status),
        }
    }

    /// Whether clang crashed, rather than rejected the source.
    fn crashed(&self) -> bool {
        self.status.code().is_none_or(|c| c > 1) || self.stderr.contains("PLEASE submit a bug report")
    }
}

/// Run clang with `text` on standard input.
///
/// # Errors
/// `Clang` when it crashes or exceeds a limit; the input and the headers are kept then, and the error has the command line that
/// reproduces it.
pub(crate) fn run(toolchain: &Toolchain, args: &[OsString], text: &str) -> Result<Output> {
    run_with(scratch(&[])?, clang(toolchain, args), text, limits()?)
}

fn limits() -> Result<Limits> {
    Limits::from_env().map_err(Error::Io)
}

/// [`run`] in the headers' directory, with relative paths: clang copies the argument of `-include` into text without escaping
/// it.
fn run_in_headers_dir(toolchain: &Toolchain, args: &[OsString], text: &str) -> Result<Output> {
    run_in_headers_dir_within(limits()?, toolchain, args, text)
}

fn run_in_headers_dir_within(
    limits: Limits,
    toolchain: &Toolchain,
    args: &[OsString],
    text: &str,
) -> Result<Output> {
    let headers = toolchain.headers()?;
    let mut command = clang(toolchain, args);
    command.current_dir(headers.root());
    run_with(scratch(&[])?, command, text, limits)
}

fn clang(toolchain: &Toolchain, args: &[OsString]) -> Command {
    let mut command = Command::new(toolchain.path());
    command.args(args);
    command
}

/// A temporary directory with these files.
pub(crate) fn scratch(files: &[(&str, &[u8])]) -> Result<Scratch> {
    let cannot = |e: std::io::Error| Error::Io(format!("cannot write the source to a temporary file: {e}"));
    let scratch = Scratch::new().map_err(cannot)?;
    for (name, bytes) in files {
        std::fs::write(scratch.path().join(name), bytes).map_err(cannot)?;
    }
    Ok(scratch)
}

/// [`run`] with a temporary directory that holds further files.
pub(crate) fn run_in(
    folder: Scratch,
    toolchain: &Toolchain,
    args: &[OsString],
    text: &str,
) -> Result<Output> {
    run_with(folder, clang(toolchain, args), text, limits()?)
}

fn run_with(folder: Scratch, mut command: Command, text: &str, limits: Limits) -> Result<Output> {
    let cannot = |e: std::io::Error| Error::Io(format!("cannot write the source to a temporary file: {e}"));
    let file = folder.path().join(SOURCE);
    std::fs::write(&file, text).map_err(cannot)?;

    command.stdin(File::open(&file).map_err(cannot)?);
    let mut shown = process::quoted(std::iter::once(command.get_program()).chain(command.get_args()));
    shown.push_str(&format!(" < {}", process::quoted([file.as_os_str()])));
    let (shown, detail) = match process::run(&mut command, &limits) {
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

/// Check a source. The output depends on the text, the declarations and the flags only, so a successful run is cached; sources
/// that differ in comments share it.
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

/// Bytes of messages of the run that checks address spaces, which repeats them for every instantiation.
const MAX_SPACE_MESSAGES: u64 = 64 << 20;

/// The run that checks address spaces. It generates no code, and its errors do not make a source wrong. Messages hardly depend on
/// combinations of template arguments, so it instantiates kernels once for each argument.
pub(crate) fn check_spaces(toolchain: &Toolchain, math: MathMode, text: &str) -> Result<Output> {
    let headers = toolchain.headers()?;
    let mut args: Vec<OsString> = vec!["-x".into(), "c++".into()];
    args.extend(language_flags(math));
    args.extend(
        [
            "-fsyntax-only",
            "-ferror-limit=0",
            // Calls of the library's functions have many candidates, which are of no interest.
            "-fshow-overloads=best",
            "-Xclang",
            "-fno-diagnostics-use-presumed-location",
        ]
        .map(OsString::from),
    );
    args.extend(declarations(toolchain, math, &headers)?);
    args.push("-".into());
    let limits = Limits { stderr: MAX_SPACE_MESSAGES, ..limits()? };
    run_in_headers_dir_within(limits, toolchain, &args, &covering::cover(text))
}

/// Flags that include the declarations, from their precompiled header if there is one.
fn declarations(toolchain: &Toolchain, math: MathMode, headers: &Headers) -> Result<[OsString; 4]> {
    let [flag, file] = match pch::header(toolchain, math)? {
        Some(header) => ["-include-pch".into(), header.into()],
        None => ["-include".into(), DECLARATIONS.into()],
    };
    Ok(["-isysroot".into(), headers.root().into(), flag, file])
}

/// The text without line markers of Elinvar's headers, whose paths differ between processes.
fn normalized(text: &str, root: &Path) -> String {
    let ours = |line: &str| {
        source_map::parse_line_marker(line).is_some_and(|(_, name)| Path::new(&name).starts_with(root))
    };
    text.split('\n').map(|line| if ours(line) { "#\n".into() } else { format!("{line}\n") }).collect()
}

/// Compile rewritten text with the declarations, from their precompiled header if there is one. A failure is repeated with the
/// declarations as text: with a precompiled header clang's typo correction differs, and the header itself may be stale.
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

/// Flags of every run: the language, and the format of diagnostics.
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
            // `vec<float, 4>`, not `vec<float, [...]>`.
            "-fno-elide-type",
            "-fno-crash-diagnostics",
            "-ferror-limit=50",
            "-Wno-everything",
        ]
        .map(OsString::from),
    );
}

/// Flags of `clang -E`.
pub(crate) fn preprocess_flags(headers: &Headers, source: &Source) -> Vec<OsString> {
    let mut args = vec!["-x".into(), "c++".into(), OsString::from("-E")];
    common_flags(&mut args);
    args.extend(["-Wmacro-redefined".into(), "-W#warnings".into(), "-imacros".into()]);
    args.push(PREDEFINED.into());
    // As in Metal's compiler: selects `fast::` or `precise::` for unqualified math functions.
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
    // clang reads a file given with `-I` as a header map.
    for dir in source.include_dirs.iter().filter(|dir| !dir.is_file()) {
        let mut embed = OsString::from("--embed-dir=");
        embed.push(dir);
        args.extend(["-I".into(), dir.into(), embed]);
    }
    args.push("-isystem".into());
    args.push(headers.include().into());
    args
}

/// Warnings about the user's text.
const WARNINGS: [&str; 17] = [
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
    "-Wvla",
    "-Werror=vla",
];

/// Flags of the rewritten text and of the precompiled header, which have to agree.
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
            // Conversion to an integer saturates; NaN converts to 0.
            "-fno-strict-float-cast-overflow",
            "-fno-exceptions",
            "-fno-rtti",
            "-fno-threadsafe-statics",
            "-fno-asynchronous-unwind-tables",
            "-Xclang",
            "-ffloat16-excess-precision=none",
            "-Xclang",
            "-fbfloat16-excess-precision=none",
            // No recovery expressions: they cause follow-up errors.
            "-Xclang",
            "-fno-recovery-ast-type",
        ]
        .map(OsString::from),
    );
    if cfg!(target_arch = "x86_64") {
        args.push("-mf16c".into());
    }
    // Reassociation, but infinities and NaN are honored: not `-ffast-math`.
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

/// Flags of the check, compatible with [`entry_flags`] so that both use one precompiled header.
fn check_flags(math: MathMode) -> Vec<OsString> {
    let mut args = compile(math);
    args.extend(WARNINGS.map(OsString::from));
    args.extend(["-Xclang".into(), "-disable-llvm-passes".into()]);
    args
}

/// Width of induction variables (LLVM's `indvars-widen-indvars`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InductionVariables {
    /// Widened to pointer width where that saves an extension: for CPUs.
    #[default]
    Widened,
    /// As in the source: for GPUs, where 64-bit arithmetic takes two instructions and two registers.
    AsWritten,
}

/// Flags of the run that optimizes IR.
pub(crate) fn optimize_flags(induction_variables: InductionVariables) -> Vec<OsString> {
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
            // Inline cold calls too: calls that remain are scalarized, and have no bounds checks.
            "-mllvm",
            "-inline-cold-callsite-threshold=10000",
            // The back end unrolls for its target.
            "-mllvm",
            "-unroll-runtime=false",
            // No vector arithmetic from parts of small structs.
            "-mllvm",
            "-disable-vector-combine",
        ]
        .map(OsString::from),
    );
    if induction_variables == InductionVariables::AsWritten {
        args.extend(["-mllvm", "-indvars-widen-indvars=false"].map(OsString::from));
    }
    args.push("-".into());
    args
}

/// Flags that compile one entry to unoptimized IR.
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
    // No columns, which would be those of the rewritten text. DWARF 4 has no checksums of files. The headers' directory differs
    // between runs.
    let mut map = OsString::from("-fdebug-prefix-map=");
    map.push(headers.root());
    map.push("/=");
    args.push(map);
    args
}
