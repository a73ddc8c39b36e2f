//! [`FileReport`]: results of checking a file, printed as text, JSON or annotations.

use std::fmt::Write as _;

use elinvar::{Diagnostic, Error, Severity, Signature};
use elinvar_code::{Accepted, Declared};
use elinvar_driver::{FunctionConstant, UnsupportedKernel};
use serde_json::{Map, Value, json};

use crate::diagnostics::annotation;
use crate::failure::{Failure, Result, exit_code};
use crate::report::say;
use crate::signature;
use crate::stages::Times;
use crate::target::Target;

/// Results of checking a file.
pub struct FileReport {
    file: String,
    kernels: Vec<Row>,
    diagnostics: Vec<Diagnostic>,
    /// Errors without a source location.
    failures: Vec<Failure>,
    /// Function constants that the file declares.
    pub constants: Vec<FunctionConstant>,
    /// Names of the kernels that the file declares; `None` if it has errors.
    declared: Option<Vec<String>>,
    times: Vec<Times>,
}

/// Result of building a kernel.
pub enum Built {
    Ok(Accepted),
    /// Values of function constants are missing; has the message.
    Incomplete(String),
    Refused(Signature, Error),
}

/// A kernel.
struct Row {
    name: String,
    file: String,
    line: u32,
    /// `None` if no target supports the kernel.
    signature: Option<Signature>,
    /// States by target; `None` for all targets.
    states: Vec<(Option<Target>, State)>,
}

/// State of a kernel for a target.
enum State {
    Ok,
    NotBuilt(String),
    Unsupported(String),
    Wrong(String),
}

impl State {
    /// The state's name, and the reason.
    fn parts(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Ok => ("ok", None),
            Self::NotBuilt(why) => ("not built", Some(why)),
            Self::Unsupported(why) => ("unsupported", Some(why)),
            Self::Wrong(why) => ("error", Some(why)),
        }
    }
}

impl FileReport {
    /// An empty report.
    pub fn new(file: String) -> Self {
        let (kernels, diagnostics, failures) = (Vec::new(), Vec::new(), Vec::new());
        let (constants, times) = (Vec::new(), Vec::new());
        Self { file, kernels, diagnostics, failures, constants, declared: None, times }
    }

    /// Takes what the file declares.
    pub fn declare(&mut self, declared: &Declared) {
        let Declared { kernels, unsupported, constants, warnings } = declared;
        warnings.iter().for_each(|warning| self.note(warning));
        self.constants.clone_from(constants);
        let supported = kernels.iter().map(|kernel| &kernel.name);
        let names = supported.chain(unsupported.iter().map(|kernel| &kernel.name));
        self.declared = Some(names.cloned().collect());
    }

    /// Whether its declarations are known.
    pub fn is_declared(&self) -> bool {
        self.declared.is_some()
    }

    /// Names of the declared kernels.
    pub fn declared(&self) -> impl Iterator<Item = &str> {
        self.declared.iter().flatten().map(String::as_str)
    }

    /// Adds durations, for a target if there is one.
    pub fn took(&mut self, target: Option<Target>, mut times: Times) {
        times.target = target.map(|target| target.to_string());
        self.times.push(times);
    }

    /// Adds a diagnostic, once for all targets.
    pub fn note(&mut self, diagnostic: &Diagnostic) {
        if !self.diagnostics.contains(diagnostic) {
            self.diagnostics.push(diagnostic.clone());
        }
    }

    /// Adds an error of the file or of a kernel, once for all targets.
    pub fn fail(&mut self, failure: Failure) {
        match failure {
            Failure::Runtime(Error::Compile(diagnostics)) => diagnostics.iter().for_each(|d| self.note(d)),
            other if self.failures.iter().any(|known| known.to_string() == other.to_string()) => {}
            other => self.failures.push(other),
        }
    }

