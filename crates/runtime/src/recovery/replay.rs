//! Replay of commands: whether it is safe, and execution on another device.
//!
//! Commands can be replayed if they never write to their inputs, which are the bytes that they read before they have overwritten them
//! ([`crate::memory::memory_effects`]). Arguments that alias are compared by byte ranges.

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

/// Reason why commands that have started cannot be replayed; `None` if they can.
pub(super) fn not_again(commands: &[Command]) -> Option<String> {
    if commands[..last_signals(commands)].iter().any(is_signal) {
        return Some("it may have signaled an event, which cannot be undone".into());
    }
    let effects = effects(commands);
    let inputs = inputs(&effects);
    let writes = || effects.iter().filter(|effect| effect.effect != Effect::Reads);
    let clash = |input: &&&MemoryEffect<'_>| writes().any(|write| overlap(write.slice, input.slice));
    let input = inputs.iter().find(clash)?;
    Some(format!("{}: modified in place, so its original contents may be lost", input.who))
}

/// Reason why commands that have not started cannot run after a reset of the device; `None` if they can.
pub(super) fn lost_input(commands: &[Command]) -> Option<String> {
    let effects = effects(commands);
    let own = |input: &&MemoryEffect<'_>| input.slice.memory.storage() != Storage::Shared;
    let input = inputs(&effects).into_iter().find(own)?;
    Some(format!("{}: its contents were lost when the device was reset", input.who))
}

pub(super) fn is_signal(command: &Command) -> bool {
    matches!(command, Command::Signal { .. })
}

/// The inputs: memory that the commands read before they have certainly overwritten it.
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

/// All memory accesses, in order.
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

/// Sources and options of a device's pipelines, from which they can be compiled for another device.
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

    /// Records that `other` is another variant of the kernel of `pipeline`.
    pub(crate) fn note_other(&self, pipeline: &Arc<dyn Pipeline>, other: &Arc<dyn Pipeline>) {
        let origin = self.by_pipeline.lock().get(&identity(pipeline)).cloned();
        if let Some(Origin { source, options, .. }) = origin {
            self.note(other, &source, options);
        }
    }

    /// Compiles the kernel of `pipeline` for another device.
    fn on(&self, device: &Device, pipeline: &Arc<dyn Pipeline>) -> Result<Arc<dyn Pipeline>> {
        let name = &pipeline.signature().name;
        let origin = self.by_pipeline.lock().get(&identity(pipeline)).cloned();
        let origin = origin.ok_or_else(|| Error::unsupported(format!("kernel `{name}` has no source")))?;
        device.driver().compile(&origin.source)?.pipeline(name, &origin.options)
    }
}

/// Runs commands on `other`: copies the memory that they use to it, and copies back what they may have written.
///
/// Memory of `device` is accessed only while the guard that `carry` returns is held; `carry` fails if the device was lost. The returned
/// guard protects the results from a reset.
///
/// # Errors
/// The error of `carry`, of compilation or of execution on `other`. The contents of the commands' outputs are then undefined.
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
            // A timestamp of the other device's clock would be meaningless.
            !matches!(command, Command::Wait { .. } | Command::Signal { .. } | Command::Timestamp { .. })
        })
        .map(|command| copies.translate(device, command))
        .collect::<Result<_>>()?;
    let carrying = carry()?;
    for slice in translated.iter_mut().flat_map(slices_mut) {
        *slice = copies.slice(slice)?;
    }
    drop(carrying);
    for command in &translated {
        if let Command::Dispatch(dispatch) = command {
            dispatch.prepare()?;
        }
    }
    let timing = copies.run(translated.into())?;
    let carrying = carry()?;
    for effect in effects(commands).iter().filter(|effect| effect.effect != Effect::Reads) {
        copies.bring_back(effect.slice)?;
    }
    Ok((timing, carrying))
}

/// Copies of a device's memory on another device.
struct Copies<'a> {
    other: &'a Device,
    memories: Vec<(Arc<dyn Memory>, Buffer<u8>)>,
}

#[allow(unsafe_code)] // reads and writes device memory
impl Copies<'_> {
    /// The buffer on the other device for a memory; allocates it on first use, without copying.
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

    /// Copies a slice to the other device, and returns the slice there.
    fn slice(&mut self, slice: &MemorySlice) -> Result<MemorySlice> {
        let mut bytes = vec![0; slice.len as usize];
        // SAFETY: the range is within the memory. The submission that uses it is pending, so the host does not write it, and it is
        // not executing. Other streams must not write it, or they would race with the submission.
        unsafe { slice.memory.read(slice.offset, &mut bytes) }?;
        let copy = self.of(&slice.memory)?;
        copy.slice_mut(range(slice))?.write(&bytes)?;
        Ok(MemorySlice { memory: copy.span.storage.block.memory.clone(), ..*slice })
    }

    /// Translates a command for the other device; its memory is replaced later.
    fn translate(&self, device: &Device, command: &Command) -> Result<Command> {
        let mut command = command.clone();
        match &mut command {
            Command::Dispatch(dispatch) => dispatch.pipeline = self.pipeline(device, dispatch)?,
            Command::Copy { .. } | Command::Fill { .. } => {}
            Command::Primitive { primitive, operands } => {
                let caps = self.other.caps();
                caps.features.primitives.expect(primitive, operands, &caps.name)?;
            }
            Command::ExecuteCommands(_) | Command::LaunchNested(_) => {
                return Err(Error::unsupported(
                    "commands in memory have device addresses, which differ between devices",
                ));
            }
            other => return Err(Error::unsupported(format!("{other:?} on another device"))),
        }
        Ok(command)
    }

    /// Runs commands on the other device, unless that is lost. The copies stay alive until it has finished.
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

    /// The pipeline of a dispatch on the other device.
    fn pipeline(&self, device: &Device, dispatch: &Dispatch) -> Result<Arc<dyn Pipeline>> {
        let name = &dispatch.pipeline.signature().name;
        if !dispatch.uses.is_empty() {
            let text = format!("kernel `{name}` uses device addresses, which differ between devices");
            return Err(Error::unsupported(text));
        }
        device.recovery().origins.on(self.other, &dispatch.pipeline)
    }

    fn bring_back(&mut self, slice: &MemorySlice) -> Result<()> {
        let bytes = self.of(&slice.memory)?.slice(range(slice))?.to_vec()?;
        // SAFETY: the range is within the memory. The submission that writes it is pending, so the host does not access it, and it is
        // not executing. Other streams must not use it, or they would race with the submission.
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
        // Memory that is overwritten before it is read is not an input.
        let moved = || copy((&one, 4..8), (&one, 8..12));
        assert!(again(&[fill(0..8), moved()]) && again(&[fill(4..8), moved()]));
        assert!(!again(&[moved(), fill(4..8)]));
        for partly in [0..7, 5..8, 5..12] {
            assert!(!again(&[fill(partly.clone()), moved()]), "{partly:?}");
        }
        let event = device.driver().event().unwrap();
        let signal = || Command::Signal { event: event.clone(), value: 1 };
        assert!(again(&[fill(0..8), signal()]), "a trailing signal is not passed to the driver");
        assert!(!again(&[fill(0..8), signal(), fill(8..16)]));
    }
}
