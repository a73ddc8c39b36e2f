//! Launches: kernels and libraries, validation of calls, and recording of commands.

pub(crate) mod args;
pub(crate) mod bind;
pub(crate) mod bound;
pub(crate) mod bundle;
pub(crate) mod candidates;
pub(crate) mod command_buffer;
pub(crate) mod command_list_pool;
pub(crate) mod compilation;
pub(crate) mod constants;
pub(crate) mod grid;
pub(crate) mod group;
pub(crate) mod kernel;
pub(crate) mod kernel_options;
pub(crate) mod library;
pub(crate) mod primitive;
pub(crate) mod profile;
pub(crate) mod recording;
pub(crate) mod stream;
pub(crate) mod submitted;
pub(crate) mod suggest;
pub(crate) mod timestamp;
pub(crate) mod transfer;
pub(crate) mod tune;
pub(crate) mod variants;
