//! [`Replay`]: runs captured launches on a device, each from the contents before it, and compares the contents after it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::channel;

use elinvar_driver::{
    Access, Binding, Command, Device, Dispatch, Done, ElementType, Error, Grid, Init, Library, Memory,
    MemorySlice, Pipeline, Queue, Result, Storage, Use,
};

use crate::addresses::Addresses;
use crate::compare::{Difference, compare};
use crate::format::{Argument, BlobId, GridRecord, Launch, Used};
use crate::read::Capture;

/// Result of a launch's replay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It wrote what was captured.
    Equal,
    /// It wrote something else: the first difference of each argument that has one.
    Differs(Vec<Difference>),
    /// It failed, and had not failed when it was captured.
    Fails(Error),
    /// Its submission failed when it was captured, and it fails again.
    FailsAgain(Error),
    /// Its submission failed when it was captured, and it does not fail: another launch of the submission may have.
    FailedBefore(String),
    /// It cannot run on this device: why.
    NotRun(Error),
}

impl Outcome {
    /// Whether the device did something else than the one that was captured.
    pub fn is_wrong(&self) -> bool {
        matches!(self, Self::Differs(_) | Self::Fails(_))
    }
}

/// Replays launches on a device.
pub struct Replay<'a> {
    capture: &'a Capture,
    device: Arc<dyn Device>,
    queue: Arc<dyn Queue>,
    tolerance: f64,
    /// Included files, while kernels may be compiled.
    folder: tempfile::TempDir,
    libraries: HashMap<u32, Result<Arc<dyn Library>>>,
    pipelines: HashMap<u32, Result<Arc<dyn Pipeline>>>,
}

/// Memories of a launch, each with the offset at which it begins.
type Memories = Vec<(u64, Arc<dyn Memory>)>;

/// Bytes to which the begin of a memory is aligned, at least.
const ALIGN: u64 = 256;

