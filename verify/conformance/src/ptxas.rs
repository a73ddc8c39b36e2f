//! NVIDIA's assembler, if it is installed: verifies PTX without a GPU.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elinvar_cache::{Cache, Key};
use elinvar_ptx::Ptx;

/// Environment variable with the path of the assembler.
const PTXAS: &str = "ELINVAR_PTXAS";

/// The assembler.
pub struct Ptxas {
    path: PathBuf,
    cache: Cache,
}

impl Ptxas {
    /// The assembler that `ELINVAR_PTXAS` names, or the first on the path. PTX that it has accepted before is looked up in the cache.
    pub fn find(cache: &Cache) -> Option<Self> {
        let named = std::env::var_os(PTXAS).filter(|path| !path.is_empty()).map(PathBuf::from);
        let on_path = || {
            let folders = std::env::var_os("PATH")?;
            std::env::split_paths(&folders).map(|folder| folder.join("ptxas")).find(|file| file.is_file())
        };
        let path = named.filter(|path| path.is_file()).or_else(on_path)?;
        Some(Self { path, cache: cache.clone() })
    }

    /// Assembles a kernel for its target.
    ///
    /// # Errors
    /// The assembler's message, and the PTX.
    pub fn check(&self, ptx: &Ptx) -> Result<(), String> {
        let key = self.key(ptx);
        if self.cache.load(&key).is_some() {
            return Ok(());
        }
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let file = folder.path().join("kernel.ptx");
        std::fs::write(&file, &ptx.text).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.path);
        command.arg(format!("-arch={}", ptx.target)).arg("-o").arg(folder.path().join("kernel.cubin"));
        let output = command.arg(&file).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("{}: {said}\n{}", ptx.signature.name, ptx.text));
        }
        self.cache.store(&key, b"assembled");
        Ok(())
    }

    fn key(&self, ptx: &Ptx) -> Key {
        let program: &Path = &self.path;
        self.cache.key("ptxas").program(program).text(&ptx.target.to_string()).text(&ptx.text).finish()
    }
}
