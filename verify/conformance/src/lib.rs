//! The conformance suite that every Elinvar driver passes, and [`sim`], a simulated driver for tests of the layers above.
#![warn(missing_docs)]

pub mod packing;
pub mod ptxas;
pub mod sim;
pub mod suite;
pub mod toy;
