//! Data-parallel work: arrays whose rows are divided among devices, launches on each part, and the exchange of halos behind inner work.
//!
//! A [`DeviceGroup`] has two streams for each device, one for launches and one for copies between shards. Its operations order them by events, so that
//! callers do not: a launch waits for the copies that write or read its shard, and a copy for the launches on its source and its target. A [`Sharded`]
//! array knows how its rows are divided ([`Layout`]).

mod array;
mod group;
mod layout;
mod update;

pub use array::Sharded;
pub use group::DeviceGroup;
pub use layout::Layout;
pub use update::Part;
