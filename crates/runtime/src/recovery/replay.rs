//! Whether commands can be run again, and running them on another device.
//!
//! Commands can be run again if what they read before they have written it is never written by them
//! ([`crate::memory::memory_effects`]). What two arguments share counts by its bytes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use elinvar_driver::submission::last_signals;
use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Command, Dispatch, Error, Memory, MemorySlice, Pipeline, PipelineOptions, Result, Source, Storage, Timing,
};

use crate::identity::identity;
use crate::memory::memory_effects::{Effect, MemoryEffect, memory_effects, slices_mut};
use crate::sync::completion::Promise;
use crate::sync::device_state::PendingSubmission;
use crate::{Buffer, Device};

/// Why commands that have begun cannot be run again; `None` if they can.
pub(super) fn not_again(commands: &[Command]) -> Option<String> {
    if commands[..last_signals(commands)].iter().any(is_signal) {
        return Some("it may have raised an event, which happens once".into());
    }
    let effects = effects(commands);
    let inputs = inputs(&effects);
    let writes = || effects.iter().filter(|effect| effect.effect != Effect::Reads);
    let clash = |input: &&&MemoryEffect<'_>| writes().any(|write| overlap(write.slice, input.slice));
    let input = inputs.iter().find(clash)?;
    Some(format!("{}: it works in place, and may have overwritten its input", input.who))
}

/// Why commands that have not begun cannot be run once the device was reset; `None` if they can.
pub(super) fn lost_input(commands: &[Command]) -> Option<String> {
    let effects = effects(commands);
    let own = |input: &&MemoryEffect<'_>| input.slice.memory.storage() != Storage::Shared;
    let input = inputs(&effects).into_iter().find(own)?;
    Some(format!("{}: its content was lost when the device was reset", input.who))
}

pub(super) fn is_signal(command: &Command) -> bool {
    matches!(command, Command::Signal { .. })
}

/// What the commands read before they have written it for certain.
fn inputs<'t, 'a>(effects: &'t [MemoryEffect<'a>]) -> Vec<&'t MemoryEffect<'a>> {
    let mut covered: Vec<&MemorySlice> = Vec::new();
    let mut inputs = Vec::new();
    for effect in effects {
        match effect.effect {
            Effect::Overwrites => covered.push(effect.slice),
            Effect::MayWrite => {}
            Effect::Reads | Effect::MayReadAndWrite => {
                if !covered.iter().any(|slice| contains(slice, effect.slice)) {
                    inputs.push(effect);
                }
            }
        }
    }
    inputs
}

/// Every use of memory, in order.
fn effects(commands: &[Command]) -> Vec<MemoryEffect<'_>> {
    commands.iter().flat_map(memory_effects).collect()
}

fn same(a: &MemorySlice, b: &MemorySlice) -> bool {
    identity(&a.memory) == identity(&b.memory)
}

fn overlap(a: &MemorySlice, b: &MemorySlice) -> bool {
    same(a, b) && a.offset < b.offset + b.len && b.offset < a.offset + a.len
}

fn contains(outer: &MemorySlice, inner: &MemorySlice) -> bool {
    same(outer, inner) && outer.offset <= inner.offset && inner.offset + inner.len <= outer.offset + outer.len
}

/// What the kernels of a device were made from.
#[derive(Default)]
pub(crate) struct Origins {
    by_pipeline: Mutex<HashMap<usize, Origin>>,
}

#[derive(Clone)]
struct Origin {
    pipeline: Weak<dyn Pipeline>,
    source: Arc<Source>,
    options: PipelineOptions,
}

impl Origins {
    pub(crate) fn note(&self, pipeline: &Arc<dyn Pipeline>, source: &Arc<Source>, options: PipelineOptions) {
        let mut by_pipeline = self.by_pipeline.lock();
        if by_pipeline.len() == by_pipeline.capacity() {
            by_pipeline.retain(|_, origin| origin.pipeline.strong_count() > 0);
        }
        let origin = Origin { pipeline: Arc::downgrade(pipeline), source: source.clone(), options };
        by_pipeline.insert(identity(pipeline), origin);
    }

