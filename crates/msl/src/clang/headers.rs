//! Elinvar's Metal headers: embedded in the binary, written to a directory for clang.
//!
//! The directory belongs to the cache, is named by the headers' digest and persists. Each process compares every file before use
//! and rewrites those that differ. Without a cache it is a temporary directory, removed with its last user.
//!
//! The preprocessor sees `include/`, which holds macros only. `elinvar_stdlib/` holds the declarations, which are included when
//! the rewritten text is compiled. Both names appear in clang's diagnostics, which tells locations in these headers from the
//! user's.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::clang::scratch::Scratch;
use crate::{Error, Result};
use elinvar_cache::{Cache, Key};
use elinvar_driver::PerProcess;
use elinvar_driver::sync::{Mutex, MutexGuard};

/// Path component of every header of Elinvar's.
pub(crate) const STDLIB_DIR: &str = "elinvar_stdlib";

/// The header with all declarations, relative to the headers' directory.
pub(crate) const DECLARATIONS: &str = "elinvar_stdlib/all.h";

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../headers/", $name)))),*]
    };
}

const FILES: [(&str, &str); 47] = files![
    "predefined.h",
    "include/elinvar_stdlib_macros.h",
    "include/simd/simd.h",
    "include/elinvar/grid",
    "include/elinvar/launch",
    "include/elinvar/queue",
    "include/elinvar/resident",
    "include/metal_tensor",
    "include/MetalPerformancePrimitives/MetalPerformancePrimitives.h",
    "include/MetalPerformancePrimitives/MPPTensorOpsMatMul2d.h",
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
    "elinvar_stdlib/function_table.h",
    "elinvar_stdlib/geometric.h",
    "elinvar_stdlib/pack.h",
    "elinvar_stdlib/synchronization.h",
    "elinvar_stdlib/atomics.h",
    "elinvar_stdlib/simdgroup.h",
    "elinvar_stdlib/textures.h",
    "elinvar_stdlib/commands.h",
    "elinvar_stdlib/uniform.h",
    "elinvar_stdlib/logging.h",
    "elinvar_stdlib/names.h",
    "elinvar_stdlib/entry.h",
    "elinvar_stdlib/async_copy.h",
    "elinvar_stdlib/simdgroup_matrix.h",
    "elinvar_stdlib/tensor.h",
    "elinvar_stdlib/cooperative_tensor.h",
    "elinvar_stdlib/matmul2d.h",
    "elinvar_stdlib/internal.h",
    "elinvar_stdlib/grid.h",
    "elinvar_stdlib/resident.h",
    "elinvar_stdlib/launch.h",
    "elinvar_stdlib/graphics.h",
];

/// Further headers that a source may include; each includes the macros.
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

/// The headers on disk.
#[derive(Debug)]
pub(crate) struct Headers {
    root: PathBuf,
    /// Removes the directory when dropped, unless a reproducer needs it. `None` in the cache.
    temporary: Mutex<Option<Scratch>>,
    /// Precompiled headers by key; `None` for one that could not be built.
    precompiled: Mutex<HashMap<Key, Option<PathBuf>>>,
}

/// The content of every file of [`INCLUDES`].
const INCLUDE: &str = "#include <elinvar_stdlib_macros.h>\n";

/// Hash of all headers.
pub(crate) fn digest() -> Key {
    static DIGEST: PerProcess<Key> = PerProcess::new(|| {
        let written = FILES.map(|(name, text)| format!("{name}\n{}\n{text}", text.len())).concat();
        let generated = [2, 3, 4].map(swizzles).concat() + INCLUDE + &INCLUDES.join("\n");
        Key::of((written + &generated).as_bytes())
    });
    *DIGEST.get()
}

/// Headers that this process has installed.
#[derive(Default)]
struct Shared {
    /// In caches' directories, which persist.
    normalized: Vec<Arc<Headers>>,
    temporary: Weak<Headers>,
}

static SHARED: PerProcess<Mutex<Shared>> = PerProcess::new(Mutex::default);

