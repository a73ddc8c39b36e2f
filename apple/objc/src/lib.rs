//! An Objective-C runtime with the C interface of Apple's, and the classes of Foundation that Metal programs use, for tests on
//! Linux.
//!
//! | module | owns |
//! |---|---|
//! | `object` | memory of objects, reference counts, freed objects |
//! | `class` | classes, their methods and instance variables, the registry |
//! | `selector` | the table of selectors |
//! | `send` | message sending, in assembly |
//! | `pool` | autorelease pools |
//! | `block` | blocks |
//! | `abi` | the runtime's C functions |
//! | `declare`, `value` | conversion of Rust types to classes, Rust functions to methods, and C values to arguments |
//! | `reference` | [`Ref`] and [`Object`]: strong references |
//! | `dispatch` | dispatch queues |
//! | `foundation` | `NSObject`, `NSString`, `NSArray` and so on |
//! | `watch`, `busy` | counts of live objects, error reports, pending work |
//!
//! A program error ends the process with a message that names class and selector; exceptions that a program could catch are not
//! thrown. Freed objects stay recognizable for a while, so that messages to them and over-releases are detected. Weak references, associated
//! objects, forwarding, and classes loaded from images are not supported.
//!
//! Behaviour follows Apple's documentation of the [Objective-C Runtime](https://developer.apple.com/documentation/objectivec/objective-c-runtime)
//! and Clang's of [automatic reference counting](https://clang.llvm.org/docs/AutomaticReferenceCounting.html) and of
//! [blocks](https://clang.llvm.org/docs/Block-ABI-Apple.html).
#![cfg(all(target_os = "linux", target_arch = "x86_64"))] // elsewhere there is nothing in it
#![allow(unsafe_code)] // C interfaces and raw objects are this crate's work

mod abi;
mod block;
mod busy;
mod class;
mod declare;
mod dispatch;
pub mod foundation;
mod object;
mod pool;
mod reference;
mod selector;
mod send;
#[cfg(test)]
mod tests;
mod value;
pub mod watch;

pub use block::{Block, BlockPointer};
pub use busy::BUSY;
pub use class::{Class, Demand, describe};
pub use declare::{Declaration, Declared, Property, register};
pub use dispatch::DispatchQueue;
pub use object::{Id, Raw};
pub use pool::with_pool;
pub use reference::{Object, Ref};
pub use selector::Selector;
pub use value::{Argument, Encoded, NsRange, Out, Return, bytes_of};
