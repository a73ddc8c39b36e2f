//! [`Origin`]: a kernel's signature and source, with which its code is parsed, analyzed, and errors get locations.

use std::sync::Arc;

use elinvar_driver::{
    Access, Arg, ArgKind, CodeFacts, Diagnostic, Error, LogSite, Result, Severity, Signature, Source,
};
use elinvar_ir::{Location, Module};
use elinvar_msl::stage;
use elinvar_spmd::bounds::Given;

use crate::logs;

/// Alignment of dynamic threadgroup memory in bytes, on all devices.
const THREADGROUP_ALIGN: u64 = 16;
/// Alignment in bytes of values passed by launches and of driver allocations.
const MEMORY_ALIGN: u64 = 64;

/// Whether an argument's memory is invariant while the kernel runs.
pub fn is_invariant(arg: &Arg) -> bool {
    arg.constant && arg.access == Access::Read
}

/// Minimum size of an argument's memory in bytes.
pub fn least_bytes(arg: &Arg) -> u64 {
    match arg.kind {
        ArgKind::Reference => arg.element_size,
        ArgKind::Pointer | ArgKind::Threadgroup => 0,
    }
}

/// Guarantees for an argument's memory, for bounds checks.
pub fn given(arg: &Arg) -> Given {
    let align = match arg.kind {
        ArgKind::Threadgroup => THREADGROUP_ALIGN,
        ArgKind::Reference | ArgKind::Pointer => arg.element_align,
    };
    // At most the alignment of allocations.
    let align = if align.is_power_of_two() { align.min(MEMORY_ALIGN) } else { 1 };
    Given { bytes: least_bytes(arg), align }
}

/// A kernel's signature and source.
pub struct Origin {
    /// The signature.
    pub signature: Signature,
    /// The source.
    pub source: Arc<Source>,
}

impl Origin {
    /// Parses the code of one thread.
    ///
    /// # Errors
    /// `Unsupported` if clang emitted syntax that the parser does not support.
    pub fn parse(&self, ir: &str) -> Result<Module> {
        stage::timed("parse", || Module::parse(ir)).map_err(|error| {
            let name = &self.signature.name;
            Error::unsupported(format!("kernel `{name}`: cannot read clang's output: {error}"))
        })
    }

    /// Facts about the code.
    ///
    /// # Errors
    /// `Unsupported` if the module has no kernel entry.
    pub fn facts(&self, module: &Module) -> Result<CodeFacts> {
        let facts = elinvar_spmd::facts(module).map_err(|error| self.error(error))?;
        let Signature { file, line, .. } = &self.signature;
        let divergent = elinvar_spmd::divergent_barriers(module);
        let placed = |at: &Location| if at.file == *file { at.line } else { *line };
        let threadgroup: Vec<bool> =
            self.signature.args.iter().map(|arg| arg.kind == ArgKind::Threadgroup).collect();
        let waits = elinvar_spmd::spin_waits(module, &threadgroup);
        Ok(CodeFacts {
            threadgroup_memory: facts.threadgroup_memory,
            barriers: facts.barriers,
            grid_barriers: facts.grid_barriers,
            divergent_barrier: divergent.iter().map(placed).min(),
            spin_wait: waits.iter().map(placed).min(),
            atomics: facts.atomics,
            simdgroup: facts.simdgroup,
            only_written: facts.only_written,
            may_write: facts.may_write,
        })
    }

    /// The log calls of the code.
    ///
    /// # Errors
    /// `Compile` with the location for a format that is not a literal, or does not fit its arguments.
    pub fn logs(&self, module: &Module) -> Result<Vec<LogSite>> {
        let calls = elinvar_spmd::log_calls(module).map_err(|error| match error {
            elinvar_spmd::Error::Unsupported { what, location } => {
                Error::Compile(vec![self.diagnostic(location.as_ref(), what)])
            }
            error => self.error(error),
        })?;
        if calls.len() > usize::from(u16::MAX) {
            let name = &self.signature.name;
            return Err(Error::unsupported(format!("kernel `{name}` with {} log calls", calls.len())));
        }
        let mut errors = Vec::new();
        let mut sites = Vec::new();
        for call in calls {
            let site = logs::site(&call);
            if let Err(what) = site.check() {
                let mut diagnostic = self.diagnostic(call.location.as_ref(), format!("log call: {what}"));
                let line = diagnostic.source_line.as_deref();
                diagnostic.column = line.map_or(0, |line| logs::column(line, &site.format));
                errors.push(diagnostic);
            }
            sites.push(site);
        }
        if errors.is_empty() { Ok(sites) } else { Err(Error::Compile(errors)) }
    }

