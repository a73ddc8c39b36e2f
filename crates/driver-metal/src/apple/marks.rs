//! [`Marks`]: signals and timestamps within a queue's command buffers.

use std::sync::OnceLock;

use elinvar_driver::Command;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLCommandBuffer;

use super::core::Core;
use super::encoding::BufferInfo;
use super::host;
use super::signals::Signals;
use super::stamps::{self, Stamps};
use crate::clock::Span;

pub(super) struct Marks {
    /// `None` if Metal has no shared events.
    pub(super) signals: Option<Signals>,
    /// Created with the first timestamp; `None` if Metal has no counters.
    stamps: OnceLock<Option<Stamps>>,
}

impl Marks {
    pub(super) fn new(signals: Option<Signals>) -> Self {
        Self { signals, stamps: OnceLock::new() }
    }

    /// The sampling of times within command buffers.
    pub(super) fn stamps(&self, core: &Core) -> Option<&Stamps> {
        self.stamps.get_or_init(|| Stamps::new(core)).as_ref()
    }

    /// Called before the command buffer with this `BufferInfo` is committed.
    pub(super) fn before(&self, core: &Core, info: &mut BufferInfo) {
        for (ticket, _) in &info.signals {
            self.signals.iter().for_each(|signals| signals.listen(*ticket));
        }
        if !info.stamps.is_empty() {
            info.committed = stamps::moment(core);
        }
    }

    /// Called when the command buffer has ended: sets the timestamps that it sampled. If it ended `well`, they are clamped to its duration,
    /// in order, and a missing one disables the counters.
    pub(super) fn note_times(
        &self,
        core: &Core,
        buffer: &ProtocolObject<dyn MTLCommandBuffer>,
        well: bool,
        commands: &[Command],
        info: &BufferInfo,
    ) {
        let Some(stamps) = self.stamps.get().and_then(Option::as_ref).filter(|_| !info.stamps.is_empty())
        else {
            return;
        };
        let span = Span { before: info.committed, behind: stamps::moment(core) };
        let own = [buffer.GPUStartTime(), buffer.GPUEndTime()].map(host::from_seconds);
        let [mut least, most] = if well { own } else { [0, u64::MAX] };
        for (command, ns) in info.stamps.iter().zip(stamps.times(info.stamps.len(), span)) {
            let Command::Timestamp { into } = &commands[*command] else { continue };
            match ns {
                Some(ns) => {
                    least = ns.min(most).max(least);
                    into.set(least);
                }
                None => {
                    into.clear();
                    if well {
                        core.counters.distrust();
                    }
                }
            }
        }
    }
}
