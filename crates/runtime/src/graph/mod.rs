//! [`Graph`]: launches, copies and fills with their dependencies, on one device or several.
//!
//! A graph is built explicitly or captured from command buffers; each node is a command that a [`CommandBuffer`] has validated. A
//! node depends on the earlier nodes with which its memory accesses conflict, and on those that the program names. A [`Plan`]
//! executes it: the live nodes, on as many streams as there are branches, in few submissions, with the transients in one arena. A
//! graph runs nothing itself, and planning does not change it.
//!
//! `node` is a node as data, `edges` finds dependencies, `merge` and `prune` remove redundant and dead nodes, `schedule` assigns
//! the rest to branches, `arena` places the transients, `layout` assembles the submissions, and `run` submits them.

mod arena;
mod edges;
mod layout;
mod merge;
mod node;
mod parameters;
mod placeholder;
mod plan;
mod prune;
mod ranges;
mod replace;
mod run;
mod schedule;
mod stats;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use elinvar_driver::{Command, Dispatch, Error, Event, Result};

use crate::collective::GraphCollective;
use crate::device::element_bytes;
use crate::memory::pool::Block;
use crate::memory::span::Span;
use crate::memory::usage::{Storage, Usage};
use crate::{
    Args, Buffer, BufferSlice, BufferSliceMut, CheckedKernel, CommandBuffer, Communicator, Device, Grid,
    Kernel, Operation, Stream,
};

use node::{MemoryAccess, Mode, NodeData, Work};
use parameters::Named;
pub use parameters::{Parameter, ParameterKey};
use placeholder::Placeholder;
pub use plan::{Batching, Plan, PlanOptions};
pub use stats::{GraphStats, Transfer};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Handle on a node of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    graph: u64,
    index: usize,
}