    /// `other` is the same kernel as `pipeline`, as other code.
    pub(crate) fn note_other(&self, pipeline: &Arc<dyn Pipeline>, other: &Arc<dyn Pipeline>) {
        let origin = self.by_pipeline.lock().get(&identity(pipeline)).cloned();
        if let Some(Origin { source, options, .. }) = origin {
            self.note(other, &source, options);
        }
    }

    /// The same kernel on another device.
    fn on(&self, device: &Device, pipeline: &Arc<dyn Pipeline>) -> Result<Arc<dyn Pipeline>> {
        let name = &pipeline.signature().name;
        let origin = self.by_pipeline.lock().get(&identity(pipeline)).cloned();
        let origin = origin.ok_or_else(|| Error::unsupported(format!("kernel `{name}` has no source")))?;
        device.driver().compile(&origin.source)?.pipeline(name, &origin.options)
    }
}

/// Runs commands on `other`: what they use is copied there, and what they may have written back.
///
/// # Errors
/// Why it could not be done, or how it failed there. What the commands were to write may then hold anything.
///
/// Memory of `device` is looked at while what `carry` gives is held, which answers an error when it is too late for that. What
/// is returned holds it: what was brought back is there as long.
pub(super) fn rerun<G>(
    device: &Device,
    commands: &[Command],
    other: &Device,
    carry: impl Fn() -> Result<G>,
) -> Result<(Timing, G)> {
    let mut copies = Copies { other, memories: Vec::new() };
    let mut translated: Vec<Command> = commands
        .iter()
        .filter(|command| {
            // A time of the other device's clock would tell nothing here.
            !matches!(command, Command::Wait { .. } | Command::Signal { .. } | Command::Timestamp { .. })
        })
        .map(|command| copies.translate(device, command))
        .collect::<Result<_>>()?;
    let carrying = carry()?;
    for slice in translated.iter_mut().flat_map(slices_mut) {
        *slice = copies.slice(slice)?;
    }
    drop(carrying);
    let timing = copies.run(translated.into())?;
    let carrying = carry()?;
    for effect in effects(commands).iter().filter(|effect| effect.effect != Effect::Reads) {
        copies.bring_back(effect.slice)?;
    }
    Ok((timing, carrying))
}

/// Memory of a device and its copies on another.
struct Copies<'a> {
    other: &'a Device,
    memories: Vec<(Arc<dyn Memory>, Buffer<u8>)>,
}

