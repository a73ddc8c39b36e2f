//! Command queues and command buffers, what a command buffer holds, and its execution on the CPU driver.

pub mod capture;
pub mod command_buffer;
pub mod execution;
pub mod log_state;
pub mod pass;
pub mod queue;
