//! Several devices.

mod sharded;
mod transfers;
