//! What can be seen of a device: traces, profiles, its health, and what the system says of the machine.

pub(crate) mod capture;
pub(crate) mod health;
pub(crate) mod notice;
pub(crate) mod thermal;
pub(crate) mod trace;
pub(crate) mod watch;
