//! Several devices: where they are, what connects them, and what they do together.

mod collective;
mod topology;

pub use collective::{
    Aborter, Check, Collective, CollectiveCall, CollectiveLibrary, LibraryMember, Member, Point, Reduction,
};
pub use topology::{Link, LinkKind, Place};
