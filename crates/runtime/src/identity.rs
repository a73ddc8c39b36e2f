//! [`identity`]: what tells shared things apart.

use std::sync::Arc;

/// A number of the thing's own, the same through every handle. Another thing may get it once the last handle is gone, so who
/// keeps it keeps a handle too, or checks that there still is one.
pub(crate) fn identity<T: ?Sized>(of: &Arc<T>) -> usize {
    Arc::as_ptr(of).cast::<()>().addr()
}