    /// Adds a kernel as it is declared.
    pub fn list(&mut self, kernel: &Signature) {
        self.row(&kernel.name, &kernel.file, kernel.line).signature = Some(kernel.clone());
    }

    /// Adds the result of building a kernel for a target.
    pub fn enter(&mut self, target: Target, kernel: &Signature, built: Built) {
        let (signature, state) = match built {
            Built::Ok(Accepted { signature, beyond_one_simdgroup }) => {
                if let Some(error) = beyond_one_simdgroup {
                    one_simdgroup_only(kernel, error).iter().for_each(|warning| self.note(warning));
                }
                if let Some(line) = signature.code.and_then(|code| code.divergent_barrier) {
                    self.note(&divergent_barrier(&kernel.file, line));
                }
                if let Some(line) = signature.code.and_then(|code| code.spin_wait) {
                    self.note(&spin_wait(&kernel.file, line));
                }
                (signature, State::Ok)
            }
            Built::Incomplete(why) => {
                self.note(&not_built(kernel, &why));
                (kernel.clone(), State::NotBuilt(why))
            }
            Built::Refused(signature, Error::Unsupported(why)) => {
                let reason = placed(kernel, &why);
                self.note(&reason);
                (signature, State::Unsupported(reason.message))
            }
            Built::Refused(signature, error) => {
                let why = error.to_string();
                self.fail(error.into());
                (signature, State::Wrong(why))
            }
        };
        let row = self.row(&kernel.name, &kernel.file, kernel.line);
        row.signature.get_or_insert(signature);
        row.states.push((Some(target), state));
    }

    /// A kernel that a target does not support, or that none does.
    pub fn enter_unsupported(&mut self, target: Option<Target>, kernel: &UnsupportedKernel) {
        let UnsupportedKernel { name, reason } = kernel;
        self.note(reason);
        let row = self.row(name, &reason.file, reason.line);
        row.states.push((target, State::Unsupported(reason.message.clone())));
    }

    fn row(&mut self, name: &str, file: &str, line: u32) -> &mut Row {
        let known = self.kernels.iter().position(|row| row.name == name);
        let at = known.unwrap_or_else(|| {
            let row = Row { name: name.into(), file: file.into(), line, signature: None, states: Vec::new() };
            // In the order of the source, among those of one file.
            let behind = self.kernels.iter().rposition(|other| other.file == file && other.line <= line);
            let first = || self.kernels.iter().position(|other| other.file == file);
            let at = behind.map(|at| at + 1).or_else(first).unwrap_or(self.kernels.len());
            self.kernels.insert(at, row);
            at
        });
        &mut self.kernels[at]
    }

    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }

    pub fn exit_code(&self) -> Option<u8> {
        let compile = self.has_errors().then(|| exit_code(&Error::Compile(Vec::new())));
        self.failures.iter().map(Failure::exit_code).chain(compile).max()
    }

    pub fn print(&self, times: bool) -> Result<()> {
        for row in &self.kernels {
            say(format_args!("{}\n", row.text()))?;
        }
        for FunctionConstant { name, index, ty } in &self.constants {
            say(format_args!("function constant {ty} {name}  function_constant({index})"))?;
        }
        if times {
            Times::print(&self.times)?;
        }
        self.print_diagnostics();
        let count = |state: &str| {
            let has = |row: &&Row| row.states.iter().any(|(_, known)| known.parts().0 == state);
            self.kernels.iter().filter(has).count()
        };
        let kernels = self.kernels.len();
        let mut summary = format!("{}: {kernels} kernel{}", self.file, if kernels == 1 { "" } else { "s" });
        match (self.exit_code(), count("unsupported"), count("error")) {
            (None, ..) => summary += ", no errors",
            (Some(_), 0, 0) => return Ok(()),
            (Some(_), unsupported, wrong) => {
                for (count, what) in [(unsupported, "unsupported"), (wrong, "with errors")] {
                    if count > 0 {
                        let _ = write!(summary, ", {count} {what}");
                    }
                }
            }
        }
        say(summary)
    }

    /// Writes diagnostics and failures to standard error.
    pub fn print_diagnostics(&self) {
        for diagnostic in &self.diagnostics {
            eprintln!("{diagnostic}");
        }
        for failure in &self.failures {
            eprintln!("error: {failure}");
        }
    }

    pub fn annotate(&self) -> Result<()> {
        self.diagnostics.iter().try_for_each(|d| say(annotation::of(d)))?;
        self.failures.iter().try_for_each(|f| say(annotation::error(&self.file, &f.to_string())))
    }

    pub fn to_json(&self, times: bool) -> Value {
        let kernels: Vec<Value> = self.kernels.iter().map(Row::to_json).collect();
        let diagnostics: Vec<Value> = self.diagnostics.iter().map(diagnostic_json).collect();
        let errors: Vec<String> = self.failures.iter().map(ToString::to_string).collect();
        let constant = |FunctionConstant { name, index, ty }: &FunctionConstant| json!({ "name": name, "index": index, "type": ty.to_string() });
        let constants: Vec<Value> = self.constants.iter().map(constant).collect();
        let mut file = json!({
            "file": self.file, "kernels": kernels, "constants": constants, "diagnostics": diagnostics, "errors": errors,
        });
        if times {
            file["times"] = self.times.iter().map(Times::to_json).collect();
        }
        file
    }
}

