//! Copies between devices: peer access is queried from the driver, never assumed.

use std::collections::HashMap;
use std::sync::Arc;

use elinvar_driver::Reach;
use parking_lot::Mutex;

use crate::context::Context;
use crate::failure::{Failure, code};

/// Cached results, by device handles.
static KNOWN: Mutex<Option<HashMap<(i32, i32), Reach>>> = Mutex::new(None);

/// How to copy between two devices. Peer access is enabled in both directions on first use; without peer access, the driver stages the
/// copies itself.
pub(crate) fn reach(one: &Arc<Context>, other: &Arc<Context>) -> Reach {
    if Arc::ptr_eq(one, other) {
        return Reach::Peer;
    }
    let pair = (one.device.min(other.device), one.device.max(other.device));
    let mut known = KNOWN.lock();
    let known = known.get_or_insert_default();
    *known.entry(pair).or_insert_with(|| match open(one, other).and_then(|()| open(other, one)) {
        Ok(()) => Reach::Peer,
        Err(failure) => {
            tracing::debug!("no peer access: {}", failure.text(one.api));
            Reach::Staged
        }
    })
}

/// Enables access of `from` to the memory of `to`.
#[allow(unsafe_code)] // C functions
fn open(from: &Context, to: &Context) -> Result<(), Failure> {
    let none = Failure { call: "cuDeviceCanAccessPeer", code: code::PEER_ACCESS_UNSUPPORTED };
    let _current = from.enter().map_err(|_| none)?;
    let mut can = 0;
    // SAFETY: it writes a number.
    unsafe { from.api.can_access_peer(&mut can, from.device, to.device) }?;
    if can == 0 {
        return Err(none);
    }
    // SAFETY: both contexts are retained, and `from` is current. No flags are defined.
    match unsafe { from.api.enable_peer(to.raw, 0) } {
        Err(Failure { code: code::PEER_ACCESS_ALREADY_ENABLED, .. }) => Ok(()),
        other => other,
    }
}
