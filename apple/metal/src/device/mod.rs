//! [`Device`]: [`MTLDevice`](https://developer.apple.com/documentation/metal/mtldevice), over Elinvar's CPU device; its properties and its
//! enumeration. Creation methods are with the created types.

pub mod creation;
pub mod observer;
pub mod profile;

use std::ffi::{CStr, c_char};
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use elinvar_driver::Driver as _;
use elinvar_objc::foundation::{NsArray, NsString, os_version};
use elinvar_objc::watch::fatal;
use elinvar_objc::{Declaration, Id, Ref};

use self::profile::{Profile, Samples};
use crate::commands::log_state::DeviceLog;
use crate::memory::store::Account;
use crate::validation::fault_injection::{Plan, Site};
use crate::validation::hold::Hold;
use crate::validation::shader_validation;
use crate::values::{Size, execution_error};

/// A GPU.
pub struct Device {
    pub profile: Profile,
    pub cpu: Arc<dyn elinvar_driver::Device>,
    pub log: Arc<DeviceLog>,
    pub account: Arc<Account>,
    pub faults: Plan,
    pub hold: Hold,
    lost: AtomicBool,
    id: u64,
    /// Index in its peer group, and the size of the group.
    peer: (u32, u32),
}

elinvar_objc::object!(Device, c"ElinvarMTLDevice");

