//! A compiled source: its kernels, and the IR of each when asked for.

use elinvar_driver::{Diagnostic, MathMode, Severity, Signature, Source};

use crate::kernels::Kernel;
use crate::mapped::Mapped;
use crate::origin::Origin;
use crate::signature::{self, Outcome};
use crate::toolchain::Toolchain;
use crate::{Error, Result, clang, diagnostics, glue, preprocess, rewrite, tables};

/// A source that has passed all checks.
#[derive(Debug)]
pub struct Program {
    toolchain: Toolchain,
    math: MathMode,
    origin: Origin,
    text: Mapped,
    kernels: Vec<Kernel>,
    signatures: Vec<Signature>,
    /// Kernels that are valid and cannot be compiled here, with the reason.
    unsupported: Vec<(String, Diagnostic)>,
    warnings: Vec<Diagnostic>,
}

impl Program {
    /// Check a source in full and read its kernels' signatures. Two runs of clang.
    ///
    /// # Errors
    /// `Compile` with the diagnostics when the source is wrong; `Clang` or `Io` when clang could not
    /// do its work.
    pub fn compile(toolchain: &Toolchain, source: &Source) -> Result<Self> {
        let (origin, mut warnings) = preprocess::run(toolchain, source)?;
        let rewritten = rewrite::rewrite(origin.text());
        let problems: Vec<Diagnostic> =
            rewritten.problems.iter().map(|(offset, message)| located(&origin, *offset, message)).collect();
        if !problems.is_empty() {
            return Err(Error::Compile(problems));
        }
        let mut text = rewritten.text.clone();
        glue::tables(&mut text, &rewritten.kernels);
        let output = clang::run(toolchain, &clang::check_flags(toolchain), text.text())?;
        warnings.extend(judge(&output, &origin, &text)?);

        let mut program = Self {
            toolchain: toolchain.clone(),
            math: source.math,
            origin,
            text: rewritten.text,
            kernels: Vec::new(),
            signatures: Vec::new(),
            unsupported: Vec::new(),
            warnings,
        };
        program.read_kernels(rewritten.kernels, &String::from_utf8_lossy(&output.stdout))?;
        Ok(program)
    }

    fn read_kernels(&mut self, kernels: Vec<Kernel>, ir: &str) -> Result<()> {
        let mut errors = Vec::new();
        let tables = tables::read(ir);
        let mut names = std::collections::HashSet::new();
        for (i, kernel) in kernels.into_iter().enumerate() {
            let missing = || Error::Io(format!("clang's output has no table of kernel `{}`", kernel.name));
            let table = tables.get(&i).ok_or_else(missing)?;
            if !names.insert(kernel.name.clone()) {
                let message = format!("there are two kernels named `{}`", kernel.name);
                errors.push(located(&self.origin, kernel.offset, &message));
                continue;
            }
            match signature::build(&kernel, table, &self.origin) {
                Outcome::Usable(signature) => {
                    self.signatures.push(signature);
                    self.kernels.push(kernel);
                }
                Outcome::Unsupported(why) => self.unsupported.push((kernel.name, why)),
                Outcome::Wrong(found) => {
                    errors.extend(found.into_iter().filter(|d| !errors.contains(d)).collect::<Vec<_>>())
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(Error::Compile(errors)) }
    }

    /// What each kernel takes, in the order of the source.
    pub fn kernels(&self) -> &[Signature] {
        &self.signatures
    }

    /// What is worth a look.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// LLVM IR text of one kernel: a module that defines [`crate::ENTRY`] with one pointer per entry of
    /// [`Signature::args`], in that order. One run of clang.
    ///
    /// # Errors
    /// `NoKernel`, `Unsupported` with the parameter that is the reason, `Clang`, `Io`.
    pub fn ir(&self, kernel: &str) -> Result<String> {
        let Some(found) = self.kernels.iter().find(|k| k.name == kernel) else {
            if let Some((_, why)) = self.unsupported.iter().find(|(name, _)| name == kernel) {
                return Err(Error::Unsupported(format!("{}:{}: {}", why.file, why.line, why.message)));
            }
            let known = self.signatures.iter().map(|s| s.name.clone()).collect();
            return Err(Error::NoKernel { name: kernel.to_owned(), known });
        };
        let mut text = self.text.clone();
        glue::entry(&mut text, found);
        let output =
            clang::run(&self.toolchain, &clang::entry_flags(&self.toolchain, self.math), text.text())?;
        judge(&output, &self.origin, &text)?;
        String::from_utf8(output.stdout).map_err(|_| Error::Io("clang's IR text is not UTF-8".to_owned()))
    }
}

/// The warnings of a run over rewritten text, or its errors.
fn judge(output: &clang::Output, origin: &Origin, text: &Mapped) -> Result<Vec<Diagnostic>> {
    let messages = diagnostics::told(diagnostics::parse(&output.stderr), text);
    let found = diagnostics::resolve(messages, &|m| diagnostics::as_rewritten(origin, text, m));
    if found.iter().any(|d| d.severity == Severity::Error) {
        return Err(Error::Compile(found));
    }
    if !output.success {
        return Err(output.unexplained());
    }
    Ok(found)
}

fn located(origin: &Origin, offset: usize, message: &str) -> Diagnostic {
    let p = origin.place(offset);
    Diagnostic { source_line: p.source_line, ..Diagnostic::error(p.file, p.line, p.column, message) }
}
