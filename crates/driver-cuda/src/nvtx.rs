//! NVTX ranges around the launches that the host issues, for NVIDIA's tools.
//!
//! NVTX is a protocol between a program and the tool that was started with it, by which Nsight Systems shows names. A tool is a library whose path is
//! in `NVTX_INJECTION64_PATH`. It is loaded at the first launch, and asks for tables of addresses of function pointers, one table for each
//! module of NVTX, in which it stores its functions; see `nvtxTypes.h` and `nvtxInit.h` of NVTX 3
//! (<https://github.com/NVIDIA/NVTX/tree/release-v3/c/include/nvtx3/nvtxDetail>). Without a tool, a launch costs the load of an atomic.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use elinvar_driver::Command;

/// Export tables: `NVTX_ETID_CALLBACKS` and `NVTX_ETID_VERSIONINFO`.
const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;
/// `NVTX_VERSION`.
const VERSION: u32 = 3;
/// `NVTX_CB_MODULE_CORE`, whose functions are called, and the number of modules from 0 on.
const CORE: usize = 1;
const MODULES: usize = 7;
/// `NVTX_CBID_CORE_RangePushA` and `NVTX_CBID_CORE_RangePop`.
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;
/// Number of functions of a module from 0, which is none, at least: `NVTX_CBID_CORE_SIZE` and `NVTX_CBID_CORE2_SIZE` are the largest.
const FUNCTIONS: usize = 16;

type GetExportTable = extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(GetExportTable) -> c_int;
type RangePush = unsafe extern "C" fn(*const c_char) -> c_int;
type RangePop = unsafe extern "C" fn() -> c_int;
/// Layout of a function pointer that may be null.
type Slot = AtomicPtr<c_void>;

static SLOTS: [[Slot; FUNCTIONS]; MODULES] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; FUNCTIONS] }; MODULES];

/// `NvtxFunctionTable` of each module: addresses of slots, null at both ends.
struct Tables([[*const Slot; FUNCTIONS + 1]; MODULES]);

#[allow(unsafe_code)] // holds addresses of statics
// SAFETY: the addresses are those of atomics.
unsafe impl Send for Tables {}
#[allow(unsafe_code)] // as above
// SAFETY: as above; the table is not changed.
unsafe impl Sync for Tables {}

static TABLES: OnceLock<Tables> = OnceLock::new();

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table: extern "C" fn(c_uint, *mut *const *const Slot, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved0: u32,
    set_injection_nvtx_version: extern "C" fn(u32),
}

extern "C" fn get_export_table(table: u32) -> *const c_void {
    static ALL: Callbacks =
        Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_function_table };
    static INFO: VersionInfo = VersionInfo {
        struct_size: size_of::<VersionInfo>(),
        version: VERSION,
        reserved0: 0,
        set_injection_nvtx_version: ignore_version,
    };
    match table {
        CALLBACKS => std::ptr::from_ref(&ALL).cast(),
        VERSION_INFO => std::ptr::from_ref(&INFO).cast(),
        _ => std::ptr::null(),
    }
}

extern "C" fn ignore_version(_version: u32) {}

/// Stores the table of a module and its size. Returns 1, or 0 if there is no such module.
#[allow(unsafe_code)] // writes to where the tool says
extern "C" fn module_function_table(
    module: c_uint,
    table: *mut *const *const Slot,
    size: *mut c_uint,
) -> c_int {
    let tables = TABLES.get_or_init(|| {
        let table = |slots: &'static [Slot; FUNCTIONS]| {
            std::array::from_fn(|id| match id {
                1..FUNCTIONS => std::ptr::from_ref(&slots[id]),
                _ => std::ptr::null(),
            })
        };
        Tables(std::array::from_fn(|module| table(&SLOTS[module])))
    });
    let Some(found) = tables.0.get(module as usize).filter(|_| module as usize >= CORE) else { return 0 };
    // SAFETY: each is null or points to a variable of the tool, as NVTX specifies.
    unsafe {
        if !table.is_null() {
            table.write(found.as_ptr());
        }
        if !size.is_null() {
            size.write(found.len() as c_uint);
        }
    }
    1
}

/// The functions of a tool.
struct Tool {
    push: RangePush,
    pop: RangePop,
}

impl Tool {
    /// The tool of this process, which is loaded at the first call.
    fn get() -> Option<&'static Self> {
        static TOOL: OnceLock<Option<Tool>> = OnceLock::new();
        let load = || {
            let path = std::env::var_os("NVTX_INJECTION64_PATH").filter(|path| !path.is_empty())?;
            let tool = Self::load(&path);
            if let Err(why) = &tool {
                tracing::warn!(target: "elinvar", "NVTX_INJECTION64_PATH: {}: {why}", path.display());
            }
            tool.ok()
        };
        TOOL.get_or_init(load).as_ref()
    }

    /// # Errors
    /// The reason why the library is not a tool for ranges.
    #[allow(unsafe_code)] // loads a library and calls it
    fn load(path: &OsStr) -> Result<Self, String> {
        // SAFETY: the user names the library in the environment, to be loaded into this process.
        let library = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string())?;
        // SAFETY: the function's type is that of NVTX.
        let initialize = unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2\0") };
        let initialize = *initialize.map_err(|error| error.to_string())?;
        // SAFETY: the argument is what NVTX passes.
        let is_ready = unsafe { initialize(get_export_table) } != 0;
        if !is_ready {
            return Err("the tool refused".into());
        }
        // The slots have addresses of its functions from now on.
        std::mem::forget(library);
        let [push, pop] = [RANGE_PUSH, RANGE_POP].map(|id| SLOTS[CORE][id].load(Ordering::Acquire));
        if push.is_null() || pop.is_null() {
            return Err("the tool does not record ranges".into());
        }
        // SAFETY: the tool has stored functions of these types there.
        Ok(unsafe {
            Self {
                push: std::mem::transmute::<*mut c_void, RangePush>(push),
                pop: std::mem::transmute::<*mut c_void, RangePop>(pop),
            }
        })
    }

    #[allow(unsafe_code)] // calls a C function
    fn range(&self, name: &CStr) -> Range<'_> {
        // SAFETY: the function copies the text.
        unsafe { (self.push)(name.as_ptr()) };
        Range { tool: self, of_thread: PhantomData }
    }
}

