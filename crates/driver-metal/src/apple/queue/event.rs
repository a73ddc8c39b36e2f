//! Events: [`PromisedTimeline`]s of points behind command buffers in flight.

use std::sync::Arc;

use elinvar_driver::{Promise, PromisedTimeline};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLSharedEvent;

use crate::ahead::Gate;
use crate::apple::core::Core;

/// An event of this driver.
pub(in crate::apple) type MetalEvent = PromisedTimeline<CommandBufferEnd>;

/// The end of a command buffer in flight.
#[derive(Clone)]
pub(in crate::apple) struct CommandBufferEnd {
    /// The counter of its queue.
    pub(in crate::apple) counter: Retained<ProtocolObject<dyn MTLSharedEvent>>,
    /// The counter's value at the end.
    pub(in crate::apple) number: u64,
    /// Opened when everything up to the end has succeeded.
    pub(in crate::apple) gate: Arc<Gate>,
    /// Address of the device.
    pub(in crate::apple) device: usize,
}

impl CommandBufferEnd {
    pub(super) fn is_of(&self, core: &Arc<Core>) -> bool {
        self.device == Arc::as_ptr(core).addr()
    }
}

impl Promise for CommandBufferEnd {
    fn kept(&self) {
        self.gate.open();
    }
}