impl Row {
    fn text(&self) -> String {
        let Self { name, file, line, signature, states } = self;
        let head = || format!("kernel {name}  ({file}:{line})");
        let mut out = signature.as_ref().map_or_else(head, signature::text);
        for (target, state) in states {
            let (word, why) = state.parts();
            let target = target.map_or_else(String::new, |target| format!("{target}: "));
            let _ = write!(out, "\n      {target}{word}");
            if let Some(why) = why {
                let _ = write!(out, ": {why}");
            }
        }
        out
    }

    /// As [`signature::to_json`], with null for what is unknown, and the states by target.
    fn to_json(&self) -> Value {
        let Self { name, file, line, signature, states } = self;
        let unknown = || {
            json!({
                "name": name, "file": file, "line": line, "dimensions": null, "args": null, "builtins": null,
                "max_threads_per_threadgroup": null, "code": null, "logs": null,
            })
        };
        let mut kernel = signature.as_ref().map_or_else(unknown, signature::to_json);
        let state = |(target, state): &(Option<Target>, State)| {
            let (word, why) = state.parts();
            let target = target.map_or_else(|| "all".to_owned(), |target| target.to_string());
            (target, json!({ "state": word, "reason": why }))
        };
        kernel["targets"] = states.iter().map(state).collect::<Map<_, _>>().into();
        kernel
    }
}

/// Why a kernel is refused, at the place that the text begins with, or at the kernel.
fn placed(kernel: &Signature, why: &str) -> Diagnostic {
    let Signature { file, line, .. } = kernel;
    let place = || {
        let (line, rest) = why.strip_prefix(file.as_str())?.strip_prefix(':')?.split_once(':')?;
        let column = rest.split_once(':').and_then(|(column, rest)| Some((column.parse().ok()?, rest)));
        let (column, message) = column.unwrap_or((0, rest));
        Some(Diagnostic::error(file.clone(), line.parse().ok()?, column, message.trim_start()))
    };
    place().unwrap_or_else(|| Diagnostic::error(file.clone(), *line, 0, why))
}

/// A kernel that is right as far as it can be told without values of function constants.
fn not_built(kernel: &Signature, why: &str) -> Diagnostic {
    let message = format!("{why}; it is not built, give values with --constant");
    Diagnostic {
        severity: Severity::Warning,
        ..Diagnostic::error(kernel.file.clone(), kernel.line, 0, message)
    }
}

