//! [`identity`]: compares shared objects by address.

use std::sync::Arc;

/// The object's address, equal for all handles. It may be reused after the last handle is gone, so users keep a handle or check
/// that one exists.
pub(crate) fn identity<T: ?Sized>(of: &Arc<T>) -> usize {
    Arc::as_ptr(of).cast::<()>().addr()
}
