//! [MPSGraph](https://developer.apple.com/documentation/metalperformanceshadersgraph): graphs of operations on arrays, executables, and the
//! data that they take and make.
//!
//! The host computes each operation in double precision, and rounds its result to the type of its array, in command buffer order. Shapes and
//! types are checked when an operation is added, as MPSGraph's compiler does. Operations that the driver does not use are not there.
//!
//! MPSGraph may commit the command buffer that it encodes to (`commitAndContinue`); this one always asks for it, unless a test says
//! otherwise.

mod array;
mod buffer;
mod convolution;
mod evaluate;
mod executable;
mod graph;
mod operations;
mod tensor;

use elinvar_objc::foundation::os_version;

/// The versions of macOS that have a class or a method; guesses where the documentation does not say.
const FRAMEWORK: (u32, u32) = (11, 0);
const EXECUTABLES: (u32, u32) = (12, 0);
const LEVELS: (u32, u32) = (12, 3);
const VOLUMES: (u32, u32) = (13, 2);
const BFLOAT: (u32, u32) = (14, 0);
const OFFSETS: (u32, u32) = (15, 0);
const ATTENTION: (u32, u32) = (15, 0);

pub fn register() {
    buffer::register();
    array::register();
    if os_version() < FRAMEWORK {
        return;
    }
    tensor::register();
    convolution::register();
    graph::register();
    executable::register();
}
