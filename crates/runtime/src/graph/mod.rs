//! [`Graph`]: launches, copies and fills and what comes before what, on one device or several.
//!
//! A graph is built by hand or captured from command buffers; either way each node is a command that a [`CommandBuffer`] has checked. A node
//! comes after the earlier nodes that its use of memory conflicts with, and after those that the program names. [`Plan`] is
//! what runs: the nodes that are needed, on as many streams as there are branches, in few submissions, with the
//! transients in one arena. A graph does not run anything and does not change when it is planned.
//!
//! `step` is a node as data, `edges` finds what comes before what, `merge` and `prune` take out what is not needed,
//! `schedule` places the rest, `arena` arranges the transients, `layout` puts it together and `run` submits it.

mod arena;
mod edges;
mod layout;
mod merge;
mod parameters;
mod placeholder;
mod plan;
mod prune;
mod ranges;
mod replace;
mod run;
mod schedule;
mod stats;
mod step;
mod transfer;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use elinvar_driver::{Command, Error, Event, Result};

use crate::device::element_bytes;
use crate::memory::pool::Block;
use crate::memory::span::Span;
use crate::memory::usage::{Storage, Usage};
use crate::{
    Args, Buffer, BufferSlice, BufferSliceMut, CheckedKernel, CommandBuffer, Device, Grid, Kernel, Stream,
};

use parameters::Named;
pub use parameters::{Parameter, ParameterKey};
use placeholder::Placeholder;
pub use plan::{Batching, Plan, PlanOptions};
pub use stats::{GraphStats, Route, Transfer};
use step::{Mode, Step, Touch, Work};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A node of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    graph: u64,
    index: usize,
}

/// Commands and what comes before what; see [`Graph::plan`].
pub struct Graph {
    id: u64,
    steps: Vec<Step>,
    /// Whether a node comes before one that was added earlier.
    backward: bool,
    /// A stream of each device, whose command buffers check what is added.
    streams: Vec<Stream>,
    /// What captured command buffers raise: the event, the value, the node.
    signals: Vec<(Arc<dyn Event>, u64, usize)>,
    parameters: Vec<Named>,
}

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

