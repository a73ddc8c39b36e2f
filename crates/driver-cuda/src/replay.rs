//! Lists of commands that are submitted again and again, as the driver's graphs.
//!
//! A list is the same when it is the same allocation, as a recording of the runtime is. When a long one comes for the third
//! time its calls are recorded instead of made, and from then on the whole is one call of the driver: the host does next to
//! nothing, and the device goes from launch to launch without it. A list that waits, signals, notes times, checks bounds,
//! copies arguments or has a launch whose size is read from memory is not recorded; nor is one again whose recording the driver has refused.

use std::sync::{Arc, Weak};

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstream};
use elinvar_driver::{Command, Result};
use parking_lot::Mutex;

use crate::context::{Context, Handle};
use crate::encode::{Encoder, Step};
use crate::failure::Failure;
use crate::shared::Shared;
use crate::staging::Staging;

/// Shorter lists are not worth it.
const LEAST: usize = 16;
/// How often a list has come when it is recorded.
const TIMES: u32 = 3;
/// Lists that are remembered before those that are gone are forgotten.
const MANY: usize = 64;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: what is recorded is what this stream is given, and nothing else is restricted.
const RELAXED: u32 = 2;

/// The lists that a device has seen.
#[derive(Default)]
pub(crate) struct Replays {
    known: Mutex<Vec<Known>>,
}

struct Known {
    commands: Weak<[Command]>,
    state: State,
}

enum State {
    /// It came so often.
    Seen(u32),
    Ready(Arc<Replay>),
    Never,
}

/// A list of commands as one call.
pub(crate) struct Replay {
    context: Arc<Context>,
    exec: Handle<CUgraphExec>,
}

impl Replays {
    /// The list as one call, if it is worth it. The context is current.
    pub(crate) fn find(&self, shared: &Shared, commands: &Arc<[Command]>) -> Option<Arc<Replay>> {
        if commands.len() < LEAST {
            return None;
        }
        let mut all = self.known.lock();
        // The allocation lives as long as it is known here, so no other list can have its address.
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
    /// Put the commands at the end of a stream. The context is current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn launch(&self, stream: CUstream) -> Result<()> {
        // SAFETY: both are of this context. What the commands name the submission keeps.
        let launched = unsafe { self.context.api.launch_graph(self.exec.0, stream) };
        launched.map_err(|failure| self.context.error(failure, "launching a recording"))
    }
}

impl Drop for Replay {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: made by `record`; the driver keeps what still runs. A failure leaves it to the process's end.
            let _left = unsafe { self.context.api.destroy_graph_exec(self.exec.0) };
        }
    }
}

/// Record a list; `None` if it is not to be.
#[allow(unsafe_code)] // C functions
fn record(shared: &Shared, commands: &[Command]) -> Result<Option<Replay>> {
    let works = |command: &Command| match command {
        Command::Dispatch(dispatch) => dispatch.grid.threads().is_some(),
        Command::Copy { .. } | Command::Fill { .. } => true,
        _ => false,
    };
    if !commands.iter().all(works) {
        return Ok(None);
    }
    let context = &shared.context;
    let failed = |failure: Failure| context.error(failure, "recording commands");
    let stream = context.create_stream(0)?;
    // SAFETY: the stream is new and this function's alone.
    let begun = unsafe { context.api.begin_capture(stream, RELAXED) }.map_err(failed);
    let (mut staging, mut params) = (Staging::default(), Vec::new());
    let mut encoder = Encoder { shared, stream, staging: &mut staging, params: &mut params, counts: None };
    let given = begun.and_then(|()| {
        commands.iter().try_for_each(|command| match encoder.encode(command)? {
            Step::Work => Ok(()),
            Step::Counts => Err(failed(Failure::malformed("cuStreamEndCapture"))),
        })
    });
    let mut graph: CUgraph = std::ptr::null_mut();
    let mut exec: CUgraphExec = std::ptr::null_mut();
    // SAFETY: it ends what was begun, and gives the graph or null; the stream is given back whatever came of it.
    let ended = unsafe {
        let ended = context.api.end_capture(stream, &mut graph);
        context.api.destroy_stream(stream).and(ended)
    };
    let is_plain = staging.is_empty();
    staging.end(&shared.chunks);
    // SAFETY: the graph is whole, and is not needed once there is something to launch.
    let made = unsafe {
        let made = ended.and_then(|()| context.api.instantiate(&mut exec, graph, 0));
        if !graph.is_null() {
            context.api.destroy_graph(graph).map_err(failed)?;
        }
        made
    };
    made.map_err(failed)?;
    let replay = Replay { context: context.clone(), exec: Handle(exec) };
    given?;
    Ok(is_plain.then_some(replay))
}
