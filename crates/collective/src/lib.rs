//! Collectives without a GPU's library: a ring over shared memory, and MPI.
//!
//! The ring ([`Ring`]) connects members in one process, or in the processes of one machine that map the same file. Each two ranks have a channel in each
//! direction, a lock-free byte queue ([`segment`]); the algorithms ([`algorithms`]) move and reduce data through the channels without waiting for one of
//! them while another could progress ([`exchange`]). Every wait ends when a member has failed, has ended or makes no progress in time; the first failure is
//! published in the segment, so that all members report the same rank.
//!
//! A ring can simulate the time that its collectives would take on other links ([`Network`]), and [`Algorithm`] predicts it.
//!
//! MPI ([`mpi`]) is Open MPI's library, opened at run time. [`Environment`] reads the rank and the size that launchers tell their processes.
#![warn(missing_docs)]

mod algorithms;
mod board;
mod environment;
mod exchange;
mod memory;
mod model;
mod mpi;
mod network;
mod reduce;
mod ring;
mod segment;
mod steps;
mod supervised;
mod turns;
mod wait;

pub use board::Board;
pub use environment::Environment;
pub use model::Algorithm;
pub use mpi::Mpi;
pub use network::{LinkCost, Network};
pub use ring::{Ring, ring, ring_on};
pub use supervised::Supervised;
