//! Order and ends: streams, events, completions, deadlines, and what waits for what.

pub(crate) mod completion;
pub(crate) mod deadline;
pub(crate) mod dependencies;
pub(crate) mod event;
pub(crate) mod flight;
pub(crate) mod gather;
pub(crate) mod group;
pub(crate) mod loss;
pub(crate) mod reused;
pub(crate) mod stream;
