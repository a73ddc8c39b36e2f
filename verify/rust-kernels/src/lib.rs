//! Kernels written in Rust, by subject. Tests compare what they compute on devices with the host's run of the same function, and with
//! independent references.
#![forbid(unsafe_code)]

pub mod basics;
