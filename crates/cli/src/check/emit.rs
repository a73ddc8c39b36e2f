//! `elinvar check --emit`: the code of kernels, as it is at one point of the compilation, on standard output.
//!
//! Each kernel's code begins with a comment that names it, so that the output for several kernels is one text that LLVM's tools, `ptxas`
//! or an assembler read piece by piece. Diagnostics go to standard error.

use clap::ValueEnum;
use elinvar::{Dim3, Error, Signature, Source};
use elinvar_code::{Accepted, Declared, max_threads};
use elinvar_driver::{Constant, PipelineOptions, Tier};
use elinvar_native::{Form, LineSize, SizeBound};
use elinvar_ptx::Constants;

use super::compiler::Compiler;
use super::file_report::{Built, FileReport};
use super::is;
use crate::failure::{Failure, Result};
use crate::report::say;
use crate::selection::{KernelPattern, is_selected};
use crate::target::Target;

/// Threads of a threadgroup that code is made for when no size is given, or as many as the kernel allows.
const DEFAULT_THREADS: u32 = 256;

/// What to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// LLVM IR of one thread, from the front end
    Ir,
    /// LLVM IR of the vectorized function, which runs whole threadgroups on a CPU
    VectorIr,
    /// PTX for NVIDIA GPUs
    Ptx,
    /// Assembly for this machine's CPU
    Asm,
    /// Number of instructions by source line, in the vectorized function and in the code of one thread
    Lines,
}

impl Emit {
    /// The target to compile for: the one that is given, or the one that the form is for.
    ///
    /// # Errors
    /// `Usage` for several targets, and for one that does not have this form.
    pub fn target(self, given: &[Target]) -> Result<Target> {
        let target = match given {
            [] if self == Self::Ptx => Target::Cuda(elinvar_ptx::Target::default()),
            [] => Target::Cpu(None),
            [target] => *target,
            _ => return Err(Failure::usage("--emit prints code for one target; give --target once")),
        };
        let needed = match (self, target) {
            (Self::Ptx, Target::Cpu(_) | Target::Metal | Target::Apple(..)) => "cuda",
            (Self::VectorIr | Self::Asm | Self::Lines, Target::Cuda(_)) => "cpu",
            (_, Target::Metal | Target::Apple(..)) => "cpu or cuda",
            _ => return Ok(target),
        };
        Err(Failure::usage(format!("--emit {} is for --target {needed}, not {target}", self.name())))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ir => "ir",
            Self::VectorIr => "vector-ir",
            Self::Ptx => "ptx",
            Self::Asm => "asm",
            Self::Lines => "lines",
        }
    }

    /// What begins a comment in this form.
    fn comment(self) -> &'static str {
        match self {
            Self::Ir | Self::VectorIr => ";",
            Self::Asm if cfg!(target_arch = "x86_64") => "#",
            Self::Lines => "#",
            Self::Ptx | Self::Asm => "//",
        }
    }
}

fn code(
    compiler: &Compiler,
    emit: Emit,
    kernel: &Signature,
    options: &PipelineOptions,
    group: Option<Dim3>,
) -> Result<String, Error> {
    let name = kernel.name.as_str();
    match compiler {
        Compiler::Cpu(compiler) => {
            let group = group.unwrap_or_else(|| Dim3::from(max_threads(kernel).min(DEFAULT_THREADS)));
            let form = Form { group: Some(group), stoppable: false, objects: SizeBound::DEFAULT };
            match emit {
                Emit::VectorIr => compiler.vector_ir(name, options, form),
                Emit::Asm => compiler.assembly(name, options, form),
                Emit::Lines => compiler.line_sizes(name, options, form).map(|sizes| lines(&sizes)),
                Emit::Ir | Emit::Ptx => compiler.ir(name, options),
            }
        }
        Compiler::Apple(..) => Err(Error::unsupported("Metal compiles on Apple devices")),
        Compiler::Cuda(compiler) => match emit {
            Emit::Ptx => compiler.kernel(name, options, Constants::Values).map(|ptx| ptx.text),
            Emit::Ir | Emit::VectorIr | Emit::Asm | Emit::Lines => compiler.ir(name, options),
        },
    }
}

