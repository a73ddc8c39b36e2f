//! The locks of what is also run under a model checker, which replaces this module by its own.

pub(crate) use parking_lot::Mutex;
