//! Matrix products and convolutions in `f32`, on the calling thread: packing, micro-kernels, and what is done to a finished tile.
//!
//! The structure is that of BLIS ([Van Zee and van de Geijn, 2015](https://doi.org/10.1145/2764454)). A factor is *lines* of *terms*: rows of
//! the left factor, columns of the right one. [`pack`](fn@pack) copies lines into panels of as many as a micro-kernel takes at a time
//! ([`Level::rows`], [`Level::columns`]), in which the elements of one term are contiguous. [`multiply`] computes a block of the result from
//! the panels of both factors, tile by tile.
//!
//! A convolution is a product whose right factor is not packed: [`phases`] describes images in which the pixels of a tile, for one
//! weight, are contiguous, so that a table of offsets takes the place of panels.
//!
//! Nothing here allocates memory or knows threads; callers share blocks between threads.
#![allow(unsafe_code)] // vector instructions, and addresses of matrices

mod element;
mod output;
mod pack;
pub mod phases;
mod simd;
mod tile;

pub use element::{Element, widen};
pub use output::{Activation, Bias, Output};
pub use pack::{Lines, pack, packed_len};
pub use tile::{Block, Left, Level, Right, multiply};
