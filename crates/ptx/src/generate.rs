//! Compiles LLVM IR to PTX with one run of clang.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use elinvar_cache::KeyBuilder;
use elinvar_driver::{Error, Result};
use elinvar_msl::process::{self, Failure, Limits};
use elinvar_msl::scratch::Scratch;
use elinvar_msl::stage;
use elinvar_spmd::nvptx::TRIPLE;

use crate::target::Target;

/// Flags of clang.
const FLAGS: [&str; 10] = [
    "-S",
    "-O3",
    "-Wno-override-module",
    "-Wno-unknown-cuda-version",
    // Contraction to fused multiply-adds only where the instructions allow it.
    "-ffp-contract=on",
    "-mllvm",
    "-nvptx-fma-level=0",
    // Loops of up to 30 instructions are unrolled 8 times, so that loads of later iterations are issued early.
    "-mllvm",
    "-unroll-partial-threshold=250",
    "-fno-crash-diagnostics",
];

/// clang and its target GPU.
pub(crate) struct Generator {
    clang: PathBuf,
    target: Target,
}

impl Generator {
    pub(crate) fn new(clang: impl Into<PathBuf>, target: Target) -> Self {
        Self { clang: clang.into(), target }
    }

    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// Adds all inputs besides the IR to a cache key.
    pub(crate) fn identify(&self, key: KeyBuilder) -> KeyBuilder {
        FLAGS.iter().fold(key.program(&self.clang).text(&self.target.to_string()), |key, flag| key.text(flag))
    }

    /// Compiles a module; `approximate` allows errors of some ulp in divisions.
    ///
    /// # Errors
    /// `Environment` if clang fails, with its command line and output; its input is kept.
    pub(crate) fn ptx(&self, ir: &str, approximate: bool) -> Result<String> {
        let cannot =
            |error: std::io::Error| Error::Environment(format!("cannot write a kernel's IR: {error}"));
        let folder = Scratch::new().map_err(cannot)?;
        let file = folder.path().join("kernel.ll");
        std::fs::write(&file, ir).map_err(cannot)?;
        let mut command = Command::new(&self.clang);
        command.arg(format!("--target={TRIPLE}")).arg(format!("-march={}", self.target)).args(FLAGS);
        command.args(["-Xclang", "-target-feature", "-Xclang", self.target.feature()]);
        command.args(["-mllvm", if approximate { "-nvptx-prec-divf32=1" } else { "-nvptx-prec-divf32=2" }]);
        command.args(["-x", "ir", "-o", "-"]).arg(&file);
        command.stdin(Stdio::null());
        let result =
            stage::timed("codegen", || run(command)).map(|text| straight(&signed(&acquiring(&text))));
        result.map_err(|why| Error::Environment(format!("{why}\n{}", folder.keep(&["kernel.ll"]))))
    }
}

