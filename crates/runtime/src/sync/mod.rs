//! Synchronization: events, completions, deadlines, coalescing of submissions, and the detection of deadlocks.

pub(crate) mod coalesce;
pub(crate) mod completion;
pub(crate) mod deadline;
pub(crate) mod dependencies;
pub(crate) mod device_state;
pub(crate) mod event;
pub(crate) mod in_flight;
