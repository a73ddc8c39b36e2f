//! [`Replayed`]: the commands of a recording or a graph as a trace describes them, without the memory that they use.

use std::fmt;
use std::sync::Arc;

use elinvar_driver::{Binding, Command, Dim3, Dispatch, InlineBytes, Label, Pipeline, PrimitiveKind};

/// Where replayed commands come from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A [`Recording`](crate::Recording).
    Recording {
        /// Number of the recording, unique in the process.
        number: u64,
    },
    /// A [`Plan`](crate::Plan) of a graph.
    Graph {
        /// Number of the graph, unique in the process.
        number: u64,
        /// Number of the submission within a run of the plan.
        submission: usize,
        /// The node of each command.
        nodes: Arc<[GraphNode]>,
    },
}

/// A node of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphNode {
    /// Position in the order in which nodes were added to the graph.
    pub index: usize,
    /// Name of the node; see [`Graph::name`](crate::Graph::name).
    pub name: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recording { number } => write!(f, "recording {number}"),
            Self::Graph { number, submission, .. } => write!(f, "graph {number}, submission {submission}"),
        }
    }
}

/// Commands of a recording or of a part of a graph that are submitted again.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The recording or graph.
    pub origin: Origin,
    /// Its commands, in order.
    pub commands: Vec<TracedCommand>,
}

impl Replayed {
    pub(crate) fn new(origin: &Origin, commands: &[Command], keeps_arguments: bool) -> Arc<Self> {
        let commands = commands.iter().map(|command| TracedCommand::of(command, keeps_arguments)).collect();
        Arc::new(Self { origin: origin.clone(), commands })
    }
}

/// A command, as a trace describes it.
#[derive(Clone, Debug)]
pub struct TracedCommand {
    /// The work.
    pub work: TracedWork,
    /// Label of the launch.
    pub label: Option<Arc<Label>>,
}

/// Work of a command.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TracedWork {
    /// A launch of a kernel.
    Launch {
        /// The kernel.
        kernel: Arc<dyn Pipeline>,
        /// Number of threads of the grid; `None` for an indirect launch.
        threads: Option<Dim3>,
        /// Number of threads of a threadgroup.
        group: Dim3,
        /// Bytes of the memory that is bound: buffers, slices, and memory that is accessed through addresses in argument buffers. A buffer that is bound twice counts twice.
        bytes: u64,
        /// Its inline arguments; with [`TraceDetail::Arguments`](crate::TraceDetail::Arguments).
        arguments: Option<InlineArguments>,
    },
    /// A launch of a kernel that launches kernels; its time includes theirs.
    LaunchNested {
        /// The kernel.
        kernel: Arc<dyn Pipeline>,
    },
    /// An execution of an indirect command buffer's commands.
    ExecuteCommands,
    /// A copy.
    Copy {
        /// Number of bytes.
        bytes: u64,
    },
    /// A fill.
    Fill {
        /// Number of bytes.
        bytes: u64,
    },
    /// A primitive of a vendor's library.
    Primitive(PrimitiveKind),
    /// A signal of an event.
    Signal,
    /// A wait for an event.
    Wait,
    /// A timestamp.
    Timestamp,
    /// A command that this version does not describe.
    Other,
}

/// Bytes of the arguments of a launch that are copied into it, by the position of the argument.
pub type InlineArguments = Arc<[(usize, InlineBytes)]>;

/// The inline arguments of a launch.
pub(crate) fn inline_arguments(dispatch: &Dispatch) -> InlineArguments {
    let inline = |(at, binding): (usize, &Binding)| match binding {
        Binding::Bytes(bytes) => Some((at, bytes.clone())),
        Binding::Memory(_) | Binding::Threadgroup(_) | Binding::Unbound => None,
    };
    dispatch.bindings.iter().enumerate().filter_map(inline).collect()
}

/// Bytes of the memory that a launch binds.
pub(crate) fn bound_bytes(dispatch: &Dispatch) -> u64 {
    let bound = dispatch.bindings.iter().filter_map(|binding| match binding {
        Binding::Memory(slice) => Some(slice.len),
        Binding::Bytes(_) | Binding::Threadgroup(_) | Binding::Unbound => None,
    });
    bound.chain(dispatch.uses.iter().map(|used| used.slice.len)).sum()
}

impl TracedCommand {
    fn of(command: &Command, keeps_arguments: bool) -> Self {
        let launch = |dispatch: &Dispatch| TracedWork::Launch {
            kernel: dispatch.pipeline.clone(),
            threads: dispatch.grid.threads(),
            group: dispatch.group,
            bytes: bound_bytes(dispatch),
            arguments: keeps_arguments.then(|| inline_arguments(dispatch)),
        };
        let (work, label) = match command {
            Command::Dispatch(dispatch) => (launch(dispatch), dispatch.label.clone()),
            Command::LaunchNested(nested) => {
                let kernel = nested.root.pipeline.clone();
                (TracedWork::LaunchNested { kernel }, nested.root.label.clone())
            }
            Command::ExecuteCommands(execution) => (TracedWork::ExecuteCommands, execution.label.clone()),
            Command::Copy { source, .. } => (TracedWork::Copy { bytes: source.len }, None),
            Command::Fill { target, .. } => (TracedWork::Fill { bytes: target.len }, None),
            Command::Primitive { primitive, .. } => (TracedWork::Primitive(primitive.kind()), None),
            Command::Signal { .. } => (TracedWork::Signal, None),
            Command::Wait { .. } => (TracedWork::Wait, None),
            Command::Timestamp { .. } => (TracedWork::Timestamp, None),
            _ => (TracedWork::Other, None),
        };
        Self { work, label }
    }

    /// Name of the kernel or operation.
    pub fn name(&self) -> &str {
        match &self.work {
            TracedWork::Launch { kernel, .. } | TracedWork::LaunchNested { kernel } => {
                &kernel.signature().name
            }
            TracedWork::ExecuteCommands => "execute commands",
            TracedWork::Copy { .. } => "copy",
            TracedWork::Fill { .. } => "fill",
            TracedWork::Primitive(kind) => kind.name(),
            TracedWork::Signal => "signal",
            TracedWork::Wait => "wait",
            TracedWork::Timestamp => "timestamp",
            TracedWork::Other => "command",
        }
    }

    /// Whether the device executes it. Signals, waits and timestamps take no time of the device.
    pub fn is_work(&self) -> bool {
        !matches!(self.work, TracedWork::Signal | TracedWork::Wait | TracedWork::Timestamp)
    }
}