/// What is wrong with a kernel in threadgroups of two simdgroups, which may be right for one.
fn one_simdgroup_only(kernel: &Signature, error: Error) -> Vec<Diagnostic> {
    let mut found = match error {
        Error::Compile(diagnostics) => diagnostics,
        Error::Unsupported(why) => vec![placed(kernel, &why)],
        other => vec![placed(kernel, &other.to_string())],
    };
    for diagnostic in &mut found {
        diagnostic.severity = Severity::Warning;
        diagnostic.message += "; threadgroups of one simdgroup are accepted";
    }
    found
}

/// A barrier that not all threads may reach; the same for all kernels of a template.
fn divergent_barrier(file: &str, line: u32) -> Diagnostic {
    let message = "not all threads of the threadgroup may reach this barrier: a simdgroup arrives if any of its threads does";
    Diagnostic { severity: Severity::Warning, ..Diagnostic::error(file, line, 0, message) }
}

/// A loop that waits for another thread; the same for all kernels of a template.
fn spin_wait(file: &str, line: u32) -> Diagnostic {
    let message = "this loop waits for another thread: Metal does not promise that the threadgroups of a grid run at the same time or in an \
                   order; `elinvar::grid_barrier()` of <elinvar/grid> waits for all of them";
    Diagnostic { severity: Severity::Warning, ..Diagnostic::error(file, line, 0, message) }
}

fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    let notes: Vec<Value> = diagnostic.notes.iter().map(diagnostic_json).collect();
    json!({
        "severity": diagnostic.severity.to_string(),
        "file": diagnostic.file,
        "line": diagnostic.line,
        "column": diagnostic.column,
        "message": diagnostic.message,
        "source_line": diagnostic.source_line,
        "notes": notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Signature {
        Signature {
            name: "k".into(),
            args: Vec::new(),
            builtins: Vec::new(),
            file: "a.metal".into(),
            line: 3,
            max_threads_per_threadgroup: None,
            code: None,
            logs: Vec::new(),
        }
    }

    #[test]
    fn each_target_has_a_state_of_its_own() {
        let targets: [Target; 3] = ["cpu", "cuda:sm_80", "cuda:sm_90"].map(|name| name.parse().unwrap());
        let mut report = FileReport::new("a.metal".into());
        let accepted = Accepted { signature: kernel(), beyond_one_simdgroup: None };
        report.enter(targets[0], &kernel(), Built::Ok(accepted));
        assert_eq!(report.exit_code(), None);
        for target in &targets[1..] {
            let error = Error::unsupported("a.metal:7:2: a call: of `f`");
            report.enter(*target, &kernel(), Built::Refused(kernel(), error));
        }
        assert_eq!(report.exit_code(), Some(1));
        let why = "a call: of `f`";
        let text =
            format!("cpu: ok\n      cuda:sm_80: unsupported: {why}\n      cuda:sm_90: unsupported: {why}");
        assert!(report.kernels[0].text().ends_with(&text), "{}", report.kernels[0].text());
        let json = report.to_json(false);
        assert_eq!(json["kernels"][0]["targets"]["cpu"], json!({ "state": "ok", "reason": null }));
        assert_eq!(json["kernels"][0]["targets"]["cuda:sm_80"]["reason"], why);
        assert_eq!(report.diagnostics, [Diagnostic::error("a.metal", 7, 2, why)], "told once");
        assert_eq!((report.kernels.len(), report.failures.len()), (1, 0));
    }

    #[test]
    fn a_reason_is_where_it_says_or_at_the_kernel() {
        for (why, (line, column, message)) in [
            ("a.metal:7:2: this: that", (7, 2, "this: that")),
            ("a.metal:7: kernel `k`: this", (7, 0, "kernel `k`: this")),
            ("b.metal:7: this", (3, 0, "b.metal:7: this")),
            ("a.metal: this", (3, 0, "a.metal: this")),
            ("", (3, 0, "")),
        ] {
            assert_eq!(placed(&kernel(), why), Diagnostic::error("a.metal", line, column, message));
        }
    }
}
