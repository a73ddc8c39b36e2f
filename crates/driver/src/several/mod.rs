//! Several devices: where they are, what connects them, and what they do together.

mod collective;
mod topology;

pub use collective::{Aborter, Collective, CollectiveCall, CollectiveLibrary, Member, Reduction};
pub use topology::{Link, LinkKind, Place};
