//! [`Buffer`]: an `MTLBuffer` that threads can share.

use std::ops::Deref;

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLBuffer;

/// A buffer.
#[derive(Clone)]
pub(super) struct Buffer(pub(super) Retained<ProtocolObject<dyn MTLBuffer>>);

#[allow(unsafe_code)] // the bindings leave it open
// SAFETY: Metal's resources may be used on any thread; accesses to the bytes are ordered according to the contract of `Memory`.
unsafe impl Send for Buffer {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Deref for Buffer {
    type Target = ProtocolObject<dyn MTLBuffer>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