    /// Converts an error of the passes to the contract's.
    pub fn error(&self, error: elinvar_spmd::Error) -> Error {
        let Signature { name, file, line, .. } = &self.signature;
        match &error {
            elinvar_spmd::Error::DivergentBarrier { location, branch } => {
                let message = format!(
                    "threadgroup_barrier in kernel `{name}` under control flow that differs between the \
                     simdgroups of a threadgroup"
                );
                let mut diagnostic = self.diagnostic(location.as_ref(), message);
                if let Some(branch) = branch {
                    let note = self.diagnostic(Some(branch), "the branch that decides".into());
                    diagnostic.notes.push(Diagnostic { severity: Severity::Note, ..note });
                }
                Error::Compile(vec![diagnostic])
            }
            elinvar_spmd::Error::Unsupported { location: Some(_), .. } => {
                Error::unsupported(format!("{error} (kernel `{name}`)"))
            }
            _ => Error::unsupported(format!("{file}:{line}: kernel `{name}`: {error}")),
        }
    }

    /// An error at a location, or at the kernel's declaration, with the source line if it is in the source.
    fn diagnostic(&self, location: Option<&Location>, message: String) -> Diagnostic {
        let (file, line, column) = match location {
            Some(Location { file, line, column, .. }) => (file, *line, *column),
            None => (&self.signature.file, self.signature.line, 0),
        };
        let mut diagnostic = Diagnostic::error(file.clone(), line, column, message);
        let own = self.source.files.iter().find(|own| own.name == *file);
        let text = own.and_then(|own| own.text.lines().nth((line as usize).checked_sub(1)?));
        diagnostic.source_line = text.map(str::to_owned);
        diagnostic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature() -> Signature {
        Signature {
            name: "k".into(),
            args: Vec::new(),
            builtins: Vec::new(),
            file: "a.metal".into(),
            line: 1,
            max_threads_per_threadgroup: None,
            code: None,
            logs: Vec::new(),
        }
    }

    fn origin() -> Origin {
        let source = Arc::new(Source::named("a.metal", "first\n  second\n"));
        Origin { signature: signature(), source }
    }

    fn at(line: u32) -> Option<Location> {
        Some(Location { file: "a.metal".into(), line, column: 3 })
    }

    #[test]
    fn a_divergent_barrier_is_a_diagnostic_with_its_branch() {
        let error = elinvar_spmd::Error::DivergentBarrier { location: at(2), branch: at(1) };
        let Error::Compile(diagnostics) = origin().error(error) else { panic!("another kind of error") };
        let text = diagnostics[0].to_string();
        assert!(text.starts_with("a.metal:2:3: error: threadgroup_barrier in kernel `k`"), "{text}");
        assert_eq!(diagnostics[0].source_line.as_deref(), Some("  second"));
        let note = &diagnostics[0].notes[0];
        assert_eq!(
            (note.severity, note.line, note.source_line.as_deref()),
            (Severity::Note, 1, Some("first"))
        );
    }

    #[test]
    fn a_message_without_a_place_gets_the_kernels() {
        let error = elinvar_spmd::Error::DivergentBarrier { location: None, branch: None };
        let Error::Compile(diagnostics) = origin().error(error) else { panic!("another kind of error") };
        assert_eq!((diagnostics[0].line, diagnostics[0].column), (1, 0));
        let error = elinvar_spmd::Error::Unsupported { what: "this".into(), location: None };
        assert_eq!(origin().error(error).to_string(), "unsupported: a.metal:1: kernel `k`: this");
        let error = elinvar_spmd::Error::Unsupported { what: "this".into(), location: at(2) };
        assert_eq!(origin().error(error).to_string(), "unsupported: a.metal:2:3: this (kernel `k`)");
    }
}
