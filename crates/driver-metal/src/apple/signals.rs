//! [`Signals`]: raises events before the command buffer has ended.
//!
//! Each queue has one `MTLSharedEvent`, which counts the signals that its command buffers encode; the value of a signal is its *ticket*. When
//! the GPU has raised the counter to a ticket, Metal calls a block on a dispatch queue, and the queue raises the event of the contract. That
//! event is implemented on the host, so it can belong to any driver, fail, and be raised by several queues in any order. The counter is
//! raised by one queue in order, so it only grows, and tells exactly what was reached after a failure.
//!
//! The GPU never waits for this counter. It can wait for the end of a command buffer (`queue`).
//!
//! On a device without shared events (macOS before 10.14, or creation failed), a signal ends its command buffer.

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
// SAFETY: the captures of the block may be used on any thread, and blocks are reference-counted atomically.
unsafe impl Send for Block {}
#[allow(unsafe_code)] // as above
// SAFETY: as above; calling it does not mutate it.
unsafe impl Sync for Block {}

impl Signals {
    /// `None` if Metal has no shared events. `reached` is called, on any thread, with a ticket up to which all have been reached; it must not
    /// unwind.
    pub(super) fn new(core: &Core, reached: impl Fn(u64) + Send + Sync + 'static) -> Option<Self> {
        if !core.device.respondsToSelector(sel!(newSharedEvent)) {
            return None;
        }
        let counter = core.device.newSharedEvent()?;
        let listener = core.listener.get_or_init(MTLSharedEventListener::new).clone();
        let reached = Block(RcBlock::new(move |_, value| reached(value)));
        Some(Self { counter, listener, reached, last: AtomicU64::new(0) })
    }

    /// Encodes that the GPU raises the counter when everything encoded so far has completed. No encoder may be open. Returns the ticket.
    pub(super) fn encode(&self, buffer: &CommandBuffer) -> u64 {
        let ticket = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        buffer.encodeSignalEvent_value(ProtocolObject::from_ref(&*self.counter), ticket);
        ticket
    }

    /// Registers for notification when the ticket is reached.
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

    /// After a failure: releases listeners of tickets up to this one, which the GPU will not raise.
    pub(super) fn give_up(&self, ticket: u64) {
        if self.reached() < ticket {
            self.counter.setSignaledValue(ticket);
        }
    }
}
