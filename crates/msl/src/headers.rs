//! Our Metal headers: carried in the binary, laid out in a temporary folder while anyone uses them.
//!
//! `include/` is all that preprocessing sees: macros. `elinvar_stdlib/` holds the declarations, given
//! when the rewritten text is compiled. Both names end up in what clang says, so that places inside
//! our headers can be told from the user's.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use elinvar_cache::Key;
use tempfile::TempDir;

use crate::{Error, Result};

/// Part of the path of every file of ours that clang reads.
pub(crate) const MARK: &str = "elinvar_stdlib";

/// The file that gives all declarations, in the headers' folder.
pub(crate) const DECLARATIONS: &str = "elinvar_stdlib/all.h";

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../headers/", $name)))),*]
    };
}

const FILES: [(&str, &str); 28] = files![
    "predefined.h",
    "include/elinvar_stdlib_macros.h",
    "include/simd/simd.h",
    "elinvar_stdlib/all.h",
    "elinvar_stdlib/types.h",
    "elinvar_stdlib/limits.h",
    "elinvar_stdlib/vectors.h",
    "elinvar_stdlib/operators.h",
    "elinvar_stdlib/matrices.h",
    "elinvar_stdlib/integer.h",
    "elinvar_stdlib/common.h",
    "elinvar_stdlib/math.h",
    "elinvar_stdlib/math_core.h",
    "elinvar_stdlib/math_exp.h",
    "elinvar_stdlib/math_trigonometric.h",
    "elinvar_stdlib/math_hyperbolic.h",
    "elinvar_stdlib/math_exact.h",
    "elinvar_stdlib/relational.h",
    "elinvar_stdlib/geometric.h",
    "elinvar_stdlib/pack.h",
    "elinvar_stdlib/synchronization.h",
    "elinvar_stdlib/atomics.h",
    "elinvar_stdlib/simdgroup.h",
    "elinvar_stdlib/textures.h",
    "elinvar_stdlib/names.h",
    "elinvar_stdlib/entry.h",
    "elinvar_stdlib/simdgroup_matrix.h",
    "elinvar_stdlib/internal.h",
];

/// The headers that a source may include besides; each gives the macros.
const INCLUDES: [&str; 37] = [
    "metal_stdlib",
    "metal_array",
    "metal_assert",
    "metal_atomic",
    "metal_common",
    "metal_compute",
    "metal_config",
    "metal_curves",
    "metal_cooperative_tensor",
    "metal_extended_vector",
    "metal_command_buffer",
    "metal_geometric",
    "metal_graphics",
    "metal_imageblocks",
    "metal_integer",
    "metal_interpolate",
    "metal_limits",
    "metal_logging",
    "metal_math",
    "metal_matrix",
    "metal_mesh",
    "metal_numeric",
    "metal_pack",
    "metal_packed_vector",
    "metal_pull_model",
    "metal_quadgroup",
    "metal_raytracing",
    "metal_relational",
    "metal_simdgroup",
    "metal_simdgroup_matrix",
    "metal_tessellation",
    "metal_texture",
    "metal_type_traits",
    "metal_types",
    "metal_uniform",
    "metal_vector",
    "metal_visible_function_table",
];

/// The laid out files. Dropping the last reference removes them, unless they were needed to tell of a crash.
#[derive(Debug)]
pub(crate) struct Headers {
    folder: TempDir,
    kept: AtomicBool,
    /// The precompiled headers in the folder; `None` for one that cannot be had.
    precompiled: Mutex<HashMap<Key, Option<PathBuf>>>,
}

/// What identifies the declarations.
pub(crate) fn digest() -> Key {
    static DIGEST: LazyLock<Key> = LazyLock::new(|| {
        let written = FILES.map(|(name, text)| format!("{name}\n{}\n{text}", text.len())).concat();
        Key::of((written + &[2, 3, 4].map(swizzles).concat()).as_bytes())
    });
    *DIGEST
}

static SHARED: Mutex<Weak<Headers>> = Mutex::new(Weak::new());

