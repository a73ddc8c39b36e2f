//! [`Marks`]: what a queue's command buffers tell before they have ended: events that they raise, times that they come to.

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
    /// `None` where Metal has no events for it.
    pub(super) signals: Option<Signals>,
    /// Made when times are first to be noted; `None` where Metal has no counters for it.
    stamps: OnceLock<Option<Stamps>>,
}

impl Marks {
    pub(super) fn new(signals: Option<Signals>) -> Self {
        Self { signals, stamps: OnceLock::new() }
    }

    /// What notes times within command buffers.
    pub(super) fn stamps(&self, core: &Core) -> Option<&Stamps> {
        self.stamps.get_or_init(|| Stamps::new(core)).as_ref()
    }

    /// The command buffer with these notes is about to be committed.
    pub(super) fn before(&self, core: &Core, info: &mut BufferInfo) {
        for (ticket, _) in &info.signals {
            self.signals.iter().for_each(|signals| signals.listen(*ticket));
        }
        if !info.stamps.is_empty() {
            info.committed = stamps::moment(core);
        }
    }

    /// The command buffer has ended: sets the times that it noted. If it has ended `well` they are within its own, in order,
    /// and one that is missing is the counters' fault.
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
