//! What a command buffer consists of: [`Step`]s, and the [`Op`]s of a pass, in the order in which they were encoded.

use std::sync::Arc;

use elinvar_objc::{NsRange, Ref};

use crate::encoders::indirect::IndirectBuffer;
use crate::library::pipeline::Pipeline;
use crate::memory::buffer::Held;
use crate::sync::counter::SampleBuffer;
use crate::sync::event::Counter;
use crate::sync::fence::Fence;
use crate::values::Size;

/// A part of a command buffer.
pub enum Step {
    /// What one encoder encoded.
    Pass(Pass),
    /// Wait for an event.
    Wait(Arc<Counter>, u64),
    /// Raise an event.
    Signal(Arc<Counter>, u64),
}

/// What one encoder encoded.
#[derive(Default)]
pub struct Pass {
    /// The encoder's label.
    pub label: String,
    /// Debug groups and signposts.
    pub signposts: Vec<String>,
    /// What was encoded, in words, if it is captured.
    pub trace: Vec<String>,
    /// Whether dispatches between barriers may run side by side.
    pub concurrent: bool,
    /// What is to be done.
    pub ops: Vec<Op>,
}

/// Why an operation could not be done: an `MTLCommandBufferError` and a text.
#[derive(Debug)]
pub struct Failure {
    pub code: isize,
    pub message: String,
}

/// What is done by the host in its turn.
pub type HostWork = Box<dyn FnOnce() -> Result<(), Failure> + Send>;

/// One operation.
pub enum Op {
    Dispatch(Dispatch),
    /// What is behind it begins when what is before it has ended.
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
    /// Let the host see a managed buffer.
    Synchronize(Held),
    /// Note the time.
    Sample(Ref<SampleBuffer>, usize),
    /// Write samples to a buffer.
    Resolve {
        samples: Ref<SampleBuffer>,
        range: NsRange,
        to: Held,
        offset: usize,
    },
    Update(Ref<Fence>),
    Await(Ref<Fence>),
    /// Run commands of an indirect command buffer: a range, or the one that lies in a buffer.
    Execute {
        commands: Ref<IndirectBuffer>,
        range: ExecuteRange,
    },
    /// Change an indirect command buffer.
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
    /// What a capture shows of it.
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
    /// The operations in the order in which they run. Dispatches that may run side by side do so in no order; here the
    /// last goes first, so that the result shows where a barrier is missing.
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

/// Which commands are run.
pub enum ExecuteRange {
    Given(NsRange),
    /// `MTLIndirectCommandBufferExecutionRange` in a buffer.
    InBuffer(Held, usize),
}

/// A kernel over a grid.
#[derive(Clone)]
pub struct Dispatch {
    pub pipeline: Ref<Pipeline>,
    /// One for each argument of the kernel, in its order.
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

/// How large a grid is.
#[derive(Clone)]
pub enum Grid {
    Threads(Size),
    Groups(Size),
    /// `MTLDispatchThreadgroupsIndirectArguments` in a buffer.
    Indirect(Held, usize),
}
