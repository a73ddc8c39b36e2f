//! Verbs that start programs.

pub mod launch;
pub mod profile;
pub mod roofs;
