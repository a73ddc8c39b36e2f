//! [`RecoveryPolicy`]: limits of recovery, and delays between attempts.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::Device;

/// Recovery policy of a stream or call; see [`Device::stream_recovering`] and [`Device::recover`].
///
/// ```no_run
/// # fn main() -> elinvar::Result<()> {
/// # use elinvar::{Device, RecoveryPolicy};
/// # let device = Device::system_default()?;
/// let policy = RecoveryPolicy { attempts: 5, rerun: Some(Device::cpu()?), ..RecoveryPolicy::of(&device) };
/// let stream = device.stream_recovering(policy)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RecoveryPolicy {
    /// Maximum number of attempts, including the first; 1 disables retries.
    pub attempts: u32,
    /// Maximum delay before the second attempt. It doubles with each attempt. Jitter reduces each delay to between half and all of
    /// it, three quarters on average.
    pub backoff: Duration,
    /// Upper bound of the delay.
    pub longest: Duration,
    /// Whether kernel faults are retried. Most kernels that fault will fault again.
    pub faults: bool,
    /// Maximum number of device resets per work item.
    pub resets: u32,
    /// Fallback device, such as [`Device::cpu`], on which work runs when all attempts on this device have failed. Ignored if it is
    /// the same device.
    pub rerun: Option<Device>,
    /// Whether work that ran out of memory also runs on the fallback device.
    pub rerun_when_full: bool,
    /// Seed of the jitter. The same seed gives the same delays.
    pub seed: u64,
}

impl RecoveryPolicy {
    /// The default policy for a device. It has no fallback device and does not retry faults.
    ///
    /// | | unified memory | dedicated memory |
    /// |---|---|---|
    /// | attempts | 3 | 4 |
    /// | first delay | 20 ms, for other processes to free memory | 2 ms; memory trimmed by this process is available at once |
    /// | longest delay | 1 s | 250 ms |
    /// | resets | 0, because the memory is the system's; 1 if the device restarts by itself ([`elinvar_driver::Features::restarts`]) | 1 |
    /// | fallback when out of memory | no, because the memory is the same | yes, if [`RecoveryPolicy::rerun`] is set |
    pub fn of(device: &Device) -> Self {
        let ms = Duration::from_millis;
        let (unified, restarts) = (device.caps().features.unified_memory, device.caps().features.restarts);
        let (attempts, backoff, longest) = if unified { (3, ms(20), ms(1000)) } else { (4, ms(2), ms(250)) };
        Self {
            attempts,
            backoff,
            longest,
            faults: false,
            resets: u32::from(!unified || restarts),
            rerun: None,
            rerun_when_full: !unified,
            seed: RandomState::new().hash_one(0),
        }
    }

    /// The delay after `attempts` attempts (at least 1): exponential backoff with jitter, between half and all of the doubled
    /// backoff. The jitter depends on `work`, so that work items that failed together are not retried together.
    pub fn wait(&self, attempts: u32, work: u64) -> Duration {
        let doubled = self.backoff.saturating_mul(2u32.saturating_pow(attempts.saturating_sub(1)));
        let most = doubled.min(self.longest);
        let random = mix(self.seed ^ mix(work.wrapping_add(u64::from(attempts) << 48)));
        let share = (random >> 11) as f64 / (1u64 << 53) as f64;
        Duration::try_from_secs_f64(most.as_secs_f64() * (0.5 + share / 2.0)).unwrap_or(most)
    }
}

/// The finalizer of splitmix64.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use super::*;

    #[test]
    fn waits_double_within_their_limits_and_differ_by_work() {
        let device = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
        let ms = Duration::from_millis;
        let policy = RecoveryPolicy {
            backoff: ms(16),
            longest: ms(100),
            seed: 7,
            ..RecoveryPolicy::of(&Device::new(device))
        };
        for (attempts, most) in [(1, ms(16)), (2, ms(32)), (3, ms(64)), (4, ms(100)), (40, ms(100))] {
            let waits: Vec<Duration> = (0..100).map(|work| policy.wait(attempts, work)).collect();
            assert!(waits.iter().all(|wait| (most / 2..=most).contains(wait)), "{attempts}: {waits:?}");
            let mean = waits.iter().sum::<Duration>() / 100;
            assert!(mean > most * 7 / 10 && mean < most * 8 / 10, "{attempts}: {mean:?}");
            assert_eq!(waits[3], policy.clone().wait(attempts, 3), "the same seed gives the same waits");
        }
        assert_ne!(policy.wait(1, 0), RecoveryPolicy { seed: 8, ..policy.clone() }.wait(1, 0));
        let patient = RecoveryPolicy { backoff: Duration::MAX, longest: Duration::MAX, ..policy.clone() };
        assert!((0..100).all(|work| patient.wait(u32::MAX, work) >= Duration::MAX / 2));
        assert_eq!(RecoveryPolicy { backoff: Duration::ZERO, ..policy }.wait(9, 9), Duration::ZERO);
    }
}
