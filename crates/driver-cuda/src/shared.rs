//! State shared by the queues of a device, and the handling of a destroyed context.

use std::sync::{Arc, Weak};

use elinvar_cache::Cache;
use elinvar_driver::{Command, Error, Fault, Label, Pipeline, Result};
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::commands::{Linker, Programs};
use crate::context::Context;
use crate::failure::{Extent, Failure};
use crate::libraries::Libraries;
use crate::poller::Poller;
use crate::queue::{Stream, Submissions};
use crate::replay::Replays;
use crate::staging::Chunks;

/// A device's context and the state that its queues share.
pub(crate) struct Shared {
    pub(crate) context: Arc<Context>,
    pub(crate) clock: Clock,
    pub(crate) chunks: Chunks,
    pub(crate) replays: Replays,
    pub(crate) libraries: Libraries,
    pub(crate) programs: Programs,
    /// Or why CUDA's device runtime was not found.
    pub(crate) linker: Result<Linker, String>,
    pub(crate) poller: Arc<Poller>,
    pub(crate) queues: Mutex<Vec<Weak<Submissions>>>,
}

/// A launch that may have destroyed the context.
struct Suspect {
    commands: Arc<[Command]>,
    kernel: String,
    launch: Option<Arc<Label>>,
}

impl Shared {
    pub(crate) fn new(context: Arc<Context>, cache: &Cache) -> Result<Arc<Self>> {
        let clock = Clock::new(&context)?;
        let libraries = Libraries::find(&context, cache);
        let poller = Poller::start(&context.name)?;
        let (chunks, replays, programs) = (Chunks::default(), Replays::default(), Programs::default());
        let (linker, queues) = (Linker::find(cache), Mutex::default());
        Ok(Arc::new(Self { context, clock, chunks, replays, libraries, programs, linker, poller, queues }))
    }

    /// Registers a queue, and removes dropped ones.
    pub(crate) fn register(&self, queue: &Arc<Submissions>) {
        let mut queues = self.queues.lock();
        if queues.len() == queues.capacity() {
            queues.retain(|queue| queue.strong_count() > 0);
        }
        queues.push(Arc::downgrade(queue));
    }

    /// Ends everything in flight after the context was destroyed, and accepts nothing more. Called only by the poller thread.
    ///
    /// The driver does not report the kernel that faulted. If all kernels in flight have the same name, that is the one, and the submission
    /// of the first of them ends in the fault; otherwise the error lists all candidates.
    pub(crate) fn fail(&self, failure: Failure) {
        let queues: Vec<Arc<Submissions>> = self.queues.lock().iter().filter_map(Weak::upgrade).collect();
        let suspects: Vec<Suspect> = match failure.extent() {
            Extent::Kernel => {
                let begun = |queue: &Arc<Submissions>| -> Vec<Suspect> {
                    queue.with_begun(|begun| begun.flat_map(launches).collect())
                };
                queues.iter().flat_map(begun).collect()
            }
            Extent::Call | Extent::Device => Vec::new(),
        };
        let (text, deed, name) = (failure.text(self.context.api), failure.deed(), &self.context.name);
        let mut names: Vec<&str> = suspects.iter().map(|suspect| suspect.kernel.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let (fault, cause) = match (&names[..], suspects.first()) {
            ([kernel], Some(first)) => {
                let launch = if suspects.len() == 1 { first.launch.clone() } else { None };
                let message = format!("{deed} ({text})");
                let fault = Fault { kernel: (*kernel).to_owned(), message, location: None, launch };
                let cause = fault.to_string();
                (Some((first.commands.clone(), Error::Fault(fault))), cause)
            }
            ([], _) | (_, None) => (None, text),
            (names, _) => (None, format!("one of the kernels `{}`: {deed} ({text})", names.join("`, `"))),
        };
        let message = format!("device `{name}` accepts no more work from this process: {cause}");
        self.context.lose(Error::DeviceLost(message));
        let guilty = fault.as_ref().map(|(commands, fault)| (commands, fault));
        queues.iter().for_each(|queue| Stream::abandon(queue, guilty));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.poller.close();
    }
}

fn launches(commands: &Arc<[Command]>) -> Vec<Suspect> {
    let suspect = |pipeline: &Arc<dyn Pipeline>, launch: &Option<Arc<Label>>| Suspect {
        commands: commands.clone(),
        kernel: pipeline.signature().name.clone(),
        launch: launch.clone(),
    };
    let suspects = |command: &Command| match command {
        Command::Dispatch(dispatch) => vec![suspect(&dispatch.pipeline, &dispatch.label)],
        Command::ExecuteCommands(execution) => {
            execution.kernels().map(|pipeline| suspect(pipeline, &execution.label)).collect()
        }
        Command::LaunchNested(nested) => {
            let root = std::iter::once(&nested.root.pipeline);
            let kernels = root.chain(nested.children.kernels());
            kernels.map(|pipeline| suspect(pipeline, &nested.root.label)).collect()
        }
        _ => Vec::new(),
    };
    commands.iter().flat_map(suspects).collect()
}
