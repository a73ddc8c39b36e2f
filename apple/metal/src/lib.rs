//! The library that stands for Apple's: the Objective-C runtime and Foundation so far.
#![allow(unsafe_code)] // C interfaces

/// Classes are registered when the library is loaded, as on Apple's systems.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        elinvar_objc::foundation::register();
        elinvar_objc::watch::look_at_exit();
    }
    at_load
};
