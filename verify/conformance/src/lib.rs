//! What every Elinvar driver must pass, and [`sim`], a driver to test everything above a driver with.
#![warn(missing_docs)]

pub mod packing;
pub mod ptxas;
pub mod sim;
pub mod suite;
