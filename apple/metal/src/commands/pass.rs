//! Contents of a command buffer: [`Step`]s, and the [`Op`]s of a pass, in encoding order.

use std::sync::Arc;

use elinvar_objc::{NsRange, Ref};

use crate::encoders::bindings::Bindings;
use crate::encoders::indirect::IndirectBuffer;
use crate::library::pipeline::Pipeline;
use crate::memory::buffer::Held;
use crate::sync::counter::SampleBuffer;
use crate::sync::event::Counter;
use crate::sync::fence::Fence;
use crate::values::Size;

/// A part of a command buffer.
pub enum Step {
    /// A pass of one encoder.
    Pass(Pass),
    /// Wait for an event.
    Wait(Arc<Counter>, u64),
    /// Signal an event.
    Signal(Arc<Counter>, u64),
}

/// A pass: the commands of one encoder.
#[derive(Default)]
pub struct Pass {
    /// The encoder's label.
    pub label: String,
    /// Debug groups and signposts.
    pub signposts: Vec<String>,
    /// Descriptions of the encoded commands, if captured.
    pub trace: Vec<String>,
    /// Whether dispatches between barriers may run concurrently.
    pub concurrent: bool,
    /// The operations.
    pub ops: Vec<Op>,
}

/// Failure of an operation: an `MTLCommandBufferError` and a text.
#[derive(Debug)]
pub struct Failure {
    pub code: isize,
    pub message: String,
}

/// A host function, called in order.
pub type HostWork = Box<dyn FnOnce() -> Result<(), Failure> + Send>;

/// One operation.
pub enum Op {
    Dispatch(Dispatch),
    /// Barrier.
    Barrier,
    Copy {
        from: (Held, usize),
        to: (Held, usize),
        length: usize,
    },
    Fill {
        to: Held,
        range: NsRange,
        value: u8,
    },
    /// Synchronize a managed buffer for the host.
    Synchronize(Held),
    /// Sample the time.
    Sample(Ref<SampleBuffer>, usize),
    /// Resolve samples to a buffer.
    Resolve {
        samples: Ref<SampleBuffer>,
        range: NsRange,
        to: Held,
        offset: usize,
    },
    Update(Ref<Fence>),
    Await(Ref<Fence>),
    /// Execute a range of an indirect command buffer, given directly or in a buffer, with the encoder's state.
    Execute {
        commands: Ref<IndirectBuffer>,
        range: ExecuteRange,
        inherited: Box<Bindings>,
    },
    /// Modify an indirect command buffer.
    ResetIndirect(Ref<IndirectBuffer>, NsRange),
    CopyIndirect {
        from: Ref<IndirectBuffer>,
        range: NsRange,
        to: Ref<IndirectBuffer>,
        at: usize,
    },
    Host(HostWork),
}

impl Op {
    /// Description for a capture.
    pub fn in_words(&self) -> String {
        match self {
            Self::Dispatch(dispatch) => format!("dispatch {}", dispatch.pipeline.compiled.signature().name),
            Self::Barrier => "barrier".to_owned(),
            Self::Copy { length, .. } => format!("copy {length}"),
            Self::Fill { range, .. } => format!("fill {}", range.length),
            Self::Synchronize(_) => "synchronize".to_owned(),
            Self::Sample(_, index) => format!("sample {index}"),
            Self::Resolve { .. } => "resolve".to_owned(),
            Self::Update(_) => "update fence".to_owned(),
            Self::Await(_) => "wait for fence".to_owned(),
            Self::Execute { .. } => "execute".to_owned(),
            Self::ResetIndirect(..) => "reset".to_owned(),
            Self::CopyIndirect { .. } => "copy commands".to_owned(),
            Self::Host(_) => "host".to_owned(),
        }
    }
}

impl Pass {
    /// The operations in execution order. Concurrent dispatches may run in any order; they are reversed here, so that results show missing
    /// barriers.
    pub fn into_ordered(self) -> Vec<Op> {
        if !self.concurrent {
            return self.ops;
        }
        let mut ordered = Vec::with_capacity(self.ops.len());
        let mut side_by_side = Vec::new();
        for op in self.ops {
            if matches!(op, Op::Dispatch(_) | Op::Execute { .. }) {
                side_by_side.push(op);
            } else {
                ordered.extend(side_by_side.drain(..).rev());
                ordered.push(op);
            }
        }
        ordered.extend(side_by_side.drain(..).rev());
        ordered
    }
}

/// Range of commands to execute.
pub enum ExecuteRange {
    Given(NsRange),
    /// `MTLIndirectCommandBufferExecutionRange` in a buffer.
    InBuffer(Held, usize),
}

/// A dispatch.
#[derive(Clone)]
pub struct Dispatch {
    pub pipeline: Ref<Pipeline>,
    /// One per argument of the kernel, in order.
    pub arguments: Vec<Argument>,
    pub grid: Grid,
    pub group: Size,
}

/// An argument's value.
#[derive(Clone)]
pub enum Argument {
    Buffer(Held, usize),
    Bytes(Arc<[u8]>),
    Threadgroup(usize),
}

/// Size of a grid.
#[derive(Clone)]
pub enum Grid {
    Threads(Size),
    Groups(Size),
    /// `MTLDispatchThreadgroupsIndirectArguments` in a buffer.
    Indirect(Held, usize),
}
