//! [`StandIn`]: the stand-in for the Objective-C runtime and Apple's frameworks, and the folder in which the linker finds it
//! under their names.

use std::path::{Path, PathBuf};

use super::{cargo, carried, no_cargo, with_path};
use crate::failure::{Failure, Result};

/// Libraries that crates link.
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

/// Environment variable with the path of a built library, which is used as is.
const BUILT: &str = "ELINVAR_APPLE_LIBRARY";

/// A built stand-in: the library in `ELINVAR_APPLE_LIBRARY`; otherwise one built from the checkout in which this program was built;
/// otherwise one built from the embedded sources.
pub struct StandIn {
    /// `lib/` has the library and its names, `sources/` the copies of crates that link frameworks.
    pub folder: PathBuf,
}

impl StandIn {
    /// Builds it if it is missing or outdated.
    pub fn build() -> Result<Self> {
        let (workspace, target) = match checkout() {
            Some((workspace, target)) => (Some(workspace), target),
            None => {
                let folder = carried::folder()?;
                carried::keep_recent(&folder);
                (None, folder)
            }
        };
        let library = match built()? {
            Some(library) => library,
            None => {
                let workspace = match workspace {
                    Some(workspace) => workspace,
                    None => {
                        let sources = target.join("sources");
                        carried::unpack(&sources)?;
                        sources
                    }
                };
                compile(&workspace, &target)?;
                target.join("debug").join(LIBRARY)
            }
        };
        let standin = Self { folder: target.join("apple") };
        standin.fill(&library)?;
        Ok(standin)
    }

    fn fill(&self, library: &Path) -> Result<()> {
        let names = self.folder.join("lib");
        std::fs::create_dir_all(&names).map_err(with_path(&names))?;
        let own = names.join(LIBRARY);
        // Copied and renamed, so that processes that have loaded the old library keep it.
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

/// The library that the environment names.
fn built() -> Result<Option<PathBuf>> {
    let Some(path) = std::env::var_os(BUILT).filter(|path| !path.is_empty()).map(PathBuf::from) else {
        return Ok(None);
    };
    if !path.is_file() {
        return Err(Failure::input(format!("{BUILT}: there is no file `{}`", path.display())));
    }
    Ok(Some(path))
}

/// The workspace in which this program was built, if it still exists.
fn checkout() -> Option<(PathBuf, PathBuf)> {
    let own = std::env::current_exe().ok()?;
    let target = own.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists())?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    workspace.join("apple/metal/Cargo.toml").exists().then(|| (workspace, target.to_path_buf()))
}

fn compile(workspace: &Path, target: &Path) -> Result<()> {
    if !target.join("debug").join(LIBRARY).exists() {
        eprintln!("building the stand-in for Apple's libraries in {} (once)", target.display());
    }
    let mut cargo = cargo();
    cargo.current_dir(workspace).args(["build", "--quiet", "--package", "elinvar-apple", "--target-dir"]);
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(variable);
    }
    cargo.arg(target);
    let status = cargo.status().map_err(|error| no_cargo(&error))?;
    if !status.success() {
        return Err(Failure::Machine("the stand-in for Apple's libraries could not be built".into()));
    }
    Ok(())
}
