//! Kernels written in Rust, by subject. Tests compare what they compute on devices with the host's run of the same function, and with
//! independent references.

pub mod basics;
pub mod functions;
pub mod graphs;
pub mod images;
pub mod language;
pub mod linear_algebra;
pub mod physics;
pub mod reductions;
pub mod semantics;
pub mod signals;
pub mod sorting;
pub mod twins;