/// A range of the calling thread, until it is dropped.
pub(crate) struct Range<'t> {
    tool: &'t Tool,
    /// Ranges are a stack of their thread.
    of_thread: PhantomData<*const ()>,
}

impl Drop for Range<'_> {
    #[allow(unsafe_code)] // calls a C function
    fn drop(&mut self) {
        // SAFETY: the range was pushed on this thread.
        unsafe { (self.tool.pop)() };
    }
}

/// Begins a range named like the launch, if the command is one and a tool listens.
pub(crate) fn range(command: &Command) -> Option<Range<'static>> {
    let tool = Tool::get()?;
    Some(tool.range(&name(command)?))
}

/// Name of the kernel, and the label. A text ends at its first zero.
fn name(command: &Command) -> Option<CString> {
    let dispatch = match command {
        Command::Dispatch(dispatch) => dispatch,
        Command::LaunchNested(nested) => &nested.root,
        _ => return None,
    };
    let kernel = &dispatch.pipeline.signature().name;
    let text =
        dispatch.label.as_ref().map_or_else(|| kernel.clone(), |label| format!("{kernel}: {}", label.name));
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command as Process;

    use super::*;

    /// A tool that writes ranges to the file of an environment variable's name, as NVIDIA's sample `PrintInjection` prints them: it checks the
    /// sizes, and wants the modules that tools want.
    const TOOL: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef void (*fn)(void);
typedef struct { size_t size; int (*table)(unsigned module, fn ***table, unsigned *size); } callbacks;
typedef struct { size_t size; uint32_t version, reserved; void (*set)(uint32_t); } info;
static int depth;
static void say(const char *what, const char *text) {
    FILE *file = fopen(getenv("ELINVAR_TEST_NVTX"), "a");
    fprintf(file, "%s%s\n", what, text);
    fclose(file);
}
static int push(const char *text) { say("push ", text); return depth++; }
static int pop(void) { say("pop", ""); return --depth; }
int InitializeInjectionNvtx2(const void *(*get)(uint32_t)) {
    const callbacks *all = get(1);
    const info *version = get(3);
    if (!all || all->size < sizeof *all || !version || version->version != 3 || get(7)) return 0;
    version->set(3);
    fn **core = 0, **core2 = 0, **other = 0;
    unsigned size = 0;
    if (all->table(0, &other, &size) || all->table(7, &other, &size)) return 0;
    if (!all->table(5, &core2, &size) || size <= 15 || !core2[12]) return 0;
    if (!all->table(6, &other, 0) || !all->table(1, &core, &size) || size <= 15 || core[0]) return 0;
    if (getenv("ELINVAR_TEST_NVTX_REFUSES")) return 0;
    *core[9] = (fn)push;
    *core[11] = (fn)pop;
    return 1;
}
"#;

    /// In a process of its own: the environment names the tool, which is loaded once.
    #[test]
    fn a_tool_gets_the_ranges() {
        if std::env::var_os("ELINVAR_TEST_NVTX").is_some() {
            let named = |name: &str| Tool::get().map(|tool| tool.range(&CString::new(name).unwrap()));
            let outer = named("outer");
            drop(named("inner 🦀 \"%s\""));
            drop(outer);
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (source, tool, said) =
            (folder.path().join("tool.c"), folder.path().join("libtool.so"), folder.path().join("said"));
        std::fs::write(&source, TOOL).unwrap();
        let built =
            Process::new("cc").args(["-shared", "-fPIC", "-o"]).args([&tool, &source]).status().unwrap();
        assert!(built.success());
        let run = |variables: &[(&str, &OsStr)]| {
            let mut test = Process::new(std::env::current_exe().unwrap());
            test.args(["--exact", "nvtx::tests::a_tool_gets_the_ranges"])
                .env("ELINVAR_TEST_NVTX", &said)
                .env_remove("NVTX_INJECTION64_PATH");
            let ended = test.envs(variables.iter().copied()).output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            let text = std::fs::read_to_string(&said).unwrap_or_default();
            let _gone = std::fs::remove_file(&said);
            text
        };
        let path = tool.as_os_str();
        let text = run(&[("NVTX_INJECTION64_PATH", path)]);
        assert_eq!(text, "push outer\npush inner 🦀 \"%s\"\npop\npop\n");
        assert_eq!(run(&[("NVTX_INJECTION64_PATH", path), ("ELINVAR_TEST_NVTX_REFUSES", path)]), "");
        assert_eq!(run(&[("NVTX_INJECTION64_PATH", source.as_os_str())]), "", "not a library");
        assert_eq!(run(&[]), "");
    }
}
