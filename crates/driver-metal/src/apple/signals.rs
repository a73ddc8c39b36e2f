//! [`Signals`]: how a command buffer raises events before it has ended.
//!
//! Each queue has one `MTLSharedEvent`, which counts the signals that its command buffers encode: the number of one is its
//! *ticket*. When the GPU has raised the counter to a ticket, Metal calls a block on a dispatch queue, and the queue raises the
//! event of the contract. That is the host's, so it can be any driver's, fail, and be raised from several queues in any
//! order; the counter is raised by one queue in its order, so it only grows, and says after a failure exactly what was reached.
//!
//! Nothing on a GPU waits for this counter. What one may wait for is the end of a command buffer (`queue`).
//!
//! A device without shared events (macOS before 10.14, or none is given) has none of this: a signal then ends its
//! command buffer.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use block2::RcBlock;
use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol as _, ProtocolObject};
use objc2::sel;
use objc2_metal::{MTLCommandBuffer as _, MTLDevice as _, MTLSharedEvent, MTLSharedEventListener};

use super::core::Core;
use super::encoding::CommandBuffer;

type Reached = RcBlock<dyn Fn(NonNull<ProtocolObject<dyn MTLSharedEvent>>, u64)>;

pub(super) struct Signals {
    counter: Retained<ProtocolObject<dyn MTLSharedEvent>>,
    listener: Retained<MTLSharedEventListener>,
    reached: Block,
    /// The last ticket.
    last: AtomicU64,
}

/// A block that any thread may call.
struct Block(Reached);

#[allow(unsafe_code)] // blocks are not sent by default
// SAFETY: what the block holds may be used from any thread, and blocks are counted atomically.
unsafe impl Send for Block {}
#[allow(unsafe_code)] // as above
// SAFETY: as above; calling it changes nothing of its own.
unsafe impl Sync for Block {}

impl Signals {
    /// `None` where Metal has no shared events. `reached` is called with a number to which all tickets have been reached, from
    /// any thread; it must not unwind.
    pub(super) fn new(core: &Core, reached: impl Fn(u64) + Send + Sync + 'static) -> Option<Self> {
        if !core.device.respondsToSelector(sel!(newSharedEvent)) {
            return None;
        }
        let counter = core.device.newSharedEvent()?;
        let listener = core.listener.get_or_init(MTLSharedEventListener::new).clone();
        let reached = Block(RcBlock::new(move |_, value| reached(value)));
        Some(Self { counter, listener, reached, last: AtomicU64::new(0) })
    }

    /// Let the GPU raise the counter when what is encoded has ended; no encoder is open. The ticket.
    pub(super) fn encode(&self, buffer: &CommandBuffer) -> u64 {
        let ticket = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        buffer.encodeSignalEvent_value(ProtocolObject::from_ref(&*self.counter), ticket);
        ticket
    }

    /// Ask Metal to tell when the ticket is reached.
    #[allow(unsafe_code)] // hands a block to Metal
    pub(super) fn listen(&self, ticket: u64) {
        let block = RcBlock::as_ptr(&self.reached.0);
        // SAFETY: the block is valid, and Metal retains it.
        unsafe { self.counter.notifyListener_atValue_block(&self.listener, ticket, block) };
    }

    /// The last ticket that was reached.
    pub(super) fn reached(&self) -> u64 {
        self.counter.signaledValue()
    }

    /// After a failure: let go of whoever listens for tickets up to this one, which the GPU does not raise any more.
    pub(super) fn give_up(&self, ticket: u64) {
        if self.reached() < ticket {
            self.counter.setSignaledValue(ticket);
        }
    }
}
