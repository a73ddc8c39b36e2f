//! A library for Linux that replaces Apple's: the Objective-C runtime and Foundation (`elinvar-objc`), and, in this crate, Metal. Programs that
//! use objc2-metal run on it unchanged. Its device is Elinvar's CPU driver.
//!
//! | module | owns |
//! |---|---|
//! | `device` | devices: properties, creation of objects, removal |
//! | `memory` | buffers, heaps, the bytes behind them, residency sets |
//! | `library` | compiled kernels: libraries, functions, pipelines, reflection, binary archives |
//! | `commands` | queues and command buffers, captures; the passes of a command buffer and their execution on the CPU driver |
//! | `encoders` | compute and blit encoders, indirect command buffers |
//! | `sync` | events, fences, counter sample buffers |
//! | `mps` | Metal Performance Shaders |
//! | `mpsgraph` | MPSGraph: graphs, executables, arrays |
//! | `validation` | API and shader validation; injected faults and held submissions, for tests |
//!
//! Encoded commands are validated as by Apple's debug layer; an invalid call ends the process. Each module names the pages of Apple's
//! documentation that it follows, and marks guesses. Textures and rendering are not supported.
//!
//! C functions for tests have names that start with `elinvar_apple_`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))] // elsewhere there is nothing in it
#![allow(unsafe_code)] // C interfaces

mod commands;
mod device;
mod encoders;
mod library;
mod memory;
mod mps;
mod mpsgraph;
mod sync;
mod validation;
mod values;

/// Classes are registered when the library is loaded, as on Apple's systems.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        elinvar_objc::foundation::register();
        elinvar_objc::register(&[
            device::register,
            memory::buffer::register,
            memory::heap::register,
            library::register,
            library::function::register,
            library::pipeline::register,
            library::reflection::register,
            library::binary_archive::register,
            commands::queue::register,
            commands::command_buffer::register,
            commands::log_state::register,
            encoders::compute::register,
            encoders::blit::register,
            encoders::indirect::register,
            sync::event::register,
            sync::fence::register,
            sync::counter::register,
            memory::residency::register,
            commands::capture::register,
            commands::execution::register,
            validation::shader_validation::register,
            device::observer::register,
            mps::register,
            mpsgraph::register,
        ]);
        elinvar_objc::watch::look_at_exit();
    }
    at_load
};
