//! Staged copies between devices, in chunks through a ring of staging buffers.
//!
//! For chunk `k` the source's device waits until its staging buffer is free, copies to it and signals `sent`; the host copies it to the other device's
//! staging buffer, unless both devices use one; the target's device copies it to the target and signals `freed`. With three buffers the devices and the host
//! work at once.

use std::sync::Arc;

use elinvar_driver::{Error, Result};

use super::{Route, Staged, carry, staged};
use crate::memory::span::Span;
use crate::{CommandBuffer, Completion, Device, Event};

/// Bytes of a chunk: large enough that signals cost little, small enough that the first and the last chunk, which nothing overlaps, do.
const CHUNK: u64 = 4 << 20;
/// Number of staging buffers.
const DEPTH: usize = 3;

/// A staged copy.
struct Copy {
    slots: Vec<Staged>,
    /// Raised by the stream that was given, when the copy may begin.
    begin: Event,
    sent: Event,
    /// Raised when the host has copied a chunk; `sent` if it need not.
    arrived: Event,
    freed: Event,
    bytes: u64,
}

/// Records a copy between devices, one of which is that of the command buffer.
pub(super) fn copy(commands: &mut CommandBuffer, source: &Span, target: &Span) -> Result<Route> {
    let (from, to) = (&source.storage.device, &target.storage.device);
    let copy = Arc::new(Copy::new(from, to, source.len)?);
    let is_source = commands.device() == from;
    let other = if is_source { to } else { from };
    // Of its own, so that the failure of a transfer affects no other.
    let mut companion = other.stream()?.command_buffer();
    if is_source {
        copy.send(commands, source);
        copy.receive(&mut companion, target);
        commands.wait_for(&copy.freed, copy.chunks());
    } else {
        commands.signal(&copy.begin, 1);
        companion.wait_for(&copy.begin, 1);
        copy.send(&mut companion, source);
        copy.receive(commands, target);
    }
    let route = copy.slots[0].route;
    commands.accompany(Box::new(move |_: &Completion| {
        copy.clone().carry(0);
        if let Err(cause) = companion.submit() {
            copy.fail(&cause);
        }
    }));
    Ok(route)
}

impl Copy {
    fn new(from: &Device, to: &Device, bytes: u64) -> Result<Self> {
        let chunks = bytes.div_ceil(CHUNK);
        let slots = (0..chunks.min(DEPTH as u64)).map(|_| staged(from, to, bytes.min(CHUNK)));
        let slots = slots.collect::<Result<Vec<_>>>()?;
        let (begin, sent, freed) = (from.event()?, from.event()?, to.event()?);
        let arrived = if slots.iter().any(Staged::needs_host) { to.event()? } else { sent.clone() };
        Ok(Self { slots, begin, sent, arrived, freed, bytes })
    }

    fn chunks(&self) -> u64 {
        self.bytes.div_ceil(CHUNK)
    }

    /// The staging buffers of a chunk.
    fn slot(&self, chunk: u64) -> &Staged {
        &self.slots[chunk as usize % self.slots.len()]
    }

    /// The bytes of a chunk within a span of the copy's size.
    fn part(&self, span: &Span, chunk: u64) -> Span {
        let begin = chunk * CHUNK;
        let len = CHUNK.min(self.bytes - begin);
        Span { storage: span.storage.clone(), offset: span.offset + begin, len }
    }

    /// The commands of the source's device.
    fn send(&self, commands: &mut CommandBuffer, source: &Span) {
        self.slots.iter().for_each(|slot| commands.use_for_copy(source, &slot.from.span));
        for chunk in 0..self.chunks() {
            if let Some(earlier) = chunk.checked_sub(self.slots.len() as u64) {
                commands.wait_for(&self.freed, earlier + 1);
            }
            let part = self.part(source, chunk);
            let to = Span { len: part.len, ..self.slot(chunk).from.span.clone() };
            commands.push_copy(&part, &to);
            commands.signal(&self.sent, chunk + 1);
        }
    }

    /// The commands of the target's device.
    fn receive(&self, commands: &mut CommandBuffer, target: &Span) {
        self.slots.iter().for_each(|slot| commands.use_for_copy(&slot.to.span, target));
        for chunk in 0..self.chunks() {
            commands.wait_for(&self.arrived, chunk + 1);
            let part = self.part(target, chunk);
            let from = Span { len: part.len, ..self.slot(chunk).to.span.clone() };
            commands.push_copy(&from, &part);
            commands.signal(&self.freed, chunk + 1);
        }
    }

    /// Copies the chunks from `chunk` on between the staging buffers, each when it has been sent.
    fn carry(self: Arc<Self>, chunk: u64) {
        if !self.slots[0].needs_host() || chunk == self.chunks() {
            return;
        }
        let this = self.clone();
        self.sent.when(chunk + 1, move |sent| {
            let mut chunk = chunk;
            let mut sent = sent;
            loop {
                let slot = this.slot(chunk);
                let bytes = CHUNK.min(this.bytes - chunk * CHUNK);
                match sent.and_then(|()| carry(&slot.from, &slot.to, bytes)) {
                    Ok(()) => this.arrived.signal(chunk + 1),
                    Err(cause) => return this.arrived.fail(&cause),
                }
                chunk += 1;
                // Without recursion while chunks have been sent already.
                if chunk == this.chunks() || this.sent.value() <= chunk {
                    return this.carry(chunk);
                }
                sent = Ok(());
            }
        });
    }

    /// Fails the work that waits for the companion.
    fn fail(&self, cause: &Error) {
        [&self.sent, &self.arrived, &self.freed].into_iter().for_each(|event| event.fail(cause));
    }
}