impl Headers {
    /// The process's shared copy, installed on first use. Hold it across several runs of clang.
    pub(crate) fn shared(cache: &Cache) -> Result<Arc<Self>> {
        let mut shared = SHARED.get().lock();
        let root = cache.folder(&format!("{STDLIB_DIR}-{:.16}", digest().to_string()));
        // clang's arguments have to be UTF-8.
        if let Some(root) = root.filter(|root| root.to_str().is_some()) {
            shared.normalized.retain(|headers| headers.declarations().is_file());
            if let Some(known) = shared.normalized.iter().find(|headers| headers.root == root) {
                return Ok(known.clone());
            }
            match Self::install(&root, None) {
                Ok(headers) => {
                    let headers = Arc::new(headers);
                    shared.normalized.push(headers.clone());
                    return Ok(headers);
                }
                Err(why) => tracing::debug!("no headers in {}: {why}", root.display()),
            }
        }
        if let Some(headers) = shared.temporary.upgrade() {
            return Ok(headers);
        }
        let headers = Arc::new(Self::temporary().map_err(|e| {
            Error::Io(format!("cannot write the Metal headers to `{}`: {e}", std::env::temp_dir().display()))
        })?);
        shared.temporary = Arc::downgrade(&headers);
        Ok(headers)
    }

    fn temporary() -> std::io::Result<Self> {
        let folder = Scratch::new()?;
        let root = folder.path().to_owned();
        Self::install(&root, Some(folder))
    }

    fn install(root: &Path, temporary: Option<Scratch>) -> std::io::Result<Self> {
        for sub in ["elinvar_stdlib", "include/simd", "include/elinvar", "include/MetalPerformancePrimitives"]
        {
            std::fs::create_dir_all(root.join(sub))?;
        }
        for (name, text) in FILES {
            write_if_changed(root, name, text.as_bytes())?;
        }
        for name in INCLUDES {
            write_if_changed(root, &format!("include/{name}"), INCLUDE.as_bytes())?;
        }
        for needed in 2..=4 {
            write_if_changed(
                root,
                &format!("elinvar_stdlib/swizzles_{needed}.h"),
                swizzles(needed).as_bytes(),
            )?;
        }
        let (temporary, precompiled) = (Mutex::new(temporary), Mutex::default());
        Ok(Self { root: root.to_owned(), temporary, precompiled })
    }

    /// Keep temporary headers on disk, for a reproducer.
    pub(crate) fn preserve() {
        let shared = SHARED.get().lock();
        if let Some(headers) = shared.temporary.upgrade() {
            let mut temporary = headers.temporary.lock();
            if let Some(folder) = &mut *temporary {
                folder.preserve();
            }
        }
    }

    /// Whether the directory persists beyond this process.
    pub(crate) fn is_persistent(&self) -> bool {
        self.temporary.lock().is_none()
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

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The table of precompiled headers. The lock is held while one is built.
    pub(crate) fn precompiled(&self) -> MutexGuard<'_, HashMap<Key, Option<PathBuf>>> {
        self.precompiled.lock()
    }
}

/// Replace a file atomically unless it has this content already.
pub(crate) fn write_if_changed(root: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let path = root.join(name);
    if std::fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let mut file = tempfile::NamedTempFile::new_in(root)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

/// The swizzles of 2 to 4 letters whose highest component is number `needed`, at least 2.
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
    fn a_temporary_copy_goes_with_its_last_user() {
        let off = Cache::off();
        let (a, b) = (Headers::shared(&off).unwrap(), Headers::shared(&off).unwrap());
        assert!(Arc::ptr_eq(&a, &b) && !a.is_persistent());
        let other = Headers::temporary().unwrap();
        let root = other.root().to_owned();
        assert!(root.join("include/simd/simd.h").is_file() && other.declarations().is_file());
        drop(other);
        assert!(!root.exists());
    }

    #[test]
    fn a_copy_in_the_cache_is_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path(), 1 << 30, "v");
        let headers = Headers::shared(&cache).unwrap();
        assert!(headers.is_persistent() && headers.root().starts_with(folder.path()));
        let file = headers.root().join("elinvar_stdlib/math.h");
        let text = std::fs::read(&file).unwrap();
        for damage in [&text[..100], b""] {
            std::fs::write(&file, damage).unwrap();
            Headers::install(headers.root(), None).unwrap();
            assert_eq!(std::fs::read(&file).unwrap(), text);
        }
        std::fs::remove_dir_all(headers.root()).unwrap();
        Headers::shared(&cache).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), text);
    }
}
