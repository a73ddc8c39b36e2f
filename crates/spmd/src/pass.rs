//! Passes, and the pass manager that runs a pipeline of them.
//!
//! A [`Pass`] is a value: a name, the [`Form`]s of IR that it takes and produces, preconditions and postconditions, and a
//! function. Each target has one list of passes, its pipeline ([`crate::vector::pipeline`], [`crate::nvptx::pipeline`]).
//!
//! The pass manager
//!
//! - emits a `tracing` event of the target [`TARGET`] with `pass` and `ns` for each pass;
//! - verifies the IR after each pass in debug builds, and if [`verify_each`] was called or `ELINVAR_VERIFY_EACH=1` is set;
//! - writes the IR after the passes that `ELINVAR_DUMP` names (separated by commas, or `all`) to the folder `ELINVAR_DUMP_DIR`,
//!   by default `elinvar-dump`, in files named `KERNEL-TARGET-ORDER-PASS.ll`.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::{Error, Target, passes};

/// Target of the `tracing` events.
pub const TARGET: &str = "elinvar::passes";

/// The form of IR between two passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A module with one thread's code: the entry is [`ENTRY`](crate::ENTRY), intrinsics are calls.
    Thread,
    /// CPU: the entry as a function without calls of intrinsics; barriers are edges.
    Kernel,
    /// CPU: the function over threadgroups, without its callees.
    Workgroup,
    /// NVPTX: the kernel with its parameters, separate from the rest of its module.
    Device,
    /// A complete module for clang.
    Target,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread => "thread module",
            Self::Kernel => "kernel",
            Self::Workgroup => "workgroup function",
            Self::Device => "device module",
            Self::Target => "target module",
        })
    }
}

/// Description of a pass, for documentation and tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassInfo {
    /// The name, as in `ELINVAR_DUMP`.
    pub name: &'static str,
    /// Input form.
    pub input: Form,
    /// Output form.
    pub output: Form,
    /// Precondition.
    pub requires: &'static str,
    /// Postcondition.
    pub ensures: &'static str,
}

/// The analyses that a pass preserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preserves {
    /// All: the pass does not change the code.
    Everything,
    /// Analyses of the control-flow graph.
    ControlFlow,
    Nothing,
}

/// A pass over units of type `U`.
pub(crate) struct Pass<U> {
    pub info: PassInfo,
    pub preserves: Preserves,
    /// Whether this compilation runs the pass.
    pub applies: fn(&U) -> bool,
    pub run: fn(&mut U) -> Result<(), Error>,
}

/// The unit of a target's pipeline: a kernel in one of its forms.
pub(crate) trait Unit {
    const TARGET: Target;
    /// The kernel's name.
    fn name(&self) -> &str;
    fn form(&self) -> Form;
    /// The IR, as text.
    fn text(&self) -> String;
    /// Verifies the IR and returns the errors.
    fn verify(&self) -> Result<(), String>;
    /// Drops the analyses that a pass has not preserved.
    fn invalidate(&mut self, preserves: Preserves);
}

static VERIFY_EACH: AtomicBool = AtomicBool::new(false);

/// Enables verification after each pass, also in release builds. For fuzzers and tests.
pub fn verify_each(on: bool) {
    VERIFY_EACH.store(on, Ordering::Relaxed);
}

fn verifies() -> bool {
    cfg!(debug_assertions)
        || VERIFY_EACH.load(Ordering::Relaxed)
        || std::env::var_os("ELINVAR_VERIFY_EACH").is_some_and(|value| value == "1")
}

