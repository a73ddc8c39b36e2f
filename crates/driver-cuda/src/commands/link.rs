//! [`Linker`]: links kernels with the executor and CUDA's device runtime, and keeps the machine code on disk, so that a later process only
//! loads it.
//!
//! The key covers the content of all inputs, the GPU's compute capability and the driver, whose linker makes the code. An entry that the
//! driver rejects is linked anew and replaced.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use cudarc::driver::sys::{CUjit_option_enum as JitOption, CUlinkState, CUmodule};
use elinvar_cache::{Cache, Key};
use elinvar_driver::{Error, Result};

use crate::caps::capability;
use crate::context::Context;
use crate::failure::{Failure, code};
use crate::libraries::find_file;

/// `CU_JIT_INPUT_PTX` and `CU_JIT_INPUT_LIBRARY`.
const PTX: u32 = 1;
const LIBRARY: u32 = 4;
/// Size of the buffer for the linker's log, in bytes.
const LOG: usize = 8 << 10;

/// Links kernels that the device launches.
pub(crate) struct Linker {
    cache: Cache,
    /// CUDA's device runtime.
    runtime: PathBuf,
}

/// What the machine code depends on besides its inputs.
#[derive(Clone, Copy)]
struct Place {
    /// As `cuDriverGetVersion` returns it.
    driver: i32,
    capability: (u32, u32),
}

impl Linker {
    /// Searches for CUDA's device runtime.
    ///
    /// # Errors
    /// The reason why it was not found.
    pub(crate) fn find(cache: &Cache) -> Result<Self, String> {
        let runtime = find_file(&["libcudadevrt.a".into()])?;
        Ok(Self { cache: cache.clone(), runtime })
    }

    /// The file of CUDA's device runtime.
    pub(crate) fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Loads texts of PTX, linked with CUDA's device runtime. The context must be current.
    pub(super) fn load(&self, context: &Context, texts: &[&str]) -> Result<CUmodule> {
        let place = Place::of(context).map_err(|failure| context.error(failure, "querying a GPU"))?;
        let key = key(&self.cache, &self.runtime, place, texts);
        let load =
            |code: &[u8]| load(context, code).map_or_else(|failure| Err(Rejected::of(failure, context)), Ok);
        cached(&self.cache, key.as_ref(), load, || link(context, texts, &self.runtime))
    }
}

impl Place {
    #[allow(unsafe_code)] // a C function
    fn of(context: &Context) -> Result<Self, Failure> {
        let mut driver = 0;
        // SAFETY: it writes a number.
        unsafe { context.api.driver_version(&mut driver) }?;
        Ok(Self { driver, capability: capability(context.api, context.device)? })
    }
}

/// Why code was not loaded.
enum Rejected {
    /// The driver does not accept this code.
    Code(Error),
    /// Other code would not be loaded either.
    Other(Error),
}

impl Rejected {
    fn of(failure: Failure, context: &Context) -> Self {
        let error = context.error(failure, "loading the kernels of commands");
        if is_of_code(failure) { Self::Code(error) } else { Self::Other(error) }
    }
}

fn is_of_code(failure: Failure) -> bool {
    let codes = [code::INVALID_IMAGE, code::NO_BINARY_FOR_GPU, code::INVALID_PTX];
    codes.contains(&failure.code) || failure.code == code::UNSUPPORTED_PTX_VERSION
}

/// `None` if the runtime cannot be read.
fn key(cache: &Cache, runtime: &Path, place: Place, texts: &[&str]) -> Option<Key> {
    let runtime = std::fs::read(runtime).ok()?;
    let (major, minor) = place.capability;
    let key = cache.key("linked commands").bytes(&runtime).text(&place.driver.to_string());
    let key = key.number(major.into()).number(minor.into());
    Some(texts.iter().fold(key, |key, text| key.text(text)).finish())
}

