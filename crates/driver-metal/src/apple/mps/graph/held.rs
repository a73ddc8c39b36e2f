//! [`Held`]: the command buffer of a queue as MPSGraph takes it.
//!
//! `MPSCommandBuffer.commitAndContinue` commits the command buffer, and goes on in a new one of the same queue. MPSGraph may call it while it
//! encodes, to hand work to the GPU sooner. The queue commits command buffers itself, after it has announced them; so the method has no effect
//! here. An `MPSCommandBuffer` around this one forwards the message to it, according to Apple's documentation. If the command buffer is another
//! one nevertheless, [`Encoding::go_on_in`](super::super::super::encoding::Encoding::go_on_in) takes it over.

use objc2::rc::Retained;
use objc2::{AnyThread as _, define_class, msg_send};
use objc2_foundation::NSObjectProtocol;
use objc2_metal_performance_shaders::MPSCommandBuffer;

use super::super::super::encoding::CommandBuffer;

define_class!(
    // SAFETY: the superclass is not restricted, the override keeps its contract (work is committed later), and there is no `Drop`.
    #[unsafe(super(MPSCommandBuffer))]
    #[name = "ElinvarHeldCommandBuffer"]
    pub(super) struct Held;

    // SAFETY: `NSObject` implements the protocol.
    unsafe impl NSObjectProtocol for Held {}

    impl Held {
        #[unsafe(method(commitAndContinue))]
        fn commit_and_continue(&self) {}
    }
);

impl Held {
    pub(super) fn new(buffer: &CommandBuffer) -> Retained<Self> {
        let this = Self::alloc().set_ivars(());
        // SAFETY: the superclass's initializer, with a command buffer that is not committed.
        unsafe { msg_send![super(this), initWithCommandBuffer: &**buffer] }
    }
}