/// Replaces fences of the device by those that acquire and release. `membar` is sequentially consistent, which takes longer, and which
/// neither barriers nor fences of Metal are at this scope (PTX ISA, "membar/fence").
///
/// A loop that waits for a word, and a fence behind it, become a loop that acquires: a fence waits for all accesses of the thread.
fn acquiring(text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for at in 0..lines.len() {
        if lines[at].trim() != "membar.gl;" {
            continue;
        }
        let label = at.checked_sub(WAIT).and_then(|label| lines[label].strip_suffix(':').map(str::to_owned));
        let is_wait = label.is_some_and(|label| {
            lines[at - WAIT + 1].trim().starts_with(VOLATILE)
                && branch(&lines[at - 1]).is_some_and(|(_, to)| to == label)
        });
        if is_wait {
            lines[at - WAIT + 1] = lines[at - WAIT + 1].replacen(VOLATILE, "ld.acquire.gpu.global.u32", 1);
        }
        lines[at] = if is_wait { String::new() } else { "\tfence.acq_rel.gpu;".into() };
    }
    lines.iter().filter(|line| !line.is_empty()).flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// Lines of a loop that waits for a grid's barrier, from its label on.
const WAIT: usize = 5;
const VOLATILE: &str = "ld.volatile.global.u32";

/// Replaces `abs.s16`. ptxas assumes that its result is non-negative and zero-extends it, which is wrong for -32768
/// (observed with CUDA 13.0).
fn signed(text: &str) -> String {
    let line = |line: &str| match line
        .trim()
        .strip_prefix("abs.s16")
        .and_then(|rest| rest.trim().split_once(", "))
    {
        // Registers are in SSA form, so the two differ.
        Some((to, of)) => {
            let of = of.trim_end_matches(';');
            format!("\tneg.s16 \t{to}, {of};\n\tmax.s16 \t{to}, {to}, {of};\n")
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Merges a branch to the next block and a branch around it into one branch around it. ptxas places the likely side of a branch, which
/// clang emits first, in line only in this form.
fn straight(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        if let Some((condition, to)) = branch(line)
            && let Some(other) = lines.get(at).and_then(|next| next.trim().strip_prefix("bra.uni"))
            && follows(&lines[at + 1..], to)
        {
            let (not, condition) = match condition.strip_prefix('!') {
                Some(condition) => ("", condition),
                None => ("!", condition),
            };
            out.extend(["\t@", not, condition, " bra", other, "\n"]);
            at += 1;
            continue;
        }
        out.extend([line, "\n"]);
    }
    out
}

/// The condition and the label of a conditional branch.
fn branch(line: &str) -> Option<(&str, &str)> {
    let (condition, to) = line.trim().strip_prefix('@')?.split_once(" bra ")?;
    Some((condition, to.trim().strip_suffix(';')?))
}

/// Whether a label is before the next instruction.
fn follows(lines: &[&str], label: &str) -> bool {
    let labels = lines.iter().filter(|line| !line.trim_start().starts_with(".loc"));
    labels.map_while(|line| line.trim().strip_suffix(':')).any(|line| line == label)
}

fn run(mut command: Command) -> Result<String, String> {
    let call = process::quoted(std::iter::once(command.get_program()).chain(command.get_args()));
    let limits = Limits::from_env()?;
    let why = match process::run(&mut command, &limits) {
        Ok(finished) if finished.status.success() => {
            let text = String::from_utf8(finished.stdout);
            let text = text.map_err(|_| format!("the output of `{call}` is not UTF-8"))?;
            return Ok(without_comments(&text));
        }
        Ok(finished) => {
            let said = String::from_utf8_lossy(&finished.stderr);
            format!("`{call}` failed ({}):\n{}", finished.status, said.trim_end())
        }
        Err(Failure::Start(error)) => format!("cannot run `{call}`: {error}"),
        Err(Failure::Killed(why)) => format!("`{call}` {why}"),
    };
    Err(why)
}

/// The text without comments and empty lines.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once("//") {
        // A file name may contain `//`.
        Some((code, _)) if !code.contains('"') => code.trim_end(),
        _ => line,
    });
    lines.filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go() {
        let text = "//\n// Generated\n\n.version 7.8 // first\n\tret;\n  // end\n.file 1 \"a//b\"\n";
        assert_eq!(without_comments(text), ".version 7.8\n\tret;\n.file 1 \"a//b\"\n");
    }

    #[test]
    fn a_branch_around_what_follows_is_one() {
        let around = |condition: &str| {
            format!(
                "\t@{condition} bra \t$A;\n\tbra.uni \t$B;\n$tmp:\n\t.loc 1 2 3\n$A:\n\tret;\n$B:\n\ttrap;\n"
            )
        };
        let once = |condition: &str| {
            format!("\t@{condition} bra \t$B;\n$tmp:\n\t.loc 1 2 3\n$A:\n\tret;\n$B:\n\ttrap;\n")
        };
        assert_eq!(straight(&around("%p1")), once("!%p1"));
        assert_eq!(straight(&around("!%p1")), once("%p1"));
        let elsewhere = "\t@%p1 bra \t$A;\n\tbra.uni \t$B;\n$B:\n\tret;\n$A:\n\ttrap;\n";
        assert_eq!(straight(elsewhere), elsewhere);
    }

    #[test]
    fn fences_of_the_device_acquire_and_release() {
        let text = "\tbar.sync \t0;\n\tmembar.gl;\n\tmembar.sys;\n";
        assert_eq!(acquiring(text), "\tbar.sync \t0;\n\tfence.acq_rel.gpu;\n\tmembar.sys;\n");
        let wait = |load: &str, to: &str, fence: &str| {
            format!(
                "$L4:\n\t{load} \t%r8, [%rd3];\n\txor.b32  \t%r9, %r8, %r5;\n\tsetp.gt.s32 \t%p1, %r9, -1;\n\t@%p1 bra \t{to};\n{fence}"
            )
        };
        let volatile = wait("ld.volatile.global.u32", "$L4", "\tmembar.gl;\n");
        assert_eq!(acquiring(&volatile), wait("ld.acquire.gpu.global.u32", "$L4", ""));
        let no_loop = wait("ld.volatile.global.u32", "$L5", "\tmembar.gl;\n");
        assert_eq!(acquiring(&no_loop), wait("ld.volatile.global.u32", "$L5", "\tfence.acq_rel.gpu;\n"));
    }

    #[test]
    fn absolute_values_of_shorts_keep_their_sign() {
        let text = "{\n\tabs.s16 \t%rs2, %rs1;\n\tabs.s32 \t%r2, %r1;\n}\n";
        let expected =
            "{\n\tneg.s16 \t%rs2, %rs1;\n\tmax.s16 \t%rs2, %rs2, %rs1;\n\tabs.s32 \t%r2, %r1;\n}\n";
        assert_eq!(signed(text), expected);
    }
}