/// Runs the `passes` that apply to `unit`, in order, up to and including `last` if it is given.
///
/// # Errors
/// Errors of a pass; `Malformed` if the IR after a pass does not verify; `Dump` if `ELINVAR_DUMP` has an unknown name, or a dump cannot be
/// written.
pub(crate) fn run<U: Unit>(passes: &[Pass<U>], unit: &mut U, last: Option<&str>) -> Result<(), Error> {
    let dump = Dump::from_environment()?;
    let verifies = verifies();
    for (order, pass) in passes.iter().enumerate() {
        let PassInfo { name, input, output, .. } = pass.info;
        if (pass.applies)(unit) {
            expect_form(unit, name, "before", input)?;
            let start = Instant::now();
            (pass.run)(unit)?;
            unit.invalidate(pass.preserves);
            let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            tracing::debug!(target: TARGET, pass = name, ns);
            expect_form(unit, name, "after", output)?;
            if verifies {
                unit.verify()
                    .map_err(|error| Error::Malformed(format!("after the pass `{name}`: {error}")))?;
            }
            if let Some(dump) = dump.as_ref().filter(|dump| dump.wants(name)) {
                dump.write(unit, order, name)?;
            }
        }
        if last == Some(name) {
            break;
        }
    }
    Ok(())
}

fn expect_form<U: Unit>(unit: &U, pass: &str, when: &str, form: Form) -> Result<(), Error> {
    let found = unit.form();
    match found == form {
        true => Ok(()),
        false => {
            Err(Error::Malformed(format!("{when} the pass `{pass}`: a {found} where a {form} is expected")))
        }
    }
}

/// The passes whose IR is dumped, and the folder.
struct Dump {
    passes: Vec<String>,
    folder: PathBuf,
}

impl Dump {
    fn from_environment() -> Result<Option<Self>, Error> {
        let Some(names) = std::env::var_os("ELINVAR_DUMP") else { return Ok(None) };
        let folder =
            std::env::var_os("ELINVAR_DUMP_DIR").map_or_else(|| "elinvar-dump".into(), PathBuf::from);
        Self::new(&names.to_string_lossy(), folder).map(Some)
    }

    fn new(names: &str, folder: PathBuf) -> Result<Self, Error> {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let wanted: Vec<String> = names.map(str::to_owned).collect();
        let known: Vec<&str> =
            [Target::Cpu, Target::Nvptx].into_iter().flat_map(passes).map(|pass| pass.name).collect();
        if let Some(unknown) = wanted.iter().find(|name| *name != "all" && !known.contains(&name.as_str())) {
            let list = |target| passes(target).iter().map(|pass| pass.name).collect::<Vec<_>>().join(", ");
            return Err(Error::Dump(format!(
                "no pass is called `{unknown}`; passes of the CPU: {}; of NVPTX: {}; or `all`",
                list(Target::Cpu),
                list(Target::Nvptx)
            )));
        }
        Ok(Self { passes: wanted, folder })
    }

    fn wants(&self, pass: &str) -> bool {
        self.passes.iter().any(|name| name == pass || name == "all")
    }

    fn write<U: Unit>(&self, unit: &U, order: usize, pass: &str) -> Result<(), Error> {
        let name: String =
            unit.name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let path = self.folder.join(format!("{name}-{}-{order:02}-{pass}.ll", U::TARGET));
        let written = std::fs::create_dir_all(&self.folder).and_then(|()| std::fs::write(&path, unit.text()));
        written.map_err(|error| Error::Dump(format!("cannot write {}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_passes_are_an_error_that_lists_the_known_ones() {
        let error = Dump::new("scalarize,scalarise", PathBuf::new()).err().expect("an error");
        assert!(matches!(error, Error::Dump(_)));
        let text = error.to_string();
        assert!(
            text.contains("`scalarise`") && text.contains("legalize-division") && text.contains("simdgroup")
        );
    }

    #[test]
    fn all_or_named_passes_are_dumped() {
        let named = Dump::new("scalarize, bounds", PathBuf::new()).unwrap();
        assert!(named.wants("scalarize") && named.wants("bounds") && !named.wants("freeze"));
        assert!(Dump::new("all", PathBuf::new()).unwrap().wants("freeze"));
    }
}
