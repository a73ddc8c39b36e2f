//! Compiler wrapper between cargo and rustc: changes arguments so that crates build as for macOS.
//!
//! - Bindings of Apple's libraries, and the crates in [`CRATES`], get `target_vendor="apple"` and
//!   `target_os="macos"` in addition to the cfgs of Linux.
//! - If sources link a framework, a copy is compiled in which they link a shared library of that name instead, because rustc
//!   supports frameworks on Apple's systems only.
//! - The linker finds those libraries in the stand-in's folder, as linker scripts that name its one library.
//!
//! Crates that are not built for the target (build scripts, procedural macros) are compiled unchanged. Rustdoc, which
//! compiles the tests of documentation, finds the libraries but gets no cfgs: it passes them on to where they are refused.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::graph::is_binding;
use super::with_path;
use crate::failure::{Failure, Result};

/// Environment variable that selects the wrapper; its value is the stand-in's folder.
pub const FOLDER: &str = "ELINVAR_APPLE_STANDIN";
/// Comma-separated names of the crates that are built as for macOS.
pub const CRATES: &str = "ELINVAR_APPLE_CRATES";
/// Whether cargo's query for the target's cfgs also returns those of macOS.
pub const PROBE: &str = "ELINVAR_APPLE_PROBE";

const RUSTDOC: &str = "rustdoc";

/// Name of the crate in cargo's query.
const PROBE_CRATE: &str = "___";

const CFGS: [&str; 5] =
    ["--cfg", "target_vendor=\"apple\"", "--cfg", "target_os=\"macos\"", "-Aexplicit_builtin_cfgs_in_flags"];

/// Runs the compiler if this process was started as the wrapper.
pub fn run() -> Option<ExitCode> {
    let folder = std::env::var_os(FOLDER)?;
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Cargo passes the compiler's path first, but not rustdoc's.
    let program = match args.first() {
        Some(first) if is_rustc(first) => args.remove(0),
        _ => RUSTDOC.into(),
    };
    let failure = match Compilation::new(program, args).run(Path::new(&folder)) {
        Ok(code) => return Some(code),
        Err(failure) => failure,
    };
    failure.print();
    Some(ExitCode::from(failure.exit_code()))
}

fn is_rustc(arg: &OsStr) -> bool {
    Path::new(arg).file_stem().is_some_and(|name| name == "rustc" || name == "clippy-driver")
}

struct Compilation {
    program: OsString,
    args: Vec<OsString>,
}

impl Compilation {
    fn new(program: OsString, args: Vec<OsString>) -> Self {
        Self { program, args }
    }

    fn option(&self, name: &str) -> Option<&OsStr> {
        let at = self.args.iter().position(|arg| arg == name)?;
        self.args.get(at + 1).map(OsString::as_os_str)
    }

    fn crate_name(&self) -> Option<&str> {
        self.option("--crate-name")?.to_str()
    }

