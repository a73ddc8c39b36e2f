//! An Objective-C runtime with the C interface of Apple's, and the few classes of Foundation that Metal programs use, for
//! tests on Linux.
//!
//! | module | owns |
//! |---|---|
//! | `object` | memory of objects, reference counts, what becomes of freed ones |
//! | `class` | classes, their methods and instance variables, the registry |
//! | `selector` | the table of selectors |
//! | `send` | message sending, in assembly |
//! | `pool` | autorelease pools |
//! | `block` | blocks |
//! | `abi` | the runtime's C functions |
//! | `declare`, `value` | how Rust types become classes, Rust functions methods, and C values arguments |
//! | `reference` | [`Ref`] and [`Object`]: strong references |
//! | `dispatch` | dispatch queues |
//! | `foundation` | `NSObject`, `NSString`, `NSArray` and so on |
//! | `watch`, `busy` | counts of live objects, what is said of mistakes, and when all work is done |
//!
//! What a program does wrong ends the process with a message that names class and selector; an exception that could be
//! caught there is not thrown. Freed objects stay recognizable for a while, so that a message to one, or
//! a release too many, is seen. There are no weak references, no associated objects, no forwarding, and no
//! classes that are loaded from images.
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
