//! [`CapturingQueue`]: surrounds each launch of a submission with copies of what it uses, and writes them when the submission has ended.
//!
//! The copies are commands of the same submission, so that order, events, graphs and asynchrony stay as they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_driver::{
    Access, Binding, Command, Device, Dispatch, Done, Error, Grid, Init, Memory, MemorySlice, Queue, Result,
    Storage, Submission, Timing, Use,
};
use serde_bytes::ByteBuf;

use crate::device::Origins;
use crate::format::{Argument, GridRecord, Launch, Slice, Used};
use crate::write::CaptureFile;

/// Maximum number of bytes that a launch may use to be captured.
const LARGEST: u64 = 1 << 30;

pub(crate) struct CapturingQueue {
    device: Arc<dyn Device>,
    below: Arc<dyn Queue>,
    origins: Arc<Origins>,
    file: Arc<CaptureFile>,
    number: (u32, u32),
    submissions: AtomicU64,
}

/// A launch with its copies.
struct Surrounded {
    launch: Launch,
    before: Vec<Arc<dyn Memory>>,
    /// For slices that the launch may write.
    after: Vec<Option<Arc<dyn Memory>>>,
}

impl CapturingQueue {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        below: Arc<dyn Queue>,
        origins: Arc<Origins>,
        file: Arc<CaptureFile>,
        number: u32,
    ) -> Self {
        let number = (number, file.queue());
        Self { device, below, origins, file, number, submissions: AtomicU64::new(0) }
    }

    /// The commands with copies around each launch.
    fn surround(&self, commands: &[Command], submission: u64) -> (Vec<Command>, Vec<Surrounded>) {
        let (mut surrounded, mut launches) = (Vec::new(), Vec::new());
        let not_captured = |what: &str, reason: &str| self.file.not_captured(what, reason);
        for command in commands {
            let captured = match command {
                Command::Dispatch(dispatch) => match self.launch(dispatch, submission) {
                    Ok(launch) => Some(launch),
                    Err(reason) => {
                        not_captured(&format!("kernel `{}`", dispatch.pipeline.signature().name), &reason);
                        None
                    }
                },
                Command::ExecuteCommands(_) => {
                    not_captured("an indirect command buffer", "its commands have device addresses");
                    None
                }
                Command::LaunchNested(_) => {
                    not_captured("nested launches", "their records have device addresses");
                    None
                }
                Command::Primitive { primitive, .. } => {
                    not_captured(&format!("{:?}", primitive.kind()), "it is no kernel with a source");
                    None
                }
                _ => None,
            };
            let Some((mut slices, launch)) = captured else {
                surrounded.push(command.clone());
                continue;
            };
            let copy = |source: MemorySlice, target: &Arc<dyn Memory>| Command::Copy {
                target: MemorySlice { memory: target.clone(), offset: 0, len: source.len },
                source,
            };
            let before = slices.iter().zip(&launch.before).filter(|(slice, _)| slice.len > 0);
            surrounded.extend(before.map(|(slice, shadow)| copy(slice.clone(), shadow)));
            surrounded.push(command.clone());
            for (slice, shadow) in slices.drain(..).zip(&launch.after) {
                if let Some(shadow) = shadow.as_ref().filter(|_| slice.len > 0) {
                    surrounded.push(copy(slice, shadow));
                }
            }
            launches.push(launch);
        }
        (surrounded, launches)
    }

    /// A launch, the slices that it uses, and memory for their copies; or why it cannot be captured.
    fn launch(&self, dispatch: &Dispatch, submission: u64) -> Result<(Vec<MemorySlice>, Surrounded), String> {
        let kernel = self.origins.of(&dispatch.pipeline).ok_or("it was not compiled from text")?;
        let (mut slices, mut written, mut memories) = (Vec::new(), Vec::new(), Vec::<Arc<dyn Memory>>::new());
        let mut records: Vec<Slice> = Vec::new();
        let mut add = |slice: &MemorySlice, access: Access| {
            let is_it = |memory: &Arc<dyn Memory>| Arc::ptr_eq(memory, &slice.memory);
            let memory = memories.iter().position(is_it).unwrap_or_else(|| {
                memories.push(slice.memory.clone());
                memories.len() - 1
            });
            let (offset, bytes) = (slice.offset, slice.len);
            let address = slice.memory.gpu_address().map(|address| address + offset);
            records.push(Slice {
                memory: memory as u32,
                offset,
                bytes,
                address,
                before: [0; 32],
                after: None,
            });
            slices.push(slice.clone());
            written.push(access == Access::ReadWrite);
            (records.len() - 1) as u32
        };
        let args = &dispatch.pipeline.signature().args;
        let argument = |(index, binding): (usize, &Binding)| match binding {
            Binding::Memory(slice) => {
                let access = args.get(index).map_or(Access::ReadWrite, |arg| arg.access);
                Argument::Slice(add(slice, access))
            }
            Binding::Bytes(bytes) => Argument::Bytes(ByteBuf::from(bytes.to_vec())),
            Binding::Threadgroup(bytes) => Argument::Threadgroup(*bytes),
            Binding::Unbound => Argument::Unbound,
        };
        let arguments: Vec<Argument> = dispatch.bindings.iter().enumerate().map(argument).collect();
        let grid = match &dispatch.grid {
            Grid::Threads(threads) => GridRecord::Threads(*threads),
            Grid::Indirect(counts) => GridRecord::Indirect(add(counts, Access::Read)),
        };
        let used = |used: &Use| Used {
            slice: add(&used.slice, used.access),
            is_written: used.access == Access::ReadWrite,
        };
        let uses = dispatch.uses.iter().map(used).collect();
        let bytes: u64 = slices.iter().map(|slice| slice.len).fold(0, u64::saturating_add);
        if bytes > LARGEST {
            return Err(format!("it uses {bytes} bytes, more than {LARGEST}"));
        }
        let shadow = |slice: &MemorySlice| {
            let shadow = self.device.allocate(slice.len, Storage::Shared, Init::Uninitialized);
            shadow.map_err(|error| format!("no memory for a copy: {error}"))
        };
        let before = slices.iter().map(shadow).collect::<Result<_, _>>()?;
        let after =
            slices.iter().zip(written).map(|(slice, written)| written.then(|| shadow(slice)).transpose());
        let after = after.collect::<Result<_, _>>()?;
        let launch = Launch {
            device: self.number.0,
            queue: self.number.1,
            submission,
            kernel,
            label: dispatch.label.as_deref().cloned(),
            grid,
            group: dispatch.group,
            arguments,
            slices: records,
            uses,
            error: None,
        };
        Ok((slices, Surrounded { launch, before, after }))
    }
}