    fn run(mut self, folder: &Path) -> Result<ExitCode> {
        let name = self.crate_name().unwrap_or_default().to_owned();
        if self.option("--target").is_none() || name.is_empty() {
            return self.become_it();
        }
        let is_rustdoc = self.program == RUSTDOC;
        if takes_cfgs(&name) && !is_rustdoc {
            self.args.splice(0..0, CFGS.map(OsString::from));
        }
        if name == PROBE_CRATE {
            return self.become_it();
        }
        let libraries = folder.join("lib");
        let mut search = OsString::from("-Lnative=");
        search.push(&libraries);
        let mut found_at_run_time = OsString::from("-Clink-arg=-Wl,-rpath,");
        found_at_run_time.push(&libraries);
        self.args.extend([search, found_at_run_time]);
        if is_rustdoc {
            return self.become_it();
        }
        match self.rewritten(&name, folder)? {
            Some(copy) => self.compile_copy(&copy),
            None => self.become_it(),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        command
    }

    /// Runs the compiler in place of this process.
    fn become_it(self) -> Result<ExitCode> {
        let error = self.command().exec();
        Err(Failure::Machine(format!("{} cannot be started: {error}", self.program.display())))
    }

    /// Index of the crate root in the arguments, and the package's folder.
    fn root(&self) -> Option<(usize, PathBuf)> {
        let at =
            self.args.iter().position(|arg| Path::new(arg).extension().is_some_and(|end| end == "rs"))?;
        let root = std::path::absolute(Path::new(&self.args[at])).ok()?;
        let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
        root.starts_with(&package).then_some((at, package))
    }

    /// If the sources link a framework, replaces the crate root with that of a copy that does not.
    fn rewritten(&mut self, name: &str, folder: &Path) -> Result<Option<Copied>> {
        let Some((at, package)) = self.root().filter(|_| takes_cfgs(name)) else { return Ok(None) };
        let Some(copy) = copy_of(&package, &folder.join("sources"))? else { return Ok(None) };
        let root = std::path::absolute(Path::new(&self.args[at])).map_err(with_path(&package))?;
        let below = root.strip_prefix(&package).unwrap_or(&root);
        self.args[at] = copy.join(below).into_os_string();
        Ok(Some(Copied { package, copy }))
    }

    /// Compiles the copy, and rewrites the dependency file to name the package's files.
    fn compile_copy(&self, copied: &Copied) -> Result<ExitCode> {
        let status = self.command().status().map_err(with_path(Path::new(&self.program)))?;
        if let Some(list) = self.dependency_list()
            && let Ok(text) = std::fs::read_to_string(&list)
        {
            let own = text.replace(&*copied.copy.to_string_lossy(), &copied.package.to_string_lossy());
            std::fs::write(&list, own).map_err(with_path(&list))?;
        }
        Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
    }

    fn dependency_list(&self) -> Option<PathBuf> {
        let of_args = |arg: &OsString| Some(arg.to_str()?.strip_prefix("extra-filename=")?.to_owned());
        let extra = self.args.iter().find_map(of_args).unwrap_or_default();
        Some(Path::new(self.option("--out-dir")?).join(format!("{}{extra}.d", self.crate_name()?)))
    }
}

/// A package and the copy that is compiled instead.
struct Copied {
    package: PathBuf,
    copy: PathBuf,
}

/// Whether a crate is built as for macOS; cargo's query for the cfgs counts as a crate.
fn takes_cfgs(name: &str) -> bool {
    let of = |variable| std::env::var(variable).unwrap_or_default();
    match name {
        PROBE_CRATE => of(PROBE) == "1",
        _ => is_binding(name) || of(CRATES).split(',').any(|named| named == name),
    }
}

const FRAMEWORK: &str = "kind = \"framework\"";
const LIBRARY: &str = "kind = \"dylib\"";

/// A copy of a package without frameworks, created if missing; `None` if its sources link none.
fn copy_of(package: &Path, copies: &Path) -> Result<Option<PathBuf>> {
    let mut files = Vec::new();
    collect(package, &mut files)?;
    let mut key = format!("{}", package.display());
    let mut links = false;
    for file in files.iter().filter(|file| is_rust(file)) {
        let text = std::fs::read_to_string(file).map_err(with_path(file))?;
        links |= text.contains(FRAMEWORK);
        key.push_str(&text);
    }
    if !links {
        return Ok(None);
    }
    let name = package.file_name().unwrap_or_default().to_string_lossy();
    let copy = copies.join(format!("{name}-{:016x}", hash(key.as_bytes())));
    if copy.exists() {
        return Ok(Some(copy));
    }
    std::fs::create_dir_all(copies).map_err(with_path(copies))?;
    let unfinished = tempfile::tempdir_in(copies).map_err(with_path(copies))?;
    for file in &files {
        let to = unfinished.path().join(file.strip_prefix(package).unwrap_or(file));
        std::fs::create_dir_all(to.parent().unwrap_or(copies)).map_err(with_path(&to))?;
        if is_rust(file) {
            let text = std::fs::read_to_string(file).map_err(with_path(file))?;
            std::fs::write(&to, text.replace(FRAMEWORK, LIBRARY)).map_err(with_path(&to))?;
        } else {
            std::fs::copy(file, &to).map_err(with_path(file))?;
        }
    }
    // A concurrent process may have created the same copy.
    let _taken = std::fs::rename(unfinished.keep(), &copy);
    Ok(Some(copy))
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "rs")
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(with_path(folder))? {
        let path = entry.map_err(with_path(folder))?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != ".git" {
            collect(&path, files)?;
        } else if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// FNV-1a, which is the same in every process.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compilation(args: &[&str]) -> Compilation {
        Compilation::new("rustc".into(), args.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_arguments_are_understood() {
        let args = ["--crate-name", "a_b", "src/lib.rs", "--out-dir", "/o", "-C", "extra-filename=-12"];
        let found = compilation(&args);
        assert_eq!(found.crate_name(), Some("a_b"));
        assert_eq!(found.dependency_list(), Some("/o/a_b-12.d".into()));
        assert_eq!(compilation(&["-vV"]).crate_name(), None);
        assert!(is_rustc(OsStr::new("/x/bin/rustc")) && !is_rustc(OsStr::new("src/lib.rs")));
    }

    #[test]
    fn bindings_are_always_built_for_macos() {
        for (name, expected) in [("objc2_metal", true), ("block2", true), ("half", false)] {
            assert_eq!(takes_cfgs(name), expected, "{name}");
        }
    }

    #[test]
    fn a_copy_links_libraries_in_place_of_frameworks() {
        let folder = tempfile::tempdir().unwrap();
        let (package, copies) = (folder.path().join("p-1.0"), folder.path().join("copies"));
        std::fs::create_dir_all(package.join("src/inner")).unwrap();
        std::fs::write(package.join("src/lib.rs"), "mod inner;").unwrap();
        std::fs::write(package.join("src/inner/mod.rs"), "// nothing").unwrap();
        std::fs::write(package.join("src/k.metal"), "kind = \"framework\"").unwrap();
        assert_eq!(copy_of(&package, &copies).unwrap(), None);

        let linked = "#[link(name = \"Metal\", kind = \"framework\")] extern \"C\" {}";
        std::fs::write(package.join("src/inner/mod.rs"), linked).unwrap();
        let copy = copy_of(&package, &copies).unwrap().unwrap();
        let read = |name: &str| std::fs::read_to_string(copy.join(name)).unwrap();
        assert_eq!(read("src/inner/mod.rs"), linked.replace("framework", "dylib"));
        assert_eq!((read("src/lib.rs").as_str(), read("src/k.metal").as_str()), ("mod inner;", FRAMEWORK));
        assert_eq!(copy_of(&package, &copies).unwrap().as_deref(), Some(&*copy), "made once");

        std::fs::write(package.join("src/lib.rs"), "mod inner; // changed").unwrap();
        assert_ne!(copy_of(&package, &copies).unwrap().unwrap(), copy, "another text, another copy");
    }
}