impl Headers {
    /// The process's copy, laid out if nobody holds one.
    pub(crate) fn shared() -> Result<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(headers) = shared.upgrade() {
            return Ok(headers);
        }
        let headers = Arc::new(Self::lay_out().map_err(|e| {
            Error::Io(format!("cannot write the Metal headers to `{}`: {e}", std::env::temp_dir().display()))
        })?);
        *shared = Arc::downgrade(&headers);
        Ok(headers)
    }

    fn lay_out() -> std::io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("elinvar_stdlib-").tempdir()?;
        let root = folder.path();
        for sub in ["elinvar_stdlib", "include/simd", "sources"] {
            std::fs::create_dir_all(root.join(sub))?;
        }
        for (name, text) in FILES {
            std::fs::write(root.join(name), text)?;
        }
        for name in INCLUDES {
            std::fs::write(root.join("include").join(name), "#include <elinvar_stdlib_macros.h>\n")?;
        }
        for needed in 2..=4 {
            std::fs::write(root.join(format!("elinvar_stdlib/swizzles_{needed}.h")), swizzles(needed))?;
        }
        Ok(Self { folder, kept: AtomicBool::new(false), precompiled: Mutex::default() })
    }

    pub(crate) fn predefined(&self) -> PathBuf {
        self.root().join("predefined.h")
    }

    pub(crate) fn include(&self) -> PathBuf {
        self.root().join("include")
    }

    pub(crate) fn declarations(&self) -> PathBuf {
        self.root().join(DECLARATIONS)
    }

    /// An otherwise empty folder for the text that is preprocessed.
    pub(crate) fn sources(&self) -> PathBuf {
        self.root().join("sources")
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The precompiled headers, under the lock that one takes to make them.
    pub(crate) fn precompiled(&self) -> MutexGuard<'_, HashMap<Key, Option<PathBuf>>> {
        self.precompiled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leave the files where they are for good.
    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for Headers {
    fn drop(&mut self) {
        self.folder.disable_cleanup(self.kept.load(Ordering::Relaxed));
    }
}

/// The swizzles of 2 to 4 letters whose farthest component is number `needed` (2: the first two).
fn swizzles(needed: usize) -> String {
    let mut text = format!("// Swizzles that need {needed} components; generated.\n");
    for letters in ["xyzw", "rgba"] {
        for length in 2..=4usize {
            for code in 0..4usize.pow(length as u32) {
                let picks: Vec<usize> =
                    (0..length).map(|i| code / 4usize.pow((length - 1 - i) as u32) % 4).collect();
                let farthest = picks.iter().max().map_or(0, |m| m + 1).max(2);
                if farthest != needed {
                    continue;
                }
                let repeats = (1..length).any(|i| picks[..i].contains(&picks[i]));
                let form = if repeats { "READ" } else { "SWIZZLE" };
                let name: String = picks.iter().map(|&p| &letters[p..=p]).collect();
                let parts: Vec<&str> = picks.iter().map(|&p| &"xyzw"[p..=p]).collect();
                let _ = writeln!(text, "ELINVAR_{form}{length}({name}, {})", parts.join(", "));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_swizzles_once() {
        let lines = |n| swizzles(n).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!([2, 3, 4].map(|n| lines(n).len()), [56, 178, 438]);
        assert!(lines(2).contains(&"ELINVAR_SWIZZLE2(yx, y, x)".to_owned()));
        assert!(lines(2).contains(&"ELINVAR_READ3(rrg, x, x, y)".to_owned()));
        assert!(lines(4).contains(&"ELINVAR_SWIZZLE4(wzyx, w, z, y, x)".to_owned()));
    }

    #[test]
    fn one_copy_that_goes_with_its_last_user() {
        let first = Headers::lay_out().unwrap();
        let root = first.root().to_owned();
        assert!(root.join("include/simd/simd.h").is_file() && first.declarations().is_file());
        drop(first);
        assert!(!root.exists());
        let (a, b) = (Headers::shared().unwrap(), Headers::shared().unwrap());
        assert!(Arc::ptr_eq(&a, &b));
    }
}