/// A graph of commands with their dependencies; see [`Graph::plan`].
pub struct Graph {
    id: u64,
    nodes: Vec<NodeData>,
    /// Whether a node precedes one that was added earlier.
    backward: bool,
    /// A stream of each device, whose command buffers validate added nodes.
    streams: Vec<Stream>,
    /// Signals of captured command buffers: event, value, node.
    signals: Vec<(Arc<dyn Event>, u64, usize)>,
    parameters: Vec<Named>,
}

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            id,
            nodes: Vec::new(),
            backward: false,
            streams: Vec::new(),
            signals: Vec::new(),
            parameters: Vec::new(),
        }
    }

    /// A graph of the commands that `record` adds to a command buffer of this stream. Submits nothing.
    ///
    /// # Errors
    /// Errors of `record` and of [`Graph::append`].
    pub fn capture(stream: &Stream, record: impl FnOnce(&mut CommandBuffer) -> Result<()>) -> Result<Self> {
        let (mut graph, mut command_buffer) = (Self::new(), stream.command_buffer());
        record(&mut command_buffer)?;
        graph.append(command_buffer)?;
        Ok(graph)
    }

    /// Adds the commands of a command buffer as nodes, instead of submitting it. Command buffers of any streams and devices can
    /// form one graph. Returns the nodes.
    ///
    /// If the command buffer waits for an event, the following nodes depend on the nodes before the signal, in the command buffer
    /// that signals it, which must be appended first. Streams do not order the nodes: dependencies follow from memory accesses
    /// and events only.
    ///
    /// # Errors
    /// `InvalidArgument` for a wait that no previously appended command buffer signals, or a transient of another graph;
    /// `Unsupported` for a command buffer with a deadline, timestamps or copies between devices. The graph is unchanged in that case.
    pub fn append(&mut self, command_buffer: CommandBuffer) -> Result<Vec<Node>> {
        let device = command_buffer.device().clone();
        command_buffer.expect_alone("graph")?;
        if command_buffer.has_deadline() {
            return Err(Error::unsupported(
                "graph: the command buffer has a deadline, which applies to one submission only",
            ));
        }
        let (commands, usages) = command_buffer.into_lists();
        if commands.iter().any(|command| matches!(command, Command::Timestamp { .. })) {
            return Err(Error::unsupported(
                "graph: the command buffer has timestamps, which graphs do not support",
            ));
        }
        let (nodes, signals) = (self.nodes.len(), self.signals.len());
        let added = self.add_commands(&device, &commands, &usages);
        added.inspect_err(|_| {
            self.nodes.truncate(nodes);
            self.signals.truncate(signals);
        })
    }

    fn add_commands(&mut self, device: &Device, commands: &[Command], usages: &[Usage]) -> Result<Vec<Node>> {
        for usage in usages {
            self.expect_own(&usage.storage)?;
        }
        let mut nodes = Vec::new();
        // Dependencies of the next command, and of the next signal.
        let (mut behind, mut recorded): (Option<usize>, Vec<usize>) = (None, Vec::new());
        for command in commands {
            let (name, work, mut after) = match command {
                Command::Wait { event, value } => {
                    let raised = self.signals.iter().filter(|(e, v, _)| Arc::ptr_eq(e, event) && v >= value);
                    let raised = raised.min_by_key(|(_, value, _)| *value).map(|(.., node)| *node);
                    let node = raised.ok_or_else(|| {
                        Error::invalid(
                            "graph: the command buffer waits for an event that no previously appended command buffer signals",
                        )
                    })?;
                    ("wait".into(), Work::Nothing, vec![node])
                }
                Command::Signal { .. } => ("signal".into(), Work::Nothing, std::mem::take(&mut recorded)),
                command => (name(command), Work::Command(command.clone()), Vec::new()),
            };
            after.extend(behind);
            let accesses = node::accesses(command, usages);
            let node = self.nodes.len();
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
            self.nodes.push(NodeData { name, device: device.clone(), work, accesses, after });
        }
        Ok(nodes)
    }

    /// Adds a launch; see [`Kernel::launch`]. With an empty grid, the node does nothing.
    ///
    /// # Safety
    /// As [`Kernel::launch`], for each run of the graph.
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

    /// Adds a launch of a kernel with bounds checks; see [`CheckedKernel::launch`].
    ///
    /// # Errors
    /// As [`Graph::launch`].
    #[allow(unsafe_code)] // calls the unchecked launch
    pub fn launch_checked(&mut self, kernel: &CheckedKernel, grid: Grid, args: impl Args) -> Result<Node> {
        // SAFETY: the checks keep every access within the memory of the arguments.
        unsafe { self.launch(&kernel.kernel, grid, args) }
    }

    /// Adds a fill of a buffer or slice with `value`, of at most 16 bytes.
    ///
    /// # Errors
    /// As [`CommandBuffer::fill`].
    pub fn fill<'t, T: Pod>(&mut self, target: impl Into<BufferSliceMut<'t, T>>, value: T) -> Result<Node> {
        let target = target.into();
        let mut command_buffer = self.stream(&target.span.storage.device)?.command_buffer();
        command_buffer.fill(target, value)?;
        self.append_one(command_buffer, "fill")
    }

    /// Adds a copy between buffers or slices of the same length, of one device or of two.
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
        let accesses = vec![
            MemoryAccess::of_span(&source, Mode::Read, "copy: the source"),
            MemoryAccess::of_span(&target, Mode::Overwrite, "copy: the target"),
        ];
        let work = if source.len > 0 { Work::Transfer { source, target } } else { Work::Nothing };
        self.nodes.push(NodeData { name: "transfer".into(), device, work, accesses, after: Vec::new() });
        Ok(self.last())
    }

    /// Adds an operation of a communicator's member. Its operations run in the order in which they are added, which must be the same for all members; members
    /// may be in one graph if they have different devices.
    ///
    /// # Errors
    /// As [`CommandBuffer::collective`]; `InvalidArgument` for two members on one device; `Unsupported` for a transient.
    pub fn collective(&mut self, communicator: &Communicator, operation: Operation<'_>) -> Result<Node> {
        let device = communicator.device().clone();
        let (operation, [source, target]) = GraphCollective::new(communicator, operation)?;
        let name = operation.name();
        if [&source, &target].into_iter().flatten().any(|span| span.storage.block.is_placeholder()) {
            return Err(Error::unsupported(format!("graph: {name} of a transient")));
        }
        let mut after = Vec::new();
        for (node, data) in self.nodes.iter().enumerate() {
            let Work::Collective(other) = &data.work else { continue };
            if other.shares_device(communicator) {
                return Err(Error::invalid(format!(
                    "graph: {name}: another member of the communicator on device `{}`; members on one device need a graph each",
                    device.name()
                )));
            }
            if other.is_of(communicator) {
                after = vec![node];
            }
        }
        self.stream(&device)?;
        let access = |span: Option<Span>, mode| span.map(|span| MemoryAccess::of_span(&span, mode, name));
        let accesses = access(source, Mode::Read).into_iter().chain(access(target, Mode::Modify)).collect();
        let work = Work::Collective(Arc::new(operation));
        self.nodes.push(NodeData { name: name.into(), device, work, accesses, after });
        Ok(self.last())
    }

    /// A buffer of `len` elements for intermediate results, zeroed in every run. It has memory only while the graph runs, shared
    /// with transients that are not in use at the same time. Only nodes of this graph can use it.
    ///
    /// # Errors
    /// As [`Device::buffer`]; `InvalidArgument` if `len` is 0.
    #[track_caller]
    #[allow(unsafe_code)] // the content is written before any node sees it
    pub fn transient<T: Pod>(&mut self, device: &Device, len: usize) -> Result<Buffer<T>> {
        // SAFETY: a fill of the whole buffer precedes every node that uses it.
        let buffer = unsafe { self.transient_uninit::<T>(device, len) }?;
        let node = self.fill(&mut Buffer::<u8>::new(buffer.span.clone()), 0)?;
        self.nodes[node.index].name = "zero".into();
        Ok(buffer)
    }

    /// As [`Graph::transient`], with unspecified content at the begin of each run.
    ///
    /// # Safety
    /// In each run, every element must be written before it is read.
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

    /// Adds dependencies of `node` on `others`, in addition to those from memory accesses.
    ///
    /// # Errors
    /// `InvalidArgument` for a node of another graph, or if the dependency would close a cycle, with the cycle.
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
            self.nodes[to].after.push(from);
        }
        Ok(())
    }

    /// Names a node, for messages and statistics. By default it has the name of the launch's label, otherwise of the kernel or
    /// operation.
    ///
    /// # Errors
    /// `InvalidArgument` for a node of another graph.
    pub fn name(&mut self, node: Node, name: impl Into<String>) -> Result<()> {
        let index = self.index(node)?;
        self.nodes[index].name = name.into();
        Ok(())
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.iter().filter(|data| data.is_work()).count()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Dependencies of each node.
    fn before(&self) -> Vec<Vec<usize>> {
        let mut before = edges::by_memory(self.nodes.iter().map(|data| &data.accesses[..]));
        for (before, data) in before.iter_mut().zip(&self.nodes) {
            before.extend(&data.after);
            before.sort_unstable();
            before.dedup();
        }
        before
    }

    fn closes(&self, cycle: &[usize]) -> String {
        let shown = |node: &usize| format!("`{}` (node {node})", self.nodes[*node].name);
        let (first, last) = (&cycle[0], &cycle[cycle.len() - 1]);
        let path: Vec<String> = cycle.iter().chain([first]).map(shown).collect();
        format!("graph: {} after {} would close a cycle: {}", shown(first), shown(last), path.join(" → "))
    }

    fn index(&self, node: Node) -> Result<usize> {
        match node.graph == self.id {
            true => Ok(node.index),
            false => Err(Error::invalid("graph: the node belongs to another graph")),
        }
    }

    fn last(&self) -> Node {
        Node { graph: self.id, index: self.nodes.len() - 1 }
    }

    /// Appends a command buffer with one command.
    fn append_one(&mut self, command_buffer: CommandBuffer, name: &str) -> Result<Node> {
        let device = command_buffer.device().clone();
        if self.append(command_buffer)?.is_empty() {
            let (accesses, after) = (Vec::new(), Vec::new());
            self.nodes.push(NodeData { name: name.into(), device, work: Work::Nothing, accesses, after });
        }
        Ok(self.last())
    }

    /// The stream that validates commands of a device.
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

    /// Rejects a transient of another graph.
    fn expect_own(&self, storage: &Arc<Storage>) -> Result<()> {
        match Placeholder::graph_of(&storage.block.memory) {
            Some(graph) if graph != self.id => {
                Err(Error::invalid("graph: the transient belongs to another graph"))
            }
            _ => Ok(()),
        }
    }
}

/// Default name of a node.
fn name(command: &Command) -> String {
    let of_launch = |dispatch: &Dispatch| {
        let label = dispatch.label.as_ref().map(|label| label.name.clone());
        label.unwrap_or_else(|| dispatch.pipeline.signature().name.clone())
    };
    match command {
        Command::Dispatch(dispatch) => of_launch(dispatch),
        Command::LaunchNested(nested) => of_launch(&nested.root),
        Command::ExecuteCommands(execution) => {
            let label = execution.label.as_ref().map(|label| label.name.clone());
            label.unwrap_or_else(|| "execute_commands".into())
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