/// `MTLArchitecture`.
struct Architecture(&'static str);

elinvar_objc::object!(Architecture, c"MTLArchitecture");

/// The devices of the process, created on first use.
static DEVICES: LazyLock<Vec<Ref<Device>>> = LazyLock::new(|| {
    let profiles = Profile::of_environment();
    let peers = |at: usize| {
        let same = |other: &&Profile| other.peers != 0 && other.peers == profiles[at].peers;
        let before = profiles[..at].iter().filter(same).count();
        (u32::try_from(before).unwrap_or(0), u32::try_from(profiles.iter().filter(same).count()).unwrap_or(0))
    };
    let faults = |at| if at == 0 { Plan::of_environment() } else { Plan::default() };
    (0..profiles.len()).map(|at| Device::new(profiles[at], faults(at), peers(at))).collect()
});

impl Device {
    fn new(profile: Profile, faults: Plan, peer: (u32, u32)) -> Ref<Self> {
        static LAST_ID: AtomicU64 = AtomicU64::new(0x1_0000_0000);
        shader_validation::begin();
        let found = elinvar_driver_cpu::driver().devices();
        let cpu = match found.map(|devices| devices.into_iter().next()) {
            Ok(Some(cpu)) => cpu,
            Ok(None) => fatal(format_args!("the CPU driver has no device")),
            Err(error) => fatal(format_args!("the CPU driver has no device: {error}")),
        };
        let id = LAST_ID.fetch_add(1, Ordering::Relaxed);
        Ref::new(Self {
            profile,
            log: DeviceLog::of(&*cpu),
            cpu,
            account: Arc::default(),
            faults,
            hold: Hold::default(),
            lost: AtomicBool::new(false),
            id,
            peer,
        })
    }

    /// The peer group, whose devices can copy from each other directly; 0 for none.
    pub fn peer_group(&self) -> u64 {
        if self.peer.1 > 1 { self.profile.peers } else { 0 }
    }

    /// Whether it has been removed.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Removes it, and notifies observers, once.
    pub fn lose(this: &Ref<Self>) {
        if !this.lost.swap(true, Ordering::AcqRel) {
            observer::removed(this);
        }
    }

    /// Whether the current operation must fail; may remove the device.
    pub fn fails(this: &Ref<Self>, site: Site) -> bool {
        let fault = this.faults.now(site);
        if fault.is_some_and(|fault| fault.code == execution_error::DEVICE_REMOVED) {
            Self::lose(this);
        }
        fault.is_some()
    }

    /// Host time since boot in nanoseconds, the clock of
    /// [command buffer times](https://developer.apple.com/documentation/metal/mtlcommandbuffer/gpustarttime).
    pub fn now_ns(&self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one `timespec`.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Maximum number of threads per threadgroup along each dimension.
    fn max_threads(this: &Ref<Self>) -> Size {
        let threads = this.profile.threads;
        Size { width: threads, height: threads, depth: threads.min(1024) }
    }

    /// Whether it samples counters at an `MTLCounterSamplingPoint`.
    fn samples_at(this: &Ref<Self>, point: usize) -> bool {
        match this.profile.samples {
            Samples::Nowhere => false,
            Samples::Passes => point == 0,
            Samples::Commands => matches!(point, 2 | 4),
        }
    }

    fn sample_timestamps(this: &Ref<Self>, cpu: *mut u64, gpu: *mut u64) {
        let now = this.now_ns();
        // SAFETY: the program passes two valid pointers.
        unsafe {
            cpu.write(now);
            gpu.write(this.profile.clock.ticks(now));
        }
    }

    fn working_set(this: &Ref<Self>) -> u64 {
        this.profile.memory / 4 * 3
    }
}

/// The system's default device; null if there is none.
#[unsafe(no_mangle)]
extern "C" fn MTLCreateSystemDefaultDevice() -> Id {
    DEVICES.first().map_or(std::ptr::null_mut(), |device| device.clone().into_object().into_owned())
}

/// All devices.
#[unsafe(no_mangle)]
extern "C" fn MTLCopyAllDevices() -> Id {
    all().into_object().into_owned()
}

/// All devices.
pub fn all() -> Ref<NsArray> {
    NsArray::new(DEVICES.iter().map(|device| device.object().clone()))
}

/// A separate device with a profile, for tests.
///
/// # Safety
/// `profile` is null-terminated.
#[unsafe(no_mangle)]
unsafe extern "C" fn elinvar_apple_device(profile: *const c_char) -> Id {
    // SAFETY: the caller's promise.
    let profile = Profile::named(&unsafe { CStr::from_ptr(profile) }.to_string_lossy());
    Device::new(profile, Plan::default(), (0, 0)).into_object().into_owned()
}

pub fn register() {
    Declaration::<Architecture>::new()
        .method("name", |this: &Ref<Architecture>| NsString::new(this.0))
        .register();
    let device = Declaration::<Device>::new()
        .follows(c"MTLDevice")
        .method("name", |this: &Ref<Device>| NsString::new(this.profile.name))
        .method("registryID", |this: &Ref<Device>| this.id)
        .method("isLowPower", |_: &Ref<Device>| false)
        .method("isHeadless", |this: &Ref<Device>| !this.profile.unified)
        .method("isRemovable", |this: &Ref<Device>| !this.profile.unified)
        .method("hasUnifiedMemory", |this: &Ref<Device>| this.profile.unified)
        .method("location", |this: &Ref<Device>| usize::from(!this.profile.unified))
        .method("locationNumber", |_: &Ref<Device>| 0_usize)
        .method("maxTransferRate", |_: &Ref<Device>| 0_u64)
        .method("recommendedMaxWorkingSetSize", Device::working_set)
        .method("currentAllocatedSize", |this: &Ref<Device>| this.account.used())
        .method("maxBufferLength", |this: &Ref<Device>| this.profile.buffer)
        .method("maxThreadsPerThreadgroup", Device::max_threads)
        .method("maxThreadgroupMemoryLength", |this: &Ref<Device>| this.profile.threadgroup_memory)
        .method("argumentBuffersSupport", |this: &Ref<Device>| usize::from(this.profile.metal3))
        .method("readWriteTextureSupport", |_: &Ref<Device>| 0_usize)
        .method("supportsFamily:", |this: &Ref<Device>, family: isize| this.profile.supports(family))
        .method("supportsFeatureSet:", |_: &Ref<Device>, _set: usize| false)
        .method("supportsDynamicLibraries", |_: &Ref<Device>| false)
        .method("supportsFunctionPointers", |_: &Ref<Device>| false)
        .method("supportsRaytracing", |_: &Ref<Device>| false)
        .method("peerGroupID", |this: &Ref<Device>| this.peer_group())
        .method("peerIndex", |this: &Ref<Device>| this.peer.0)
        .method("peerCount", |this: &Ref<Device>| if this.peer.1 > 1 { this.peer.1 } else { 0 })
        .method("maximumConcurrentCompilationTaskCount", |_: &Ref<Device>| 2_usize)
        .method("shouldMaximizeConcurrentCompilation", |_: &Ref<Device>| false)
        .method("setShouldMaximizeConcurrentCompilation:", |_: &Ref<Device>, _maximize: bool| {})
        .when(os_version() >= (11, 0), |device| {
            device
                .method("supportsCounterSampling:", Device::samples_at)
                .method("sampleTimestamps:gpuTimestamp:", Device::sample_timestamps)
        })
        .when(os_version() >= (14, 0), |device| {
            device.method("architecture", |this: &Ref<Device>| {
                Ref::new(Architecture(this.profile.architecture))
            })
        });
    crate::device::creation::declare(device).register();
}
