//! A library for Linux that stands for Apple's: the Objective-C runtime and Foundation (`elinvar-objc`), and here Metal, on which
//! programs that use objc2-metal run as they are. Its device is that of Elinvar's CPU driver.
//!
//! | module | owns |
//! |---|---|
//! | `device`, `creation`, `profile`, `observer` | devices: what they say of themselves, what they make, that they go |
//! | `buffer`, `heap`, `store` | memory |
//! | `library`, `function`, `pipeline`, `reflection`, `archive` | compiled kernels |
//! | `queue`, `command_buffer` | order, handlers, status |
//! | `encoding`, `compute`, `blit`, `bindings`, `indirect` | what is encoded, as `pass` lists it |
//! | `mps` | Metal Performance Shaders |
//! | `run` | the thread of a queue: runs passes on the CPU driver |
//! | `event`, `fence`, `counter`, `residency`, `capture` | the rest of the objects |
//! | `shader_validation` | what kernels do wrong, as a layer of the process looks for it |
//! | `validation`, `fault`, `hold` | what is a mistake; what fails, and what waits, because a test asks for it |
//!
//! What is encoded is checked as Apple's debug layer does; a mistake ends the process. Each module names the pages of Apple's
//! documentation that it follows, and says what is a guess. Textures and rendering are not here.
//!
//! For tests there are C functions whose names begin with `elinvar_apple_`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))] // elsewhere there is nothing in it
#![allow(unsafe_code)] // C interfaces

mod archive;
mod bindings;
mod blit;
mod buffer;
mod capture;
mod command_buffer;
mod compute;
mod counter;
mod creation;
mod device;
mod encoding;
mod event;
mod fault;
mod fence;
mod function;
mod heap;
mod hold;
mod indirect;
mod library;
mod mps;
mod observer;
mod pass;
mod pipeline;
mod profile;
mod queue;
mod reflection;
mod residency;
mod run;
mod shader_validation;
mod store;
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
            buffer::register,
            heap::register,
            library::register,
            function::register,
            pipeline::register,
            reflection::register,
            archive::register,
            queue::register,
            command_buffer::register,
            compute::register,
            blit::register,
            indirect::register,
            event::register,
            fence::register,
            counter::register,
            residency::register,
            capture::register,
            run::register,
            shader_validation::register,
            observer::register,
            mps::register,
        ]);
        elinvar_objc::watch::look_at_exit();
    }
    at_load
};