/// Loads the code that is kept under a key, or else what `link` returns, which is kept if it could be loaded.
fn cached<M>(
    cache: &Cache,
    key: Option<&Key>,
    load: impl Fn(&[u8]) -> Result<M, Rejected>,
    link: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<M> {
    if let Some(code) = key.and_then(|key| cache.load(key)) {
        match load(&code) {
            Ok(loaded) => return Ok(loaded),
            Err(Rejected::Code(why)) => tracing::debug!("linked kernels from the cache: {why}; linked anew"),
            Err(Rejected::Other(error)) => return Err(error),
        }
    }
    let code = link()?;
    let loaded = load(&code).map_err(|(Rejected::Code(error) | Rejected::Other(error))| error)?;
    if let Some(key) = key {
        cache.store(key, &code);
    }
    Ok(loaded)
}

#[allow(unsafe_code)] // a C function
fn load(context: &Context, code: &[u8]) -> Result<CUmodule, Failure> {
    let mut module: CUmodule = null_mut();
    // SAFETY: the linker has made the code, which the cache has verified, and it is copied.
    unsafe { context.api.load_module(&mut module, code.as_ptr().cast(), 0, null_mut(), null_mut()) }?;
    Ok(module)
}

/// Links texts with CUDA's device runtime, as machine code.
#[allow(unsafe_code)] // C functions
fn link(context: &Context, texts: &[&str], runtime: &Path) -> Result<Vec<u8>> {
    let api = context.api;
    let path = CString::new(runtime.as_os_str().as_encoded_bytes()).unwrap_or_default();
    let images = texts.iter().map(|text| CString::new(*text)).collect::<Result<Vec<_>, _>>();
    let images = images.map_err(|_| Error::unsupported("a kernel of commands: its PTX has a null byte"))?;
    let mut errors = vec![0_u8; LOG];
    let mut options =
        [JitOption::CU_JIT_ERROR_LOG_BUFFER as u32, JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as u32];
    let mut values: [*mut c_void; 2] = [errors.as_mut_ptr().cast(), std::ptr::without_provenance_mut(LOG)];
    let mut state: CUlinkState = null_mut();
    // SAFETY: images and path are C strings, and the log outlives the linker, which is destroyed behind its last use. The machine code is
    // the linker's, and is copied before.
    let linked = unsafe {
        let created = api.link_create(2, options.as_mut_ptr(), values.as_mut_ptr(), &mut state);
        let linked = created.and_then(|()| {
            for image in &images {
                let text = image.as_bytes_with_nul();
                let data = text.as_ptr().cast_mut().cast();
                api.link_data(state, PTX, data, text.len(), c"kernel".as_ptr(), 0, null_mut(), null_mut())?;
            }
            api.link_file(state, LIBRARY, path.as_ptr(), 0, null_mut(), null_mut())?;
            let (mut code, mut bytes): (*mut c_void, usize) = (null_mut(), 0);
            api.link_complete(state, &mut code, &mut bytes)?;
            Ok(std::slice::from_raw_parts(code.cast::<u8>(), bytes).to_vec())
        });
        match if state.is_null() { Ok(()) } else { api.link_destroy(state) } {
            Ok(()) => linked,
            Err(failure) => linked.and(Err(failure)),
        }
    };
    linked.map_err(|failure| {
        let end = errors.iter().position(|byte| *byte == 0).unwrap_or(errors.len());
        let log = String::from_utf8_lossy(&errors[..end]);
        context.error(failure, &format!("linking the kernels of commands: {}", log.trim()))
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const PLACE: Place = Place { driver: 12_080, capability: (9, 0) };

    fn cache(folder: &Path) -> Cache {
        Cache::at(&folder.join("cache"), 1 << 20, "0")
    }

    #[test]
    fn the_key_covers_every_input() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, file) = (cache(folder.path()), folder.path().join("libcudadevrt.a"));
        assert_eq!(key(&cache, &file, PLACE, &["a"]), None);
        std::fs::write(&file, "runtime").unwrap();
        let of = |place, texts: &[&str]| key(&cache, &file, place, texts).unwrap();
        let first = of(PLACE, &["a", "b"]);
        assert_eq!(of(PLACE, &["a", "b"]), first);
        let others = [
            of(PLACE, &["b", "a"]),
            of(PLACE, &["ab"]),
            of(PLACE, &["a"]),
            of(Place { driver: 13_000, ..PLACE }, &["a", "b"]),
            of(Place { capability: (9, 1), ..PLACE }, &["a", "b"]),
            of(Place { capability: (0, 9), ..PLACE }, &["a", "b"]),
        ];
        assert!(others.iter().all(|other| *other != first));
        // The content counts, not the place or the time.
        let copy = folder.path().join("copy.a");
        std::fs::copy(&file, &copy).unwrap();
        assert_eq!(key(&cache, &copy, PLACE, &["a", "b"]), Some(first));
        std::fs::write(&file, "runtimf").unwrap();
        assert_ne!(of(PLACE, &["a", "b"]), first);
    }

    #[test]
    fn code_is_linked_once_and_anew_if_the_entry_is_damaged_or_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let key = Key::of(b"k");
        let links = Cell::new(0_u8);
        // The code is a number, and each one has another.
        let link = || {
            links.set(links.get() + 1);
            Ok(vec![links.get(); 5000])
        };
        let least = Cell::new(0_u8);
        let load = |code: &[u8]| match code.first() {
            Some(number) if *number >= least.get() => Ok(*number),
            _ => Err(Rejected::Code(Error::unsupported("this code"))),
        };
        // Each process opens the cache.
        let run = |key| cached(&cache(folder.path()), key, load, link);
        let entry = folder.path().join("cache/1").join(key.to_string());
        assert_eq!([run(Some(&key)).unwrap(), run(Some(&key)).unwrap()], [1, 1]);
        let mut damaged = std::fs::read(&entry).unwrap();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        for (number, damaged) in [(2, &damaged[..]), (3, &damaged[..last / 2]), (4, b"")] {
            std::fs::write(&entry, damaged).unwrap();
            assert_eq!([run(Some(&key)).unwrap(), run(Some(&key)).unwrap()], [number; 2]);
        }
        least.set(5);
        assert_eq!([run(Some(&key)).unwrap(), run(Some(&key)).unwrap()], [5; 2]);
        // What cannot be loaded is not kept.
        least.set(u8::MAX);
        let other = Key::of(b"l");
        assert_eq!(
            [(); 2].map(|()| run(Some(&other)).unwrap_err().to_string().contains("this code")),
            [true; 2]
        );
        assert_eq!(links.get(), 7);
        least.set(0);
        assert_eq!([run(None).unwrap(), run(None).unwrap()], [8, 9], "no key");
    }

    #[test]
    fn other_failures_are_not_taken_for_rejected_code() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, key) = (cache(folder.path()), Key::of(b"k"));
        cache.store(&key, b"code");
        let lost = |_: &[u8]| Err::<(), _>(Rejected::Other(Error::DeviceLost("gone".into())));
        let unlinked = || -> Result<Vec<u8>> { panic!("linked") };
        assert!(matches!(cached(&cache, Some(&key), lost, unlinked), Err(Error::DeviceLost(_))));
        let is_of_code = |code| is_of_code(Failure { call: "cuModuleLoadDataEx", code });
        assert!(is_of_code(code::INVALID_IMAGE) && is_of_code(code::NO_BINARY_FOR_GPU));
        assert!(!is_of_code(code::OUT_OF_MEMORY) && !is_of_code(code::ILLEGAL_ADDRESS));
    }
}
