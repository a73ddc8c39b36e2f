//! Diagnostics in the formats of other tools.

pub mod annotation;
pub mod sarif;
