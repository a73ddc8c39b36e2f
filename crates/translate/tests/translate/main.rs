//! Translations: what they compute, what is refused, and hostile sources.

#[path = "../support/mod.rs"]
mod support;

mod hostile;
mod kernels;
mod wgsl;
