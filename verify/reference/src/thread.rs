//! State of a thread: its call stack, and the synchronization point at which it waits.

use elinvar_ir::{BlockId, ValueId};
use elinvar_spmd::intrinsic::GroupCall;

use crate::fault::{Problem, Result};
use crate::value::Value;

/// Execution state of a thread.
#[derive(Debug)]
pub(crate) enum State<'m> {
    Ready,
    /// Stands at a barrier of the threadgroup.
    AtBarrier,
    /// Stands at the barrier at which its simdgroup has arrived.
    Arrived,
    /// Waits at an operation that the threads of its simdgroup execute together.
    AtGroupCall(Waiting<'m>),
    Done,
}

/// A place in a thread's execution: function, block and instruction of each frame.
pub(crate) type Site = Vec<(usize, BlockId, usize)>;

/// Operations that the active threads of a simdgroup execute together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function<'m> {
    SimdgroupBarrier,
    Group(GroupCall),
    /// An intrinsic of NVPTX, by its name.
    Warp(&'m str),
}

/// A call of such an operation.
#[derive(Debug)]
pub(crate) struct Waiting<'m> {
    pub function: Function<'m>,
    pub args: Vec<Value>,
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Thread<'m> {
    pub position: [u32; 3],
    /// Index in a full threadgroup, which determines simdgroup and lane.
    pub nominal: usize,
    /// Outermost first.
    pub frames: Vec<Frame>,
    pub state: State<'m>,
}

/// A stack frame.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Index in the module.
    pub function: usize,
    pub block: BlockId,
    /// The next instruction of the block.
    pub inst: usize,
    pub values: Vec<Option<Value>>,
    /// Addresses of the variables that end with the call.
    pub variables: Vec<u64>,
    /// Where the caller stores the return value.
    pub result: Option<ValueId>,
    /// For each loop header, the number of iterations.
    pub rounds: Vec<u32>,
}

impl Frame {
    pub(crate) fn new(
        index: usize,
        function: &elinvar_ir::Function,
        args: Vec<Value>,
        result: Option<ValueId>,
    ) -> Frame {
        let mut values = vec![None; function.values.len()];
        for (param, arg) in function.params.iter().zip(args) {
            values[param.value.0 as usize] = Some(arg);
        }
        Frame {
            function: index,
            block: BlockId(0),
            inst: 0,
            values,
            variables: Vec::new(),
            result,
            rounds: vec![0; function.blocks.len()],
        }
    }

    pub(crate) fn set(&mut self, result: Option<ValueId>, value: Value) {
        if let Some(result) = result {
            self.values[result.0 as usize] = Some(value);
        }
    }
}

impl Thread<'_> {
    /// The innermost call.
    pub(crate) fn frame(&self) -> Result<&Frame> {
        self.frames.last().ok_or_else(ended)
    }

    pub(crate) fn frame_mut(&mut self) -> Result<&mut Frame> {
        self.frames.last_mut().ok_or_else(ended)
    }

    /// Position of the thread.
    pub(crate) fn site(&self) -> Site {
        self.frames.iter().map(|f| (f.function, f.block, f.inst)).collect()
    }
}

fn ended() -> Problem {
    Problem::Malformed("a thread continues after its end".into())
}
