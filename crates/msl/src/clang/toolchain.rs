//! Locates clang.
//!
//! `ELINVAR_CLANG` if set, else the newest `clang-NN` on `PATH`, else `clang`. The result is memoized per values of the two
//! variables. A program's version is cached by path, size and modification time, so that later processes need not run it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use elinvar_cache::{Cache, decode, encode};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{Cancellation, PerProcess};

use crate::clang::headers::Headers;
use crate::clang::process::{self, Failure, Limits};
use crate::{Error, Result};

/// The oldest supported clang: `_Float16` and `__bf16` work as the headers need.
const MIN_VERSION: u32 = 19;

/// A clang, its headers, and the cache for its results.
#[derive(Clone, Debug)]
pub struct Toolchain {
    path: PathBuf,
    version: String,
    major: u32,
    pub(crate) cache: Cache,
}

/// A memoized result, with the variables that it depends on.
struct Located {
    override_path: Option<OsString>,
    path_variable: OsString,
    path: PathBuf,
    version: String,
    major: u32,
}

static LOCATED: PerProcess<Mutex<Option<Located>>> = PerProcess::new(Mutex::default);

impl Toolchain {
    /// Locate clang, without a cache.
    ///
    /// # Errors
    /// `Toolchain` when there is no usable clang; the message lists the candidates and how to install one.
    pub fn find() -> Result<Self> {
        Self::find_with(&Cache::off())
    }

    /// Locate clang, with a cache for its results.
    ///
    /// # Errors
    /// As [`Toolchain::find`].
    pub fn find_with(cache: &Cache) -> Result<Self> {
        let override_path = std::env::var_os("ELINVAR_CLANG").filter(|v| !v.is_empty());
        let path_variable = std::env::var_os("PATH").unwrap_or_default();
        let mut found = LOCATED.get().lock();
        if let Some(f) =
            found.as_ref().filter(|f| f.override_path == override_path && f.path_variable == path_variable)
        {
            return Ok(Self::new(f.path.clone(), f.version.clone(), f.major, cache));
        }
        let (path, version, major) = locate(override_path.as_deref(), &path_variable, cache)?;
        let tool = Self::new(path.clone(), version.clone(), major, cache);
        *found = Some(Located { override_path, path_variable, path, version, major });
        Ok(tool)
    }

    /// [`Toolchain::find`] with explicit values of `ELINVAR_CLANG` and `PATH`, not memoized.
    ///
    /// # Errors
    /// As [`Toolchain::find`].
    pub fn find_in(override_path: Option<&OsStr>, path: &OsStr) -> Result<Self> {
        let cache = Cache::off();
        let (path, version, major) = locate(override_path, path, &cache)?;
        Ok(Self::new(path, version, major, &cache))
    }

    fn new(path: PathBuf, version: String, major: u32, cache: &Cache) -> Self {
        // It runs in other working directories.
        let path = std::path::absolute(&path).unwrap_or(path);
        Self { path, version, major, cache: cache.clone() }
    }

    /// The headers, installed.
    pub(crate) fn headers(&self) -> Result<Arc<Headers>> {
        Headers::shared(&self.cache)
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Absolute path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// First line of `clang --version`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Major version.
    pub fn major(&self) -> u32 {
        self.major
    }
}

fn locate(override_path: Option<&OsStr>, path: &OsStr, cache: &Cache) -> Result<(PathBuf, String, u32)> {
    let Some(clang) = override_path else { return search(path, cache) };
    let clang = resolve(clang, path);
    let (version, major) = probe_cached(&clang, cache).map_err(|why| {
        Error::Toolchain(format!("ELINVAR_CLANG: `{}` {why}\n{}", clang.display(), install_hint()))
    })?;
    Ok((clang, version, major))
}

/// Resolve a name without directory on `PATH`.
fn resolve(clang: &OsStr, path: &OsStr) -> PathBuf {
    let plain = Path::new(clang);
    if plain.components().count() > 1 {
        return plain.to_owned();
    }
    std::env::split_paths(path)
        .map(|d| d.join(plain))
        .find(|p| p.is_file())
        .unwrap_or_else(|| plain.to_owned())
}

fn search(path: &OsStr, cache: &Cache) -> Result<(PathBuf, String, u32)> {
    let mut candidates: Vec<(u32, PathBuf)> = Vec::new();
    for (order, folder) in std::env::split_paths(path).enumerate() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|n| n.starts_with("clang")) else { continue };
            let number = name.strip_prefix("clang-").and_then(|n| n.parse::<u32>().ok());
            match number {
                Some(n) if n >= MIN_VERSION => candidates.push((u32::MAX - n, entry.path())),
                None if name == "clang" => {
                    candidates.push((
                        u32::MAX - MIN_VERSION + 1 + u32::try_from(order).unwrap_or(0).min(9),
                        entry.path(),
                    ));
                }
                _ => {}
            }
        }
    }
    candidates.sort_by_key(|(rank, _)| *rank);
    let mut rejected = String::new();
    for (_, clang) in candidates {
        match probe_cached(&clang, cache) {
            Ok((version, major)) => return Ok((clang, version, major)),
            Err(why) => rejected.push_str(&format!("\n  `{}` {why}", clang.display())),
        }
    }
    let looked = if rejected.is_empty() { String::new() } else { format!("; rejected:{rejected}") };
    Err(Error::Toolchain(format!("no clang {MIN_VERSION} or newer on PATH{looked}\n{}", install_hint())))
}

/// The version line and the major version, or why the program cannot be used; cached.
fn probe_cached(clang: &Path, cache: &Cache) -> Result<(String, u32), String> {
    let key = cache.key("compiler").program(clang).finish();
    if let Some(known) = cache.load(&key).as_deref().and_then(decode) {
        return Ok(known);
    }
    let asked = probe(clang)?;
    cache.store(&key, &encode(&asked));
    Ok(asked)
}

fn probe(clang: &Path) -> Result<(String, u32), String> {
    let limits = Limits::from_env()?;
    let mut command = Command::new(clang);
    let output =
        Cancellation::shield(|| process::run(command.arg("--version").stdin(Stdio::null()), &limits));
    let output = output.map_err(|failure| match failure {
        Failure::Start(error) => format!("cannot be run: {error}"),
        Failure::Killed(why) => format!("cannot be used: `--version` {why}"),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default().trim();
    if !output.status.success() || !line.contains("clang") {
        return Err(format!("is not clang: `--version` printed `{line}` ({})", output.status));
    }
    if line.starts_with("Apple") {
        return Err(format!("is Apple's clang ({line}), whose version numbers and features differ"));
    }
    let major = line
        .split("version ")
        .nth(1)
        .and_then(|v| v.split(|c: char| !c.is_ascii_digit()).next())
        .and_then(|v| v.parse::<u32>().ok())
        .ok_or_else(|| format!("does not report a version: `{line}`"))?;
    if major < MIN_VERSION {
        return Err(format!("is version {major}; {MIN_VERSION} or newer is required"));
    }
    Ok((line.to_owned(), major))
}

fn install_hint() -> String {
    "install one:\n  \
     Debian, Ubuntu: apt-get install clang-19 (where the release has none: https://apt.llvm.org)\n  \
     Fedora: dnf install clang\n  \
     Arch: pacman -S clang\n  \
     macOS: brew install llvm, then set ELINVAR_CLANG=$(brew --prefix llvm)/bin/clang"
        .to_owned()
}
