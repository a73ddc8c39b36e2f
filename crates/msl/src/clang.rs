//! Running clang: one process, its input on stdin, its answer or its complaint.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, ExitStatus, Stdio};

use elinvar_driver::MathMode;

use crate::toolchain::Toolchain;
use crate::{Error, Result};

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
    pub(crate) fn unexplained(&self) -> Error {
        let said = self.stderr.trim();
        let said = if said.is_empty() { "and said nothing".to_owned() } else { format!("and said:\n{said}") };
        Error::Clang {
            command: self.command.clone(),
            detail: format!("clang ended with {} {said}", self.status),
        }
    }

    /// Whether clang itself failed, rather than the source.
    pub(crate) fn crashed(&self) -> bool {
        self.status.code().is_none_or(|c| c > 1) || self.stderr.contains("PLEASE submit a bug report")
    }
}

/// Run clang with `input` on stdin.
pub(crate) fn run(toolchain: &Toolchain, args: &[OsString], input: &str) -> Result<Output> {
    let cannot = |e: std::io::Error| Error::Io(format!("cannot run `{}`: {e}", toolchain.path().display()));
    let mut child = Command::new(toolchain.path())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // A clang that ends early closes the pipe; what it says about that comes from its stderr.
        scope.spawn(move || stdin.map(|mut pipe| pipe.write_all(input.as_bytes())));
        child.wait_with_output()
    })
    .map_err(cannot)?;
    let output = Output {
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        success: output.status.success(),
        status: output.status,
        command: command_line(toolchain, args),
    };
    if output.crashed() {
        return Err(keep_input(output.unexplained(), input));
    }
    Ok(output)
}

fn command_line(toolchain: &Toolchain, args: &[OsString]) -> String {
    let words = std::iter::once(toolchain.path().as_os_str()).chain(args.iter().map(OsString::as_os_str));
    let quoted = words.map(|w| {
        let w = w.to_string_lossy();
        let plain = w.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=+,:".contains(c));
        if plain && !w.is_empty() { w.into_owned() } else { format!("'{}'", w.replace('\'', "'\\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Leave the input of a crash in the temporary folder and name it in the command.
fn keep_input(error: Error, input: &str) -> Error {
    let kept =
        tempfile::Builder::new().prefix("elinvar-crash-").suffix(".cpp").tempfile().and_then(|mut file| {
            file.write_all(input.as_bytes())?;
            Ok(file.keep()?.1)
        });
    match (error, kept) {
        (Error::Clang { command, detail }, Ok(path)) => {
            Error::Clang { command: format!("{command} < {}", path.display()), detail }
        }
        (error, _) => error,
    }
}

/// Flags of both stages: the language, and messages in the form that we read.
fn common(stage: &mut Vec<OsString>) {
    stage.extend(
        [
            "-x",
            "c++",
            "-std=c++17",
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
pub(crate) fn preprocess_flags(
    toolchain: &Toolchain,
    include_dirs: &[std::path::PathBuf],
    defines: &[(String, Option<String>)],
) -> Vec<OsString> {
    let mut args = vec![OsString::from("-E")];
    common(&mut args);
    args.extend(["-Wmacro-redefined".into(), "-W#warnings".into(), "-imacros".into()]);
    args.push(toolchain.headers.predefined().into());
    for (name, value) in defines {
        let value = value.as_deref().map(|v| format!("={v}")).unwrap_or_default();
        args.push(format!("-D{name}{value}").into());
    }
    for dir in include_dirs {
        args.push("-I".into());
        args.push(dir.into());
    }
    args.push("-isystem".into());
    args.push(toolchain.headers.include().into());
    args
}

/// Warnings about the user's text that are worth having.
const WARNINGS: [&str; 14] = [
    "-Wuninitialized",
    "-Wsometimes-uninitialized",
    "-Wreturn-type",
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

fn compile(toolchain: &Toolchain) -> Vec<OsString> {
    let mut args = Vec::new();
    common(&mut args);
    args.extend(
        [
            "-fdeclspec",
            "-fsigned-char",
            "-fwrapv",
            "-fno-strict-aliasing",
            "-fno-delete-null-pointer-checks",
            "-fno-math-errno",
            "-fno-exceptions",
            "-fno-rtti",
            "-fno-threadsafe-statics",
            "-fno-asynchronous-unwind-tables",
            "-Xclang",
            "-ffloat16-excess-precision=none",
            "-Xclang",
            "-fbfloat16-excess-precision=none",
            "-Xclang",
            "-fno-diagnostics-use-presumed-location",
            "-S",
            "-emit-llvm",
            "-o",
            "-",
            "-include",
        ]
        .map(OsString::from),
    );
    args.push(toolchain.headers.declarations().into());
    if cfg!(target_arch = "x86_64") {
        args.push("-mf16c".into());
    }
    args
}

/// The whole source, for its diagnostics and the tables behind it.
pub(crate) fn check_flags(toolchain: &Toolchain) -> Vec<OsString> {
    let mut args = compile(toolchain);
    args.extend(WARNINGS.map(OsString::from));
    args.extend(["-O0".into(), "-".into()]);
    args
}

/// One entry, optimised.
pub(crate) fn entry_flags(toolchain: &Toolchain, math: MathMode) -> Vec<OsString> {
    let mut args = compile(toolchain);
    args.extend(
        [
            "-O2",
            "-fno-vectorize",
            "-fno-slp-vectorize",
            "-gline-tables-only",
            "-gno-column-info",
            "-gdwarf-4",
            "-fdebug-compilation-dir=elinvar",
            "-mllvm",
            "-inline-threshold=10000",
            // The compiler behind us unrolls for its target; here it would only multiply the code.
            "-mllvm",
            "-unroll-runtime=false",
            // No vector arithmetic from the halves of small structs.
            "-mllvm",
            "-disable-vector-combine",
        ]
        .map(OsString::from),
    );
    // No columns, which would be those of the rewritten text; no checksums (DWARF 5) of texts that no
    // user sees; and not the folder of our headers, which differs from run to run.
    let mut map = OsString::from("-fdebug-prefix-map=");
    map.push(toolchain.headers.root());
    map.push("/=");
    args.push(map);
    // Rearranging, but with infinities and NaN as they are: not `-ffast-math`.
    let math: &[&str] = match math {
        MathMode::Safe => &["-ffp-contract=on"],
        MathMode::Relaxed | MathMode::Fast => &["-funsafe-math-optimizations", "-ffp-contract=fast"],
    };
    args.extend(math.iter().map(OsString::from));
    args.push("-".into());
    args
}