/// A table of the size of code by source line.
fn lines(sizes: &[LineSize]) -> String {
    let total = |of: fn(&LineSize) -> usize| sizes.iter().map(of).sum::<usize>();
    let row = |scalar: usize, vector: usize, what: &str| format!("{vector:8} {scalar:7}  {what}\n");
    let mut text = format!("#vector  scalar  line\n{}", row(total(|s| s.scalar), total(|s| s.vector), "all"));
    for LineSize { location, scalar, vector } in sizes {
        let what = location.as_ref().map_or("(no line)".to_owned(), |at| format!("{}:{}", at.file, at.line));
        text.push_str(&row(*scalar, *vector, &what));
    }
    text
}

/// Prints the code of a source's kernels, of all or of those that match a pattern. What cannot be compiled is entered into `report`.
///
/// # Errors
/// When standard output cannot be written to.
pub fn print(
    (emit, target, group): (Emit, Target, Option<Dim3>),
    source: &Source,
    kernels: &[KernelPattern],
    constants: &[Constant],
    report: &mut FileReport,
) -> Result<()> {
    let compiler = match Compiler::new(target, source) {
        Ok(compiler) => compiler,
        Err(error) => {
            report.fail(error.into());
            return Ok(());
        }
    };
    let Declared { kernels: all, unsupported, constants: declared, warnings: _ } = compiler.declared();
    report.declare(compiler.declared());
    let own = constants.iter().filter(|given| declared.iter().any(|known| is(known, given)));
    let options =
        PipelineOptions { constants: own.cloned().collect(), checked: false, tier: Tier::Optimized };
    let wanted = |name: &str| is_selected(kernels, name);
    for kernel in all.iter().filter(|kernel| wanted(&kernel.name)) {
        match code(&compiler, emit, kernel, &options, group) {
            Ok(code) => {
                let Signature { name, file, line, .. } = kernel;
                say(format_args!("{} kernel {name} ({file}:{line}), {target}", emit.comment()))?;
                say(code.trim_end())?;
                say("")?;
                report.enter(
                    target,
                    kernel,
                    Built::Ok(Accepted { signature: kernel.clone(), beyond_one_simdgroup: None }),
                );
            }
            Err(error) => report.enter(target, kernel, Built::Refused(kernel.clone(), error)),
        }
    }
    for kernel in unsupported.iter().filter(|kernel| wanted(&kernel.name)) {
        report.enter_unsupported(Some(target), kernel);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_its_target() {
        let target = |emit: Emit, given: &[&str]| {
            let given: Vec<Target> = given.iter().map(|name| name.parse().unwrap()).collect();
            emit.target(&given).map(|target| target.to_string()).map_err(|failure| failure.to_string())
        };
        for (emit, given, expected) in [
            (Emit::Ptx, &[][..], "cuda:sm_90"),
            (Emit::Ptx, &["cuda:sm_80"], "cuda:sm_80"),
            (Emit::Ir, &[], "cpu"),
            (Emit::Ir, &["cuda:sm_80"], "cuda:sm_80"),
            (Emit::Asm, &[], "cpu"),
            (Emit::VectorIr, &["cpu"], "cpu"),
        ] {
            assert_eq!(target(emit, given).as_deref(), Ok(expected));
        }
        assert_eq!(target(Emit::Ptx, &["cpu"]).unwrap_err(), "--emit ptx is for --target cuda, not cpu");
        assert_eq!(
            target(Emit::Asm, &["cuda"]).unwrap_err(),
            "--emit asm is for --target cpu, not cuda:sm_90"
        );
        assert!(target(Emit::Ir, &["cpu", "cuda"]).unwrap_err().contains("--target once"));
    }
}
