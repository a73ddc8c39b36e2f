//! Command encoders and indirect command buffers.

pub mod bindings;
pub mod blit;
pub mod command_encoder;
pub mod compute;
pub mod indirect;