impl<'a> Replay<'a> {
    /// On a device. Floating-point elements may differ by `tolerance` of the larger of both; 0 is for equal bytes.
    ///
    /// # Safety
    /// The kernels in the capture run with the arguments in it, without bounds checks unless they were captured with them. The capture comes from a source that is as
    /// trusted as the program.
    ///
    /// # Errors
    /// `InvalidArgument` for a tolerance that is negative or not finite; `Environment` if no temporary folder can be created; those of the
    /// device.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn new(capture: &'a Capture, device: Arc<dyn Device>, tolerance: f64) -> Result<Self> {
        if !(tolerance >= 0.0 && tolerance.is_finite()) {
            return Err(Error::invalid(format!("a tolerance of {tolerance}; it is 0 or more")));
        }
        let queue = device.queue()?;
        let folder = tempfile::Builder::new().prefix("elinvar-replay-").tempdir();
        let folder = folder
            .map_err(|error| Error::Environment(format!("cannot create a temporary folder: {error}")))?;
        let (libraries, pipelines) = (HashMap::new(), HashMap::new());
        Ok(Self { capture, device, queue, tolerance, folder, libraries, pipelines })
    }

    /// Replays the launch of this number.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such launch, or its contents are damaged; `OutOfMemory` if the device has too little.
    pub fn launch(&mut self, number: usize) -> Result<Outcome> {
        let count = self.capture.launches.len();
        let launch = self.capture.launches.get(number);
        let launch = launch.ok_or_else(|| Error::invalid(format!("launch {number} of {count}")))?;
        let pipeline = match self.pipeline(launch.kernel) {
            Ok(pipeline) => pipeline,
            Err(why) => return Ok(Outcome::NotRun(why)),
        };
        if let Err(why) = self.expect_runs(&*pipeline, launch) {
            return Ok(Outcome::NotRun(why));
        }
        let (memories, addresses) = match self.memories(launch) {
            Err(error @ Error::Unsupported(_)) => return Ok(Outcome::NotRun(error)),
            memories => memories?,
        };
        let slice = |number: u32| {
            let slice = &launch.slices[number as usize];
            let (begin, memory) = &memories[slice.memory as usize];
            MemorySlice { memory: memory.clone(), offset: slice.offset - begin, len: slice.bytes }
        };
        let binding = |argument: &Argument| match argument {
            Argument::Slice(number) => Binding::Memory(slice(*number)),
            Argument::Bytes(bytes) => {
                let mut bytes = bytes.to_vec();
                addresses.relocate(0, &mut bytes);
                Binding::bytes(&bytes)
            }
            Argument::Threadgroup(bytes) => Binding::Threadgroup(*bytes),
            Argument::Unbound => Binding::Unbound,
        };
        let uses = |used: &Used| {
            let access = if used.is_written { Access::ReadWrite } else { Access::Read };
            Use { slice: slice(used.slice), access }
        };
        let dispatch = Dispatch {
            pipeline: pipeline.clone(),
            bindings: launch.arguments.iter().map(binding).collect(),
            uses: launch.uses.iter().map(uses).collect(),
            grid: match &launch.grid {
                GridRecord::Threads(threads) => Grid::Threads(*threads),
                GridRecord::Indirect(number) => Grid::Indirect(slice(*number)),
            },
            group: launch.group,
            label: launch.label.clone().map(Arc::new),
        };
        let ran = dispatch.prepare().and_then(|()| self.run(dispatch));
        match (ran, &launch.error) {
            (Err(error @ Error::Unsupported(_)), _) => Ok(Outcome::NotRun(error)),
            (Err(error), None) => Ok(Outcome::Fails(error)),
            (Err(error), Some(_)) => Ok(Outcome::FailsAgain(error)),
            (Ok(()), Some(error)) => Ok(Outcome::FailedBefore(error.clone())),
            (Ok(()), None) => self.compare(launch, &*pipeline, &addresses, slice),
        }
    }

    fn pipeline(&mut self, kernel: u32) -> Result<Arc<dyn Pipeline>> {
        let (source, name, options) = &self.capture.kernels[kernel as usize];
        let folder = self.folder.path().join(source.to_string());
        let compile = || self.device.compile(&self.capture.sources[*source as usize].source(&folder)?);
        let library = self.libraries.entry(*source).or_insert_with(compile).clone()?;
        self.pipelines.entry(kernel).or_insert_with(|| library.pipeline(name, options)).clone()
    }

    /// Rejects what the device's limits do not allow, and arguments that are not the kernel's, since a file can say anything.
    fn expect_runs(&self, pipeline: &dyn Pipeline, launch: &Launch) -> Result<()> {
        let (name, args) = (&pipeline.signature().name, &pipeline.signature().args);
        let wrong = |why: String| Err(Error::unsupported(format!("kernel `{name}`: {why}")));
        if args.len() != launch.arguments.len() {
            return wrong(format!(
                "{} arguments were captured, it has {}",
                launch.arguments.len(),
                args.len()
            ));
        }
        let (most, group) = (pipeline.max_threads_per_threadgroup(), launch.group);
        if group.volume() == 0 || group.volume() > u128::from(most) {
            return wrong(format!("threadgroups of {group} threads; at most {most} on this device"));
        }
        let limits = &self.device.caps().limits;
        let dynamic = launch.arguments.iter().map(|argument| match argument {
            Argument::Threadgroup(bytes) => bytes.checked_next_multiple_of(16).unwrap_or(u64::MAX),
            _ => 0,
        });
        let bytes = dynamic.fold(pipeline.threadgroup_memory(), u64::saturating_add);
        if bytes > limits.max_threadgroup_memory {
            let most = limits.max_threadgroup_memory;
            return wrong(format!("{bytes} bytes of threadgroup memory; at most {most} on this device"));
        }
        if pipeline.signature().is_cooperative() {
            return wrong("it has a grid barrier".into());
        }
        Ok(())
    }

    /// Memory with the contents before the launch, each with the offset at which it begins, and the addresses of what is used.
    fn memories(&self, launch: &Launch) -> Result<(Memories, Addresses)> {
        let mut memories = Vec::new();
        let count = launch.slices.iter().map(|slice| slice.memory + 1).max().unwrap_or(0);
        for number in 0..count {
            let slices = || launch.slices.iter().filter(|slice| slice.memory == number);
            let begin = slices().map(|slice| slice.offset).min().unwrap_or(0) / ALIGN * ALIGN;
            let end = slices().map(|slice| slice.offset + slice.bytes).max().unwrap_or(0);
            memories.push((begin, self.device.allocate(end - begin, Storage::Shared, Init::Zeroed)?));
        }
        let mut addresses = Addresses::default();
        for slice in &launch.slices {
            let (begin, memory) = &memories[slice.memory as usize];
            if let (Some(was), Some(is)) = (slice.address, memory.gpu_address()) {
                addresses.add(was, slice.bytes, is + (slice.offset - begin));
            }
        }
        if !launch.uses.is_empty() && memories.iter().any(|(_, memory)| memory.gpu_address().is_none()) {
            return Err(Error::unsupported("it uses memory through addresses, which the device has not"));
        }
        for slice in &launch.slices {
            let (begin, memory) = &memories[slice.memory as usize];
            let mut contents = self.capture.contents(&slice.before)?;
            addresses.relocate(slice.offset, &mut contents);
            // SAFETY: nobody else has the memory, and the slice is within it.
            #[allow(unsafe_code)]
            unsafe { memory.write(slice.offset - begin, &contents) }?;
        }
        Ok((memories, addresses))
    }

    /// Runs a launch and waits for its end.
    fn run(&self, dispatch: Dispatch) -> Result<()> {
        let (ended, result) = channel();
        let done = Done::new(move |result| drop(ended.send(result)));
        self.queue.submit(Arc::new([Command::Dispatch(dispatch)]), done)?;
        let dropped = |_| Err(Error::DeviceLost("the driver dropped the launch without a result".into()));
        let result = result.recv().unwrap_or_else(dropped);
        if result.is_err() {
            self.queue.acknowledge();
            if self.device.lost().is_some() {
                // Later launches have contents of their own.
                self.device.reset()?;
            }
        }
        result.map(drop)
    }

    fn compare(
        &self,
        launch: &Launch,
        pipeline: &dyn Pipeline,
        addresses: &Addresses,
        slice: impl Fn(u32) -> MemorySlice,
    ) -> Result<Outcome> {
        let args = launch.arguments.iter().zip(&pipeline.signature().args).enumerate();
        let args = args.filter_map(|(index, (argument, arg))| {
            let Argument::Slice(number) = argument else { return None };
            Some((*number, (index, arg.name.clone()), arg.element.clone(), arg.element_size as usize))
        });
        let uses = launch.uses.iter().enumerate().map(|(at, used)| {
            let argument = (launch.arguments.len() + at, format!("used memory {at}"));
            (used.slice, argument, ElementType::Other("a word".into()), 4)
        });
        let mut differences = Vec::new();
        for (number, argument, element, size) in args.chain(uses) {
            let record = &launch.slices[number as usize];
            let Some(after) = &record.after else { continue };
            let MemorySlice { memory, offset, len } = slice(number);
            let mut replayed = vec![0; len as usize];
            // SAFETY: the launch has ended, and the slice is within the memory.
            #[allow(unsafe_code)]
            unsafe { memory.read(offset, &mut replayed) }?;
            if is(&replayed, after) {
                continue;
            }
            let mut captured = self.capture.contents(after)?;
            addresses.relocate(record.offset, &mut captured);
            let found = compare(&element, size, self.tolerance, &captured, &replayed);
            differences.extend(found.map(|(element, count, captured, replayed)| Difference {
                argument,
                element,
                count,
                captured,
                replayed,
            }));
        }
        Ok(if differences.is_empty() { Outcome::Equal } else { Outcome::Differs(differences) })
    }
}

fn is(contents: &[u8], id: &BlobId) -> bool {
    blake3::hash(contents).as_bytes() == id
}

impl std::fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replay on {}", self.device.caps().name)
    }
}