/// Writes the launches of a submission that has ended.
fn write(file: &CaptureFile, launches: Vec<Surrounded>, result: &Result<Timing>) {
    for Surrounded { mut launch, before, after } in launches {
        let contents = |memory: &Arc<dyn Memory>, bytes: u64| -> Result<[u8; 32]> {
            let mut content = vec![0; bytes as usize];
            // SAFETY: the submission has ended, and only it has used this memory, which is at least so long.
            #[allow(unsafe_code)]
            unsafe { memory.read(0, &mut content) }?;
            Ok(file.blob(&content))
        };
        let mut read: Result<()> = Ok(());
        for ((slice, before), after) in launch.slices.iter_mut().zip(&before).zip(&after) {
            read = read.and_then(|()| {
                slice.before = contents(before, slice.bytes)?;
                slice.after = match after {
                    Some(after) if result.is_ok() => Some(contents(after, slice.bytes)?),
                    _ => None,
                };
                Ok(())
            });
        }
        if let Err(error) = read {
            file.not_captured(
                format!("kernel {}", launch.kernel),
                format!("its memory cannot be read: {error}"),
            );
            continue;
        }
        launch.error = result.as_ref().err().map(Error::to_string);
        file.launch(launch);
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: `done` is called by that of the queue below.
unsafe impl Queue for CapturingQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        let submission = self.submissions.fetch_add(1, Ordering::Relaxed);
        let (surrounded, launches) = self.surround(&commands, submission);
        if launches.is_empty() {
            return self.below.submit(commands, done);
        }
        let file = self.file.clone();
        let done = Done::new(move |result| {
            // What did not begin has changed nothing.
            if !matches!(result, Err(Error::Cancelled | Error::Poisoned(_))) {
                write(&file, launches, &result);
            }
            done.call(result);
        });
        self.below.submit(surrounded.into(), done)
    }

    fn cancel(&self, submission: Submission) -> bool {
        self.below.cancel(submission)
    }

    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        self.below.stop(submission, cause)
    }

    fn spin(&self, is_over: &mut dyn FnMut() -> bool) {
        self.below.spin(is_over);
    }

    fn acknowledge(&self) -> Option<Error> {
        self.below.acknowledge()
    }
}
