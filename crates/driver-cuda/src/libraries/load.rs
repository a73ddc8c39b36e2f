//! Finds and loads NVIDIA's libraries: in the folders of `ELINVAR_CUDA_LIBRARIES` if that is set, else where toolkits, distributions and
//! Python packages install them.

use std::env;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folders to search in place of the usual ones, separated as in `PATH`. Empty for none.
const FOLDERS: &str = "ELINVAR_CUDA_LIBRARIES";

/// A failed call of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) call: &'static str,
    pub(super) code: i32,
}

/// Declares a table of a library's functions, which return a status, 0 for success.
macro_rules! library {
    ($(#[$doc:meta])* $name:ident { $($method:ident = $symbol:literal ($($arg:ident: $ty:ty),* $(,)?);)* }) => {
        $(#[$doc])*
        struct $name {
            $($method: unsafe extern "C" fn($($ty),*) -> i32,)*
        }

        impl $name {
            /// Loads the library, which is never unloaded.
            fn open(path: &std::path::Path) -> Result<Self, String> {
                let library = $crate::libraries::load::open(path)?;
                Ok(Self { $($method: $crate::libraries::load::symbol(library, path, $symbol)?,)* })
            }

            $(
                /// # Safety
                #[doc = concat!("As the documentation of `", $symbol, "` asks.")]
                #[allow(unsafe_code, clippy::too_many_arguments)] // a C function
                unsafe fn $method(&self, $($arg: $ty),*) -> Result<(), $crate::libraries::load::Status> {
                    // SAFETY: the symbol has this type; the caller guarantees the preconditions of the call.
                    match unsafe { (self.$method)($($arg),*) } {
                        0 => Ok(()),
                        code => Err($crate::libraries::load::Status { call: $symbol, code }),
                    }
                }
            )*
        }
    };
}

pub(super) use library;

/// A pointer of a library.
pub(super) type Object = *mut c_void;

/// A descriptor of a library with these functions.
pub(super) struct Descriptor<F> {
    functions: Arc<F>,
    pub(super) object: Object,
    destroy: unsafe fn(&F, Object) -> Result<(), Status>,
}

#[allow(unsafe_code)] // plain memory
// SAFETY: descriptors are plain memory, which the libraries read during calls and write in calls that are unsafe.
unsafe impl<F: Send + Sync> Send for Descriptor<F> {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl<F: Send + Sync> Sync for Descriptor<F> {}

impl<F> Descriptor<F> {
    /// Calls `create`.
    ///
    /// # Safety
    /// `create` must write a descriptor that `destroy` destroys.
    #[allow(unsafe_code)] // C functions
    pub(super) unsafe fn new(
        functions: &Arc<F>,
        create: impl FnOnce(&F, *mut Object) -> Result<(), Status>,
        destroy: unsafe fn(&F, Object) -> Result<(), Status>,
    ) -> Result<Self, Status> {
        let mut object = std::ptr::null_mut();
        create(functions, &mut object)?;
        Ok(Self { functions: functions.clone(), object, destroy })
    }
}

impl<F> Drop for Descriptor<F> {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        // SAFETY: made by the library and not used any more. There is nothing to do about a failure.
        let _freed = unsafe { (self.destroy)(&self.functions, self.object) };
    }
}

#[allow(unsafe_code)] // loads a library
pub(super) fn open(path: &Path) -> Result<&'static libloading::Library, String> {
    // SAFETY: runs the initializers of NVIDIA's library, as intended.
    let library = unsafe { libloading::Library::new(path) };
    let library = library.map_err(|error| format!("{} cannot be loaded: {error}", path.display()))?;
    Ok(Box::leak(Box::new(library)))
}

#[allow(unsafe_code)] // a symbol of a library, of the type that the caller names
pub(super) fn symbol<F: Copy>(library: &libloading::Library, path: &Path, name: &str) -> Result<F, String> {
    // SAFETY: the tables have the types of the libraries' headers.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| format!("{} has no `{name}`: it is too old", path.display()))
}

/// Searches for a library, `cublasLt` for instance, of one of these major versions; earlier ones are preferred.
pub(super) fn find(name: &str, majors: &[i32]) -> Result<PathBuf, String> {
    let files: Vec<String> = majors.iter().map(|major| format!("lib{name}.so.{major}")).collect();
    find_file(&files)
}

/// Searches for a file of CUDA by its names; earlier ones are preferred.
pub(crate) fn find_file(files: &[String]) -> Result<PathBuf, String> {
    let only = env::var_os(FOLDERS);
    let folders = match &only {
        Some(folders) => env::split_paths(folders).filter(|folder| !folder.as_os_str().is_empty()).collect(),
        None => usual_folders(),
    };
    // The preferred version in any folder comes before other versions.
    let all = files.iter().flat_map(|file| folders.iter().map(move |folder| folder.join(file)));
    all.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let files = files.join(" or ");
        match only {
            Some(_) => format!("{files} is not in the folders of {FOLDERS}"),
            None => format!(
                "{files} was not found: neither in LD_LIBRARY_PATH, nor in CUDA's toolkit or the system's folders, nor in the \
                 `nvidia` packages of Python; {FOLDERS} can name its folder"
            ),
        }
    })
}

fn usual_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    folders.extend(env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths));
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let toolkits =
        toolkits.chain(["/usr/local/cuda".into()]).chain(entries(Path::new("/usr/local"), "cuda-"));
    let target = format!("targets/{}-linux/lib", env::consts::ARCH);
    folders.extend(toolkits.flat_map(|toolkit| ["lib64", &target].map(|folder| toolkit.join(folder))));
    let triple = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
    folders.extend([triple.as_str(), "/usr/lib64", "/usr/lib"].map(PathBuf::from));
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".local"));
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    for prefix in prefixes.chain(home).chain(["/usr/local".into(), "/usr".into()]) {
        let pythons = entries(&prefix.join("lib"), "python3");
        let packages =
            pythons.iter().flat_map(|python| ["site-packages", "dist-packages"].map(|p| python.join(p)));
        let packages = packages.flat_map(|packages| entries(&packages.join("nvidia"), ""));
        folders.extend(packages.map(|package| package.join("lib")));
    }
    folders
}

/// The entries of a folder whose names begin with `start`, in order; none if it does not exist.
fn entries(folder: &Path, start: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut all: Vec<PathBuf> = all
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| entry.path())
        .collect();
    all.sort();
    all
}