impl Graph {
    /// A graph without nodes.
    pub fn new() -> Self {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            id,
            steps: Vec::new(),
            backward: false,
            streams: Vec::new(),
            signals: Vec::new(),
            parameters: Vec::new(),
        }
    }

    /// A graph of what `record` adds to a command buffer of this stream. Nothing is submitted.
    ///
    /// # Errors
    /// What `record` answers; as [`Graph::append`].
    pub fn capture(stream: &Stream, record: impl FnOnce(&mut CommandBuffer) -> Result<()>) -> Result<Self> {
        let (mut graph, mut command_buffer) = (Self::new(), stream.command_buffer());
        record(&mut command_buffer)?;
        graph.append(command_buffer)?;
        Ok(graph)
    }

    /// Add the commands of a command buffer instead of submitting it; several command buffers, of any streams and devices, make one graph.
    ///
    /// Where a command buffer waits for an event, what follows comes after what the command buffer that raises it has before the signal; that one
    /// is appended first. The streams themselves put nothing in order: what comes before what follows from the
    /// use of memory and from events.
    ///
    /// # Errors
    /// `InvalidArgument` for a wait that no command buffer appended before ends, or a transient of another graph; `Unsupported`
    /// for a command buffer with a deadline or timestamps. The graph is then as it was.
    pub fn append(&mut self, command_buffer: CommandBuffer) -> Result<Vec<Node>> {
        let device = command_buffer.device().clone();
        if command_buffer.has_deadline() {
            return Err(Error::unsupported(
                "graph: a command buffer with a deadline, which is for one submission",
            ));
        }
        let (commands, usages) = command_buffer.into_lists();
        if commands.iter().any(|command| matches!(command, Command::Timestamp { .. })) {
            return Err(Error::unsupported(
                "graph: a command buffer with timestamps, whose places a graph does not keep",
            ));
        }
        let (steps, signals) = (self.steps.len(), self.signals.len());
        let added = self.add_commands(&device, &commands, &usages);
        added.inspect_err(|_| {
            self.steps.truncate(steps);
            self.signals.truncate(signals);
        })
    }

    fn add_commands(&mut self, device: &Device, commands: &[Command], usages: &[Usage]) -> Result<Vec<Node>> {
        for usage in usages {
            self.expect_own(&usage.storage)?;
        }
        let mut nodes = Vec::new();
        // What the next command comes after, and what the next signal does.
        let (mut behind, mut recorded): (Option<usize>, Vec<usize>) = (None, Vec::new());
        for command in commands {
            let (name, work, mut after) = match command {
                Command::Wait { event, value } => {
                    let raised = self.signals.iter().filter(|(e, v, _)| Arc::ptr_eq(e, event) && v >= value);
                    let raised = raised.min_by_key(|(_, value, _)| *value).map(|(.., node)| *node);
                    let node = raised.ok_or_else(|| {
                        Error::invalid(
                            "graph: a command buffer waits for an event that no command buffer appended before it raises",
                        )
                    })?;
                    ("wait".into(), Work::Nothing, vec![node])
                }
                Command::Signal { .. } => ("signal".into(), Work::Nothing, std::mem::take(&mut recorded)),
                command => (name(command), Work::Command(command.clone()), Vec::new()),
            };
            after.extend(behind);
            let touches = step::touches(command, usages);
            let node = self.steps.len();
            let is_wait = matches!(command, Command::Wait { .. });
            if let Command::Signal { event, value } = command {
                self.signals.push((event.clone(), *value, node));
            }
            if matches!(work, Work::Command(_)) {
                nodes.push(Node { graph: self.id, index: node });
            }
            if is_wait {
                behind = Some(node);
            }
            recorded.push(node);
            self.steps.push(Step { name, device: device.clone(), work, touches, after });
        }
        Ok(nodes)
    }

    /// Add a launch; see [`Kernel::launch`]. Over an empty grid it is a node that does nothing.
    ///
    /// # Safety
    /// As [`Kernel::launch`], each time the graph runs.
    ///
    /// # Errors
    /// As [`CommandBuffer::launch`]; `InvalidArgument` for a transient of another graph.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn launch(&mut self, kernel: &Kernel, grid: Grid, args: impl Args) -> Result<Node> {
        let mut command_buffer = self.stream(kernel.device())?.command_buffer();
        // SAFETY: the caller vouches for the same.
        unsafe { command_buffer.launch(kernel, grid, args) }?;
        self.append_one(command_buffer, &kernel.signature().name)
    }

    /// Add a launch of a kernel with bounds checks; see [`CheckedKernel::launch`].
    ///
    /// # Errors
    /// As [`Graph::launch`].
    #[allow(unsafe_code)] // calls the unchecked launch
    pub fn launch_checked(&mut self, kernel: &CheckedKernel, grid: Grid, args: impl Args) -> Result<Node> {
        // SAFETY: the checks keep every access within the memory of the arguments.
        unsafe { self.launch(&kernel.kernel, grid, args) }
    }

    /// Add a fill of a buffer or slice.
    ///
    /// # Errors
    /// As [`CommandBuffer::fill`].
    pub fn fill<'t, T: Pod>(&mut self, target: impl Into<BufferSliceMut<'t, T>>, value: T) -> Result<Node> {
        let target = target.into();
        let mut command_buffer = self.stream(&target.span.storage.device)?.command_buffer();
        command_buffer.fill(target, value)?;
        self.append_one(command_buffer, "fill")
    }

    /// Add a copy between buffers or slices of the same length, of one device or of two.
    ///
    /// # Errors
    /// As [`CommandBuffer::copy`].
    pub fn copy<'s, 't, T: Pod>(
        &mut self,
        source: impl Into<BufferSlice<'s, T>>,
        target: impl Into<BufferSliceMut<'t, T>>,
    ) -> Result<Node> {
        let (source, target) = (source.into(), target.into());
        let device = source.span.storage.device.clone();
        if device == target.span.storage.device || source.len() != target.len() {
            let mut command_buffer = self.stream(&device)?.command_buffer();
            command_buffer.copy(source, target)?;
            return self.append_one(command_buffer, "copy");
        }
        let (source, target) = (source.span, target.span);
        self.expect_own(&source.storage)?;
        self.expect_own(&target.storage)?;
        self.stream(&device)?;
        self.stream(&target.storage.device)?;
        let touches = vec![
            Touch::of_span(&source, Mode::Read, "copy: the source"),
            Touch::of_span(&target, Mode::Overwrite, "copy: the target"),
        ];
        let work = if source.len > 0 { Work::Transfer { source, target } } else { Work::Nothing };
        self.steps.push(Step { name: "transfer".into(), device, work, touches, after: Vec::new() });
        Ok(self.last())
    }

    /// A buffer of `len` zeroes that exists while the graph runs and shares its memory with others that are not in use at the
    /// same time. It is zeroed in every run. Nobody sees it but nodes of this graph.
    ///
    /// # Errors
    /// As [`Device::buffer`]; `InvalidArgument` for no elements.
    #[track_caller]
    #[allow(unsafe_code)] // the content is written before any node sees it
    pub fn transient<T: Pod>(&mut self, device: &Device, len: usize) -> Result<Buffer<T>> {
        // SAFETY: a fill of all of it comes before every node that uses it.
        let buffer = unsafe { self.transient_uninit::<T>(device, len) }?;
        let node = self.fill(&mut Buffer::<u8>::new(buffer.span.clone()), 0)?;
        self.steps[node.index].name = "zero".into();
        Ok(buffer)
    }

    /// As [`Graph::transient`], holding anything at the begin of each run.
    ///
    /// # Safety
    /// In each run, every element is written before it is read.
    ///
    /// # Errors
    /// As [`Graph::transient`].
    #[allow(unsafe_code)] // declares an unsafe function
    #[track_caller]
    pub unsafe fn transient_uninit<T: Pod>(&mut self, device: &Device, len: usize) -> Result<Buffer<T>> {
        let bytes = element_bytes::<T>(len)?;
        let limit = device.caps().limits.max_buffer_bytes;
        if bytes == 0 || bytes > limit {
            let name = device.name();
            return Err(Error::invalid(format!(
                "a transient of {bytes} bytes: device `{name}` allows 1 to {limit}"
            )));
        }
        let memory = Arc::new(Placeholder { graph: self.id, bytes });
        Ok(Buffer::new(Span::whole(device.clone(), Block::placeholder(memory, Location::caller()))))
    }

    /// Let a node come after others, besides those that it comes after by its use of memory.
    ///
    /// # Errors
    /// `InvalidArgument` for a node of another graph, or when it would come before itself, with the path.
    pub fn after(&mut self, node: Node, others: &[Node]) -> Result<()> {
        let to = self.index(node)?;
        for other in others {
            let from = self.index(*other)?;
            let backward = from >= to;
            if backward || self.backward {
                let cycle = edges::path(&self.before(), to, from);
                if let Some(cycle) = cycle {
                    return Err(Error::invalid(self.closes(&cycle)));
                }
            }
            self.backward |= backward;
            self.steps[to].after.push(from);
        }
        Ok(())
    }

    /// Name a node, for messages and statistics. Its first name is that of the launch, else of the kernel or operation.
    ///
    /// # Errors
    /// `InvalidArgument` for a node of another graph.
    pub fn name(&mut self, node: Node, name: impl Into<String>) -> Result<()> {
        let index = self.index(node)?;
        self.steps[index].name = name.into();
        Ok(())
    }

    /// How many nodes it has.
    pub fn len(&self) -> usize {
        self.steps.iter().filter(|step| step.is_work()).count()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What comes before each node.
    fn before(&self) -> Vec<Vec<usize>> {
        let mut before = edges::by_memory(self.steps.iter().map(|step| &step.touches[..]));
        for (before, step) in before.iter_mut().zip(&self.steps) {
            before.extend(&step.after);
            before.sort_unstable();
            before.dedup();
        }
        before
    }

    fn closes(&self, cycle: &[usize]) -> String {
        let shown = |node: &usize| format!("`{}` (node {node})", self.steps[*node].name);
        let (first, last) = (&cycle[0], &cycle[cycle.len() - 1]);
        let path: Vec<String> = cycle.iter().chain([first]).map(shown).collect();
        format!("graph: {} after {} would close a cycle: {}", shown(first), shown(last), path.join(" → "))
    }

    fn index(&self, node: Node) -> Result<usize> {
        match node.graph == self.id {
            true => Ok(node.index),
            false => Err(Error::invalid("graph: a node of another graph")),
        }
    }

    fn last(&self) -> Node {
        Node { graph: self.id, index: self.steps.len() - 1 }
    }

    /// The node of a command buffer of one command.
    fn append_one(&mut self, command_buffer: CommandBuffer, name: &str) -> Result<Node> {
        let device = command_buffer.device().clone();
        if self.append(command_buffer)?.is_empty() {
            let (touches, after) = (Vec::new(), Vec::new());
            self.steps.push(Step { name: name.into(), device, work: Work::Nothing, touches, after });
        }
        Ok(self.last())
    }

    /// The stream of a device.
    fn stream(&mut self, device: &Device) -> Result<Stream> {
        let known = self.streams.iter().find(|stream| stream.device() == device).cloned();
        known.map_or_else(
            || {
                let stream = device.stream()?;
                self.streams.push(stream.clone());
                Ok(stream)
            },
            Ok,
        )
    }

    /// An error for a transient of another graph.
    fn expect_own(&self, storage: &Arc<Storage>) -> Result<()> {
        match Placeholder::graph_of(&storage.block.memory) {
            Some(graph) if graph != self.id => Err(Error::invalid("graph: a transient of another graph")),
            _ => Ok(()),
        }
    }
}

/// What a node is called at first.
fn name(command: &Command) -> String {
    match command {
        Command::Dispatch(dispatch) => {
            let label = dispatch.label.as_ref().map(|label| label.name.clone());
            label.unwrap_or_else(|| dispatch.pipeline.signature().name.clone())
        }
        Command::Copy { .. } => "copy".into(),
        Command::Primitive { primitive, .. } => primitive.kind().name().into(),
        _ => "fill".into(),
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} nodes)", self.len())
    }
}
