//! [`StandIn`]: the library that stands for the Objective-C runtime and Apple's frameworks, and the folder in which the
//! linker finds it under their names.

use std::path::{Path, PathBuf};

use super::{cargo, no_cargo, with_path};
use crate::failure::{Failure, Result};

/// What crates ask the linker for.
const NAMES: [&str; 14] = [
    "objc",
    "System",
    "CoreFoundation",
    "Foundation",
    "CoreGraphics",
    "IOSurface",
    "QuartzCore",
    "IOKit",
    "Metal",
    "MetalKit",
    "MetalPerformanceShaders",
    "MetalPerformanceShadersGraph",
    "Accelerate",
    "CoreServices",
];

const LIBRARY: &str = "libelinvar_apple.so";

/// A built stand-in.
pub struct StandIn {
    /// `lib/` has the library and its names, `sources/` the copies of crates that link frameworks.
    pub folder: PathBuf,
}

impl StandIn {
    /// Build it if it is not there or not new.
    pub fn build() -> Result<Self> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if !workspace.join("apple/metal/Cargo.toml").exists() {
            return Err(Failure::input(
                "the sources of the stand-in are not where this program was built from",
            ));
        }
        let target = target_folder()?;
        compile(&workspace, &target)?;
        let standin = Self { folder: target.join("apple") };
        standin.fill(&target.join("debug").join(LIBRARY))?;
        Ok(standin)
    }

    fn fill(&self, library: &Path) -> Result<()> {
        let names = self.folder.join("lib");
        std::fs::create_dir_all(&names).map_err(with_path(&names))?;
        let own = names.join(LIBRARY);
        // A copy beside it and a rename, so that a process that has the old one loaded keeps it.
        let new = names.join(format!("{LIBRARY}.{}", std::process::id()));
        std::fs::copy(library, &new).map_err(with_path(library))?;
        std::fs::rename(&new, &own).map_err(with_path(&own))?;
        for name in NAMES {
            let path = names.join(format!("lib{name}.so"));
            let text = format!("INPUT({})\n", own.display());
            if std::fs::read_to_string(&path).is_ok_and(|present| present == text) {
                continue;
            }
            std::fs::write(&path, text).map_err(with_path(&path))?;
        }
        Ok(())
    }
}

/// Where this program was built: the folder above the profile's.
fn target_folder() -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(|error| Failure::Machine(error.to_string()))?;
    let found = own.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    found.map(Path::to_path_buf).ok_or_else(|| {
        Failure::Machine(format!("{} is not in the folder that cargo builds in", own.display()))
    })
}

fn compile(workspace: &Path, target: &Path) -> Result<()> {
    let mut cargo = cargo();
    cargo.current_dir(workspace).args(["build", "--quiet", "--package", "elinvar-apple", "--target-dir"]);
    cargo.arg(target).env_remove("RUSTFLAGS");
    let status = cargo.status().map_err(|error| no_cargo(&error))?;
    if !status.success() {
        return Err(Failure::Machine("the stand-in for Apple's libraries could not be built".into()));
    }
    Ok(())
}
