//! Metal kernels on Apple GPUs, through Metal. Never run on a Mac so far: it is run on Linux against a stand-in for Apple's
//! frameworks, and linked for macOS (`docs/metal.md`).
//!
//! Path of a launch: [`Queue::submit`](elinvar_driver::Queue::submit) appends the commands to the queue (`queue`). They are encoded
//! to a command buffer (`encode`, the one `match` on [`Command`](elinvar_driver::Command)), which is committed. Its completion handler ends
//! the submission and issues the next.
//!
//! | contract | Metal |
//! |---|---|
//! | memory | `MTLBuffer` in the storage mode of the same name; memory of the program with `bytesNoCopy` (`memory`) |
//! | library, pipeline | `newLibraryWithSource`, `MTLComputePipelineState` (`compile`, `pipeline`) |
//! | source in a bundle | its text or a compiled library, with the signatures of the front end (`packed`, written by `packer`) |
//! | compiled kernels on disk | one `MTLBinaryArchive` per pipeline (`archive`) |
//! | signature | Elinvar's front end, compared with Metal's reflection; without clang, the reflection only (`reflect`) |
//! | bounds checks | shader validation, on copies of the arguments (`validation`, `copies`) |
//! | queue | `MTLCommandQueue`, with command buffers committed ahead as far as failures permit (`queue`, `ahead`) |
//! | wait | on the GPU for an `MTLSharedEvent`, if the command buffer behind it may be committed ahead (`queue`, `ahead`); otherwise on the host, which commits it afterwards |
//! | signal | within a command buffer by an `MTLSharedEvent`, which notifies the host (`signals`); at its end, and without shared events, by the host |
//! | timestamp | within a command buffer by a sample of an `MTLCounterSampleBuffer` (`stamps`); at its end, and without counters, the GPU end time |
//! | commands in memory, nested launches | checked on the GPU, which encodes them into an `MTLIndirectCommandBuffer` (`commands`) |
//! | kernel with grid barriers | split at them, and dispatched until no thread waits (`split`, `rounds`) |
//! | label of a launch | a debug group of the encoder; queues and command buffers are labeled with numbers |
//! | capture | `MTLCaptureManager`, to a GPU trace (`capture`) |
//! | primitive | an MPS kernel, cached by shape; image kernels use temporary images (`mps`). What MPS lacks is an MPSGraph executable (`mps::graph`) |
//! | copies between devices | blits from a remote view within a peer group, otherwise through host pages (`crossing`) |
//! | pooled and aliased memory | offsets in one buffer; heaps are not needed |
//!
//! Metal continues with the next command buffer after a failure; the contract does not. A command buffer is therefore committed before earlier
//! ones have succeeded only if its execution behind a failure is unobservable (`ahead`). The same applies to GPU-side waits.
//!
//! If a Metal method is newer than the oldest supported system, the object is queried for it (`respondsToSelector:`); the fallback is
//! documented where it is chosen.
//!
//! On other systems there are no devices; only [`Packer`], which packs sources for Apple devices ahead of time, is for every system. With
//! `--cfg elinvar_apple`, it is built for another system against libraries that replace Apple's.
//!
//! Not done by this crate: validation of launches against the kernel's signature (done by the runtime), and stopping of running work, which
//! Metal does not support.
#![warn(missing_docs)]

#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod ahead;
#[cfg(any(target_vendor = "apple", elinvar_apple))]
mod apple;
#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod clock;
#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod diagnostics;
mod flatten;
mod front;
#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod hazards;
mod headers;
mod own_memory;
#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod packed;
mod packer;
#[cfg(any(target_vendor = "apple", elinvar_apple, test))]
mod split;
mod steering;

pub use packer::Packer;

#[cfg(any(target_vendor = "apple", elinvar_apple))]
pub use apple::{MetalDriver, driver};

/// The Metal driver of this process. On systems other than Apple's, it finds no device.
#[cfg(not(any(target_vendor = "apple", elinvar_apple)))]
pub fn driver() -> MetalDriver {
    MetalDriver { _none: () }
}

/// Metal driver.
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

    /// No devices: Metal requires Apple systems.
    fn devices(&self) -> elinvar_driver::Result<Vec<std::sync::Arc<dyn elinvar_driver::Device>>> {
        Ok(Vec::new())
    }
}
