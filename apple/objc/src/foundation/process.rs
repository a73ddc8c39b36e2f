//! `NSProcessInfo`: the system's version, which is that of the profile in `ELINVAR_APPLE_OS`, and its thermal state in `ELINVAR_APPLE_THERMAL`; `NSAutoreleasePool`; and
//! `NSThread` as far as it says which thread is the first.

use std::sync::LazyLock;

use crate::declare::Declaration;
use crate::foundation::NsString;
use crate::pool;
use crate::reference::Ref;
use crate::watch::fatal;

/// `NSOperatingSystemVersion`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Version {
    major: isize,
    minor: isize,
    patch: isize,
}

crate::structures! { Version => "{?=qqq}" }

/// Major and minor version of the macOS that this stands for: `ELINVAR_APPLE_OS`, else 15.5.
pub fn os_version() -> (u32, u32) {
    static VERSION: LazyLock<(u32, u32)> = LazyLock::new(|| {
        let Some(text) = std::env::var_os("ELINVAR_APPLE_OS").filter(|text| !text.is_empty()) else {
            return (15, 5);
        };
        let text = text.to_string_lossy();
        let mut parts = text.splitn(2, '.').map(|part| part.parse().ok());
        let version = (|| Some((parts.next()??, parts.next().unwrap_or(Some(0))?)))();
        version
            .unwrap_or_else(|| fatal(format_args!("ELINVAR_APPLE_OS=`{text}` is not a version such as 15.5")))
    });
    *VERSION
}

/// The state of `ELINVAR_APPLE_THERMAL` as an `NSProcessInfoThermalState`; nominal without it.
fn thermal_state() -> isize {
    const STATES: [&str; 4] = ["nominal", "fair", "serious", "critical"];
    let Some(text) = std::env::var_os("ELINVAR_APPLE_THERMAL").filter(|text| !text.is_empty()) else {
        return 0;
    };
    let text = text.to_string_lossy();
    let state = STATES.iter().position(|state| *state == text);
    let states = STATES.join(", ");
    state.unwrap_or_else(|| fatal(format_args!("ELINVAR_APPLE_THERMAL=`{text}` is none of {states}")))
        as isize
}

struct ProcessInfo;

crate::object!(ProcessInfo, c"NSProcessInfo");

/// Ends its pool when it goes.
struct AutoreleasePool(usize);

crate::object!(AutoreleasePool, c"NSAutoreleasePool");

impl Drop for AutoreleasePool {
    fn drop(&mut self) {
        pool::pop(self.0);
    }
}

struct Thread;

crate::object!(Thread, c"NSThread");

fn version() -> Version {
    let (major, minor) = os_version();
    Version { major: major as isize, minor: minor as isize, patch: 0 }
}

pub(super) fn register() {
    Declaration::<ProcessInfo>::new()
        .class_method("processInfo", || Ref::new(ProcessInfo))
        .method("operatingSystemVersion", |_: &Ref<ProcessInfo>| version())
        .method("operatingSystemVersionString", |_: &Ref<ProcessInfo>| {
            let (major, minor) = os_version();
            NsString::new(&format!("Version {major}.{minor} (stand-in)"))
        })
        .method("isOperatingSystemAtLeastVersion:", |_: &Ref<ProcessInfo>, least: Version| {
            let own = version();
            (own.major, own.minor, own.patch) >= (least.major, least.minor, least.patch)
        })
        .method("thermalState", |_: &Ref<ProcessInfo>| thermal_state())
        .method("processName", |_: &Ref<ProcessInfo>| {
            NsString::new(&std::env::args().next().unwrap_or_default())
        })
        .register();
    Declaration::<AutoreleasePool>::new().init("init", || Some(AutoreleasePool(pool::push()))).register();
    Declaration::<Thread>::new()
        // SAFETY: both only ask the system.
        .class_method("isMainThread", || unsafe { libc::gettid() == libc::getpid() })
        .register();
}
