//! [`Route`]: the path of a copy between devices.

use elinvar_driver::Reach;

use crate::Device;

/// Path of a copy between devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Route {
    /// Two staging buffers: the source's device copies to the first, the host to the second, and the target's device to the
    /// target.
    Host,
    /// One staging buffer in host memory, which both devices access.
    HostInPlace,
    /// Peer to peer, over a link or the bus.
    Peer,
    /// One copy command, which the driver stages through host memory.
    Driver,
}

impl Route {
    /// The lower-case name that the command line and its JSON use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::HostInPlace => "host in place",
            Self::Peer => "peer",
            Self::Driver => "driver",
        }
    }
}

/// The path of a copy in one command of either device, if the driver supports that.
pub(crate) fn in_one(from: &Device, to: &Device) -> Option<Route> {
    match from.driver().reaches(to.driver())? {
        Reach::Peer => Some(Route::Peer),
        Reach::Staged => Some(Route::Driver),
        _ => None,
    }
}
