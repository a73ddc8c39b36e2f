//! [`HostAccess`]: the host's use of a buffer, which determines its storage mode.

use elinvar_driver::{Caps, Storage};

/// The host's use of a buffer, which determines the storage mode:
///
/// | the host… | memory shared with the host | memory of its own, with managed memory | without |
/// |---|---|---|---|
/// | reads and writes | `Shared` | `Managed` | `Shared` |
/// | reads | `Shared` | `Managed` | `Shared` |
/// | writes | `Shared` | `Managed` | `Shared` |
/// | never | `Private` | `Private` | `Private` |
/// | transient | `Private` | `Private` | `Private` |
/// | staging | `Shared` | `Shared` | `Shared` |
///
/// The columns are [`Features::unified_memory`](crate::Features::unified_memory) and [`Features::managed_memory`](crate::Features::managed_memory). [`crate::Device::buffer_in`] takes an explicit
/// mode instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostAccess {
    /// The host reads and writes the buffer, or maps it.
    #[default]
    ReadWrite,
    /// The host reads results of the device.
    Read,
    /// The host writes inputs of the device.
    Write,
    /// Only the device uses the buffer. The host can still copy to and from it, but not map it.
    Never,
    /// Only the device uses the buffer, within one submission.
    Transient,
    /// A staging buffer: the host writes or reads it once, and the device copies it.
    Staging,
}

impl HostAccess {
    /// Storage mode of a buffer with this access on a device with `caps`.
    pub fn storage(self, caps: &Caps) -> Storage {
        match self {
            Self::Never | Self::Transient => Storage::Private,
            Self::Staging => Storage::Shared,
            Self::ReadWrite | Self::Read | Self::Write => {
                match caps.features.unified_memory || !caps.features.managed_memory {
                    true => Storage::Shared,
                    false => Storage::Managed,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use super::*;

    #[test]
    fn modes_are_those_of_the_table() {
        let device = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
        let caps = |unified_memory, managed_memory| {
            let mut caps = device.caps().clone();
            caps.features.unified_memory = unified_memory;
            caps.features.managed_memory = managed_memory;
            caps
        };
        let of = |host_access: HostAccess| {
            [caps(true, false), caps(true, true), caps(false, true), caps(false, false)]
                .map(|caps| host_access.storage(&caps))
        };
        let (shared, managed) = (Storage::Shared, Storage::Managed);
        for host_access in [HostAccess::ReadWrite, HostAccess::Read, HostAccess::Write] {
            assert_eq!(of(host_access), [shared, shared, managed, shared], "{host_access:?}");
        }
        assert_eq!([HostAccess::Never, HostAccess::Transient].map(of), [[Storage::Private; 4]; 2]);
        assert_eq!(of(HostAccess::Staging), [shared; 4]);
    }
}
