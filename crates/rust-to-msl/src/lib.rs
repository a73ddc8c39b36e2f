//! A subset of Rust, translated to Metal Shading Language.
//!
//! [`translate`] takes the syntax tree of a function with that of the items it uses, infers types as rustc does, and writes MSL that reads like
//! the function. `#[elinvar::kernel]` calls it when the user's crate is compiled; rustc compiles the same function for the host, which
//! checks what a translator need not: borrows, exhaustive matches, types.
//!
//! Steps: [`lower`](crate::lower) to a typed tree, with closures inlined; [`emit`](crate::emit) to lines of MSL, each with the span that it
//! is from. The page `rust-kernels.md` of the documentation specifies the subset and its semantics.

mod builtins;
mod emit;
mod error;
mod hir;
mod items;
mod lower;
mod names;
mod print;
mod program;
mod reserved;
mod support;
mod translate;
mod types;
mod visit;

pub use emit::Line;
pub use error::Error;
pub use items::Items;
pub use names::free_names;
pub use translate::{
    Math, POSITIONS, Parameter, Role, Translation, check, constant_element, is_parameter_attribute, translate,
};
pub use types::Scalar;
