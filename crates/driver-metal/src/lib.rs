//! Runs Metal kernels on Apple GPUs, through Metal. It has never been run on a Mac: it is run on Linux against a stand-in for
//! Apple's libraries, and linked for macOS (`docs/metal.md`).
//!
//! The way of a launch: [`Queue::submit`](elinvar_driver::Queue::submit) puts the commands in the queue's list
//! (`queue`); when its turn comes they are encoded (`encode`, the one `match` on
//! [`Command`](elinvar_driver::Command)) into a command buffer, which is committed; its completion handler ends the
//! submission and begins the next.
//!
//! | contract | Metal |
//! |---|---|
//! | memory | `MTLBuffer` in the storage mode of that name; memory of the program by `bytesNoCopy` (`memory`) |
//! | library, pipeline | `newLibraryWithSource`, `MTLComputePipelineState` (`compile`, `pipeline`) |
//! | compiled kernels on disk | a `MTLBinaryArchive` for each pipeline (`archive`) |
//! | signature | Elinvar's front end, compared with Metal's reflection; without clang the reflection alone (`reflect`) |
//! | bounds checks | shader validation, on copies of the arguments (`validation`, `copies`) |
//! | queue | `MTLCommandQueue`, with command buffers committed ahead where a failure allows it (`queue`, `ahead`) |
//! | wait | the GPU's for an `MTLSharedEvent` where the command buffer behind it may be committed (`queue`, `ahead`); else the host's, and that is committed when the event is there |
//! | signal | within a command buffer that of an `MTLSharedEvent`, of which the host is told (`signals`); at its end, and without shared events, the host's |
//! | timestamp | within a command buffer a sample of an `MTLCounterSampleBuffer` (`stamps`); at its end, and without counters, the GPU's end time |
//! | label of a launch | a debug group of the encoder; queues and command buffers have numbers for labels |
//! | capture | `MTLCaptureManager`, to a GPU trace (`capture`) |
//! | primitive | a kernel of Metal Performance Shaders, kept for its shape; images through temporary ones (`mps`) |
//! | copies between devices | blits from a remote view within a peer group, else through pages of the host (`crossing`) |
//! | pooled and aliased memory | offsets of one buffer, so heaps are not needed |
//!
//! Metal goes on with the next command buffer after one has failed, and the contract does not. So a command buffer is committed
//! before those before it have ended well only if its run behind a failure shows nowhere (`ahead`). That goes for what it waits for
//! on the GPU as well.
//!
//! Where a Metal function is newer than the oldest system, the object is asked whether it has it, and what is done
//! without it is said where that is decided.
//!
//! On systems that are not Apple's there is no device, and nothing else in this crate. With `--cfg elinvar_apple` it is
//! built for another system against libraries that stand in for Apple's.
//!
//! What this crate does not do: check a launch against the kernel's signature (the runtime does), stop what runs (Metal
//! cannot).
#![warn(missing_docs)]

#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod ahead;
#[cfg(any(target_vendor = "apple", elinvar_apple))]
mod apple;
#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod clock;
#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod diagnostics;
#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod flatten;
#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod hazards;
#[cfg(any(target_vendor = "apple", elinvar_apple))]
mod steering;

#[cfg(any(target_vendor = "apple", elinvar_apple))]
pub use apple::{MetalDriver, driver};

/// The Metal driver of this process. On systems that are not Apple's it finds no device.
#[cfg(not(any(target_vendor = "apple", elinvar_apple)))]
pub fn driver() -> MetalDriver {
    MetalDriver { _none: () }
}

/// Runs kernels on Apple GPUs.
#[cfg(not(any(target_vendor = "apple", elinvar_apple)))]
#[derive(Clone)]
pub struct MetalDriver {
    _none: (),
}

#[cfg(not(any(target_vendor = "apple", elinvar_apple)))]
impl elinvar_driver::Driver for MetalDriver {
    fn name(&self) -> &'static str {
        "metal"
    }

    /// None: Metal is Apple's.
    fn devices(&self) -> elinvar_driver::Result<Vec<std::sync::Arc<dyn elinvar_driver::Device>>> {
        Ok(Vec::new())
    }
}
