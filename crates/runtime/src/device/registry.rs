//! The registry of devices in use: one [`Inner`] for each, and the thread that releases idle resources.
//!
//! A driver's device has one [`Inner`], shared by all its handles, as long as a handle or a buffer exists. The thread starts with
//! the first device, wakes every 30 seconds, and releases resources that have been idle for too long. It does not keep devices
//! alive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{self as driver, PerProcess};

use crate::identity::identity;
use crate::launch::bound::RustKernels;
use crate::launch::command_list_pool::CommandListPool;
use crate::launch::group::Members;
use crate::launch::tune::Tuned;
use crate::memory::object_pool::ObjectPool;
use crate::observe::hardware::Hardware;
use crate::observe::metrics::Counters;
use crate::recovery::Recovery;
use crate::sync::coalesce::Coalescers;
use crate::sync::device_state::DeviceState;
use crate::tensor::{KernelCache, RouteChoices};
use crate::transfer::TransferLog;
use crate::{LogSubscription, Pool, Trace};

/// Interval between sweeps.
const SWEEP: Duration = Duration::from_secs(30);

/// Events, command lists and streams of groups that have been idle for longer are released.
const IDLE: Duration = Duration::from_secs(60);

static NEXT: AtomicU64 = AtomicU64::new(0);

static KNOWN: PerProcess<Mutex<Vec<Weak<Inner>>>> = PerProcess::new(Mutex::default);

/// State shared by the handles of a device.
pub(crate) struct Inner {
    pub(crate) driver: Arc<dyn driver::Device>,
    /// The process that created it.
    pub(crate) process: driver::Process,
    pub(crate) pool: Pool,
    pub(crate) events: ObjectPool<Arc<dyn driver::Event>>,
    pub(crate) timestamps: ObjectPool<Arc<driver::TimestampSlot>>,
    pub(crate) command_lists: CommandListPool,
    pub(crate) trace: Trace,
    pub(crate) counters: Counters,
    pub(crate) hardware: Hardware,
    pub(crate) recovery: Recovery,
    pub(crate) state: Arc<DeviceState>,
    pub(crate) tuned: Tuned,
    pub(crate) coalescers: Coalescers,
    /// Copies to other devices.
    pub(crate) transfers: TransferLog,
    /// Number of the device, unique in the process.
    pub(crate) number: u64,
    /// Numbers of the devices whose memory kernels may access.
    pub(crate) peers: Mutex<Vec<u64>>,
    /// Kernels of tensor operations.
    pub(crate) tensor_kernels: KernelCache,
    pub(crate) rust_kernels: RustKernels,
    pub(crate) route_choices: RouteChoices,
    /// Makes log lines `tracing` events.
    _log: Option<LogSubscription>,
    /// Groups of streams, to close idle streams.
    pub(crate) groups: Mutex<Vec<Weak<Members>>>,
}

/// The state of a driver's device; created on first use.
pub(crate) fn inner(device: Arc<dyn driver::Device>) -> Arc<Inner> {
    let mut known = KNOWN.get().lock();
    let same = |inner: &Arc<Inner>| identity(&inner.driver) == identity(&device);
    if let Some(inner) = known.iter().filter_map(Weak::upgrade).find(same) {
        return inner;
    }
    let (pool, events, groups) = (Pool::new(device.clone()), ObjectPool::new(), Mutex::default());
    let (timestamps, state, tuned) = (ObjectPool::new(), DeviceState::new(), Tuned::default());
    let (command_lists, trace, recovery) =
        (CommandListPool::new(), Trace::new(device.clone()), Recovery::new());
    let log = crate::observe::log::trace(&*device);
    let (driver, coalescers) = (device, Coalescers::default());
    let inner = Arc::new(Inner {
        driver,
        process: driver::Process::this(),
        pool,
        events,
        timestamps,
        command_lists,
        trace,
        counters: Counters::default(),
        hardware: Hardware::default(),
        recovery,
        state,
        tuned,
        coalescers,
        transfers: TransferLog::default(),
        number: NEXT.fetch_add(1, Ordering::Relaxed),
        peers: Mutex::default(),
        tensor_kernels: KernelCache::default(),
        rust_kernels: RustKernels::default(),
        route_choices: RouteChoices::default(),
        _log: log,
        groups,
    });
    known.retain(|inner| inner.strong_count() > 0);
    known.push(Arc::downgrade(&inner));
    drop(known);
    start();
    inner
}

/// Starts the thread, once. If it cannot be started, idle resources are kept.
fn start() {
    static STARTED: PerProcess<Once> = PerProcess::new(Once::new);
    STARTED.get().call_once(|| {
        let run = || {
            loop {
                std::thread::sleep(SWEEP);
                sweep(Instant::now());
            }
        };
        let _thread = std::thread::Builder::new().name("elinvar-sweep".into()).spawn(run);
    });
}

/// Sweeps all devices.
fn sweep(now: Instant) {
    let devices: Vec<Arc<Inner>> = KNOWN.get().lock().iter().filter_map(Weak::upgrade).collect();
    devices.iter().for_each(|device| device.sweep(now));
}

impl Inner {
    /// Releases resources that have been idle for too long at `now`.
    fn sweep(&self, now: Instant) {
        self.pool.sweep(now, self.pool.limits().idle_time);
        if let Some(then) = now.checked_sub(IDLE) {
            self.events.drop_idle_since(then);
            self.timestamps.drop_idle_since(then);
            self.command_lists.drop_idle_since(then);
            let groups = self.groups.lock().clone();
            groups.iter().for_each(|members| Members::drop_idle_since(members, then));
        }
    }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use super::*;
    use crate::Device;

    #[test]
    fn idle_memory_is_given_back_after_a_minute() {
        let device = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
        let device = Device::new(device);
        drop(device.buffer::<u32>(1000).unwrap());
        let idle = || device.pool().stats().idle_blocks;
        device.inner.sweep(Instant::now());
        assert_eq!(idle(), 1);
        device.inner.sweep(Instant::now() + Duration::from_secs(61));
        assert_eq!(idle(), 0);
    }

    #[test]
    fn idle_streams_and_events_go_after_a_minute() {
        let device = elinvar_driver_cpu::CpuDriver::with_threads(3).devices().unwrap().remove(0);
        let device = Device::new(device);
        let group = device.stream_group();
        let waits = group.next().unwrap();
        let (event, unused) = (device.event().unwrap(), device.event().unwrap());
        waits.wait_for(&event, 1).unwrap();
        group.next().unwrap().synchronize().unwrap();
        drop(unused);
        device.inner.sweep(Instant::now());
        assert_eq!((group.open(), device.event_stats().idle), (2, 1));
        device.inner.sweep(Instant::now() + Duration::from_secs(61));
        assert_eq!((group.open(), device.event_stats().idle), (1, 0), "one has work");
        event.signal(1);
        waits.synchronize().unwrap();
    }

    #[test]
    fn a_drivers_device_has_one_pool_while_it_is_used() {
        let device = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
        let (a, b) = (Device::new(device.clone()), Device::new(device.clone()));
        drop(a.buffer::<u32>(1000).unwrap());
        assert_eq!(b.pool().stats().idle_blocks, 1);
        drop((a, b));
        assert_eq!(Device::new(device).pool().stats().misses, 0, "gone with the last handle");
    }
}
