//! Repeated command lists as CUDA graphs.
//!
//! A list is recognized by its allocation, as recordings of the runtime keep theirs. When a long list is submitted for the third time, its
//! calls are captured to a graph, and from then on the list is one call. This saves host time and lets the device proceed from launch to
//! launch without the host. A list is not captured if it waits, signals, takes timestamps, checks bounds, stages arguments or has an indirect
//! launch; nor is it captured again after the driver has rejected its capture.

use std::sync::{Arc, Weak};

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstream};
use elinvar_driver::{Command, Result};
use parking_lot::Mutex;

use crate::context::{Context, Handle};
use crate::cooperative::GridCounter;
use crate::encode::{Encoder, Step};
use crate::failure::Failure;
use crate::libraries::StreamLibraries;
use crate::shared::Shared;
use crate::staging::Staging;

/// Minimum number of commands for which a graph pays off.
const LEAST: usize = 16;
/// Number of submissions after which a list is captured.
const TIMES: u32 = 3;
/// Number of remembered lists at which dropped ones are removed.
const MANY: usize = 64;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: captures the calls on this stream and restricts no other calls.
const RELAXED: u32 = 2;

/// The command lists that a device has seen.
#[derive(Default)]
pub(crate) struct Replays {
    known: Mutex<Vec<Known>>,
}

struct Known {
    commands: Weak<[Command]>,
    state: State,
}

enum State {
    /// Number of submissions so far.
    Seen(u32),
    Ready(Arc<Replay>),
    Never,
}

/// A command list as a graph.
pub(crate) struct Replay {
    context: Arc<Context>,
    exec: Handle<CUgraphExec>,
    /// The workspace of its primitives. CUDA runs one launch of a graph at a time.
    _libraries: StreamLibraries,
    /// The counter of its grid barriers.
    _counter: GridCounter,
}

impl Replays {
    /// The graph of a list, if it is worth it. The context must be current.
    pub(crate) fn find(&self, shared: &Shared, commands: &Arc<[Command]>) -> Option<Arc<Replay>> {
        if commands.len() < LEAST {
            return None;
        }
        let mut all = self.known.lock();
        // The allocation is kept alive while it is listed here, so no other list can have its address.
        let known =
            all.iter().position(|known| std::ptr::addr_eq(known.commands.as_ptr(), Arc::as_ptr(commands)));
        let Some(known) = known else {
            if all.len() >= MANY {
                all.retain(|known| known.commands.strong_count() > 0);
            }
            all.push(Known { commands: Arc::downgrade(commands), state: State::Seen(1) });
            return None;
        };
        let state = &mut all[known].state;
        match state {
            State::Ready(replay) => return Some(replay.clone()),
            State::Never => return None,
            State::Seen(times) if *times + 1 < TIMES => {
                *times += 1;
                return None;
            }
            State::Seen(_) => {}
        }
        let replay = record(shared, commands).ok().flatten().map(Arc::new);
        *state = replay.clone().map_or(State::Never, State::Ready);
        replay
    }
}

impl Replay {
    /// Appends the graph to a stream. The context must be current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn launch(&self, stream: CUstream) -> Result<()> {
        // SAFETY: both are of this context. The submission keeps the memory that the commands use.
        let launched = unsafe { self.context.api.launch_graph(self.exec.0, stream) };
        launched.map_err(|failure| self.context.error(failure, "launching a recording"))
    }
}

impl Drop for Replay {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: made by `record`; the driver keeps running launches alive. On failure, it is released at the end of the process.
            let _left = unsafe { self.context.api.destroy_graph_exec(self.exec.0) };
        }
    }
}

/// Captures a list; `None` if it cannot be captured.
#[allow(unsafe_code)] // C functions
fn record(shared: &Shared, commands: &[Command]) -> Result<Option<Replay>> {
    let works = |command: &Command| match command {
        Command::Dispatch(dispatch) => dispatch.grid.threads().is_some(),
        Command::Copy { .. } | Command::Fill { .. } | Command::Primitive { .. } => true,
        _ => false,
    };
    if !commands.iter().all(works) {
        return Ok(None);
    }
    let context = &shared.context;
    let mut counter = GridCounter::default();
    let is_cooperative = |command: &Command| match command {
        Command::Dispatch(dispatch) => dispatch.pipeline.signature().is_cooperative(),
        _ => false,
    };
    if commands.iter().any(is_cooperative) {
        // Not while the stream is captured.
        counter.address(context)?;
    }
    let failed = |failure: Failure| context.error(failure, "recording commands");
    let stream = context.create_stream(0)?;
    // SAFETY: the stream is new and used only here.
    let begun = unsafe { context.api.begin_capture(stream, RELAXED) }.map_err(failed);
    let (mut staging, mut params) = (Staging::default(), Vec::new());
    let mut own = StreamLibraries::default();
    let libraries = &mut own;
    let mut encoder = Encoder {
        shared,
        stream,
        staging: &mut staging,
        params: &mut params,
        counter: &mut counter,
        libraries,
        counts: None,
    };
    let given = begun.and_then(|()| {
        commands.iter().try_for_each(|command| match encoder.encode(command)? {
            Step::Work => Ok(()),
            Step::Counts => Err(failed(Failure::malformed("cuStreamEndCapture"))),
        })
    });
    let mut graph: CUgraph = std::ptr::null_mut();
    let mut exec: CUgraphExec = std::ptr::null_mut();
    // SAFETY: ends the capture, and returns the graph or null; the stream is released in either case.
    let ended = unsafe {
        let ended = context.api.end_capture(stream, &mut graph);
        context.api.destroy_stream(stream).and(ended)
    };
    let is_plain = staging.is_empty();
    staging.end(&shared.chunks);
    // SAFETY: the graph is complete, and is not needed after instantiation.
    let made = unsafe {
        let made = ended.and_then(|()| context.api.instantiate(&mut exec, graph, 0));
        if !graph.is_null() {
            context.api.destroy_graph(graph).map_err(failed)?;
        }
        made
    };
    made.map_err(failed)?;
    let (context, exec) = (context.clone(), Handle(exec));
    let replay = Replay { context, exec, _libraries: own, _counter: counter };
    given?;
    Ok(is_plain.then_some(replay))
}