#[allow(unsafe_code)] // looks at memory of a device
impl Copies<'_> {
    /// The copy of a memory, with nothing copied yet.
    fn of(&mut self, memory: &Arc<dyn Memory>) -> Result<&mut Buffer<u8>> {
        let is_it = |(of, _): &(Arc<dyn Memory>, _)| identity(of) == identity(memory);
        let at = match self.memories.iter().position(is_it) {
            Some(at) => at,
            None => {
                self.memories.push((memory.clone(), self.other.buffer(memory.len() as usize)?));
                self.memories.len() - 1
            }
        };
        Ok(&mut self.memories[at].1)
    }

    /// The same bytes in the copy, copied.
    fn slice(&mut self, slice: &MemorySlice) -> Result<MemorySlice> {
        let mut bytes = vec![0; slice.len as usize];
        // SAFETY: the range is within the memory. The work that uses it has not ended, so the host does not write it, and it
        // does not run; other streams may not write it, or they would race with the work.
        unsafe { slice.memory.read(slice.offset, &mut bytes) }?;
        let copy = self.of(&slice.memory)?;
        copy.slice_mut(range(slice))?.write(&bytes)?;
        Ok(MemorySlice { memory: copy.span.storage.block.memory.clone(), ..*slice })
    }

    /// The same command over the same memory, for the other device.
    fn translate(&self, device: &Device, command: &Command) -> Result<Command> {
        let mut command = command.clone();
        match &mut command {
            Command::Dispatch(dispatch) => dispatch.pipeline = self.pipeline(device, dispatch)?,
            Command::Copy { .. } | Command::Fill { .. } => {}
            Command::Primitive { primitive, .. } => {
                let caps = self.other.caps();
                caps.features.primitives.expect(primitive, &caps.name)?;
            }
            other => return Err(Error::unsupported(format!("{other:?} on another device"))),
        }
        Ok(command)
    }

    /// Runs commands on the other device, unless that is lost. It keeps the copies until it is done with them.
    fn run(&self, commands: Arc<[Command]>) -> Result<Timing> {
        let queue = self.other.driver().queue()?;
        let (promise, outcome) = Promise::new();
        let pending = PendingSubmission::new(&outcome, &commands, &Arc::default());
        let (state, registration) = self.other.state().register(pending, true)?;
        let copies: Vec<Buffer<u8>> = self.memories.iter().map(|(_, copy)| copy.clone()).collect();
        let done = elinvar_driver::Done::new(move |result| {
            drop(copies);
            drop(registration);
            promise.resolve(result);
        });
        queue.submit(commands, done)?;
        drop(state);
        outcome.wait("work on another device")?.clone()
    }

    /// The kernel of a launch on the other device.
    fn pipeline(&self, device: &Device, dispatch: &Dispatch) -> Result<Arc<dyn Pipeline>> {
        let name = &dispatch.pipeline.signature().name;
        if !dispatch.uses.is_empty() {
            let text =
                format!("kernel `{name}` reaches memory through addresses, which are other ones elsewhere");
            return Err(Error::unsupported(text));
        }
        let pipeline = device.recovery().origins.on(self.other, &dispatch.pipeline)?;
        pipeline.prepare(dispatch.group)?;
        Ok(pipeline)
    }

    fn bring_back(&mut self, slice: &MemorySlice) -> Result<()> {
        let bytes = self.of(&slice.memory)?.slice(range(slice))?.to_vec()?;
        // SAFETY: the range is within the memory; the work that writes it has not ended, so the host does not touch it,
        // and it does not run; other streams may not use it, or they would race with the work.
        unsafe { slice.memory.write(slice.offset, &bytes) }
    }
}

fn range(slice: &MemorySlice) -> Range<usize> {
    slice.offset as usize..(slice.offset + slice.len) as usize
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use super::*;

    #[test]
    fn copies_are_run_again_unless_they_overwrite_their_input() {
        let device = Device::new(elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0));
        let [one, other] = [0, 1].map(|_| device.buffer::<u8>(16).unwrap());
        let slice = |buffer: &Buffer<u8>, bytes: Range<u64>| MemorySlice {
            offset: bytes.start,
            len: bytes.end - bytes.start,
            ..buffer.span.memory_slice()
        };
        let copy = |from: (&Buffer<u8>, Range<u64>), to: (&Buffer<u8>, Range<u64>)| Command::Copy {
            source: slice(from.0, from.1),
            target: slice(to.0, to.1),
        };
        let fill = |bytes| Command::Fill { target: slice(&one, bytes), pattern: vec![7] };
        let again = |commands: &[Command]| not_again(commands).is_none();
        assert!(again(&[copy((&one, 0..8), (&one, 8..16))]));
        assert!(again(&[copy((&one, 0..8), (&other, 0..8))]), "the same bytes of another memory");
        assert!(!again(&[copy((&one, 0..8), (&one, 7..15))]));
        assert!(!again(&[copy((&one, 8..16), (&one, 1..9))]));
        // What was written before it is read is not an input.
        let moved = || copy((&one, 4..8), (&one, 8..12));
        assert!(again(&[fill(0..8), moved()]) && again(&[fill(4..8), moved()]));
        assert!(!again(&[moved(), fill(4..8)]));
        for partly in [0..7, 5..8, 5..12] {
            assert!(!again(&[fill(partly.clone()), moved()]), "{partly:?}");
        }
        let event = device.driver().event().unwrap();
        let signal = || Command::Signal { event: event.clone(), value: 1 };
        assert!(again(&[fill(0..8), signal()]), "it is raised at the end");
        assert!(!again(&[fill(0..8), signal(), fill(8..16)]));
    }
}
